"""GPT: a decoder with causal self-attention only, which predicts each next token of a text.

Radford et al. 2018, "Improving Language Understanding by Generative Pre-Training" (GPT-1, norms
after each sublayer), and Radford et al. 2019, "Language Models are Unsupervised Multitask Learners"
(GPT-2, section 2.3: norms before each sublayer and after the last). With their vocabularies GPT-1
has 116,534,784 parameters and the smallest GPT-2 124,439,808. With rotary positions, RMS norm, a
gated feed-forward network and no biases it is the decoder of Touvron et al. 2023, "LLaMA: Open and
Efficient Foundation Language Models", section 2.2.
Shapes: B batch, N rows of search, T tokens, D width, V vocabulary.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from heedful.attention.masks import Mask, causal, document
from heedful.attention.positions import PositionSettings
from heedful.attention.settings import AttentionSettings
from heedful.basics.limits import MOST_LAYERS, MOST_POSITIONS, MOST_WIDTH
from heedful.basics.symbols import BEGIN, END, PAD
from heedful.layers.caches import LayerCaches
from heedful.layers.dropout import Dropout
from heedful.layers.transformer import (
    Activation,
    BlockOptions,
    EncoderLayer,
    Norm,
    build_norm,
    layer_caches,
)
from heedful.models.attention_settings import (
    PartAttentionSettings,
    check_added,
    check_layers,
    without_added,
)
from heedful.models.language import LanguageModel, boundary
from heedful.models.packing import check_packing, places_in_documents
from heedful.models.registry import LanguageSettings, register_model
from heedful.models.sizes import fill_from_size

SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"layers": 4, "hidden_size": 128, "ffn_size": 512, "heads": 4},
    "gpt-1": {
        "layers": 12,
        "hidden_size": 768,
        "ffn_size": 3072,
        "heads": 12,
        "max_length": 512,
        "pre_norm": False,
    },
    "small": {"layers": 12, "hidden_size": 768, "ffn_size": 3072, "heads": 12},
    "medium": {"layers": 24, "hidden_size": 1024, "ffn_size": 4096, "heads": 16},
    "large": {"layers": 36, "hidden_size": 1280, "ffn_size": 5120, "heads": 20},
    "xl": {"layers": 48, "hidden_size": 1600, "ffn_size": 6400, "heads": 25},
    **{
        f"gpt3-{name}": {
            "layers": layers,
            "hidden_size": dim,
            "ffn_size": 4 * dim,
            "heads": heads,
            "max_length": 2048,
        }
        for name, layers, dim, heads in (
            ("small", 12, 768, 12),
            ("medium", 24, 1024, 16),
            ("large", 24, 1536, 16),
            ("xl", 24, 2048, 16),
            ("2.7b", 32, 2560, 32),
            ("6.7b", 32, 4096, 32),
            ("13b", 40, 5120, 40),
            ("175b", 96, 12288, 96),
        )
    },
}
"""Small to xl are GPT-2's (Radford et al. 2019, table 2), the last eight GPT-3's (Brown et al.
2020, table 2.1). That table has 24 heads of 128 for the width 2,048, and the width 5,140 for 40
heads of 128; 16 heads and 5,120 give the numbers of parameters of its table D.1. Every second layer
of GPT-3 has windows, which these sizes do not set."""

_STD = 0.02


class GptSettings(LanguageSettings):
    """Sizes and options of a GPT; ``size``, or ``hidden_size``, sets the other defaults."""

    renamed: ClassVar[dict[str, str]] = {
        "dim": "hidden_size",
        "inner": "ffn_size",
        "tied": "tied_embeddings",
    }
    kind: Literal["gpt"] = "gpt"
    size: (
        Literal[
            "tiny",
            "gpt-1",
            "small",
            "medium",
            "large",
            "xl",
            "gpt3-small",
            "gpt3-medium",
            "gpt3-large",
            "gpt3-xl",
            "gpt3-2.7b",
            "gpt3-6.7b",
            "gpt3-13b",
            "gpt3-175b",
        ]
        | None
    ) = None
    layers: int = Field(ge=0, le=MOST_LAYERS)
    """0 for a model of bigrams, whose next token depends on the last one only."""
    hidden_size: int = Field(ge=1, le=MOST_WIDTH)
    ffn_size: int = Field(ge=0, le=MOST_WIDTH)
    """4 · hidden_size by default; 0 for layers of attention only."""
    heads: int = Field(ge=1, le=MOST_WIDTH)
    """Number of heads; by default, such that a head is 64 wide."""
    dropout: float = Field(0.1, ge=0, lt=1)
    """Dropout on the sum of embeddings and on each sublayer's output."""
    attention_dropout: float = Field(0.1, ge=0, lt=1)
    max_length: int = Field(1024, ge=2, le=MOST_POSITIONS)
    """Longest context in tokens, the first END included."""
    positions: PositionSettings = PositionSettings.model_validate("learned")
    pre_norm: bool = True
    activation: Activation = "gelu-tanh"
    bias: bool = True
    """Whether linear maps and layer norms have a bias."""
    norm: Norm = "layer"
    gated: bool = False
    """Whether the feed-forward network has a gate."""
    norm_epsilon: float = Field(1e-5, gt=0)
    tied_embeddings: bool = True
    """Whether the output matrix is the token embedding."""
    output_bias: bool = False
    """Whether logits have a fixed bias that is not trained; zeros unless loaded."""
    begin: bool = False
    """Whether the model reads BEGIN, instead of END, where a document begins."""
    attention: PartAttentionSettings = PartAttentionSettings()

    @model_validator(mode="before")
    @classmethod
    def _fill_from_size(cls, given: Any) -> Any:
        return fill_from_size(without_added(given), SIZES, "tiny")

    @model_validator(mode="after")
    def _parts_fit(self) -> "GptSettings":
        if not self.layers and self.positions.name != "none":
            raise ValueError(
                f"layers = 0 without attention reads no positions; set positions = 'none' instead "
                f"of '{self.positions.name}'"
            )
        if not self.ffn_size and self.gated:
            raise ValueError("ffn_size = 0 leaves no feed-forward network; leave out gated")
        check_layers(self.attention_of_layers(), self.hidden_size, "causal", self.max_length)
        check_added(self.positions, self.hidden_size, self.max_length)
        return self

    def attention_of_layers(self) -> list[AttentionSettings]:
        """The attention of each layer."""
        own = AttentionSettings(
            heads=self.heads,
            dropout=self.attention_dropout,
            positions=self.positions if self.positions.relative else None,
        )
        return self.attention.of_layers([own] * self.layers)

    def check_packing(self) -> None:
        check_packing(self.attention_of_layers())

    @property
    def blocks(self) -> BlockOptions:
        """The options of its blocks."""
        return BlockOptions(
            self.hidden_size,
            self.ffn_size,
            self.dropout,
            pre_norm=self.pre_norm,
            activation=self.activation,
            norm_epsilon=self.norm_epsilon,
            bias=self.bias,
            norm=self.norm,
            gated=self.gated,
        )


@dataclass
class GptState:
    """Keys and values of the tokens so far, one row for each generated text."""

    caches: LayerCaches

    @property
    def length(self) -> int:
        """Number of tokens so far."""
        return self.caches.length

    def select(self, rows: Tensor) -> Self:
        """The state of ``rows [M]``, in this order."""
        return replace(self, caches=self.caches.select(rows))


class GptEmbeddings(nn.Module):
    """``dropout(token + position)``, ``[B, T] -> [B, T, D]``."""

    def __init__(self, settings: GptSettings, vocabulary: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, settings.hidden_size, padding_idx=PAD)
        self.positions = settings.positions.build_added(settings.hidden_size, settings.max_length)
        self.dropout = Dropout(settings.dropout)
        self.begin = settings.begin

    def symbols(self, tokens: Tensor) -> Tensor:
        """The tokens that are read, with one symbol for the beginning of a document."""
        return tokens.masked_fill(tokens == END, BEGIN) if self.begin else boundary(tokens)

    def forward(self, tokens: Tensor, first: int | Tensor) -> Tensor:
        embedded = self.positions(self.tokens(self.symbols(tokens)), first)
        result: Tensor = self.dropout(embedded)
        return result


class Gpt(LanguageModel):
    """The language model; tokens attend to themselves and earlier ones, so padding is at the end.

    Args:
        settings: sizes and options.
        vocabulary: number of symbols.

    Example:
        >>> gpt = Gpt(GptSettings(layers=1, hidden_size=8, heads=2), 30)
        >>> gpt.states(torch.tensor([[3, 7, 9]])).shape
        torch.Size([1, 3, 8])
        >>> logits, state = gpt.step(torch.tensor([9]), gpt.start(torch.tensor([[3, 7, 9]])))
        >>> logits.shape, state.length
        (torch.Size([1, 30]), 3)
    """

    bias: Tensor | None

    def __init__(self, settings: GptSettings, vocabulary: int) -> None:
        super().__init__()
        self.settings = settings
        self.max_length = settings.max_length
        self.embeddings = GptEmbeddings(settings, vocabulary)
        self.layers = nn.ModuleList(
            EncoderLayer(settings.blocks, own, causal=True, number=number)
            for number, own in enumerate(settings.attention_of_layers(), 1)
        )
        self.norm = build_norm(settings.blocks) if settings.pre_norm else nn.Identity()
        self.output = (
            None
            if settings.tied_embeddings
            else nn.Linear(settings.hidden_size, vocabulary, bias=False)
        )
        bias = torch.zeros(vocabulary) if settings.output_bias else None
        self.register_buffer("bias", bias)
        self._reset()

    def _reset(self) -> None:
        """Normal weights of standard deviation 0.02; for the last map of each sublayer, of which a
        layer has two, divided by the square root of their number (Radford et al. 2019, section
        2.3)."""
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=_STD)
        nn.init.zeros_(self.embedding.weight.detach()[PAD])
        last = _STD * (2 * max(1, self.settings.layers)) ** -0.5
        for name, parameter in self.named_parameters():
            if name.endswith(("output_projection.weight", "contract.weight")):
                nn.init.normal_(parameter, std=last)

    def states(self, tokens: Tensor) -> Tensor:
        """The states ``[B, T, D]`` that predict each next token, given ``tokens [B, T]``.

        Raises:
            ValueError: there are more tokens than ``max_length``.
        """
        return self._read(tokens, None)

    def packed_states(self, tokens: Tensor, documents: Tensor) -> Tensor:
        return self._read(tokens, None, documents)

    def layer_states(self) -> list[str]:
        return [f"layers.{number}" for number in range(len(self.layers))]

    def read_layer(self, states: Tensor) -> Tensor:
        return self.logits(self.norm(states))

    def _read(
        self, tokens: Tensor, state: GptState | None, documents: Tensor | None = None
    ) -> Tensor:
        # A single token is the last one and may attend to all others.
        mask: Mask | None = causal() if tokens.shape[1] > 1 else None
        if documents is None:
            hidden = self._embed(tokens, 0 if state is None else state.length)
        else:
            # Relative positions need no change: attention stays within a document.
            hidden = self.embeddings(tokens, places_in_documents(documents))
            mask = causal() & document(documents)
        caches = [None] * len(self.layers) if state is None else state.caches
        for layer, cache in zip(self.layers, caches, strict=True):
            hidden = layer(hidden, mask, cache)
        result: Tensor = self.norm(hidden)
        return result

    def _embed(self, tokens: Tensor, first: int) -> Tensor:
        end = first + tokens.shape[1]
        if end > self.max_length:
            raise ValueError(f"{end} tokens are more than the model's maximum, {self.max_length}")
        embedded: Tensor = self.embeddings(tokens, first)
        return embedded

    def decoder_layers(self) -> list[EncoderLayer]:
        """The layers, first to last."""
        return [layer for layer in self.layers if isinstance(layer, EncoderLayer)]

    @property
    def embedding(self) -> nn.Embedding:
        return self.embeddings.tokens

    @property
    def output_table(self) -> Tensor:
        return self.embedding.weight if self.output is None else self.output.weight

    @property
    def output_bias(self) -> Tensor | None:
        return self.bias

    def start(self, prompts: Tensor, *, in_place: bool = False) -> GptState:
        """The state after all but the last token of ``prompts [B, T]``, T at least 1.

        Args:
            prompts: equally long.
            in_place: see :class:`heedful.layers.caches.LayerCaches`.
        """
        if prompts.dim() != 2 or not prompts.shape[1]:
            raise ValueError(f"prompts are {list(prompts.shape)}: expected [B, T], T at least 1")
        state = GptState(layer_caches(self.decoder_layers(), len(prompts), in_place=in_place))
        if prompts.shape[1] > 1:
            self._read(prompts[:, :-1], state)
        return state

    def step(self, tokens: Tensor, state: GptState) -> tuple[Tensor, GptState]:
        """Logits ``[N, V]`` after the last ``tokens [N]``, and the state after them.

        The given state must not be used afterwards.

        Raises:
            ValueError: there are more tokens than ``max_length``.
        """
        hidden = self._read(tokens.unsqueeze(1), state)
        return self.logits(hidden.squeeze(1)), state

    def attention_axes(self) -> dict[str, tuple[str, str]]:
        names = (f"layers.{layer}.self_attention" for layer in range(len(self.layers)))
        return dict.fromkeys(names, ("text", "text"))

    def depth(self, name: str) -> int:
        """0 for embeddings, n + 1 for layer n; the last norm and the output are one deeper."""
        part, _, rest = name.partition(".")
        if part == "layers":
            return int(rest.partition(".")[0]) + 1
        return 0 if part == "embeddings" else len(self.layers) + 1


register_model(GptSettings, Gpt)
