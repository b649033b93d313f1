"""How :func:`~heedful.interop.attention_replacing.replace_attention` replaces attention modules.

An adapter knows one kind of module. Those of PyTorch and of Hugging Face's transformers are
registered; :func:`register_attention_adapter` adds one.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import nn

from heedful.attention.masks import Mask
from heedful.attention.normalizers import Normalizer
from heedful.attention.positions.base import RelativePositions
from heedful.attention.scores import Score


class AttentionPlace(NamedTuple):
    """An attention module of a model."""

    name: str
    """Its name in ``model.named_modules()``."""
    heads: int
    head_dim: int
    """Width of a head."""


@dataclass(frozen=True)
class ReplacedParts:
    """The parts that replace those of each attention.

    A part is a module, which each attention gets a copy of, or a function of the place that returns
    it.
    """

    score: Score | Callable[[AttentionPlace], Score] | None = None
    normalize: Normalizer | Callable[[AttentionPlace], Normalizer] | None = None
    positions: RelativePositions | Callable[[AttentionPlace], RelativePositions] | None = None
    mask: Mask | None = None

    def build(self, place: Callable[[], AttentionPlace]) -> dict[str, Any]:
        """The parts of one attention, as arguments of its class.

        Args:
            place: returns the place; called only if a part is a function.
        """
        given = {"score": self.score, "normalize": self.normalize, "positions": self.positions}
        parts: dict[str, Any] = {"mask": self.mask} if self.mask is not None else {}
        for name, part in given.items():
            if isinstance(part, nn.Module):
                parts[name] = copy.deepcopy(part)
            elif part is not None:
                parts[name] = part(place())
        return parts


class AttentionAdapter(NamedTuple):
    """How one kind of attention module is replaced."""

    kind: str
    """Its name in messages."""
    matches: Callable[[nn.Module], bool]
    """Whether this adapter is for a module."""
    replace: Callable[[nn.Module, str, ReplacedParts], nn.Module]
    """The replacement of the module with this name; it may be the module itself, changed."""
    finish: Callable[[nn.Module], None] | None = None
    """Called once with the model, after its modules have been replaced."""


_ADAPTERS: list[AttentionAdapter] = []


def register_attention_adapter(adapter: AttentionAdapter) -> None:
    """Add an adapter. For modules that several adapters match, the last one is used.

    Example:
        >>> from torch import nn
        >>> from heedful.attention import MultiHeadAttention
        >>> class Mine(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.heads = nn.MultiheadAttention(8, 2, batch_first=True)
        ...     def forward(self, x):
        ...         return self.heads(x, x, x)[0]
        >>> class Replaced(nn.Module):
        ...     def __init__(self, attention):
        ...         super().__init__()
        ...         self.attention = attention
        ...     def forward(self, x):
        ...         return self.attention(x, x)
        >>> def replace(module, name, parts):
        ...     place = AttentionPlace(name, module.heads.num_heads, module.heads.head_dim)
        ...     given = parts.build(lambda: place)
        ...     return Replaced(MultiHeadAttention.from_torch(module.heads, **given))
        >>> register_attention_adapter(
        ...     AttentionAdapter("Mine", lambda module: isinstance(module, Mine), replace)
        ... )
        >>> unregister_attention_adapter("Mine")
    """
    unregister_attention_adapter(adapter.kind)
    _ADAPTERS.insert(0, adapter)


def unregister_attention_adapter(kind: str) -> None:
    """Remove the adapter of this kind, if there is one."""
    _ADAPTERS[:] = [one for one in _ADAPTERS if one.kind != kind]


def adapter_of(module: nn.Module) -> AttentionAdapter | None:
    """The adapter for a module; None if it is no attention that can be replaced."""
    return next((one for one in _ADAPTERS if one.matches(module)), None)


def adapter_kinds() -> list[str]:
    """The kinds of all adapters."""
    return [one.kind for one in _ADAPTERS]
