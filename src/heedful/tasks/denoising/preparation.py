"""Prepares a run of denoising pre-training: vocabulary, encoded texts, held-out examples."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

from heedful.basics.errors import UserError
from heedful.basics.files import atomic_folder
from heedful.basics.notices import notice
from heedful.data import columns
from heedful.data.batching import Batch, StoreBatches, collate
from heedful.data.columns import Columns
from heedful.data.denoising import Noise, corrupted
from heedful.data.document_store import Splitter
from heedful.data.examples import Pair
from heedful.data.imported_tokenisers import ImportedTokeniser
from heedful.data.mapped import Integers
from heedful.data.store import Store, StoreWriter
from heedful.data.subwords import PLACEHOLDERS
from heedful.data.tokeniser import Tokeniser, Tokenisers
from heedful.runs.held_out import part_of
from heedful.runs.start import Start
from heedful.runs.vectors import vector_hashes
from heedful.tasks.denoising.recipe import DenoisingData, DenoisingRecipe
from heedful.tasks.pairs.preparation import given_tokenisers
from heedful.tasks.pairs.run import PairRun, open_pair_run, write_pairs
from heedful.tasks.preparation import (
    HELD_OUT,
    content_hashes,
    find_files,
    held_out_shares,
    require_some,
    save_vectors,
    write_run,
)

_ROWS_AT_ONCE = 4096
_MOST_SENTINELS = 100
"""Sentinels of T5's vocabulary."""


class _Row(NamedTuple):
    """A training text."""

    tokens: list[int]
    begins: list[int]
    """The places where lines begin."""


def prepare_denoising_run(
    path: Path, recipe: DenoisingRecipe, data_folder: Path | None, start: Start | None = None
) -> PairRun:
    """Make a new run: read and encode the texts. Training does not read the files again.

    Args:
        path: the run's folder; files of an interrupted preparation are overwritten.
        recipe: all settings.
        data_folder: base folder of relative paths in the recipe; the current folder if None.
        start: gives the tokeniser and initial weights; if None, the tokeniser is that of the
            teacher or is trained on the texts, and weights are random.

    Raises:
        UserError: the data are missing, empty or broken, the vocabulary has too few sentinels, or
            the folder cannot be written.
    """
    texts = _Texts(recipe, path, data_folder)
    hashes = content_hashes(texts.files) | vector_hashes(recipe.vectors, data_folder)
    tokenisers = given_tokenisers(recipe, start)
    if tokenisers is None:
        lines = (line for document in texts.of("train") for line in document)
        own = Tokeniser.train(lines, recipe.tokeniser, seed=recipe.seed, where="the training texts")
        tokenisers = Tokenisers(own, own)
    tokeniser = tokenisers.source
    noise = noise_of(recipe, tokenisers)
    written = _encode(path / "data" / "train", texts, tokeniser)
    tokenisers.save(path / "tokeniser")
    counts = {}
    for part in HELD_OUT:
        pairs = _held_out(texts, part, tokeniser, noise)
        counts[f"{part}_pairs"] = len(pairs)
        write_pairs(path / "data" / f"{part}.jsonl", pairs)
    about = {
        "source": None,
        "target": None,
        "data": {
            "hashes": hashes,
            "train_pairs": written,
            "left_out": {},
            **counts,
            "held_out_sources_in_training": {},
            "near_duplicates_in_training": 0,
        },
        "vocabulary": {
            "source": tokeniser.size,
            "target": tokeniser.size,
            "fingerprint": tokenisers.fingerprint(),
        },
    }
    vectors = save_vectors(path, recipe, lambda side: tokeniser, data_folder)
    write_run(path, recipe, about, vectors, start, {} if start is None else start.weights)
    return open_pair_run(path)


def noisy_batches(run: PairRun, batch_tokens: int) -> StoreBatches[Batch]:
    """The training batches of a run, with other noise in every epoch."""
    noise = noise_of(cast(DenoisingRecipe, run.recipe), run.tokenisers())

    def resample(columns: Columns, rows: Integers, key: str) -> Columns:
        return corrupted(columns, rows, key, noise)

    store = Store.open(run.train_folder, verified=run.verifies_when_read)
    window = run.recipe.training.shuffle_window
    return StoreBatches(
        store, batch_tokens, collate, by=["tokens"], resample=resample, window=window
    )


def noise_of(recipe: DenoisingRecipe, tokenisers: Tokenisers) -> Noise:
    """The noise of a recipe with the symbols of a vocabulary.

    Raises:
        UserError: the vocabulary has no sentinels, or too few.
    """
    settings, tokeniser = recipe.noise, tokenisers.source
    if not tokenisers.shared:
        raise UserError("denoising needs one vocabulary for both sides, and this run has two")
    symbols, before = _sentinels(tokeniser, settings.kind), []
    if isinstance(tokeniser, ImportedTokeniser):
        before = tokeniser.before
    lead: list[int] = []
    if symbols:
        (first,) = symbols[:1]
        lead = tokeniser.encode(_name(tokeniser, first))[len(before) : -1]
    noise = Noise(
        settings.kind,
        settings.removed,
        settings.mean_length,
        settings.permutes,
        symbols,
        lead,
        before,
    )
    needed = max(noise.most_sentinels(length) for length in range(1, recipe.data.max_tokens + 1))
    if needed > len(symbols):
        raise UserError(
            f"texts of data.max_tokens = {recipe.data.max_tokens} need {needed} sentinels with "
            f"this noise, and the vocabulary has {len(symbols)}; lower data.max_tokens, or raise "
            "noise.mean_length"
        )
    return noise


def _name(tokeniser: Tokeniser, token: int) -> str:
    return tokeniser.pieces([token])[0]


def _sentinels(tokeniser: Tokeniser, kind: str) -> list[int]:
    """The sentinels of a vocabulary, or its mask; empty if it has none.

    Those of heedful's own vocabularies are its placeholders.
    """
    if not isinstance(tokeniser, ImportedTokeniser):
        names = list(PLACEHOLDERS)
        known = {name: token for token, name in enumerate(tokeniser.pieces(range(tokeniser.size)))}
        return [known[name] for name in names if name in known]
    pieces = tokeniser.pieces(range(tokeniser.size))
    known = {piece: token for token, piece in enumerate(pieces)}
    names = [f"<extra_id_{number}>" for number in range(_MOST_SENTINELS)]
    if kind == "infilling":
        names = ["<mask>", "<mask_1>", *names]
    return [known[name] for name in names if name in known]


class _Texts:
    """The documents of a recipe, which can be read repeatedly."""

    def __init__(self, recipe: DenoisingRecipe, path: Path, data_folder: Path | None) -> None:
        self.data: DenoisingData = recipe.data
        self.seed = recipe.seed
        spooled = path / "data" / "standard-input"
        self.files = find_files(self.data.files, data_folder, spooled)
        self.shares = held_out_shares(self.files, self.data)

    def of(self, part: str) -> Iterator[list[str]]:
        """The documents of a part, from its own files or a share of the training files."""
        if part != "train" and self.files[part]:
            yield from self.data.read(self.files[part])
            return
        for lines in self.data.read(self.files["train"]):
            if part_of("\n".join(lines), self.seed, self.shares) == part:
                yield lines

    def rows(self, part: str, tokeniser: Tokeniser) -> Iterator[_Row]:
        """Consecutive lines of each document, as many as fit into ``data.max_tokens``."""
        longest = self.data.max_tokens
        splitter = Splitter(tokeniser, longest)
        for lines in self.of(part):
            row = _Row([], [])
            for tokens in _encoded(tokeniser, lines):
                for piece in splitter.cut(tokens):
                    if row.tokens and len(row.tokens) + len(piece) > longest:
                        yield row
                        row = _Row([], [])
                    row.begins.append(len(row.tokens))
                    row.tokens.extend(piece)
            if row.tokens:
                yield row
        if splitter.count:
            notice(f"{splitter.count:,} lines of more than {longest} tokens were split ({part})")


def _encoded(tokeniser: Tokeniser, lines: list[str]) -> list[list[int]]:
    """The tokens of each line, without those before a text."""
    if isinstance(tokeniser, ImportedTokeniser):
        return tokeniser.vocabulary.encode_batch(lines)
    return tokeniser.encode_batch(lines)


def _encode(folder: Path, texts: _Texts, tokeniser: Tokeniser) -> int:
    """Write the encoded training texts; returns their number."""
    shutil.rmtree(folder, ignore_errors=True)
    codecs = {
        "tokens": columns.tokens(tokeniser.size),
        "begins": columns.tokens(texts.data.max_tokens),
    }
    stored, waiting = 0, list[_Row]()
    with atomic_folder(folder) as beside, StoreWriter(beside, codecs) as writer:

        def flush() -> None:
            rows: dict[str, list[Any]] = {
                "tokens": [row.tokens for row in waiting],
                "begins": [row.begins for row in waiting],
            }
            writer.add({name: codecs[name].column(own) for name, own in rows.items()})
            waiting.clear()

        for row in texts.rows("train", tokeniser):
            waiting.append(row)
            stored += 1
            if len(waiting) == _ROWS_AT_ONCE:
                flush()
        if waiting:
            flush()
        if not stored:
            files = ", ".join(texts.data.train)
            raise UserError(f"the training texts {files} are empty")
        writer.finish({"max_tokens": texts.data.max_tokens, "tokenisers": tokeniser.fingerprint()})
    return stored


def _held_out(texts: _Texts, part: str, tokeniser: Tokeniser, noise: Noise) -> list[Pair]:
    """Held-out examples with noise that does not change, as texts."""
    if not texts.files[part] and not texts.shares[part]:
        return []
    found = []
    for number, row in enumerate(texts.rows(part, tokeniser)):
        source, target = noise.example(row.tokens, row.begins, f"{part} {number}")
        found.append(Pair(tokeniser.decode(source), tokeniser.decode(target)))
    require_some(found, texts.files[part], f"data.{part}")
    return found
