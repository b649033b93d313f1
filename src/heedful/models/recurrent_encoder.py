"""A recurrent encoder whose states are pooled to one vector.

Lin et al. 2017, "A Structured Self-Attentive Sentence Embedding", section 2.1: bidirectional LSTM,
r hops of attention over its states, and a hidden layer before the output (section 4). Texts of a
pair that are encoded separately: Conneau et al. 2017, "Supervised Learning of Universal Sentence
Representations from Natural Language Inference Data", section 3.1. Learned queries instead of hops:
Lee et al. 2019, "Set Transformer", section 3.2.
Shapes: B batch, L tokens, D width of a token's state, R hops.
"""

import copy
from typing import ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from heedful.attention import LearnedQueries, StructuredSelfAttention
from heedful.attention.settings import AttentionSettings
from heedful.basics.limits import MOST_LAYERS, MOST_POSITIONS, MOST_WIDTH
from heedful.layers.dropout import Dropout
from heedful.layers.embeddings import token_embedding
from heedful.layers.recurrent import RecurrentEncoder, glorot_linear
from heedful.models.attention_settings import PoolingAttentionSettings
from heedful.models.encoders import Encoded, Sequences, TextEncoder
from heedful.models.registry import EncoderSettings, register_model
from heedful.models.text_spans import both_texts, text_mask

Pooling = Literal["structured", "latents", "mean", "max", "last"]
_Attentive = StructuredSelfAttention | LearnedQueries


class RecurrentEncoderSettings(EncoderSettings):
    """Sizes and options of a recurrent encoder with pooling."""

    renamed: ClassVar[dict[str, str]] = {
        "dim": "hidden_size",
        "embedding_dim": "embedding_size",
        "hidden_dim": "attention_size",
        "hidden_layer": "pooled_layer_size",
    }
    reads_any_length = True
    kind: Literal["recurrent-encoder"] = "recurrent-encoder"
    cell: Literal["lstm", "gru"] = "lstm"
    layers: int = Field(1, ge=1, le=MOST_LAYERS)
    hidden_size: int = Field(150, ge=1, le=MOST_WIDTH)
    """Width of a layer's state in each direction."""
    embedding_size: int = Field(100, ge=1, le=MOST_WIDTH)
    bidirectional: bool = True
    pooling: Pooling = "structured"
    """How a text's states are pooled: by structured attention, attention of learned queries, their
    mean or maximum, or the last state of each direction."""
    hops: int = Field(10, ge=1, le=MOST_WIDTH)
    """Number of hops r of structured pooling, or of learned queries."""
    attention_size: int = Field(150, ge=1, le=MOST_WIDTH)
    """Hidden width d_a of structured pooling."""
    pooled_layer_size: int = Field(0, ge=0, le=MOST_WIDTH)
    """Width of a ReLU layer over the pooled vector; none if 0."""
    dropout: float = Field(0.3, ge=0, lt=1)
    """Dropout on embeddings, between layers, on the last states, and before the ReLU layer."""
    pairs: Literal["joined", "apart"] = "joined"
    """Whether the texts of a pair are encoded as one row ("joined") or separately as u and v, which
    become (u, v, |u − v|, u ∘ v) ("apart"); the latter accepts only pairs."""
    max_length: int = Field(512, ge=2, le=MOST_POSITIONS)
    """Longest row in tokens, BEGIN and the ENDs included."""
    attention: AttentionSettings = AttentionSettings()
    """That of the learned queries; structured pooling has a normalizer only."""

    @model_validator(mode="after")
    def _attention_fits(self) -> Self:
        learned = self.pooling == "latents"
        self.attention.require_standard()
        refused = (
            ("positions", "mask", "rotary_size") if learned else AttentionSettings.model_fields
        )
        for key in self.attention.given():
            if key in refused and key != "normalizer":
                raise ValueError(
                    f"attention.{key}: learned queries have no positions"
                    if learned
                    else f"attention.{key} is for pooling = 'latents'; the pooling "
                    f"'{self.pooling}' has no {key} to choose"
                )
        if learned:
            self.attention.check(self.state_size, "cross", max_length=self.max_length)
        else:
            self.normalizer()
        return self

    @property
    def state_size(self) -> int:
        """Width of a token's state."""
        return self.hidden_size * (2 if self.bidirectional else 1)

    def normalizer(self) -> PoolingAttentionSettings:
        """The attention of structured pooling."""
        given = self.attention.normalizer
        return PoolingAttentionSettings(**({} if given is None else {"normalizer": given}))

    @property
    def needs_pairs(self) -> bool:
        return self.pairs == "apart"

    @property
    def has_hops(self) -> bool:
        return self.pooling == "structured"


class RecurrentTextEncoder(TextEncoder):
    """The encoder. BEGIN and the ENDs are encoded, but not pooled.

    The pooled vector of an empty text is zero (except for "last" and "latents").

    Args:
        settings: sizes and options.
        vocabulary: number of symbols.

    Example:
        >>> from heedful.models.encoders import sequences_of
        >>> encoder = RecurrentTextEncoder(RecurrentEncoderSettings(hidden_size=4, hops=3), 30)
        >>> encoded = encoder(sequences_of([[7, 9], [8]]))
        >>> encoded.states.shape, encoded.pooled.shape
        (torch.Size([2, 4, 8]), torch.Size([2, 24]))
    """

    pooled_dim: int

    def __init__(self, settings: RecurrentEncoderSettings, vocabulary: int) -> None:
        super().__init__()
        self.settings = settings
        self.max_length = settings.max_length
        self.tokens = token_embedding(vocabulary, settings.embedding_size)
        self.drop = Dropout(settings.dropout)
        self.recurrent = RecurrentEncoder(
            settings.cell,
            settings.embedding_size,
            settings.hidden_size,
            settings.layers,
            bidirectional=settings.bidirectional,
            dropout=settings.dropout,
        )
        width = self.recurrent.output_dim
        self.needs_pairs = settings.pairs == "apart"
        self.dim = None if self.needs_pairs else width
        self.pooling = _pooling(settings)
        self.second_pooling: _Attentive | None = None
        if self.pooling is not None:
            width *= settings.hops
            if self.needs_pairs:
                self.second_pooling = _sharing(self.pooling)
        self.pooled_dim = 4 * width if self.needs_pairs else width
        self.hidden: nn.Linear | None = None
        if settings.pooled_layer_size:
            self.hidden = glorot_linear(self.pooled_dim, settings.pooled_layer_size)
            self.pooled_dim = settings.pooled_layer_size

    def encode(self, batch: Sequences) -> Encoded:
        """The vectors of a batch; states are zero beyond a row's length."""
        if self.needs_pairs:
            return Encoded(None, self._finish(self._apart(batch)))
        states, last = self._read(batch.tokens, batch.lengths)
        pooled = self._pool(self.pooling, states, last, text_mask(batch))
        return Encoded(states, self._finish(pooled))

    def _read(self, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """States ``[B, L, D]``, and the last states of both directions ``[B, D]``."""
        states, final = self.recurrent(self.drop(self.tokens(tokens)), lengths)
        return self.drop(states), self.drop(final[-1][0])

    def _apart(self, batch: Sequences) -> Tensor:
        pooled = []
        for pooling, text in zip(
            (self.pooling, self.second_pooling), both_texts(batch), strict=True
        ):
            # An empty text is encoded as one PAD, whose vector is zero.
            states, last = self._read(text.tokens, text.lengths.clamp(min=1))
            places = torch.arange(text.tokens.shape[1], device=states.device)
            there = places < text.lengths.unsqueeze(1)
            pooled.append(self._pool(pooling, states, last, there))
        u, v = pooled
        return torch.cat([u, v, (u - v).abs(), u * v], -1)

    def _pool(
        self, pooling: _Attentive | None, states: Tensor, last: Tensor, there: Tensor
    ) -> Tensor:
        """One vector per row from the ``states [B, L, D]`` selected by ``there [B, L]``."""
        if pooling is not None:
            hops: Tensor = pooling(states, mask=there.unsqueeze(1))
            return hops.flatten(1)
        if self.settings.pooling == "last":
            return last
        out = ~there.unsqueeze(-1)
        if self.settings.pooling == "mean":
            count = there.sum(1, keepdim=True).clamp(min=1)
            return states.masked_fill(out, 0.0).sum(1) / count
        largest = states.masked_fill(out, float("-inf")).amax(1)
        return largest.masked_fill(~there.any(1, keepdim=True), 0.0)

    def _finish(self, pooled: Tensor) -> Tensor:
        return pooled if self.hidden is None else torch.relu(self.hidden(self.drop(pooled)))

    def attention_axes(self) -> dict[str, tuple[str, str]]:
        """The pooling, from "hops" to "text"; for separate texts, two, to "first" and "second"."""
        if self.pooling is None:
            return {}
        inside = ".attention" if isinstance(self.pooling, LearnedQueries) else ""
        if self.second_pooling is None:
            return {f"pooling{inside}": ("hops", "text")}
        return {
            f"pooling{inside}": ("hops", "first"),
            f"second_pooling{inside}": ("hops", "second"),
        }

    def depth(self, name: str) -> int:
        """0 for the embedding, n + 1 for layer n; pooling is one deeper than the last layer."""
        if name.startswith("recurrent."):
            return int(name.removesuffix("_reverse").rpartition("_l")[2]) + 1
        return 0 if name.startswith("tokens.") else self.settings.layers + 1


def _pooling(settings: RecurrentEncoderSettings) -> _Attentive | None:
    """The pooling, if it is by attention."""
    width, hops = settings.state_size, settings.hops
    if settings.pooling == "structured":
        return StructuredSelfAttention(
            width, settings.attention_size, hops, settings.normalizer().build()
        )
    if settings.pooling == "latents":
        return LearnedQueries(settings.attention.build(width, "cross"), hops, width)
    return None


def _sharing(pooling: _Attentive) -> _Attentive:
    """Another module with the same parameters, whose weights can be watched separately."""
    # A deep copy that is told that it has copied the parameters already.
    return copy.deepcopy(pooling, {id(part): part for part in pooling.parameters()})


register_model(RecurrentEncoderSettings, RecurrentTextEncoder)
