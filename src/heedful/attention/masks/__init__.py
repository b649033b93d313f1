"""Masks: small objects that define which query may attend to which key, true = may attend.

They combine with ``&``, ``|`` and ``~``; padding is always applied last. They are converted to a
dense matrix, or to FlexAttention's blocks (:func:`flex_mask`), only if a kernel needs it.

Example:
    >>> import torch
    >>> mask = causal() & window(1) & padding(torch.tensor([2]))
    >>> mask.dense((1, 3, 3)).tolist()
    [[[True, False, False], [True, True, False], [False, True, False]]]
"""

from heedful.attention.masks.algebra import Dense, Grid, Mask, as_mask
from heedful.attention.masks.flex import flex_mask
from heedful.attention.masks.grids import axial, neighbourhood
from heedful.attention.masks.kinds import (
    Causal,
    block,
    causal,
    document,
    function,
    padding,
    prefix,
    sinks,
    window,
)
from heedful.attention.masks.settings import MaskSettings, register_mask
from heedful.attention.masks.top_blocks import TopBlocks, top_blocks
from heedful.attention.masks.torch_masks import from_torch
from heedful.attention.masks.use import dense_mask, split_mask

__all__ = [
    "Causal",
    "Dense",
    "Grid",
    "Mask",
    "MaskSettings",
    "TopBlocks",
    "as_mask",
    "axial",
    "block",
    "causal",
    "dense_mask",
    "document",
    "flex_mask",
    "from_torch",
    "function",
    "neighbourhood",
    "padding",
    "prefix",
    "register_mask",
    "sinks",
    "split_mask",
    "top_blocks",
    "window",
]
