"""The optimisers and learning-rate schedules that recipes name."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from heedful.basics.notices import notice
from heedful.runs.settings import LoopSettings
from heedful.runs.sharded_tensors import is_sharded, own_part
from heedful.training.parameter_groups import Group

_RATIO = 32
"""Ratio of the highest to the final rate (Howard and Ruder 2018, ULMFiT, section 3.2)."""


def build_optimiser(groups: Sequence[Group], settings: LoopSettings) -> torch.optim.Optimizer:
    """The optimiser of the settings, with one parameter group for each of ``groups``."""
    everything = [parameter for group in groups for parameter in group.parameters]
    parameters = [{"params": group.parameters} for group in groups]
    if settings.optimiser == "sgd":
        return torch.optim.SGD(
            parameters, lr=settings.learning_rate, weight_decay=settings.weight_decay
        )
    if settings.optimiser == "adam" and settings.weight_decay:
        notice(
            "training.weight_decay is added to the gradient, which training.optimiser = 'adam' "
            "then scales; use 'adamw' for a decay of the weights"
        )
    kind = torch.optim.Adam if settings.optimiser == "adam" else torch.optim.AdamW
    fused = all(parameter.device.type in ("cpu", "cuda") for parameter in everything)
    return kind(
        parameters,
        lr=settings.learning_rate,
        betas=settings.betas,
        eps=1e-9,
        weight_decay=settings.weight_decay,
        fused=fused,
    )


def learning_rate(step: int, settings: LoopSettings) -> float:
    """The learning rate of step 1, 2, …: linear warm-up to the highest rate, then the schedule.

    ``inverse_square_root`` is equation 3 of Vaswani et al. 2017, section 5.3, scaled so that its
    highest value is the recipe's ``learning_rate``.

    Example:
        >>> settings = LoopSettings(learning_rate=1.0, warmup_steps=4, max_steps=16)
        >>> [round(learning_rate(step, settings), 2) for step in (1, 4, 16)]
        [0.25, 1.0, 0.5]
    """
    warmup = settings.warmup_steps
    if step < warmup:
        return settings.learning_rate * step / warmup
    if settings.schedule == "constant":
        return settings.learning_rate
    if settings.schedule == "inverse_square_root":
        return settings.learning_rate * math.sqrt(max(warmup, 1) / step)
    done = min(1.0, (step - warmup) / max(1, settings.max_steps - warmup))
    if settings.schedule == "cosine":
        return settings.learning_rate * (1 + math.cos(math.pi * done)) / 2
    last = 1 / _RATIO if settings.schedule == "slanted_triangular" else 0.0
    return settings.learning_rate * (1 - done * (1 - last))


def optimiser_tensors(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's state as named tensors on the CPU."""
    named = named_state(optimiser)
    return {name: value.to("cpu", copy=True) for name, value in named.items()}


def named_state(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The tensors of the optimiser's state by name, where they are."""
    state = optimiser.state_dict()["state"]
    return {
        f"optimiser.{index}.{key}": value.detach()
        for index, values in state.items()
        for key, value in values.items()
        if isinstance(value, Tensor)
    }


def load_optimiser_tensors(optimiser: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Restore the state from :func:`optimiser_tensors`.

    A tensor of the shape of its parameter is distributed as the parameter is.
    """
    parameters = [one for group in optimiser.param_groups for one in group["params"]]
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        if name.startswith("optimiser."):
            _, index, key = name.split(".", 2)
            parameter = parameters[int(index)]
            if not is_sharded(tensor) and tensor.shape == parameter.shape:
                tensor = own_part(tensor, parameter)
            state.setdefault(int(index), {})[key] = tensor
    whole = optimiser.state_dict()
    whole["state"] = state
    optimiser.load_state_dict(whole)
