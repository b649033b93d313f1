"""Tensors that several processes share: equal tensors of all processes are in one mapped file."""

import contextlib
import hashlib
import os
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path

import torch
from torch import Tensor

from heedful.basics.locking import waiting

_folder: ContextVar[Path | None] = ContextVar("folder", default=None)
_LEAST_BYTES = 64 << 10
"""Smaller tensors are not shared."""


@contextlib.contextmanager
def sharing_tensors(folder: Path) -> Iterator[None]:
    """Let `shared_tensor` share tensors through files of a folder while the block runs.

    Args:
        folder: a private folder. A file's name is the hash of its content.
    """
    token = _folder.set(folder)
    try:
        yield
    finally:
        _folder.reset(token)


def shared_tensor(tensor: Tensor) -> Tensor:
    """A tensor with the same values, which must not be changed.

    Within `sharing_tensors`, its memory is that of a file, which is also mapped by other processes
    with an equal tensor. Otherwise, or if the folder has no room, it is the tensor itself.
    """
    folder, size = _folder.get(), tensor.numel() * tensor.element_size()
    if folder is None or tensor.device.type != "cpu" or size < _LEAST_BYTES:
        return tensor
    tensor = tensor.contiguous()
    content = tensor.view(-1).view(torch.uint8)
    path = folder / hashlib.blake2b(content.numpy().data, digest_size=20).hexdigest()
    try:
        with waiting(folder):
            if not path.exists():
                _write(path, content)
            os.utime(path)  # still used
            mapped = torch.from_file(str(path), shared=False, size=size, dtype=torch.uint8)
    except (OSError, RuntimeError):
        return tensor
    return mapped.view(tensor.dtype).view(tensor.shape)


def _write(path: Path, content: Tensor) -> None:
    """Write a file and rename it, so that it is never incomplete."""
    beside = path.with_suffix(".part")
    try:
        beside.write_bytes(content.numpy().data)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
