"""Decomposable attention: each word of two texts is compared with its aligned words.

    e_ij = F(a_i)ᵀ F(b_j),   β_i = Σ_j softmax_j(e_ij) b_j,   α_j = Σ_i softmax_i(e_ij) a_i
    v = H([Σ_i G([a_i, β_i]), Σ_j G([b_j, α_j])])

Parikh et al. 2016, "A Decomposable Attention Model for Natural Language Inference", section 3; the
attention within a text is that of section 3.4. Words have no other context, and texts have no NULL
token in front.
Shapes: B batch, W words of a text, D width of a word, U hidden width.
"""

from typing import ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from heedful.attention import Attention
from heedful.attention.masks import padding
from heedful.attention.scores import Dot
from heedful.attention.settings import AttentionSettings
from heedful.basics.limits import MOST_POSITIONS, MOST_WIDTH
from heedful.layers.dropout import Dropout
from heedful.layers.embeddings import token_embedding
from heedful.layers.recurrent import glorot_linear
from heedful.models.encoders import Encoded, Sequences, TextEncoder
from heedful.models.registry import EncoderSettings, register_model
from heedful.models.text_spans import Text, both_texts

FAR = 10
"""Words farther apart than this share one bias in the attention within a text."""


class DecomposableSettings(EncoderSettings):
    """Sizes and options of decomposable attention."""

    renamed: ClassVar[dict[str, str]] = {
        "embedding_dim": "embedding_size",
        "dim": "hidden_size",
        "hidden": "ffn_size",
        "intra": "intra_attention",
    }
    reads_any_length = True
    kind: Literal["decomposable"] = "decomposable"
    embedding_size: int = Field(300, ge=1, le=MOST_WIDTH)
    hidden_size: int = Field(200, ge=1, le=MOST_WIDTH)
    """Width that embeddings are projected to."""
    ffn_size: int = Field(200, ge=1, le=MOST_WIDTH)
    """Width of the layers of F, G and H, and of the vector of a pair."""
    dropout: float = Field(0.2, ge=0, lt=1)
    """Dropout on the input of each layer of F, G and H."""
    intra_attention: bool = False
    """Whether to apply self-attention to each text first (section 3.4)."""
    max_length: int = Field(512, ge=4, le=MOST_POSITIONS)
    """Longest row in tokens, BEGIN and the ENDs included."""
    attention: AttentionSettings = AttentionSettings()
    """Of the attention within a text and of that between the two."""

    @model_validator(mode="after")
    def _comparable(self) -> "DecomposableSettings":
        with torch.device("meta"):
            self.build_attention()
        return self

    def build_attention(self) -> Attention:
        """One of the attentions; the score compares what F returns."""
        chosen = self.attention.over(AttentionSettings(score=Dot.Settings()))
        return chosen.build_one(self.ffn_size, self.ffn_size, max_length=self.max_length)

    @property
    def needs_pairs(self) -> bool:
        return True


class TwoLayers(nn.Module):
    """``ReLU(W₂ ReLU(W₁ x + b₁) + b₂)`` with dropout before each layer."""

    def __init__(self, width: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.first, self.second = glorot_linear(width, hidden), glorot_linear(hidden, hidden)
        self.drop = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.second(self.drop(torch.relu(self.first(self.drop(x))))))


class WithinText(nn.Module):
    """``[a_i, Σ_j softmax_j(F(a_i)ᵀ F(a_j) + d_{i−j}) a_j]``, ``[B, W, D] -> [B, W, 2·D]``."""

    def __init__(self, width: int, settings: DecomposableSettings) -> None:
        super().__init__()
        self.attend = TwoLayers(width, settings.ffn_size, settings.dropout)
        self.distance = nn.Parameter(torch.zeros(2 * FAR + 2))
        # One for each text, so that each can be watched separately.
        self.first, self.second = (settings.build_attention() for _ in range(2))

    def forward(self, words: Tensor, lengths: Tensor, attention: Attention) -> Tensor:
        """``words [B, W, D]`` of texts of ``lengths [B]``; ``attention`` is one of the two."""
        places = torch.arange(words.shape[1], device=words.device)
        offset = places.unsqueeze(1) - places
        index = torch.where(offset.abs() > FAR, 2 * FAR + 1, offset + FAR)
        bias = self.distance[index].expand(len(words), -1, -1)
        beyond = places >= lengths[:, None, None]
        compared = self.attend(words)
        bias = bias.to(compared.dtype).masked_fill(beyond, float("-inf"))
        return torch.cat([words, attention(compared, compared, words, bias)], -1)


class DecomposableEncoder(TextEncoder):
    """Encoder of pairs only; ``pooled`` is the last hidden layer of H.

    Args:
        settings: sizes and options.
        vocabulary: number of symbols.

    Example:
        >>> from heedful.models.encoders import sequences_of
        >>> encoder = DecomposableEncoder(DecomposableSettings(hidden_size=8, ffn_size=6), 30)
        >>> encoder(sequences_of([[7, 9], [8]], [[5], [6, 4]])).pooled.shape
        torch.Size([2, 6])
    """

    needs_pairs = True
    pooled_dim: int

    def __init__(self, settings: DecomposableSettings, vocabulary: int) -> None:
        super().__init__()
        self.settings = settings
        self.max_length = settings.max_length
        self.dim, self.pooled_dim = None, settings.ffn_size
        width, hidden, dropout = settings.hidden_size, settings.ffn_size, settings.dropout
        self.tokens = token_embedding(vocabulary, settings.embedding_size)
        self.project = glorot_linear(settings.embedding_size, width, bias=False)
        self.intra = None
        if settings.intra_attention:
            self.intra = WithinText(width, settings)
            width *= 2
        self.attend = TwoLayers(width, hidden, dropout)
        self.compare = TwoLayers(2 * width, hidden, dropout)
        self.aggregate = TwoLayers(2 * hidden, hidden, dropout)
        self.first_to_second, self.second_to_first = (settings.build_attention() for _ in range(2))

    def encode(self, batch: Sequences) -> Encoded:
        """The vectors of a batch of pairs; words paired with an empty text get zeros."""
        first, second = both_texts(batch)
        a, b = self.project(self.tokens(first.tokens)), self.project(self.tokens(second.tokens))
        if self.intra is not None:
            a = self.intra(a, first.lengths, self.intra.first)
            b = self.intra(b, second.lengths, self.intra.second)
        of_a, of_b = self.attend(a), self.attend(b)
        beta = self.first_to_second(of_a, of_b, b, padding(second.lengths))
        alpha = self.second_to_first(of_b, of_a, a, padding(first.lengths))
        sums = [self._compared(a, beta, first), self._compared(b, alpha, second)]
        return Encoded(None, self.aggregate(torch.cat(sums, -1)))

    def _compared(self, words: Tensor, aligned: Tensor, text: Text) -> Tensor:
        """``Σ_i G([a_i, β_i])`` over the words of a text, ``[B, U]``."""
        compared: Tensor = self.compare(torch.cat([words, aligned], -1))
        places = torch.arange(words.shape[1], device=words.device)
        beyond = places >= text.lengths.unsqueeze(1)
        return compared.masked_fill(beyond.unsqueeze(-1), 0.0).sum(1)

    def attention_axes(self) -> dict[str, tuple[str, str]]:
        axes = {"first_to_second": ("first", "second"), "second_to_first": ("second", "first")}
        if self.intra is None:
            return axes
        return {"intra.first": ("first", "first"), "intra.second": ("second", "second"), **axes}


register_model(DecomposableSettings, DecomposableEncoder)
