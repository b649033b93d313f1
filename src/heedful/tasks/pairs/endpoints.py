"""The endpoints of models that translate."""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, Field, StrictBool, StrictStr

from heedful.basics.errors import UserError
from heedful.data.protected.known import KnownSpans
from heedful.inference.texts import SplitText, gaps, one_line
from heedful.inference.translation import Translation
from heedful.tasks.endpoints import (
    Endpoint,
    Limits,
    Model,
    ModelRequest,
    OnLine,
    Search,
    Work,
    as_list,
    search_options,
    too_large,
)
from heedful.tasks.pairs.findings import findings
from heedful.tasks.pairs.matches import Matches

# Bytes of a weight in JSON; one or two less for 0 and 1.
_BYTES_A_WEIGHT = 7
_HINT = "send less text, or ask for fewer translations, or without alignments"


class TranslateRequest(ModelRequest):
    """``POST /api/translate``."""

    source: StrictStr | None = None
    target: StrictStr | None = None
    text: StrictStr | list[StrictStr]
    nbest: Annotated[int, Field(ge=1)] = 1
    beam: Annotated[int, Field(ge=1)] | None = None
    length_penalty: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] | None = None
    alignments: StrictBool = False
    sentences: StrictBool | None = None
    prefix: StrictStr | None = None
    memory: StrictBool = True
    keep_unknown: StrictBool = False
    matches: StrictBool = False
    checks: StrictBool = False
    rows: StrictBool = False


class TranslateResponse(BaseModel):
    """The translations, in the order of the texts."""

    model: str
    translations: list[dict[str, Any]]


class StreamRequest(TranslateRequest):
    """``POST /api/translate/stream``."""

    text: StrictStr


class AlternativesRequest(ModelRequest):
    """``POST /api/alternatives``."""

    source: StrictStr | None = None
    target: StrictStr | None = None
    text: StrictStr
    prefix: StrictStr = ""
    count: Annotated[int, Field(ge=1)] = 5


class AlternativesResponse(BaseModel):
    """The most probable next words, and the translations that continue with them."""

    alternatives: list[dict[str, Any]]


class FaithfulnessRequest(ModelRequest):
    """``POST /api/faithfulness``."""

    source: StrictStr
    target: StrictStr | None = None


class Translate(Endpoint[TranslateRequest]):
    """Translations with scores, n-best and word alignments."""

    path = "translate"
    request = TranslateRequest
    response = TranslateResponse

    def languages(self, request: TranslateRequest) -> tuple[str | None, str | None]:
        return request.source, request.target

    def texts(self, request: TranslateRequest) -> list[str]:
        texts = as_list(request.text)
        return [*texts, request.prefix] if request.prefix else texts

    def work(
        self, model: Model, request: TranslateRequest, limits: Limits, on_line: OnLine
    ) -> Work:
        translator, texts = model.predictor, as_list(request.text)
        options = _options(model, request, limits)
        alignments = request.alignments and translator.aligns

        parts = _Parts(len(texts))

        def finish(found: list[Translation]) -> dict[str, Any]:
            weights = sum(one.alignment.size for one in found if one.alignment is not None)
            if weights * _BYTES_A_WEIGHT > limits.answer:
                raise too_large(limits.answer, _HINT)
            shown = [_with_extras(model.predictor, request, one) for one in found]
            if request.rows:
                parts.add_rows(shown, translator, request)
            return {"model": model.name, "translations": shown}

        if request.prefix is None:
            # Alternatives and alignments are those of the model.
            model_only = request.nbest > 1 or alignments or request.rows
            uses = request.memory and not model_only
            matches = Matches(translator.memory if uses else None, texts, options.length_penalty)
            known = _unknown_names(translator, matches.rest, request)
            own = (matches.rest, options, alignments, request.sentences)
            search = Search(*own, parts.add if request.rows else None, known)
            return Work(
                lambda found: finish(matches.joined(found)),
                search=search,
                most=limits.answer,
                hint=_HINT,
            )
        if len(texts) != 1:
            raise UserError("prefix is the beginning of one translation; send one text")
        require_one_line(texts[0], "a prefix is the beginning of the translation")
        prefix = request.prefix
        if request.rows:
            raise UserError("rows are of whole texts; a text with prefix is not split")

        known = _unknown_names(translator, texts, request)
        if known is not None:
            translator = translator.with_known_spans(known)

        def call() -> list[Translation]:
            return [
                translator.continue_from(texts[0], prefix, options=options, alignments=alignments)
            ]

        return Work(finish, call=call, most=limits.answer, hint=_HINT)


class TranslateStream(Endpoint[StreamRequest]):
    """Translate a long text; one line of JSON for each part as it is finished."""

    path = "translate/stream"
    request = StreamRequest
    streams = True

    def languages(self, request: StreamRequest) -> tuple[str | None, str | None]:
        return request.source, request.target

    def texts(self, request: StreamRequest) -> list[str]:
        if request.prefix is not None:
            raise UserError("prefix needs /api/translate, because a text with prefix is not split")
        if request.matches or request.checks or request.rows:
            raise UserError("matches, checks and rows need /api/translate: they are of whole texts")
        return as_list(request.text)

    def work(self, model: Model, request: StreamRequest, limits: Limits, on_line: OnLine) -> Work:
        rest = request.text  # all of it, if there is nothing to translate

        def on_part(text: int, part: int, cut: SplitText, translation: Translation) -> None:
            nonlocal rest
            line: dict[str, Any] = {**to_json(translation), "text": one_line(translation.text)}
            line |= {"part": part, "parts": len(cut.parts), "before": cut.parts[part].before}
            rest = cut.after
            on_line(line)

        def finish(found: list[Translation]) -> dict[str, Any]:
            return {"done": True, "after": rest, "score": found[0].score}

        options = _options(model, request, limits)
        alignments = request.alignments and model.predictor.aligns
        known = _unknown_names(model.predictor, [request.text], request)
        search = Search([request.text], options, alignments, request.sentences, on_part, known)
        return Work(finish, search=search)


class Alternatives(Endpoint[AlternativesRequest]):
    """Alternative words at a position of a translation."""

    path = "alternatives"
    request = AlternativesRequest
    response = AlternativesResponse

    def languages(self, request: AlternativesRequest) -> tuple[str | None, str | None]:
        return request.source, request.target

    def texts(self, request: AlternativesRequest) -> list[str]:
        return [request.text, request.prefix]

    def work(
        self, model: Model, request: AlternativesRequest, limits: Limits, on_line: OnLine
    ) -> Work:
        require_one_line(request.text, "alternatives are")
        if request.count > limits.hypotheses:
            raise UserError(f"{request.count:,} words; the maximum is {limits.hypotheses}")
        return Work(
            lambda found: {"alternatives": [dict(vars(one)) for one in found]},
            call=lambda: model.predictor.alternatives(request.text, request.prefix, request.count),
        )


class Faithfulness(Endpoint[FaithfulnessRequest]):
    """How much the probability of an output falls without the source words with most attention."""

    path = "faithfulness"
    request = FaithfulnessRequest

    def texts(self, request: FaithfulnessRequest) -> list[str]:
        return [request.source, request.target or ""]

    def work(
        self, model: Model, request: FaithfulnessRequest, limits: Limits, on_line: OnLine
    ) -> Work:
        from heedful.evaluation.faithfulness import faithfulness

        return Work(
            lambda found: found.to_json(),
            call=lambda: faithfulness(model.predictor, request.source, request.target),
        )


ENDPOINTS = (Translate(), TranslateStream(), Alternatives(), Faithfulness())


def require_one_line(text: str, what: str) -> None:
    """Raise UserError for a text of several lines, which are translated separately."""
    if one_line(text.strip()) != text.strip():
        raise UserError(f"{what} of one line; send the lines one by one")


def to_json(one: Translation) -> dict[str, Any]:
    """The fields of a translation, its words, and the attention weights between them."""
    shown = one.to_json()
    shown["source_words"], shown["target_words"] = one.source.split(), one.text.split()
    if one.alignment is not None:
        shown["soft"] = [
            {"first": row.first, "weights": [round(weight, 4) for weight in row.weights.tolist()]}
            for row in one.alignment.rows()
        ]
    shown["parts"], shown["at_limit"] = one.parts, one.at_limit
    return shown


class _Parts:
    """The parts of the texts of a request, each with its own translation.

    Args:
        count: the number of texts.
    """

    def __init__(self, count: int) -> None:
        self._cuts: list[SplitText | None] = [None] * count
        self._found: list[dict[int, Translation]] = [{} for _ in range(count)]

    def add(self, text: int, part: int, cut: SplitText, translation: Translation) -> None:
        """Keep a part's translation."""
        self._cuts[text] = cut
        self._found[text][part] = translation

    def add_rows(
        self, shown: list[dict[str, Any]], translator: Any, request: TranslateRequest
    ) -> None:
        """Add the parts to the results of the texts."""
        for text, one in enumerate(shown):
            one |= self._shown(text, translator, request)
            one.pop("soft", None)  # in the rows

    def _shown(self, text: int, translator: Any, request: TranslateRequest) -> dict[str, Any]:
        """``rows``, each with the white space before it (``gap``), and the space ``after``."""
        cut = self._cuts[text]
        if cut is None:  # nothing to translate
            return {"rows": [], "after": ""}
        found = [one for _, one in sorted(self._found[text].items())]
        between = gaps(cut, [one_line(one.text) for one in found])
        rows = [
            {
                **_with_extras(translator, request, one),
                "text": one_line(one.text),
                "gap": gap,
                "unknown": _unknown_share(translator, one.source),
            }
            for one, gap in zip(found, between, strict=True)
        ]
        return {"rows": rows, "after": cut.after}


def _unknown_share(translator: Any, text: str) -> float:
    """The share of the tokens of a source that are single bytes: of characters that the vocabulary
    does not have."""
    tokeniser = translator.tokenisers.source
    pieces: list[str] = tokeniser.pieces(tokeniser.encode(text))
    found = sum(piece.startswith("<0x") for piece in pieces)
    return round(found / max(1, len(pieces)), 3)


def _with_extras(translator: Any, request: TranslateRequest, one: Translation) -> dict[str, Any]:
    """A translation, with its match in the memory and the findings of checks if requested."""
    shown = to_json(one)
    texts = [shown, *shown["alternatives"]]
    if request.matches:
        found = None if translator.memory is None else translator.memory.find(one.source)
        shown["match"] = found and {"text": found.target, **found.to_json()}
        texts += [shown["match"]] if found else []
    if request.checks:
        for each in texts:
            each["findings"] = findings(translator, one.source, each["text"])
    return shown


def _options(model: Model, request: TranslateRequest, limits: Limits) -> Any:
    usual = model.predictor.options
    return search_options(usual, limits, request.nbest, request.beam, request.length_penalty)


def _unknown_names(
    translator: Any, texts: Sequence[str], request: TranslateRequest
) -> KnownSpans | None:
    """The spans of unknown names, if the request keeps them and the texts have any."""
    if not request.keep_unknown:
        return None
    found: KnownSpans = translator.unknown_names(texts)
    return found if any(found.of(text) for text in texts) else None
