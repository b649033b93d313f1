"""Recordings of a synthetic voice, for the recipe made-speech: texts and what eSpeak NG says.

    apt-get install espeak-ng
    unzip deu-eng.zip deu.txt    # Tatoeba's sentences, of manythings.org/anki
    python benchmarks/made_speech.py deu.txt FOLDER --column 1
    heedful train made-speech --data FOLDER --out runs/made-speech

TEXTS has one text per line, or columns with tabs between them, such as the metadata of LJSpeech.
Texts are cut at punctuation into phrases of a few words. Phrases are spoken by the program
espeak-ng, which is called, not linked: it is under the GPL. Writes ``train.tsv``,
``validation.tsv`` and ``test.tsv`` with the columns ``path`` and ``text``, and FLAC files of
16 kHz.
"""

import argparse
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

from heedful.basics.errors import UserError
from heedful.basics.files import atomic_file
from heedful.data.readers.sounds import read_sound

RATE = 16_000
HELD_OUT = {"validation": 60, "test": 100}
WORDS = range(2, 8)
"""Words of a phrase."""
_QUIET, _EDGE = 0.01, 0.05
"""Samples below this, relative to the loudest one, are cut off at the ends, but so many seconds."""


def phrases(texts: Iterable[str]) -> Iterator[str]:
    """The different phrases of texts, of words in plain letters."""
    seen = set()
    for text in texts:
        for part in re.split(r"[.,;:!?()\"“”]|--", text):
            phrase = " ".join(part.lower().split())
            fits = len(phrase.split()) in WORDS and re.fullmatch(r"[a-z' ]+", phrase)
            if fits and phrase not in seen:
                seen.add(phrase)
                yield phrase


def spoken(text: str, voice: str, words_per_minute: int, file: Path) -> NDArray[np.float32]:
    """What eSpeak NG says, at :data:`RATE`, without silence at the ends."""
    command = ["espeak-ng", "-v", voice, "-s", str(words_per_minute), "-w", str(file), "--", text]
    subprocess.run(command, check=True, capture_output=True)
    samples = read_sound(file, RATE).samples
    [loud] = np.nonzero(np.abs(samples) > _QUIET * np.abs(samples).max())
    edge = int(_EDGE * RATE)
    return samples[max(0, loud[0] - edge) : loud[-1] + edge]


def main() -> None:
    """Write the recordings that the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("texts", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--column", type=int, default=1, help="of the texts, from 1")
    parser.add_argument("--count", type=int, default=2500, help="number of recordings")
    parser.add_argument("--voice", default="en-us")
    parser.add_argument("--speed", type=int, default=150, help="words per minute")
    given = parser.parse_args()
    if shutil.which("espeak-ng") is None:
        raise UserError("espeak-ng is missing; install it: apt-get install espeak-ng")
    with given.texts.open(encoding="utf-8") as lines:
        columns = (line.rstrip("\n").split("\t") for line in lines)
        found = list(phrases(own[given.column - 1] for own in columns))
    np.random.default_rng(1).shuffle(found)
    found = found[: given.count]
    if len(found) <= sum(HELD_OUT.values()):
        raise UserError(f"{given.texts} has {len(found):,} phrases, which are too few")
    (given.folder / "clips").mkdir(parents=True, exist_ok=True)
    rows = []
    for number, text in enumerate(found):
        path = f"clips/{number}.flac"
        samples = spoken(text, given.voice, given.speed, given.folder / "clips" / "now.wav")
        soundfile.write(given.folder / path, samples, RATE)
        rows.append(f"{path}\t{text}")
    (given.folder / "clips" / "now.wav").unlink()
    first = 0
    for part, count in {**HELD_OUT, "train": len(rows)}.items():
        with atomic_file(given.folder / f"{part}.tsv") as file:
            file.write(("\n".join(["path\ttext", *rows[first : first + count]]) + "\n").encode())
        first += count


if __name__ == "__main__":
    main()
