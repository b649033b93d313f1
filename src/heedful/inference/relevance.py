"""Relevance from attention weights: rollout through layers, and weights times gradients.

Shapes: H heads, Q queries, K keys, L layers.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from heedful.attention import watch
from heedful.basics.cancellation import check_cancelled
from heedful.inference.trace import AttentionMap


def rollout(maps: Sequence[AttentionMap]) -> list[AttentionMap]:
    """Attention rollout (Abnar and Zuidema 2020, section 3): weights multiplied through all layers.

    Each axis with self-attention has one map ``[L, Q, K]``: "head" l is the product of layers
    1 … l, each ½ (mean of its heads + identity), with rows normalized to sum to 1. Attention from
    one axis to another has one map: "head" l is layer l's mean weights, multiplied with the whole
    rollout of the keys. A model without self-attention has no rollout.

    Args:
        maps: the watched maps; those of kind ``weights`` are used, in order.
    """
    own: dict[str, list[Tensor]] = {}
    between: dict[tuple[str, str], list[Tensor]] = {}
    for one in maps:
        if one.kind == "weights":
            means = [weights.mean(0) for weights in one.at_steps]
            if one.query_axis == one.key_axis:
                own.setdefault(one.key_axis, []).extend(means)
            else:
                between.setdefault((one.query_axis, one.key_axis), []).extend(means)
    found, whole = [], {}
    for axis, layers in own.items():
        followed = _products(layers)
        whole[axis] = followed[-1]
        found.append(AttentionMap(f"rollout of {axis}", axis, axis, followed, "rollout"))
    for (queries, keys), layers in between.items():
        if keys in whole:
            through = torch.stack([layer @ whole[keys] for layer in layers])
            name = f"rollout of {queries} to {keys}"
            found.append(AttentionMap(name, queries, keys, through, "rollout"))
    return found


def map_of_calls(
    name: str, axes: tuple[str, ...], calls: Sequence[Tensor], kind: str = "weights"
) -> AttentionMap:
    """The map of a module that was called once or several times on one row.

    Args:
        name: of the map.
        axes: of its queries and its keys; a third one if each call is a step of all queries.
        calls: weights ``[1, H, Q, K]``.
        kind: of the map.
    """
    queries, keys, *steps = axes
    joined = torch.stack(list(calls), dim=2) if steps else torch.cat(list(calls), dim=2)
    step_axis = steps[0] if steps else None
    return AttentionMap(name, queries, keys, joined[0].float().cpu(), kind, step_axis)


def _products(layers: Sequence[Tensor]) -> Tensor:
    """``[L, K, K]``: the product of the first l layers with their residual connections."""
    product = torch.eye(len(layers[0]))
    products = []
    for layer in layers:
        check_cancelled()
        mixed = layer + torch.eye(len(layer))
        product = mixed / mixed.sum(1, keepdim=True) @ product
        products.append(product)
    return torch.stack(products)


def weights_times_gradient(
    model: nn.Module,
    axes_of: Mapping[str, tuple[str, ...]],
    log_probability: Callable[[], Tensor],
) -> list[AttentionMap]:
    """Weights times how much a decision's log-probability grows with them, negative ones as 0.

    ``(A ⊙ ∂ log p / ∂A)₊`` for each head (as in Chefer, Gur and Wolf 2021, equation 5, but with
    the log-probability of all decisions, and separate heads). In float32.

    Args:
        model: any model.
        axes_of: its attention modules, and the axes of their queries and keys.
        log_probability: runs the model once on one row; returns the decision's log-probability.

    Returns:
        A map of kind ``gradient`` for each attention module that affects the decision (none for an
        aligner), its name followed by " × gradient".
    """
    if not axes_of:
        return []
    check_cancelled()
    with _differentiable(model), watch(model, axes_of, keep_gradients=True) as seen:
        total = log_probability()
        check_cancelled()
        calls = [weights for name in axes_of for weights in seen[name]]
        # Weights that were drawn, such as those of glimpses, have no gradients.
        learned = [weights for weights in calls if weights.requires_grad]
        some = iter(torch.autograd.grad(total, learned, allow_unused=True) if learned else ())
        gradients = iter([next(some) if one.requires_grad else None for one in calls])
        maps = []
        for name, axes in axes_of.items():
            # A Transformer computes all positions in one call, a recurrent decoder one per call.
            grown = [next(gradients) for _ in seen[name]]
            steps = [
                (one.detach() * gradient).clamp(min=0)
                for one, gradient in zip(seen[name], grown, strict=True)
                if gradient is not None
            ]
            if steps and len(steps) == len(grown):  # A module that was not called has none.
                maps.append(map_of_calls(f"{name} × gradient", axes, steps, "gradient"))
    return maps


@contextmanager
def _differentiable(model: nn.Module) -> Iterator[None]:
    """Evaluation mode with gradients of attention weights."""
    training = [part for part in model.modules() if part.training]
    frozen = [one for one in model.parameters() if not one.requires_grad]
    model.eval()
    for one in frozen:
        one.requires_grad_(True)
    try:
        with torch.inference_mode(False), torch.enable_grad():
            yield
    finally:
        for one in frozen:
            one.requires_grad_(False)
        for part in training:
            part.training = True
