"""Recordings in which each character is a tone, and a recipe for them."""

from pathlib import Path
from typing import Any

import numpy as np
import soundfile

RATE, TONE = 8000, 0.12
TONES = {"a": 300.0, "b": 650.0, "c": 1300.0, "d": 2500.0}
RECIPE: dict[str, Any] = {
    "task": "synthesis",
    "data": {
        "train": "train.tsv",
        "validation": "test.tsv",
        "test": "test.tsv",
        "features": {"rate": RATE, "bands": 24, "window": 0.06, "step": 0.03},
    },
    "model": {
        "kind": "recurrent",
        "embedding_size": 16,
        "encoder_convolutions": 1,
        "encoder_size": 12,
        "hidden_size": 32,
        "decoder_layers": 1,
        "prenet_size": 16,
        "prenet_dropout": 0.1,
        "postnet_layers": 1,
        "convolution_dropout": 0.0,
        "dropout": 0.0,
        "frames_per_step": 2,
    },
    "training": {
        "learning_rate": 0.015,
        "warmup_steps": 10,
        "schedule": "linear",
        "max_steps": 160,
        "validate_every": 160,
        "checkpoint_every": 160,
        "batch_tokens": 250,
        "error": "l2",
        "precision": "float32",
        "device": "cpu",
        "threads": 1,
    },
}


def spoken(rng: np.random.Generator, text: str, tones: dict[str, float] = TONES) -> Any:
    """A tone for each character, in faint noise."""
    count = int(RATE * TONE)
    edge = np.minimum(1, np.minimum(np.arange(count), np.arange(count)[::-1]) / 80)
    time = np.arange(count) / RATE
    parts = [0.5 * np.sin(2 * np.pi * tones[one] * time) * edge for one in text]
    clean = np.concatenate(parts)
    return clean + 0.003 * rng.standard_normal(len(clean))


def write_clips(place: Path, tones: dict[str, float] = TONES, **counts: int) -> None:
    """A table and recordings of random texts for each part."""
    rng = np.random.default_rng(1)
    for part, count in counts.items():
        lines = ["path\ttext"]
        for number in range(count):
            text = "".join(rng.choice([*tones]) for _ in range(int(rng.integers(2, 6))))
            soundfile.write(place / f"{part}{number}.wav", spoken(rng, text, tones), RATE)
            lines.append(f"{part}{number}.wav\t{text}")
        (place / f"{part}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
