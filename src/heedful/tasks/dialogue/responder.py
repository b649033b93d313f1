"""Answers in dialogues with a trained model.

Shapes: S source words, T target words.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from heedful.basics.cancellation import check_cancelled
from heedful.basics.errors import UserError
from heedful.basics.json_models import read_object
from heedful.basics.notices import counted_notice
from heedful.basics.thread_contention import without_contention
from heedful.data.readers.dialogues import Dialogue, Turn
from heedful.data.tokeniser import Tokenisers
from heedful.decoding import SearchOptions, search
from heedful.inference.alignment import AlignmentRule
from heedful.inference.assembly import PartResult
from heedful.inference.batches import Item, source_of, token_batches
from heedful.inference.protection import Protection
from heedful.inference.searcher import ended_by_limit
from heedful.inference.trace import Trace
from heedful.inference.translator import Translator
from heedful.models.pairs import AlignmentSource
from heedful.tasks.dialogue.run import open_dialogue_run
from heedful.tasks.dialogue.streaming import Streamed
from heedful.tasks.dialogue.turns import Shortened, history, shortened
from heedful.tasks.pairs.building import load_translator

_DIGITS = 4
_COPYING = "copying"
"""The attention module of a Transformer that copies: it shows which words were copied."""


class HistoryEncoding(Protection):
    """Encodes the turns so far, without the oldest ones if there are too many tokens.

    Args:
        tokenisers: of the model; both are the same.
        limit: maximum number of tokens of the turns.
    """

    def __init__(self, tokenisers: Tokenisers, limit: int) -> None:
        super().__init__(tokenisers, None)
        self.limit = limit

    def shortened(self, text: str) -> Shortened:
        """The turns that the model reads of a history."""
        return shortened(text, super().counter(self.limit), self.limit)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of histories."""
        return super().encode([self.shortened(text).text for text in texts])

    def encode_pairs(
        self, sources: Sequence[str], targets: Sequence[str]
    ) -> tuple[list[list[int]], list[list[int]]]:
        """The tokens of histories and answers."""
        return self.encode(sources), self.tokenisers.target.encode_batch(targets)

    def counter(self, limit: int) -> Callable[[Sequence[str]], list[int]]:
        """A function that counts the tokens of histories as the model reads them."""
        return lambda texts: [len(tokens) for tokens in self.encode(texts)]


@dataclass(frozen=True)
class Answer:
    """An answer."""

    text: str
    read: str
    """The turns that the model has read, as one line."""
    dropped: int
    """The number of oldest turns that it has not read, because there are too many tokens."""
    score: float
    """Log-probability divided by the length penalty."""
    log_probability: float
    """Natural logarithm of the tokens' probability, END included."""
    tokens: tuple[str, ...]
    token_scores: tuple[float, ...]
    """Natural logarithm of each token's probability."""
    at_limit: bool = False
    """Whether it was ended by the maximum length."""
    weights: Tensor | None = None
    """Attention of each of its words to each word of ``read``, ``[T, S]``, if requested."""

    def to_json(self) -> dict[str, Any]:
        """The answer as a value that :mod:`json` can write."""
        found: dict[str, Any] = {
            "text": self.text,
            "dropped_turns": self.dropped,
            "read": self.read,
            "score": self.score,
            "log_probability": self.log_probability,
            "tokens": list(self.tokens),
            "token_scores": list(self.token_scores),
            "at_limit": self.at_limit,
        }
        if self.weights is not None:
            rows = self.weights.tolist()
            found["weights"] = [[round(weight, _DIGITS) for weight in row] for row in rows]
        return found


class _Question(NamedTuple):
    """A dialogue to answer."""

    read: Shortened
    tokens: list[int]
    turns: int
    """The number of turns so far, from which the random numbers of samples are derived."""


class Responder(Translator):
    """Answers in dialogues; arguments as for ``Searcher``. See :func:`load_responder`."""

    task = "dialogue"
    speaker = ""
    """Whose turns it writes."""
    partner = ""
    """Whom it answers."""
    protection: HistoryEncoding

    def predict(
        self, inputs: Iterable[Any], *, numbers: Sequence[int] | None = None
    ) -> list[Answer]:
        """The next turn of each dialogue, in their order.

        Args:
            inputs: dialogues, or dictionaries with the field ``turns``.
            numbers: of the dialogues, for messages; by default their places, from 1.

        Raises:
            UserError: a dialogue is not valid, or its last turn is longer than the model reads.
        """
        inputs = list(inputs)
        for number, one in enumerate(inputs, start=1):
            if not isinstance(one, Mapping | Dialogue):
                raise UserError(f"input {number} is not a dialogue; give a dictionary with turns")
        read = [
            read_object(Dialogue, dict(one), f"input {number}") if isinstance(one, Mapping) else one
            for number, one in enumerate(inputs, start=1)
        ]
        found = self.answer_all(read, numbers=numbers)
        self.warn_of(found)
        return found

    def warn_of(self, answers: Sequence[Answer]) -> None:
        """Print notices with the number of answers that are shortened, or whose history is."""
        dropped = [one.dropped for one in answers if one.dropped]
        counted_notice(self.notify, self._shortened, len(dropped), sum(dropped))
        counted_notice(self.notify, self._cut_off, sum(one.at_limit for one in answers))

    def _shortened(self, answers: int, turns: int) -> str:
        return (
            f"{answers:,} answer{'s were' if answers > 1 else ' was'} written without the oldest "
            f"turns ({turns:,} in total), because the model reads {self.protection.limit:,} tokens"
        )

    def _cut_off(self, answers: int) -> str:
        return (
            f"{answers:,} answer{'s were' if answers > 1 else ' was'} cut off at the maximum "
            "length (the model may be repeating itself)"
        )

    def answer_all(
        self,
        dialogues: Sequence[Dialogue],
        options: SearchOptions | None = None,
        *,
        alignments: bool = False,
        numbers: Iterable[int] | None = None,
    ) -> list[Answer]:
        """The next turn of each dialogue; the result does not depend on the others.

        Args:
            dialogues: the turns so far.
            options: search settings; those of the responder by default.
            alignments: whether to return the attention between words.
            numbers: of the dialogues, for messages; by default their places, from 1, if there
                are several.

        Raises:
            UserError: the last turn of a dialogue is longer than the model reads, or alignments
                are requested but the model has none.
        """
        options = options or self.options
        if alignments:
            self.require_alignments()
        if numbers is None and len(dialogues) == 1:
            names = [""]
        else:
            places = range(1, len(dialogues) + 1) if numbers is None else numbers
            names = [f"dialogue {number}: " for number in places]
        asked = [self._question(one, name) for one, name in zip(dialogues, names, strict=True)]
        items = [Item(number, 0, one.tokens) for number, one in enumerate(asked)]
        found: dict[int, Answer] = {}
        for batch in token_batches(items, options.width, self.batch_tokens):
            check_cancelled()
            own = [asked[item.line] for item in batch]
            with self.ready():
                results = self.find(
                    [one.tokens for one in own],
                    options,
                    [one.turns for one in own],
                    alignments=alignments,
                    texts=[one.read.text for one in own],
                )
            for item, one, result in zip(batch, own, results, strict=True):
                found[item.line] = self._answer(one, result)
        return [found[number] for number in range(len(asked))]

    def answer(
        self,
        dialogue: Dialogue,
        options: SearchOptions | None = None,
        *,
        alignments: bool = False,
        stream: Callable[[str], None] | None = None,
    ) -> Answer:
        """The next turn of a dialogue.

        Args:
            dialogue: the turns so far.
            options: search settings; those of the responder by default.
            alignments: whether to return the attention between words.
            stream: called with pieces of the answer, which joined are the answer: while it is
                written, if a single hypothesis is kept, otherwise at the end.

        Raises:
            UserError: as :meth:`answer_all`.
        """
        options = options or self.options
        if stream is None or options.width > 1:
            [found] = self.answer_all([dialogue], options, alignments=alignments)
            if stream is not None:
                stream(found.text)
            return found
        if alignments:
            self.require_alignments()
        asked = self._question(dialogue)
        with self.ready(), without_contention(self.device):
            source = source_of([asked.tokens], self.device)
            limits = self.output_limits(source)
            streamed = Streamed(self.decodable, self.tokenisers.target, stream)
            [hypotheses] = search(
                streamed, source, rows=1, options=options, max_lengths=limits, keys=[asked.turns]
            )
            streamed.flush(self.tokenisers.target.decode(hypotheses[0].tokens))
            soft = None
            if alignments:
                texts, written = [asked.read.text], [hypotheses[0].tokens]
                [soft] = self.align(source, [asked.tokens], written, texts)
        limit = ended_by_limit(hypotheses, int(limits[0]), options)
        return self._answer(asked, PartResult(hypotheses, soft, limit))

    def trace(
        self,
        source_text: str | Dialogue,
        target_text: str | None = None,
        *,
        options: SearchOptions | None = None,
        relevance: bool = False,
    ) -> Trace:
        """The attention weights of the model for an answer, by default its own.

        Args:
            source_text: a dialogue, its JSON, the turns that were read (:attr:`Answer.read`), or
                what the partner says at the beginning.
            target_text: the answer.
            options: search settings.
            relevance: whether to add attention rollout and attention × gradient.

        Raises:
            UserError: a text is empty or longer than the model reads.
        """
        found = self._history_of(source_text)
        return super().trace(found, target_text, options=options, relevance=relevance)

    def _history_of(self, given: str | Dialogue) -> str:
        if isinstance(given, str):
            if given.rstrip().endswith(f"{self.speaker}:") or not given.strip():
                return given
            if given.lstrip().startswith("{"):
                given = read_object(Dialogue, given, "the dialogue")
            else:
                given = Dialogue.of([(self.partner, given)])
        return history(given.turns, self.speaker)

    def own_histories(
        self, dialogues: Sequence[Dialogue], options: SearchOptions
    ) -> Iterator[list[tuple[int, int, Answer]]]:
        """Answer dialogues with the model's own answers, instead of the given ones, as history.

        If the model speaks twice in a row, its own first answer can be longer than it reads. That
        turn is then left out.

        Yields:
            For the first answers of all dialogues, then for the second ones, and so on: the
            number of the dialogue and of the turn, from 0, and the answer.
        """
        turns = [list(one.turns) for one in dialogues]
        left = [
            (number, place)
            for number, own in enumerate(turns)
            for place, turn in enumerate(own)
            if turn.speaker == self.speaker
        ]
        while left:
            first: dict[int, int] = {}
            for number, place in left:
                first.setdefault(number, place)
            so_far = [self._readable(turns[number][:place]) for number, place in first.items()]
            found = self.answer_all(so_far, options, numbers=[number + 1 for number in first])
            for (number, place), answer in zip(first.items(), found, strict=True):
                own = turns[number][place]
                turns[number][place] = own.model_copy(update={"text": answer.text})
            keys = first.items()
            yield [(*key, answer) for key, answer in zip(keys, found, strict=True)]
            left = [key for key in left if key not in keys]

    def _readable(self, turns: list[Turn]) -> Dialogue:
        """A dialogue without own answers at its end that are longer than the model reads."""
        while (
            turns
            and turns[-1].speaker == self.speaker
            and not self.protection.shortened(history(turns, self.speaker)).fits
        ):
            turns = turns[:-1]
        return Dialogue.model_construct(turns=turns)

    def _question(self, dialogue: Dialogue, where: str = "") -> _Question:
        read = self.protection.shortened(history(dialogue.turns, self.speaker))
        [tokens] = self.tokenisers.source.encode_batch([read.text])
        if not read.fits:
            raise UserError(
                f"{where}the last turn has {len(tokens):,} tokens, more than the "
                f"{self.protection.limit:,} that the model reads; give a shorter one"
            )
        return _Question(read, tokens, len(dialogue.turns))

    def _answer(self, asked: _Question, found: PartResult) -> Answer:
        best, target = found.hypotheses[0], self.tokenisers.target
        return Answer(
            text=target.decode(best.tokens),
            read=asked.read.text,
            dropped=asked.read.dropped,
            score=best.score,
            log_probability=best.log_probability,
            tokens=tuple(target.pieces(best.tokens)),
            token_scores=tuple(best.token_log_probabilities),
            at_limit=found.at_limit,
            weights=found.soft,
        )


def load_responder(run: str | Path, **how: Any) -> Responder:
    """The responder of a run.

    Args:
        run: the run's folder.
        how: ``device``, ``precision`` and ``checkpoint``, as for every predictor.

    Raises:
        UserError: the folder is not a run that answers in dialogues.
    """
    opened = open_dialogue_run(run)
    found = load_translator([run], make=Responder, **how)
    assert isinstance(found, Responder)
    found.speaker, found.partner = opened.speaker, opened.partner
    found.protection = HistoryEncoding(found.tokenisers, opened.recipe.data.max_tokens)
    if _COPYING in found.model.attention_axes():
        found.rules = (AlignmentRule(AlignmentSource(_COPYING, heads=None, shift=0)),)
    return found
