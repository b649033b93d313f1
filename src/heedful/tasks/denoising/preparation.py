"""Prepares a run of denoising pre-training: vocabulary, encoded texts, held-out examples."""

import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

from heedful.basics.errors import UserError
from heedful.basics.notices import notice
from heedful.data import columns
from heedful.data.batching import Batch, StoreBatches, collate
from heedful.data.columns import Codec, Columns
from heedful.data.denoising import Noise, corrupted
from heedful.data.document_store import Splitter
from heedful.data.examples import Pair
from heedful.data.imported_tokenisers import ImportedTokeniser
from heedful.data.mapped import Integers
from heedful.data.parallel_encoding import encode_store
from heedful.data.python_rows import are_rows
from heedful.data.readers.plain import split_sentences
from heedful.data.saved_vocabularies import load_tokenisers
from heedful.data.sentences import SentenceFailures
from heedful.data.store import Store
from heedful.data.store_encoder import StoreEncoder
from heedful.data.subwords import PLACEHOLDERS, SAMPLE_TEXTS, Reservoir
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
    hashes = content_hashes(texts.files, recipe.data.files_of)
    hashes |= vector_hashes(recipe.vectors, data_folder)
    tokenisers = given_tokenisers(recipe, start)
    sample = texts.hold_out(sampled=tokenisers is None)
    if tokenisers is None:
        own = _train(sample, recipe)
        tokenisers = Tokenisers(own, own)
    tokeniser = tokenisers.source
    noise = noise_of(recipe, tokenisers)
    tokenisers.save(path / "tokeniser")
    written = _encode(path, texts, tokeniser, hashes)
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
    """The documents of a recipe. Those to hold out are kept, those to train on are read again."""

    def __init__(self, recipe: DenoisingRecipe, path: Path, data_folder: Path | None) -> None:
        self.data: DenoisingData = recipe.data
        self.seed = recipe.seed
        spooled = path / "data" / "standard-input"
        self.files = find_files(self.data.files, data_folder, spooled, files_of=self.data.files_of)
        self.shares = held_out_shares(self.files, self.data)
        self._held_out: dict[str, list[list[str]]] = {part: [] for part in HELD_OUT}

    @property
    def language(self) -> str | None:
        """The language whose rules divide lines into sentences; rows of Python data have none."""
        return None if are_rows(self.files["train"]) else self.data.sentences

    def hold_out(self, *, sampled: bool) -> Reservoir[str]:
        """Read the documents to hold out, and a sample of the lines to train on if ``sampled``."""
        sample = Reservoir[str](SAMPLE_TEXTS, self.seed)
        if sampled or any(self.shares.values()):
            for lines in self.data.read(self.files["train"]):
                part = self.part(lines)
                if part != "train":
                    self._held_out[part].append(lines)
                elif sampled:
                    for line in lines:
                        sample.add(line)
        return sample

    def part(self, lines: Sequence[str]) -> str:
        """The part of a document of the training files."""
        return part_of("\n".join(lines), self.seed, self.shares)

    def of(self, part: str) -> Iterator[list[str]]:
        """The documents of a held-out part, from its own files or a share of the training files."""
        files = self.files[part]
        yield from self.data.read(files) if files else self._held_out[part]

    def to_train(self) -> Iterator[list[str]]:
        """The documents of the training files, as they are, with those that are held out."""
        return self.data.model_copy(update={"sentences": None}).read(self.files["train"])


class RowEncoder(StoreEncoder[list[str]]):
    """Encodes documents as rows of consecutive lines, as many as fit; counts ``texts``.

    It also counts lines that were ``split``, or that ``failed`` to be divided into sentences.

    Args:
        tokeniser: encodes the lines.
        max_tokens: maximum tokens of a row.
        language: the language whose rules divide lines into sentences; None for lines.
        shares: the shares of the held-out parts, whose documents are left out.
        seed: determines which documents are held out.
    """

    unit = "documents"

    def __init__(
        self,
        tokeniser: Tokeniser,
        max_tokens: int,
        language: str | None = None,
        shares: Mapping[str, float] | None = None,
        seed: int = 0,
    ) -> None:
        self.tokeniser, self.max_tokens, self.language = tokeniser, max_tokens, language
        self.shares, self.seed = dict(shares or {}), seed
        self.codecs: dict[str, Codec] = {
            "tokens": columns.tokens(tokeniser.size),
            "begins": columns.tokens(max_tokens),
        }

    @classmethod
    def open(cls, saved: Path, *settings: Any) -> "RowEncoder":
        """The encoder with the tokeniser that is saved in a folder."""
        return cls(load_tokenisers(saved).source, *settings)

    @property
    def identity(self) -> dict[str, Any]:
        return {**self.facts(Counter()), "language": self.language, "shares": self.shares}

    def size(self, item: list[str]) -> int:
        return sum(1 + len(line) for line in item)

    def rows(self, items: Sequence[list[str]]) -> tuple[Columns, Counter[str]]:
        failures = SentenceFailures()
        documents = list(items)
        if self.language is not None:
            documents = [split_sentences(lines, self.language, failures) for lines in documents]
        if any(self.shares.values()):
            documents = [
                lines
                for lines in documents
                if part_of("\n".join(lines), self.seed, self.shares) == "train"
            ]
        rows, split = self.cut(documents)
        of_columns = {
            "tokens": self.codecs["tokens"].column([row.tokens for row in rows]),
            "begins": self.codecs["begins"].column([row.begins for row in rows]),
        }
        return of_columns, Counter(texts=len(rows), split=split, failed=failures.count)

    def cut(self, documents: Sequence[list[str]]) -> tuple[list[_Row], int]:
        """The rows of documents, and the number of lines that were split."""
        splitter = Splitter(self.tokeniser, self.max_tokens)
        rows: list[_Row] = []
        encoded = iter(self._encoded([line for lines in documents for line in lines]))
        for lines in documents:
            row = _Row([], [])
            for _ in lines:
                for piece in splitter.cut(next(encoded)):
                    if row.tokens and len(row.tokens) + len(piece) > self.max_tokens:
                        rows.append(row)
                        row = _Row([], [])
                    row.begins.append(len(row.tokens))
                    row.tokens.extend(piece)
            if row.tokens:
                rows.append(row)
        return rows, splitter.count

    def _encoded(self, lines: list[str]) -> list[list[int]]:
        """The tokens of each line, without those before a text."""
        if isinstance(self.tokeniser, ImportedTokeniser):
            return self.tokeniser.vocabulary.encode_batch(lines, self.threads)
        return self.tokeniser.encode_batch(lines, self.threads)

    def facts(self, counts: Counter[str]) -> dict[str, Any]:
        return {"max_tokens": self.max_tokens, "tokenisers": self.tokeniser.fingerprint()}

    def check(self, counts: Counter[str]) -> None:
        self.report_split(counts["split"], "train")
        SentenceFailures(counts["failed"]).report()

    def report_split(self, count: int, part: str) -> None:
        """Give a notice with the number of lines that were split, if there are any."""
        if count:
            notice(f"split lines of more than {self.max_tokens} tokens: {count:,} ({part})")


def _train(sample: Reservoir[str], recipe: DenoisingRecipe) -> Tokeniser:
    """The vocabulary of the training texts, or of a sample of their lines."""
    where = "the training texts"
    if sample.total > len(sample.kept):
        kept, total = f"{len(sample.kept):,}", f"{sample.total:,}"
        notice(f"{where}: the vocabulary is learnt from a random sample of {kept} of {total} texts")
    return Tokeniser.train(sample.kept, recipe.tokeniser, seed=recipe.seed, where=where)


def _encode(path: Path, texts: _Texts, tokeniser: Tokeniser, hashes: dict[str, list[str]]) -> int:
    """Write the encoded training texts; returns their number."""
    folder = path / "data" / "train"
    shutil.rmtree(folder, ignore_errors=True)
    how = (texts.data.max_tokens, texts.language, texts.shares, texts.seed)
    counts = encode_store(
        texts.to_train(),
        RowEncoder(tokeniser, *how),
        folder,
        partial(RowEncoder.open, path / "tokeniser", *how),
        identity={
            "data": texts.data.model_dump(mode="json"),
            "hashes": hashes,
            "seed": texts.seed,
        },
    )
    if not counts["texts"]:
        raise UserError(f"the training texts {', '.join(texts.data.train)} are empty")
    return counts["texts"]


def _held_out(texts: _Texts, part: str, tokeniser: Tokeniser, noise: Noise) -> list[Pair]:
    """Held-out examples with noise that does not change, as texts."""
    if not texts.files[part] and not texts.shares[part]:
        return []
    found = []
    encoder = RowEncoder(tokeniser, texts.data.max_tokens)
    rows, split = encoder.cut(list(texts.of(part)))
    encoder.report_split(split, part)
    for number, row in enumerate(rows):
        source, target = noise.example(row.tokens, row.begins, f"{part} {number}")
        found.append(Pair(tokeniser.decode(source), tokeniser.decode(target)))
    require_some(found, texts.files[part], f"data.{part}")
    return found
