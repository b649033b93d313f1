"""The protocol of search engines of other libraries.

Shapes: S source tokens, T target tokens.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from torch import Tensor

from heedful.data.tokeniser import Tokenisers
from heedful.decoding import Hypothesis, SearchOptions
from heedful.inference.alignment import word_weights
from heedful.inference.assembly import PartResult


class Outcome(NamedTuple):
    """The result of a search for one source."""

    hypotheses: list[Hypothesis]
    """As from `heedful.decoding.search`: best score first, all different."""
    weights: Tensor | None
    """Weights of the best hypothesis ``[T, S or more]``, target by source tokens; or None."""


class SearchEngine(Protocol):
    """Finds outputs for source tokens: model and search of another library."""

    @property
    def architecture(self) -> str:
        """The architecture, by the name of a class of heedful."""
        ...

    @property
    def parameters(self) -> int:
        """Number of parameters."""
        ...

    @property
    def max_length(self) -> int:
        """Longest sequence in tokens, END included, on either side."""
        ...

    @property
    def device(self) -> str:
        """The device: ``cpu`` or ``cuda``."""
        ...

    @property
    def compute_type(self) -> str:
        """The number type of matrix products, by the engine's own name."""
        ...

    def check(self, options: SearchOptions) -> None:
        """Raise UserError if these options are not supported."""
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
        """Search for sequences of source tokens, without END.

        Args:
            sequences: the tokens of each source.
            options: search settings, accepted by `check`.
            limits: the maximum length of each output in tokens, END included.
            scores: whether to return probabilities; otherwise those of tokens may be NaN.
            weights: whether to return attention weights for word alignment.
        """
        ...


def search_with_engine(
    engine: SearchEngine,
    tokenisers: Tokenisers,
    sequences: Sequence[Sequence[int]],
    options: SearchOptions,
    limits: Sequence[int],
    *,
    scores: bool,
    alignments: bool,
) -> list[PartResult]:
    """The results of an engine for a batch, with attention converted to weights between words."""
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
        found.append(PartResult(outcome.hypotheses, soft, at_limit))
    return found
