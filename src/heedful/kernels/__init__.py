"""Everything that is compiled: C, Triton, ctypes, thread pools. Tensors come in and go out.

What takes part in autograd is an operator under ``torch.ops.heedful`` (:mod:`.operators`). What
serves search alone is none: it runs without gradients on plain CPU tensors.
"""
