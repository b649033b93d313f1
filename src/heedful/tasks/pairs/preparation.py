"""Prepares a run for pairs of texts: held-out pairs, tokeniser, encoded corpus, facts."""

import shutil
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from heedful.basics.errors import UserError
from heedful.basics.notices import notice
from heedful.data.examples import Pair
from heedful.data.filters import filter_pairs
from heedful.data.links import LinkedPair, check_links, read_linked
from heedful.data.memory import Entry, Memory
from heedful.data.overlap import NearDuplicates, near_key
from heedful.data.pair_store import write_pair_store
from heedful.data.protected.pairs import Rules, protect_training_pair
from heedful.data.python_rows import are_rows, read_rows
from heedful.data.readers import read_pairs
from heedful.data.tokeniser import Tokenisers
from heedful.data.units import read_units
from heedful.runs.held_out import part_of
from heedful.runs.start import Start
from heedful.runs.vectors import vector_hashes
from heedful.tasks.pairs.recipe import DataSettings, PairRecipe
from heedful.tasks.pairs.run import MEMORY, PairRun, open_pair_run, write_pairs
from heedful.tasks.preparation import (
    HELD_OUT,
    content_hashes,
    count_overlaps,
    find_files,
    held_out_shares,
    recipe_hashes,
    require_some,
    save_vectors,
    write_run,
)
from heedful.tasks.teaching import teacher_of

P = TypeVar("P", Pair, LinkedPair)


def prepare_run(
    path: Path, recipe: PairRecipe, data_folder: Path | None, start: Start | None = None
) -> PairRun:
    """Make a new run: read, filter and encode the data. Training does not read the files again.

    Args:
        path: the run's folder; files of an interrupted preparation are overwritten.
        recipe: all settings.
        data_folder: base folder of relative paths in the recipe; the current folder if None.
        start: gives tokenisers and initial weights; if None, tokenisers are trained on the corpus
            and weights are random.

    Raises:
        UserError: the data are missing, empty or broken, or the folder cannot be written.
    """
    corpus = _Corpus(recipe, path, data_folder)
    hashes = content_hashes(corpus.files) | vector_hashes(recipe.vectors, data_folder)
    if corpus.linked:
        # Check the links first, so that an error in them is found before training the tokeniser.
        check_links(corpus.read_linked(Counter()), corpus.files["links"][0])
    held_out = {part: corpus.held_out(part) for part in HELD_OUT}
    corpus.near = NearDuplicates(pair.source for pairs in held_out.values() for pair in pairs)
    tokenisers = given_tokenisers(recipe, start) or Tokenisers.train(
        corpus.training, recipe.tokeniser, seed=recipe.seed
    )
    left_out: Counter[str] = Counter()
    train_pairs = _encode(path / "data" / "train", recipe, corpus, tokenisers, left_out)
    tokenisers.save(path / "tokeniser")
    if recipe.keeps_memory:
        corpus.memory().save(path / MEMORY)
    for part, pairs in held_out.items():
        write_pairs(path / "data" / f"{part}.jsonl", pairs)
    overlap = count_overlaps(
        lambda: (pair.source for pair in corpus.filtered()),
        {part: [pair.source for pair in pairs] for part, pairs in held_out.items()},
        lambda part, n, all: f"{n} of {all} {part} sources are also in the training corpus",
    )
    about = {
        "source": recipe.data.source,
        "target": recipe.data.target,
        "data": {
            "hashes": hashes,
            "train_pairs": train_pairs,
            "left_out": dict(left_out),
            **{f"{part}_pairs": len(held_out[part]) for part in HELD_OUT},
            "held_out_sources_in_training": overlap,
            "near_duplicates_in_training": corpus.near_kept,
        },
        "vocabulary": {
            "source": tokenisers.source.size,
            "target": tokenisers.target.size,
            "fingerprint": tokenisers.fingerprint(),
        },
    }
    vectors = save_vectors(path, recipe, lambda side: getattr(tokenisers, side), data_folder)
    write_run(path, recipe, about, vectors, start, {} if start is None else start.weights)
    return open_pair_run(path)


def given_tokenisers(recipe: PairRecipe, start: Start | None) -> Tokenisers | None:
    """Those of the run to start from, or of the teacher; None if there is neither."""
    if start is not None:
        return start_tokenisers(start)
    teacher = teacher_of(recipe)
    return None if teacher is None else open_pair_run(teacher.path).tokenisers()


def _encode(
    folder: Path,
    recipe: PairRecipe,
    corpus: "_Corpus",
    tokenisers: Tokenisers,
    left_out: Counter[str],
) -> int:
    """Write the encoded training pairs; returns their number."""
    shutil.rmtree(folder, ignore_errors=True)
    written = write_pair_store(
        corpus.training_linked(left_out) if corpus.linked else corpus.training(left_out),
        tokenisers,
        folder,
        max_tokens=recipe.data.max_tokens,
        left_out=left_out,
        linked=corpus.linked,
    )
    if not written:
        raise UserError(
            f"the training corpus {', '.join(recipe.data.train)} is empty"
            + (f" after leaving out {_counts(left_out)}" if left_out else "")
        )
    if left_out:
        notice(f"left out of training: {_counts(left_out)}")
    if corpus.near_kept:
        notice(
            f"{corpus.near_kept:,} training pairs are near-duplicates of validation or test "
            "sources; scores on them are too optimistic (data.keep_near_duplicates = false leaves "
            "them out)"
        )
    return written


def start_tokenisers(start: Start) -> Tokenisers:
    """The tokenisers of the run that another starts from.

    Raises:
        UserError: that run is not for pairs of texts.
    """
    return open_pair_run(start.run.path).tokenisers()


def data_hashes(recipe: PairRecipe, data_folder: Path | None) -> dict[str, list[str]]:
    """The content hashes of each part, which are compared when a run is resumed."""
    return recipe_hashes(_named(recipe.data), recipe.vectors, data_folder, folders=True)


def _named(data: DataSettings) -> dict[str, list[str]]:
    return data.files | ({} if data.links is None else {"links": [data.links]})


class _Corpus:
    """The data of a recipe: training pairs, which can be read repeatedly, and held-out pairs."""

    def __init__(self, recipe: PairRecipe, path: Path, data_folder: Path | None) -> None:
        self.settings: DataSettings = recipe.data
        self.seed = recipe.seed
        self.linked = self.settings.links is not None
        if self.settings.links == "-":
            raise UserError("data.links cannot be standard input, because it is read twice")
        spooled = path / "data" / "standard-input"
        self.files = find_files(_named(self.settings), data_folder, spooled, folders=True)
        self.shares = held_out_shares(self.files, self.settings)
        self.near = NearDuplicates()
        self.near_kept = 0
        """Near-duplicates of held-out sources among the pairs that were encoded."""

    def read(self, part: str, left_out: Counter[str] | None = None) -> Iterator[Pair]:
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

    def filtered(self, left_out: Counter[str] | None = None) -> Iterator[Pair]:
        """The training pairs, filtered, without those held out."""
        counted: Counter[str] = Counter() if left_out is None else left_out
        kept = (pair for pair in self.read("train", counted) if self._part(pair) == "train")
        pairs = filter_pairs(kept, self.settings.filters, counted)
        if left_out is None and self.settings.keep_near_duplicates:
            return pairs  # they are counted once, when the pairs are encoded
        return self._without_near(pairs, counted)

    def _without_near(self, pairs: Iterator[P], left_out: Counter[str]) -> Iterator[P]:
        """The pairs without near-duplicates of held-out sources; if they are kept, count them."""
        keep = self.settings.keep_near_duplicates
        for pair in pairs:
            found = self.near.find(pair.source)
            self.near_kept += keep and found == "near"
            if keep or found is None:
                yield pair
            else:
                left_out["near-duplicate of a validation or test source"] += 1

    def training(self, left_out: Counter[str] | None = None) -> Iterator[Pair]:
        """As `filtered`, with placeholders in place of protected spans."""
        pairs, rules = self.filtered(left_out), self.settings.rules
        if rules is None:
            return pairs
        return self._protected(pairs, rules, Counter() if left_out is None else left_out)

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

    def memory(self) -> Memory:
        """The units of the training corpus, without those held out, with their contexts."""
        contexts: dict[tuple[str, str], str | None] = {}
        if len(self.files["train"]) == 1 and not are_rows(self.files["train"]):
            units = read_units(self.files["train"][0], encoding=self.settings.encoding)
            contexts = {(unit.source, unit.target): unit.context for unit in units if unit.context}
        memory = Memory()
        for pair in self._as_filed("train", Counter()):
            context = contexts.get(pair)
            one = Pair(pair.target, pair.source) if self.settings.reversed else pair
            if self._part(one) == "train":
                memory.add(Entry(one.source, one.target, context))
        return memory

    def training_linked(self, left_out: Counter[str]) -> Iterator[LinkedPair]:
        """Like `filtered`, each pair with its links."""
        kept = (pair for pair in self.read_linked(left_out) if self._part(pair) == "train")
        pairs = filter_pairs(kept, self.settings.filters, left_out)
        return self._without_near(pairs, left_out)

    def held_out(self, part: str) -> list[Pair]:
        """The validation or test pairs: from their own files, or a share of the training corpus."""
        if self.files[part]:
            pairs = list(self.read(part))
            require_some(pairs, self.files[part], f"data.{part}")
            return pairs
        if not self.shares[part]:
            return []
        own = (pair for pair in self.read("train", Counter()) if self._part(pair) == part)
        left_out: Counter[str] = Counter()
        pairs = list(filter_pairs(own, self.settings.filters, left_out))
        if left_out:
            notice(f"left out of {part}: {_counts(left_out)}")
        return pairs

    def _part(self, pair: Pair | LinkedPair) -> str:
        """The part of a pair; pairs with the same source are in the same part.

        So are near-duplicates, if they are not to be in training: none is lost then.
        """
        keep = self.settings.keep_near_duplicates
        text = pair.source if keep or not any(self.shares.values()) else near_key(pair.source)
        return part_of(text, self.seed, self.shares)


def _counts(left_out: Counter[str]) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in left_out.most_common())
