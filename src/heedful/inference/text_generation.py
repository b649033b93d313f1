"""A language model as search sees it: a prompt goes before, stop strings end, texts stream.

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
# A byte may be a token of its own, and some characters are written with an escape before them.
_TOKENS_A_BYTE = 2
_MARGIN = 8

Stream = Callable[[str], None]
"""Called with each further piece of a text: whole characters, which joined are the text."""


def following(vocabulary: Vocabulary, before: Sequence[int], tokens: Sequence[int]) -> str:
    """What ``tokens`` say after ``before``: a token's text may depend on what it follows."""
    known, whole = vocabulary.decode(before), vocabulary.decode([*before, *tokens])
    for start in (known, known.rstrip(_HALF_A_CHARACTER)):
        if whole.startswith(start):
            return whole[len(start) :]
    return vocabulary.decode(tokens)


def until_stop(text: str, stop: Sequence[str]) -> str:
    """The text before the first of the stop strings in it; all of it without one."""
    places = [place for one in stop if (place := text.find(one)) >= 0]
    return text[: min(places)] if places else text


@dataclass
class Written:
    """The state of a search that writes: N rows, equally long."""

    inner: Any
    tokens: Tensor
    """The prompt and what was written ``[N, L]``."""
    length: int
    """How many tokens the model's state has read."""
    begun: bool = False

    def select(self, rows: Tensor) -> Self:
        """The state of ``rows [M]``, in that order."""
        return replace(self, inner=self.inner.select(rows), tokens=self.tokens[rows])


class Writer:
    """A decodable that writes on from prompts.

    At ``max_tokens``, or behind a stop string, the end is the only choice, and costs nothing. When
    the context is full, the model goes on from the context's last half.

    Args:
        model: what predicts tokens.
        vocabulary: what stop strings and ``stream`` are read with.
        max_tokens: the most tokens written after a prompt.
        stop: strings behind which nothing is written.
        stream: takes the text of the first row as it grows; what is left at the end is given by
            :meth:`hand_on`.
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

    def start(self, source: Tensor) -> Written:
        """The state after all but the last token of ``source [B, P]``, P from 1 to the context."""
        self._prompt = source.shape[1]
        return Written(self.inner.start(source), source, source.shape[1] - 1)

    def step(self, tokens: Tensor, state: Written) -> tuple[Tensor, Written]:
        """As any decodable's; the first step is given BEGIN, and reads the prompts' last."""
        so_far, inner, length = state.tokens, state.inner, state.length
        if state.begun:
            so_far = torch.cat([so_far, tokens.unsqueeze(1)], dim=1)
        if length == self.context:
            kept = so_far[:, -max(1, length // 2) :]
            inner, length = self.inner.start(kept), kept.shape[1] - 1
        logits, inner = self.inner.step(so_far[:, -1], inner)
        if self.vocabulary.mask is not None:  # it hides a token, and is none
            logits = logits.index_fill(1, self._mask(logits), -torch.inf)
        ended = self._ended(so_far)
        if ended is not None:
            only_end = torch.full_like(logits, -torch.inf)
            only_end[:, END] = 0.0
            logits = torch.where(ended.unsqueeze(1), only_end, logits)
        if self.stream is not None and state.begun:
            self._show(so_far[0].tolist())
        return logits, Written(inner, so_far, length + 1, begun=True)

    def _mask(self, logits: Tensor) -> Tensor:
        return torch.tensor([self.vocabulary.mask], device=logits.device)

    def _ended(self, so_far: Tensor) -> Tensor | None:
        """The rows ``[N]`` that may write no more; None for none."""
        written = so_far.shape[1] - self._prompt
        if written >= self.max_tokens:
            return so_far.new_ones(len(so_far), dtype=torch.bool)
        if not self.stop or not written:
            return None
        # A stop string that the last token has completed lies within so many tokens.
        tail = min(written, self._tail + _MARGIN)
        texts = [
            following(self.vocabulary, row[:-tail], row[-tail:])
            for row in so_far[:, -tail - _MARGIN :].tolist()
        ]
        ended = [any(one in text for one in self.stop) for text in texts]
        return torch.tensor(ended, device=so_far.device) if any(ended) else None

    def _show(self, row: list[int]) -> None:
        """Hand on what can change no more."""
        text = following(self.vocabulary, row[: self._prompt], row[self._prompt :])
        certain = until_stop(text, self.stop)
        if certain == text:
            certain = text.rstrip(_HALF_A_CHARACTER)
            certain = certain[: len(certain) - self._begun_stop(certain)]
        self.hand_on(certain)

    def _begun_stop(self, text: str) -> int:
        """How many characters at the end may be the beginning of a stop string."""
        longest = max(map(len, self.stop), default=1) - 1
        lengths = range(min(longest, len(text)), 0, -1)
        return next(
            (size for size in lengths if any(one.startswith(text[-size:]) for one in self.stop)), 0
        )

    def hand_on(self, text: str) -> None:
        """Give what has not been given yet of ``text``, which may grow no other way."""
        if self.stream is not None and len(text) > len(self.shown) and text.startswith(self.shown):
            piece, self.shown = text[len(self.shown) :], text
            self.stream(piece)
