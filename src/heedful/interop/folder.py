"""Folders in the Hugging Face layout: ``config.json`` and safetensors, in one file or in shards.

Pickles are never opened, because reading one can execute arbitrary code.
"""

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from heedful.basics.bounded_reading import read_json, require_regular
from heedful.basics.errors import UserError
from heedful.runs.checkpoints import require_finite

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_FLOATING = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
_OTHERS = {"*.h5": "TensorFlow", "*.msgpack": "Flax", "*.onnx": "ONNX", "*.npz": "Marian's own"}


def read_config(folder: Path) -> dict[str, Any]:
    """The content of ``config.json``.

    Raises:
        UserError: the folder or the file is missing, or the file is damaged.
    """
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder; give a folder with a {CONFIG}")
    if not (folder / CONFIG).exists():
        raise UserError(f"{folder} has no {CONFIG}; give the folder that save_pretrained wrote")
    return read_json(folder / CONFIG)


def read_weights(folder: Path) -> dict[str, Tensor]:
    """All tensors by their names in the files.

    Raises:
        UserError: there are no safetensors files, or a file is missing or damaged.
    """
    if (folder / WEIGHTS).exists():
        return _load(folder / WEIGHTS)
    if not (folder / _INDEX).exists():
        raise _no_weights(folder)
    names = read_json(folder / _INDEX).get("weight_map")
    if not isinstance(names, dict) or not all(isinstance(one, str) for one in names.values()):
        raise UserError(f"{folder / _INDEX}: weight_map is missing; the file is damaged")
    tensors: dict[str, Tensor] = {}
    for shard in sorted(set(names.values())):
        if Path(shard).name != shard or not shard.endswith(".safetensors"):
            raise UserError(
                f"{folder / _INDEX}: '{shard}' is not a safetensors file of this folder"
            )
        tensors |= _load(folder / shard)
    if missing := sorted(set(names) - set(tensors)):
        raise UserError(f"{folder / _INDEX}: the tensor '{missing[0]}' is in none of its files")
    return tensors


def _load(path: Path) -> dict[str, Tensor]:
    try:
        require_regular(path)
        tensors = load_file(path)
    except (SafetensorError, OSError, ValueError) as error:  # ValueError: an impossible name
        raise UserError(f"{path} is missing, damaged or not a safetensors file: {error}") from error
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and tensor.dtype not in _FLOATING:
            kind = str(tensor.dtype).removeprefix("torch.")
            raise UserError(
                f"{path}: the tensor '{name}' is {kind}; only float16, bfloat16, float32 and "
                "float64 are read"
            )
    require_finite(tensors, path)
    return tensors


def _no_weights(folder: Path) -> UserError:
    for pattern in _PICKLES:
        for path in sorted(folder.glob(pattern)):
            return UserError(
                f"{path}: pickles are not read, because they can run any code; if you trust the "
                "file, convert it with from_pretrained(…).save_pretrained(…) of transformers, "
                f"which writes {WEIGHTS}, and convert the tokeniser with AutoTokenizer"
            )
    for pattern, kind in _OTHERS.items():
        for path in sorted(folder.glob(pattern)):
            return UserError(f"{path}: weights of {kind} format; only {WEIGHTS} is read")
    return UserError(f"{folder} has no {WEIGHTS}")


def write_weights(folder: Path, tensors: dict[str, Tensor]) -> None:
    """Write ``model.safetensors`` with the metadata that transformers requires."""
    try:
        save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    except SafetensorError as error:
        # safetensors wraps system errors, such as a full disk, in its own error.
        raise OSError(str(error)) from error
