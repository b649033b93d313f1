"""Vectors of texts.

Shapes: N texts, B rows, D width.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.basics.notices import counted_notice
from heedful.data.examples import require_list
from heedful.data.vocabulary import Vocabulary
from heedful.inference.sliding_windows import count_phrase
from heedful.inference.text_reader import Advance, TextReader
from heedful.inference.trace import Trace
from heedful.models.encoders import HeadedEncoder, Sequences

Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class Embedding:
    """The vector of one text."""

    vector: tuple[float, ...]
    """All zero for an empty text."""
    windows: int = 1
    """Number of windows; more than 1 if the text is longer than the model's maximum."""

    def to_json(self) -> dict[str, Any]:
        """A JSON object with the fields of this class."""
        return {**vars(self), "vector": list(self.vector)}


class Embedder(TextReader):
    """A predictor of vectors: an encoder whose output is pooled, and its vocabulary.

    The vector of a long text is the mean of the vectors of its windows, which
    :class:`~heedful.inference.text_reader.TextReader` describes. Only then is it normalized. The
    vector of an empty text is zero, and its cosine with any vector is 0.

    Args:
        model: the encoder and its pooling.
        vocabulary: text to tokens.
        normalize: whether vectors have the length 1.
        head: the name of the pooling.
        how: further arguments of :class:`~heedful.inference.text_reader.TextReader`.
    """

    task = "embedding"

    def __init__(
        self,
        model: HeadedEncoder,
        vocabulary: Vocabulary,
        *,
        normalize: bool = True,
        head: str = "embedding",
        **how: Any,
    ) -> None:
        super().__init__(model, vocabulary, head=head, pairs=False, **how)
        self.normalize = normalize
        own: Any = model.encoder
        kind = getattr(model.heads[head], "kind", "mean")
        self.width = int(own.pooled_dim if kind == "encoder" else own.dim)
        """D."""

    def logits(self, batch: Sequences) -> Tensor:
        """The vectors of rows ``[B, D]``, not normalized."""
        encoded = self.model.encoder(batch)
        found: Tensor = self.model.heads[self.head](encoded, batch.lengths)
        return found.float()

    def embed(self, texts: Iterable[str], *, advance: Advance | None = None) -> Vectors:
        """The vectors of texts ``[N, D]``, in their order.

        Args:
            texts: single texts.
            advance: called with the number of finished texts.

        Raises:
            UserError: a text is not valid Unicode.
        """
        return self._embed(texts, advance)[0]

    def predict(self, texts: Iterable[str]) -> list[Embedding]:
        """The vector of each text, in the order of the texts.

        Raises:
            UserError: a text is not valid Unicode.
        """
        vectors, windows = self._embed(texts, None)
        return [
            Embedding(tuple(own), count)
            for own, count in zip(vectors.tolist(), windows, strict=True)
        ]

    def _embed(self, texts: Iterable[str], advance: Advance | None) -> tuple[Vectors, list[int]]:
        """The vectors, and the number of windows of each text."""
        require_list(texts, "embed")
        rows = [self.rows(text) for text in texts]
        vectors = np.zeros((len(rows), self.width), np.float32)
        for place, own in enumerate(self.outputs(rows, lambda outputs: outputs, advance)):
            if own:
                mean = torch.stack(own).double().mean(0)
                vectors[place] = (mean / mean.norm().clamp(min=1e-12)) if self.normalize else mean
        windows = [len(own) for own in rows]
        counted_notice(self.notify, self._long, sum(count > 1 for count in windows))
        counted_notice(self.notify, _empty, windows.count(0))
        return vectors, windows

    def _long(self, long: int) -> str:
        return (
            f"{count_phrase(long, 'text')} longer than the model's {self.max_length:,} tokens: "
            "read in windows, whose vectors are averaged"
        )

    def trace(self, text: str, *, relevance: bool = True) -> Trace:
        """The attention weights of the model for ``text``; relevance is for the vector's length.

        Args:
            text: a text that fits into one window.
            relevance: whether to add attention rollout and gradients.

        Raises:
            UserError: the text is empty or too long.
        """

        def decide(vector: Tensor) -> tuple[str, Tensor]:
            length = vector.norm()
            # A length has no probability; the difference is 0 and has the gradient of the length.
            return f"length {float(length.detach()):.4g}", length - length.detach()

        return self.trace_text(text, decide, relevance=relevance)


def _empty(empty: int) -> str:
    return f"{count_phrase(empty, 'text')} empty and got a vector of zeros"
