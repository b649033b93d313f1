"""Hierarchical attention: over the words of each sentence, then over the sentences of a text.

    u_t = tanh(W h_t + b),   α_t = softmax_t(u_tᵀ u),   s = Σ_t α_t h_t

over the states h of a bidirectional GRU, first for words and then for sentences.
Yang et al. 2016, "Hierarchical Attention Networks for Document Classification", section 2.2.
Shapes: B batch, L tokens, N sentences of a text, S sentences of a batch, W words of the longest
sentence, D width of a state, U hidden units.
"""

from collections.abc import Sequence
from typing import ClassVar, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn

from heedful.attention.normalizers import Normalizer
from heedful.attention.watching import Watchable
from heedful.basics.constants import WithConstants
from heedful.basics.limits import MOST_POSITIONS, MOST_WIDTH
from heedful.basics.symbols import END, PAD
from heedful.layers.dropout import Dropout
from heedful.layers.embeddings import token_embedding
from heedful.layers.recurrent import RecurrentEncoder, glorot_linear
from heedful.models.attention_settings import PoolingAttentionSettings
from heedful.models.encoders import Encoded, Sequences, TextEncoder
from heedful.models.registry import EncoderSettings, register_model
from heedful.models.text_spans import text_mask


class HierarchicalSettings(EncoderSettings):
    """Sizes and options of hierarchical attention."""

    renamed: ClassVar[dict[str, str]] = {
        "embedding_dim": "embedding_size",
        "word_dim": "word_hidden_size",
        "sentence_dim": "sentence_hidden_size",
        "hidden_dim": "attention_size",
    }
    reads_any_length = True
    reads_sentences = True
    kind: Literal["hierarchical"] = "hierarchical"
    cell: Literal["gru", "lstm"] = "gru"
    embedding_size: int = Field(200, ge=1, le=MOST_WIDTH)
    word_hidden_size: int = Field(50, ge=1, le=MOST_WIDTH)
    """Width of a word's state in each direction."""
    sentence_hidden_size: int = Field(50, ge=1, le=MOST_WIDTH)
    """Width of a sentence's state in each direction."""
    attention_size: int = Field(100, ge=1, le=MOST_WIDTH)
    """Width of u_t in each attention."""
    dropout: float = Field(0.3, ge=0, lt=1)
    """Dropout on embeddings and on the states of words and sentences."""
    max_length: int = Field(1024, ge=2, le=MOST_POSITIONS)
    """Longest row in tokens, BEGIN and the ENDs included."""
    attention: PoolingAttentionSettings = PoolingAttentionSettings()


class AttentionOverParts(Watchable):
    """The weighted sum of the states of each part; zeros for a part without states.

    All parts share the learned query u, so that each state is scored once. Watchers get weights
    ``[B, 1, parts, K]``.

    Args:
        dim: width of the states.
        hidden_dim: width of u.
        normalize: scores to weights.
    """

    def __init__(self, dim: int, hidden_dim: int, normalize: Normalizer) -> None:
        super().__init__()
        self.hidden = glorot_linear(dim, hidden_dim)
        self.context = nn.Parameter(torch.empty(hidden_dim))
        nn.init.normal_(self.context, std=hidden_dim**-0.5)
        self.normalize = normalize

    def forward(self, states: Tensor, parts: Tensor) -> Tensor:
        """``[B, parts, D]`` from ``states [B, K, D]`` and the members of each part, booleans
        ``[B, parts, K]``."""
        scores = torch.tanh(self.hidden(states)) @ self.context  # [B, K]
        weights: Tensor = self.normalize(scores.unsqueeze(1).expand(parts.shape), parts)
        one_head = weights.unsqueeze(1)
        self.show(one_head)
        if self.watched_in_part:
            self.show_some(lambda rows: one_head[..., rows, :], one_head, states.shape[1])
        # Uses the tensor that watchers get, so that they can compute gradients with respect to it.
        return one_head.squeeze(1).to(states.dtype) @ states


class _Sentences(NamedTuple):
    """The positions of the n words of a batch in its S sentences."""

    row: Tensor
    """Row of each word ``[n]``."""
    column: Tensor
    sentence: Tensor
    """Index of each word's sentence in the batch ``[n]``."""
    place: Tensor
    """Position of each word in its sentence ``[n]``."""
    lengths: Tensor
    """Words of each sentence ``[S]``."""
    row_of: Tensor
    """Row of each sentence ``[S]``."""
    place_of: Tensor
    """Position of each sentence in its row ``[S]``."""
    counts: Tensor
    """Sentences of each row ``[B]``."""


class HierarchicalEncoder(WithConstants, TextEncoder):
    """The encoder; ``states`` are those of words, each computed within its sentence.

    A sentence ends after the last of consecutive tokens of ``sentence_ends``, and at the end of a
    text. Without such tokens, a text is one sentence. BEGIN and the ENDs are ignored; the vector of
    an empty text is zero.

    Args:
        settings: sizes and options.
        vocabulary: number of symbols.
        sentence_ends: the tokens that end sentences: full stops, line ends, …

    Example:
        >>> from heedful.models.encoders import sequences_of
        >>> settings = HierarchicalSettings(
        ...     embedding_size=8, word_hidden_size=3, sentence_hidden_size=5
        ... )
        >>> encoded = HierarchicalEncoder(settings, 30, [4])(sequences_of([[7, 4, 8, 9, 4], [8]]))
        >>> encoded.states.shape, encoded.pooled.shape
        (torch.Size([2, 7, 6]), torch.Size([2, 10]))
    """

    dim: int
    pooled_dim: int
    sentence_ends: Tensor

    def __init__(
        self, settings: HierarchicalSettings, vocabulary: int, sentence_ends: Sequence[int]
    ) -> None:
        super().__init__()
        self.settings = settings
        self.max_length = settings.max_length
        self.tokens = token_embedding(vocabulary, settings.embedding_size)
        self.drop = Dropout(settings.dropout)
        self.words = _one_layer(settings, settings.embedding_size, settings.word_hidden_size)
        self.dim = self.words.output_dim
        self.word_attention = AttentionOverParts(
            self.dim, settings.attention_size, settings.attention.build()
        )
        self.sentences = _one_layer(settings, self.dim, settings.sentence_hidden_size)
        self.pooled_dim = self.sentences.output_dim
        self.sentence_attention = AttentionOverParts(
            self.pooled_dim, settings.attention_size, settings.attention.build()
        )
        self._ends = sorted(set(sentence_ends))
        self.register_constants()

    def constants(self) -> dict[str, Tensor]:
        return {"sentence_ends": torch.tensor(self._ends, dtype=torch.long)}

    def encode(self, batch: Sequences) -> Encoded:
        """The vectors of a batch; states are zero at BEGIN, the ENDs and padding."""
        where = self._sentences(batch)
        rows, width = batch.tokens.shape
        states = self._words(batch.tokens, where)
        count = max(1, int(where.counts.max())) if rows else 1
        parts = torch.zeros(rows, count, width, dtype=torch.bool, device=states.device)
        parts[where.row, where.place_of[where.sentence], where.column] = True
        sentences = self.word_attention(states, parts)  # [B, N, D]
        read, _ = self.sentences(sentences, where.counts.clamp(min=1))
        there = torch.arange(count, device=read.device) < where.counts[:, None, None]
        pooled = self.sentence_attention(self.drop(read), there)
        return Encoded(states, pooled.squeeze(1))

    def sentence_numbers(self, batch: Sequences) -> Tensor:
        """The index of each token's sentence in its row ``[B, L]``, from 0; −1 for none."""
        where = self._sentences(batch)
        numbers = torch.full_like(batch.tokens, -1)
        numbers[where.row, where.column] = where.place_of[where.sentence]
        return numbers

    def _words(self, tokens: Tensor, where: _Sentences) -> Tensor:
        """The state of each word ``[B, L, D]``, computed within its sentence."""
        width = int(where.lengths.max()) if len(where.lengths) else 0
        if not width:
            return self.tokens.weight.new_zeros(*tokens.shape, self.dim)
        sentences = tokens.new_full((len(where.lengths), width), PAD)
        sentences[where.sentence, where.place] = tokens[where.row, where.column]
        read, _ = self.words(self.drop(self.tokens(sentences)), where.lengths)
        words = self.drop(read[where.sentence, where.place])
        states: Tensor = words.new_zeros(*tokens.shape, self.dim)
        return states.index_put((where.row, where.column), words)

    def _sentences(self, batch: Sequences) -> _Sentences:
        ends = torch.isin(batch.tokens, self.sentence_ends)
        ends[:, :-1] &= ~ends[:, 1:]  # Of consecutive ends, keep the last.
        ends |= batch.tokens == END
        before = ends.cumsum(1) - ends.long()  # sentences that ended before a token
        row, column = text_mask(batch).nonzero(as_tuple=True)
        # A number for each sentence of the batch, increasing from word to word.
        number = row * (batch.tokens.shape[1] + 1) + before[row, column]
        _, sentence, lengths = torch.unique_consecutive(
            number, return_inverse=True, return_counts=True
        )
        starts = lengths.cumsum(0) - lengths
        place = torch.arange(len(row), device=row.device) - starts[sentence]
        row_of = row[starts]
        counts = torch.bincount(row_of, minlength=len(batch.tokens))
        firsts = counts.cumsum(0) - counts
        place_of = torch.arange(len(row_of), device=row.device) - firsts[row_of]
        return _Sentences(row, column, sentence, place, lengths, row_of, place_of, counts)

    def attention_axes(self) -> dict[str, tuple[str, str]]:
        """Words from "sentences" to "text" (zero outside a sentence), sentences from one "hop"."""
        return {
            "word_attention": ("sentences", "text"),
            "sentence_attention": ("hops", "sentences"),
        }


def _one_layer(settings: HierarchicalSettings, width: int, hidden: int) -> RecurrentEncoder:
    return RecurrentEncoder(
        settings.cell, width, hidden, 1, bidirectional=True, dropout=settings.dropout
    )


register_model(HierarchicalSettings, HierarchicalEncoder)
