"""Spoken digits in synthetic voices, as further speakers for ``speech_data.py digits``.

The program espeak-ng is called, not linked: it is under the GPL. A voice is an accent of English
with a variant, which changes formants and timbre. Pitch, speed and faint noise differ from
recording to recording.
"""

import shutil
import subprocess
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
import soundfile

from heedful.basics.errors import UserError
from heedful.data.readers.sounds import read_sound

ACCENTS = (
    "en-us",
    "en-gb",
    "en-gb-scotland",
    "en-gb-x-rp",
    "en-gb-x-gbclan",
    "en-gb-x-gbcwmd",
    "en-029",
)
VARIANTS = (
    "adam Alex Alicia Andrea Andy Annie anika antonio aunty belinda benjamin boris caleb david "
    "Denis Diogo ed edward f1 f2 f3 f4 f5 Gene grandma grandpa gustave Henrique Hugo iven Jacky "
    "john klatt klatt2 klatt3 Lee linda m1 m2 m3 m4 m5 m6 m7 m8 Marco marcelo Mario max Michael "
    "michel miguel Mike norbert pablo paul pedro quincy rob robert sandro shelby steph travis "
    "victor zac"
)
"""Names with spaces between them."""
REPEATED = 3
"""Recordings of each word and voice."""
PITCHES, SPEEDS = (20, 80), (100, 190)
"""Options of espeak-ng: 0 to 99, and words per minute."""
NOISE = (1e-4, 1e-2)
"""Standard deviation of the noise, relative to the loudest sample."""
_QUIET = 0.02
"""Samples below this, relative to the loudest one, are cut off at the ends."""


def made_voices(
    names: Sequence[str], count: int, folder: Path, rate: int
) -> dict[str, list[tuple[int, Path]]]:
    """Voice → recordings of the words ``names``, each with the word's place.

    Args:
        names: the words.
        count: number of voices.
        folder: where recordings are written, as FLAC.
        rate: samples per second.

    Raises:
        UserError: espeak-ng is not installed, or has not so many voices.
    """
    if shutil.which("espeak-ng") is None:
        raise UserError("espeak-ng is missing; install it: apt-get install espeak-ng")
    voices = [f"{accent}+{variant}" for accent, variant in product(ACCENTS, VARIANTS.split())]
    if count > len(voices):
        raise UserError(f"--voices {count}: there are {len(voices)}")
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(1)
    found: dict[str, list[tuple[int, Path]]] = {}
    for voice in rng.permutation(voices)[:count].tolist():
        found[voice] = []
        for place, number in product(range(len(names)), range(REPEATED)):
            path = folder / f"{place}_{voice}_{number}.flac"
            _speak(names[place], voice, path, rate, rng)
            found[voice].append((place, path))
    return found


def _speak(word: str, voice: str, path: Path, rate: int, rng: np.random.Generator) -> None:
    """Write what the voice says, without silence at the ends, with faint noise."""
    pitch, speed = rng.integers(*PITCHES), rng.integers(*SPEEDS)
    wave = path.with_suffix(".wav")
    options = ["-v", voice, "-p", str(pitch), "-s", str(speed), "-w", str(wave)]
    subprocess.run(["espeak-ng", *options, "--", word], check=True, capture_output=True)
    samples = read_sound(wave, rate).samples
    wave.unlink()
    loudest = np.abs(samples).max()
    [loud] = np.nonzero(np.abs(samples) > _QUIET * loudest)
    samples = samples[loud[0] : loud[-1] + 1] / loudest * rng.uniform(0.1, 0.8)
    spread = np.exp(rng.uniform(*np.log(NOISE))) * np.abs(samples).max()
    samples = samples + spread * rng.standard_normal(len(samples))
    soundfile.write(path, np.clip(samples, -1, 1), rate)
