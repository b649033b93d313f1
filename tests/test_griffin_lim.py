"""Griffin–Lim: the spectrum of the sound that is found, measured by SciPy's Fourier transform."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy.signal import stft

from heedful.data.griffin_lim import griffin_lim, magnitudes, to_sound
from heedful.data.sound_features import SoundFeatures

FEATURES = SoundFeatures(rate=8000, window=0.05, step=0.0125, bands=60, normalize="none")


def voice(seconds: float = 0.6) -> Any:
    """A gliding tone with harmonics, in faint noise."""
    rng, time = np.random.default_rng(2), np.arange(int(8000 * seconds)) / 8000
    phase = 2 * np.pi * (140 * time + 60 * time**2)
    tone = sum(np.sin(own * phase) / own for own in range(1, 12))
    return 0.2 * tone + 0.002 * rng.standard_normal(len(time))


def spectrum(samples: Any) -> Any:
    """Magnitudes ``[T, S]`` by SciPy."""
    size, hop, width = FEATURES.sizes
    window = np.zeros(size)
    first = (size - width) // 2
    window[first : first + width] = torch.hann_window(width, dtype=torch.float64).numpy()
    _, _, found = stft(
        samples, window=window, nperseg=size, noverlap=size - hop, boundary="even", padded=False
    )
    return np.abs(found).T * window.sum()


def distance(samples: Any, target: Any) -> float:
    """‖|STFT| − target‖ / ‖target‖, the spectral convergence."""
    own = spectrum(samples)
    return float(np.linalg.norm(own - target[: len(own)]) / np.linalg.norm(target))


def test_the_spectrum_approaches_the_target() -> None:
    target = spectrum(voice())
    given = torch.from_numpy(target)
    plain = [
        distance(griffin_lim(given, FEATURES, iterations=count, momentum=0.0).numpy(), target)
        for count in (1, 4, 16, 40)
    ]
    # Griffin and Lim 1984, section IV: the distance never grows.
    assert plain == sorted(plain, reverse=True)
    fast = distance(griffin_lim(given, FEATURES, iterations=40).numpy(), target)
    assert fast < 0.6 * plain[-1]
    assert fast < 0.12


def test_without_momentum_it_is_alternating_projection() -> None:
    """One step: the signal whose windowed transform is nearest, by its least-squares formula
    (Griffin and Lim 1984, equation 6)."""
    target = torch.from_numpy(spectrum(voice(0.2)))
    size, hop, width = FEATURES.sizes
    generator = torch.Generator().manual_seed(4)
    angles = 2 * torch.pi * torch.rand(target.T.shape, generator=generator, dtype=torch.float64)
    pieces = np.fft.irfft((target.T * torch.exp(1j * angles)).T.numpy(), size)
    window = np.zeros(size)
    first = (size - width) // 2
    window[first : first + width] = torch.hann_window(width, dtype=torch.float64).numpy()
    above, below = np.zeros((2, (len(pieces) - 1) * hop + size))
    for place, piece in enumerate(pieces):
        above[place * hop : place * hop + size] += window * piece
        below[place * hop : place * hop + size] += window**2
    half = size // 2
    expected = above[half:-half] / below[half:-half]
    found = griffin_lim(target, FEATURES, iterations=0, seed=4)
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-10)


def test_magnitudes_have_the_energies_of_the_bands() -> None:
    samples = torch.from_numpy(voice())
    log_mel = FEATURES.log_mel(samples)
    errors = []
    for steps in (0, 5, 30):
        found = magnitudes(log_mel, FEATURES, steps)
        assert bool((found >= 0).all())
        assert bool(found.isfinite().all())
        own = found.square() @ FEATURES.filters
        energies = log_mel.exp()
        divergence = energies * (energies / own).log() - energies + own
        errors.append(float(divergence.sum()))
    assert errors == sorted(errors, reverse=True)
    assert float((own.log() - log_mel).abs().mean()) < 0.05
    # 20 Hz and less is below the first band.
    assert not found[:, :2].any()
    size = FEATURES.sizes[0]
    real = torch.from_numpy(spectrum(samples.numpy()))
    assert found.shape == (len(log_mel), size // 2 + 1)
    assert float((found - real).norm() / real.norm()) < 0.35


def test_the_sound_has_the_features() -> None:
    log_mel = FEATURES.log_mel(torch.from_numpy(voice()))
    sound = to_sound(log_mel, FEATURES)
    assert sound.rate == 8000
    assert len(sound.samples) == (len(log_mel) - 1) * 100
    again = FEATURES.log_mel(torch.from_numpy(sound.samples))
    assert float((again - log_mel).abs().mean()) < 0.35
    same, other = to_sound(log_mel, FEATURES), to_sound(log_mel, FEATURES, seed=3)
    assert np.array_equal(sound.samples, same.samples)
    assert not np.array_equal(sound.samples, other.samples)


@pytest.mark.parametrize("frames", [1, 2, 3, 7])
def test_short_and_loud_and_silent_sounds(frames: int) -> None:
    for level in (-200.0, 0.0, 12.0):
        sound = to_sound(torch.full((frames, 60), level), FEATURES, iterations=3)
        assert len(sound.samples) == (frames - 1) * 100
        assert np.isfinite(sound.samples).all()
        assert np.abs(sound.samples).max(initial=0) <= 1
