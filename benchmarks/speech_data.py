"""Tables of recordings for the recipes of speech recognition, from corpora that you have.

    python benchmarks/speech_data.py yesno waves_yesno FOLDER
    python benchmarks/speech_data.py digits recordings FOLDER --speaker theo [--voices 120]
    python benchmarks/speech_data.py an4 an4-mfcc FOLDER
    python benchmarks/speech_data.py ljspeech LJSpeech-1.1 FOLDER

- ``yesno``: 60 recordings of a man who says eight words, yes or no, which are the file's name
  (OpenSLR 1). Kaldi's split: the first 31 are for training, here 26, and 5 for validation. All of
  them begin with "no", and all test recordings with "yes". The training recordings are therefore
  also cut at their pauses into twelve runs of one to seven words each, with the silence that is
  before and after the eight words.
- ``digits``: the Free Spoken Digit Dataset, 3,000 recordings of six speakers, with one speaker held
  out. Recordings of a speaker are joined, with pauses: 3,000 utterances of 1 to 5 digits for
  training, and 150 for validation, of the same recordings in other combinations. Tests with the
  other speaker: ``single.tsv`` (all recordings), ``test.tsv`` (200 utterances of 3 to 7 digits),
  and ``long-N.tsv`` (20 utterances of N digits).
  ``NAME.times.json`` has the start and the end of each digit in seconds. With ``--voices N``, there
  are 6,000 training utterances, of which every other one is of one of N synthetic voices, and all
  single recordings of speakers and voices.
- ``an4``: CMU's AN4 as coefficients: ``train.npz`` and ``test.npz`` with ``frames``, ``lengths``,
  ``low`` and ``step``, and tables of their words. A tenth of the training speakers is for
  validation.
- ``ljspeech``: a reader (Ito and Johnson 2017): a folder with ``metadata.csv`` or
  ``metadata.tsv``, whose columns are the name, the text, and the text with numbers spelled out, and
  recordings in any folder below it, or in ``clips.tar``. The last 20 recordings are for the test,
  20 before them for validation.
"""

import argparse
import re
import tarfile
from collections.abc import Iterable, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from numpy.typing import NDArray

from heedful.basics.errors import UserError
from heedful.basics.files import atomic_file, write_json
from heedful.data.readers.sounds import read_sound
from made_voices import made_voices

NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
RATE = 8000
LONG = (10, 20, 30, 50)
"""Digits of the long utterances; the longest of training have 5."""
_SHORTEST, _RUNS = 0.3, 12
_UTTERANCES = {"train": 3000, "validation": 150, "test": 200}
_VALIDATION = 5
"""So many recordings of each digit and speaker are for validation, as in the dataset's own split.
"""


def write_table(path: Path, rows: Iterable[tuple[str | Path, str]]) -> None:
    """Write a table with the columns ``path`` and ``text``."""
    lines = ["path\ttext", *(f"{name}\t{text}" for name, text in rows)]
    with atomic_file(path) as file:
        file.write(("\n".join(lines) + "\n").encode())


def write_yesno(source: Path, folder: Path) -> None:
    """Kaldi's split of yesno."""
    files = sorted(one for one in source.iterdir() if re.fullmatch(r"([01]_){7}[01]", one.stem))
    if len(files) != 60:
        raise UserError(f"{source} has {len(files)} recordings instead of 60")
    parts = {"train": files[:26], "validation": files[26:31], "test": files[31:]}
    for name, own in parts.items():
        rows = [(str(path.resolve()), " ".join(_answers(path))) for path in own]
        write_table(folder / f"{name}.tsv", rows + (_runs(own, folder) if name == "train" else []))


def _answers(path: Path) -> list[str]:
    return ["yes" if one == "1" else "no" for one in path.stem.split("_")]


def _runs(files: Sequence[Path], folder: Path) -> list[tuple[str, str]]:
    """Rows of runs of words, which are written into the folder ``train``."""
    (folder / "train").mkdir(parents=True, exist_ok=True)
    rng, rows = np.random.default_rng(1), []
    for path in files:
        samples, words = read_sound(path, RATE).samples, _answers(path)
        edges = pauses(samples, len(words))
        if min(np.diff(edges)) < _SHORTEST * RATE:
            print(f"{path.name} is not cut: a word would be shorter than {_SHORTEST} seconds")
            continue
        for number in range(_RUNS):
            count = int(rng.integers(1, len(words)))
            first = int(rng.integers(len(words) - count + 1))
            name = f"train/{path.stem}-{number}.flac"
            run = samples[edges[first] : edges[first + count]]
            silence = samples[: edges[0]], samples[edges[-1] :]
            soundfile.write(folder / name, np.concatenate([silence[0], run, silence[1]]), RATE)
            rows.append((name, " ".join(words[first : first + count])))
    return rows


def pauses(samples: NDArray[Any], words: int) -> list[int]:
    """Where a recording of words of similar length is cut: before, between and after the words.

    Speech is what has more than a fiftieth of the largest energy. Each cut is where a tenth of a
    second has the least energy, at most 0.2 seconds from where it would be if all words after the
    last cut had the same length.
    """
    size = RATE // 50
    energies = np.square(samples[: len(samples) // size * size].reshape(-1, size)).mean(1)
    smooth = np.convolve(energies, np.ones(5) / 5, "same")
    spoken = np.flatnonzero(smooth > smooth.max() / 50)
    cuts = [int(spoken[0])]
    for left in range(words, 1, -1):
        place = cuts[-1] + round((int(spoken[-1]) - cuts[-1]) / left)
        cuts.append(place - 10 + int(smooth[place - 10 : place + 11].argmin()))
    edges = [max(0, cuts[0] - 5), *cuts[1:], int(spoken[-1]) + 5]
    return [edge * size for edge in edges]


class Digits:
    """Recordings of the Free Spoken Digit Dataset, by speaker.

    Args:
        source: the folder ``recordings``.
        folder: where utterances are written.
    """

    def __init__(self, source: Path, folder: Path) -> None:
        self.folder, self.rng = folder, np.random.default_rng(1)
        self.of: dict[str, list[tuple[int, Path]]] = {}
        self.validation: dict[str, list[tuple[int, Path]]] = {}
        for path in sorted(source.glob("*_*_*.wav")):
            digit, speaker, number = path.stem.split("_")
            part = self.validation if int(number) < _VALIDATION else self.of
            part.setdefault(speaker, []).append((int(digit), path))
        if not self.of:
            raise UserError(f"{source} has no recordings such as 7_theo_0.wav")

    def joined(self, own: Sequence[tuple[int, Path]], count: int) -> tuple[NDArray[Any], list[Any]]:
        """An utterance of so many digits, with pauses of 0.05 to 0.3 seconds; and each digit's
        word, start and end."""
        pieces: list[NDArray[Any]] = [self._pause()]
        words = []
        for place in self.rng.integers(len(own), size=count):
            digit, path = own[int(place)]
            start = sum(map(len, pieces)) / RATE
            pieces += [read_sound(path, RATE).samples, self._pause()]
            words.append([NAMES[digit], start, start + len(pieces[-2]) / RATE])
        return np.concatenate(pieces), words

    def _pause(self) -> NDArray[Any]:
        """Faint noise, because nothing is silent."""
        count = int(RATE * self.rng.uniform(0.05, 0.3))
        noise: NDArray[Any] = 1e-3 * self.rng.standard_normal(count)
        return noise

    def write(
        self,
        name: str,
        recordings: Sequence[Sequence[tuple[int, Path]]],
        utterances: int,
        lengths: Sequence[int],
        more: Iterable[tuple[str, str]] = (),
    ) -> None:
        """Write a table of utterances and their FLAC files, from the recordings of each speaker;
        and ``more`` rows."""
        (self.folder / name).mkdir(parents=True, exist_ok=True)
        rows, times = [], []
        for number in range(utterances):
            own = recordings[number % len(recordings)]
            samples, words = self.joined(own, int(self.rng.choice(lengths)))
            path = f"{name}/{number}.flac"
            soundfile.write(self.folder / path, samples, RATE)
            rows.append((path, " ".join(word for word, *_ in words)))
            times.append(words)
        write_table(self.folder / f"{name}.tsv", [*rows, *more])
        write_json(self.folder / f"{name}.times.json", times)


def write_digits(source: Path, folder: Path, held_out: str, voices: int) -> None:
    """Joined digits, with one speaker held out, and so many synthetic voices for training."""
    digits = Digits(source, folder)
    if held_out not in digits.of:
        raise UserError(f"no speaker {held_out}; there are {', '.join(digits.of)}")
    others = [name for name in digits.of if name != held_out]
    train, utterances = [digits.of[one] for one in others], _UTTERANCES["train"]
    alone: list[tuple[str, str]] = []
    if voices:
        made = made_voices(NAMES, voices, folder / "voices", RATE)
        own = [*train, *made.values()]
        alone = [(str(path.resolve()), NAMES[digit]) for one in own for digit, path in one]
        train = [one for both in zip(cycle(train), made.values(), strict=False) for one in both]
        utterances *= 2
    digits.write("train", train, utterances, range(1, 6), alone)
    of = [digits.validation[one] for one in others]
    digits.write("validation", of, _UTTERANCES["validation"], range(1, 6))
    tested = digits.of[held_out] + digits.validation[held_out]
    digits.write("test", [tested], _UTTERANCES["test"], range(3, 8))
    for count in LONG:
        digits.write(f"long-{count}", [tested], 20, [count])
    single = [(path.resolve(), NAMES[digit]) for digit, path in tested]
    write_table(folder / "single.tsv", single)


def write_an4(source: Path, folder: Path) -> None:
    """AN4 as files of NumPy."""
    for name in ("train", "test"):
        lines = (source / f"{name}.tsv").read_text(encoding="utf-8").splitlines()
        texts = [line.split("\t") for line in lines]
        with np.load(source / f"{name}.npz") as stored:
            frames = stored["low"] + stored["step"] * stored["frames"].astype(np.float32)
            ends = np.cumsum(stored["lengths"])
        (folder / name).mkdir(parents=True, exist_ok=True)
        rows: dict[str, list[tuple[str, str]]] = {}
        speakers = sorted({utterance.split("-")[1] for utterance, _ in texts})
        for (utterance, text), one in zip(texts, np.split(frames, ends[:-1]), strict=True):
            path = f"{name}/{utterance}.npy"
            with atomic_file(folder / path) as file:
                np.save(file, one.astype(np.float32))
            held = name == "train" and speakers.index(utterance.split("-")[1]) % 10 == 0
            rows.setdefault("validation" if held else name, []).append((path, text))
        for part, own in rows.items():
            write_table(folder / f"{part}.tsv", own)


def write_ljspeech(source: Path, folder: Path) -> None:
    """LJSpeech, or a part of it."""
    tables = [source / f"metadata.{ending}" for ending in ("csv", "tsv")]
    table = next((one for one in tables if one.exists()), None)
    if table is None:
        raise UserError(f"{source} has no metadata.csv or metadata.tsv")
    if (source / "clips.tar").exists():
        with tarfile.open(source / "clips.tar") as archive:
            archive.extractall(folder / "clips", filter="data")
        source = folder / "clips"
    recordings = {one.stem: one.resolve() for one in source.rglob("*.*")}
    separator = "|" if table.suffix == ".csv" else "\t"
    rows = []
    for line in table.read_text(encoding="utf-8").splitlines():
        name, *texts = line.split(separator)
        rows.append((str(recordings[name]), texts[-1]))
    parts = {"train": rows[:-40], "validation": rows[-40:-20], "test": rows[-20:]}
    for part, own in parts.items():
        write_table(folder / f"{part}.tsv", own)


def main() -> None:
    """Write the tables that the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", choices=["yesno", "digits", "an4", "ljspeech"])
    parser.add_argument("source", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--speaker", default="theo", help="the speaker that is held out")
    parser.add_argument("--voices", type=int, default=0, help="synthetic voices for training")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    if given.corpus == "yesno":
        write_yesno(given.source, given.folder)
    elif given.corpus == "digits":
        write_digits(given.source, given.folder, given.speaker, given.voices)
    elif given.corpus == "an4":
        write_an4(given.source, given.folder)
    else:
        write_ljspeech(given.source, given.folder)


if __name__ == "__main__":
    main()
