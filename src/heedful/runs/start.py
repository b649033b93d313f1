"""What a new run takes from another run, and what it records of this machine."""

import platform
from importlib.metadata import version
from typing import Any, NamedTuple

import torch
from torch import Tensor

from heedful.runs.run import Run


class Start(NamedTuple):
    """What a run takes from another that it starts from."""

    run: Run
    weights: dict[str, Tensor]
    facts: dict[str, Any]
    """Which run and checkpoint that were."""


def made_with() -> dict[str, Any]:
    """Versions and machine, for the record."""
    return {
        "heedful": version("heedful"),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
    }
