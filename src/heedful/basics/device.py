"""Device, precision and threads."""

import contextlib
import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch

from heedful.basics.errors import UserError

Precision = Literal["float32", "bfloat16", "float16"]
"""Precisions of matrix products in training."""
DeviceName = Literal["auto", "cpu", "cuda", "mps"]


def choose_device(name: str) -> torch.device:
    """The device for ``auto``, ``cpu``, ``cuda`` or ``mps``.

    Raises:
        UserError: the device is unknown or this machine does not have it.
    """
    available = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    if name == "auto":
        return torch.device(next(kind for kind, there in available.items() if there))
    if name not in available:
        raise UserError(f"unknown device '{name}'; use auto, cpu, cuda or mps")
    if not available[name]:
        raise UserError(f"this machine has no {name} device; use --device auto or cpu")
    return torch.device(name)


def has_fast_bfloat16(device: torch.device) -> bool:
    """Whether the device multiplies bfloat16 matrices in hardware; otherwise float32 is faster."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return device.type == "cpu" and _multiplies_bfloat16()


@functools.cache
def _multiplies_bfloat16() -> bool:
    return bool(torch.cpu._is_avx512_bf16_supported())


def check_precision(name: str, device: torch.device, *, int8: bool = False) -> str:
    """The precision to compute in, if the device supports it.

    ``auto`` becomes bfloat16 on a GPU that multiplies it in hardware, else float32. On the CPU it
    stays ``auto``: the faster precision depends on the model and is measured
    (:func:`heedful.inference.fastest_precision.resolve_precision`).

    Args:
        name: ``auto``, ``float32``, ``bfloat16``, ``float16`` or ``int8``.
        device: where products are computed.
        int8: whether int8 is available, as it is for models that search.

    Raises:
        UserError: the precision is unknown, or not available for this device or this use.
    """
    known = ("float32", "bfloat16", "float16", *(["int8"] if int8 else []), "auto")
    if name == "int8" and not int8:
        raise UserError(
            "int8 is available for translation and text generation only; "
            f"use {', '.join(known[:-1])} or auto"
        )
    if name not in known:
        raise UserError(f"unknown precision '{name}'; use {', '.join(known[:-1])} or {known[-1]}")
    if name == "auto" and device.type != "cpu":
        return "bfloat16" if has_fast_bfloat16(device) else "float32"
    if name == "float16" and device.type != "cuda":
        raise UserError(f"float16 needs a CUDA GPU; on {device.type} use float32 or bfloat16")
    if name == "int8" and device.type != "cpu":
        raise UserError(f"int8 needs a CPU; on {device.type} use bfloat16, or --device cpu")
    return name


def autocast(device: torch.device, precision: str) -> contextlib.AbstractContextManager[object]:
    """A context in which matrix products run in ``precision``; weights stay float32."""
    if precision == "float32":
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=getattr(torch, precision))


def without_autocast(like: torch.Tensor) -> contextlib.AbstractContextManager[None]:
    """Disable autocast on the device of a tensor, also if ``backward()`` runs under autocast."""
    device = like.device.type
    if not torch.amp.is_autocast_available(device):  # such as "meta"
        return contextlib.nullcontext()
    return torch.autocast(device, enabled=False)


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread while the block runs, in the calling thread.

    A thread that has computed on several threads keeps a thread pool. If all pools together have
    more threads than the processor has cores, OpenMP stops spin-waiting, and small operations take
    twice as long. In a server, only the thread that runs the model should therefore have a pool.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
