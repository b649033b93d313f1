"""A language model as a decodable with prompts, stop strings and streaming.

Shapes: B prompts, N rows of search, P tokens of a prompt, L tokens of a row so far, V vocabulary.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from heedful.basics.symbols import END
from heedful.data.vocabulary import Vocabulary
from heedful.inference.fusing import searched
from heedful.models.language import LanguageModel

_HALF_A_CHARACTER = "\ufffd"
# A byte may be a token, and some characters are encoded with an escape before them.
_TOKENS_A_BYTE = 2
_MARGIN = 8

Stream = Callable[[str], None]
"""Called with each further piece of a text: whole characters, which joined are the text."""


def following(vocabulary: Vocabulary, before: Sequence[int], tokens: Sequence[int]) -> str:
    """The text of ``tokens`` after ``before``; it may depend on the tokens before."""
    known, whole = vocabulary.decode(before), vocabulary.decode([*before, *tokens])
    for start in (known, known.rstrip(_HALF_A_CHARACTER)):
        if whole.startswith(start):
            return whole[len(start) :]
    return vocabulary.decode(tokens)


def until_stop(text: str, stop: Sequence[str]) -> str:
    """The text before the first stop string; the whole text if there is none."""
    places = [place for one in stop if (place := text.find(one)) >= 0]
    return text[: min(places)] if places else text


@dataclass
class GenerationState:
    """The state of generation: N rows of the same length."""

    inner: Any
    tokens: Tensor
    """The prompt and the generated tokens ``[N, L]``."""
    length: int
    """Number of tokens in the model's state."""
    begun: bool = False

    def select(self, rows: Tensor) -> Self:
        """The state of ``rows [M]``, in this order."""
        return replace(self, inner=self.inner.select(rows), tokens=self.tokens[rows])


class PromptDecodable:
    """A decodable that continues prompts.

    At ``max_tokens``, or after a stop string, END is the only choice, with probability 1. When the
    context is full, the model continues from the last half of the context.

    Args:
        model: the language model.
        vocabulary: decodes tokens for stop strings and ``stream``.
        max_tokens: maximum number of generated tokens.
        stop: strings that end a text.
        stream: called with the text of the first row as it grows; :meth:`flush` passes the rest
            at the end.
    """

    def __init__(
        self,
        model: LanguageModel,
        vocabulary: Vocabulary,
        *,
        max_tokens: int,
        stop: Sequence[str] = (),
        stream: Stream | None = None,
    ) -> None:
        self.vocabulary, self.max_tokens, self.context = vocabulary, max_tokens, model.max_length
        self.inner = searched(model)
        self.stop, self.stream = tuple(stop), stream
        self.shown = ""
        self._tail = _TOKENS_A_BYTE * max((len(one.encode()) for one in stop), default=0)
        self._prompt = 0

    def start(self, source: Tensor) -> GenerationState:
        """The state after all but the last token of ``source [B, P]``, P from 1 to the context."""
        self._prompt = source.shape[1]
        return GenerationState(self.inner.start(source), source, source.shape[1] - 1)

    def step(self, tokens: Tensor, state: GenerationState) -> tuple[Tensor, GenerationState]:
        """One step; the first step gets BEGIN and replaces it by the last token of the prompt."""
        so_far, inner, length = state.tokens, state.inner, state.length
        if state.begun:
            so_far = torch.cat([so_far, tokens.unsqueeze(1)], dim=1)
        if length == self.context:
            kept = so_far[:, -max(1, length // 2) :]
            inner, length = self.inner.start(kept), kept.shape[1] - 1
        logits, inner = self.inner.step(so_far[:, -1], inner)
        if self.vocabulary.mask is not None:  # a mask is never generated
            logits = logits.index_fill(1, self._mask(logits), -torch.inf)
        ended = self._ended(so_far)
        if ended is not None:
            only_end = torch.full_like(logits, -torch.inf)
            only_end[:, END] = 0.0
            logits = torch.where(ended.unsqueeze(1), only_end, logits)
        if self.stream is not None and state.begun:
            self._show(so_far[0].tolist())
        return logits, GenerationState(inner, so_far, length + 1, begun=True)

    def _mask(self, logits: Tensor) -> Tensor:
        return torch.tensor([self.vocabulary.mask], device=logits.device)

    def _ended(self, so_far: Tensor) -> Tensor | None:
        """The rows ``[N]`` that must end; None for none."""
        written = so_far.shape[1] - self._prompt
        if written >= self.max_tokens:
            return so_far.new_ones(len(so_far), dtype=torch.bool)
        if not self.stop or not written:
            return None
        # A stop string that ends in the last token is within this many tokens.
        tail = min(written, self._tail + _MARGIN)
        texts = [
            following(self.vocabulary, row[:-tail], row[-tail:])
            for row in so_far[:, -tail - _MARGIN :].tolist()
        ]
        ended = [any(one in text for one in self.stop) for text in texts]
        return torch.tensor(ended, device=so_far.device) if any(ended) else None

    def _show(self, row: list[int]) -> None:
        """Stream the part of the text that can no longer change."""
        text = following(self.vocabulary, row[: self._prompt], row[self._prompt :])
        certain = until_stop(text, self.stop)
        if certain == text:
            certain = text.rstrip(_HALF_A_CHARACTER)
            certain = certain[: len(certain) - self._begun_stop(certain)]
        self.flush(certain)

    def _begun_stop(self, text: str) -> int:
        """The number of characters at the end that may be the beginning of a stop string."""
        longest = max(map(len, self.stop), default=1) - 1
        lengths = range(min(longest, len(text)), 0, -1)
        return next(
            (size for size in lengths if any(one.startswith(text[-size:]) for one in self.stop)), 0
        )

    def flush(self, text: str) -> None:
        """Stream the rest of ``text``."""
        if self.stream is not None and len(text) > len(self.shown) and text.startswith(self.shown):
            piece, self.shown = text[len(self.shown) :], text
            self.stream(piece)
