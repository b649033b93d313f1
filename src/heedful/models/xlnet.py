"""XLNet: an encoder that is pre-trained to predict tokens in random orders.

Yang et al. 2019, "XLNet: Generalized Autoregressive Pretraining for Language Understanding",
section 2, with the memory and the relative positions of Dai et al. 2019, "Transformer-XL: Attentive
Language Models Beyond a Fixed-Length Context". As in the authors' code, tokens that are not
predicted see each other, and embeddings have no norm. Unlike there, no dropout is applied to the
sinusoids.
Shapes: B batch, L tokens, N predicted tokens of a row, M earlier tokens, D width, V vocabulary.
"""

from typing import Any, ClassVar, Literal, NamedTuple

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from heedful.basics.limits import MOST_LAYERS, MOST_POSITIONS, MOST_WIDTH
from heedful.basics.symbols import PAD
from heedful.layers.dropout import Dropout
from heedful.layers.transformer import Activation, BlockOptions
from heedful.layers.two_streams import (
    Relation,
    TwoStreamAttention,
    TwoStreamLayer,
    distances,
)
from heedful.models.bert import SIZES, initialise
from heedful.models.encoders import Encoded, Sequences, TextEncoder
from heedful.models.registry import EncoderSettings, register_model
from heedful.models.sizes import fill_from_size

_STD = 0.02
_OF_BEGIN = -1
"""The segment of BEGIN if it is last."""


class XLNetSettings(EncoderSettings):
    """Sizes and options of an XLNet; ``size``, or ``hidden_size``, sets the other defaults."""

    reads_any_length = True
    permutes: ClassVar[bool] = True
    kind: Literal["xlnet"] = "xlnet"
    size: Literal["tiny", "mini", "base", "large"] | None = None
    layers: int = Field(ge=1, le=MOST_LAYERS)
    hidden_size: int = Field(ge=2, le=MOST_WIDTH, multiple_of=2)
    ffn_size: int = Field(ge=1, le=MOST_WIDTH)
    """4 · hidden_size by default."""
    heads: int = Field(ge=1, le=MOST_WIDTH)
    """Number of heads; by default, such that a head is 64 wide."""
    dropout: float = Field(0.1, ge=0, lt=1)
    """Dropout on embeddings, in the feed-forward network, and on each sublayer's output."""
    attention_dropout: float = Field(0.1, ge=0, lt=1)
    activation: Activation = "gelu"
    norm_epsilon: float = Field(1e-12, gt=0)
    begin: Literal["first", "last"] = "first"
    """Where BEGIN is, whose state is a text's vector: before the text; or after it, in a segment of
    its own, as in the authors' code."""
    max_length: int = Field(512, ge=2, le=MOST_POSITIONS)
    """Longest row in tokens, including BEGIN and the ENDs, without earlier text."""

    @model_validator(mode="before")
    @classmethod
    def _fill_from_size(cls, given: Any) -> Any:
        return fill_from_size(given, SIZES, "tiny")

    @model_validator(mode="after")
    def _heads_divide_dim(self) -> "XLNetSettings":
        if self.hidden_size % self.heads:
            raise ValueError(
                f"hidden_size {self.hidden_size} is not a multiple of heads {self.heads}"
            )
        return self

    @property
    def blocks(self) -> BlockOptions:
        """The options of its blocks."""
        return BlockOptions(
            self.hidden_size,
            self.ffn_size,
            self.dropout,
            self.dropout,
            activation=self.activation,
            norm_epsilon=self.norm_epsilon,
        )


class Remembered(NamedTuple):
    """States of earlier text, without gradient."""

    states: tuple[Tensor, ...]
    """The inputs of each layer ``[B, M, D]``."""
    there: Tensor
    """Which of them exist, booleans ``[B, M]``."""


class Predicted(NamedTuple):
    """What a row predicts, and in which order."""

    order: Tensor
    """Integers ``[B, L]``: a token sees those with a lower number; −1 for tokens that are not
    predicted, which see each other. A predicted token is seen by its own content stream."""
    places: Tensor
    """Columns of the predicted tokens ``[B, N]``; any column where a row has fewer than N."""


class Streams(NamedTuple):
    """The outputs of both streams."""

    content: Tensor | None
    """``[B, L, D]``; None if only the query stream was asked for."""
    query: Tensor | None
    """States that predict the tokens at the places ``[B, N, D]``; None if there are none."""
    remembered: Remembered | None
    """The states of this text, and earlier ones, for the text that follows."""


class XLNet(TextEncoder):
    """The encoder; ``pooled`` is ``tanh(W z + b)`` of the state z of BEGIN.

    States beyond a row's length are undefined.

    Args:
        settings: sizes and options.
        vocabulary: number of symbols.

    Example:
        >>> from heedful.models.encoders import sequences_of
        >>> xlnet = XLNet(XLNetSettings(layers=1, hidden_size=8, heads=2), 30)
        >>> batch = sequences_of([[7, 9], [8]], [[5], [6, 4]])
        >>> xlnet(batch).states.shape, xlnet(batch).pooled.shape
        (torch.Size([2, 6, 8]), torch.Size([2, 8]))
        >>> order = torch.tensor([[-1, 1, 0, -1, -1, -1], [-1, 0, -1, 1, -1, -1]])
        >>> predicted = Predicted(order, torch.tensor([[1, 2], [1, 3]]))
        >>> xlnet.streams(batch, predicted).query.shape
        torch.Size([2, 2, 8])
    """

    dim: int
    pooled_dim: int

    def __init__(self, settings: XLNetSettings, vocabulary: int) -> None:
        super().__init__()
        self.settings = settings
        self.max_length = settings.max_length
        self.dim = self.pooled_dim = settings.hidden_size
        self.tokens = nn.Embedding(vocabulary, settings.hidden_size, padding_idx=PAD)
        self.query_start = nn.Parameter(torch.randn(settings.hidden_size) * _STD)
        self.layers = nn.ModuleList(
            TwoStreamLayer(settings.blocks, settings.heads, settings.attention_dropout)
            for _ in range(settings.layers)
        )
        self.dropout = Dropout(settings.dropout)
        self.pooler = nn.Linear(settings.hidden_size, settings.hidden_size)
        self.apply(_initialise)

    def encode(self, batch: Sequences) -> Encoded:
        content = self.streams(batch).content
        assert content is not None
        return Encoded(content, torch.tanh(self.pooler(content[:, 0])))

    def streams(
        self,
        batch: Sequences,
        predicted: Predicted | None = None,
        earlier: Remembered | None = None,
        *,
        keep: int = 0,
        query_only: bool = False,
    ) -> Streams:
        """The outputs of both streams.

        Args:
            batch: the texts.
            predicted: what is predicted; None for no query stream, where all tokens see each other.
            earlier: states of the text before, which all tokens see.
            keep: number of states to remember for the text that follows; 0 for none.
            query_only: whether to leave out the last states of the content stream, which no query
                reads.

        Raises:
            ValueError: the remembered states are those of another number of layers or texts.
        """
        self._check(batch, earlier)
        content = self.dropout(self.tokens(batch.tokens))
        query = None
        if predicted is not None:
            start = self.query_start.to(content.dtype)
            query = self.dropout(start.expand(*predicted.places.shape, -1))
        relations = self._relations(batch, predicted, earlier, content.dtype)
        inputs = []
        for number, layer in enumerate(self.layers):
            inputs.append(content)
            before = None if earlier is None else earlier.states[number]
            own = None if query_only and number + 1 == len(self.layers) else relations[0]
            content, query = layer(content, own, query, relations[1], before)
        remembered = _remembered(batch, inputs, earlier, keep)
        query = None if query is None else self.dropout(query)
        return Streams(None if query_only else self.dropout(content), query, remembered)

    @torch.no_grad()
    def remember(self, tokens: Tensor, there: Tensor) -> Remembered:
        """The states of earlier text, from its tokens.

        Args:
            tokens: integers ``[B, M]``; the last ones are those before the text.
            there: which of them exist, booleans ``[B, M]``.
        """
        content = self.dropout(self.tokens(tokens))
        places = torch.arange(tokens.shape[1], device=tokens.device)
        given = places, places, self.dim, content.dtype
        relation = Relation(distances(*given), there[:, None, None], None)
        inputs = [content]
        for layer in self.layers[:-1]:
            inputs.append(layer(inputs[-1], relation)[0])
        return Remembered(tuple(inputs), there)

    def states_to_fill(self, batch: Sequences, places: Tensor) -> Tensor:
        """The states of the query stream; no masked token is seen by another token."""
        (rows, columns), device = places.unbind(1), places.device
        order = torch.full_like(batch.tokens, -1)
        order[rows, columns] = 0
        # The places of each row side by side, as the query stream reads them.
        counts = torch.bincount(rows, minlength=len(order))
        begins = (counts.cumsum(0) - counts)[rows]
        inside = torch.arange(len(rows), device=device) - begins
        table = torch.zeros(len(order), max(1, int(counts.max())), dtype=torch.long, device=device)
        table[rows, inside] = columns
        query = self.streams(batch, Predicted(order, table), query_only=True).query
        assert query is not None
        return query[rows, inside]

    def attention_axes(self) -> dict[str, tuple[str, str]]:
        axes = {}
        for layer in range(len(self.layers)):
            axes[f"layers.{layer}.attention.query"] = ("predicted", "text")
            axes[f"layers.{layer}.attention.content"] = ("text", "text")
        return axes

    def depth(self, name: str) -> int:
        """0 for embeddings, n + 1 for layer n; the pooler is one deeper than the last layer."""
        part, _, rest = name.partition(".")
        if part == "layers":
            return int(rest.partition(".")[0]) + 1
        return len(self.layers) + 1 if part == "pooler" else 0

    def _check(self, batch: Sequences, earlier: Remembered | None) -> None:
        if earlier is None:
            return
        shape = (len(batch.tokens), earlier.there.shape[1], self.dim)
        found = {tuple(one.shape) for one in earlier.states}
        if len(earlier.states) != len(self.layers) or found != {shape}:
            raise ValueError(
                f"earlier states: {len(earlier.states)} tensors of {sorted(found)}; expected "
                f"{len(self.layers)} of {shape}"
            )

    def _relations(
        self,
        batch: Sequences,
        predicted: Predicted | None,
        earlier: Remembered | None,
        dtype: torch.dtype,
    ) -> tuple[Relation, Relation | None]:
        """How the content stream, and the query stream, are related to the keys."""
        device = batch.tokens.device
        last = self.settings.begin == "last"
        memory = 0 if earlier is None else earlier.there.shape[1]
        own = torch.arange(batch.tokens.shape[1], device=device)
        if last:  # BEGIN is at the place after the text, and earlier text before its first token.
            own = torch.where(own == 0, batch.lengths[:, None], own)
        before = torch.arange(-memory, 0, device=device) + int(last)
        keys = torch.cat([before.expand(*own.shape[:-1], -1), own], -1)
        width, there, segments = own.shape[-1], _there(batch, earlier), batch.segments
        bounds = (-width, width + memory)
        if last:
            segments = torch.cat([torch.full_like(segments[:, :1], _OF_BEGIN), segments[:, 1:]], 1)
        content = Relation(
            distances(own, keys, self.dim, dtype, bounds if last else None),
            _allowed(there, None if predicted is None else _seen(predicted.order, None), memory),
            _apart(segments, segments, memory),
        )
        if predicted is None:
            return content, None
        places = predicted.places
        at = own.expand_as(batch.tokens).gather(1, places)
        query = Relation(
            distances(at, keys, self.dim, dtype, bounds),
            _allowed(there, _seen(predicted.order, places), memory),
            _apart(segments.gather(1, places), segments, memory),
        )
        return content, query


def _initialise(module: nn.Module) -> None:
    """As BERT, and normal parameters of the attention of the same standard deviation."""
    initialise(module)
    if isinstance(module, TwoStreamAttention):
        parts = module.positions
        for one in (parts.content_bias, parts.position_bias, parts.projection):
            nn.init.normal_(one, std=_STD)
        nn.init.normal_(module.segment_bias, std=_STD)
        nn.init.normal_(module.segments, std=_STD)


def _there(batch: Sequences, earlier: Remembered | None) -> Tensor | None:
    """Which keys exist, ``[B, K]``; None for all."""
    width = batch.tokens.shape[1]
    there = torch.arange(width, device=batch.lengths.device) < batch.lengths[:, None]
    if earlier is not None:
        there = torch.cat([earlier.there, there], 1)
    # On an accelerator this check would need a synchronisation at every step.
    may_ask = there.device.type == "cpu" and not torch.compiler.is_compiling()
    return None if may_ask and bool(there.all()) else there


def _seen(order: Tensor, places: Tensor | None) -> Tensor:
    """Which tokens ``[B, Q, L]`` the content stream sees, or the query stream at places."""
    if places is None:
        return order.unsqueeze(1) <= order.unsqueeze(2)
    return order.unsqueeze(1) < order.gather(1, places).unsqueeze(2)


def _allowed(there: Tensor | None, seen: Tensor | None, memory: int) -> Tensor | None:
    """The mask ``[B, 1, Q or 1, K]``; None if all keys are seen."""
    if seen is None:
        return None if there is None else there[:, None, None]
    if memory:
        seen = torch.cat([seen.new_ones(*seen.shape[:2], memory), seen], 2)
    if there is not None:
        seen = seen & there.unsqueeze(1)
    return seen.unsqueeze(1)


def _apart(own: Tensor, segments: Tensor, memory: int) -> Tensor | None:
    """Which keys are in another segment, ``[B, 1, Q, K]``; None if there is one segment.

    Earlier text is in segment 0, that of the first text.
    """
    may_ask = own.device.type == "cpu" and not torch.compiler.is_compiling()
    if may_ask and not bool(segments.any()):
        return None
    if memory:
        segments = torch.cat([segments.new_zeros(len(segments), memory), segments], 1)
    return (own.unsqueeze(2) != segments.unsqueeze(1)).unsqueeze(1)


def _remembered(
    batch: Sequences, inputs: list[Tensor], earlier: Remembered | None, keep: int
) -> Remembered | None:
    if not keep:
        return None
    there = torch.arange(batch.tokens.shape[1], device=batch.tokens.device)
    there = there < batch.lengths[:, None]
    if earlier is None:
        return Remembered(tuple(one.detach()[:, -keep:] for one in inputs), there[:, -keep:])
    pairs = zip(earlier.states, inputs, strict=True)
    states = tuple(torch.cat([old, new.detach()], 1)[:, -keep:] for old, new in pairs)
    return Remembered(states, torch.cat([earlier.there, there], 1)[:, -keep:])


class PermutationHead(nn.Module):
    """Predicts tokens: ``softmax(E g_i + b)`` of the query stream (section 2.3, equation 4).

    E is the encoder's token embedding, which is a parameter of the encoder only.

    Args:
        encoder: the encoder whose table is shared.
    """

    def __init__(self, encoder: TextEncoder) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(encoder.embedding.num_embeddings))
        self._shared = (encoder.embedding,)  # In a tuple, it is not registered as a submodule.

    @property
    def output_table(self) -> Tensor:
        """E ``[V, D]``."""
        return self._shared[0].weight

    @property
    def output_bias(self) -> Tensor:
        """b ``[V]``."""
        return self.bias

    def forward(self, states: Tensor) -> Tensor:
        """Logits ``[N, V]`` for the states ``[N, D]``."""
        return nn.functional.linear(states, self.output_table, self.bias)


register_model(XLNetSettings, XLNet)
