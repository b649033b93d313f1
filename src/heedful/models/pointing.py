"""A Transformer whose outputs are tokens of its source: a pointer network.

Vinyals, Fortunato and Jaitly 2015, "Pointer Networks", section 2.3. With the state d_i that
predicts output i, and the encoder's states e_j of the source x:

    a_i = softmax_j(vᵀ tanh(W₁ e_j + W₂ d_i))     equation 3
    P(C_i = y) = Σ_{j: x_j = y} a_ij

Positions with the same token share its probability, because outputs are tokens. END, which ends
each source, ends the output. In the paper, the encoder and the decoder are LSTMs. Label smoothing
is ``(1 − ε)`` on the label plus ``ε / n`` on each of the n different tokens of the source.

Shapes: B batch, N rows of search, S source tokens, T target tokens, D width, V vocabulary.
"""

from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from heedful.attention import Pointer
from heedful.attention.scores import Additive
from heedful.basics.errors import UserError
from heedful.basics.symbols import PAD
from heedful.layers.source_memories import SourceMemories
from heedful.layers.transformer import layer_caches
from heedful.models.pairs import AlignmentSource, Source
from heedful.models.transformer import Transformer, TransformerSettings, TransformerState

_LEAST = torch.finfo(torch.float32).tiny
"""The least probability whose logarithm is taken."""


@dataclass
class PointingState(TransformerState):
    """The state of the Transformer, and what outputs are taken from, one row a hypothesis."""

    parts: tuple[Tensor, ...]
    """Tensors of the source ``[N, ..]``, among them its projected keys, mask and tokens."""

    def select(self, rows: Tensor) -> Self:
        """The state of ``rows [M]``, in this order."""
        chosen = super().select(rows)
        parts = tuple(part.index_select(0, rows) for part in self.parts)
        return replace(chosen, parts=parts)


def pointed(logs: Tensor, tokens: Tensor, vocabulary: int) -> Tensor:
    """``log P [.., V]`` from the log-probabilities ``logs [.., S]`` of ``tokens [.., S]``.

    Tokens that are not in the source have −87 instead of −∞, so that logits are finite.

    Example:
        >>> logs = torch.tensor([[0.5, 0.25, 0.25]]).log()
        >>> pointed(logs, torch.tensor([[1, 0, 1]]), 3).exp().round(decimals=4)
        tensor([[0.2500, 0.7500, 0.0000]])
    """
    wide = logs.to(torch.promote_types(logs.dtype, torch.float32))
    sums = wide.new_zeros(*wide.shape[:-1], vocabulary).scatter_add(-1, tokens, wide.exp())
    return sums.clamp(min=_LEAST).log()


class PointingTransformer(Transformer):
    """A Transformer whose output distribution is an attention to the source.

    Args:
        settings: sizes and options.
        source_vocabulary: number of source symbols.
        target_vocabulary: number of target symbols, the same symbols.

    Raises:
        ValueError: the vocabularies differ in size.

    Example:
        >>> sizes = {"layers": 1, "hidden_size": 8, "heads": 2, "ffn_size": 8}
        >>> model = PointingTransformer(TransformerSettings(**sizes, copy_source="only"), 20, 20)
        >>> source = Source(torch.tensor([[7, 9, 3]]), torch.tensor([3]))
        >>> total = model.teacher_force(source, torch.tensor([[2, 8]])).exp().sum(-1)
        >>> torch.allclose(total, torch.ones(1, 2))
        True
    """

    def __init__(
        self, settings: TransformerSettings, source_vocabulary: int, target_vocabulary: int
    ) -> None:
        super().__init__(settings, source_vocabulary, target_vocabulary)
        if source_vocabulary != target_vocabulary:
            raise ValueError(
                "model.copy_source = 'only' requires one vocabulary for both sides "
                "(tokeniser.joint = true)"
            )
        dim = settings.hidden_size
        self.pointing = Pointer(Additive(dim, dim, dim))

    def _parts(self, source: Source, encoded: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        return self.pointing.remember(encoded), mask.squeeze(1), source.tokens

    def _read(self, source: Source, target_in: Tensor) -> Tensor:
        """The log-probabilities ``[B, T, S]`` of the tokens of the source."""
        encoded, mask = self.read_source(source)
        states = self.decode(encoded, mask, target_in)
        keys, allowed, _ = self._parts(source, encoded, mask)
        return self.pointing.read(states, keys, allowed)

    def layer_states(self) -> list[str]:
        return []  # the output also depends on the source

    def teacher_force(self, source: Source, target_in: Tensor) -> Tensor:
        logs = self._read(source, target_in)
        tokens = source.tokens.unsqueeze(1).expand_as(logs)
        return pointed(logs, tokens, self.target_embedding.num_embeddings)

    def losses(
        self, source: Source, target_in: Tensor, labels: Tensor, real: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        logs = self._read(source, target_in)
        wide = logs.to(torch.promote_types(logs.dtype, torch.float32))
        tokens = source.tokens
        same = labels.unsqueeze(-1) == tokens.unsqueeze(1)  # [B, T, S]
        if not bool((same.any(-1) | ~real).all()):
            raise UserError(
                "model.copy_source = 'only' requires targets that consist of tokens of their "
                "source: a target has another token"
            )
        exact = -wide.masked_fill(~same, float("-inf"))[real].logsumexp(-1)
        if not smoothing:
            return exact.sum(), exact.detach()
        equal = tokens.unsqueeze(-1) == tokens.unsqueeze(-2)  # [B, S, S]
        first = ~equal.tril(-1).any(-1) & (tokens != PAD)
        sums = (wide.exp() @ equal.to(wide.dtype)).clamp(min=_LEAST)
        each = (sums.log() * first.unsqueeze(1)).sum(-1) / first.sum(-1, keepdim=True)  # [B, T]
        total = (1 - smoothing) * exact.sum() - smoothing * each[real].sum()
        return total, exact.detach()

    def start(self, source: Source, *, in_place: bool = False) -> PointingState:
        caches = layer_caches(self.decoder_layers(), len(source.lengths))
        encoded, mask = self.read_source(source)
        sources = SourceMemories(self.memories(encoded), source.lengths)
        return PointingState(caches, sources, self._parts(source, encoded, mask))

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, PointingState]:
        states, after = self.advance(tokens, state)
        keys, allowed, source = state.parts
        logs = self.pointing.read(states.unsqueeze(1), keys, allowed).squeeze(1)
        return pointed(logs, source, self.target_embedding.num_embeddings), after

    @property
    def alignment(self) -> AlignmentSource:
        """The pointer."""
        return AlignmentSource("pointing", heads=None, shift=0)

    def attention_axes(self) -> dict[str, tuple[str, str]]:
        return {**super().attention_axes(), "pointing": ("target", "source")}
