"""How much of a device a training uses: model FLOPs utilisation, and memory.

Chowdhery et al. 2022, "PaLM: Scaling Language Modeling with Pathways", section 4.1 and appendix B:
model FLOPs utilisation (MFU) is the operations per second of the forward and backward pass, divided
by the peak of the device. The paper estimates the operations of a token as 6N + 12LHQT. Here they
are counted on the first batch (:mod:`heedful.training.operations`).
"""

import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

_PEAKS = (
    ("B200", 2250.0),
    ("H200 NVL", 835.5),
    ("H200", 989.4),
    ("GH200", 989.4),
    ("H100 NVL", 835.5),
    ("H100 PCIe", 756.0),
    ("H100", 989.4),
    ("A100", 312.0),
    ("A40", 149.7),
    ("A30", 165.0),
    ("A10", 125.0),
    ("L40S", 362.05),
    ("L40", 181.05),
    ("L4", 121.0),
    ("RTX 6000 Ada", 364.2),
    ("RTX A6000", 154.8),
    ("RTX 5090", 209.5),
    ("RTX 4090", 165.2),
    ("RTX 3090", 71.0),
    ("MI300X", 1307.4),
    ("MI250X", 383.0),
)
"""Part of a card's name → 10¹² operations a second of dense bfloat16 products with sums in float32,
from the data sheets and white papers of NVIDIA and AMD. float16 has the same peak. Sheets that
state the figure with sparsity are halved."""

_SECONDS = 0.1
"""Time of a measurement, apart from the first product."""
_AGAIN = 3
"""How often a peak is measured again because training was faster."""
_measured: dict[tuple[str, str, int], float] = {}


class Peak(NamedTuple):
    """The highest number of operations per second of a device."""

    operations: float
    measured: bool
    """Whether a matrix product was timed; otherwise it is from the vendor's data sheet."""


class Utilisation:
    """Figures about the use of a device.

    Args:
        device: the device of the model.
        precision: precision of matrix products in training.
        processes: number of processes that train together, each with such a device.
        notify: called once with the peak that utilisation is relative to.
    """

    def __init__(
        self,
        device: torch.device,
        precision: str,
        *,
        processes: int,
        notify: Callable[[str], None],
    ) -> None:
        self.device, self.precision, self.processes = device, precision, processes
        self._notify = notify
        self._peak: Peak | None = None
        self._again = _AGAIN

    def figures(self, operations: float, seconds: float) -> dict[str, float | int]:
        """``mfu`` from 0 to 1, if operations were counted, and ``memory`` in bytes, if known.

        Args:
            operations: of the forward and backward passes of all processes.
            seconds: the training time that they took.
        """
        found: dict[str, float | int] = {}
        if operations and seconds > 0:
            found["mfu"] = self._share(operations / seconds / self.processes)
        memory = peak_memory(self.device)
        return found if memory is None else found | {"memory": memory}

    def _share(self, speed: float) -> float:
        """The share of the peak that a speed is."""
        if self._peak is None:
            self._peak = peak_operations(self.device, self.precision)
            self._notify(self._about(self._peak))
        elif self._peak.measured and speed > self._peak.operations and self._again:
            # Another program may have slowed down the measurement.
            self._again -= 1
            self._peak = peak_operations(self.device, self.precision, again=True)
        return speed / self._peak.operations

    def _about(self, peak: Peak) -> str:
        how = "as its data sheet states"
        if peak.measured:
            threads = torch.get_num_threads()
            count = f" and {threads} thread{'s' * (threads > 1)}" * (self.device.type == "cpu")
            how = f"measured with a matrix product in {self.precision}{count}"
        return (
            f"MFU is relative to {peak.operations / 1e12:,.3g} TFLOP/s of {self.device.type}, {how}"
        )


def peak_operations(device: torch.device, precision: str, *, again: bool = False) -> Peak:
    """The peak of a device for matrix products.

    The peak of known cards in ``bfloat16`` and ``float16`` is that of their data sheets. Otherwise
    the fastest of several matrix products is measured, once in this process for each precision and
    number of threads. This does not change PyTorch's random generators.

    Args:
        device: the device.
        precision: ``float32``, ``bfloat16`` or ``float16``.
        again: whether to measure again; the highest measurement counts.
    """
    if device.type == "cuda" and precision != "float32":
        known = sheet_peak(torch.cuda.get_device_name(device))
        if known is not None:
            return Peak(known, measured=False)
    key = (str(device), precision, torch.get_num_threads() if device.type == "cpu" else 0)
    if again or key not in _measured:
        _measured[key] = max(_measure(device, precision), _measured.get(key, 0.0))
    return Peak(_measured[key], measured=True)


def sheet_peak(name: str) -> float | None:
    """The peak of a card in bfloat16, by its name; None if it is not known.

    Parts of cards (NVIDIA's MIG) and cards of laptops are not known.

    Example:
        >>> sheet_peak("NVIDIA A100-SXM4-80GB"), sheet_peak("NVIDIA H100 80GB HBM3 MIG 1g.10gb")
        (312000000000000.0, None)
    """
    if " MIG " in name or "Laptop" in name:
        return None
    words = f" {name.replace('-', ' ')} "
    return next((1e12 * peak for part, peak in _PEAKS if f" {part} " in words), None)


def _measure(device: torch.device, precision: str) -> float:
    side = 768 if device.type == "cpu" else 8192
    dtype = getattr(torch, precision)
    left = torch.full((side, side), 0.5, device=device, dtype=dtype)
    right = left.clone()
    with torch.no_grad():
        _product_seconds(left, right)
        began, best = time.perf_counter(), float("inf")
        while time.perf_counter() - began < _SECONDS:
            best = min(best, _product_seconds(left, right))
    return 2 * side**3 / best


def _product_seconds(left: Tensor, right: Tensor) -> float:
    _wait(left.device)
    began = time.perf_counter()
    torch.mm(left, right)
    _wait(left.device)
    return time.perf_counter() - began


def _wait(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def peak_memory(device: torch.device) -> int | None:
    """The most bytes used so far: allocated on a card, or resident of this process on a CPU.

    Returns:
        None if the system does not report it.
    """
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    if device.type != "cpu":
        return None
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
