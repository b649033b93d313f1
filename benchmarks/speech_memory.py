"""Peak memory of a recogniser over epochs of training, and while it transcribes many recordings.

    python benchmarks/speech_memory.py [--recordings 200] [--epochs 6] [--parts 2]

Recordings of noise, of 1 to 6 seconds at 16 kHz, with random texts; a recogniser of
the size of the recipe ``an4`` (location-aware attention and CTC) with 40 mel bands. Training:
epochs of forward, backward and a step of Adam, with the batches of heedful's training.
Transcription: files in sixteens, as by ``heedful transcribe``, with a beam of 5. The peak is that
of the whole process in each part of an epoch: if memory is flat, it does not grow from part to
part.
One thread, Linux.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import torch

from heedful.data.positions import Position
from heedful.runs.recipe import check_recipe
from heedful.runs.registry import kind_of
from heedful.tasks.sound_input import heard_in
from heedful.tasks.spec import spec_of_run
from reporting import machine, said, table
from resident import peak_resident, reset_peak

RATE, LONGEST, AT_ONCE = 16_000, 6.0, 16
_CHARACTERS = 12
"""Of a second of speech."""


def write_recordings(folder: Path, count: int) -> float:
    """Write recordings and their table; returns their duration in seconds."""
    rng, whole = np.random.default_rng(1), 0.0
    lines = ["path\ttext"]
    letters = [*"abcdefghijklmnopqrstuvwxyz"]
    for number in range(count):
        seconds = float(rng.uniform(1, LONGEST))
        samples = 0.1 * rng.standard_normal(int(seconds * RATE))
        soundfile.write(folder / f"{number}.wav", samples, RATE)
        text = "".join(rng.choice(letters, int(_CHARACTERS * seconds)))
        lines.append(f"{number}.wav\t{text}")
        whole += seconds
    (folder / "clips.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return whole


def recipe_of() -> dict[str, Any]:
    """The recogniser."""
    return {
        "task": "transcription",
        "data": {"train": "clips.tsv", "features": {"bands": 40}},
        "model": {
            "kind": "recurrent",
            "outputs": "both",
            "attention": {"score": "location-aware"},
            "encoder_size": 192,
            "encoder_layers": 3,
            "pyramid_layers": 2,
            "embedding_size": 64,
            "hidden_size": 192,
            "max_length": 100,
        },
        "training": {"batch_tokens": 8000, "validation_sounds": 0},
    }


def parts_of(count: int, parts: int) -> list[int]:
    """Where each part ends."""
    return [round(count * part / parts) for part in range(1, parts + 1)]


def peaks(steps: Iterator[object], ends: list[int]) -> list[float]:
    """The peak in MiB while some steps are made, in each part."""
    found: list[float] = []
    reset_peak()
    for number, _ in enumerate(steps, 1):
        if number == ends[len(found)]:
            found.append((peak_resident() or 0) / 2**20)
            reset_peak()
            if len(found) == len(ends):
                break
    return found


def batches(task: Any, epochs: int) -> Iterator[Any]:
    """The batches of all epochs."""
    for after, batch in task.batches(Position(1)):
        yield batch
        if after.epoch >= epochs:
            return


def training(task: Any, epochs: int) -> Iterator[float]:
    """Steps of training."""
    optimiser = torch.optim.Adam(task.model.parameters(), 1e-4)
    task.model.train()
    for batch in batches(task, epochs):
        optimiser.zero_grad(set_to_none=True)
        loss = task.loss(batch)
        (loss.total / batch.weight).backward()
        optimiser.step()
        yield float(loss.total.detach())


def transcribing(predictor: Any, paths: list[Path]) -> Iterator[int]:
    """Recordings in sixteens."""
    for first in range(0, len(paths), AT_ONCE):
        some = paths[first : first + AT_ONCE]
        yield len(predictor.predict([heard_in(str(path)) for path in some]))


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Peaks in MiB in each part."""
    torch.set_num_threads(1)
    found: dict[str, Any] = {"machine": machine(1)}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found["seconds"] = write_recordings(folder, options.recordings)
        found["before, MiB"] = (reset_peak() or 0) / 2**20
        recipe = check_recipe(recipe_of(), "the benchmark")
        kind: Any = kind_of(recipe)
        run = kind.prepare(folder / "run", recipe, folder, None)
        found["preparing, MiB"] = (peak_resident() or 0) / 2**20
        _, spec = spec_of_run(folder / "run")
        device = torch.device("cpu")
        task = kind.build_task(run, kind.build_model(run), recipe.training, device, "float32")
        steps = sum(1 for _ in batches(task, options.epochs))
        ends = parts_of(steps, options.epochs * options.parts)
        found["training, MiB"] = peaks(training(task, options.epochs), ends)
        made: Any = spec
        predictor = made.predictor_type()(
            made, run, task.model.eval(), device=device, precision="float32"
        )
        print("training is measured", file=sys.stderr, flush=True)
        paths = [folder / f"{number}.wav" for number in range(options.recordings)]
        ends = parts_of(-(-options.recordings // AT_ONCE), options.parts)
        found["transcribing, MiB"] = peaks(transcribing(predictor, paths), ends)
    return found


def report(found: dict[str, Any]) -> str:
    """The peaks as a table."""
    rows = [
        [what, *(f"{one:,.0f}" for one in found[f"{what}, MiB"])]
        for what in ("training", "transcribing")
    ]
    width = max(map(len, rows))
    rows = [row + [""] * (width - len(row)) for row in rows]
    titles = ["peak in MiB, by part", *(str(number) for number in range(1, width))]
    before, preparing = found["before, MiB"], found["preparing, MiB"]
    first = (
        f"{found['seconds'] / 60:,.0f} minutes of sound; {before:,.0f} MiB before, "
        f"{preparing:,.0f} MiB while the run is prepared"
    )
    return "\n".join([table(titles, rows), "", first, said(found["machine"])])


def main(arguments: list[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, value in {"recordings": 200, "epochs": 6, "parts": 2}.items():
        parser.add_argument(f"--{name}", type=int, default=value, help=f"default {value}")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    options = parser.parse_args(arguments)
    found = measure(options)
    print(json.dumps(found) if options.json else report(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
