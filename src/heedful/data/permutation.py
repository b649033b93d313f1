"""Examples of permutation language modelling: which tokens are predicted, and in which order.

Yang et al. 2019, "XLNet: Generalized Autoregressive Pretraining for Language Understanding",
sections 2.2, 2.3 (partial prediction) and 2.5 (several segments, span-based prediction).
Shapes: B rows, L tokens of a row, N predicted tokens of a row, M tokens before a row.

Rows are those of BERT's pre-training (:mod:`heedful.data.masking`). The last 1/K of a row's random
order is predicted, in that order; all other tokens, BEGIN and END are known. The predicted tokens
are drawn first, in spans, and then their order: this is the order of a permutation of the row as
far as it matters. Everything is a function of (seed, epoch, index), as for masks.

The memory of a row are the M tokens before it in its document. They are read again with each row
instead of being carried from batch to batch, so that batches can be in any order, a resumed
training equals an uninterrupted one, and states do not become outdated. At the beginning of a
document the memory is empty.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.basics.symbols import END, PAD
from heedful.data.batching import FEWEST, even_rows
from heedful.data.mapped import Integers, ranges
from heedful.data.masking import SentencePairs
from heedful.data.positions import SINGLE, Position, Rank, of_rank
from heedful.data.segment_pairs import Draws, Segments
from heedful.models.encoders import Sequences


@dataclass(frozen=True)
class PermutedBatch:
    """Rows with predicted tokens.

    Attributes:
        sequences: the rows, complete: a model must hide what it predicts.
        order: [B, L] the turn of each predicted token, from 0; −1 for known tokens.
        places: [B, N] columns of the predicted tokens; 0 where a row has fewer than N.
        labels: [B, N] the predicted tokens; PAD where a row has fewer.
        earlier: [B, M] the tokens before each row, the last one at the end; PAD where there are
            fewer; None if no row has any.
        weight: number of predicted tokens.
    """

    sequences: Sequences
    order: Tensor
    places: Tensor
    labels: Tensor
    earlier: Tensor | None
    weight: int

    def to(self, device: torch.device | str) -> "PermutedBatch":
        """The same batch on ``device``."""
        moved = [each.to(device, non_blocking=True) for each in self.sequences]
        order, places, labels = (
            each.to(device, non_blocking=True) for each in (self.order, self.places, self.labels)
        )
        earlier = None if self.earlier is None else self.earlier.to(device, non_blocking=True)
        return PermutedBatch(Sequences(*moved), order, places, labels, earlier, self.weight)

    def split(self, count: int, fewest: int = FEWEST) -> list["PermutedBatch"]:
        """Split into at most ``count`` batches of similar size."""
        return [self._rows(rows) for rows in even_rows(self.sequences.lengths, count, fewest)]

    def _rows(self, rows: slice) -> "PermutedBatch":
        labels = self.labels[rows]
        return PermutedBatch(
            Sequences(*(each[rows] for each in self.sequences)),
            self.order[rows],
            self.places[rows],
            labels,
            None if self.earlier is None else self.earlier[rows],
            int((labels != PAD).sum()),
        )

    def left_to_right(self) -> "PermutedBatch":
        """The same rows, in which every token is predicted from the tokens before it."""
        tokens = self.sequences.tokens
        order = torch.arange(-1, tokens.shape[1] - 1).expand_as(tokens)
        usual = tokens > END
        most = max(1, int(usual.sum(1).max()))
        places = (~usual).to(torch.uint8).argsort(dim=1, stable=True)[:, :most]
        there = usual.gather(1, places)
        labels = tokens.gather(1, places).where(there, PAD)
        places = places.where(there, 0)
        return PermutedBatch(self.sequences, order, places, labels, self.earlier, int(there.sum()))


class PermutedRows:
    """Batches of rows in which some tokens are predicted in a random order.

    Args:
        rows: what the rows are.
        one_in: K; one of K tokens is predicted, at least one of each row.
        longest_span: predicted tokens are drawn in spans of 1 to this number of tokens, each
            within K times as many; 1 for single tokens.
        memory: M, the most tokens before a row that are given with it; 0 for none.
    """

    def __init__(
        self, rows: SentencePairs, *, one_in: int = 6, longest_span: int = 5, memory: int = 0
    ) -> None:
        if min(one_in, longest_span) < 1 or memory < 0:
            raise ValueError(f"one_in={one_in}, longest_span={longest_span}, memory={memory}")
        self.rows, self.one_in, self.longest_span, self.memory = rows, one_in, longest_span, memory

    def batches(
        self, position: Position, rank: Rank = SINGLE
    ) -> Iterator[tuple[Position, PermutedBatch]]:
        """An infinite stream of batches from ``position``, each with the position after it.

        Resuming from a position gives the same batches as without an interruption.

        Raises:
            UserError: ``position`` is invalid because the corpus or the batch size has changed.
        """
        for after, (rows, key) in of_rank(self.rows.order(position), rank):
            yield after, self._batch(rows, key)

    def _batch(self, rows: Segments, key: str) -> PermutedBatch:
        tokens, _, row, column = self.rows.read(rows)
        sequences = self.rows.sequences(tokens, row, column, rows.sizes)
        known = np.flatnonzero(tokens > END)
        chosen = known[self._choose(np.bincount(row[known], minlength=len(rows.sizes)), key)]
        # The places of a row are in a random order, which is that of prediction.
        chosen = chosen[np.lexsort((Draws(len(chosen), key).uniform("order"), row[chosen]))]
        counts = np.bincount(row[chosen], minlength=len(rows.sizes))
        turn = ranges(np.zeros_like(counts), counts)
        order = np.full(tuple(sequences.tokens.shape), -1, np.int64)
        order[row[chosen], column[chosen]] = turn
        places = np.zeros((len(counts), max(1, int(counts.max()))), np.int64)
        labels = np.full_like(places, PAD)
        places[row[chosen], turn] = column[chosen]
        labels[row[chosen], turn] = tokens[chosen]
        return PermutedBatch(
            sequences,
            torch.from_numpy(order),
            torch.from_numpy(places),
            torch.from_numpy(labels),
            self._earlier(rows.first[:, 0]),
            len(chosen),
        )

    def _choose(self, sizes: Integers, key: str) -> NDArray[np.bool_]:
        """Whether each token of rows with ``sizes`` [B] tokens is predicted, concatenated.

        A row is divided into blocks, of K tokens for each token of the block's span, which is at
        a random place in the block (section 2.5).
        """
        rows, longest = len(sizes), self.longest_span
        blocks = int(sizes.max(initial=0)) // self.one_in + 1
        draws = Draws(rows * blocks, key)
        spans = 1 + (draws.uniform("span") * longest).astype(np.int64).reshape(rows, blocks)
        widths = self.one_in * spans
        at = (draws.uniform("place").reshape(rows, blocks) * (widths - spans + 1)).astype(np.int64)
        begins = np.cumsum(widths, axis=1) - widths + at
        inside = np.arange(longest)
        places = begins[:, :, None] + inside  # [B, blocks, longest]
        taken = (inside < spans[:, :, None]) & (places < sizes[:, None, None])
        chosen = np.zeros((rows, int(sizes.max(initial=0))), bool)
        row = np.broadcast_to(np.arange(rows)[:, None, None], taken.shape)
        chosen[row[taken], places[taken]] = True
        nothing = np.flatnonzero(~chosen.any(axis=1) & (sizes > 0))
        one = (Draws(rows, key).uniform("one") * sizes).astype(np.int64)
        chosen[nothing, one[nothing]] = True
        found: NDArray[np.bool_] = chosen[np.arange(chosen.shape[1]) < sizes[:, None]]
        return found

    def _earlier(self, first: Integers) -> Tensor | None:
        """The last M tokens before the sentences ``first`` [B] in their documents, [B, M]."""
        corpus = self.rows.corpus
        document = np.searchsorted(corpus.starts, first, side="right") - 1
        # A sentence has at least one token, so M sentences are enough.
        begins = np.maximum(corpus.starts[document], first - self.memory)
        if not self.memory or bool((begins == first).all()):
            return None
        counts = first - begins
        sentences, row = ranges(begins, counts), np.repeat(np.arange(len(first)), counts)
        lengths = corpus.sentences.lengths("tokens", sentences)
        after = _behind(lengths, row, len(first))
        needed = after < self.memory
        found = corpus.sentences.read("tokens", sentences[needed])
        of_token = np.repeat(row[needed], found.lengths)
        before = np.repeat(after[needed] + found.lengths, found.lengths)
        inside = ranges(np.zeros(len(found.lengths), np.int64), found.lengths)
        column = self.memory - before + inside
        kept = column >= 0
        made = np.full((len(first), self.memory), PAD, np.int64)
        made[of_token[kept], column[kept]] = found.values.astype(np.int64)[kept]
        empty = (made == PAD).all(axis=0)
        return torch.from_numpy(made[:, int(np.argmin(empty)) :])


def _behind(lengths: Integers, row: Integers, rows: int) -> Integers:
    """Of each sentence, the number of tokens of its row behind it."""
    whole = np.bincount(row, lengths, minlength=rows).astype(np.int64)
    ends = np.cumsum(whole)
    behind: Integers = ends[row] - np.cumsum(lengths)
    return behind
