"""The task of copying or reversing strings: batches, loss, greedy search, scores.

Shapes: B strings, n symbols per string.
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from heedful.basics.symbols import BEGIN, END
from heedful.data.batching import Batch
from heedful.data.positions import SINGLE, Position, Rank, of_rank
from heedful.decoding import SearchOptions, search
from heedful.kernels.cross_entropy import cross_entropy
from heedful.models import PairModel, Source
from heedful.training.protocol import Loss, Validation

Kind = Literal["copy", "reverse"]
FIRST, SYMBOLS = END + 1, 26
VOCABULARY = FIRST + SYMBOLS
LONGEST = 50
"""Length of the longest string in training."""
ROWS = 32
_VALIDATION, _TEST = 1_000, 2_000
"""Seeds of the test strings; those of training are above 10⁹."""
_TO_SPARE = 20
"""The end is forced this number of symbols after the correct place."""


def make_batch(kind: Kind, rows: int, length: int, seed: int) -> Batch:
    """Strings of one length, drawn uniformly, so that symbols cannot be predicted."""
    random = torch.Generator().manual_seed(seed)
    symbols = torch.randint(FIRST, VOCABULARY, (rows, length), generator=random)
    goal = symbols if kind == "copy" else symbols.flip(1)
    end, begin = torch.full((rows, 1), END), torch.full((rows, 1), BEGIN)
    lengths = torch.full((rows,), length + 1)
    return Batch(
        source=torch.cat([symbols, end], 1),
        source_lengths=lengths,
        target_in=torch.cat([begin, goal], 1),
        target_out=torch.cat([goal, end], 1),
        target_lengths=lengths,
        weight=rows * (length + 1),
    )


class CopyTask:
    """Copying or reversing strings of 1 to ``LONGEST`` symbols, as a task for the training loop.

    No string is seen twice. A batch has one length, drawn uniformly.
    """

    def __init__(self, model: PairModel, kind: Kind) -> None:
        self.model, self.kind = model, kind

    def batches(self, position: Position, rank: Rank = SINGLE) -> Iterator[tuple[Position, Batch]]:
        """The batch at an index, which only depends on index and seed."""
        return of_rank(self._order(position), rank)

    def _order(self, position: Position) -> Iterator[tuple[Position, Batch]]:
        seed, epoch, index = position
        while True:
            own = seed * 1_000_000_000 + 2 * index
            random = torch.Generator().manual_seed(own)
            length = int(torch.randint(1, LONGEST + 1, (), generator=random))
            index += 1
            yield Position(seed, epoch, index), make_batch(self.kind, ROWS, length, own + 1)

    def loss(self, batch: Batch) -> Loss:
        """The summed cross-entropy of each next symbol."""
        source = Source(batch.source, batch.source_lengths)
        states = self.model.states(source, batch.target_in).flatten(0, 1)
        total, exact = cross_entropy(
            states, self.model.output_table, batch.target_out.flatten(), 0.0
        )
        return Loss(total, {"loss": exact.sum()})

    def split(self, batch: Batch, count: int, fewest: int = 1024) -> list[Batch]:
        """Returns the batch unchanged: its target has no padding."""
        return [batch]

    def validate(self) -> Validation:
        """The ``loss`` per symbol over strings of ten equally frequent lengths."""
        self.model.eval()
        total, weight = 0.0, 0
        with torch.no_grad():
            for length in range(LONGEST // 10, LONGEST + 1, LONGEST // 10):
                batch = make_batch(self.kind, ROWS // 2, length, _VALIDATION + length)
                total += self.loss(batch).parts["loss"].item() / (length + 1)
                weight += ROWS // 2
        return Validation({"loss": total / weight}, [])

    def tensors(self) -> dict[str, Tensor]:
        """There is no state between batches."""
        return {}

    def load(self, tensors: dict[str, Tensor]) -> None:
        """There is no state to load."""


class Scored(NamedTuple):
    """The scores of the test strings of one length ``[B]``."""

    exact: Tensor
    """1 if the whole output is correct, including its end."""
    symbols: Tensor
    """The fraction of symbols at the correct position."""


def score(model: PairModel, kind: Kind, length: int, count: int, rows: int = 50) -> Scored:
    """Score greedy search on ``count`` strings of ``length`` symbols, the same for every model."""
    batch = make_batch(kind, count, length, _TEST + length)
    exact, symbols = [], []
    model.eval()
    for first in range(0, count, rows):
        part = slice(first, first + rows)
        source = Source(batch.source[part], batch.source_lengths[part])
        here = len(source.tokens)
        limits = torch.full((here,), length + 1 + _TO_SPARE)
        with torch.no_grad():
            found = search(
                model, source, rows=here, options=SearchOptions(beam=1), max_lengths=limits
            )
        for goal, (best,) in zip(batch.target_out[part, :-1].tolist(), found, strict=True):
            right = sum(one == other for one, other in zip(goal, best.tokens, strict=False))
            exact.append(float(list(best.tokens) == goal))
            symbols.append(right / length)
    return Scored(torch.tensor(exact), torch.tensor(symbols))
