"""Compiled code: C, Triton, ctypes, thread pools. Functions take and return tensors.

Functions with gradients are operators under ``torch.ops.heedful`` (:mod:`.operators`). Functions
for search only are not: they run without gradients on plain CPU tensors.
"""
