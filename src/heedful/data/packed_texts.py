"""Batches of masked tokens with several texts in each row, for encoders that keep texts apart.

Krell et al. 2021, "Efficient Sequence Packing without Cross-contamination", section 3, which packs
the texts of BERT's pre-training.
Shapes: B rows, L tokens of a row, M masked tokens.
"""

from dataclasses import replace

import numpy as np
import torch

from heedful.basics.symbols import PAD
from heedful.data.batching import mix
from heedful.data.masking import MaskedBatch, SentencePairs
from heedful.data.packing import pack
from heedful.data.segment_pairs import Segments
from heedful.models.encoders import Sequences


class PackedTexts(SentencePairs):
    """As :class:`SentencePairs` without pairs, with rows of at most ``max_tokens`` that hold
    several texts, each with BEGIN and END.

    The texts of a pool are packed by best fit, the longest first. A batch has ``batch_tokens`` ÷
    ``max_tokens`` rows, at least one.
    """

    def _pool(self, key: str, number: int) -> list[Segments]:
        """The batches of a pool, in training order; the texts of a row are adjacent."""
        found = self._examples(key, number)
        lengths = 2 + found.sizes[:, 0]
        tie = mix(np.arange(len(lengths), dtype=np.uint64), f"tie {key} {number}")
        order = np.lexsort((tie, -lengths))
        rows = pack(lengths[order].tolist(), self.max_tokens)
        turns = mix(np.arange(len(rows), dtype=np.uint64), f"turn {key} {number}")
        packed = [order[rows[row]] for row in np.argsort(turns, kind="stable")]
        each = max(1, self.batch_tokens // self.max_tokens)
        return [
            found.of(np.concatenate(packed[first : first + each]))
            for first in range(0, len(packed), each)
        ]

    def _batch(self, rows: Segments, key: str) -> MaskedBatch:
        return pack_texts(super()._batch(rows, key), self.max_tokens)


def pack_texts(batch: MaskedBatch, room: int) -> MaskedBatch:
    """Put the rows of a batch one after another into rows of at most ``room`` tokens.

    The chosen tokens keep their order. Each row of the batch is one text.
    """
    tokens, lengths, _ = batch.sequences
    rows, columns = [], []  # the row of each text, and the column of its BEGIN
    row = column = 0
    for length in lengths.tolist():
        if column and column + length > room:
            row, column = row + 1, 0
        rows.append(row)
        columns.append(column)
        column += length
    of, begin = torch.tensor(rows), torch.tensor(columns)
    text, place = (torch.arange(tokens.shape[1]) < lengths[:, None]).nonzero(as_tuple=True)
    at = of[text], begin[text] + place
    ends = torch.zeros(row + 1, dtype=torch.long).index_add_(0, of, lengths)
    packed, documents = (
        torch.full((row + 1, int(ends.max())), value, dtype=torch.long) for value in (PAD, 0)
    )
    packed[at] = tokens[text, place]
    documents[at] = 1 + text
    text, place = batch.places.T
    return replace(
        batch,
        sequences=Sequences(packed, ends, torch.zeros_like(packed)),
        places=torch.stack([of[text], begin[text] + place], dim=1),
        documents=documents,
    )
