"""Fast forms beneath the parts, each beside the plain one that defines it.

C that takes part in autograd is an operator under ``torch.ops.heedful`` (:mod:`~.operators`,
:mod:`~.short_operators`). C that serves search alone (:mod:`~.steps`, :mod:`~.reading`, and
``layers/fused``, ``layers/cells.py``, ``decoding/top.py``) is none: it runs without gradients on
plain CPU tensors, and whoever calls it asks :func:`heedful.basics.addresses.readable` first.
"""

from heedful.attention.kernels import operators, short_operators

__all__ = ["operators", "short_operators"]
