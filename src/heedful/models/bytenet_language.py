"""The decoder of ByteNet as a language model: masked dilated convolutions, without attention.

Kalchbrenner et al. 2016, "Neural Machine Translation in Linear Time", sections 3.3 to 4.
Shapes: B batch, N rows of search, T tokens, W width of blocks, D = W / 2 width of convolutions, V
vocabulary.
"""

import re
from dataclasses import dataclass
from typing import Literal

from pydantic import Field, field_validator
from torch import Tensor, nn

from heedful.basics.limits import MOST_LAYERS, MOST_POSITIONS, MOST_WIDTH
from heedful.layers.dilated import (
    BlockSizes,
    DilatedBlock,
    Readout,
    Unit,
    advance,
    dilated_blocks,
)
from heedful.layers.dropout import Dropout
from heedful.layers.embeddings import token_embedding
from heedful.models.bytenet import DILATIONS, Dilations, require_even
from heedful.models.language import LanguageModel, boundary
from heedful.models.registry import LanguageSettings, register_model


class ByteNetLanguageSettings(LanguageSettings):
    """Sizes and options of a ByteNet as a language model."""

    reads_any_length = True
    kind: Literal["bytenet-language-model"] = "bytenet-language-model"
    layers: int = Field(10, ge=1, le=MOST_LAYERS)
    """Residual blocks."""
    hidden_size: int = Field(256, ge=2, le=MOST_WIDTH)
    """Width of embeddings, of blocks and of states, even; the convolutions have half of it."""
    kernel_size: int = Field(3, ge=1, le=MOST_POSITIONS)
    """Positions that a convolution reads: the current one and those before."""
    dilations: Dilations = DILATIONS
    """Distance of these positions in the first block, the second and so on; they repeat."""
    unit: Unit = "multiplicative"
    """What follows a convolution: a rectifier or the gates of a multiplicative unit."""
    dropout: float = Field(0.1, ge=0, lt=1)
    """Dropout on embeddings and on what each block adds."""
    tied_embeddings: bool = False
    """Whether the output matrix is the token embedding."""
    max_length: int = Field(1024, ge=2, le=MOST_POSITIONS)
    """Longest context in tokens."""

    @field_validator("hidden_size")
    @classmethod
    def _is_even(cls, given: int) -> int:
        return require_even(given)


@dataclass(frozen=True)
class ByteNetLanguageState:
    """What is left of the tokens so far, one row for each generated text."""

    past: tuple[Tensor, ...]
    """Of each block: its convolution's input at the last (k − 1) δ positions ``[N, .., D]``."""

    def select(self, rows: Tensor) -> "ByteNetLanguageState":
        """The state of ``rows [M]``, in this order."""
        return ByteNetLanguageState(tuple(part.index_select(0, rows) for part in self.past))


class ByteNetLanguageModel(LanguageModel):
    """Blocks of masked dilated convolutions over the tokens so far. The output has no bias.

    Args:
        settings: sizes and options.
        vocabulary: number of symbols.

    Example:
        >>> import torch
        >>> model = ByteNetLanguageModel(ByteNetLanguageSettings(hidden_size=8), 30)
        >>> model.logits(model.states(torch.tensor([[3, 7, 9]]))).shape
        torch.Size([1, 3, 30])
    """

    def __init__(self, settings: ByteNetLanguageSettings, vocabulary: int) -> None:
        super().__init__()
        self.settings, self.max_length = settings, settings.max_length
        width = settings.hidden_size
        sizes = BlockSizes(width, settings.kernel_size, settings.unit, settings.dropout)
        self.tokens = token_embedding(vocabulary, width)
        self.drop = Dropout(settings.dropout)
        self.blocks = dilated_blocks(sizes, settings.layers, settings.dilations)
        self.readout = Readout(width)
        self.output = None
        if not settings.tied_embeddings:
            self.output = nn.Linear(width, vocabulary, bias=False)
            nn.init.normal_(self.output.weight, std=width**-0.5)

    def read(
        self, tokens: Tensor, state: ByteNetLanguageState
    ) -> tuple[Tensor, ByteNetLanguageState]:
        """``states`` of ``tokens [B, T]`` that follow ``state``, and the state after them."""
        embedded = self.drop(self.tokens(boundary(tokens)))
        hidden, past = advance(self.blocks, embedded, state.past)
        return self.drop(self.readout(hidden)), ByteNetLanguageState(past)

    def fresh(self, rows: int) -> ByteNetLanguageState:
        """The state before any token: zeros."""
        blocks = [block for block in self.blocks if isinstance(block, DilatedBlock)]
        return ByteNetLanguageState(tuple(block.before(rows) for block in blocks))

    def states(self, tokens: Tensor) -> Tensor:
        return self.read(tokens, self.fresh(len(tokens)))[0]

    @property
    def output_table(self) -> Tensor:
        return self.tokens.weight if self.output is None else self.output.weight

    def start(self, prompts: Tensor) -> ByteNetLanguageState:
        if prompts.dim() != 2 or not prompts.shape[1]:
            raise ValueError(f"prompts are {list(prompts.shape)}: expected [B, T], T at least 1")
        state = self.fresh(len(prompts))
        return self.read(prompts[:, :-1], state)[1] if prompts.shape[1] > 1 else state

    def step(
        self, tokens: Tensor, state: ByteNetLanguageState
    ) -> tuple[Tensor, ByteNetLanguageState]:
        states, after = self.read(tokens.unsqueeze(1), state)
        return self.logits(states.squeeze(1)), after

    def depth(self, name: str) -> int:
        """0 for the embedding, n + 1 for block n; the rest is one deeper than the last block."""
        if found := re.match(r"blocks\.(\d+)\.", name):
            return int(found[1]) + 1
        return 0 if name.startswith("tokens.") else self.settings.layers + 1


register_model(ByteNetLanguageSettings, ByteNetLanguageModel)
