"""Default recipes: sizes, vocabulary, steps and held-out pairs are chosen from the corpus."""

from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from heedful.basics.errors import UserError
from heedful.data.filters import FilterSettings, filter_pairs
from heedful.data.protected.choosing import usual_rules
from heedful.data.readers import read_pairs
from heedful.data.readers.folders import bilingual_files
from heedful.runs.recipe import find_data
from heedful.tasks.default_recipe import (
    TOKENS_PER_WORD,
    WORD_TYPES,
    data_table,
    refuse_pipe,
    vocabulary,
    words_in,
)


class CorpusSize(NamedTuple):
    """The size of a corpus after filtering."""

    pairs: int
    words: int
    """Words of the longer side of each pair."""
    word_types: int
    """Distinct words of both sides."""


def measure(
    paths: list[str], source: str | None, target: str | None, encoding: str | None
) -> CorpusSize:
    """Read a corpus once and count.

    Raises:
        UserError: the corpus is empty or cannot be read.
    """
    pairs = words = 0
    types: set[str] = set()
    read = read_pairs(paths, source=source, target=target, encoding=encoding)
    for pair in filter_pairs(read, FilterSettings(duplicates=False), Counter()):
        left, right = words_in(pair.source), words_in(pair.target)
        pairs += 1
        words += max(len(left), len(right))
        if len(types) < WORD_TYPES:
            types.update(left, right)
    if not pairs:
        raise UserError(f"{', '.join(paths)} has no pair to train on")
    return CorpusSize(pairs, words, len(types))


def choose_recipe(
    paths: list[str],
    *,
    source: str | None,
    target: str | None,
    encoding: str | None = None,
    links: str | None = None,
    folder: Path | None = None,
) -> dict[str, Any]:
    """Choose a recipe for a corpus; returns its tables.

    The rules (docs/recipes.md gives the reasons): the tiny Transformer up to a million pairs, the
    base size beyond; pre-norm, which learns to align several times sooner than post-norm; more
    dropout for less data; a vocabulary that grows with the corpus; passes over the corpus that
    shrink with it; early stopping on BLEU decides the rest. Placeholders, tags, addresses and
    numbers are protected, and the markup that both sides have.
    """
    refuse_pipe(
        paths,
        "standard input can be read only once, so no recipe can be chosen for it; save it to a "
        "file, or give a recipe",
    )
    files = find_data(paths, folder, files_of=bilingual_files)
    size = measure(files, source, target, encoding)
    small, middling = size.pairs < 20_000, size.pairs < 1_000_000
    held_out = min(1000.0, max(20.0, size.pairs * 0.02))
    share = round(min(0.1, held_out / size.pairs), 6)
    most = 2000 if size.pairs < 5_000 else 4000 if small else 8000 if middling else 32_000
    return {
        "seed": 1,
        "data": {
            **data_table(paths, source=source, target=target, encoding=encoding),
            "validation_share": share,
            "test_share": share,
            "keep_near_duplicates": False,
            # Word links number words, of which placeholders replace some.
            "protect": [] if links else _rules(files, source, target, encoding),
        },
        "tokeniser": {"vocabulary_size": vocabulary(size.word_types, most)},
        "model": {
            "kind": "transformer",
            "size": "tiny" if middling else "base",
            "pre_norm": True,
            "dropout": 0.3 if size.pairs < 100_000 else 0.2 if middling else 0.1,
        },
        "training": _training(size),
    }


def _training(size: CorpusSize) -> dict[str, Any]:
    """The `[training]` table: more passes over a smaller corpus."""
    middling = size.pairs < 1_000_000
    passes = 80 if size.pairs < 20_000 else 40 if size.pairs < 200_000 else 15 if middling else 6
    batch_tokens = 1024 if size.pairs < 5_000 else 2048 if size.pairs < 200_000 else 4096
    steps = round(passes * size.words * TOKENS_PER_WORD / batch_tokens)
    steps = max(300, min(100_000, steps))
    every = max(50, min(2000, steps // 20))
    return {
        "max_steps": steps,
        "batch_tokens": batch_tokens,
        "learning_rate": 2e-3 if middling else 7e-4,
        "warmup_steps": min(4000, max(100, steps // 10)),
        "validate_every": every,
        "checkpoint_every": every,
        "average_checkpoints": 5,
        "patience": 10,
    }


def _rules(
    paths: list[str], source: str | None, target: str | None, encoding: str | None
) -> list[str]:
    """The rules for protected spans of a corpus."""
    pairs = read_pairs(paths, source=source, target=target, encoding=encoding, left_out=Counter())
    return usual_rules((pair.source, pair.target) for pair in pairs)


def choose_aligning_recipe(
    paths: list[str],
    *,
    source: str | None,
    target: str | None,
    encoding: str | None = None,
    folder: Path | None = None,
    reversed: bool = False,
) -> dict[str, Any]:
    """Choose a recipe for aligning the words of a corpus; returns its tables.

    Nothing is held out, because the corpus itself is to be aligned. docs/aligning.md lists the
    rules.

    Args:
        paths: the corpus.
        source: language of the model's source.
        target: language of the model's target, whose words are the queries.
        encoding: encoding of text files.
        folder: base folder of relative paths.
        reversed: the files have the target first.
    """
    refuse_pipe(
        paths,
        "standard input can be read only once, so no recipe can be chosen for it; save it to a "
        "file",
    )
    size = measure(find_data(paths, folder, files_of=bilingual_files), source, target, encoding)
    small = size.pairs < 20_000
    passes = 8 if small else 4 if size.pairs < 200_000 else 2
    batch_tokens = 1024 if small else 4096
    steps = max(300, round(passes * size.words * TOKENS_PER_WORD / batch_tokens))
    most = 4000 if small else 8000 if size.pairs < 200_000 else 16_000
    return {
        "task": "alignment",
        "seed": 1,
        "data": {
            **data_table(paths, source=source, target=target, encoding=encoding),
            "reversed": reversed,
            # Repeated pairs add no information, and very long pairs little.
            "filters": {"duplicates": True, "max_words": 100},
        },
        "tokeniser": {"vocabulary_size": vocabulary(size.word_types, most)},
        "model": {"kind": "aligner"},
        "training": {
            "max_steps": steps,
            "batch_tokens": batch_tokens,
            "learning_rate": 5e-3,
            "schedule": "linear",
            "warmup_steps": min(200, steps // 10),
            "checkpoint_every": max(100, steps // 5),
            "keep_last": 1,
            "choose_by": "loss",
        },
    }
