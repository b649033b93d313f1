"""Convolutions over word vectors, and the maximum of each over time.

    c_i = ReLU(w · x_{i:i+h−1} + b),   ĉ = max_i c_i

Kim 2014, "Convolutional Neural Networks for Sentence Classification", section 2, equations 1 to 3.
As in the author's program, a text has h − 1 zeros before and after it, so that each word is at each
place of a filter and any text is long enough. Here only n-grams with at least one word count.
Shapes: B batch, L tokens, E width of a word vector, h width of a filter, M feature maps of each
width, N n-grams, F widths.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field, field_validator
from torch import Tensor, nn

from heedful.attention.watching import Watchable
from heedful.basics.limits import MOST_POSITIONS, MOST_WIDTH
from heedful.basics.symbols import PAD
from heedful.layers.dropout import Dropout
from heedful.layers.embeddings import token_embedding
from heedful.models.encoders import Encoded, Sequences, TextEncoder
from heedful.models.registry import EncoderSettings, register_model
from heedful.models.text_spans import text_mask

_INITIAL = 0.25
"""Random word vectors are uniform between −0.25 and 0.25 (section 3.1)."""
_WIDEST, _MOST_WIDTHS = 100, 16


class ConvolutionalEncoderSettings(EncoderSettings):
    """Sizes and options of convolutions with a maximum over time."""

    reads_any_length = True
    kind: Literal["convolutional-encoder"] = "convolutional-encoder"
    embedding_size: int = Field(300, ge=1, le=MOST_WIDTH)
    filter_widths: list[int] = Field([3, 4, 5], min_length=1, max_length=_MOST_WIDTHS)
    """The widths h of the filters, in words."""
    feature_maps: int = Field(100, ge=1, le=MOST_WIDTH)
    """Number of filters of each width."""
    multichannel: bool = False
    """Whether filters also read a copy of the initial word vectors that is not trained."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout on word vectors; that before the output layer is ``head_dropout``."""
    max_length: int = Field(512, ge=2, le=MOST_POSITIONS)
    """Longest row in tokens, BEGIN and the ENDs included."""

    @field_validator("filter_widths")
    @classmethod
    def _widths_differ(cls, given: list[int]) -> list[int]:
        if not all(1 <= width <= _WIDEST for width in given) or len(set(given)) < len(given):
            raise ValueError(f"give different widths from 1 to {_WIDEST}, such as [3, 4, 5]")
        return given


class MaximumOverTime(Watchable):
    """The maximum of each feature map over the n-grams of a text; 0 without words.

    Watchers get weights ``[B, 1, F, L]``: for each width, the mean over its feature maps of the
    n-gram with the maximum, whose words share its weight equally. Rows sum to 1.
    """

    def forward(self, features: list[Tensor], words: Tensor) -> Tensor:
        """The maxima ``[B, F · M]``.

        Args:
            features: for each width h, ``[B, M, N]`` with N = L + h − 1; the n-gram n has the
                tokens n − h + 1 to n.
            words: which tokens are words, booleans ``[B, L]``.
        """
        maxima = []
        shown = self.watched_at_all
        weights = []
        for found in features:
            width = found.shape[2] - words.shape[1] + 1
            inside = _n_grams(words, width)  # [B, N, h]
            there = inside.any(2)
            # A place without words is never the maximum, and gets no gradient.
            masked = found.masked_fill(~there.unsqueeze(1), -torch.inf)
            largest, place = masked.max(2)  # [B, M]
            maxima.append(largest.masked_fill(~there.any(1, keepdim=True), 0.0))
            if shown:
                weights.append(_shares(place, inside, words))
        if shown:
            self.show_whole(torch.stack(weights, 1).unsqueeze(1).to(maxima[0].dtype))
        return torch.cat(maxima, 1)


def _n_grams(words: Tensor, width: int) -> Tensor:
    """Which places of each n-gram are words, ``[B, N, h]``."""
    return F.pad(words, (width - 1, width - 1)).unfold(1, width, 1)


def _shares(place: Tensor, inside: Tensor, words: Tensor) -> Tensor:
    """The weight ``[B, L]`` of each token from the n-grams ``place [B, M]`` of the maxima."""
    width = inside.shape[2]
    rows = torch.arange(len(place), device=place.device).unsqueeze(1)
    chosen = inside[rows, place].float()  # [B, M, h]
    chosen = chosen / chosen.sum(2, keepdim=True).clamp(min=1.0) / place.shape[1]
    tokens = place.unsqueeze(2) + torch.arange(width, device=place.device)
    padded = chosen.new_zeros(len(words), words.shape[1] + 2 * (width - 1))
    padded.scatter_add_(1, tokens.flatten(1), chosen.flatten(1))
    return padded[:, width - 1 : width - 1 + words.shape[1]]


class ConvolutionalTextEncoder(TextEncoder):
    """Encoder of texts; the two texts of a pair are one sequence with a zero vector between them.

    BEGIN and the ENDs are zero vectors, so that ``pooled`` depends on the words only.

    Args:
        settings: sizes and options.
        vocabulary: number of symbols.

    Example:
        >>> from heedful.models.encoders import sequences_of
        >>> settings = ConvolutionalEncoderSettings(embedding_size=8, feature_maps=6)
        >>> encoder = ConvolutionalTextEncoder(settings, 30)
        >>> encoder(sequences_of([[7, 9], [8]])).pooled.shape
        torch.Size([2, 18])
    """

    pooled_dim: int

    def __init__(self, settings: ConvolutionalEncoderSettings, vocabulary: int) -> None:
        super().__init__()
        self.settings = settings
        self.max_length = settings.max_length
        self.dim, self.pooled_dim = None, settings.feature_maps * len(settings.filter_widths)
        self.tokens = token_embedding(vocabulary, settings.embedding_size)
        nn.init.uniform_(self.tokens.weight, -_INITIAL, _INITIAL)
        nn.init.zeros_(self.tokens.weight[PAD].detach())
        self.fixed: nn.Embedding | None = None
        if settings.multichannel:
            self.fixed = nn.Embedding.from_pretrained(
                self.tokens.weight.detach().clone(), padding_idx=PAD
            )
        self.drop = Dropout(settings.dropout)
        self.filters = nn.ModuleList(
            nn.Conv1d(settings.embedding_size, settings.feature_maps, width, padding=width - 1)
            for width in settings.filter_widths
        )
        self.pooling = MaximumOverTime()

    def encode(self, batch: Sequences) -> Encoded:
        """The vectors of a batch; those of texts without words are zero."""
        words = text_mask(batch)
        vectors = self.tokens(batch.tokens)
        if self.fixed is not None:
            # A filter is applied to both channels and the results are added (section 2.2), which is
            # the filter of the sum.
            vectors = vectors + self.fixed(batch.tokens)
        vectors = self.drop(vectors).masked_fill(~words.unsqueeze(-1), 0.0).mT
        features = [torch.relu(each(vectors)) for each in self.filters]
        return Encoded(None, self.pooling(features, words))

    @property
    def vector_tables(self) -> list[nn.Embedding]:
        """The trained table, and the fixed one, which starts with the same vectors."""
        return [self.tokens] if self.fixed is None else [self.tokens, self.fixed]

    def attention_axes(self) -> dict[str, tuple[str, str]]:
        """The maximum over time, from "filters" to "text"."""
        return {"pooling": ("filters", "text")}

    def axis_labels(self) -> dict[str, list[str]]:
        return {"filters": [f"{width}-grams" for width in self.settings.filter_widths]}


register_model(ConvolutionalEncoderSettings, ConvolutionalTextEncoder)
