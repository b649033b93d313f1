"""Bidirectional attention flow: a text and a question that read each other.

    S_tj = w₁ᵀh_t + w₂ᵀu_j + w₃ᵀ(h_t ∘ u_j)
    ũ_t = Σ_j softmax_j(S_tj) u_j            the text reads the question
    h̃  = Σ_t softmax_t(max_j S_tj) h_t       the question reads the text
    g_t = [h_t; ũ_t; h_t ∘ ũ_t; h_t ∘ h̃],   M = BiLSTM(G),   M² = BiLSTM(M)

Seo, Kembhavi, Farhadi, Hajishirzi 2017, "Bidirectional Attention Flow for Machine Comprehension",
section 2: H and U are BiLSTMs over word and character vectors after highway layers; the start of
the answer is read from [G; M] and its end from [G; M²].
Shapes: B batch, L tokens of a row, T tokens of the text, J tokens of the question, D = 2·d.
"""

from collections.abc import Sequence
from typing import Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from heedful.attention import Attention
from heedful.attention.masks import padding
from heedful.attention.scores import Dot
from heedful.attention.scores.trilinear import Trilinear
from heedful.attention.settings import AttentionSettings
from heedful.basics.limits import MOST_LAYERS, MOST_POSITIONS, MOST_WIDTH
from heedful.layers.dropout import Dropout
from heedful.layers.embeddings import token_embedding
from heedful.layers.recurrent import RecurrentEncoder
from heedful.layers.spelled_tokens import SpelledTokens
from heedful.layers.word_characters import Highway
from heedful.models.encoders import Encoded, Sequences, TextEncoder
from heedful.models.registry import EncoderSettings, register_model
from heedful.models.text_spans import Text, both_texts, text_lengths

Flow = Literal["both", "context-to-question", "question-to-context", "none"]


class AttentionFlowSettings(EncoderSettings):
    """Sizes and options of bidirectional attention flow."""

    reads_any_length = True
    reads_spellings = True
    kind: Literal["bidirectional-attention-flow"] = "bidirectional-attention-flow"
    embedding_size: int = Field(100, ge=1, le=MOST_WIDTH)
    """Width of a token's vector."""
    character_size: int = Field(8, ge=1, le=MOST_WIDTH)
    """Width of the vector of a byte of a token's spelling."""
    character_filters: int = Field(100, ge=0, le=MOST_WIDTH)
    """Filters over the spelling of a token; 0 for token vectors only."""
    character_width: int = Field(5, ge=1, le=64)
    """Bytes that a filter reads."""
    highway_layers: int = Field(2, ge=0, le=MOST_LAYERS)
    hidden_size: int = Field(100, ge=1, le=MOST_WIDTH)
    """d, width of each direction of the LSTMs."""
    modelling_layers: int = Field(2, ge=1, le=MOST_LAYERS)
    """BiLSTM layers over G."""
    dropout: float = Field(0.2, ge=0, lt=1)
    """Dropout on the input of each LSTM."""
    flow: Flow = "both"
    """Which text reads which. Instead of what is not read, G has the mean of its vectors."""
    max_length: int = Field(512, ge=4, le=MOST_POSITIONS)
    """Longest row in tokens, BEGIN and the ENDs included."""
    attention: AttentionSettings = AttentionSettings()
    """Score, normalizer and dropout; trilinear and softmax unless given."""

    @model_validator(mode="after")
    def _comparable(self) -> Self:
        with torch.device("meta"):
            self.build_attention()
        return self

    def build_attention(self) -> Attention:
        """The attention of the text to the question."""
        chosen = self.attention.over(AttentionSettings(score=Trilinear.Settings()))
        width = 2 * self.hidden_size
        return chosen.build_one(width, width, max_length=self.max_length)

    @property
    def needs_pairs(self) -> bool:
        return True


class AttentionFlowEncoder(TextEncoder):
    """Encoder of pairs only: the question is the first text, the text with the answer the second.

    ``states`` are ``[G; M; M²]`` at the tokens of the second text (``12·d`` numbers), a learned
    vector at BEGIN, whose score stands for "no answer" (Levy et al. 2017, "Zero-Shot Relation
    Extraction via Reading Comprehension", section 4), and zero elsewhere.

    Args:
        settings: sizes and options.
        vocabulary: number of symbols.
        spellings: the text of each symbol.

    Example:
        >>> from heedful.models.encoders import sequences_of
        >>> settings = AttentionFlowSettings(hidden_size=3, embedding_size=4, character_filters=2)
        >>> encoder = AttentionFlowEncoder(settings, 30)
        >>> encoder(sequences_of([[7, 9], [8]], [[5, 7], [6]])).states.shape
        torch.Size([2, 7, 36])
    """

    needs_pairs = True
    dim: int

    def __init__(
        self, settings: AttentionFlowSettings, vocabulary: int, spellings: Sequence[str] = ()
    ) -> None:
        super().__init__()
        self.settings, self.max_length = settings, settings.max_length
        hidden = settings.hidden_size
        self.dim, self.pooled_dim = 12 * hidden, None
        self.span_widths = (8 * hidden, 2 * hidden, 2 * hidden)
        self.tokens = token_embedding(vocabulary, settings.embedding_size)
        width = settings.embedding_size + settings.character_filters
        self.spelling: SpelledTokens | None = None
        if settings.character_filters:
            self.spelling = SpelledTokens(
                vocabulary,
                spellings,
                byte_size=settings.character_size,
                filters=settings.character_filters,
                width=settings.character_width,
            )
        self.highways = nn.Sequential(*(Highway(width) for _ in range(settings.highway_layers)))
        self.contextual = self._lstm(width, 1)
        self.modelling = self._lstm(8 * hidden, settings.modelling_layers)
        self.ending = self._lstm(2 * hidden, 1)
        self.drop = Dropout(settings.dropout)
        self.nothing = nn.Parameter(torch.zeros(self.dim))
        self.context_to_question = settings.build_attention()
        # Reads with scores that are given as a mask of numbers; the dot products are zero.
        normalizer = settings.build_attention().normalize
        self.question_to_context = Attention(Dot(), normalizer)

    def _lstm(self, width: int, layers: int) -> RecurrentEncoder:
        settings = self.settings
        return RecurrentEncoder(
            "lstm",
            width,
            settings.hidden_size,
            layers,
            bidirectional=True,
            dropout=settings.dropout if layers > 1 else 0.0,
        )

    def encode(self, batch: Sequences) -> Encoded:
        """The vectors of a batch of pairs."""
        question, context = both_texts(batch)
        u, h = self.annotate(question), self.annotate(context)
        g = self.flow(u, h, question.lengths, context.lengths)
        lengths = context.lengths.clamp(min=1)
        m, _ = self.modelling(self.drop(g), lengths)
        m2, _ = self.ending(self.drop(m), lengths)
        return Encoded(self._placed(torch.cat([g, m, m2], -1), batch), None)

    def annotate(self, text: Text) -> Tensor:
        """H or U: ``[B, W, D]`` of the tokens of a text, zero beyond its end."""
        vectors = self.tokens(text.tokens)
        if self.spelling is not None:
            vectors = torch.cat([self.spelling(text.tokens), vectors], -1)
        vectors = self.drop(self.highways(vectors))
        states, _ = self.contextual(vectors, text.lengths.clamp(min=1))
        beyond = torch.arange(states.shape[1], device=states.device) >= text.lengths.unsqueeze(1)
        annotated: Tensor = states.masked_fill(beyond.unsqueeze(-1), 0.0)
        return annotated

    def flow(self, u: Tensor, h: Tensor, asked: Tensor, told: Tensor) -> Tensor:
        """G ``[B, T, 4·D]`` of ``u [B, J, D]`` and ``h [B, T, D]`` with their lengths ``[B]``."""
        flow = self.settings.flow
        if flow in ("both", "context-to-question"):
            of_question = self.context_to_question(h, u, u, padding(asked))
        else:
            of_question = _mean(u, asked).expand_as(h)
        if flow in ("both", "question-to-context"):
            of_context = self._read_context(u, h, asked, told)
        else:
            of_context = _mean(h, told)
        return torch.cat([h, of_question, h * of_question, h * of_context], -1)

    def _read_context(self, u: Tensor, h: Tensor, asked: Tensor, told: Tensor) -> Tensor:
        """h̃ ``[B, 1, D]``: the tokens of the text by their largest score."""
        scores = self.context_to_question.score(h, u)  # [B, T, J]
        places = torch.arange(u.shape[1], device=u.device)
        scores = scores.masked_fill(places >= asked[:, None, None], float("-inf"))
        largest = scores.amax(-1).unsqueeze(1)  # [B, 1, T]
        beyond = torch.arange(h.shape[1], device=h.device) >= told[:, None, None]
        largest = largest.masked_fill(beyond, float("-inf"))
        nothing = h.new_zeros(len(h), 1, 1)
        context: Tensor = self.question_to_context(
            nothing, h.new_zeros(*h.shape[:2], 1), h, largest
        )
        return context

    def _placed(self, states: Tensor, batch: Sequences) -> Tensor:
        """States ``[B, T, 12·d]`` of the second text at their positions in the rows ``[B, L]``."""
        asked, told = (one.unsqueeze(1) for one in text_lengths(batch))
        places = torch.arange(batch.tokens.shape[1], device=states.device)
        index = places - asked - 2
        inside = (index >= 0) & (index < told)
        index = index.clamp(0, states.shape[1] - 1).unsqueeze(-1)
        found = states.gather(1, index.expand(-1, -1, states.shape[2]))
        found = found.masked_fill(~inside.unsqueeze(-1), 0.0)
        return torch.where((places == 0).unsqueeze(-1), self.nothing.to(found.dtype), found)

    def attention_axes(self) -> dict[str, tuple[str, str]]:
        axes = {
            "question_to_context": ("question", "second"),
            "context_to_question": ("second", "first"),  # the last one is shown as the alignment
        }
        flow = self.settings.flow
        read = {"both": list(axes), "none": []}.get(flow, [flow.replace("-", "_")])
        return {name: axes[name] for name in read}

    def axis_labels(self) -> dict[str, list[str]]:
        return (
            {"question": ["the question"]} if "question_to_context" in self.attention_axes() else {}
        )


def _mean(vectors: Tensor, lengths: Tensor) -> Tensor:
    """The mean ``[B, 1, D]`` of vectors that are zero beyond ``lengths``."""
    total = vectors.sum(1, keepdim=True)
    return total / lengths.clamp(min=1)[:, None, None].to(total.dtype)


register_model(AttentionFlowSettings, AttentionFlowEncoder)
