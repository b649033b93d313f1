"""ELMo: words from their characters, a language model in each direction, a mixture of its layers.

Peters et al. 2018, "Deep contextualized word representations"; the pre-training is also that of
Peters et al. 2017, "Semi-supervised sequence tagging with bidirectional language models".
Shapes: B batch, L characters of a row, W words of a row, P width of a direction, D width of a
word's vector.
"""

import re
from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from heedful.basics.limits import MOST_LAYERS, MOST_POSITIONS, MOST_WIDTH
from heedful.basics.symbols import BEGIN, END
from heedful.layers.dropout import Dropout
from heedful.layers.recurrent import RecurrentEncoder
from heedful.layers.recurrent_packed import packed_network
from heedful.layers.word_characters import CharacterWords, WordSpans, word_spans
from heedful.models.encoders import Encoded, Sequences, TextEncoder
from heedful.models.registry import EncoderSettings, register_model

_Size = Annotated[int, Field(ge=1, le=MOST_WIDTH)]


class ElmoSettings(EncoderSettings):
    """Sizes and options of ELMo."""

    reads_any_length = True
    reads_words = True
    has_directions = True
    is_pretrained = True
    kind: Literal["elmo"] = "elmo"
    character_size: int = Field(16, ge=1, le=MOST_WIDTH)
    """Width of a character's vector."""
    filters: tuple[tuple[_Size, _Size], ...] = Field(
        ((1, 32), (2, 32), (3, 64), (4, 128)), min_length=1
    )
    """Characters that the filters of a convolution read, and their number, for each convolution."""
    highway_layers: int = Field(2, ge=0, le=MOST_LAYERS)
    layers: int = Field(2, ge=1, le=MOST_LAYERS)
    """LSTM layers of each direction."""
    hidden_size: int = Field(256, ge=1, le=MOST_WIDTH)
    """Width of the cell of an LSTM."""
    projection_size: int = Field(128, ge=1, le=MOST_WIDTH)
    """Width of its output, and of a word's vector from its characters."""
    dropout: float = Field(0.1, ge=0, lt=1)
    """Dropout on the input of each layer, on the mixture, and on the states of ``upper_size``."""
    mixture: Literal["learned", "top"] = "learned"
    """Whether a word's vector is a learned mixture of all layers, or that of the top layer."""
    frozen: bool = False
    """Whether characters and language models keep their weights: features that are not trained."""
    upper_size: int = Field(0, ge=0, le=MOST_WIDTH)
    """Width of each direction of an LSTM over the words' vectors; none if 0."""
    word_pooling: Literal["max", "mean"] = "max"
    """How the words' vectors become that of a text."""
    max_length: int = Field(2048, ge=4, le=MOST_POSITIONS)
    """Longest row in characters, BEGIN and the ENDs included."""

    @model_validator(mode="after")
    def _projects_to_less(self) -> Self:
        if self.projection_size > self.hidden_size:
            raise ValueError(
                f"projection_size {self.projection_size} is more than hidden_size "
                f"{self.hidden_size}; an LSTM is projected to at most its own width"
            )
        return self


class Directions(NamedTuple):
    """The states of both language models after each layer."""

    spans: WordSpans
    """Where the words are in the rows."""
    words: Tensor
    """The words' vectors from their characters ``[B, W, P]``."""
    forward: tuple[Tensor, ...]
    """After each layer, the states of the words read so far from the left ``[B, W, P]``."""
    backward: tuple[Tensor, ...]
    """After each layer, the states of the words read so far from the right ``[B, W, P]``."""


class Direction(nn.Module):
    """LSTM layers with a residual connection around each but the first.

    Args:
        settings: sizes and options.
    """

    def __init__(self, settings: ElmoSettings) -> None:
        super().__init__()
        width, cell = settings.projection_size, settings.hidden_size
        projected = width if width < cell else 0
        self.layers = nn.ModuleList(
            nn.LSTM(width, cell, batch_first=True, proj_size=projected)
            for _ in range(settings.layers)
        )
        self.drop = Dropout(settings.dropout)

    def forward(self, words: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
        """The states after each layer ``[B, W, P]`` of ``words [B, W, P]``, from left to right."""
        hidden, found = words, list[Tensor]()
        sizes = lengths.cpu()
        for layer in self.layers:
            assert isinstance(layer, nn.LSTM)
            packed = pack_padded_sequence(
                self.drop(hidden), sizes, batch_first=True, enforce_sorted=False
            )
            outputs, _ = packed_network(layer, packed)
            states, _ = pad_packed_sequence(outputs, batch_first=True, total_length=words.shape[1])
            hidden = hidden + states if found else states
            found.append(hidden)
        return tuple(found)


class BidirectionalReader(nn.Module):
    """Words from characters, and a language model in each direction; they share the words.

    Args:
        settings: sizes and options.
        vocabulary: number of symbols.
        separators: the tokens of white space.
    """

    separators: Tensor

    def __init__(
        self, settings: ElmoSettings, vocabulary: int, separators: Sequence[int] = ()
    ) -> None:
        super().__init__()
        self.characters = CharacterWords(
            vocabulary,
            settings.character_size,
            settings.filters,
            settings.highway_layers,
            settings.projection_size,
        )
        self.to_right, self.to_left = Direction(settings), Direction(settings)
        known = torch.tensor(list(separators), dtype=torch.long)
        self.register_buffer("separators", known, persistent=False)

    def forward(self, batch: Sequences) -> Directions:
        """The states of a batch of rows of characters."""
        spans = word_spans(batch.tokens, batch.lengths, self.separators)
        words = self.characters(batch.tokens, spans)
        turned = _turned(words, spans.lengths)
        to_left = self.to_left(turned, spans.lengths)
        return Directions(
            spans,
            words,
            self.to_right(words, spans.lengths),
            tuple(_turned(states, spans.lengths) for states in to_left),
        )


class Mixture(nn.Module):
    """``γ Σ_j softmax(s)_j h_j`` of the layers h (equation 1)."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(layers))
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, layers: Sequence[Tensor]) -> Tensor:
        """``[..]`` of the layers, which have this shape."""
        shares = torch.softmax(self.weights, 0)
        return self.scale * sum(
            (share * layer for share, layer in zip(shares, layers, strict=True)),
            start=torch.zeros_like(layers[0]),
        )


class Elmo(TextEncoder):
    """The encoder. A token's state is that of its word; white space has the state of the last word.

    The layers of the mixture are the word's vector from its characters, twice, and after each layer
    the states of both directions ``[to the right; to the left]``. The pooled vector of an empty
    text is zero.

    Args:
        settings: sizes and options.
        vocabulary: number of symbols, which are characters or bytes.
        separators: the tokens of white space, between which words are.

    Example:
        >>> from heedful.models.encoders import sequences_of
        >>> settings = ElmoSettings(hidden_size=6, projection_size=4)
        >>> encoded = Elmo(settings, 30, [5])(sequences_of([[7, 9, 5, 8], [8]]))
        >>> encoded.states.shape, encoded.pooled.shape
        (torch.Size([2, 6, 8]), torch.Size([2, 8]))
    """

    dim: int
    pooled_dim: int
    fresh_at_start = ("upper.",)

    def __init__(
        self, settings: ElmoSettings, vocabulary: int, separators: Sequence[int] = ()
    ) -> None:
        super().__init__()
        self.settings, self.max_length = settings, settings.max_length
        self.direction_dim = settings.projection_size
        self.reader = BidirectionalReader(settings, vocabulary, separators)
        self.reader.requires_grad_(not settings.frozen)
        self.mixture = Mixture(settings.layers + 1) if settings.mixture == "learned" else None
        self.drop = Dropout(settings.dropout)
        width = 2 * settings.projection_size
        self.upper: RecurrentEncoder | None = None
        if settings.upper_size:
            self.upper = RecurrentEncoder(
                "lstm", width, settings.upper_size, 1, bidirectional=True, dropout=0.0
            )
            width = self.upper.output_dim
        self.dim = self.pooled_dim = width

    def train(self, mode: bool = True) -> Self:
        """As in PyTorch; frozen parts stay in evaluation."""
        super().train(mode)
        if self.settings.frozen:
            self.reader.eval()
        return self

    def directions(self, batch: Sequences) -> Directions:
        """The states of both language models."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.settings.frozen):
            found: Directions = self.reader(batch)
        return found

    def encode(self, batch: Sequences) -> Encoded:
        """The vectors of a batch; states are zero beyond a row's length."""
        found = self.directions(batch)
        pairs = zip(found.forward, found.backward, strict=True)
        layers = [torch.cat(both, -1) for both in ((found.words, found.words), *pairs)]
        words = self.drop(layers[-1] if self.mixture is None else self.mixture(layers))
        if self.upper is not None:
            words = self.drop(self.upper(words, found.spans.lengths)[0])
        numbers = found.spans.numbers.unsqueeze(2).expand(-1, -1, words.shape[2])
        there = torch.arange(batch.tokens.shape[1], device=words.device)
        beyond = there >= batch.lengths.unsqueeze(1)
        states = words.gather(1, numbers).masked_fill(beyond.unsqueeze(2), 0.0)
        return Encoded(states, self._pool(words, batch.tokens, found.spans))

    def _pool(self, words: Tensor, tokens: Tensor, spans: WordSpans) -> Tensor:
        """One vector per row ``[B, D]`` from those of the words between BEGIN and the ENDs."""
        first = tokens.gather(1, spans.starts)
        there = spans.real & (first != BEGIN) & (first != END)
        out = ~there.unsqueeze(2)
        if self.settings.word_pooling == "mean":
            return words.masked_fill(out, 0.0).sum(1) / there.sum(1, keepdim=True).clamp(min=1)
        largest = words.masked_fill(out, float("-inf")).amax(1)
        return largest.masked_fill(~there.any(1, keepdim=True), 0.0)

    def depth(self, name: str) -> int:
        """0 for the characters, n + 1 for layer n; the mixture is one deeper than the last one."""
        if found := re.match(r"reader\.to_\w+\.layers\.(\d+)\.", name):
            return int(found[1]) + 1
        return 0 if name.startswith("reader.") else self.settings.layers + 1


def _turned(states: Tensor, lengths: Tensor) -> Tensor:
    """The words of each row ``[B, W, P]`` in the opposite order; those beyond its length stay."""
    places = torch.arange(states.shape[1], device=states.device)
    opposite = lengths.unsqueeze(1) - 1 - places
    index = torch.where(opposite >= 0, opposite, places)
    return states.gather(1, index.unsqueeze(2).expand_as(states))


register_model(ElmoSettings, Elmo)
