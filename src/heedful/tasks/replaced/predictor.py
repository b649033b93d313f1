"""Detects replaced tokens: for each token of a text, the probability that it was replaced.

Shapes: B rows, L tokens.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.basics.errors import UserError
from heedful.basics.notices import notice
from heedful.data.examples import require_list
from heedful.data.vocabulary import Vocabulary
from heedful.inference.batches import Item, token_batches
from heedful.inference.inference_mode import ready
from heedful.inference.sliding_windows import count_phrase, room_for_text, spans
from heedful.inference.text_reader import Advance, Row, check_head, only_row
from heedful.inference.trace import Trace
from heedful.inference.tracing import Decision, describe_texts, trace_model
from heedful.models.electra import ReplacedTokens
from heedful.models.encoders import HeadedEncoder, Sequences, sequences_of

REPLACED, ORIGINAL = "replaced", "original"


@dataclass(frozen=True)
class Detection:
    """The tokens of a text, and whether they look replaced."""

    source: str
    tokens: tuple[str, ...]
    """The tokens, in a readable form."""
    probabilities: tuple[float, ...]
    """The probability of each token that it was replaced."""

    @property
    def text(self) -> str:
        """The tokens, separated by spaces; those that look replaced (p > 0.5) are in ``[…]``."""
        return " ".join(
            f"[{token}]" if probability > 0.5 else token
            for token, probability in zip(self.tokens, self.probabilities, strict=True)
        )

    def to_json(self) -> dict[str, Any]:
        """A JSON object; its fields are described in docs/texts.md."""
        return {
            "source": self.source,
            "tokens": list(self.tokens),
            "probabilities": list(self.probabilities),
        }


class DetectReplaced:
    """A predictor of replaced tokens: a discriminator and its vocabulary.

    A text longer than the model's maximum is read in windows that overlap by half; a token's
    probability is taken from the window in which it is farthest from a cut.

    Args:
        model: the encoder and its heads.
        vocabulary: text to tokens.
        head: the name of the head.
        device: the device of the model.
        precision: precision of matrix products: float32, bfloat16 or float16.
        batch_tokens: maximum number of padded tokens in a batch.
        notify: called with notices; by default they are printed to standard error.

    Raises:
        ValueError: the model has no such head.
    """

    task = "replaced"

    def __init__(
        self,
        model: HeadedEncoder,
        vocabulary: Vocabulary,
        *,
        head: str = "replaced",
        device: torch.device | str = "cpu",
        precision: str = "float32",
        batch_tokens: int = 8192,
        notify: Callable[[str], None] = notice,
    ) -> None:
        check_head(model, head)
        self.model, self.vocabulary, self.head = model, vocabulary, head
        self.device, self.precision = torch.device(device), precision
        self.batch_tokens, self.notify = batch_tokens, notify
        self.max_length = model.max_length

    def predict(self, texts: Iterable[str]) -> list[Detection]:
        """The same as :meth:`detect`; every predictor has this method."""
        return self.detect(texts)

    def detect(
        self, texts: Iterable[str], *, first: int | None = None, advance: Advance | None = None
    ) -> list[Detection]:
        """The probability of each token of each text that it was replaced.

        Args:
            texts: the texts; an empty one has no tokens.
            first: the line number of the first text, for messages; None for no numbers.
            advance: called with progress.

        Raises:
            UserError: ``texts`` is a string, or one of them is not valid Unicode.
        """
        require_list(texts, "detect")
        texts = list(texts)
        encoded = [self._tokens(text, number) for number, text in enumerate(texts, first or 0)]
        room = room_for_text(self.max_length)
        windows = [spans(len(own), room, room // 2) if own else [] for own in encoded]
        items = [
            Item(line, part, encoded[line][start:end])
            for line, parts in enumerate(windows)
            for part, (start, end) in enumerate(parts)
        ]
        found: dict[tuple[int, int], list[float]] = {}
        with ready(self.model, self.device, self.precision):
            for batch in token_batches(items, 1, self.batch_tokens):
                made = sequences_of([item.tokens for item in batch])
                rows = Sequences(*(part.to(self.device) for part in made))
                probabilities = self._logits(rows).sigmoid().cpu()  # [B, L]
                for row, item in enumerate(batch):
                    own = probabilities[row, 1 : 1 + len(item.tokens)]  # BEGIN is at 0
                    found[item.line, item.part] = own.tolist()
        long = sum(len(parts) > 1 for parts in windows)
        if long:
            self.notify(
                f"{count_phrase(long, 'text')} longer than the model's {self.max_length:,} "
                "tokens: read in windows"
            )
        results = [
            Detection(
                text,
                tuple(self.vocabulary.pieces(own)),
                tuple(_joined(parts, [found[line, part] for part in range(len(parts))])),
            )
            for line, (text, own, parts) in enumerate(zip(texts, encoded, windows, strict=True))
        ]
        if advance is not None:
            advance(len(results))
        return results

    def trace(self, text: str, *, relevance: bool = True) -> Trace:
        """The attention weights of the discriminator; ``decided`` are "replaced" and "original".

        See :meth:`heedful.inference.classifier.Classifier.trace`.

        Raises:
            UserError: the text is empty or too long.
        """
        tokens = self._tokens(text, 0)
        row = only_row([Row(tokens, None)] if tokens else [], self.max_length)
        batch = Sequences(*(part.to(self.device) for part in sequences_of([row.first])))
        places = list(range(1, 1 + len(tokens)))

        def decide() -> Decision:
            logits = self._logits(batch)[0, places]
            labels = [REPLACED if one > 0 else ORIGINAL for one in logits.tolist()]
            return Decision(labels, F.logsigmoid(logits.abs()), places)

        attends = bool(self.model.attention_axes())
        described = describe_texts(self.vocabulary, tokens, None, text, attends)
        context = ready(self.model, self.device)
        return trace_model(self.model, decide, described, context, relevance=relevance)

    def _logits(self, rows: Sequences) -> Tensor:
        """Logits of "replaced" ``[B, L]``."""
        head = cast(ReplacedTokens, self.model.heads[self.head])
        found: Tensor = head.detector(self.model.encoder(rows).states)
        return found.float()

    def _tokens(self, text: str, number: int) -> list[int]:
        if not isinstance(text, str):
            raise UserError(f"text {number} is not a text but {type(text).__name__}")
        return self.vocabulary.encode(text) if text.strip() else []


def _joined(parts: Sequence[tuple[int, int]], values: Sequence[Sequence[float]]) -> list[float]:
    """The values of all tokens: where windows overlap, each has half of the overlap."""
    joined: list[float] = []
    for number, ((start, _), own) in enumerate(zip(parts, values, strict=True)):
        end = parts[number][1]
        if number + 1 < len(parts):
            end = (parts[number + 1][0] + end) // 2
        joined += own[len(joined) - start : end - start]
    return joined
