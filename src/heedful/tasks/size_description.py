"""The numbers of a size on paper as text."""

from collections.abc import Mapping
from typing import Any

from heedful.tasks.cluster_on_paper import cluster_lines

_DAY, _HOUR = 86_400, 3600
_WIDTH = 14
"""Characters of the names of lines, at least."""


def describe_size(found: Mapping[str, Any]) -> str:
    """The numbers of :func:`~heedful.tasks.size_on_paper.size_on_paper` as text."""
    given, memory, unit = found["assumptions"], found["memory"], found["unit"]
    unlike = memory["activations_with_checkpointing"]
    lines = [
        ("size", f"{found['size']} ({found['task']}, {found['model']['kind']})"),
        ("source", found["source"]),
        ("parameters", f"{found['parameters']:,}{_tables(found)}"),
        (
            "assumptions",
            f"{given['rows']}; products and activations in "
            f"{given['precision']}, weights, gradients and moments in float32; "
            f"{given['optimiser']}; fused attention, masked pairs counted",
        ),
        (
            "weights",
            f"{_size(memory['weights'])}; {_size(memory['weights_in_inference'])} in use",
        ),
        ("gradients", _size(memory["gradients"])),
        ("optimiser", _size(memory["optimiser"])),
        (
            "activations",
            _size(memory["activations"])
            + ("" if unlike is None else f"; {_size(unlike)} with checkpointing of layers"),
        ),
        (
            "memory",
            f"{_size(memory['training'])} in training, "
            f"{'with' if given['checkpointing'] else 'without'} checkpointing",
        ),
        (f"FLOPs {_one(unit)}", _operations(found["operations_per_token"], unit)),
    ]
    if found["cluster"] is not None:
        lines += cluster_lines(found["cluster"], unit)
    lines += _training_lines(found["training"], unit)
    width = max(_WIDTH, *(len(name) for name, _ in lines))
    return "\n".join(f"{name:<{width}} {text}" for name, text in lines)


def _tables(found: Mapping[str, Any]) -> str:
    """How many parameters are in tables."""
    embedded, vocabulary = found["embedding_parameters"], found["vocabulary"]
    if vocabulary:
        return f"; {embedded:,} of them in tables of {vocabulary:,} symbols or of positions"
    return f"; {embedded:,} of them in tables of positions" if embedded else ""


def _one(unit: str) -> str:
    """The unit with its article."""
    return f"{'an' if unit[0] in 'aeiou' else 'a'} {unit}"


def _operations(operations: Mapping[str, float], unit: str) -> str:
    """Operations of a unit; the estimate of 6N is for tokens."""
    estimate = f" (6N: {operations['6n']:.4g})" if unit == "token" else ""
    return (
        f"{operations['forward']:.4g} forward, {operations['training']:.4g} with the backward "
        f"pass{estimate}, {operations['with_checkpointing']:.4g} with checkpointing"
    )


def _training_lines(training: Mapping[str, Any] | None, unit: str) -> list[tuple[str, str]]:
    if training is None:
        return [("training", f"give its {unit}s with --tokens")]
    estimate = f", 6ND {training['6nd']:.3g}" if unit == "token" else ""
    lines = [
        (
            "training",
            f"{training['tokens']:,} {unit}s: {training['operations']:.3g} FLOPs "
            f"({training['petaflop_days']:.3g} petaFLOP/s-days){estimate}",
        )
    ]
    if "seconds" not in training:
        return [*lines, ("time", "give --card or --flops-per-second")]
    cards = "1 card" if training["cards"] == 1 else f"{training['cards']:,} cards"
    lines.append(
        (
            "time",
            f"{_duration(training['seconds'])} on {cards} of "
            f"{training['flops_per_second']:.3g} FLOP/s at an MFU of {training['mfu']:g}; "
            f"{training['card_hours']:,.1f} card-hours",
        )
    )
    if training["cost"] is not None:
        lines.append(("cost", f"{training['cost']:,.2f}"))
    return lines


def _size(count: int) -> str:
    value, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:,.4g} {unit}"


def _duration(seconds: float) -> str:
    if seconds >= 2 * _DAY:
        return f"{seconds / _DAY:,.1f} days"
    return f"{seconds / _HOUR:,.2f} hours" if seconds >= _HOUR else f"{seconds:,.1f} seconds"
