"""Attention of Hugging Face's models, replaced through the library's attention interface.

Models call ``ALL_ATTENTION_FUNCTIONS[config._attn_implementation](module, query, key, value, …)``
with heads that are projected, rotated and cached. The function registered here calls a child of the
module, a :class:`~heedful.attention.projected_heads.ProjectedHeads`. Weights, caches and the
model's code remain as they are. transformers is imported only when such a model is replaced.
"""

import functools
import inspect
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from heedful.attention.masks import Mask, causal
from heedful.attention.normalizers import LocalMonotonic, LocalPredictive
from heedful.attention.projected_heads import ProjectedHeads
from heedful.interop.attention_adapters import (
    AttentionAdapter,
    AttentionPlace,
    ReplacedParts,
    register_attention_adapter,
)

NAME = "heedful"
CHILD = "heedful_attention"
_HEADS = ("num_heads", "num_attention_heads", "n_heads")
_WIDTHS = ("head_dim", "attention_head_size", "key_value_proj_dim")
_CHANGES = ("softcap", "s_aux", "sinks", "indices", "block_indices", "cu_seq_lens_q")
"""Arguments that change the weights, and that only some implementations know."""


class TransformersHeads(ProjectedHeads):
    """The child of an attention module; loading it registers the attention function."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        _register()
        super().__setstate__(state)


@functools.cache
def _register() -> None:
    """Register the attention function, and the masks of ``sdpa``, which are booleans."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(NAME, attention_forward)
    AttentionMaskInterface.register(NAME, sdpa_mask)


def attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    position_bias: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """The context ``[B, Q, H, D]`` of projected heads, as transformers calls it.

    Raises:
        ValueError: the model changes the weights in a way that is not supported.
    """
    heads = getattr(module, CHILD, None)
    if heads is None:  # An attention that was not replaced, of a model that has replaced ones.
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        options: dict[str, Any] = {"dropout": dropout, "scaling": scaling, "is_causal": is_causal}
        options |= {"position_bias": position_bias} | others
        plain: Any = sdpa_attention_forward
        found = plain(module, query, key, value, attention_mask, **options)
        context: Tensor = found[0]
        return context, None
    for name in _CHANGES:
        if others.get(name) is not None:
            raise ValueError(f"{type(module).__name__} passes {name}, which is not supported")
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    queries, keys = query.shape[-2], key.shape[-2]
    mask: Mask | Tensor | None = attention_mask
    if attention_mask is None and is_causal and queries > 1:
        if keys > queries:  # The rest of a static cache is not filled yet.
            key, value = key[..., :queries, :], value[..., :queries, :]
        mask = causal()
    if position_bias is not None:
        mask = _added(position_bias, mask, query, key)
    context = heads(query, key, value, mask=mask, scale=scaling, dropout=dropout)
    return context.transpose(1, 2).contiguous(), None


def _added(bias: Tensor, mask: Mask | Tensor | None, query: Tensor, key: Tensor) -> Tensor:
    """The numbers to add to the scores: ``bias``, and −∞ where the mask excludes a key."""
    bias = bias[..., : key.shape[-2]]
    if isinstance(mask, Mask):
        mask = mask.dense((*query.shape[:-1], key.shape[-2]), query.device)
    if mask is None:
        return bias
    if mask.is_floating_point():
        return bias + mask
    return torch.where(mask, bias, float("-inf"))


def _calls_interface(kind: type[nn.Module]) -> bool:
    """Whether a method of the class calls transformers' attention interface."""
    methods = (
        inspect.unwrap(method)
        for base in kind.__mro__
        if not base.__module__.startswith(("torch.", "builtins", "transformers.modeling_utils"))
        for method in vars(base).values()
        if callable(method)
    )
    return any(
        isinstance(method, FunctionType) and "ALL_ATTENTION_FUNCTIONS" in method.__code__.co_names
        for method in methods
    )


def _matches(module: nn.Module) -> bool:
    return hasattr(module, "config") and _calls_interface(type(module))


def _replace(module: nn.Module, name: str, parts: ReplacedParts) -> nn.Module:
    for part in ("positions", "mask"):
        if getattr(parts, part) is not None:
            raise ValueError(
                f"{type(module).__name__} has positions and masks of its own, and does not pass "
                f"positions on from its caches: {part} cannot be replaced"
            )
    _register()
    given = parts.build(lambda: _place(module, name))
    local = given.get("normalize")
    if isinstance(local, LocalMonotonic | LocalPredictive) and getattr(module, "is_causal", True):
        raise ValueError(
            f"{type(local).__name__} needs the position of each query, which "
            f"{type(module).__name__} does not pass on from its caches"
        )
    heads = TransformersHeads(**given)
    like = next(module.parameters(), None)
    if like is not None:
        heads.to(device=like.device, dtype=like.dtype)
    setattr(module, CHILD, heads.train(module.training))
    config: Any = module.config
    config._attn_implementation = NAME
    return module


def _place(module: nn.Module, name: str) -> AttentionPlace:
    config = getattr(module, "config", None)
    heads, width = (_number(module, config, names) for names in (_HEADS, _WIDTHS))
    size = getattr(config, "hidden_size", None)
    if width is None and heads is not None and isinstance(size, int):
        width = size // heads
    if heads is None or width is None:
        raise ValueError(f"{name}: {type(module).__name__} does not say the number of its heads")
    return AttentionPlace(name, heads, width)


def _number(module: nn.Module, config: object, names: tuple[str, ...]) -> int | None:
    known = (getattr(owner, name, None) for owner in (module, config) for name in names)
    return next((number for number in known if isinstance(number, int)), None)


register_attention_adapter(
    AttentionAdapter("Hugging Face transformers' attention interface", _matches, _replace)
)
