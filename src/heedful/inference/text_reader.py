"""The base class of predictors that read whole texts, or pairs of texts, in windows.

Shapes: B rows, C outputs.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from heedful.basics.cancellation import check_cancelled
from heedful.basics.errors import UserError
from heedful.basics.notices import notice
from heedful.basics.symbols import END
from heedful.data.vocabulary import Vocabulary
from heedful.inference.batches import Item, token_batches
from heedful.inference.inference_mode import ready
from heedful.inference.sliding_windows import room_for_text, spans
from heedful.inference.trace import Trace
from heedful.inference.tracing import Decision, describe_texts, trace_model
from heedful.models.encoders import HeadedEncoder, Sequences, sequences_of

Text = str | tuple[str, str]
"""A text, or a pair of texts."""

_MOST_ROWS = 1 << 14
"""Most windows of a pair of texts."""

Advance = Callable[[int], None]
"""Called with the number of texts that were finished since the last call."""


class Row(NamedTuple):
    """The tokens of one window."""

    first: list[int]
    second: list[int] | None

    @property
    def joined(self) -> list[int]:
        """The tokens of both texts, with END between them."""
        return self.first if self.second is None else [*self.first, END, *self.second]


class TextReader:
    """The base of predictors: an encoder with a head for whole texts, and its vocabulary.

    A text longer than the model's maximum is read in the smallest number of windows, evenly spaced.
    In a pair, a text that needs at most half of the room is whole in every window; otherwise each
    text has half of it, and every window of one text is combined with every window of the other. An
    empty text, one of white space only, and a pair with such a text have no windows.

    Args:
        model: the encoder and its heads.
        vocabulary: text to tokens.
        head: the name of the head.
        pairs: whether the inputs are pairs of texts; None accepts both.
        device: the device of the model.
        precision: precision of matrix products: float32, bfloat16 or float16.
        batch_tokens: maximum number of padded tokens in a batch.
        notify: called with notices; by default they are printed to standard error.

    Raises:
        ValueError: the model has no such head.
    """

    def __init__(
        self,
        model: HeadedEncoder,
        vocabulary: Vocabulary,
        *,
        head: str,
        pairs: bool | None = None,
        device: torch.device | str = "cpu",
        precision: str = "float32",
        batch_tokens: int = 8192,
        notify: Callable[[str], None] = notice,
    ) -> None:
        check_head(model, head)
        self.model, self.vocabulary, self.head = model, vocabulary, head
        self.pairs = True if model.encoder.needs_pairs else pairs
        self.device, self.precision = torch.device(device), precision
        self.batch_tokens, self.notify = batch_tokens, notify
        self.max_length = model.max_length

    def rows(self, text: Text) -> list[Row]:
        """The windows of a text; none for an empty text.

        Raises:
            UserError: it is a pair instead of a text, vice versa, or a pair has too many windows.
        """
        pair = not isinstance(text, str)
        if self.pairs is not None and pair != self.pairs:
            raise UserError(
                "this model reads pairs of texts; give two texts"
                if self.pairs
                else "this model reads single texts; leave the second text out"
            )
        check_cancelled()
        parts = (text,) if isinstance(text, str) else text
        if not all(part.strip() for part in parts):
            return []
        return rows_of([self.vocabulary.encode(part) for part in parts], self.max_length)

    def encode(self, rows: Sequence[Row]) -> Sequences:
        """A batch of windows, either all of texts or all of pairs."""
        seconds = [row.second for row in rows if row.second is not None]
        made = sequences_of([row.first for row in rows], seconds or None)
        return Sequences(*(part.to(self.device) for part in made))

    def logits(self, batch: Sequences) -> Tensor:
        """The outputs of the head ``[B, C]``."""
        result: Tensor = self.model.heads[self.head](self.model.encoder(batch)).float()
        return result

    def outputs(
        self,
        rows: Sequence[Sequence[Row]],
        result: Callable[[Tensor], Tensor],
        advance: Advance | None = None,
    ) -> list[list[Tensor]]:
        """For each text, the result ``[C]`` of each of its windows.

        Args:
            rows: the windows of each text, from :meth:`rows`.
            result: computes results ``[B, C]`` from the outputs of the head.
            advance: called with the number of finished texts.
        """
        advance = advance or (lambda count: None)
        missing = [len(own) for own in rows]
        found = [[torch.empty(0)] * len(own) for own in rows]
        advance(missing.count(0))
        with ready(self.model, self.device, self.precision):
            for batch in self._batches(rows):
                chosen = [rows[item.line][item.part] for item in batch]
                results = result(self.logits(self.encode(chosen))).cpu()
                for item, own in zip(batch, results, strict=True):
                    found[item.line][item.part] = own
                    missing[item.line] -= 1
                advance(sum(not missing[line] for line in {item.line for item in batch}))
        return found

    def trace_text(
        self, text: Text, decide: Callable[[Tensor], tuple[str, Tensor]], *, relevance: bool
    ) -> Trace:
        """The attention weights of the model for ``text``.

        Args:
            text: a text, or a pair, that fits into one window.
            decide: from the outputs of the head ``[C]``, the name of what is decided and the number
                whose gradients are computed.
            relevance: whether to add attention rollout and gradients.

        Raises:
            UserError: the text is empty or too long.
        """
        row = only_row(self.rows(text), self.max_length)
        batch, encoder = self.encode([row]), self.model.encoder

        def decision() -> Decision:
            encoded = encoder(batch)
            name, value = decide(self.model.heads[self.head](encoded)[0].float())
            tokens = 1 if encoded.states is None else encoded.states.shape[1]
            return Decision([name], value.unsqueeze(0), [encoder.pooled_from % tokens])

        title = text if isinstance(text, str) else " ‖ ".join(text)
        attends = bool(self.model.attention_axes())
        described = describe_texts(self.vocabulary, row.first, row.second, title, attends)
        context = ready(self.model, self.device)
        return trace_model(self.model, decision, described, context, relevance=relevance)

    def _batches(self, rows: Sequence[Sequence[Row]]) -> Iterator[list[Item]]:
        for pair in (False, True):
            items = [
                Item(line, part, [*row.first, *(row.second or [])])
                for line, own in enumerate(rows)
                for part, row in enumerate(own)
                if (row.second is not None) == pair
            ]
            yield from token_batches(items, 1, self.batch_tokens)


def only_row(rows: Sequence[Row], max_length: int) -> Row:
    """The only window of a text that is traced.

    Raises:
        UserError: the text is empty, or too long for one window.
    """
    if not rows:
        raise UserError("the text is empty; give a text to look at")
    row = rows[0]
    room = room_for_text(max_length, 1 if row.second is None else 2)
    tokens = room + 1 if len(rows) > 1 else len(row.first) + len(row.second or [])
    if tokens > room:
        raise UserError(f"the text has more tokens than the model's {room:,}; give a shorter text")
    return row


def rows_of(tokens: Sequence[list[int]], max_length: int) -> list[Row]:
    """The windows of one text or two, of at most ``max_length`` tokens.

    Raises:
        UserError: ``max_length`` is too small for any text, or a pair has too many windows.
    """
    if len(tokens) == 1:
        room = room_for_text(max_length)
        return [Row(tokens[0][start:end], None) for start, end in spans(len(tokens[0]), room)]
    return _pair_rows(tokens[0], tokens[1], room_for_text(max_length, 2))


def _pair_rows(first: list[int], second: list[int], room: int) -> list[Row]:
    """The windows of a pair of texts, with room for ``room`` tokens."""
    half = room // 2
    if len(first) + len(second) <= room:
        return [Row(first, second)]
    if len(first) <= half:
        return [Row(first, second[a:b]) for a, b in spans(len(second), room - len(first))]
    if len(second) <= half:
        return [Row(first[a:b], second) for a, b in spans(len(first), room - len(second))]
    parts, others = spans(len(first), room - half), spans(len(second), half)
    if len(parts) * len(others) > _MOST_ROWS:
        raise UserError(
            f"the texts of a pair are too long: each of {len(parts):,} windows of the first text "
            f"would be read with each of {len(others):,} of the second; the maximum is "
            f"{_MOST_ROWS:,} pairs of windows; give shorter texts"
        )
    return [Row(first[a:b], second[c:d]) for a, b in parts for c, d in others]


def check_head(model: HeadedEncoder, head: str) -> None:
    """Raise ValueError unless the model has that head."""
    if head not in model.heads:
        raise ValueError(
            f"unknown head '{head}'; known heads are {', '.join(model.heads) or 'none'}"
        )
