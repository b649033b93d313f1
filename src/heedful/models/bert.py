"""BERT: an encoder of self-attention over one text, or two, and its heads of pre-training.

Devlin et al. 2019, "BERT: Pre-training of Deep Bidirectional Transformers for Language
Understanding", section 3. The large size with 30,522 tokens has 335,141,888 parameters, including
the pooler, and 336,226,108 with the heads of pre-training; the paper says 340 M.
Options make its relatives: ``embedding_size`` and ``shared_layers`` ALBERT (Lan et al. 2020,
section 3.1), ``segments = 0`` and ``pooler`` DistilBERT (Sanh et al. 2019, section 3) and ELECTRA
(Clark et al. 2020, section 3.2).
Shapes: B batch, L tokens, N chosen tokens, D width, E width of the embeddings, V vocabulary.
"""

from typing import Any, ClassVar, Literal, Protocol

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from heedful.attention.masks import Mask, document, padding
from heedful.attention.positions import PositionSettings
from heedful.attention.settings import AttentionSettings
from heedful.basics.limits import MOST_LAYERS, MOST_POSITIONS, MOST_WIDTH
from heedful.basics.symbols import PAD
from heedful.layers.dropout import Dropout
from heedful.layers.transformer import Activation, BlockOptions, EncoderLayer, activate
from heedful.models.attention_settings import (
    PartAttentionSettings,
    check_added,
    check_layers,
    without_added,
)
from heedful.models.encoders import Encoded, Sequences, TextEncoder
from heedful.models.packing import check_packing, places_in_documents
from heedful.models.registry import EncoderSettings, register_model
from heedful.models.sizes import fill_from_size

SIZES: dict[str, dict[str, int]] = {
    "tiny": {"layers": 2, "hidden_size": 128, "ffn_size": 512, "heads": 2},
    "mini": {"layers": 4, "hidden_size": 256, "ffn_size": 1024, "heads": 4},
    "base": {"layers": 12, "hidden_size": 768, "ffn_size": 3072, "heads": 12},
    "large": {"layers": 24, "hidden_size": 1024, "ffn_size": 4096, "heads": 16},
}
"""Tiny and mini: Turc et al. 2019, "Well-Read Students Learn Better", section 4.1."""

_STD = 0.02


class BertSettings(EncoderSettings):
    """Sizes and options of a BERT; ``size``, or ``hidden_size``, sets the other defaults."""

    renamed: ClassVar[dict[str, str]] = {"dim": "hidden_size", "inner": "ffn_size"}
    fills_masks = True
    kind: Literal["bert"] = "bert"
    size: Literal["tiny", "mini", "base", "large"] | None = None
    layers: int = Field(ge=1, le=MOST_LAYERS)
    hidden_size: int = Field(ge=1, le=MOST_WIDTH)
    ffn_size: int = Field(ge=1, le=MOST_WIDTH)
    """4 · hidden_size by default."""
    heads: int = Field(ge=1, le=MOST_WIDTH)
    """Number of heads; by default, such that a head is 64 wide."""
    dropout: float = Field(0.1, ge=0, lt=1)
    """Dropout on the sum of embeddings and on each sublayer's output."""
    attention_dropout: float = Field(0.1, ge=0, lt=1)
    activation: Activation = "gelu"
    norm_epsilon: float = Field(1e-12, gt=0)
    segments: int = Field(2, ge=0, le=MOST_WIDTH)
    """Number of segment embeddings; with 0 or 1, the texts of a pair are separated only by END."""
    embedding_size: int | None = Field(None, ge=1, le=MOST_WIDTH)
    """Width of the embeddings, which a linear layer projects to ``hidden_size``; if not given, they
    are as wide as the layers, and there is no such layer."""
    shared_layers: bool = False
    """Whether all layers have the same parameters."""
    pooler: Literal["tanh", "relu", "gelu", "none"] = "tanh"
    """Activation of the linear layer that makes the text's vector of the first token's state;
    ``none``: the vector is that state."""
    max_length: int = Field(512, ge=2, le=MOST_POSITIONS)
    """Longest row in tokens, including BEGIN and the ENDs."""
    positions: PositionSettings = PositionSettings.model_validate("learned")
    attention: PartAttentionSettings = PartAttentionSettings()

    @model_validator(mode="before")
    @classmethod
    def _fill_from_size(cls, given: Any) -> Any:
        return fill_from_size(without_added(given), SIZES, "tiny")

    @model_validator(mode="after")
    def _parts_fit(self) -> "BertSettings":
        layers = self.attention_of_layers()
        check_layers(layers, self.hidden_size, "self", self.max_length)
        check_added(self.positions, self.embedding_width, self.max_length)
        if self.shared_layers and len(set(layers)) > 1:
            raise ValueError(
                "shared_layers: all layers have the same parameters, so attention.layers cannot "
                "change some of them; leave one of them out"
            )
        return self

    @property
    def embedding_width(self) -> int:
        """E, the width of the embeddings."""
        return self.hidden_size if self.embedding_size is None else self.embedding_size

    def attention_of_layers(self) -> list[AttentionSettings]:
        """The attention of each layer."""
        own = AttentionSettings(
            heads=self.heads,
            dropout=self.attention_dropout,
            positions=self.positions if self.positions.relative else None,
        )
        return self.attention.of_layers([own] * self.layers)

    def check_packing(self) -> None:
        """Raise ValueError if an attention layer depends on other texts of a row."""
        check_packing(self.attention_of_layers())

    @property
    def blocks(self) -> BlockOptions:
        """The options of its blocks."""
        return BlockOptions(
            self.hidden_size,
            self.ffn_size,
            self.dropout,
            activation=self.activation,
            norm_epsilon=self.norm_epsilon,
        )


class BertEmbeddings(nn.Module):
    """``dropout(norm(token + position + segment))``, ``[B, L] -> [B, L, E]`` (section 3)."""

    def __init__(self, settings: BertSettings, vocabulary: int) -> None:
        super().__init__()
        width = settings.embedding_width
        self.tokens = nn.Embedding(vocabulary, width, padding_idx=PAD)
        self.positions = settings.positions.build_added(width, settings.max_length)
        self.segments = nn.Embedding(settings.segments, width) if settings.segments else None
        self.norm = nn.LayerNorm(width, eps=settings.norm_epsilon)
        self.dropout = Dropout(settings.dropout)

    def forward(self, tokens: Tensor, segments: Tensor, first: int | Tensor = 0) -> Tensor:
        embedded = self.tokens(tokens)
        if self.segments is not None:
            own = self.segments
            embedded = embedded + (own.weight[0] if own.num_embeddings == 1 else own(segments))
        result: Tensor = self.dropout(self.norm(self.positions(embedded, first)))
        return result


def encoder_layers(settings: BertSettings) -> nn.ModuleList:
    """The layers of an encoder; a single one if all have the same parameters."""
    attention = settings.attention_of_layers()
    return nn.ModuleList(
        EncoderLayer(settings.blocks, own, number=number)
        for number, own in enumerate(attention[: 1 if settings.shared_layers else None], 1)
    )


def run_layers(
    layers: nn.ModuleList, settings: BertSettings, hidden: Tensor, mask: Mask | Tensor | None
) -> Tensor:
    """The output of the layers of :func:`encoder_layers`, ``[B, L, D] -> [B, L, D]``."""
    for number in range(settings.layers):
        hidden = layers[number % len(layers)](hidden, mask)
    return hidden


def axes_of_layers(settings: BertSettings) -> dict[str, tuple[str, ...]]:
    """The attention modules of the layers of :func:`encoder_layers`, and their axes."""
    if settings.shared_layers and settings.layers > 1:
        return {"layers.0.self_attention": ("text", "text", "layers")}
    names = (f"layers.{layer}.self_attention" for layer in range(settings.layers))
    return dict.fromkeys(names, ("text", "text"))


class Bert(TextEncoder):
    """The encoder; ``pooled`` is ``tanh(W_s z₀ + b_s)`` of the first state z₀, that of BEGIN.

    ``settings.pooler`` chooses another activation, or z₀ itself. Position i of a row is position i
    of the model; states beyond a row's length are undefined.

    Args:
        settings: sizes and options.
        vocabulary: number of symbols.

    Example:
        >>> from heedful.models.encoders import sequences_of
        >>> bert = Bert(BertSettings(layers=1, hidden_size=8, heads=2), 30)
        >>> encoded = bert(sequences_of([[7, 9], [8]], [[5], [6, 4]]))
        >>> encoded.states.shape, encoded.pooled.shape
        (torch.Size([2, 6, 8]), torch.Size([2, 8]))
    """

    dim: int
    pooled_dim: int

    def __init__(self, settings: BertSettings, vocabulary: int) -> None:
        super().__init__()
        self.settings = settings
        self.max_length = settings.max_length
        self.dim = self.pooled_dim = settings.hidden_size
        self.embeddings = BertEmbeddings(settings, vocabulary)
        self.projection = (
            None
            if settings.embedding_size is None
            else nn.Linear(settings.embedding_size, settings.hidden_size)
        )
        self.layers = encoder_layers(settings)
        self.pooler = (
            None
            if settings.pooler == "none"
            else nn.Linear(settings.hidden_size, settings.hidden_size)
        )
        self.apply(initialise)

    def encode(self, batch: Sequences) -> Encoded:
        """The vectors of a batch.

        Raises:
            ValueError: rows are longer than ``max_length``.
        """
        hidden = self.embeddings(batch.tokens, batch.segments)
        hidden = self._layers_of(hidden, padding_mask(batch))
        return Encoded(hidden, self._pooled(hidden[:, 0]))

    def packed_states(self, tokens: Tensor, documents: Tensor) -> Tensor:
        # Relative positions need no change: attention stays within a text.
        segments = torch.zeros_like(tokens)
        hidden = self.embeddings(tokens, segments, places_in_documents(documents))
        return self._layers_of(hidden, document(documents))

    def _layers_of(self, embedded: Tensor, mask: Mask | Tensor | None) -> Tensor:
        if self.projection is not None:
            embedded = self.projection(embedded)
        return run_layers(self.layers, self.settings, embedded, mask)

    def _pooled(self, first: Tensor) -> Tensor:
        if self.pooler is None:
            return first
        found: Tensor = self.pooler(first)
        name = self.settings.pooler
        if name == "tanh":
            return torch.tanh(found)
        return activate(found, "relu" if name == "relu" else "gelu")

    def attention_axes(self) -> dict[str, tuple[str, ...]]:
        return axes_of_layers(self.settings)

    def depth(self, name: str) -> int:
        """0 for embeddings, n + 1 for layer n; the pooler is one deeper than the last layer."""
        part, _, rest = name.partition(".")
        if part == "layers":
            return int(rest.partition(".")[0]) + 1
        return 0 if part in ("embeddings", "projection") else len(self.layers) + 1


def padding_mask(batch: Sequences) -> Tensor | None:
    """``[B, 1, 1, L]``; None if no row has padding, which is faster."""
    rows, width = batch.tokens.shape
    lengths = batch.lengths
    # On an accelerator this check would need a synchronisation at every step.
    may_ask = lengths.device.type == "cpu" and not torch.compiler.is_compiling()
    if may_ask and bool((lengths == width).all()):
        return None
    return padding(lengths).dense((rows, 1, 1, width), batch.tokens.device)


def initialise(module: nn.Module) -> None:
    """Normal weights of standard deviation 0.02, biases 0, the vector of PAD 0; for
    ``Module.apply``."""
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=_STD)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, std=_STD)
        if module.padding_idx is not None:
            nn.init.zeros_(module.weight.detach()[module.padding_idx])


class FillsMasks(Protocol):
    """An encoder that can be pre-trained on masked tokens."""

    settings: Any
    """With ``hidden_size``, the width of the states, ``activation`` and ``norm_epsilon``."""

    @property
    def embedding(self) -> nn.Embedding: ...


class MaskedHead(nn.Module):
    """Predicts masked tokens: ``softmax(W_z z_i + b_z)`` (section 3.1).

    W_z is the encoder's token embedding, which is a parameter of the encoder only. As in the
    authors' code, a linear layer, the activation and a norm come before it. The layer's output is
    as wide as the embeddings.

    Args:
        encoder: the encoder whose table is shared.
    """

    def __init__(self, encoder: "FillsMasks") -> None:
        super().__init__()
        settings = encoder.settings
        width = encoder.embedding.embedding_dim
        self.dense = nn.Linear(settings.hidden_size, width)
        self.norm = nn.LayerNorm(width, eps=settings.norm_epsilon)
        self.bias = nn.Parameter(torch.zeros(encoder.embedding.num_embeddings))
        self.activation: Activation = settings.activation
        self._shared = (encoder.embedding,)  # In a tuple, it is not registered as a submodule.
        self.apply(initialise)

    @property
    def output_table(self) -> Tensor:
        """W_z ``[V, E]``."""
        return self._shared[0].weight

    @property
    def output_bias(self) -> Tensor:
        """b_z ``[V]``."""
        return self.bias

    def transform(self, states: Tensor) -> Tensor:
        """The layer before the output table, ``[N, D] -> [N, E]``."""
        result: Tensor = self.norm(activate(self.dense(states), self.activation))
        return result

    def forward(self, states: Tensor) -> Tensor:
        """Logits ``[N, V]`` for the states ``[N, D]`` of the masked tokens only."""
        return nn.functional.linear(self.transform(states), self.output_table, self.bias)


class NextSentenceHead(nn.Module):
    """Predicts whether the second text follows the first (section 3.1): class 0 yes, class 1 no.

    Args:
        pooled_dim: width of the encoder's pooled vector.
    """

    def __init__(self, pooled_dim: int) -> None:
        super().__init__()
        self.output = nn.Linear(pooled_dim, 2)
        self.apply(initialise)

    def forward(self, encoded: Encoded) -> Tensor:
        """Logits ``[B, 2]``."""
        if encoded.pooled is None:
            raise ValueError("this encoder returns no pooled vector for a text")
        result: Tensor = self.output(encoded.pooled)
        return result


register_model(BertSettings, Bert)
