"""A Transformer that can copy tokens of the source: a pointer-generator.

See, Liu and Manning 2017, "Get To The Point: Summarization with Pointer-Generator Networks",
section 2.2. With the state h_t that predicts token t, and the encoder's states e_i:

    a_t = softmax_i((W_q h_t)ᵀ W_k e_i / √D)                      equations 1, 2 (dot products)
    p_t = σ(w_cᵀ Σ_i a_ti e_i + w_hᵀ h_t + b)                     equation 8
    P(y) = p_t P_vocabulary(y) + (1 − p_t) Σ_{i: x_i = y} a_ti    equation 9

Logits are ``log P``, whose softmax is P again. The input embedding, which equation 8 also has, is
part of h_t here. Label smoothing is that of any other model: ``(1 − ε)`` on the label plus
``ε / V`` on every symbol, under P.

Shapes: B batch, N rows of search, S source tokens, T target tokens, D width, V vocabulary.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from heedful.attention.normalizers import Softmax
from heedful.attention.watching import Watchable
from heedful.layers.source_memories import SourceMemories
from heedful.layers.transformer import layer_caches
from heedful.models.pairs import Source
from heedful.models.pointing import PointingState, PointingTransformer
from heedful.models.registry import register_model
from heedful.models.transformer import Transformer, TransformerSettings

_CHUNK = 512
"""Positions whose probabilities ``[.., V]`` are computed, and kept, at the same time."""
_GENERATING = 2.0
"""The initial b: at first, 88 % of the probability is that of the vocabulary."""


class Copied(NamedTuple):
    """What positions copy, and how much."""

    weights: Tensor
    """a, ``[.., S]``: zero at padding."""
    gate: Tensor
    """The argument of σ in equation 8, ``[.., 1]``."""
    tokens: Tensor
    """x, ``[.., S]``."""


class CopyAttention(Watchable):
    """One head whose weights are the result. Watchers get ``[B, 1, T, S]``.

    Args:
        dim: width of queries and keys.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.query_projection = nn.Linear(dim, dim, bias=False)
        self.key_projection = nn.Linear(dim, dim, bias=False)
        self.normalize = Softmax()
        for part in (self.query_projection, self.key_projection):
            nn.init.xavier_uniform_(part.weight)

    def forward(self, query: Tensor, key: Tensor, allowed: Tensor) -> Tensor:
        """Weights ``[B, T, S]`` of ``query [B, T, D]`` over projected keys ``[B, S, D]``.

        Args:
            query: the queries, before their projection.
            key: the result of ``key_projection``.
            allowed: booleans ``[B, 1, S]``.
        """
        scale = query.shape[-1] ** -0.5
        scores = (self.query_projection(query) * scale) @ key.transpose(-2, -1)
        wide = torch.promote_types(scores.dtype, torch.float32)
        weights: Tensor = self.normalize(scores.to(wide), allowed)
        one_head = weights.unsqueeze(1)
        self.show(one_head)
        if self.watched_in_part:
            self.show_some(lambda rows: one_head[..., rows, :], one_head, key.shape[-2])
        return one_head.squeeze(1)


def mixture(logits: Tensor, copied: Copied) -> Tensor:
    """``log P [.., V]`` (equation 9) from the vocabulary's ``logits [.., V]``.

    Finite, with finite gradients, even where a probability underflows.

    Example:
        >>> weights, tokens = torch.tensor([[0.5, 0.25, 0.25]]), torch.tensor([[1, 0, 1]])
        >>> mixture(torch.zeros(1, 2), Copied(weights, torch.zeros(1, 1), tokens)).exp()
        tensor([[0.3750, 0.6250]])
    """
    generated = F.logsigmoid(copied.gate) + logits.to(copied.gate.dtype).log_softmax(-1)
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
    values = (F.embedding(tokens, table) @ states.unsqueeze(-1)).squeeze(-1).to(wide)
    if bias is not None:
        values = values + bias[tokens]
    generated = of_words + values
    is_label = sources.first & (sources.tokens == labels.unsqueeze(1))
    of_label = (sources.weights * is_label).sum(1, keepdim=True)
    found = torch.cat([of_label, sources.weights], 1).clamp(min=torch.finfo(wide).tiny).log()
    both = torch.logaddexp(generated, F.logsigmoid(-gate) + found)
    exact = -both[:, 0]
    if not smoothing:
        return exact.sum(), exact.detach()
    total = (states @ table.sum(0)).to(wide) + (0.0 if bias is None else bias.sum())
    more = ((both - generated)[:, 1:] * sources.first).sum(1)
    everywhere = -(of_words.squeeze(1) * len(table) + total + more) / len(table)
    return ((1 - smoothing) * exact + smoothing * everywhere).sum(), exact.detach()


class CopyingTransformer(Transformer):
    """A Transformer with the mixture as output.

    Args:
        settings: sizes and options.
        source_vocabulary: number of source symbols.
        target_vocabulary: number of target symbols, the same symbols.

    Raises:
        ValueError: the vocabularies differ in size.

    Example:
        >>> sizes = {"layers": 1, "hidden_size": 8, "heads": 2, "ffn_size": 8}
        >>> settings = TransformerSettings(**sizes, copy_source=True)
        >>> model = CopyingTransformer(settings, 20, 20)
        >>> source = Source(torch.tensor([[7, 9, 3]]), torch.tensor([3]))
        >>> model.teacher_force(source, torch.tensor([[2, 8]])).shape
        torch.Size([1, 2, 20])
    """

    def __init__(
        self, settings: TransformerSettings, source_vocabulary: int, target_vocabulary: int
    ) -> None:
        super().__init__(settings, source_vocabulary, target_vocabulary)
        if source_vocabulary != target_vocabulary:
            raise ValueError(
                "model.copy_source = true requires one vocabulary for both sides "
                "(tokeniser.joint = true)"
            )
        dim = settings.hidden_size
        self.copying = CopyAttention(dim)
        # A vector instead of nn.Linear: quantised copies of the model keep it exact.
        self.gate = nn.Parameter(torch.zeros(2 * dim))
        self.gate_bias = nn.Parameter(torch.tensor([_GENERATING]))
        nn.init.normal_(self.gate, std=dim**-0.5)

    def _copied(self, states: Tensor, parts: tuple[Tensor, ...]) -> Copied:
        """What each state ``[B, T, D]`` copies."""
        keys, encoded, allowed, tokens = parts
        weights = self.copying(states, keys, allowed)
        contexts = weights.to(encoded.dtype) @ encoded
        gate = torch.cat([contexts, states], -1) @ self.gate.to(states.dtype)
        spread = tokens.unsqueeze(1).expand_as(weights)
        wide = weights.dtype
        return Copied(weights, (gate.to(wide) + self.gate_bias.to(wide)).unsqueeze(-1), spread)

    def _parts(self, source: Source, encoded: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        return self.copying.key_projection(encoded), encoded, mask.squeeze(1), source.tokens

    def _read(self, source: Source, target_in: Tensor) -> tuple[Tensor, Copied]:
        encoded, mask = self.read_source(source)
        states = self.decode(encoded, mask, target_in)
        return states, self._copied(states, self._parts(source, encoded, mask))

    def states(self, source: Source, target_in: Tensor) -> Tensor:
        return self._read(source, target_in)[0]

    def layer_states(self) -> list[str]:
        return []  # the output also depends on the source

    def teacher_force(self, source: Source, target_in: Tensor) -> Tensor:
        states, copied = self._read(source, target_in)
        return mixture(self.logits(states), copied)

    def losses(
        self, source: Source, target_in: Tensor, labels: Tensor, real: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        states, copied = self._read(source, target_in)
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

    def start(self, source: Source, *, in_place: bool = False) -> PointingState:
        caches = layer_caches(self.decoder_layers(), len(source.lengths))
        encoded, mask = self.read_source(source)
        sources = SourceMemories(self.memories(encoded), source.lengths)
        return PointingState(caches, sources, self._parts(source, encoded, mask))

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, PointingState]:
        states, after = self.advance(tokens, state)
        copied = self._copied(states.unsqueeze(1), state.parts)
        one = Copied(*(part.squeeze(1) for part in copied))
        return mixture(self.logits(states), one), after

    def attention_axes(self) -> dict[str, tuple[str, str]]:
        return {**super().attention_axes(), "copying": ("target", "source")}


def build_transformer(
    settings: TransformerSettings, source_vocabulary: int, target_vocabulary: int
) -> Transformer:
    """The Transformer of the settings, with or without copying."""
    kinds = {False: Transformer, True: CopyingTransformer, "only": PointingTransformer}
    return kinds[settings.copy_source](settings, source_vocabulary, target_vocabulary)


register_model(TransformerSettings, build_transformer)
