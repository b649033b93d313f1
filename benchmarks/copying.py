"""Copying and reversing strings: models with a fixed-size vector compared with attention.

    python benchmarks/copying.py --out FOLDER [--tasks copy reverse] [--systems none-gru bahdanau]
        [--updates 3000] [--trial-updates 500] [--seed 1] [--strings 200] [--json FILE]
        [--picture FILE.svg]

heedful's training loop trains each system on random strings of 1 to 50 symbols out of 26, in
batches of 32. Each of three learning rates is tried for ``--trial-updates``; the one with the
lowest validation loss is trained from scratch for ``--updates``. All systems have the same trials
and the same number of updates; with --longer N, those without attention are trained again for N
times the updates. Greedy search then generates outputs for test strings of lengths seen and not
seen in training, which are scored once: the fraction of strings that are entirely correct
(including the end, which is forced 20 symbols after the correct place), and the fraction of symbols
at the correct position, with 95 % bootstrap intervals over the strings.

The benchmark uses one thread. Rerun the command to resume. Finished results in the folder are
reused unless updates, seeds or lengths change; after a change of the code, use a new folder.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from copying_task import LONGEST, VOCABULARY, CopyTask, Kind, score
from heedful.basics.bounded_reading import read_json
from heedful.basics.files import remove_leftovers, write_json
from heedful.evaluation.statistics import draw_with_replacement, percentile_interval
from heedful.kernels.allocator import keep_freed_memory
from heedful.models import PairSettings, build_model
from heedful.models.convolutional import ConvolutionalSettings
from heedful.models.recurrent import RecurrentSettings
from heedful.models.transformer import TransformerSettings
from heedful.runs.checkpoints import load_model_tensors, whole_checkpoints
from heedful.tasks.pairs.recipe import TrainingSettings
from heedful.training.loop import DivergedError, Loop
from heedful.training.report import Report
from reporting import machine, said, table

LENGTHS = (10, 20, 30, 40, 50, 75, 100, 150, 200)
RATES = (0.0005, 0.0015, 0.005)
_RESAMPLES = 2000
_LONGEST_OUTPUT = 256


def _recurrent(cell: str, attention: str) -> RecurrentSettings:
    return RecurrentSettings.model_validate(
        {
            "cell": cell,
            "attention": attention,
            "embedding_size": 64,
            "hidden_size": 128,
            "dropout": 0.0,
            "max_length": _LONGEST_OUTPUT,
        }
    )


SYSTEMS: dict[str, tuple[str, PairSettings]] = {
    "none-gru": ("GRU, no attention", _recurrent("gru", "none")),
    "none-lstm": ("LSTM, no attention", _recurrent("lstm", "none")),
    "bahdanau": ("GRU, Bahdanau", _recurrent("gru", "bahdanau")),
    "luong-general": ("GRU, Luong general", _recurrent("gru", "luong-general")),
    "transformer": (
        "Transformer, sinusoids",
        TransformerSettings(
            layers=2,
            hidden_size=128,
            ffn_size=256,
            heads=4,
            dropout=0.0,
            pre_norm=True,
            tied_embeddings="none",
            max_length=_LONGEST_OUTPUT,
        ),
    ),
    "convolutional": (
        "convolutional",
        ConvolutionalSettings(
            embedding_size=128,
            hidden_size=128,
            encoder_layers=3,
            decoder_layers=2,
            dropout=0.0,
            max_length=_LONGEST_OUTPUT,
        ),
    ),
}


class StoppedError(Exception):
    """The training loop was asked to stop and has saved."""


def settings_of(updates: int, rate: float) -> TrainingSettings:
    every = max(1, updates // 5)
    return TrainingSettings(
        max_steps=updates,
        learning_rate=rate,
        schedule="cosine",
        warmup_steps=min(100, updates // 5),
        label_smoothing=0.0,
        precision="float32",
        log_every=every,
        validate_every=every,
        checkpoint_every=every,
        keep_last=1,
        choose_by="loss",
    )


def train(
    folder: Path, kind: Kind, settings: PairSettings, updates: int, rate: float, seed: int
) -> dict[str, Any]:
    """Train or resume; returns the validation loss, or None if training diverged.

    Raises:
        StoppedError: training was stopped; the same call resumes it.
    """
    done = folder / "result.json"
    if done.exists():
        return read_json(done)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "checkpoints").mkdir(exist_ok=True)
    remove_leftovers(folder / "checkpoints")
    torch.manual_seed(seed)
    model = build_model(settings, VOCABULARY, VOCABULARY)
    result: dict[str, Any] = {"rate": rate, "updates": updates}
    with Report(updates, weight_name="symbols") as report:
        loop = Loop(
            CopyTask(model, kind),
            settings_of(updates, rate),
            folder,
            seed=seed,
            device=torch.device("cpu"),
            precision="float32",
            report=report,
        )
        try:
            if not loop.run():
                raise StoppedError
            # Uses the last weights: no string is seen twice, so there is no overfitting.
            result |= whole_checkpoints(loop.checkpoints)[-1].state["validation"]
        except DivergedError as error:
            report.message(str(error))
            result["loss"] = None
    result["minutes"] = loop.progress.total_seconds / 60
    write_json(done, result)
    return result


def interval(values: torch.Tensor) -> tuple[float, float]:
    """The 95 % bootstrap interval of the mean over the strings."""
    numbers = values.double().numpy()
    draws = draw_with_replacement(len(numbers), _RESAMPLES, seed=1)
    return percentile_interval(np.array([counts @ numbers for counts in draws]) / len(numbers))


def measure(
    folder: Path,
    kind: Kind,
    settings: PairSettings,
    options: argparse.Namespace,
) -> dict[str, Any]:
    """The accuracy for each length."""
    done = folder / "scores.json"
    found: dict[str, Any] = read_json(done) if done.exists() else {}
    torch.manual_seed(0)
    model = build_model(settings, VOCABULARY, VOCABULARY)
    point = whole_checkpoints(folder / "checkpoints")[-1]
    load_model_tensors(model, point.weights(), point.path)
    for length in map(str, options.lengths):
        if found.get(length, {}).get("strings") == options.strings:
            continue
        scored = score(model, kind, int(length), options.strings)._asdict()
        right = {
            name: {"mean": values.mean().item(), "interval": interval(values)}
            for name, values in scored.items()
        }
        found[length] = {"strings": options.strings, **right}
        print(
            f"{length} symbols: {right['exact']['mean']:.1%} exact, "
            f"{right['symbols']['mean']:.1%} of the symbols",
            file=sys.stderr,
        )
    write_json(done, found)
    return {str(length): found[str(length)] for length in options.lengths}


def run_system(options: argparse.Namespace, kind: Kind, name: str, longer: int) -> dict[str, Any]:
    """The trials, training and scores of one system on one task."""
    said_name, settings = SYSTEMS[name]
    base = options.out / f"{kind}-{name}-seed{options.seed}"
    trials = []
    for rate in RATES:
        folder = base / f"trial-{options.trial_updates}-{rate}"
        trials.append(train(folder, kind, settings, options.trial_updates, rate, options.seed))
    finished = [trial for trial in trials if trial["loss"] is not None]
    updates = options.updates * longer
    for rate in (one["rate"] for one in sorted(finished, key=lambda trial: trial["loss"])):
        folder = base / f"whole-{updates}-{rate}"
        trained = train(folder, kind, settings, updates, rate, options.seed)
        if trained["loss"] is not None:
            break
    else:
        raise SystemExit(f"{name}: training diverged at every learning rate")
    with torch.device("meta"):
        model = build_model(settings, VOCABULARY, VOCABULARY)
    return {
        "task": kind,
        "system": name,
        "title": said_name + (f", {longer} × the updates" if longer > 1 else ""),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "trials": trials,
        **trained,
        "lengths": measure(folder, kind, settings, options),
    }


def tables(results: Sequence[dict[str, Any]]) -> str:
    """For each task: percentages of correct strings and of correct symbols, by length."""
    parts = []
    for kind in dict.fromkeys(result["task"] for result in results):
        for figure, title in (("exact", "correct strings"), ("symbols", "symbols right")):
            rows = []
            for result in results:
                if result["task"] != kind:
                    continue
                cells = [_cell(of_length[figure]) for of_length in result["lengths"].values()]
                rows.append([result["title"], *cells])
            parts.append(f"{kind}: {title}, % [95 % interval]; trained on up to {LONGEST}\n")
            parts.append(table(["", *results[0]["lengths"]], rows) + "\n")
        rows = [
            [
                result["title"],
                f"{result['parameters']:,}",
                f"{result['updates']:,}",
                f"{result['rate']}",
                f"{result['loss']:.3f}",
                f"{result['minutes']:.1f}",
            ]
            for result in results
            if result["task"] == kind
        ]
        titles = ["", "parameters", "updates", "learning rate", "validation loss", "minutes"]
        parts.append(table(titles, rows) + "\n")
    return "\n".join(parts)


def _cell(figure: dict[str, Any]) -> str:
    low, high = figure["interval"]
    return f"{100 * figure['mean']:.1f} [{100 * low:.0f}, {100 * high:.0f}]"


def draw(results: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw the percentage of correct symbols by length: one panel per task, bars for the
    intervals."""
    from heedful.viewing.figures import new_figure, save_figure

    colours = ("#d55e00", "#e69f00", "#0072b2", "#56b4e9", "#009e73", "#cc79a7")
    kinds = list(dict.fromkeys(result["task"] for result in results))
    figure = new_figure(5.2 * len(kinds), 4.2)
    axes = figure.subplots(1, len(kinds), sharey=True, squeeze=False)[0]
    for ax, kind in zip(axes, kinds, strict=True):
        for result in (result for result in results if result["task"] == kind):
            lengths = list(map(int, result["lengths"]))
            cells = [of_length["symbols"] for of_length in result["lengths"].values()]
            means = [100 * cell["mean"] for cell in cells]
            bars = [
                [
                    abs(100 * cell["interval"][end] - mean)
                    for cell, mean in zip(cells, means, strict=True)
                ]
                for end in (0, 1)
            ]
            colour = colours[list(SYSTEMS).index(result["system"])]
            more = "×" in result["title"]
            ax.errorbar(
                lengths,
                means,
                yerr=bars,
                color=colour,
                label=result["title"],
                marker="o",
                markersize=3,
                linestyle=":" if more else "-",
            )
        ax.axvspan(0, LONGEST, color="#000000", alpha=0.05, linewidth=0)
        ax.axhline(100 / (VOCABULARY - 4), color="#999999", linewidth=0.8, linestyle="--")
        ax.set_xlim(left=0)
        ax.set_title(f"{kind} (grey: training lengths; dashed: chance)", fontsize=9)
        ax.set_xlabel("symbols in the string")
        ax.grid(alpha=0.25)
    axes[0].set_ylabel("% correct symbols")
    # Inside the axes, it would hide a line.
    entries = axes[0].get_legend_handles_labels()
    figure.legend(*entries, loc="lower center", ncols=4, fontsize=7, frameon=False)
    figure.tight_layout(rect=(0, 0.1, 1, 1))
    save_figure(figure, path)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="checkpoints and scores")
    parser.add_argument(
        "--tasks", nargs="+", choices=["copy", "reverse"], default=["copy", "reverse"]
    )
    parser.add_argument("--systems", nargs="+", choices=list(SYSTEMS), default=list(SYSTEMS))
    parser.add_argument("--updates", type=int, default=3000)
    parser.add_argument("--trial-updates", type=int, default=500)
    parser.add_argument(
        "--longer",
        type=int,
        default=1,
        help="factor of updates for systems without attention; 1: no longer training",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--strings", type=int, default=200, help="number of test strings of each length"
    )
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--picture", type=Path)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    keep_freed_memory()
    jobs = [
        (kind, name, longer)
        for kind in options.tasks
        for name in options.systems
        for longer in sorted({1, options.longer if name.startswith("none") else 1})
    ]
    results: list[dict[str, Any]] = []
    began = time.monotonic()
    for number, (kind, name, longer) in enumerate(jobs):
        spent = time.monotonic() - began
        left = (
            f"; about {spent / number * (len(jobs) - number) / 60:.0f} minutes left"
            if number
            else ""
        )
        print(f"{number + 1} of {len(jobs)}: {kind}, {name}{left}", file=sys.stderr)
        try:
            results.append(run_system(options, kind, name, longer))
        except StoppedError:
            print("stopped; rerun the command to resume", file=sys.stderr)
            sys.exit(130)
        if options.json:
            facts = {"machine": machine(1), "seed": options.seed, "results": results}
            write_json(options.json, facts)
    print(said(machine(1)) + "\n\n" + tables(results))
    if options.picture:
        draw(results, options.picture)


if __name__ == "__main__":
    main()
