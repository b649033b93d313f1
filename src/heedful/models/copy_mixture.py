"""The output of a pointer-generator: a mixture of the vocabulary and of words of the source.

See, Liu and Manning 2017, "Get To The Point: Summarization with Pointer-Generator Networks",
sections 2.2 and 2.3. With the weights a_t of an attention to the source, and the argument g_t of
equation 8:

    p_t = σ(g_t)
    P(y) = p_t P_vocabulary(y) + (1 − p_t) Σ_{i: x_i = y} a_ti    equation 9

Logits are ``log P``, whose softmax is P again. The vocabulary can be extended by words of the
source: tokens from V on, where P_vocabulary is zero. A model reads such tokens as UNKNOWN.

Shapes: B batch, S source tokens, T target tokens, D width, V vocabulary, X extension.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from heedful.attention import coverage_loss
from heedful.basics.symbols import UNKNOWN
from heedful.models.pairs import PairModel, Source

_CHUNK = 512
"""Positions whose probabilities ``[.., V]`` are computed, and kept, at the same time."""


class Copied(NamedTuple):
    """What positions copy, and how much."""

    weights: Tensor
    """a, ``[.., S]``: zero at padding."""
    gate: Tensor
    """The argument of σ in equation 8, ``[.., 1]``."""
    tokens: Tensor
    """x, ``[.., S]``."""


class Losses(NamedTuple):
    """The losses of a batch of targets."""

    total: Tensor
    """The summed cross-entropy with label smoothing, in nats."""
    exact: Tensor
    """``−log p`` of each label that counts ``[N]``, detached."""
    coverage: Tensor
    """The summed coverage loss (equation 12)."""


def listed(tokens: Tensor, vocabulary: int) -> Tensor:
    """The tokens, with UNKNOWN in place of those that extend the vocabulary of this size.

    Example:
        >>> listed(torch.tensor([7, 9, 12]), 10)
        tensor([7, 9, 1])
    """
    return tokens.masked_fill(tokens >= vocabulary, UNKNOWN)


def extension_of(tokens: Tensor, vocabulary: int) -> int:
    """X, by how many tokens ``tokens`` extend the vocabulary of this size."""
    return max(0, int(tokens.max()) + 1 - vocabulary) if tokens.numel() else 0


def mixture(logits: Tensor, copied: Copied, extension: int = 0) -> Tensor:
    """``log P [.., V + X]`` (equation 9) from the vocabulary's ``logits [.., V]``.

    Finite, with finite gradients, even where a probability underflows.

    Example:
        >>> weights, tokens = torch.tensor([[0.5, 0.25, 0.25]]), torch.tensor([[1, 0, 1]])
        >>> mixture(torch.zeros(1, 2), Copied(weights, torch.zeros(1, 1), tokens)).exp()
        tensor([[0.3750, 0.6250]])
    """
    generated = F.logsigmoid(copied.gate) + logits.to(copied.gate.dtype).log_softmax(-1)
    if extension:
        generated = F.pad(generated, (0, extension), value=-torch.inf)
    of_words = torch.zeros_like(generated).scatter_add(-1, copied.tokens, copied.weights)
    least = torch.finfo(of_words.dtype).tiny
    found = F.logsigmoid(-copied.gate) + of_words.clamp(min=least).log()
    return torch.logaddexp(generated, found)


class _Sources(NamedTuple):
    """The different tokens of each source."""

    tokens: Tensor
    """x, ``[.., S]``."""
    first: Tensor
    """Whether a token occurs at no earlier position ``[.., S]``."""
    weights: Tensor
    """The sum of the weights of all positions with the same token ``[.., S]``."""


def _joined(tokens: Tensor, weights: Tensor) -> _Sources:
    """Sum ``weights [B, T, S]`` over equal ``tokens [B, S]``."""
    same = tokens.unsqueeze(-1) == tokens.unsqueeze(-2)  # [B, S, S]
    first = ~same.tril(-1).any(-1)
    sums = weights @ same.to(weights.dtype)
    each = tokens.unsqueeze(1).expand_as(sums), first.unsqueeze(1).expand_as(sums)
    return _Sources(*each, sums)


def _losses(
    logits: Tensor,
    states: Tensor,
    output: tuple[Tensor, Tensor | None],
    gate: Tensor,
    sources: _Sources,
    labels: Tensor,
    smoothing: float,
) -> tuple[Tensor, Tensor]:
    """Smoothed sum, and ``−log P`` of each label ``[N]``: as from :func:`mixture`.

    Only the logarithm of the sum over the vocabulary needs all logits; other terms are computed for
    labels and tokens of the source.

    Args:
        logits: of the vocabulary ``[N, V]``.
        states: ``[N, D]``.
        output: the table ``[V, D]``, and the bias of the logits.
        gate: ``[N, 1]``.
        sources: ``[N, S]``.
        labels: ``[N]``.
        smoothing: ε.
    """
    table, bias = output
    wide = gate.dtype
    of_words = F.logsigmoid(gate) - logits.to(wide).logsumexp(-1, keepdim=True)  # [N, 1]
    tokens = torch.cat([labels.unsqueeze(1), sources.tokens], 1)  # [N, 1 + S]
    known = listed(tokens, len(table))
    values = (F.embedding(known, table) @ states.unsqueeze(-1)).squeeze(-1).to(wide)
    if bias is not None:
        values = values + bias[known]
    generated = (of_words + values).masked_fill(tokens >= len(table), -torch.inf)
    is_label = sources.first & (sources.tokens == labels.unsqueeze(1))
    of_label = (sources.weights * is_label).sum(1, keepdim=True)
    found = torch.cat([of_label, sources.weights], 1).clamp(min=torch.finfo(wide).tiny).log()
    both = torch.logaddexp(generated, F.logsigmoid(-gate) + found)
    exact = -both[:, 0]
    if not smoothing:
        return exact.sum(), exact.detach()
    total = (states @ table.sum(0)).to(wide) + (0.0 if bias is None else bias.sum())
    counted = sources.first & (sources.tokens < len(table))
    more = (both - generated)[:, 1:].masked_fill(~counted, 0.0).sum(1)
    everywhere = -(of_words.squeeze(1) * len(table) + total + more) / len(table)
    return ((1 - smoothing) * exact + smoothing * everywhere).sum(), exact.detach()


class CopyingModel(PairModel):
    """Base of models whose output is the mixture. A subclass implements :meth:`read`."""

    def read(self, source: Source, target_in: Tensor) -> tuple[Tensor, Copied]:
        """The states ``[B, T, D]`` that predict each next token, and what each copies."""
        raise NotImplementedError

    def states(self, source: Source, target_in: Tensor) -> Tensor:
        return self.read(source, target_in)[0]

    def layer_states(self) -> list[str]:
        return []  # the output also depends on the source

    def teacher_force(self, source: Source, target_in: Tensor) -> Tensor:
        """``log P [B, T, V + X]``; X is 0 unless tokens of a source extend the vocabulary."""
        states, copied = self.read(source, target_in)
        extension = extension_of(source.tokens, len(self.output_table))
        return mixture(self.logits(states), copied, extension)

    def losses(
        self, source: Source, target_in: Tensor, labels: Tensor, real: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        return self._losses(source, *self.read(source, target_in), labels, real, smoothing)

    def covered_losses(
        self, source: Source, target_in: Tensor, labels: Tensor, real: Tensor, smoothing: float
    ) -> Losses:
        """The results of :meth:`losses`, and the coverage loss of the weights that copy."""
        states, copied = self.read(source, target_in)
        total, exact = self._losses(source, states, copied, labels, real, smoothing)
        return Losses(total, exact, coverage_loss(copied.weights)[real].sum())

    def _losses(
        self,
        source: Source,
        states: Tensor,
        copied: Copied,
        labels: Tensor,
        real: Tensor,
        smoothing: float,
    ) -> tuple[Tensor, Tensor]:
        sources = _joined(source.tokens, copied.weights)
        some = (states[real], copied.gate[real], *(part[real] for part in sources), labels[real])
        sums, found = [], []
        for state, gate, tokens, first, weights, own in zip(
            *(part.split(_CHUNK) for part in some), strict=True
        ):
            parts = _Sources(tokens, first, weights)
            smooth, exact = self._chunk(state, gate, parts, own, smoothing)
            sums.append(smooth)
            found.append(exact)
        if not sums:
            return states.new_zeros(()), states.new_zeros(0)
        return torch.stack(sums).sum(), torch.cat(found)

    def _chunk(
        self, states: Tensor, gate: Tensor, sources: _Sources, labels: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        """:func:`_losses` of some states; the backward pass computes the logits again."""

        def compute(states: Tensor, gate: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
            parts = sources._replace(weights=weights)
            output = self.output_table, self.output_bias
            return _losses(self.logits(states), states, output, gate, parts, labels, smoothing)

        arguments = (states, gate, sources.weights)
        if not torch.is_grad_enabled():
            return compute(*arguments)
        found: tuple[Tensor, Tensor] = checkpoint(
            compute, *arguments, use_reentrant=False, preserve_rng_state=False
        )
        return found
