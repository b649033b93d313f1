"""Selection of the kernel for additive scores."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, get_args

import torch
from torch import Tensor

from heedful.basics.addresses import forward_mode, is_plain, is_traced, is_transformed, readable
from heedful.basics.contexts import ThreadValue
from heedful.kernels import additive_compiled as compiled
from heedful.kernels.additive_tiles import PlainTiles, Tiles

Kernel = Literal["plain", "tiles", "compiled", "triton"]

_SMALL = 1 << 18  # (query, key, unit) triples; below, the plain formula is faster
_chosen: ContextVar[Kernel | None] = ContextVar("kernel", default=None)
_traced = ThreadValue(None)  # a copy for torch.compile


def chosen_kernel() -> Kernel | None:
    """The kernel chosen by :func:`use_kernel` in this thread or asyncio task."""
    if torch.compiler.is_compiling():
        kernel: Kernel | None = _traced.value
        return kernel
    return _chosen.get()


@contextmanager
def use_kernel(kernel: Kernel | None) -> Iterator[None]:
    """Select the kernel for additive scores within the block, for tests and benchmarks.

    Other threads and asyncio tasks are not affected, except that a compiled model does not
    distinguish the tasks of one thread. A backward pass uses the kernel of its forward pass, also
    after the block; in a compiled model, it uses the kernel selected when it runs.

    Args:
        kernel: ``plain`` (the formula), ``tiles`` (PyTorch), ``compiled`` (C, float32 on the CPU),
            ``triton`` (float32 on NVIDIA GPUs), or None for the fastest available kernel.

    Example:
        >>> from heedful.attention import Attention, scores
        >>> attention = Attention(scores.Additive(2, 2, 4))
        >>> with use_kernel("plain"):
        ...     context = attention(torch.zeros(1, 2), torch.zeros(3, 2))

    Raises:
        ValueError: the kernel does not exist.
        RuntimeError: raised at the call if the kernel does not support the tensors.
    """
    if kernel is not None and kernel not in get_args(Kernel):
        raise ValueError(f"kernel must be one of {get_args(Kernel)} or None, not {kernel!r}")
    before, traced = _chosen.get(), _traced.value
    _chosen.set(kernel)
    _traced.value = kernel
    try:
        yield
    finally:
        _chosen.set(before)
        _traced.value = traced


def plain_is_faster(query: Tensor, key: Tensor, *others: Tensor) -> bool:
    """Whether to use the plain formula: it is at least as fast and needs little memory.

    It is also used for forward-mode gradients, which operators do not support.

    Args:
        query: projected queries.
        key: projected keys.
        others: other tensors on which the result depends.
    """
    kernel = chosen_kernel()
    if kernel is not None:
        return kernel == "plain"
    if torch.compiler.is_compiling():
        return False  # avoids a recompilation for each length
    parts = query, key, *others
    if is_traced() or forward_mode(*parts):
        return True
    if not all(is_plain(part) or is_transformed(part) for part in parts):
        return True  # Tensor subclasses only support the operations of the formula.
    queries, keys = query.shape[-2], key.shape[-2]
    # With few queries (a decoder's step), exponentials of rows cost as much as those of pairs.
    if queries * keys < 4 * (queries + keys):
        return True
    entries = max(query.shape[:-2].numel(), key.shape[:-2].numel())
    return entries * queries * keys * key.shape[-1] < _SMALL


def compiled_wanted() -> bool:
    """Whether C may be used: :func:`use_kernel` has not selected another kernel."""
    return chosen_kernel() in (None, "compiled")


def tiles_for(a: Tensor, b: Tensor, v: Tensor, threads: int | None = None) -> Tiles:
    """The fastest tiles for these tensors, or those of the chosen kernel.

    ``threads`` is the number of parts into which work in C is divided; default: PyTorch's number of
    threads. Gradients depend on it within rounding error.
    """
    single, kernel = a.dtype == torch.float32, chosen_kernel()
    if kernel in (None, "compiled") and single and readable(a, b, v):
        library = compiled.library()
        if library is not None:
            return compiled.CompiledTiles(library, a, b, v, threads)
    if kernel in (None, "triton") and single and a.device.type == "cuda":
        from heedful.kernels import additive_triton as triton_tiles

        if triton_tiles.available():
            return triton_tiles.TritonTiles(a, b, v)
    if kernel in ("compiled", "triton"):
        raise RuntimeError(f"the {kernel} kernel cannot run here ({a.dtype} on {a.device})")
    return PlainTiles(a, b, v)
