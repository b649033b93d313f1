"""The HTTP API of LibreTranslate, so that its clients work unchanged."""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from babel import Locale, UnknownLocaleError
from pydantic import BaseModel, ConfigDict, Field, StrictStr

from heedful.basics.errors import UserError
from heedful.inference.translation import Translation
from heedful.tasks.endpoints import (
    Contract,
    Model,
    Route,
    Search,
    SearchAll,
    Server,
    as_list,
    plain_code,
    search_options,
)
from heedful.tasks.pairs.matches import Matches
from heedful.tasks.translation.detection import Detector

AUTO = "auto"


class TranslateRequest(BaseModel):
    """``POST /translate``."""

    model_config = ConfigDict(extra="ignore")

    q: StrictStr | list[StrictStr]
    source: StrictStr
    target: StrictStr
    format: Literal["text", "html"] = "text"
    alternatives: Annotated[int, Field(ge=0)] = 0


class DetectRequest(BaseModel):
    """``POST /detect``."""

    model_config = ConfigDict(extra="ignore")

    q: StrictStr


class Detected(BaseModel):
    """A language, and its probability in percent."""

    confidence: float
    language: str


class TranslateAnswer(BaseModel):
    """Strings, or lists of strings if ``q`` is a list."""

    translatedText: str | list[str]  # noqa: N815 - the contract's name
    detectedLanguage: Detected | list[Detected] = Field(default=None)  # type: ignore[assignment]  # noqa: N815 - absent, not null
    alternatives: list[str] | list[list[str]] = Field(default=None)  # type: ignore[assignment]  # absent, not null


class LanguageAnswer(BaseModel):
    """A language and its target languages."""

    code: str
    name: str
    targets: list[str]


class LibreTranslate:
    """``/translate``, ``/detect``, ``/languages`` and ``/frontend/settings``.

    Args:
        server: the server.
    """

    def __init__(self, server: Server) -> None:
        self._server, self._models = server, server.models
        self._detector = Detector(server.models.codes)

    @property
    def contract(self) -> Contract:
        """The routes."""
        return Contract(
            "LibreTranslate's contract",
            [
                Route("/translate", self.translate, TranslateAnswer, TranslateRequest),
                Route("/detect", self.detect, list[Detected], DetectRequest),
                Route("/languages", self.languages, list[LanguageAnswer]),
                Route("/frontend/settings", self.settings, dict[str, Any]),
            ],
        )

    async def translate(self, request: TranslateRequest, search: SearchAll) -> dict[str, Any]:
        """Translate a text or a list of texts."""
        texts = as_list(request.q)
        if request.format == "html":
            raise UserError("format html is not supported yet: tags would be lost; send text")
        most = self._server.limits.hypotheses - 1
        if request.alternatives > most:
            raise UserError(f"{request.alternatives:,} alternatives; the maximum is {most}")
        self._server.check_texts(texts)
        target = self._models.require_code(request.target)
        answer: dict[str, Any] = {}
        if request.source.strip().lower() == AUTO:
            detected = [self._likeliest(ranked, target) for ranked in await self._detect(texts)]
            sources = [language for language, _ in detected]
            shown = [_detected(*one) for one in detected]
            answer["detectedLanguage"] = shown[0] if isinstance(request.q, str) else shown
        else:
            sources = [self._models.require_code(request.source)] * len(texts)
        found = await self._from_each(texts, sources, target, request.alternatives, search)
        results = [one.text for one in found]
        answer["translatedText"] = results[0] if isinstance(request.q, str) else results
        if request.alternatives:
            others = [_others(one, request.alternatives) for one in found]
            answer["alternatives"] = others[0] if isinstance(request.q, str) else others
        return answer

    async def detect(self, request: DetectRequest, search: SearchAll) -> list[dict[str, Any]]:
        """Detect the language of a text among the served languages; most probable first."""
        self._server.check_texts([request.q])
        [ranked] = await self._detect([request.q])
        return [_detected(*one) for one in ranked]

    async def languages(self, request: None, search: SearchAll) -> list[dict[str, Any]]:
        """The served languages and their target languages."""
        return [
            {"code": code, "name": language_name(code), "targets": self._models.targets(code)}
            for code in self._models.codes
        ]

    async def settings(self, request: None, search: SearchAll) -> dict[str, Any]:
        """Settings for web front ends of this server."""
        first = next(iter(self._models.pairs.values()), None)
        return {
            "apiKeys": self._server.needs_key,
            "charLimit": self._server.limits.characters,
            "frontendTimeout": 500,
            "keyRequired": self._server.needs_key,
            "language": {side: _shown(first, side) for side in ("source", "target")},
            "suggestions": False,
            "supportedFilesFormat": [],
        }

    async def _detect(self, texts: Sequence[str]) -> list[list[tuple[str, float]]]:
        """For each text, the served languages with probabilities, most probable first.

        Raises:
            UserError: the detector supports none of the served languages.
        """
        found = await asyncio.to_thread(lambda: [self._detector.rank(text) for text in texts])
        if not all(found):
            served = ", ".join(self._models.codes) or "none"
            raise UserError(f"none of the served languages can be detected ({served})")
        return found

    async def _from_each(
        self,
        texts: Sequence[str],
        sources: Sequence[str],
        target: str,
        alternatives: int,
        search: SearchAll,
    ) -> list[Translation]:
        """Translate each text from its own language; texts in the target language are unchanged."""
        places: dict[str, list[int]] = {}
        for i, source in enumerate(sources):
            places.setdefault(source, []).append(i)
        found: dict[int, Translation] = {}
        if target in places and (target, target) not in self._models.pairs:
            found |= {i: Translation(texts[i], texts[i]) for i in places.pop(target)}
        models = [self._models.of_pair(source, target) for source in places]
        searches, known = [], []
        for model, own in zip(models, places.values(), strict=True):
            limits = self._server.limits
            options = search_options(model.predictor.options, limits, alternatives + 1)
            memory = None if alternatives else model.predictor.memory
            matched = Matches(memory, [texts[i] for i in own], options.length_penalty)
            known.append(matched)
            searches.append((model, Search(matched.rest, options)))
        answers = await search(searches)
        for own, matches, translations in zip(places.values(), known, answers, strict=True):
            found |= dict(zip(own, matches.joined(translations), strict=True))
        return [found[i] for i in range(len(texts))]

    def _likeliest(self, ranked: Sequence[tuple[str, float]], target: str) -> tuple[str, float]:
        """The most probable language that can be translated or is the target language."""
        sources = self._models.sources(target)
        possible = [one for one in ranked if one[0] in sources or one[0] == target]
        if not possible:
            raise UserError(f"no detectable language can be translated to {target}")
        # At equal probability, prefer a language that can be translated.
        return max(possible, key=lambda one: (one[1], one[0] in sources))


def language_name(code: str) -> str:
    """The English name of a language; its code if it has no name."""
    try:
        return Locale.parse(plain_code(code), sep="-").get_display_name("en") or code
    except (UnknownLocaleError, ValueError):
        return code


def _others(one: Translation, count: int) -> list[str]:
    """At most ``count`` alternatives with different texts."""
    texts = dict.fromkeys(other.text for other in one.alternatives)
    texts.pop(one.text, None)
    return list(texts)[:count]


def _detected(language: str, probability: float) -> dict[str, Any]:
    return {"confidence": round(100 * probability, 1), "language": language}


def _shown(model: Model | None, side: str) -> dict[str, str]:
    if model is None:
        return {"code": AUTO, "name": "Auto Detect"}
    code = str(getattr(model, side))
    return {"code": code, "name": language_name(code)}
