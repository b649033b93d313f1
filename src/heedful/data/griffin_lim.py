"""From log-mel features back to a sound: magnitudes from mel energies, phases by Griffin–Lim.

Mel energies are E = P F with the filters F; P are the squared magnitudes of a Fourier transform,
which are estimated first. Phases are then found by projecting in turn on the spectra with these
magnitudes, and on the spectra that belong to a signal.
Shapes: N samples, T frames, S frequencies, M mel bands.
"""

import torch
from torch import Tensor

from heedful.data.readers.sounds import Sound
from heedful.data.sound_features import SoundFeatures

_TINY = 1e-10


def to_sound(
    log_mel: Tensor,
    features: SoundFeatures,
    *,
    iterations: int = 60,
    momentum: float = 0.99,
    seed: int = 0,
) -> Sound:
    """The sound of ``log_mel [T, M]``, natural logarithms of energies.

    Args:
        log_mel: the result of :meth:`~heedful.data.sound_features.SoundFeatures.log_mel`, or
            predicted.
        features: with which it was computed.
        iterations: see :func:`griffin_lim`, like the arguments after it.
        momentum: α.
        seed: of the first phases.

    Example:
        >>> features = SoundFeatures(rate=8000, bands=40)
        >>> len(to_sound(torch.zeros(11, 40), features, iterations=2).samples)
        800
    """
    found = griffin_lim(
        magnitudes(log_mel, features).float(),
        features,
        iterations=iterations,
        momentum=momentum,
        seed=seed,
    )
    peak = float(found.abs().max()) if len(found) else 0.0
    if peak > 1:
        found = found / peak
    return Sound(found.float().numpy(), features.rate)


def magnitudes(log_mel: Tensor, features: SoundFeatures, steps: int = 30) -> Tensor:
    """Magnitudes ``[T, S]`` of the Fourier transform whose mel energies are those of
    ``log_mel [T, M]``, approximately.

    The least-squares solution by the pseudo-inverse, without negative values, is improved by
    multiplicative steps, which reduce the divergence of P F from E:

        P ← P ∘ ((E / P F) Fᵀ) / (1 Fᵀ)

    Source: Lee, Seung 2000, "Algorithms for Non-negative Matrix Factorization", theorem 2.

    Args:
        log_mel: natural logarithms of energies.
        features: with which they were computed.
        steps: number of multiplicative steps.
    """
    filters = features.filters  # [S, M]
    energies = log_mel.double().exp()
    smallest = _TINY * energies.amax(1, keepdim=True)
    squares = torch.maximum(energies @ torch.linalg.pinv(filters), smallest)
    weights = filters.sum(1)  # 0 for frequencies below the first band and above the last one
    heard = weights > 0
    squares = torch.where(heard, squares, torch.zeros_like(squares))
    for _ in range(steps):
        ratio = energies / (squares @ filters).clamp(min=_TINY * _TINY)
        squares = squares * (ratio @ filters.T) / torch.where(heard, weights, 1.0)
    return squares.sqrt()


def griffin_lim(
    target: Tensor,
    features: SoundFeatures,
    *,
    iterations: int = 60,
    momentum: float = 0.99,
    seed: int = 0,
) -> Tensor:
    """Samples ``[(T − 1) · step]`` whose spectrum has the magnitudes ``target [T, S]``,
    approximately.

        c_n = C(M(t_{n−1})),   t_n = c_n + α (c_n − c_{n−1})

    M gives a spectrum the target's magnitudes; C is the spectrum of the signal that is closest to a
    spectrum. With α = 0 it is the algorithm of Griffin and Lim.

    Args:
        target: magnitudes.
        features: the window and the step of the Fourier transform, a window of at least two steps.
        iterations: number of iterations.
        momentum: α.
        seed: of the first phases.

    Source: Griffin, Lim 1984, "Signal Estimation from Modified Short-Time Fourier Transform";
    Perraudin, Balazs, Søndergaard 2013, "A Fast Griffin-Lim Algorithm", algorithm 2.
    """
    size, hop, width = features.sizes
    target = target.T  # [S, T]
    window = torch.hann_window(width, dtype=target.dtype)
    length = (target.shape[1] - 1) * hop
    if length <= size // 2:  # A Fourier transform of mirrored samples needs more of them.
        return target.new_zeros(max(0, length))

    def signal(spectrum: Tensor) -> Tensor:
        return torch.istft(spectrum, size, hop, width, window, center=True, length=length)

    def with_target(spectrum: Tensor) -> Tensor:
        return target * spectrum / spectrum.abs().clamp(min=_TINY)

    generator = torch.Generator().manual_seed(seed)
    angles = 2 * torch.pi * torch.rand(target.shape, generator=generator, dtype=target.dtype)
    mixed = torch.polar(target, angles)
    before = torch.zeros_like(mixed)
    for _ in range(iterations):
        own = torch.stft(
            signal(with_target(mixed)),
            size,
            hop,
            width,
            window,
            center=True,
            pad_mode="reflect",
            return_complex=True,
        )
        mixed, before = own + momentum * (own - before), own
    return signal(with_target(mixed))
