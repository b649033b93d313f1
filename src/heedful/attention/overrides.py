"""Whether a part's short form still describes its method.

A part may have a short form of a method (``dot_scale`` describes ``compare``), with which a fast
kernel computes the same result. A subclass that overrides only the method inherits a short form
that is wrong for it, so the fast kernel must not be used.
"""

import functools

import torch
from torch import nn


def describes(part: nn.Module, short: str, method: str) -> bool:
    """Whether the short form of ``part`` was written for its method.

    Args:
        part: a score, normalizer or positions.
        short: the short form's name.
        method: the method's name.

    Returns:
        True if ``short`` is defined by the class that defines ``method``, or by a subclass of it.

    Example:
        >>> from heedful.attention.scores import ScaledDot
        >>> class Shifted(ScaledDot):
        ...     def compare(self, query, key):
        ...         return super().compare(query, key) + 1.0
        >>> describes(ScaledDot(), "dot_scale", "compare")
        True
        >>> describes(Shifted(), "dot_scale", "compare")
        False
    """
    if method in vars(part):
        return False
    kind = type(part).__mro__
    # torch.compile warns about cached functions.
    return (_described if torch.compiler.is_compiling() else _cached)(kind, short, method)


def _described(classes: tuple[type, ...], short: str, method: str) -> bool:
    owners = [next(one for one in classes if name in one.__dict__) for name in (short, method)]
    return issubclass(*owners)


_cached = functools.lru_cache(maxsize=256)(_described)
