"""Features of sounds: logarithmic mel filterbanks, cepstral coefficients, deltas, normalization.

Shapes: N samples, T frames, S frequencies, M mel bands, C coefficients, F features.
"""

import functools
import math
from typing import Annotated, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, model_validator
from torch import Tensor

from heedful.basics.settings import Settings
from heedful.data.readers.sounds import RATES, Sound, resampled

_FLOOR = 1e-10
"""The least energy of a band, whose logarithm is that of silence."""
_SMALL = 1e-5
"""Features with a smaller standard deviation are only centred."""


class SoundFeatures(Settings):
    """How samples become frames of features.

    Example:
        >>> from heedful.data.readers.sounds import Sound
        >>> SoundFeatures(rate=8000, bands=40).of(Sound(np.zeros(8000, np.float32), 8000)).shape
        torch.Size([101, 40])
    """

    kind: Literal["log-mel", "mfcc", "given"] = "log-mel"
    """Logarithms of mel bands, or their cepstral coefficients; or ``given``: features in files of
    NumPy (.npy), ``[T, bands]``, instead of sounds."""
    rate: Annotated[int, Field(ge=RATES[0], le=RATES[1])] = 16_000
    """Samples per second; other sounds are resampled."""
    window: Annotated[float, Field(gt=0, le=1)] = 0.025
    """Seconds of a window."""
    step: Annotated[float, Field(gt=0, le=1)] = 0.01
    """Seconds from one frame to the next. Frame t is centred at t · step."""
    bands: Annotated[int, Field(ge=2, le=512)] = 80
    """Number of mel bands M; for ``given``, number of features in a file."""
    lowest: Annotated[float, Field(ge=0)] = 20.0
    """The lower edge of the first band in Hertz."""
    highest: float | None = None
    """The upper edge of the last band in Hertz; by default, half of the rate."""
    coefficients: Annotated[int, Field(ge=1, le=512)] = 13
    """Of ``mfcc``: number of cepstral coefficients C."""
    deltas: Literal[0, 1, 2] = 0
    """Whether first, or first and second, differences over time are added."""
    normalize: Literal["utterance", "none"] = "utterance"
    """Mean 0 and variance 1 of each feature over the frames of a sound."""

    @model_validator(mode="after")
    def _edges(self) -> "SoundFeatures":
        top = self.rate / 2 if self.highest is None else self.highest
        if not self.lowest < top <= self.rate / 2:
            raise ValueError(
                f"lowest = {self.lowest:g} and highest = {top:g} Hertz must increase, up to half "
                f"of the rate, {self.rate / 2:g}"
            )
        if round(self.window * self.rate) < 2:
            raise ValueError(
                f"window = {self.window:g} seconds has fewer than two samples at rate = {self.rate}"
            )
        if self.kind == "mfcc" and self.coefficients > self.bands:
            raise ValueError(f"coefficients = {self.coefficients} exceeds bands = {self.bands}")
        return self

    @property
    def width(self) -> int:
        """Number of features F."""
        own = self.coefficients if self.kind == "mfcc" else self.bands
        return own * (1 + self.deltas)

    @property
    def seconds(self) -> float:
        """Seconds from one frame to the next: ``step`` as a whole number of samples.

        Example:
            >>> SoundFeatures(rate=11_025).seconds * 11_025
            110.0
        """
        return self.step if self.kind == "given" else self.sizes[1] / self.rate

    def of(self, sound: Sound) -> Tensor:
        """Features ``[T, F]`` of a sound, with one frame for each step, and one more.

        Raises:
            UserError: its rate is not supported.
        """
        samples = torch.from_numpy(resampled(sound, self.rate).samples)
        found = self.log_mel(samples)
        if self.kind == "mfcc":
            found = cepstrum(found, self.coefficients)
        return self.finished(found)

    def finished(self, found: Tensor) -> Tensor:
        """Features ``[T, F]`` from bands, coefficients or given features: with differences, and
        normalized."""
        parts = [found]
        for _ in range(self.deltas):
            parts.append(differences(parts[-1]))
        found = torch.cat(parts, 1)
        return normalized(found) if self.normalize == "utterance" else found

    def log_mel(self, samples: Tensor) -> Tensor:
        """Natural logarithms ``[T, M]`` of the energies in mel bands of ``samples [N]``.

        The Fourier transform of windows (Hann) of the power of two that is not shorter, of the
        samples mirrored at both ends.
        """
        size, hop, width = self.sizes
        # Mirroring needs more samples than half a window.
        short = size // 2 + 1 - len(samples)
        if short > 0:
            samples = torch.cat([samples, samples.new_zeros(short)])
        window = torch.hann_window(width, dtype=samples.dtype)
        spectrum = torch.stft(
            samples, size, hop, width, window, center=True, pad_mode="reflect", return_complex=True
        )
        energies = spectrum.abs().square().T @ self.filters.to(samples.dtype)
        return energies.clamp(min=_FLOOR).log()

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Samples of a Fourier transform, of a step and of a window."""
        width, hop = round(self.window * self.rate), max(1, round(self.step * self.rate))
        return 1 << math.ceil(math.log2(width)), hop, width

    @property
    def filters(self) -> Tensor:
        """The mel filters ``[S, M]``, float64."""
        top = self.rate / 2 if self.highest is None else self.highest
        frequencies = self.sizes[0] // 2 + 1
        return torch.from_numpy(mel_filters(frequencies, self.rate, self.bands, self.lowest, top))


@functools.lru_cache(maxsize=8)
def mel_filters(
    frequencies: int, rate: int, bands: int, lowest: float, highest: float
) -> NDArray[np.float64]:
    """Triangular filters ``[S, M]`` with their edges at equal distances on the mel scale.

        mel(f) = 2595 log₁₀(1 + f / 700)

    Source: O'Shaughnessy 1987, "Speech Communication: Human and Machine"; the form of HTK.
    """
    edges = np.linspace(_mel(lowest), _mel(highest), bands + 2)
    hertz = 700 * (10 ** (edges / 2595) - 1)
    places = np.linspace(0, rate / 2, frequencies)[:, None]
    rising = (places - hertz[:-2]) / (hertz[1:-1] - hertz[:-2])
    falling = (hertz[2:] - places) / (hertz[2:] - hertz[1:-1])
    return np.maximum(0, np.minimum(rising, falling))


def _mel(frequency: float) -> float:
    return 2595 * math.log10(1 + frequency / 700)


def cepstrum(log_mel: Tensor, coefficients: int) -> Tensor:
    """The first coefficients ``[T, C]`` of the orthonormal cosine transform (DCT-II) of bands.

    Source: Davis, Mermelstein 1980, "Comparison of Parametric Representations for Monosyllabic Word
    Recognition in Continuously Spoken Sentences", equation 1.
    """
    bands = log_mel.shape[1]
    order = torch.arange(coefficients, dtype=torch.float64)
    angles = math.pi / bands * (torch.arange(bands, dtype=torch.float64)[:, None] + 0.5) * order
    table = angles.cos() * math.sqrt(2 / bands)
    table[:, 0] = math.sqrt(1 / bands)
    return log_mel @ table.to(log_mel.dtype)


def differences(features: Tensor, around: int = 2) -> Tensor:
    """The slope ``[T, F]`` of a line through each frame and ``around`` frames on both sides:

        Σ_n n (x_{t+n} − x_{t−n}) / 2 Σ_n n²,     n = 1 … around

    The first and the last frame are repeated beyond the ends.

    Source: Furui 1986, "Speaker-Independent Isolated Word Recognition Using Dynamic Features of
    Speech Spectrum"; the form of HTK.
    """
    before, after = features[:1].expand(around, -1), features[-1:].expand(around, -1)
    wide = torch.cat([before, features, after])
    frames = len(features)
    total = torch.zeros_like(features)
    for n in range(1, around + 1):
        ahead, behind = wide[around + n :][:frames], wide[around - n :][:frames]
        total = total + n * (ahead - behind)
    return total / (2 * sum(n * n for n in range(1, around + 1)))


def normalized(features: Tensor) -> Tensor:
    """Each feature ``[T, F]`` with mean 0 and variance 1 over the frames.

    Features that do not vary, such as those of silence, become 0.
    """
    centred = features - features.mean(0)
    spread = centred.square().mean(0).sqrt()
    varying = centred / spread.clamp(min=_SMALL)
    return torch.where(spread > _SMALL, varying, torch.zeros_like(centred))
