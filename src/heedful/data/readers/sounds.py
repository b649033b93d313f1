"""Sounds: files that libsndfile reads (WAV, FLAC, Ogg, MP3), as samples of one channel.

Shapes: N samples, C channels.
"""

import io
import struct
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import soundfile
from numpy.typing import NDArray

from heedful.basics.errors import UserError
from heedful.data.readers.data_uris import bytes_in, data_of, folder_beside, of_table, uri_of
from heedful.data.readers.kinds import extension
from heedful.data.readers.labelled import read_labelled

ENDINGS = (".wav", ".flac", ".ogg", ".opus", ".oga", ".mp3", ".aif", ".aiff", ".au")
"""The endings of sounds in folders."""
RATES = (4_000, 192_000)
"""The lowest and the highest rate in samples per second."""
MOST_SECONDS = 3 * 3600
"""Of one file that is read as a whole; longer ones are read in blocks."""
FEATURES = "application/x-npy"
"""The type of a file of features in a data URI."""
_BLOCK = 1 << 20
"""Samples of a channel that are read at a time."""
_UNKNOWN = 1 << 62
"""libsndfile gives such a number of samples, or more, if a file does not say how many it has."""
_ENDLESS = 0x7FFF0000
"""Programs that write a WAV to a pipe declare so many bytes, or more."""
_PAGE = 27 + 255 + 255 * 255
"""Bytes of the longest page of an Ogg file."""
_LOST = 1152
"""Samples that may be missing at the end: of one frame of MP3."""
_LOUD = 0.999
"""Absolute values from here on are at the limit of their type."""
_QUIET = 1e-4
"""The largest sample of a silent sound."""
_HEARD = 1e-4
"""A part of a sound with less energy than this share of the loudest part (−40 dB) is silence."""


class Sound(NamedTuple):
    """Samples of one channel."""

    samples: NDArray[np.float32]
    """``[N]``, from −1 to 1."""
    rate: int
    """Samples per second."""

    clipped: float = 0.0
    """The share of samples that were at the limit of their type in the file, of all channels."""

    @property
    def seconds(self) -> float:
        """The duration."""
        return len(self.samples) / self.rate

    @property
    def is_silent(self) -> bool:
        """Whether no sample is above 0.0001."""
        return bool(np.abs(self.samples).max(initial=0.0) <= _QUIET)


def read_sound(source: str | Path | bytes, rate: int | None = None, where: str = "") -> Sound:
    """The sound in a file; several channels become their mean.

    Args:
        source: a path, or a file's bytes.
        rate: the rate to resample to; by default, the file's own.
        where: the file, for messages; by default, the path.

    Raises:
        UserError: the file cannot be read, is no sound, is damaged, empty or longer than three
            hours, a sample is not a number, or its rate is not supported.
    """
    name = where or ("the sound" if isinstance(source, bytes) else str(source))
    with _opened(source, name) as file:
        _check(file, name)
        samples, count, loud = np.empty(file.frames, np.float32), 0, 0.0
        for block in _blocks(file, _BLOCK, name):  # many channels need no more memory than one
            samples[count : count + len(block.samples)] = block.samples
            count += len(block.samples)
            loud += block.clipped * len(block.samples)
        sound = Sound(samples[:count], file.samplerate, loud / max(count, 1))
    return sound if rate is None else resampled(sound, rate)


def read_blocks(path: str | Path, seconds: float, rate: int | None = None) -> Iterator[Sound]:
    """A file of any length in blocks, so that memory does not depend on its length.

    Each block is resampled by itself; the last one may be shorter.

    Args:
        path: the file.
        seconds: the duration of a block.
        rate: the rate to resample to; by default, the file's own.

    Raises:
        UserError: as for :func:`read_sound`, but without a longest duration.
    """
    with _opened(path, str(path)) as file:
        _check(file, str(path), whole=False)
        for sound in _blocks(file, int(seconds * file.samplerate), str(path)):
            yield sound if rate is None else resampled(sound, rate)


def check_file(path: str | Path) -> None:
    """Check what the beginning and the end of a file of sound say, without reading its samples.

    Raises:
        UserError: as for :func:`read_sound`; damage in the middle of the file is not found.
    """
    with _opened(path, str(path)) as file:
        _check(file, str(path))


def resampled(sound: Sound, rate: int) -> Sound:
    """The sound at another rate: a polyphase filter with a Kaiser window (SciPy).

    Raises:
        UserError: the rate is not supported.
    """
    _check_rate(rate, "the rate")
    if rate == sound.rate:
        return sound
    from scipy.signal import resample_poly  # takes longer to import than to use

    ratio = Fraction(rate, sound.rate)
    samples = resample_poly(sound.samples, ratio.numerator, ratio.denominator)
    return Sound(samples.astype(np.float32), rate, sound.clipped)


def heard_span(sound: Sound, kept: float) -> tuple[int, int]:
    """The first sample and the end of a sound without the silence at its ends.

    Silence is what has at least 40 dB less energy than the loudest fiftieth of a second.

    Args:
        sound: all of it is heard if all of it is silent.
        kept: seconds of silence that stay at both ends.

    Example:
        >>> samples = np.zeros(1000, np.float32)
        >>> samples[400:600] = 0.5
        >>> heard_span(Sound(samples, rate=1000), kept=0.1)
        (300, 700)
    """
    size, count = max(1, sound.rate // 50), len(sound.samples)
    if sound.is_silent:
        return 0, count
    padded = np.zeros(-(-count // size) * size)
    padded[:count] = sound.samples
    energies = (padded.reshape(-1, size) ** 2).sum(1)
    loud = np.flatnonzero(energies > _HEARD * energies.max())
    more = round(kept * sound.rate)
    return max(0, int(loud[0]) * size - more), min(count, (int(loud[-1]) + 1) * size + more)


def quiet_cuts(sound: Sound, longest: float) -> list[int]:
    """Where a sound is cut so that no part is longer than so many seconds; empty if it is not.

    Each cut is in the last third of the longest part that is possible, where a tenth of a second
    has the least energy.

    Returns:
        Samples, in ascending order.

    Example:
        >>> samples = np.ones(100, np.float32)
        >>> samples[50:60] = 0
        >>> quiet_cuts(Sound(samples, 10), longest=7.0)
        [50]
    """
    size, tenth = max(1, int(longest * sound.rate)), max(1, sound.rate // 10)
    cuts, first = [], 0
    while len(sound.samples) - first > size:
        begin = first + 2 * size // 3
        part = sound.samples[begin : first + size].astype(np.float64) ** 2
        count = max(1, len(part) // tenth)
        energies = [own.sum() for own in np.array_split(part, count)]
        middle = (int(np.argmin(energies)) * len(part) + len(part) // 2) // count
        first = max(begin + middle, first + 1)
        cuts.append(first)
    return cuts


def as_flac(sound: Sound) -> str:
    """A FLAC file of 16 bits a sample, as a data URI; a sound beyond −1 to 1 becomes quieter."""
    file = io.BytesIO()
    peak = max(1.0, float(np.abs(sound.samples).max()))
    soundfile.write(file, sound.samples / peak, sound.rate, format="FLAC", subtype="PCM_16")
    return uri_of("audio/flac", file.getvalue())


def sound_bytes(uri: str, where: str = "the sound") -> bytes:
    """The bytes of a sound, or of features (:data:`FEATURES`), in a data URI.

    Raises:
        UserError: it is not such a data URI in base64.
    """
    return data_of(uri, ("audio/", "video/", FEATURES), where)


def as_uri(path: str | Path) -> str:
    """The bytes of a sound file, or of a file of features (.npy), as a data URI.

    Raises:
        UserError: the file cannot be read.
    """
    ending = extension(str(path))
    kind = FEATURES if ending == ".npy" else f"audio/{ending.removeprefix('.') or 'wav'}"
    return uri_of(kind, bytes_in(path, "the sound"))


def read_features(data: bytes, width: int, where: str) -> NDArray[np.float32]:
    """Features ``[T, width]`` in a file of NumPy.

    Raises:
        UserError: it is no such file, has another width, no frames, or a value that is not finite.
    """
    try:
        found = np.load(io.BytesIO(data), allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise UserError(f"{where}: not a file of features (.npy)") from error
    if not isinstance(found, np.ndarray) or found.ndim != 2 or found.dtype.kind not in "fiu":
        raise UserError(f"{where}: features are an array of numbers [frames, {width}]")
    if found.shape[1] != width or not len(found):
        raise UserError(
            f"{where}: {found.shape[0]:,} frames of {found.shape[1]:,} features; expected are one "
            f"or more frames of {width:,} (data.features.bands)"
        )
    frames: NDArray[np.float32] = found.astype(np.float32)
    if not np.isfinite(frames).all():
        raise UserError(f"{where}: a feature is not a finite number")
    return frames


class Clip(NamedTuple):
    """The bytes of a sound file as a data URI, and its text."""

    uri: str
    text: str
    where: str
    """The sound, for messages."""


def read_clips(
    path: str, *, sound: str, text: str, folder: str = "", encoding: str | None = None
) -> Iterator[Clip]:
    """The sounds of a table (CSV, TSV, JSON lines) with a text in each row.

    Args:
        path: the table, or ``-`` for standard input.
        sound: its column of paths.
        text: its column of texts.
        folder: the folder that paths are relative to, itself relative to the table or to the
            current folder; by default, the table's.
        encoding: of the table; UTF-8 by default.

    Raises:
        UserError: a file is missing or invalid.
    """
    base = folder_beside(path, folder)
    rows = read_labelled(
        path,
        text=(sound,),
        label=text,
        encoding=encoding,
        unlabelled=None,
        choice="the settings data.sound and data.text",
    )
    for row in rows:
        [name] = row.texts
        if name.startswith("data:"):
            yield Clip(name, row.label, f"a sound in {path}")
        else:
            uri = of_table(path, as_uri, base / name)
            yield Clip(uri, row.label, str(base / name))


def _opened(source: str | Path | bytes, name: str) -> soundfile.SoundFile:
    try:
        if isinstance(source, bytes):
            _check_end(io.BytesIO(source), name)
            return soundfile.SoundFile(io.BytesIO(source))
        with Path(source).open("rb") as file:  # libsndfile does not say why it cannot open a file
            _check_end(file, name)
        return soundfile.SoundFile(str(source))
    except OSError as error:
        raise UserError(f"cannot read {name}: {error.strerror or error}") from error
    except soundfile.LibsndfileError as error:
        raise UserError(
            f"{name}: not a sound that can be read (WAV, FLAC, Ogg, MP3): {error.error_string}"
        ) from error


def _check_end(file: BinaryIO, name: str) -> None:
    """Raise UserError if a file ends before its samples do; libsndfile reads what is there."""
    if not file.seekable():
        return
    head = file.read(12)
    if head[:4] == b"RIFF" and head[8:] == b"WAVE":
        there, size = _bytes_of_chunk(file, b"data", "<4sI")
    elif head[:4] == b"FORM" and head[8:11] == b"AIF":  # AIFF, AIFC
        there, size = _bytes_of_chunk(file, b"SSND", ">4sI")
    elif head[:4] == b".snd" and len(head) == 12:  # AU
        start, size = struct.unpack(">4xII", head)
        there = file.seek(0, io.SEEK_END) - start
    elif head[:4] == b"OggS":
        there, size = _bytes_of_page(file)
    else:
        return
    if there < size < _ENDLESS:
        raise UserError(
            f"{name}: the sound is damaged ({there:,} of {size:,} bytes are there); save it again"
        )


def _bytes_of_chunk(file: BinaryIO, wanted: bytes, form: str) -> tuple[int, int]:
    """The bytes of a chunk that are there, and those that it declares; 0 without such a chunk."""
    while len(head := file.read(8)) == 8:
        kind, size = struct.unpack(form, head)
        start = file.tell()
        if kind == wanted:
            return file.seek(0, io.SEEK_END) - start, size
        file.seek(start + size + size % 2)
    return 0, 0


def _bytes_of_page(file: BinaryIO) -> tuple[int, int]:
    """The bytes of the last page of an Ogg file that are there, and those that it declares."""
    end = file.seek(0, io.SEEK_END)
    file.seek(max(0, end - _PAGE))
    data = file.read()
    page = data[max(0, data.rfind(b"OggS\0")) :]
    count = page[26] if len(page) > 26 else 0
    return len(page), 27 + count + sum(page[27 : 27 + count])


def _check(file: soundfile.SoundFile, name: str, *, whole: bool = True) -> None:
    _check_rate(file.samplerate, name)
    if not file.frames:
        raise UserError(f"{name}: no samples; record it again, or leave it out")
    if file.frames >= _UNKNOWN:
        raise UserError(f"{name}: the file does not say how long it is; save it again")
    seconds = file.frames / file.samplerate
    if whole and seconds > MOST_SECONDS:
        raise UserError(
            f"{name}: {seconds / 3600:.1f} hours; at most {MOST_SECONDS // 3600}: cut it into parts"
        )


def _check_rate(rate: int, where: str) -> None:
    if not RATES[0] <= rate <= RATES[1]:
        raise UserError(
            f"{where}: {rate:,} samples per second; supported are {RATES[0]:,} to {RATES[1]:,}"
        )


def _blocks(file: soundfile.SoundFile, size: int, name: str) -> Iterator[Sound]:
    """The sound in blocks of so many samples.

    Raises:
        UserError: the file is damaged.
    """
    there = 0
    try:
        # SoundFile.blocks fills what is missing with the memory that was there before.
        while there < file.frames:
            block = file.read(size, dtype="float32", always_2d=True)
            if not len(block):
                break
            there += len(block)
            yield _mono(block, file.samplerate, name)
    except soundfile.LibsndfileError as error:
        raise UserError(f"{name}: the sound is damaged ({error}); save it again") from error
    if not there or file.frames - there > _LOST:
        raise UserError(
            f"{name}: the sound is damaged ({there:,} of {file.frames:,} samples are there); save "
            "it again"
        )


def _mono(samples: NDArray[np.float32], rate: int, name: str) -> Sound:
    """One channel from ``[N, C]``; infinite values are at the limit."""
    if np.isnan(samples).any():
        raise UserError(f"{name}: a sample is not a number (NaN); save it again")
    loud = float((np.abs(samples) >= _LOUD).mean()) if samples.size else 0.0
    mean = np.nan_to_num(samples, posinf=1.0, neginf=-1.0).mean(1, dtype=np.float32)
    return Sound(mean, rate, loud)
