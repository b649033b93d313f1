"""What a new run takes from another run, and the versions and machine that it records."""

import platform
from importlib.metadata import version
from typing import Any, NamedTuple

import torch
from torch import Tensor

from heedful.runs.run import Run


class Start(NamedTuple):
    """The weights and facts that a run takes from the run it starts from."""

    run: Run
    weights: dict[str, Tensor]
    facts: dict[str, Any]
    """Identify the run and the checkpoint."""


def versions_and_machine() -> dict[str, Any]:
    """Versions of heedful, PyTorch and Python, and the machine."""
    return {
        "heedful": version("heedful"),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
    }
