"""Fill-mask: predicts the masked tokens of a text.

Shapes: M masks, L tokens, V vocabulary.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from heedful.basics.errors import UserError
from heedful.basics.notices import counted_notice, notice
from heedful.basics.symbols import END
from heedful.data.examples import require_list
from heedful.data.vocabulary import Vocabulary
from heedful.inference.axes import Axis
from heedful.inference.inference_mode import ready
from heedful.inference.sliding_windows import count_phrase, room_for_text
from heedful.inference.text_reader import Advance, Row, check_head, only_row
from heedful.inference.trace import Trace
from heedful.inference.tracing import Decision, describe_texts, trace_model
from heedful.models.encoders import HeadedEncoder, Sequences, TextEncoder, sequences_of

MASK = "[MASK]"
"""The notation of a masked token, in addition to that of the vocabulary."""

# No tokeniser merges it with the text after it, and most have no token for it.
_STRANGER = "☃"


@dataclass(frozen=True)
class Candidate:
    """A candidate token for a mask."""

    token: str
    """The token, as in the vocabulary."""
    word: str
    """The text of the token."""
    probability: float
    """Probability of the token at this mask, independently of other masks."""
    text: str
    """The text with this token, and with the most probable tokens at the other masks."""

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return dict(vars(self))


@dataclass(frozen=True)
class Filling:
    """A text with masks, and the candidates for each."""

    source: str
    text: str
    """The text with the most probable token at each mask."""
    masks: tuple[tuple[Candidate, ...], ...]
    """The candidates for each mask, most probable first."""

    def to_json(self) -> dict[str, Any]:
        """A JSON object; its fields are described in docs/texts.md."""
        masks = [[one.to_json() for one in own] for own in self.masks]
        return {"source": self.source, "text": self.text, "masks": masks}


class FillMask:
    """A predictor of masked tokens: an encoder with the head of masked pre-training, and its
    vocabulary.

    If a text is longer than the model's maximum, each mask is predicted in a window around it.

    Args:
        model: the encoder and its heads.
        vocabulary: text to tokens and back; with a mask.
        head: the name of the head.
        device: the device of the model.
        precision: precision of matrix products: float32, bfloat16 or float16.
        notify: called with notices; by default they are printed to standard error.

    Raises:
        ValueError: the model has no such head.
        UserError: the vocabulary has no mask.
    """

    task = "masked"

    def __init__(
        self,
        model: HeadedEncoder,
        vocabulary: Vocabulary,
        *,
        head: str = "masked",
        device: torch.device | str = "cpu",
        precision: str = "float32",
        notify: Callable[[str], None] = notice,
    ) -> None:
        check_head(model, head)
        if vocabulary.mask is None:
            raise UserError(
                "this run's vocabulary has no mask symbol; use a run of masked pre-training"
            )
        self.model, self.vocabulary, self.head = model, vocabulary, head
        self.mask: int = vocabulary.mask
        self.device, self.precision, self.notify = torch.device(device), precision, notify
        self.max_length = model.max_length
        own = vocabulary.pieces([self.mask])[0]
        self._hidden = re.compile("|".join(re.escape(name) for name in {MASK, own}))
        self._names = MASK if own == MASK else f"{MASK} or {own}"

    def fill(self, text: str, count: int = 5) -> Filling:
        """The ``count`` most probable tokens at each mask of ``text``.

        Args:
            text: contains ``[MASK]``, or the vocabulary's own mask, in place of tokens.
            count: number of candidates.

        Raises:
            UserError: the argument is not a text, has no mask, or ``count`` is below 1.
        """
        if not isinstance(text, str):
            raise UserError("fill takes one text; fill_all takes several")
        if not text.strip():
            self.tokens(text)  # raises the error
        return self.fill_all([text], count)[0]

    def predict(self, texts: Iterable[str]) -> list[Filling]:
        """The same as :meth:`fill_all`; every predictor has this method."""
        return self.fill_all(texts)

    def trace(self, text: str, *, relevance: bool = True) -> Trace:
        """The attention weights of the model; ``decided`` are the most probable masked tokens.

        See :meth:`heedful.inference.classifier.Classifier.trace`.

        Raises:
            UserError: the text has no mask, or is too long.
        """
        tokens = self.tokens(text)
        only_row([Row(tokens, None)], self.max_length)
        places = [place + 1 for place, token in enumerate(tokens) if token == self.mask]
        batch = Sequences(*(part.to(self.device) for part in sequences_of([tokens])))

        def decide() -> Decision:
            scores = self._logits(batch, places).log_softmax(1)
            allowed = scores.clone()
            allowed[:, : END + 1] = -torch.inf
            allowed[:, self.mask] = -torch.inf
            best = allowed.argmax(1)
            chosen = scores.gather(1, best.unsqueeze(1)).squeeze(1)
            at = None if apart else places
            return Decision(self.vocabulary.pieces(best.tolist()), chosen, at)

        encoder = type(self.model.encoder)
        # A stream of their own reads the text: the rows of the text are not those of decisions.
        apart = encoder.states_to_fill is not TextEncoder.states_to_fill
        attends = bool(self.model.attention_axes())
        described = describe_texts(self.vocabulary, tokens, None, text, attends)
        if apart:
            masks = Axis("labels", [f"{MASK} {number}" for number, _ in enumerate(places, 1)])
            described = described._replace(axes={**described.axes, "predicted": masks})
        context = ready(self.model, self.device)
        return trace_model(self.model, decide, described, context, relevance=relevance)

    def fill_all(
        self,
        texts: Iterable[str],
        count: int = 5,
        *,
        first: int | None = None,
        advance: Advance | None = None,
    ) -> list[Filling]:
        """The same as `fill` for each text; empty texts are returned unchanged.

        Args:
            texts: each contains a mask.
            count: number of candidates.
            first: the line number of the first text, for messages; None for no numbers.
            advance: called with progress.

        Raises:
            UserError: ``texts`` is a string, one of them has no mask, or ``count`` is below 1.
        """
        require_list(texts, "fill_all")
        if count < 1:
            raise UserError(f"the number of candidates must be at least 1, not {count}")
        found, long = [], 0
        with ready(self.model, self.device, self.precision):
            for number, text in enumerate(texts, first or 0):
                if not text.strip():
                    found.append(Filling(text, text, ()))
                else:
                    tokens = self.tokens(text, "" if first is None else f"line {number}: ")
                    long += len(tokens) > room_for_text(self.max_length)
                    found.append(self._filling(text, tokens, count))
                if advance is not None:
                    advance(1)
        counted_notice(self.notify, self._long, long)
        return found

    def _long(self, long: int) -> str:
        return (
            f"{count_phrase(long, 'text')} longer than the model's {self.max_length:,} "
            "tokens: each mask is read in a window around it"
        )

    def tokens(self, text: str, where: str = "") -> list[int]:
        """The tokens of ``text``, including masks.

        Raises:
            UserError: the text has no mask.
        """
        parts = self._hidden.split(text)
        if len(parts) == 1:
            raise UserError(f"{where}the text has no mask; write {self._names} in place of a word")
        # A mask includes the space before it, like the token that it replaces.
        tokens = self.vocabulary.encode(parts[0].removesuffix(" "))
        for place, part in enumerate(parts[1:], start=2):
            inner = part.removesuffix(" ") if place < len(parts) else part
            tokens += [self.mask, *self._after_mask(inner)]
        return tokens

    def _after_mask(self, text: str) -> list[int]:
        """The tokens of ``text`` after a mask, without a space in front."""
        before = self.vocabulary.encode(_STRANGER)
        whole = self.vocabulary.encode(_STRANGER + text)
        behind = whole[len(before) :]
        said = self.vocabulary.decode(behind).strip()
        alone = self.vocabulary.encode(text)
        if whole[: len(before)] == before and said == self.vocabulary.decode(alone).strip():
            return behind
        return alone

    def _filling(self, text: str, tokens: list[int], count: int) -> Filling:
        places = [place for place, token in enumerate(tokens) if token == self.mask]
        probabilities = self.probabilities(tokens, places)  # [M, V]
        shown = probabilities.clone()
        shown[:, : END + 1] = 0.0
        shown[:, self.mask] = 0.0
        best = shown.topk(min(count, shown.shape[1] - END - 2), dim=1)
        filled = list(tokens)
        for place, ordered in zip(places, best.indices.tolist(), strict=True):
            filled[place] = ordered[0]
        masks = []
        for row, place in enumerate(places):
            chosen = best.indices[row].tolist(), best.values[row].tolist()
            masks.append(
                tuple(
                    self._candidate(filled, place, token, probability)
                    for token, probability in zip(*chosen, strict=True)
                )
            )
        return Filling(text, self.vocabulary.decode(filled), tuple(masks))

    def _candidate(
        self, filled: Sequence[int], place: int, token: int, probability: float
    ) -> Candidate:
        whole = [*filled[:place], token, *filled[place + 1 :]]
        return Candidate(
            self.vocabulary.pieces([token])[0],
            self.vocabulary.decode([token]).strip(),
            probability,
            self.vocabulary.decode(whole),
        )

    def probabilities(self, tokens: list[int], places: Sequence[int]) -> Tensor:
        """Probabilities ``[M, V]`` of all tokens at the masked ``places``; inside `ready`."""
        room = room_for_text(self.max_length)
        if len(tokens) <= room:
            rows, at = [tokens], [(0, place) for place in places]
        else:
            starts = [max(0, min(place - room // 2, len(tokens) - room)) for place in places]
            rows = [tokens[start : start + room] for start in starts]
            at = [
                (row, place - start)
                for row, (place, start) in enumerate(zip(places, starts, strict=True))
            ]
        found = []
        # One row at a time, because there are usually few texts.
        for number, row in enumerate(rows):
            batch = Sequences(*(part.to(self.device) for part in sequences_of([row])))
            own = [place + 1 for of_row, place in at if of_row == number]  # BEGIN is at 0
            found.append(self._logits(batch, own).softmax(1).cpu())
        return torch.cat(found)

    def _logits(self, batch: Sequences, columns: Sequence[int]) -> Tensor:
        """Logits ``[M, V]`` of the masked tokens of one row."""
        places = torch.tensor([(0, column) for column in columns], device=self.device)
        logits: Tensor = self.model.heads[self.head](
            self.model.encoder.states_to_fill(batch, places)
        )
        return logits.float()
