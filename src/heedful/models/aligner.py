"""A word aligner: attention from each known target word to its source word.

    score[t, s] = w_{y_t} · h_s + b_{y_t} − log Σ_y exp(w_y · h_s + b_y) = log p(y_t | x_s)

The query is the vector of a target word, the key that of a source word, and the probabilities of
each key sum to 1 over the vocabulary. The weights are those of
:class:`~heedful.attention.hidden_markov.HiddenMarkovAttention`. Training maximises the exact
likelihood of the target, summed over all alignments (Deng et al. 2018, "Latent alignment and
variational attention", section 3). This is the HMM aligner of Vogel et al. 1996 with a translation
table of vectors, so that subwords share parameters. It does not translate: target words do not
depend on each other.

Shapes: B batch, S source tokens with END, T target tokens with BEGIN, D width, V vocabulary.
"""

from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from heedful.attention.hidden_markov import HiddenMarkovAttention, key_normaliser
from heedful.basics.errors import UserError
from heedful.basics.limits import MOST_POSITIONS, MOST_WIDTH
from heedful.basics.symbols import PAD
from heedful.models.pairs import AlignmentSource, PairModel, Source, State
from heedful.models.registry import PairSettings, register_model


class AlignerSettings(PairSettings):
    """The recipe's table ``[model]`` with ``kind = "aligner"``."""

    renamed: ClassVar[dict[str, str]] = {"dim": "hidden_size", "reach": "max_jump"}
    generates = False
    kind: Literal["aligner"] = "aligner"
    hidden_size: int = Field(64, ge=1, le=MOST_WIDTH)
    """Width of the word vectors."""
    dropout: float = Field(0.1, ge=0, lt=1)
    """Dropout on source vectors."""
    max_jump: int = Field(20, ge=1, le=MOST_POSITIONS)
    """The longest jump, in tokens, that has its own probability."""
    max_length: int = Field(512, ge=2, le=MOST_POSITIONS)


class WordAligner(PairModel):
    """An HMM aligner with vectors.

    Args:
        settings: sizes.
        source_vocabulary: symbols of the source.
        target_vocabulary: symbols of the target.
    """

    generates = False

    def __init__(
        self, settings: AlignerSettings, source_vocabulary: int, target_vocabulary: int
    ) -> None:
        super().__init__()
        self.max_length = settings.max_length
        self.source_embedding = nn.Embedding(
            source_vocabulary, settings.hidden_size, padding_idx=PAD
        )
        self.hidden = nn.Linear(settings.hidden_size, settings.hidden_size)
        self.output = nn.Linear(settings.hidden_size, target_vocabulary)
        self.drop = nn.Dropout(settings.dropout)
        self.attention = HiddenMarkovAttention(settings.max_jump)
        nn.init.normal_(self.source_embedding.weight, std=0.3)
        nn.init.zeros_(self.output.bias)

    def log_likelihood(self, source: Source, target_in: Tensor) -> Tensor:
        """``log p(y)`` of each target ``[B]``, without END, summed over all alignments.

        Args:
            source: the batch.
            target_in: BEGIN and the target's tokens ``[B, T]``.
        """
        return self._attend(source, target_in)[0]

    def states(self, source: Source, target_in: Tensor) -> Tensor:
        """The weighted sum of source vectors of each target token ``[B, T, D]``.

        Row t belongs to token t itself, not to the token after it.
        """
        _, weights, keys = self._attend(source, target_in)
        return (
            keys.new_zeros(*target_in.shape, keys.shape[2]) if weights is None else weights @ keys
        )

    def _attend(self, source: Source, target_in: Tensor) -> tuple[Tensor, Tensor | None, Tensor]:
        embedded = self.drop(self.source_embedding(source.tokens))
        keys = embedded + torch.tanh(self.hidden(embedded))  # [B, S, D]
        table, bias = self.output.weight, self.output.bias
        queries = F.embedding(target_in, table)  # [B, T, D]
        scores = queries @ keys.transpose(1, 2) + bias[target_in][:, :, None]
        scores = scores.float() - key_normaliser(keys, table, bias)[:, None]
        lengths = (target_in != PAD).sum(1)
        likelihood, weights = self.attention(scores, source.lengths, lengths)
        return likelihood, weights, keys

    @property
    def output_table(self) -> Tensor:
        return self.output.weight

    def read_sample(self, rows: int, length: int) -> None:
        """Run the model on arbitrary tokens, to measure its speed."""
        source = self.sample(rows, min(length, self.max_length))
        self.log_likelihood(source, source.tokens)

    def start(self, source: Source) -> State:
        """Raise UserError: the model has no search, because it does not translate."""
        raise UserError("this run aligns words and does not translate; pass both texts")

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Raise UserError, as :meth:`start`."""
        raise UserError("this run aligns words and does not translate; pass both texts")

    @property
    def alignment(self) -> AlignmentSource:
        """The only attention, in the row where a word is the input."""
        return AlignmentSource("attention", heads=None, shift=1)

    @property
    def link_threshold(self) -> float:
        """0.5: a link is made if its probability is above one half."""
        return 0.5

    def attention_axes(self) -> dict[str, tuple[str, str]]:
        return {"attention": ("target", "source")}


register_model(AlignerSettings, WordAligner)
