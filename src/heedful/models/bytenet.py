"""ByteNet: an encoder of dilated convolutions, and a decoder of masked ones stacked on it.

Kalchbrenner et al. 2016, "Neural Machine Translation in Linear Time".
Shapes: B batch, N rows of a search, S source tokens, R positions of the representation, T target
tokens, W width of blocks, D = W / 2 width of convolutions, V vocabulary.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from pydantic import Field, field_validator
from torch import Tensor, nn

from heedful.basics.limits import MOST_LAYERS, MOST_POSITIONS, MOST_WIDTH
from heedful.basics.symbols import PAD
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
from heedful.models.pairs import PairModel, Source, State, require_one_vocabulary
from heedful.models.registry import PairSettings, register_model

Dilations = Annotated[
    tuple[Annotated[int, Field(ge=1, le=MOST_POSITIONS)], ...], Field(min_length=1)
]
DILATIONS = (1, 2, 4, 8, 16)
"""Those of the paper, sections 3.5 and 5."""
_ROUNDING = 1e-6
"""So that a ratio such as 1.1 does not round 11 tokens of 10 up to 12."""


class ByteNetSettings(PairSettings):
    """Sizes and options of a ByteNet for pairs of texts."""

    reads_any_length = True
    kind: Literal["bytenet"] = "bytenet"
    hidden_size: int = Field(256, ge=2, le=MOST_WIDTH)
    """Width of embeddings, of blocks and of states, even; the convolutions have half of it."""
    encoder_layers: int = Field(10, ge=1, le=MOST_LAYERS)
    """Residual blocks of the encoder."""
    decoder_layers: int = Field(10, ge=1, le=MOST_LAYERS)
    """Residual blocks of the decoder."""
    kernel_size: int = Field(3, ge=1, le=MOST_POSITIONS)
    """Positions that a convolution reads; in the decoder, the current one and those before."""
    dilations: Dilations = DILATIONS
    """Distance of these positions in the first block, the second and so on; they repeat."""
    unit: Unit = "relu"
    """What follows a convolution: a rectifier or the gates of a multiplicative unit."""
    length_ratio: float = Field(1.2, ge=1, le=100)
    """a of the length a |s| + b of the representation of |s| source tokens, END included."""
    length_offset: int = Field(0, ge=0, le=MOST_POSITIONS)
    """b of that length."""
    dropout: float = Field(0.1, ge=0, lt=1)
    """Dropout on embeddings and on what each block adds."""
    tied_embeddings: Literal["all", "output", "none"] = "none"
    """Which matrices are tied: source embedding, target embedding and output ("all"), the last two
    ("output"), or none."""
    max_length: int = Field(512, ge=2, le=MOST_POSITIONS)
    """Longest sequence in tokens, END included, on either side."""

    @field_validator("hidden_size")
    @classmethod
    def _is_even(cls, given: int) -> int:
        return require_even(given)

    def sizes(self) -> BlockSizes:
        """Those of each block."""
        return BlockSizes(self.hidden_size, self.kernel_size, self.unit, self.dropout)


def require_even(width: int) -> int:
    """``width``, if it can be halved.

    Raises:
        ValueError: it is odd.
    """
    if width % 2:
        raise ValueError(f"{width} is odd, but convolutions have half the width; use {width + 1}")
    return width


@dataclass(frozen=True)
class ByteNetState:
    """The state of decoding for N rows."""

    past: tuple[Tensor, ...]
    """Of each block: its convolution's input at the last (k − 1) δ positions ``[N, .., D]``."""
    length: int
    """Number of positions so far."""
    representation: Tensor
    """What the decoder reads of each source ``[B, R, W]``, zero beyond its length."""
    sources: Tensor
    """Index of each row's source ``[N]``."""

    def select(self, rows: Tensor) -> "ByteNetState":
        """The state of ``rows [M]``, in this order; rows can be repeated or omitted."""
        past = tuple(part.index_select(0, rows) for part in self.past)
        return replace(self, past=past, sources=self.sources.index_select(0, rows))


class ByteNet(PairModel):
    """The network. Target position i reads position i of the source's representation.

    The representation of a source of |s| tokens has ⌈a |s|⌉ + b positions. The decoder continues
    beyond it, where it reads zeros, until END: dynamic unfolding (section 3.2). The decoder reads
    ``W_e e_i + W_s norm(s_i) + b`` of an embedding e and a representation s, which is a 1 × 1
    convolution of both. The output has no bias.

    Args:
        settings: sizes and options.
        source_vocabulary: number of symbols of the source.
        target_vocabulary: number of symbols of the target.

    Raises:
        ValueError: all embeddings are tied, but the vocabularies differ in size.

    Example:
        >>> model = ByteNet(ByteNetSettings(hidden_size=8), 50, 60)
        >>> source = Source(torch.tensor([[7, 9, 3]]), torch.tensor([3]))
        >>> model.teacher_force(source, torch.tensor([[2, 8]])).shape
        torch.Size([1, 2, 60])
    """

    def __init__(
        self, settings: ByteNetSettings, source_vocabulary: int, target_vocabulary: int
    ) -> None:
        super().__init__()
        require_one_vocabulary(settings.tied_embeddings, source_vocabulary, target_vocabulary)
        self.settings, self.max_length = settings, settings.max_length
        width, sizes = settings.hidden_size, settings.sizes()
        self.target_embedding = token_embedding(target_vocabulary, width)
        self.source_embedding = (
            self.target_embedding
            if settings.tied_embeddings == "all"
            else token_embedding(source_vocabulary, width)
        )
        self.drop = Dropout(settings.dropout)
        self.encoder = dilated_blocks(sizes, settings.encoder_layers, settings.dilations)
        self.encoder_norm = nn.LayerNorm(width)
        self.from_source = nn.Linear(width, width, bias=False)
        self.from_target = nn.Linear(width, width)
        self.decoder = dilated_blocks(sizes, settings.decoder_layers, settings.dilations)
        self.readout = Readout(width)
        self.output = None
        if settings.tied_embeddings == "none":
            self.output = nn.Linear(width, target_vocabulary, bias=False)
            nn.init.normal_(self.output.weight, std=width**-0.5)

    def encode(self, source: Source) -> Tensor:
        """What the decoder reads of each source ``[B, R, W]``, zero beyond its length."""
        lengths = source.lengths.double() * self.settings.length_ratio - _ROUNDING
        lengths = lengths.ceil().long() + self.settings.length_offset
        count = int(lengths.max()) if len(lengths) else 0
        places = torch.arange(count, device=source.tokens.device)
        tokens = F.pad(source.tokens, (0, max(0, count - source.tokens.shape[1])), value=PAD)
        tokens = tokens[:, :count].masked_fill(places >= source.lengths.unsqueeze(1), PAD)
        hidden = self.drop(self.source_embedding(tokens))
        real = (places < lengths.unsqueeze(1)).unsqueeze(-1).to(hidden.dtype)
        for block in self.encoder:
            assert isinstance(block, DilatedBlock)
            hidden = block.read(hidden, real)
        read: Tensor = self.from_source(self.encoder_norm(hidden)) * real
        return read

    def start(self, source: Source) -> ByteNetState:
        representation = self.encode(source)
        rows = len(representation)
        return ByteNetState(
            past=tuple(block.before(rows) for block in self._decoder_blocks()),
            length=0,
            representation=representation,
            sources=torch.arange(rows, device=representation.device),
        )

    def _decoder_blocks(self) -> list[DilatedBlock]:
        return [block for block in self.decoder if isinstance(block, DilatedBlock)]

    def _advance(
        self, tokens: Tensor, read: Tensor, past: tuple[Tensor, ...]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """States ``[N, L, W]`` of the next ``tokens [N, L]``, and the new past.

        ``read [N, up to L, W]`` is the representation at these positions, as far as there is one.
        """
        entered = self.from_target(self.drop(self.target_embedding(tokens)))
        beyond = tokens.shape[1] - read.shape[1]
        hidden, after = advance(self.decoder, entered + F.pad(read, (0, 0, 0, beyond)), past)
        return self.drop(self.readout(hidden)), after

    def states(self, source: Source, target_in: Tensor) -> Tensor:
        state = self.start(source)
        read = state.representation[:, : target_in.shape[1]]
        return self._advance(target_in, read, state.past)[0]

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, ByteNetState]:
        if not isinstance(state, ByteNetState):
            raise TypeError(f"state must come from start or step, not {type(state).__name__}")
        here = state.representation[:, state.length : state.length + 1]
        states, past = self._advance(
            tokens.unsqueeze(1), here.index_select(0, state.sources), state.past
        )
        after = replace(state, past=past, length=state.length + 1)
        return self.logits(states.squeeze(1)), after

    @property
    def output_table(self) -> Tensor:
        return self.target_embedding.weight if self.output is None else self.output.weight


register_model(ByteNetSettings, ByteNet)
