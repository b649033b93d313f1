"""Weights of a residual network that training starts from."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from heedful.basics.errors import UserError
from heedful.basics.files import atomic_file
from heedful.layers.residual_weights import from_torchvision

KEPT = "encoder.safetensors"


def read_weights(path: Path, recipe: Any) -> dict[str, Tensor]:
    """The weights of a file in torchvision's layout, by the names of ``model.encoder``.

    Raises:
        UserError: the file cannot be read, or it is for another network.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        raise UserError(f"data.encoder_weights: cannot read {path}: {error}") from error
    settings = recipe.model.encoder
    if (settings.norm, settings.scaling) != ("fixed", "imagenet"):
        raise UserError(
            "data.encoder_weights are for batch normalization and ImageNet's pixels: set "
            "model.encoder.norm = 'fixed' and model.encoder.scaling = 'imagenet'"
        )
    with torch.device("meta"):
        network = settings.build_network(recipe.data.form.channels)
    try:
        found = from_torchvision(tensors, settings.blocks)
    except ValueError as error:
        raise UserError(f"{path}: {error}") from error
    for name, own in network.state_dict().items():
        if name not in found:
            if "attention" in name:
                continue
            raise UserError(f"{path} has no weights for {name} of model.encoder")
        if found[name].shape != own.shape:
            raise UserError(
                f"{path}: {name} has the shape {list(found[name].shape)}, but model.encoder "
                f"{list(own.shape)}; correct widths, blocks, bottleneck or stem"
            )
    left = [name for name in found if name not in network.state_dict()]
    if left:
        raise UserError(f"{path} has {left[0]}, which model.encoder has not: add stages or blocks")
    return found


def keep_weights(run: Path, tensors: dict[str, Tensor]) -> None:
    """Write the weights into the folder of a run."""
    from safetensors.torch import save

    with atomic_file(run / KEPT) as file:
        file.write(save({name: own.contiguous() for name, own in tensors.items()}))


def load_kept(run: Path, model: Any) -> None:
    """Load the weights that a run keeps, if any, into the network of its model."""
    from safetensors.torch import load_file

    if (run / KEPT).exists():
        model.look.network.load_state_dict(load_file(run / KEPT), strict=False)
