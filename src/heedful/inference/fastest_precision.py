"""``--precision auto`` on the CPU: the faster of float32 and bfloat16, measured.

A processor that multiplies bfloat16 may compute a small model faster in float32, and one that does
not may be faster with weights of half the size. A loaded model therefore computes a few rows in
both.
"""

import functools
import hashlib
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from heedful.basics.autotuning import Measured, fastest
from heedful.basics.device import autocast, has_fast_bfloat16, one_thread
from heedful.basics.notices import notice
from heedful.basics.symbols import UNKNOWN
from heedful.inference.fusing import searched
from heedful.inference.inference_mode import in_precision

_ROWS, _LENGTH, _STEPS = 32, 8, 4


def resolve_precision(
    model: nn.Module,
    precision: str,
    device: torch.device,
    notify: Callable[[str], None] | None = None,
) -> str:
    """Replace ``auto`` by the faster precision for a loaded model; return others unchanged.

    The measurement takes a fraction of a second and is stored for each processor and model size
    (:mod:`heedful.basics.autotuning`).

    Args:
        model: in evaluation mode, on ``device``.
        precision: checked by :func:`heedful.basics.device.check_precision`.
        device: the device of the model.
        notify: called with a description of the choice; by default it is printed as a notice, each
            choice once in a process.
    """
    if precision != "auto":
        return precision
    found = _measured(model, device)
    (notify or _notify_once)(f"--precision auto: {describe_choice(found)}")
    return "float32" if found is None else found.chosen


def describe_choice(found: Measured | None) -> str:
    """A description of the choice and its reason."""
    if found is None:
        return "float32; this processor does not multiply bfloat16 in hardware"
    ratio = found.ratio("bfloat16", "float32")
    return f"{found.chosen}; bfloat16 has {ratio:.2g}× the speed of float32 for this model"


def sizes_of(model: nn.Module) -> str:
    """A hash of the shapes of a model's parameters, which determine its cost."""
    shapes = "\n".join(str(tuple(one.shape)) for one in model.parameters())
    return f"{type(model).__name__} {hashlib.sha256(shapes.encode()).hexdigest()[:16]}"


def _measured(model: nn.Module, device: torch.device) -> Measured | None:
    if not model.generates and not has_fast_bfloat16(device):
        return None
    work: Callable[[Any], None] = _search if model.generates else _read
    candidates = {name: _candidate(model, name, device, work) for name in ("float32", "bfloat16")}
    with one_thread():
        return fastest(candidates, f"{work.__name__} {sizes_of(model)}")


def _candidate(
    model: nn.Module, precision: str, device: torch.device, work: Callable[[Any], None]
) -> Callable[[], None]:
    """A function that does ``work`` in a precision; its first call converts the model."""

    @functools.cache
    def prepared() -> tuple[nn.Module, str]:
        (own,), products = in_precision([model], precision, device)
        return own, products

    def candidate() -> None:
        own, products = prepared()
        with torch.inference_mode(), autocast(device, products):
            work(own)

    return candidate


def _search(model: Any) -> None:
    """Some steps of a search."""
    inner = searched(model)
    state: Any = inner.start(model.sample(_ROWS, min(_LENGTH, max(1, model.max_length - _STEPS))))
    for _ in range(min(_STEPS, model.max_length - 1)):
        _, state = inner.step(torch.full((_ROWS,), UNKNOWN), state)


def _read(model: Any) -> None:
    """One pass over some rows."""
    model.read_sample(_ROWS, _LENGTH)


@functools.cache
def _notify_once(text: str) -> None:
    notice(text)
