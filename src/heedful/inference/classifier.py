"""Classification of texts and of pairs of texts.

Shapes: B rows, C classes.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from heedful.basics.errors import UserError
from heedful.basics.notices import notice
from heedful.data.examples import require_list
from heedful.data.vocabulary import Vocabulary
from heedful.inference.batches import Item, token_batches
from heedful.inference.inference_mode import ready
from heedful.inference.sliding_windows import count_phrase, room_for_text, spans
from heedful.inference.trace import Trace
from heedful.inference.tracing import Decision, describe_texts, trace_model
from heedful.models.encoders import HeadedEncoder, Sequences, sequences_of

Text = str | tuple[str, str]
"""A text, or a pair of texts."""

Advance = Callable[[int], None]
"""Called with the number of texts that were finished since the last call."""


@dataclass(frozen=True)
class Classification:
    """One text and its class."""

    label: str | None
    """The most probable label; None for an empty text."""
    probability: float
    probabilities: dict[str, float]
    """The probabilities of all labels, in the order of the labels."""
    windows: int = 1
    """Number of windows; more than 1 if the text is longer than the model's maximum."""

    def to_json(self) -> dict[str, Any]:
        """A JSON object; its fields are described in docs/texts.md."""
        return dict(vars(self))


class Row(NamedTuple):
    """The tokens of one window."""

    first: list[int]
    second: list[int] | None


class Classifier:
    """A predictor that classifies texts: an encoder with a head for classes, and its vocabulary.

    A text longer than the model's maximum is read in the smallest number of windows, evenly spaced,
    and its probabilities are averaged over them. In a pair, a text that needs at most half of the
    room is whole in every window; otherwise each text has half of it, and every window of one text
    is combined with every window of the other. An empty text, or one of white space only, has no
    label, and neither has a pair with such a text.

    Args:
        model: the encoder and its heads.
        vocabulary: text to tokens.
        labels: the names of the classes, in the order of the head's outputs.
        head: the name of the head.
        pairs: whether the inputs are pairs of texts; None accepts both.
        device: the device of the model.
        precision: precision of matrix products: float32, bfloat16 or float16.
        batch_tokens: maximum number of padded tokens in a batch.
        notify: called with notices; by default they are printed to standard error.

    Raises:
        ValueError: the model has no such head.
    """

    task = "classification"

    def __init__(
        self,
        model: HeadedEncoder,
        vocabulary: Vocabulary,
        labels: Sequence[str],
        *,
        head: str = "classification",
        pairs: bool | None = None,
        device: torch.device | str = "cpu",
        precision: str = "float32",
        batch_tokens: int = 8192,
        notify: Callable[[str], None] = notice,
    ) -> None:
        check_head(model, head)
        self.model, self.vocabulary, self.labels, self.head = model, vocabulary, tuple(labels), head
        self.pairs = True if model.encoder.needs_pairs else pairs
        self.device, self.precision = torch.device(device), precision
        self.batch_tokens, self.notify = batch_tokens, notify
        self.max_length = model.max_length

    def classify(
        self, texts: Iterable[Text], *, advance: Advance | None = None
    ) -> list[Classification]:
        """The class of each text, in the order of the texts.

        Raises:
            UserError: a text is not valid Unicode, or pairs are given instead of texts or vice
                versa.
        """
        require_list(texts, "classify")
        blocks = self.classify_blocks([list(texts)], advance=advance)
        return [one for block in blocks for one in block]

    def predict(self, texts: Iterable[Text]) -> list[Classification]:
        """The same as :meth:`classify`; every predictor has this method."""
        return self.classify(texts)

    def trace(self, text: Text, *, label: str | None = None, relevance: bool = True) -> Trace:
        """The attention weights of the model for ``text``.

        Args:
            text: a text, or a pair, that fits into one window.
            label: the class to compute gradients for; the most probable one by default.
            relevance: whether to add attention rollout and gradients.

        Returns:
            A trace with the axis "text" (``<s>``, the tokens, ``</s>``, and the same for a second
            text) and further axes of the model; ``decided`` is the label. With ``relevance``, it
            also has attention rollout, attention × gradient, and maps from the axis "decision" to
            the text: the rollout's row, and gradients propagated through the layers.

        Raises:
            UserError: the text is empty or too long, or the label is unknown.
        """
        row = only_row(self.rows(text), self.max_length)
        if label is not None and label not in self.labels:
            raise UserError(f"unknown label '{label}'; known labels are {', '.join(self.labels)}")
        batch, encoder = self.encode([row]), self.model.encoder

        def decide() -> Decision:
            encoded = encoder(batch)
            scores = self.model.heads[self.head](encoded)[0].float().log_softmax(0)
            tokens = 1 if encoded.states is None else encoded.states.shape[1]
            best = int(scores.argmax()) if label is None else self.labels.index(label)
            place = encoder.pooled_from % tokens
            return Decision([self.labels[best]], scores[best].unsqueeze(0), [place])

        title = text if isinstance(text, str) else " ‖ ".join(text)
        attends = bool(self.model.attention_axes())
        described = describe_texts(self.vocabulary, row.first, row.second, title, attends)
        context = ready(self.model, self.device)
        return trace_model(self.model, decide, described, context, relevance=relevance)

    def classify_blocks(
        self, blocks: Iterable[Sequence[Text]], *, advance: Advance | None = None
    ) -> Iterator[list[Classification]]:
        """The same as `classify`, block by block; the texts of a block are batched together."""
        counts: Counter[str] = Counter()
        for block in blocks:
            found = self.classify_rows([self.rows(text) for text in block], advance)
            counts["windows"] += sum(one.windows > 1 for one in found)
            counts["empty"] += sum(one.label is None for one in found)
            yield found
        if counts["windows"]:
            self.notify(
                f"{count_phrase(counts['windows'], 'text')} longer than the model's "
                f"{self.max_length:,} tokens: read in windows, whose probabilities are averaged"
            )
        if counts["empty"]:
            self.notify(f"{count_phrase(counts['empty'], 'text')} empty and got no label")

    def rows(self, text: Text) -> list[Row]:
        """The windows of a text; none for an empty text.

        Raises:
            UserError: it is a pair instead of a text, or vice versa.
        """
        pair = not isinstance(text, str)
        if self.pairs is not None and pair != self.pairs:
            raise UserError(
                "this model classifies pairs of texts; give two texts"
                if self.pairs
                else "this model classifies single texts; leave the second text out"
            )
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
        """The logits of the labels ``[B, C]``."""
        result: Tensor = self.model.heads[self.head](self.model.encoder(batch)).float()
        return result

    def classification(self, windows: Sequence[Tensor]) -> Classification:
        """The class of a text from the probabilities ``[C]`` of its windows."""
        if not windows:
            return Classification(None, 0.0, dict.fromkeys(self.labels, 0.0), 0)
        mean = torch.stack(list(windows)).double().mean(0)
        best = int(mean.argmax())
        probabilities = dict(zip(self.labels, mean.tolist(), strict=True))
        return Classification(self.labels[best], float(mean[best]), probabilities, len(windows))

    def classify_rows(
        self, rows: Sequence[Sequence[Row]], advance: Advance | None = None
    ) -> list[Classification]:
        """The class of each text, given the windows from `rows`."""
        advance = advance or (lambda count: None)
        missing = [len(own) for own in rows]
        found = [[torch.empty(0)] * len(own) for own in rows]
        advance(missing.count(0))
        with ready(self.model, self.device, self.precision):
            for batch in self._batches(rows):
                chosen = [rows[item.line][item.part] for item in batch]
                probabilities = self.logits(self.encode(chosen)).softmax(1).cpu()
                for item, own in zip(batch, probabilities, strict=True):
                    found[item.line][item.part] = own
                    missing[item.line] -= 1
                advance(sum(not missing[line] for line in {item.line for item in batch}))
        return [self.classification(own) for own in found]

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
        UserError: ``max_length`` is too small for any text.
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
    return [
        Row(first[a:b], second[c:d])
        for a, b in spans(len(first), room - half)
        for c, d in spans(len(second), half)
    ]


def check_head(model: HeadedEncoder, head: str) -> None:
    """Raise ValueError unless the model has that head."""
    if head not in model.heads:
        raise ValueError(
            f"unknown head '{head}'; known heads are {', '.join(model.heads) or 'none'}"
        )
