"""The attention modules of a model: their parts, and how they are computed."""

from collections.abc import Iterable
from typing import Any

from torch import nn

from heedful.attention import RecurrentAttention
from heedful.attention.modules import Attentive
from heedful.attention.state_heads import StateAttention

_SHOWN = {
    "fused": "fused kernel",
    "tiles": "tiled kernel",
    "plain": "plain implementation",
    "linear": "sums in time linear in the length",
}
_PARTS = ("score", "normalizer", "positions", "mask", "feature_map")


def summarise_attention(model: nn.Module) -> list[dict[str, Any]]:
    """One entry for each kind of attention: parts, heads, computation, and the modules' names.

    Modules that always have the same parts, such as structured self-attention, are not listed.
    """
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for name, module in model.named_modules():
        if isinstance(module, Attentive | RecurrentAttention | StateAttention):
            kind = _described(module)
            found.setdefault(tuple(kind.values()), {**kind, "modules": []})["modules"].append(name)
    return list(found.values())


def _described(module: Attentive | RecurrentAttention | StateAttention) -> dict[str, Any]:
    if isinstance(module, StateAttention):
        return {
            **dict.fromkeys(_PARTS),
            "score": type(module).__name__.removesuffix("Attention"),
            "feature_map": type(module.feature_map).__name__,
            "heads": module.heads,
            "key_value_heads": module.heads,
            "latent_size": None,
            "computed": "linear",
        }
    parts = {key: getattr(module, key, None) for key in ("positions", "mask")}
    return {
        "score": type(module.score).__name__,
        "normalizer": type(module.normalize).__name__,
        **{key: part and type(part).__name__ for key, part in parts.items()},
        "feature_map": None,
        "heads": getattr(module, "heads", 1),
        "key_value_heads": getattr(module, "key_heads", 1),
        "latent_size": getattr(module, "latent_size", None),
        "computed": module.computed() if isinstance(module, Attentive) else "plain",
    }


def attention_lines(kinds: Iterable[dict[str, Any]]) -> list[tuple[str, str]]:
    """The lines of ``heedful info``."""
    lines = []
    for kind in kinds:
        parts = [kind[key] for key in _PARTS if kind[key]]
        heads, own = kind["heads"], kind["key_value_heads"]
        counted = f"{heads} head{'s' * (heads > 1)}"
        shared = "" if own == heads else f", {own} of keys and values"
        if kind["latent_size"]:
            shared = f", latent vectors of {kind['latent_size']}"
        modules = kind["modules"]
        where = modules[0] if len(modules) == 1 else f"{len(modules)} modules"
        text = f"{' + '.join(parts)}, {counted}{shared}: {_SHOWN[kind['computed']]} ({where})"
        lines.append(("attention", text))
    return lines
