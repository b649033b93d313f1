"""Prepares a run for pairs of texts: held-out pairs, tokeniser, encoded corpus, facts."""

import shutil
from collections import Counter
from functools import partial
from pathlib import Path

from heedful.basics.errors import UserError
from heedful.basics.notices import notice
from heedful.data.links import check_links
from heedful.data.pair_store import PairEncoder
from heedful.data.parallel_encoding import encode_store
from heedful.data.readers.folders import bilingual_files
from heedful.data.tokeniser import Tokenisers
from heedful.runs.start import Start
from heedful.runs.vectors import vector_hashes
from heedful.tasks.pairs.corpus import Corpus, counts, named_files
from heedful.tasks.pairs.recipe import PairRecipe
from heedful.tasks.pairs.run import MEMORY, PairRun, open_pair_run, write_pairs
from heedful.tasks.preparation import (
    HELD_OUT,
    content_hashes,
    recipe_hashes,
    report_overlaps,
    save_vectors,
    write_run,
)
from heedful.tasks.teaching import teacher_of


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
    corpus = Corpus(recipe, path, data_folder)
    hashes = content_hashes(corpus.files, bilingual_files)
    hashes |= vector_hashes(recipe.vectors, data_folder)
    if corpus.linked:
        # Check the links first, so that an error in them is found before training the tokeniser.
        check_links(corpus.read_linked(Counter()), corpus.files["links"][0])
    held_out = corpus.held_out()
    tokenisers = given_tokenisers(recipe, start) or corpus.tokenisers(recipe)
    left_out: Counter[str] = Counter()
    tokenisers.save(path / "tokeniser")
    memory = corpus.keep_memory() if recipe.keeps_memory else None
    train_pairs = _encode(path, recipe, corpus, tokenisers, hashes, left_out)
    if memory is not None:
        memory.save(path / MEMORY)
    for part, pairs in held_out.items():
        write_pairs(path / "data" / f"{part}.jsonl", pairs)
    overlap = report_overlaps(
        corpus.overlaps,
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
    path: Path,
    recipe: PairRecipe,
    corpus: Corpus,
    tokenisers: Tokenisers,
    hashes: dict[str, list[str]],
    left_out: Counter[str],
) -> int:
    """Write the encoded training pairs; returns their number."""
    folder = path / "data" / "train"
    shutil.rmtree(folder, ignore_errors=True)
    how = (recipe.data.max_tokens, corpus.linked)
    encoder = PairEncoder(tokenisers, *how)
    counted = encode_store(
        corpus.training_linked(left_out) if corpus.linked else corpus.training(left_out),
        encoder,
        folder,
        partial(PairEncoder.open, path / "tokeniser", *how),
        identity={
            "data": recipe.data.model_dump(mode="json"),
            "hashes": hashes,
            "seed": recipe.seed,
        },
        total=corpus.count,
    )
    written = encoder.stored(counted, left_out)
    if not written:
        raise UserError(
            f"the training corpus {', '.join(recipe.data.train)} is empty"
            + (f" after leaving out {counts(left_out)}" if left_out else "")
        )
    if left_out:
        notice(f"left out of training: {counts(left_out)}")
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
    named = named_files(recipe.data)
    return recipe_hashes(named, recipe.vectors, data_folder, files_of=bilingual_files)
