"""Prepares a run that answers in dialogues: vocabulary, encoded answers, held-out dialogues."""

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from heedful.basics.errors import UserError
from heedful.basics.files import atomic_file
from heedful.basics.notices import notice
from heedful.data.examples import Pair
from heedful.data.pair_store import write_pair_store
from heedful.data.readers.dialogues import Dialogue
from heedful.data.tokeniser import Tokenisers
from heedful.runs.held_out import part_of
from heedful.runs.start import Start
from heedful.runs.vectors import vector_hashes
from heedful.tasks.dialogue.recipe import DialogueData, DialogueRecipe
from heedful.tasks.dialogue.run import DialogueRun, open_dialogue_run
from heedful.tasks.dialogue.turns import BREAK, Count, history, pairs_of, shortened
from heedful.tasks.pairs.preparation import given_tokenisers
from heedful.tasks.preparation import (
    HELD_OUT,
    content_hashes,
    count_overlaps,
    find_files,
    held_out_shares,
    require_some,
    save_vectors,
    write_run,
)


def prepare_dialogue_run(
    path: Path, recipe: DialogueRecipe, data_folder: Path | None, start: Start | None = None
) -> DialogueRun:
    """Make a new run: read and encode the dialogues. Training does not read the files again.

    Args:
        path: the run's folder; files of an interrupted preparation are overwritten.
        recipe: all settings.
        data_folder: base folder of relative paths in the recipe; the current folder if None.
        start: gives the tokeniser and initial weights; if None, the tokeniser is that of the
            teacher or is trained on the dialogues, and weights are random.

    Raises:
        UserError: the data are missing, empty or broken, nobody answers in them, or the folder
            cannot be written.
    """
    corpus = _Corpus(recipe, path, data_folder)
    hashes = content_hashes(corpus.files) | vector_hashes(recipe.vectors, data_folder)
    speaker, partner = _speakers(corpus, recipe.data.speaker)
    tokenisers = given_tokenisers(recipe, start) or Tokenisers.train(
        lambda: corpus.turns(speaker), recipe.tokeniser, seed=recipe.seed
    )
    answers = _Answers(corpus, speaker, tokenisers, recipe.data.max_tokens)
    counts = {"train_pairs": answers.write(path / "data" / "train")}
    tokenisers.save(path / "tokeniser")
    held_out = {part: corpus.held_out(part) for part in HELD_OUT}
    for part, dialogues in held_out.items():
        counts[f"{part}_pairs"] = sum(len(pairs_of(one, speaker)) for one in dialogues)
        with atomic_file(path / "data" / f"{part}.jsonl") as file:
            for one in dialogues:
                file.write(json.dumps(one.to_json(), ensure_ascii=False).encode() + b"\n")
    overlap = count_overlaps(
        lambda: (_identity(one) for one in corpus.of("train")),
        {part: [_identity(one) for one in own] for part, own in held_out.items()},
        lambda part, n, all: f"{n} of {all} {part} dialogues are also in the training data",
    )
    about = {
        "source": None,
        "target": None,
        "data": {
            "speaker": speaker,
            "partner": partner,
            "shortened": answers.shortened,
            "hashes": hashes,
            **counts,
            "left_out": dict(answers.left_out),
            "held_out_sources_in_training": overlap,
            "near_duplicates_in_training": 0,
        },
        "vocabulary": {
            "source": tokenisers.source.size,
            "target": tokenisers.target.size,
            "fingerprint": tokenisers.fingerprint(),
        },
    }
    vectors = save_vectors(path, recipe, lambda side: getattr(tokenisers, side), data_folder)
    write_run(path, recipe, about, vectors, start, {} if start is None else start.weights)
    return open_dialogue_run(path)


class _Corpus:
    """The dialogues of a recipe, which can be read repeatedly."""

    def __init__(self, recipe: DialogueRecipe, path: Path, data_folder: Path | None) -> None:
        self.data: DialogueData = recipe.data
        self.seed = recipe.seed
        spooled = path / "data" / "standard-input"
        self.files = find_files(self.data.files, data_folder, spooled)
        self.shares = held_out_shares(self.files, self.data)

    def of(self, part: str) -> Iterator[Dialogue]:
        """The dialogues of a part, from its own files or a share of the training files.

        A dialogue is in one part, with all its turns.
        """
        if part != "train" and self.files[part]:
            yield from self.data.read(self.files[part])
        elif part == "train" or self.shares[part]:
            for one in self.data.read(self.files["train"]):
                if part_of(_identity(one), self.seed, self.shares) == part:
                    yield one

    def held_out(self, part: str) -> list[Dialogue]:
        """The validation or test dialogues."""
        found = list(self.of(part))
        require_some(found, self.files[part], f"data.{part}")
        return found

    def turns(self, speaker: str) -> Iterator[Pair]:
        """Each turn of the training dialogues once, for the tokeniser."""
        for one in self.of("train"):
            for turn in one.turns:
                yield Pair(f"{history([turn], speaker)}", "")


class _Answers:
    """The training answers: encoded, counted, and with as many turns before as fit."""

    def __init__(
        self, corpus: _Corpus, speaker: str, tokenisers: Tokenisers, max_tokens: int
    ) -> None:
        self.corpus, self.speaker, self.tokenisers = corpus, speaker, tokenisers
        self.max_tokens = max_tokens
        self.left_out: Counter[str] = Counter()
        self.shortened = 0

    def write(self, folder: Path) -> int:
        """Write the encoded answers; returns their number."""
        shutil.rmtree(folder, ignore_errors=True)
        written = write_pair_store(
            self._pairs(),
            self.tokenisers,
            folder,
            max_tokens=self.max_tokens,
            left_out=self.left_out,
        )
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in self.left_out.items())
        if not written:
            more = f" after leaving out {reasons}" if reasons else ""
            raise UserError(f"the training data have no answer of '{self.speaker}'{more}")
        if reasons:
            notice(f"answers left out of training: {reasons}")
        if self.shortened:
            notice(
                f"training answers with more than {self.max_tokens:,} tokens before them "
                f"(data.max_tokens): {self.shortened:,} of {written:,}; they are learnt without "
                "the oldest turns"
            )
        return written

    def _pairs(self) -> Iterator[Pair]:
        count, broken = counter(self.tokenisers), 0
        for one in self.corpus.of("train"):
            broken += sum(any(sign in turn.text for sign in f"\r\n{BREAK}") for turn in one.turns)
            for pair in pairs_of(one, self.speaker):
                kept = shortened(pair.source, count, self.max_tokens)
                self.shortened += kept.dropped > 0 and kept.fits
                yield Pair(kept.text, pair.target)
        if broken:
            notice(f"training turns with line breaks, which become spaces: {broken:,}")


def counter(tokenisers: Tokenisers) -> Count:
    """A function that counts the tokens of histories."""
    return lambda texts: [len(tokens) for tokens in tokenisers.source.encode_batch(texts)]


def _identity(dialogue: Dialogue) -> str:
    """A text that equal dialogues have in common."""
    return history(dialogue.turns, "")


def _speakers(corpus: _Corpus, named: str | None) -> tuple[str, str]:
    """Whose turns are learnt, and who speaks most often otherwise.

    Raises:
        UserError: there are no dialogues, no answers, or several speakers that may answer.
    """
    second: Counter[str] = Counter()
    all_turns: Counter[str] = Counter()
    for one in corpus.of("train"):
        all_turns.update(turn.speaker for turn in one.turns)
        second.update(turn.speaker for turn in one.turns[1:2])
    files = ", ".join(corpus.data.train)
    if not all_turns:
        raise UserError(f"the training data {files} are empty")
    known = ", ".join(sorted(all_turns))
    if named is None and not second:
        raise UserError(f"{files}: no dialogue has two turns, so that nobody answers")
    if named is None and len(second) > 1:
        raise UserError(f"several speakers answer; name one in data.speaker: {known}")
    speaker = next(iter(second)) if named is None else named
    if speaker not in all_turns:
        raise UserError(f"data.speaker = '{speaker}' has no turn; the speakers are {known}")
    others = [(count, name) for name, count in all_turns.items() if name != speaker]
    return speaker, max(others)[1] if others else speaker
