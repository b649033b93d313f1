"""From files to a run that can train: held-out pairs, tokeniser, encoded corpus, facts."""

import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from heedful.basics.errors import UserError
from heedful.basics.files import atomic_file, content_hash
from heedful.basics.notices import notice
from heedful.data.examples import Pair
from heedful.data.filters import filter_pairs
from heedful.data.links import LinkedPair, check_links, read_linked
from heedful.data.overlap import count_overlap
from heedful.data.pair_store import write_pair_store
from heedful.data.python_rows import are_rows, read_rows
from heedful.data.readers import read_pairs
from heedful.data.tokeniser import Tokenisers
from heedful.runs.checkpoints import save_checkpoint
from heedful.runs.holding_out import part_of
from heedful.runs.recipe import find_data, write_toml
from heedful.runs.run import FORMAT
from heedful.runs.sealing import write_facts, write_recipe
from heedful.runs.start import Start, made_with
from heedful.runs.vectors import Given, keep_vectors, vector_hashes
from heedful.tasks.pairs.recipe import DataSettings, PairRecipe
from heedful.tasks.pairs.run import PairRun, open_pair_run, write_pairs


def prepare_run(
    path: Path, recipe: PairRecipe, data_folder: Path | None, start: Start | None = None
) -> PairRun:
    """Make a new run: read, filter and encode the data once; nothing of it is read again.

    Args:
        path: the run's folder; what an interrupted preparation left there is made anew.
        recipe: all settings.
        data_folder: where relative paths of the recipe start; the current folder if None.
        start: tokenisers and first weights; trained on the corpus and drawn if None.

    Raises:
        UserError: the data are missing, empty or broken, or the folder cannot be written.
    """
    corpus = _Corpus(recipe, path, data_folder)
    hashes = {
        part: [content_hash(Path(file)) for file in corpus.files[part]] for part in corpus.files
    } | vector_hashes(recipe.vectors, data_folder)
    if corpus.linked:
        # Now, in one pass: a mistake in the links should not cost a tokeniser's training.
        check_links(corpus.read_linked(Counter()), corpus.files["links"][0])
    held_out = {part: corpus.held_out(part) for part in ("validation", "test")}
    tokenisers = (
        Tokenisers.train(corpus.training, recipe.tokeniser, seed=recipe.seed)
        if start is None
        else start_tokenisers(start)
    )
    left_out: Counter[str] = Counter()
    train_folder = path / "data" / "train"
    shutil.rmtree(train_folder, ignore_errors=True)
    count = _Counted(
        corpus.training_linked(left_out) if corpus.linked else corpus.training(left_out)
    )
    write_pair_store(
        count,
        tokenisers,
        train_folder,
        max_tokens=recipe.data.max_tokens,
        left_out=left_out,
        linked=corpus.linked,
    )
    long = sum(n for reason, n in left_out.items() if "tokens" in reason)
    if count.pairs - long <= 0:
        raise UserError(
            f"the training corpus {', '.join(recipe.data.train)} is empty"
            + (f" after leaving out {_counts(left_out)}" if left_out else "")
        )
    if left_out:
        notice(f"left out of training: {_counts(left_out)}")
    tokenisers.save(path / "tokeniser")
    for part, pairs in held_out.items():
        write_pairs(path / "data" / f"{part}.jsonl", pairs)
    overlap = _warn_of_overlap(corpus, held_out)
    write_recipe(path, write_toml(recipe))
    facts = {
        "format": FORMAT,
        "task": recipe.task,
        "made_with": made_with(),
        "source": recipe.data.source,
        "target": recipe.data.target,
        "data": {
            "hashes": hashes,
            "train_pairs": count.pairs - long,
            "left_out": dict(left_out),
            "validation_pairs": len(held_out["validation"]),
            "test_pairs": len(held_out["test"]),
            "held_out_sources_in_training": overlap,
        },
        "vocabulary": {
            "source": tokenisers.source.size,
            "target": tokenisers.target.size,
            "fingerprint": tokenisers.fingerprint(),
        },
        "vectors": _vectors(path, recipe, tokenisers, data_folder),
        "started_from": None if start is None else start.facts,
    }
    if start is not None:
        state = {"step": 0, "validation": {}}
        save_checkpoint(PairRun(path, recipe, facts).start_folder, start.weights, {}, state)
    write_facts(path, facts)
    return open_pair_run(path)


def _vectors(
    path: Path, recipe: PairRecipe, tokenisers: Tokenisers, data_folder: Path | None
) -> dict[str, Any] | None:
    """Keep the vectors of the vocabularies' words; the share of words that have one."""
    files = {} if recipe.vectors is None else recipe.vectors.files
    sides = {"source": tokenisers.source, "target": tokenisers.target}
    given = {side: Given(file, sides[side]) for side, file in files.items()}
    return keep_vectors(path, given, recipe.model, data_folder)


def start_tokenisers(start: Start) -> Tokenisers:
    """The tokenisers of the run that another starts from.

    Raises:
        UserError: it is none of pairs of texts.
    """
    return open_pair_run(start.run.path).tokenisers()


def data_hashes(recipe: PairRecipe, data_folder: Path | None) -> dict[str, list[str]]:
    """Each part's content hashes, for a run that goes on to be compared with."""
    named = {"train": recipe.data.train, "validation": recipe.data.validation}
    named["test"] = recipe.data.test
    if recipe.data.links is not None:
        named["links"] = [recipe.data.links]
    if "-" in recipe.data.train:
        return {}  # a pipe cannot be read again
    return {
        part: [content_hash(Path(file)) for file in find_data(files, data_folder)]
        for part, files in named.items()
    } | vector_hashes(recipe.vectors, data_folder)


class _Corpus:
    """A recipe's data: files found, read as often as asked for, held-out pairs set apart."""

    def __init__(self, recipe: PairRecipe, path: Path, data_folder: Path | None) -> None:
        self.settings: DataSettings = recipe.data
        self.seed = recipe.seed
        self.files = {
            "train": find_data(self.settings.train, data_folder),
            "validation": find_data(self.settings.validation, data_folder),
            "test": find_data(self.settings.test, data_folder),
        }
        self.linked = self.settings.links is not None
        if self.settings.links is not None:
            if self.settings.links == "-":
                raise UserError("data.links: links are read more than once, so not from a pipe")
            self.files["links"] = find_data([self.settings.links], data_folder)
        if "-" in self.files["train"]:
            # A pipe can be read once, and training reads its corpus more often.
            spooled = path / "data" / "standard-input"
            with atomic_file(spooled) as file:
                shutil.copyfileobj(sys.stdin.buffer, file)
            self.files["train"] = [str(spooled)]

    def read(self, part: str, left_out: Counter[str] | None = None) -> Iterator[Pair]:
        pairs = self._as_filed(part, left_out)
        if self.settings.reversed:
            return (Pair(pair.target, pair.source) for pair in pairs)
        return pairs

    def read_linked(self, left_out: Counter[str]) -> Iterator[LinkedPair]:
        """The training pairs, each with its links."""
        pairs = read_linked(self._as_filed("train", left_out), self.files["links"][0])
        return (pair.turned() for pair in pairs) if self.settings.reversed else pairs

    def _as_filed(self, part: str, left_out: Counter[str] | None) -> Iterator[Pair]:
        """The pairs as the files have them."""
        settings = self.settings
        if are_rows(self.files[part]):
            return (Pair(*row) for row in read_rows(self.files[part]))
        # The languages are those of the model; the files may have them the other way round.
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

    def training(self, left_out: Counter[str] | None = None) -> Iterator[Pair]:
        """The training pairs, filtered, without those held out."""
        counted: Counter[str] = Counter() if left_out is None else left_out
        kept = (pair for pair in self.read("train", counted) if self._part(pair) == "train")
        return filter_pairs(kept, self.settings.filters, counted)

    def training_linked(self, left_out: Counter[str]) -> Iterator[LinkedPair]:
        """As `training`, each pair with its links."""
        kept = (pair for pair in self.read_linked(left_out) if self._part(pair) == "train")
        return filter_pairs(kept, self.settings.filters, left_out)

    def held_out(self, part: str) -> list[Pair]:
        """The validation or test pairs: from their own files, or a share of the training corpus."""
        if self.files[part]:
            pairs = list(self.read(part))
            if not pairs:
                raise UserError(f"data.{part}: {', '.join(self.files[part])} is empty")
            return pairs
        share = getattr(self.settings, f"{part}_share")
        if not share:
            return []
        own = (pair for pair in self.read("train", Counter()) if self._part(pair) == part)
        left_out: Counter[str] = Counter()
        pairs = list(filter_pairs(own, self.settings.filters, left_out))
        if left_out:
            notice(f"left out of {part}: {_counts(left_out)}")
        return pairs

    def _part(self, pair: Pair | LinkedPair) -> str:
        """Which part a pair of the training corpus goes to: pairs of one source to the same."""
        shares = {
            "validation": 0.0 if self.files["validation"] else self.settings.validation_share,
            "test": 0.0 if self.files["test"] else self.settings.test_share,
        }
        return part_of(pair.source, self.seed, shares)


class _Counted:
    """Iterates once over pairs and counts them."""

    def __init__(self, pairs: Iterator[Pair] | Iterator[LinkedPair]) -> None:
        self._iterator = pairs
        self.pairs = 0

    def __iter__(self) -> Iterator[Any]:
        for pair in self._iterator:
            self.pairs += 1
            yield pair


def _warn_of_overlap(corpus: _Corpus, held_out: dict[str, list[Pair]]) -> dict[str, int]:
    found = {}
    for part, pairs in held_out.items():
        if not pairs:
            continue
        training: Callable[[], Iterator[Pair]] = corpus.training
        count = count_overlap((pair.source for pair in training()), (pair.source for pair in pairs))
        found[part] = count
        if count:
            notice(
                f"{count} of {len(pairs)} {part} sources also stand in the training corpus; "
                f"figures on them flatter the model"
            )
    return found


def _counts(left_out: Counter[str]) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in left_out.most_common())
