"""Fast forms beneath the parts, each beside the plain one that defines it."""

from heedful.attention.kernels import operators

__all__ = ["operators"]
