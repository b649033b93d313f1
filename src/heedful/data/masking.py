"""Examples of BERT's pre-training: masked tokens, and whether one segment follows another.

Shapes: B rows, L tokens of a row, M masked places.

Everything is a function of (seed, epoch, index): the order of documents, the pairs of segments, and
the masked tokens, which are drawn again in every epoch (dynamic masking, Liu et al. 2019, section
4.1). An epoch is a pseudo-random permutation of stretches of documents, divided into pools. The
examples of a pool are sorted by length, and its batches are shuffled.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.basics.errors import UserError
from heedful.basics.symbols import BEGIN, END, PAD
from heedful.data.batching import FEWEST
from heedful.data.document_store import EncodedDocuments
from heedful.data.mapped import Integers, ranges
from heedful.data.order import FullOrder, WindowOrder, mix
from heedful.data.positions import SINGLE, Position, Rank, of_rank
from heedful.data.segment_pairs import Draws, Rule, Segments, segments
from heedful.data.store import Store
from heedful.data.vocabulary import Vocabulary
from heedful.models.encoders import Sequences

MASKED, RANDOM = 0.8, 0.1
"""Shares of chosen tokens that become the mask and a random token (Devlin, A.1)."""

STRETCH = 256
"""Maximum number of sentences of a stretch; longer documents are divided."""

POOL = 512
"""Number of stretches whose examples are sorted by length together."""

_SPAN = 1 << 20
"""Positions reserved for a pool, which has fewer batches."""


@dataclass(frozen=True)
class MaskedBatch:
    """Rows with masked tokens.

    Attributes:
        sequences: the rows, in which chosen tokens are replaced.
        places: [M, 2] row and column of each chosen token, in order.
        labels: [M] the original tokens.
        next_labels: [B] 0 if the second segment follows the first, 1 if it is from another
            document, or, with ``sentence_order``, comes before it; −1 for a row that has no second
            segment; None if rows have one segment.
        weight: B; the number of texts, if rows are packed.
        draws: [M] uniform numbers from 0 to 1 that sample a replacement of each chosen token; None
            unless tokens are replaced by a generator.
        tokens: number of tokens of the rows, without PAD.
        documents: [B, L] the number of each token's text from 1, 0 for PAD; None if a row is one
            text.
    """

    sequences: Sequences
    places: Tensor
    labels: Tensor
    next_labels: Tensor | None
    weight: int
    draws: Tensor | None = None
    tokens: int = 0
    documents: Tensor | None = None

    def to(self, device: torch.device | str) -> "MaskedBatch":
        """The same batch on ``device``."""
        moved = [each.to(device, non_blocking=True) for each in self.sequences]
        follows, draws, documents = self.next_labels, self.draws, self.documents
        return MaskedBatch(
            Sequences(*moved),
            self.places.to(device, non_blocking=True),
            self.labels.to(device, non_blocking=True),
            None if follows is None else follows.to(device, non_blocking=True),
            self.weight,
            None if draws is None else draws.to(device, non_blocking=True),
            self.tokens,
            None if documents is None else documents.to(device, non_blocking=True),
        )

    def split(self, count: int, fewest: int = FEWEST) -> list["MaskedBatch"]:
        """The batch is not split: its loss is a mean over masked tokens, not a sum over rows."""
        return [self]


class RowTokens(NamedTuple):
    """The tokens of rows, concatenated."""

    tokens: Integers
    """[n] without BEGIN and END."""
    starts: NDArray[np.bool_]
    """[n] whether a sentence begins at the token."""
    row: Integers
    """[n] the row of each token."""
    column: Integers
    """[n] its place in the row, where BEGIN is at 0."""


class SentencePairs:
    """Pre-training batches of a corpus: rows × the longest row is at most ``batch_tokens``.

    Args:
        corpus: the encoded documents.
        vocabulary: the vocabulary of the corpus, with a mask.
        max_tokens: maximum length of a row, including BEGIN and END.
        batch_tokens: maximum batch size in tokens, including padding.
        next_sentence: whether rows are pairs of segments; else they are consecutive sentences of a
            document.
        sentence_order: whether rows are pairs of consecutive segments, half of them in the other
            order (Lan et al. 2020, section 3.1); then without ``next_sentence``.
        whole_words: choose all tokens of a word or none.
        masked: share of chosen tokens; at least one token (or word) of each row.
        short: share of rows with a random length below ``max_tokens``.
        replaced: whether a generator replaces the chosen tokens: all of them are masked, and the
            batch has ``draws``.
        window: number of sentences that are shuffled together, see `WindowOrder`, and of which
            random second segments are drawn; all sentences if None.

    Raises:
        UserError: the vocabulary has no mask or is not that of the corpus, there is only one
            document for pairs, or sentences are too long for the rows.
    """

    def __init__(
        self,
        corpus: EncodedDocuments,
        vocabulary: Vocabulary,
        *,
        max_tokens: int,
        batch_tokens: int,
        next_sentence: bool = True,
        whole_words: bool = False,
        masked: float = 0.15,
        short: float = 0.1,
        sentence_order: bool = False,
        replaced: bool = False,
        window: int | None = None,
    ) -> None:
        if next_sentence and sentence_order:
            raise ValueError("pairs are for next sentences or for their order, not for both")
        self.pairs = next_sentence or sentence_order
        room = max_tokens - (3 if self.pairs else 2)
        _check(corpus, vocabulary, room // 2 if self.pairs else room, next_sentence)
        if not 0 < masked <= 1 or not 0 <= short <= 1 or batch_tokens < 1:
            raise ValueError(f"masked={masked}, short={short}, batch_tokens={batch_tokens}")
        self.corpus = corpus
        self.batch_tokens = batch_tokens
        self.max_tokens = max_tokens
        self.replaced = replaced
        self._rule = Rule(room, self.pairs, short, sentence_order)
        self._hide = _MaskRule(vocabulary, masked, whole_words, always=replaced)
        self._stretches = _stretches(corpus.starts)
        self._order: FullOrder | WindowOrder = FullOrder(len(self._stretches))
        if window is not None:
            self._order = _window_order(corpus.sentences, self._stretches, window)
            corpus.sentences.verify_at_once()
        corpus.sentences.require_cache(self._order.share_at_once)

    def batches(
        self, position: Position, rank: Rank = SINGLE
    ) -> Iterator[tuple[Position, MaskedBatch]]:
        """An infinite stream of batches from ``position``, each with the position after it.

        Every sentence is in exactly one row of an epoch, in a first segment or one that follows it.
        Resuming from a position gives the same batches as without an interruption.

        Raises:
            UserError: ``position`` is invalid because the corpus or the batch size has changed.
        """
        for after, (rows, key) in of_rank(self.order(position), rank):
            yield after, self._batch(rows, key)

    def order(self, position: Position) -> Iterator[tuple[Position, tuple[Segments, str]]]:
        """The segments of each batch, and the key of its random masks."""
        seed, epoch, index = position
        pools = -(-len(self._stretches) // POOL)
        while True:
            number, place = divmod(index, _SPAN)
            rows = self._pool(f"{seed} {epoch}", number) if 0 <= number < pools else []
            if place >= len(rows):
                raise UserError(
                    f"{self.corpus.sentences.folder}: there is no batch at {tuple(position)} "
                    "(seed, epoch, index); the corpus or training.batch_tokens differs from "
                    "the run's"
                )
            for turn in range(place, len(rows)):
                index = number * _SPAN + turn + 1
                if turn + 1 == len(rows):
                    last = number + 1 == pools
                    after = (epoch + 1, 0) if last else (epoch, (number + 1) * _SPAN)
                else:
                    after = (epoch, index)
                key = f"{seed} {epoch} {number} {turn}"
                yield Position(seed, *after), (rows[turn], key)
            epoch, index = after

    def once(self) -> Iterator[MaskedBatch]:
        """Every sentence once, with fixed rows and fixed masked tokens."""
        for number in range(-(-len(self._stretches) // POOL)):
            for turn, rows in enumerate(self._pool("once", number)):
                yield self._batch(rows, f"once {number} {turn}")

    def _pool(self, key: str, number: int) -> list[Segments]:
        """The batches of a pool, in training order."""
        found = self._examples(key, number)
        sizes = found.sizes.sum(axis=1)
        tie = mix(np.arange(len(sizes), dtype=np.uint64), f"tie {key} {number}")
        order = np.lexsort((tie, sizes))
        rows = self.batch_tokens // (sizes[order] + (3 if self.pairs else 2))
        cuts, start = [], 0
        for place, most in enumerate(rows.tolist()):
            if place > start and place - start + 1 > most:
                cuts.append(place)
                start = place
        made = [found.of(of) for of in np.split(order, cuts)]
        turns = mix(np.arange(len(made), dtype=np.uint64), f"turn {key} {number}")
        return [made[turn] for turn in np.argsort(turns, kind="stable")]

    def _examples(self, key: str, number: int) -> Segments:
        """The examples of a pool, in the order of their documents."""
        ranks = np.arange(number * POOL, min((number + 1) * POOL, len(self._stretches)))
        chosen = self._stretches[self._order(ranks, key)]
        near = isinstance(self._order, WindowOrder)
        return segments(self.corpus, chosen, self._rule, f"{key} {number}", near=near)

    def read(self, rows: Segments) -> "RowTokens":
        """The tokens of rows."""
        runs = np.stack([rows.first, rows.second], axis=1).reshape(-1, 2)
        sentences = ranges(runs[:, 0], runs[:, 1] - runs[:, 0])
        found = self.corpus.sentences.read("tokens", sentences)
        tokens, lengths = found.values.astype(np.int64), found.lengths
        starts = np.zeros(len(tokens), bool)
        starts[(np.cumsum(lengths) - lengths)] = True

        # Of each token: its run (0 and 1 are the first row's), and its place in the run.
        of_sentence = np.repeat(np.arange(len(runs)), runs[:, 1] - runs[:, 0])
        run = np.repeat(of_sentence, lengths)
        size = np.bincount(run, minlength=len(runs))
        inside = np.arange(len(tokens)) - np.repeat(np.cumsum(size) - size, size)
        kept = inside < rows.sizes.ravel()[run]
        tokens, starts, run, inside = tokens[kept], starts[kept], run[kept], inside[kept]

        row = run // 2
        column = 1 + inside + np.where(run % 2, rows.sizes[row, 0] + 1, 0)
        return RowTokens(tokens, starts, row, column)

    def _batch(self, rows: Segments, key: str) -> MaskedBatch:
        tokens, starts, row, column = self.read(rows)
        chosen, put = self._hide(tokens, starts, row, key)
        labels = torch.from_numpy(tokens[chosen])
        tokens[chosen] = put
        places = torch.from_numpy(np.stack([row[chosen], column[chosen]], axis=1))
        decided = rows.decided.astype(np.int64)
        follows = torch.from_numpy(decided) if self.pairs else None
        sequences = self.sequences(tokens, row, column, rows.sizes)
        draws = None
        if self.replaced:
            draws = torch.from_numpy(Draws(len(labels), key).uniform("replace"))
        return MaskedBatch(
            sequences, places, labels, follows, len(rows.sizes), draws, int(sequences.lengths.sum())
        )

    def sequences(
        self, tokens: Integers, row: Integers, column: Integers, sizes: Integers
    ) -> Sequences:
        """Rows with BEGIN and the ENDs, of tokens [n] at a row [n] and column [n].

        Args:
            tokens: the tokens.
            row: of each.
            column: of each.
            sizes: [B, 2] number of tokens of both segments of each row.
        """
        first, second = 2 + sizes[:, 0], sizes[:, 1] + 1
        lengths = first + second if self.pairs else first
        made = np.full((len(sizes), int(lengths.max())), PAD, np.int64)
        made[:, 0] = BEGIN
        made[row, column] = tokens
        rows, columns = np.arange(len(sizes)), np.arange(made.shape[1])
        made[rows, first - 1] = END
        made[rows, lengths - 1] = END
        in_second = (columns >= first[:, None]) & (columns < lengths[:, None])
        return Sequences(
            torch.from_numpy(made),
            torch.from_numpy(lengths),
            torch.from_numpy(in_second.astype(np.int64)),
        )


class _MaskRule:
    """Chooses tokens and their replacements; ``always``: all of these are the mask."""

    def __init__(
        self, vocabulary: Vocabulary, share: float, whole_words: bool, *, always: bool = False
    ) -> None:
        if vocabulary.mask is None:
            raise UserError(
                "the vocabulary has no mask; make it with one (mask = true in its settings)"
            )
        self.mask = vocabulary.mask
        self.share, self.always = share, always
        self._begins: NDArray[np.bool_] | None = None
        if whole_words:
            self._begins = np.zeros(vocabulary.size, bool)
            self._begins[vocabulary.word_starts()] = True
        usual = np.arange(END + 1, vocabulary.size)
        self._usual = usual[usual != self.mask]

    def __call__(
        self, tokens: Integers, starts: NDArray[np.bool_], rows: Integers, key: str
    ) -> tuple[Integers, Integers]:
        """Choose some of ``tokens`` [n]: their indices [M] and replacements [M].

        Args:
            tokens: [n] the concatenated rows.
            starts: [n] whether a sentence begins at the token.
            rows: [n] the row of each token.
            key: the key of the random numbers.
        """
        usual = np.flatnonzero((tokens > END) & (tokens != self.mask))
        group = np.arange(len(usual))
        if self._begins is not None:
            # A word ends where the next one begins; tokens that are never chosen also end words.
            apart = np.cumsum((tokens <= END) | (tokens == self.mask))
            begins = (self._begins[tokens] | starts)[usual]
            begins[1:] |= np.diff(apart[usual]) > 0
            begins[1:] |= np.diff(rows[usual]) > 0
            group = np.cumsum(begins) - begins[:1].sum()
        chosen = usual[self._choose(group, rows[usual], key)]
        if self.always:
            return chosen, np.full(len(chosen), self.mask, tokens.dtype)
        draws = Draws(len(chosen), key)
        action = draws.uniform("action")
        others = self._usual[(draws.uniform("other") * len(self._usual)).astype(np.int64)]
        put = np.where(action < MASKED, self.mask, tokens[chosen])
        put = np.where((action >= MASKED) & (action < MASKED + RANDOM), others, put)
        return chosen, put

    def _choose(self, group: Integers, rows: Integers, key: str) -> NDArray[np.bool_]:
        """Whether each token [n] is chosen: groups in random order, until a row has its share.

        The number of chosen tokens of a row is as near to its share as possible; at least one
        group is chosen.
        """
        if not len(group):
            return np.zeros(0, bool)
        sizes = np.bincount(group)
        row = rows[np.searchsorted(group, np.arange(len(sizes)))]
        order = np.lexsort((Draws(len(sizes), key).uniform("choose"), row))
        sizes, row = sizes[order], row[order]
        before = np.cumsum(sizes) - sizes
        of_row = np.bincount(row, sizes)
        before -= (np.cumsum(of_row) - of_row).astype(np.int64)[row]
        wanted = np.maximum(1, np.rint(self.share * of_row))[row]
        taken = np.empty(len(sizes), bool)
        taken[order] = (before == 0) | (before + sizes / 2 <= wanted)
        found: NDArray[np.bool_] = taken[group]
        return found


def _stretches(starts: Integers) -> Integers:
    """Divide documents into stretches of up to `STRETCH` sentences [n, 2]: first, after last."""
    sizes = np.diff(starts)
    counts = -(-sizes // STRETCH)
    begins = np.repeat(starts[:-1], counts) + STRETCH * ranges(np.zeros_like(counts), counts)
    ends = np.minimum(begins + STRETCH, np.repeat(starts[1:], counts))
    return np.stack([begins, ends], axis=1)


def _window_order(sentences: Store, stretches: Integers, window: int) -> WindowOrder:
    """The order of stretches in windows of whole shards."""
    shards = np.searchsorted(sentences.starts, stretches[:, 0], side="right") - 1
    sizes = np.bincount(shards, minlength=len(sentences.shard_sizes))
    return WindowOrder(sizes, window, sentences.shard_sizes)


def _check(
    corpus: EncodedDocuments, vocabulary: Vocabulary, longest: int, next_sentence: bool
) -> None:
    folder = corpus.sentences.folder
    if vocabulary.fingerprint() != corpus.fingerprint:
        raise UserError(
            f"{folder}: encoded with another vocabulary than the one given; encode the corpus again"
        )
    if corpus.longest > longest:
        raise UserError(
            f"{folder}: sentences of up to {corpus.longest} tokens do not fit into rows of "
            f"{longest}; encode the corpus again with longest={longest}, or raise max_tokens"
        )
    if next_sentence and len(corpus) < 2:
        raise UserError(
            f"{folder}: only one document; predicting next sentences needs several: "
            "give more documents (with an empty line between them), or turn next sentences off"
        )
