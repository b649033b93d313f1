"""Sounds: files, channels, rates, and features against transformers and SciPy."""

import io
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.fft
import scipy.signal
import soundfile
import torch
from pydantic import ValidationError
from transformers import audio_utils

from heedful.basics.errors import UserError
from heedful.data.readers.sounds import (
    Sound,
    as_flac,
    read_blocks,
    read_sound,
    resampled,
    sound_bytes,
)
from heedful.data.sound_augmentation import masked, warped
from heedful.data.sound_features import (
    SoundFeatures,
    cepstrum,
    differences,
    mel_filters,
    normalized,
)


def tone(rate: int, seconds: float = 0.5, hertz: float = 440.0) -> np.ndarray:
    return (0.5 * np.sin(2 * math.pi * hertz * np.arange(int(rate * seconds)) / rate)).astype("f4")


def noise(count: int = 9000, seed: int = 1) -> np.ndarray:
    return (0.3 * np.random.default_rng(seed).standard_normal(count)).astype("f4")


def file_of(samples: Any, rate: int, kind: str = "WAV", subtype: str | None = None) -> bytes:
    out = io.BytesIO()
    soundfile.write(out, samples, rate, format=kind, subtype=subtype)
    return out.getvalue()


# Files


@pytest.mark.parametrize(
    ("kind", "subtype", "error"),
    [
        ("WAV", "PCM_16", 1e-4),
        ("WAV", "PCM_U8", 1e-2),
        ("WAV", "FLOAT", 0.0),
        ("FLAC", "PCM_24", 1e-6),
        ("AIFF", "PCM_16", 1e-4),
        ("AU", "PCM_16", 1e-4),
        ("OGG", "VORBIS", 0.05),
        ("OGG", "OPUS", 0.05),
    ],
)
def test_files_of_all_kinds_are_read(kind: str, subtype: str, error: float, tmp_path: Path) -> None:
    samples = tone(16_000)
    path = tmp_path / "a.sound"
    path.write_bytes(file_of(samples, 16_000, kind, subtype))
    sound = read_sound(path)
    assert sound.rate == 16_000
    assert sound.samples.dtype == np.float32
    middle = slice(500, 7500)  # Opus needs some samples to begin
    assert abs(sound.samples[middle] - samples[middle]).max() <= error
    assert sound.seconds == pytest.approx(0.5, abs=0.02)
    assert sound.clipped == 0


def test_channels_become_their_mean() -> None:
    left, right = tone(8000), tone(8000, hertz=880)
    stereo = file_of(np.stack([left, right], 1), 8000, subtype="FLOAT")
    np.testing.assert_allclose(read_sound(stereo).samples, (left + right) / 2, atol=1e-7)


@pytest.mark.parametrize("rate", [8_000, 22_050, 44_100, 96_000])
def test_another_rate_keeps_the_tone(rate: int) -> None:
    sound = resampled(Sound(tone(rate), rate), 16_000)
    assert len(sound.samples) == 8000
    middle = slice(800, 7200)
    np.testing.assert_allclose(sound.samples[middle], tone(16_000)[middle], atol=0.01)


def test_blocks_are_the_file(tmp_path: Path) -> None:
    samples = noise(10_500)
    path = tmp_path / "long.wav"
    path.write_bytes(file_of(samples, 4000, subtype="FLOAT"))
    blocks = list(read_blocks(path, 1.0))
    assert [len(block.samples) for block in blocks] == [4000, 4000, 2500]
    np.testing.assert_array_equal(np.concatenate([one.samples for one in blocks]), samples)


def test_clipping_and_infinite_values() -> None:
    loud = np.clip(tone(8000) * 4, -1, 1)
    share = read_sound(file_of(loud, 8000)).clipped
    assert 0.4 < share < 0.9
    # It is counted in the file, before channels are mixed and the rate is changed.
    assert read_sound(file_of(loud, 8000), rate=4000).clipped == share
    one_of_two = file_of(np.stack([loud, tone(8000) / 2], 1), 8000)
    assert read_sound(one_of_two).clipped == pytest.approx(share / 2)
    infinite = tone(8000)
    infinite[5:7] = -math.inf, math.inf
    found = read_sound(file_of(infinite, 8000, subtype="FLOAT"))
    assert found.samples[5:7].tolist() == [-1.0, 1.0]
    assert found.clipped == 2 / len(infinite)


def with_length(flac: bytes, samples: int) -> bytes:
    """A FLAC file whose header has another number of samples, at most 2³² − 1."""
    return flac[:21] + bytes([flac[21] & 0xF0]) + struct.pack(">I", samples) + flac[26:]


FLAC = file_of(noise(), 8000, "FLAC")
OPUS = file_of(noise(), 8000, "OGG", "OPUS")
DAMAGED = r"a.wav: the sound is damaged \(.* bytes are there\); save it again"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"no sound at all", "a.wav: not a sound that can be read"),
        (b"", "a.wav: not a sound"),
        (file_of(tone(8000), 8000)[:30], "a.wav: not a sound|a.wav: no samples"),
        (file_of(tone(8000), 8000)[:-99], DAMAGED),
        (file_of(tone(8000), 8000, "AIFF")[:-99], DAMAGED),
        (file_of(tone(8000), 8000, "AU")[:-99], DAMAGED),
        (file_of(noise(), 8000, "OGG", "VORBIS")[:-99], DAMAGED),
        (OPUS[:-99], DAMAGED),
        (OPUS[: OPUS.rindex(b"OggS") + 20], DAMAGED),
        (OPUS[: OPUS.rindex(b"OggS") + 27], DAMAGED),
        (file_of(np.zeros(0), 8000), "a.wav: no samples; record it again"),
        (file_of(np.full(9, math.nan), 8000, subtype="FLOAT"), r"a.wav: .* not a number \(NaN\)"),
        (file_of(tone(2000), 2000), "a.wav: 2,000 samples per second; supported are 4,000"),
        (file_of(np.zeros(4000 * 10_900, "i2"), 4000, subtype="PCM_U8"), "3.0 hours; at most 3"),
        (FLAC[: len(FLAC) // 2], "a.wav: the sound is damaged .*; save it again"),
        (with_length(FLAC, 100_000), "a.wav: the sound is damaged .*; save it again"),
        (with_length(FLAC, 0), "a.wav: the file does not say how long it is"),
    ],
    ids=[
        "text",
        "empty",
        "header",
        "truncated",
        "truncated AIFF",
        "truncated AU",
        "truncated Vorbis",
        "truncated Opus",
        "truncated header of a page",
        "truncated before the lengths of a page",
        "nothing",
        "not a number",
        "slow",
        "long",
        "half",
        "short",
        "stream",
    ],
)
def test_files_that_cannot_be_used_are_one_line(data: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    path.write_bytes(data)
    with pytest.raises(UserError, match=message) as refused:
        read_sound(path)
    assert "\n" not in str(refused.value)


def test_a_wav_that_was_written_to_a_pipe_has_no_length() -> None:
    whole = file_of(tone(8000), 8000)
    at = whole.index(b"data") + 4
    piped = whole[:at] + b"\xff" * 4 + whole[at + 4 :]
    np.testing.assert_array_equal(read_sound(piped).samples, read_sound(whole).samples)


def test_many_channels_are_read_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, read = [], soundfile.SoundFile.read

    def seen(self: Any, *given: Any, **how: Any) -> Any:
        found = read(self, *given, **how)
        sizes.append(found.size)
        return found

    monkeypatch.setattr("heedful.data.readers.sounds._BLOCK", 1000)
    monkeypatch.setattr(soundfile.SoundFile, "read", seen)
    samples = noise(2500)
    file = file_of(np.stack([samples, samples, -samples, samples], 1), 8000, subtype="FLOAT")
    np.testing.assert_allclose(read_sound(file).samples, samples / 2, atol=1e-6)
    assert sizes == [4000, 4000, 2000]


def test_a_sound_beyond_the_limits_is_kept_quieter() -> None:
    loud = 3 * noise()
    kept = read_sound(sound_bytes(as_flac(Sound(loud, 8000)))).samples
    np.testing.assert_allclose(kept, loud / abs(loud).max(), atol=1e-4)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot read .*gone.wav: No such file"):
        read_sound(tmp_path / "gone.wav")


# Features


@pytest.mark.parametrize(
    ("rate", "bands", "low", "high"), [(16_000, 80, 20.0, None), (8_000, 23, 0.0, 3800.0)]
)
def test_mel_bands_are_those_of_transformers(
    rate: int, bands: int, low: float, high: float | None
) -> None:
    settings = SoundFeatures(rate=rate, bands=bands, lowest=low, highest=high)
    window = round(0.025 * rate)
    size = 1 << math.ceil(math.log2(window))
    filters = audio_utils.mel_filter_bank(
        size // 2 + 1, bands, low, high or rate / 2, rate, mel_scale="htk"
    )
    np.testing.assert_allclose(
        mel_filters(size // 2 + 1, rate, bands, low, high or rate / 2), filters, atol=1e-9
    )
    samples = noise().astype(np.float64)
    expected = audio_utils.spectrogram(
        samples,
        audio_utils.window_function(window, "hann"),
        frame_length=window,
        hop_length=round(0.01 * rate),
        fft_length=size,
        power=2.0,
        mel_filters=filters,
        mel_floor=1e-10,
        log_mel="log",
        dtype=np.float64,
    )
    found = settings.log_mel(torch.from_numpy(samples))
    np.testing.assert_allclose(found, expected.T, rtol=1e-4, atol=1e-6)  # theirs is complex64


def test_coefficients_and_differences_are_scipys() -> None:
    values = torch.randn(30, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    expected = scipy.fft.dct(values.numpy(), type=2, norm="ortho", axis=1)[:, :13]
    np.testing.assert_allclose(cepstrum(values, 13), expected, atol=1e-12)
    slopes = scipy.signal.savgol_filter(values.numpy(), 5, 1, deriv=1, axis=0, mode="nearest")
    np.testing.assert_allclose(differences(values), slopes, atol=1e-12)
    assert differences(values[:1]).abs().max() == 0


def test_a_sound_has_a_frame_for_each_step() -> None:
    sound = Sound(tone(16_000, 1.0), 16_000)
    plain = SoundFeatures(normalize="none").of(sound)
    assert plain.shape == (101, 80)
    loudest = plain.mean(0).argmax()
    edges = [700 * (10 ** (m / 2595) - 1) for m in np.linspace(31.75, 2840.03, 82)]
    assert edges[loudest] < 440 < edges[loudest + 2]
    settings = SoundFeatures(kind="mfcc", bands=40, deltas=2)
    found = settings.of(sound)
    assert found.shape == (101, 39)
    assert settings.width == 39
    again = SoundFeatures(kind="mfcc", bands=40, normalize="none").of(sound)
    np.testing.assert_allclose(found[:, :13], normalized(again), atol=1e-4)
    with_gaps = SoundFeatures(step=0.02).of(Sound(tone(8000, 1.0), 8000))
    assert with_gaps.shape == (51, 80)


@pytest.mark.parametrize("count", [1, 100, 399])
def test_short_sounds_and_silence_give_numbers(count: int) -> None:
    for samples in (np.zeros(count, "f4"), noise(count)):
        found = SoundFeatures().of(Sound(samples, 16_000))
        assert found.shape[1] == 80
        assert len(found) >= 1
        assert found.isfinite().all()
    assert SoundFeatures().of(Sound(np.zeros(8000, "f4"), 16_000)).abs().max() == 0


def test_a_sound_is_normalized_by_its_own_frames() -> None:
    quiet, loud = (SoundFeatures().of(Sound(noise() * by, 16_000)) for by in (0.01, 1.0))
    torch.testing.assert_close(quiet, loud, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(loud.mean(0), torch.zeros(80), rtol=0, atol=1e-4)
    torch.testing.assert_close(loud.square().mean(0), torch.ones(80), rtol=1e-4, atol=0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"lowest": 9000.0},
        {"highest": 9000.0},
        {"kind": "mfcc", "coefficients": 90},
        {"rate": 1000},
        {"rate": 4000, "window": 1e-4},
        {"window": 0.0},
    ],
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        SoundFeatures(**wrong)


def test_masks_hide_bands_and_stretches() -> None:
    features = torch.ones(40, 50, 20)
    lengths = [50] * 20 + [10] * 20
    how: dict[str, Any] = {"bands": (1, 6), "frames": (1, 30), "most": 0.5}
    generator = torch.Generator().manual_seed(3)
    found = masked(features, lengths, **how, generator=generator)
    widths, stretches = [], []
    for one, length in zip(found, lengths, strict=True):
        bands = (one == 0).all(0)
        frames = (one == 0).all(1)
        widths.append(int(bands.sum()))
        stretches.append((int(frames.sum()), length))
        rest = one[~frames][:, ~bands]
        assert (rest == 1).all()
        for hidden in (bands, frames):  # each is one stretch
            changes = hidden.int().diff().abs().sum() + hidden[0].int() + hidden[-1].int()
            assert changes <= 2
        assert not frames[length:].any()
    again = masked(features, lengths, **how, generator=torch.Generator().manual_seed(3))
    assert torch.equal(found, again)
    assert set(widths) == set(range(7))
    assert max(own for own, length in stretches if length == 50) > 20
    assert all(own <= length / 2 for own, length in stretches)
    how |= {"bands": (0, 1), "most": 0.2}
    short = masked(features[:, :12], [12] * 40, **how, generator=generator)
    assert int((short[..., 0] == 0).sum(1).max()) == 2  # 0.2 · 12, rounded down


def test_stretching_moves_bands_and_frames() -> None:
    """Each band and frame of a warped sound is that of the position it was drawn from."""
    features = torch.arange(12.0).view(1, 12, 1) + 100 * torch.arange(8.0)  # [1, T, F]
    lengths = torch.tensor([12])
    same, count = warped(features, lengths)
    torch.testing.assert_close(same, features)
    assert count.tolist() == [12]
    for seed in range(5):
        first = 2 * torch.rand(2, 1, generator=torch.Generator().manual_seed(seed)) - 1
        bands, speed = (1 + 0.3 * first).flatten().tolist()
        found, count = warped(
            features,
            lengths,
            frequency=0.3,
            time=0.3,
            generator=torch.Generator().manual_seed(seed),
        )
        assert count.tolist() == [round(12 * speed)] == [found.shape[1]]
        for t in range(found.shape[1]):
            for f in range(8):
                row = min(max((t + 0.5) * 12 / found.shape[1] - 0.5, 0), 11)
                column = min(max((f + 0.5) / bands - 0.5, 0), 7)
                assert float(found[0, t, f]) == pytest.approx(row + 100 * column, abs=1e-3)


def test_stretched_sounds_of_a_batch_do_not_read_each_other() -> None:
    generator = torch.Generator().manual_seed(2)
    features = torch.randn(3, 20, 6, generator=generator)
    lengths = torch.tensor([20, 7, 1])
    how = {"frequency": 0.2, "time": 0.4}
    found, counts = warped(features, lengths, **how, generator=torch.Generator().manual_seed(5))
    changed = features.clone()
    for row, length in enumerate(lengths.tolist()):
        changed[row, length:] = 3.0
    again, _ = warped(changed, lengths, **how, generator=torch.Generator().manual_seed(5))
    torch.testing.assert_close(found, again)
    for row, count in enumerate(counts.tolist()):
        assert count >= 1
        assert not found[row, count:].any()
        assert found[row, :count].any()
