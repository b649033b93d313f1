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

from typing import Any

import torch
from torch import Tensor, nn

from heedful.attention.normalizers import Softmax
from heedful.attention.watching import Watchable
from heedful.layers.source_memories import SourceMemories
from heedful.layers.transformer import layer_caches
from heedful.models.copy_mixture import (
    Copied,
    CopyingModel,
    extension_of,
    listed,
    mixture,
)
from heedful.models.pairs import Source
from heedful.models.pointing import PointingState, PointingTransformer
from heedful.models.registry import register_model
from heedful.models.transformer import Transformer, TransformerSettings

_GENERATING = 2.0
"""The initial b: at first, 88 % of the probability is that of the vocabulary."""


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


class CopyingTransformer(CopyingModel, Transformer):
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

    def read_source(self, source: Source) -> tuple[Tensor, Tensor]:
        return super().read_source(source._replace(tokens=listed(source.tokens, self._symbols)))

    def _embed_target(self, tokens: Tensor, first: int | Tensor = 0) -> Tensor:
        return super()._embed_target(listed(tokens, self._symbols), first)

    @property
    def _symbols(self) -> int:
        return self.target_embedding.num_embeddings

    def _copied(self, states: Tensor, parts: tuple[Tensor, ...]) -> Copied:
        """What each state ``[B, T, D]`` copies."""
        keys, encoded, allowed, tokens, *_ = parts
        weights = self.copying(states, keys, allowed)
        contexts = weights.to(encoded.dtype) @ encoded
        gate = torch.cat([contexts, states], -1) @ self.gate.to(states.dtype)
        spread = tokens.unsqueeze(1).expand_as(weights)
        wide = weights.dtype
        return Copied(weights, (gate.to(wide) + self.gate_bias.to(wide)).unsqueeze(-1), spread)

    def _parts(self, source: Source, encoded: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        keys = self.copying.key_projection(encoded)
        # The last part only has a width: that of the extension.
        room = encoded.new_zeros(len(encoded), extension_of(source.tokens, self._symbols))
        return keys, encoded, mask.squeeze(1), source.tokens, room

    def read(self, source: Source, target_in: Tensor) -> tuple[Tensor, Copied]:
        encoded, mask = self.read_source(source)
        states = self.decode(encoded, mask, target_in)
        return states, self._copied(states, self._parts(source, encoded, mask))

    def start(self, source: Source, *, in_place: bool = False) -> PointingState:
        caches = layer_caches(self.decoder_layers(), len(source.lengths))
        encoded, mask = self.read_source(source)
        sources = SourceMemories(self.memories(encoded), source.lengths)
        return PointingState(caches, sources, self._parts(source, encoded, mask))

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, PointingState]:
        states, after = self.advance(tokens, state)
        copied = self._copied(states.unsqueeze(1), state.parts)
        one = Copied(*(part.squeeze(1) for part in copied))
        return mixture(self.logits(states), one, state.parts[-1].shape[1]), after

    def attention_axes(self) -> dict[str, tuple[str, str]]:
        return {**super().attention_axes(), "copying": ("target", "source")}


def build_transformer(
    settings: TransformerSettings, source_vocabulary: int, target_vocabulary: int
) -> Transformer:
    """The Transformer of the settings, with or without copying."""
    kinds = {False: Transformer, True: CopyingTransformer, "only": PointingTransformer}
    return kinds[settings.copy_source](settings, source_vocabulary, target_vocabulary)


register_model(TransformerSettings, build_transformer)
