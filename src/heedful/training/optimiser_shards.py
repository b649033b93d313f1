"""The optimiser's state in parts: every process writes its own, any number of processes reads them.

The files are written and read by ``torch.distributed.checkpoint`` in its safetensors format. The
header of each file lists where the file's parts begin in the whole tensors. There is no pickle.
"""

import warnings
from pathlib import Path

import torch
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import (
    HuggingFaceStorageReader,
    HuggingFaceStorageWriter,
)
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from heedful.basics.errors import UserError


def write_parts(tensors: dict[str, Tensor], folder: Path) -> None:
    """Write the parts of tensors that this process holds. All processes call this.

    Args:
        tensors: tensors by name, the same names in all processes.
        folder: a folder that all processes can write to; created.

    Raises:
        UserError: a process cannot write its part; raised in all of them.
    """
    writer = HuggingFaceStorageWriter(str(folder), save_distributed=True)
    try:
        save(tensors, storage_writer=writer)
    except CheckpointException as error:
        raise UserError(f"{folder} cannot be written: {_first_of(error)}") from error


def read_parts(folder: Path, optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's state in ``folder``, distributed as its parameters are.

    Processes read on their own, and only what they need.

    Args:
        folder: contains the files that :func:`write_parts` has written, and nothing else.
        optimiser: its parameters, in their order, are those that the state belongs to.

    Raises:
        ValueError: the state belongs to other parameters, or the files do not fit together.
    """
    reader = HuggingFaceStorageReader(str(folder))
    parameters = [one for group in optimiser.param_groups for one in group["params"]]
    found: dict[str, Tensor] = {}
    for name, known in reader.read_metadata().state_dict_metadata.items():
        parameter = parameters[int(name.split(".")[1])]
        if not isinstance(known, TensorStorageMetadata) or known.size != parameter.shape:
            raise ValueError(f"{name} is not a tensor of shape {list(parameter.shape)}")
        found[name] = torch.empty_like(parameter.detach(), dtype=known.properties.dtype)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "torch.distributed is disabled", UserWarning)
            load(found, storage_reader=reader, no_dist=True)
    except (CheckpointException, AssertionError) as error:
        raise ValueError(f"{folder} is damaged: {error!s:.200}") from error
    return found


def _first_of(error: CheckpointException) -> object:
    return next(iter(error.failures.values()))[0]
