"""The data of a recipe for pairs of texts: training pairs, held-out pairs, translation memory."""

import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from heedful.basics.errors import UserError
from heedful.basics.notices import notice
from heedful.data.examples import Pair
from heedful.data.filters import failed_filter, filter_pairs
from heedful.data.links import LinkedPair, read_linked
from heedful.data.memory import Entry, Memory
from heedful.data.overlap import NearDuplicates, Overlap, near_key
from heedful.data.protected.pairs import Rules, protect_training_pair
from heedful.data.python_rows import are_rows, read_rows
from heedful.data.readers import has_contexts, read_pairs
from heedful.data.readers.folders import bilingual_files
from heedful.data.subwords import SAMPLE_TEXTS, Reservoir
from heedful.data.tokeniser import Tokenisers
from heedful.data.units import read_units
from heedful.runs.held_out import part_of
from heedful.tasks.pairs.recipe import DataSettings, PairRecipe
from heedful.tasks.preparation import (
    HELD_OUT,
    find_files,
    held_out_shares,
    is_large,
    require_some,
)

P = TypeVar("P", Pair, LinkedPair)


class Corpus:
    """The data of a recipe.

    The training files are read once for the held-out pairs (unless these have files of their own),
    once for the vocabulary, and once to encode them. Files that are large (see
    :func:`heedful.tasks.preparation.is_large`) are read once for the first two, and the vocabulary
    is learnt from a random sample that is drawn before pairs are filtered.

    Args:
        recipe: all settings.
        path: the run's folder.
        data_folder: base folder of relative paths in the recipe.

    Raises:
        UserError: a file is missing or cannot be read.
    """

    def __init__(self, recipe: PairRecipe, path: Path, data_folder: Path | None) -> None:
        self.settings: DataSettings = recipe.data
        self.seed = recipe.seed
        self.linked = self.settings.links is not None
        if self.settings.links == "-":
            raise UserError("data.links cannot be standard input, because it is read twice")
        spooled = path / "data" / "standard-input"
        named = named_files(self.settings)
        self.files = find_files(named, data_folder, spooled, files_of=bilingual_files)
        self.shares = held_out_shares(self.files, self.settings)
        self.large = is_large(self.files["train"], bilingual_files)
        self.near = NearDuplicates()
        self.near_kept = 0
        """Near-duplicates of held-out sources among the pairs that were encoded."""
        self.count: int | None = None
        """The number of pairs to encode, exactly or before filtering; None if it is unknown."""
        self.overlaps: dict[str, Overlap] = {}
        """Counts the held-out sources among the pairs that are encoded."""
        self._memory: Memory | None = None
        self._contexts: dict[tuple[str, str], str] = {}
        self._sample: Reservoir[Pair] | None = None

    def read(self, part: str, left_out: Counter[str] | None = None) -> Iterator[Pair]:
        """All pairs of a part."""
        pairs = self._as_filed(part, left_out)
        if self.settings.reversed:
            return (Pair(pair.target, pair.source) for pair in pairs)
        return pairs

    def read_linked(self, left_out: Counter[str]) -> Iterator[LinkedPair]:
        """The training pairs, each with its links."""
        pairs = read_linked(self._as_filed("train", left_out), self.files["links"][0])
        return (pair.reversed() for pair in pairs) if self.settings.reversed else pairs

    def _as_filed(self, part: str, left_out: Counter[str] | None) -> Iterator[Pair]:
        """The pairs in the order of the files' sides."""
        settings = self.settings
        if are_rows(self.files[part]):
            return (Pair(*row) for row in read_rows(self.files[part]))
        # The languages are those of the model; the sides of the files may be reversed.
        first, second = settings.source, settings.target
        if settings.reversed:
            first, second = second, first
        return read_pairs(
            self.files[part],
            source=first,
            target=second,
            encoding=settings.encoding,
            left_out=left_out,
        )

    def held_out(self) -> dict[str, list[Pair]]:
        """The pairs of each part: from its own files, or a share of the training corpus.

        Near-duplicates of them are recognised afterwards.
        """
        found: dict[str, list[Pair]] = {part: [] for part in HELD_OUT}
        shared = [part for part in HELD_OUT if self.shares[part] and not self.files[part]]
        if shared:
            for pair in self._sampled(self.read("train", Counter())):
                part = self._part(pair)
                if part in shared:
                    found[part].append(pair)
        for part in HELD_OUT:
            if self.files[part]:
                found[part] = list(self.read(part))
                require_some(found[part], self.files[part], f"data.{part}")
            elif part in shared:
                left_out: Counter[str] = Counter()
                found[part] = list(filter_pairs(found[part], self.settings.filters, left_out))
                if left_out:
                    notice(f"left out of {part}: {counts(left_out)}")
        self.near = NearDuplicates(pair.source for pairs in found.values() for pair in pairs)
        self.overlaps = {
            part: Overlap(pair.source for pair in pairs) for part, pairs in found.items()
        }
        return found

    def _sampled(self, pairs: Iterator[Pair]) -> Iterator[Pair]:
        """The pairs; those of a large corpus are also sampled for the vocabulary."""
        if not self.large:
            yield from pairs
            return
        sample = Reservoir[Pair](SAMPLE_TEXTS, self.seed)
        for pair in pairs:
            sample.add(pair)
            yield pair
        self._sample, self.count = sample, sample.total

    def tokenisers(self, recipe: PairRecipe) -> Tokenisers:
        """Tokenisers that are trained on the corpus.

        Raises:
            UserError: see :meth:`heedful.data.tokeniser.Tokenisers.train`.
        """
        if not self.large:
            return Tokenisers.train(self._counted, recipe.tokeniser, seed=recipe.seed)
        if self._sample is None:
            for _ in self._sampled(self.read("train", Counter())):
                pass
        assert self._sample is not None
        drawn, total, self._sample = self._sample.kept, self._sample.total, None
        notice(
            f"the vocabulary is learnt from a random sample: {len(drawn):,} of {total:,} pairs, "
            "drawn before they are filtered"
        )
        return Tokenisers.train(
            lambda: self._training(iter(drawn), Counter(), counting=False),
            recipe.tokeniser,
            seed=recipe.seed,
        )

    def _counted(self) -> Iterator[Pair]:
        """The training pairs; counts them."""
        count = 0
        for pair in self._training(self.read("train", Counter())):
            count += 1
            yield pair
        self.count = count

    def training(self, left_out: Counter[str]) -> Iterator[Pair]:
        """The pairs to encode: filtered, with placeholders in place of protected spans."""
        return self._training(self._known(self.read("train", left_out)), left_out, counting=True)

    def _training(
        self, pairs: Iterator[Pair], left_out: Counter[str] | None = None, *, counting: bool = False
    ) -> Iterator[Pair]:
        counted: Counter[str] = Counter() if left_out is None else left_out
        kept = (pair for pair in pairs if self._part(pair) == "train")
        found = filter_pairs(kept, self.settings.filters, counted)
        if counting or not self.settings.keep_near_duplicates:
            found = self._without_near(found, counted, counting=counting)
        rules = self.settings.rules
        return found if rules is None else self._protected(found, rules, counted)

    def training_linked(self, left_out: Counter[str]) -> Iterator[LinkedPair]:
        """Like `training`, each pair with its links."""
        read = self._known(self.read_linked(left_out))
        kept = (pair for pair in read if self._part(pair) == "train")
        pairs = filter_pairs(kept, self.settings.filters, left_out)
        return self._without_near(pairs, left_out, counting=True)

    def _without_near(
        self, pairs: Iterator[P], left_out: Counter[str], *, counting: bool
    ) -> Iterator[P]:
        """The pairs without near-duplicates of held-out sources; if they are kept, count them."""
        keep = self.settings.keep_near_duplicates
        overlaps = list(self.overlaps.values()) if counting else []
        for pair in pairs:
            found = self.near.find(pair.source)
            self.near_kept += counting and keep and found == "near"
            if keep or found is None:
                for overlap in overlaps:
                    overlap.see(pair.source)
                yield pair
            else:
                left_out["near-duplicate of a validation or test source"] += 1

    @staticmethod
    def _protected(pairs: Iterator[Pair], rules: Rules, left_out: Counter[str]) -> Iterator[Pair]:
        for pair in pairs:
            # Numbers that start anywhere train all placeholders, and follow from the pair alone.
            first = zlib.crc32(pair.source.encode("utf-8", "replace"))
            protected = protect_training_pair(pair, rules, first)
            if protected is None:
                left_out["with protected spans that only the target has"] += 1
            else:
                yield protected

    def keep_memory(self) -> Memory:
        """The units of the training corpus, which is filled while the corpus is encoded."""
        train = self.files["train"]
        if len(train) == 1 and not are_rows(train) and has_contexts(train[0]):
            units = read_units(train[0], encoding=self.settings.encoding)
            self._contexts = {
                (unit.source, unit.target): unit.context for unit in units if unit.context
            }
        self._memory = Memory()
        return self._memory

    def _known(self, pairs: Iterator[P]) -> Iterator[P]:
        """The pairs; those to train on are added to the translation memory, if any, and duplicates
        each time."""
        memory = self._memory
        if memory is None:
            yield from pairs
            return
        for pair in pairs:
            if self._is_trained(pair):
                filed = (pair.source, pair.target)
                key = filed[::-1] if self.settings.reversed else filed
                memory.add(Entry(*filed, self._contexts.get(key)))
            yield pair

    def _is_trained(self, pair: Pair | LinkedPair) -> bool:
        """Whether a pair is neither held out, nor filtered, nor too near to a held-out source."""
        return (
            self._part(pair) == "train"
            and failed_filter(pair, self.settings.filters) is None
            and (self.settings.keep_near_duplicates or self.near.find(pair.source) is None)
        )

    def _part(self, pair: Pair | LinkedPair) -> str:
        """The part of a pair; pairs with the same source are in the same part.

        So are near-duplicates, if they are not to be in training: none is lost then.
        """
        keep = self.settings.keep_near_duplicates
        text = pair.source if keep or not any(self.shares.values()) else near_key(pair.source)
        return part_of(text, self.seed, self.shares)


def named_files(data: DataSettings) -> dict[str, list[str]]:
    """The files that a recipe names, by part."""
    return data.files | ({} if data.links is None else {"links": [data.links]})


def counts(left_out: Counter[str]) -> str:
    """The numbers of pairs left out, for messages."""
    return ", ".join(f"{count:,} {reason}" for reason, count in left_out.most_common())
