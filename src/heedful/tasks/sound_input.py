"""Inputs that are sounds, for all tasks with sounds."""

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Self

from pydantic import ConfigDict, Field, PrivateAttr

from heedful.basics.errors import UserError
from heedful.basics.json_models import NamedInput
from heedful.data.readers.sounds import (
    FEATURES,
    Sound,
    as_flac,
    as_uri,
    check_file,
    heard_span,
    quiet_cuts,
    read_features,
    read_sound,
    sound_bytes,
)

if TYPE_CHECKING:
    from torch import Tensor

    from heedful.data.sound_features import SoundFeatures

MOST_CHARACTERS = 1 << 30
"""Of the data URI of a sound."""


class Part(NamedTuple):
    """A part of a sound."""

    start: float
    """Seconds from the beginning of the sound."""
    features: "Tensor"
    """``[T, F]``."""
    sound: Sound | None
    """The samples; None for given features."""


class Heard(NamedInput):
    """A sound."""

    model_config = ConfigDict(extra="forbid")
    _where: str = PrivateAttr("the sound")

    sound: Annotated[
        str,
        Field(
            max_length=MOST_CHARACTERS,
            description="A data URI: data:audio/wav;base64, or data:audio/ogg;base64, and so on.",
            json_schema_extra={"contentMediaType": "audio/*"},
        ),
    ]

    def samples(self, features: "SoundFeatures") -> Sound:
        """The samples at the rate of the features.

        Raises:
            UserError: it cannot be read, or it is a file of features.
        """
        if self.sound.startswith(f"data:{FEATURES}"):
            raise UserError(
                f"{self._where}: a file of features, but data.features.kind = '{features.kind}' "
                "needs a sound"
            )
        return read_sound(sound_bytes(self.sound, self._where), features.rate, self._where)

    def given(self, features: "SoundFeatures") -> "Tensor":
        """The features in a file of features.

        Raises:
            UserError: it is a sound, or the file cannot be used.
        """
        import torch

        if not self.sound.startswith(f"data:{FEATURES}"):
            raise UserError(
                f"{self._where}: a sound, but data.features.kind = 'given' needs a file of "
                "features (.npy)"
            )
        found = read_features(sound_bytes(self.sound, self._where), features.bands, self._where)
        return features.finished(torch.from_numpy(found))

    def trimmed(self, features: "SoundFeatures", kept: float | None) -> tuple[Sound, int]:
        """The samples at the rate of the features, and the place of the first one in the sound.

        Args:
            features: have the rate.
            kept: seconds of silence that stay at both ends; None for all of it.

        Raises:
            UserError: it cannot be read.
        """
        whole = self.samples(features)
        if kept is None:
            return whole, 0
        first, end = heard_span(whole, kept)
        return whole._replace(samples=whole.samples[first:end]), first

    def frames(self, features: "SoundFeatures", kept: float | None = None) -> "Tensor":
        """The features ``[T, F]`` of the sound.

        Args:
            features: how they are computed.
            kept: as for :meth:`trimmed`; given features are not trimmed.

        Raises:
            UserError: it cannot be read.
        """
        if features.kind == "given":
            return self.given(features)
        return features.of(self.trimmed(features, kept)[0])

    def parts(
        self, features: "SoundFeatures", longest: float, kept: float | None = None
    ) -> list[Part]:
        """The sound in parts of at most so many seconds, cut where it is quiet; given features are
        cut at equal lengths.

        Args:
            features: how they are computed.
            longest: seconds of the longest part.
            kept: as for :meth:`trimmed`; given features are not trimmed.

        Raises:
            UserError: it cannot be read.
        """
        if features.kind == "given":
            frames = self.given(features)
            most = max(1, int(longest / features.step))
            starts = range(0, len(frames), most)
            return [
                Part(start * features.step, frames[start : start + most], None) for start in starts
            ]
        whole, before = self.trimmed(features, kept)
        edges = [0, *quiet_cuts(whole, longest), len(whole.samples)]
        found = []
        for first, end in pairwise(edges):
            own = Sound(whole.samples[first:end], whole.rate)
            found.append(Part((before + first) / whole.rate, features.of(own), own))
        return found

    def small(self, features: "SoundFeatures") -> Self:
        """The same as a FLAC file of the features' rate, as a run keeps it."""
        if features.kind == "given":
            return self
        return self.model_copy(update={"sound": as_flac(self.samples(features))})


def rate_and_seconds(sounds: Iterable[Heard], highest: int, where: str) -> tuple[int, float]:
    """The most common rate of sounds, at most ``highest``, and their duration.

    Raises:
        UserError: there are no sounds, or one cannot be read; the message names ``where``.
    """
    rates: Counter[int] = Counter()
    seconds = 0.0
    for one in sounds:
        if one.sound.startswith(f"data:{FEATURES}"):
            raise UserError(
                f"{one.where}: a file of features, but a recipe is chosen for sounds only; "
                "transcription reads features with a recipe that has data.features.kind = 'given'"
            )
        found = read_sound(sound_bytes(one.sound, one.where), where=one.where)
        rates[found.rate] += 1
        seconds += found.seconds
    if not rates:
        raise UserError(f"{where}: no recordings to train on")
    return min(highest, rates.most_common(1)[0][0]), seconds


def heard_in(path: str) -> Heard:
    """The sound in a file.

    Raises:
        UserError: the file cannot be read.
    """
    return Heard(sound=as_uri(path)).named(path)


def read_sound_argument(text: str) -> str:
    """A JSON object as it is; the path of a file as an object with its contents.

    Raises:
        UserError: the file cannot be read, or is no sound.
    """
    if text.lstrip().startswith("{"):
        return text
    check_files([text])  # the object does not name the file
    return heard_in(text).model_dump_json()


def check_files(paths: Iterable[str]) -> None:
    """Check files before the first one is read; empty paths and files of features are not checked.

    Raises:
        UserError: a file cannot be read, or is no sound.
    """
    for path in paths:
        if path and not path.endswith(".npy"):
            check_file(path)


def lines_of(paths: Iterable[str] | None) -> Iterable[str]:
    """The files of a command line, or the lines of standard input."""
    from heedful.inference.files import line_windows

    return paths or (line.strip() for window in line_windows("-") for line in window)


def features_of(known: Any) -> "SoundFeatures":
    """The features that a run was trained with."""
    from heedful.data.sound_features import SoundFeatures

    return SoundFeatures.model_validate(known["features"])
