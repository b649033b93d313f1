"""Search by something else than our own models: what it has to offer, and how it is asked.

Shapes: S source tokens, T target tokens.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from torch import Tensor

from heedful.data.tokeniser import Tokenisers
from heedful.decoding import Hypothesis, SearchOptions
from heedful.inference.alignment import word_weights
from heedful.inference.assembly import Found


class Outcome(NamedTuple):
    """What a search has found for one source."""

    hypotheses: list[Hypothesis]
    """As `heedful.decoding.search` gives them: best score first, all different."""
    weights: Tensor | None
    """Of the best one ``[T, S or more]``: rows of its tokens, columns of the source's; or None."""


class SearchEngine(Protocol):
    """Finds outputs for source tokens: a model and a search in one, made by another library."""

    @property
    def architecture(self) -> str:
        """The kind of model, as a class of ours is called."""
        ...

    @property
    def parameters(self) -> int:
        """Numbers that were learnt."""
        ...

    @property
    def max_length(self) -> int:
        """Longest sequence in tokens, END included, on either side."""
        ...

    @property
    def device(self) -> str:
        """Where it computes: ``cpu`` or ``cuda``."""
        ...

    @property
    def compute_type(self) -> str:
        """In which numbers it takes products, by its own name."""
        ...

    def check(self, options: SearchOptions) -> None:
        """Raise UserError if it cannot search like this."""
        ...

    def search(
        self,
        sequences: Sequence[Sequence[int]],
        options: SearchOptions,
        limits: Sequence[int],
        *,
        scores: bool,
        weights: bool,
    ) -> list[Outcome]:
        """Search for sequences of source tokens, END left out.

        Args:
            sequences: the tokens of each source.
            options: how to search; `check` has passed them.
            limits: the longest output of each source in tokens, END included.
            scores: whether probabilities are wanted; they may be NaN if not, each token's own.
            weights: whether the attention by which words are aligned is wanted.
        """
        ...


def found_by(
    engine: SearchEngine,
    tokenisers: Tokenisers,
    sequences: Sequence[Sequence[int]],
    options: SearchOptions,
    limits: Sequence[int],
    *,
    scores: bool,
    alignments: bool,
) -> list[Found]:
    """What an engine finds for a batch, its attention turned into weights between words."""
    found = []
    outcomes = engine.search(sequences, options, limits, scores=scores, weights=alignments)
    for sequence, limit, outcome in zip(sequences, limits, outcomes, strict=True):
        best, soft = outcome.hypotheses[0], None
        if outcome.weights is not None:
            soft = word_weights(
                outcome.weights,
                tokenisers.source.word_indices(sequence),
                tokenisers.target.word_indices(best.tokens),
            )
        free = options.forced_length is None
        at_limit = free and len(best.token_log_probabilities) == limit
        found.append(Found(outcome.hypotheses, soft, at_limit))
    return found
