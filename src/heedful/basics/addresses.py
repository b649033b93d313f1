"""Which tensors C code may read through their data pointer."""

import torch
from torch import Tensor, nn
from torch._C import _functorch
from torch.autograd import forward_ad

_PLAIN = (Tensor, nn.Parameter)
_KEYS = torch._C._TorchDispatchModeKey
_TRACING = (_KEYS.FAKE, _KEYS.PROXY, _KEYS.FUNCTIONAL)


def is_plain(tensor: Tensor) -> bool:
    """Whether a tensor's storage contains its values, and no transform except autograd is active.

    False for fake and other subclassed tensors, for tensors inside ``torch.func``'s transforms,
    for gradients with ``is_grads_batched``, for negative views and conjugates, and for dual
    numbers (forward-mode gradients).
    """
    return (
        type(tensor) in _PLAIN
        and not is_transformed(tensor)
        and not _functorch.is_legacy_batchedtensor(tensor)
        and not tensor.is_neg()
        and not tensor.is_conj()
        and (forward_ad._current_level < 0 or forward_ad.unpack_dual(tensor).tangent is None)
    )


def is_transformed(tensor: Tensor) -> bool:
    """Whether a transform of ``torch.func`` (``grad``, ``vmap``) wraps a tensor."""
    return _functorch.is_functorch_wrapped_tensor(tensor)


def forward_mode(*tensors: Tensor) -> bool:
    """Whether a tensor may have a forward-mode gradient, which heedful's operators would drop.

    Inside ``torch.func.jvp`` this is true for every transformed tensor.
    """
    return forward_ad._current_level >= 0 and not all(is_plain(part) for part in tensors)


def operable(*tensors: Tensor) -> bool:
    """Whether a heedful operator computes these tensors in C: :func:`readable` tensors, and those
    that ``torch.func`` transforms, except with forward-mode gradients."""
    return (
        not is_traced()
        and not forward_mode(*tensors)
        and all(
            part.device.type == "cpu" and (is_transformed(part) or is_plain(part))
            for part in tensors
        )
    )


def single_on_cpu(*tensors: Tensor) -> bool:
    """Whether tensors are :func:`operable` in float32, and autocast is off."""
    return (
        all(part.dtype == torch.float32 for part in tensors)
        and not torch.is_autocast_enabled("cpu")
        and operable(*tensors)
    )


def is_traced() -> bool:
    """Whether operations are being traced or faked, which would not record C code."""
    if torch.compiler.is_compiling():
        return True
    return torch._C._is_tracing() or any(
        torch._C._get_dispatch_mode(key) is not None for key in _TRACING
    )


def readable(*tensors: Tensor) -> bool:
    """Whether C may read tensors at ``data_ptr()`` now: plain tensors on the CPU.

    False while PyTorch traces or fakes operations (``torch.compile``, ``make_fx``,
    ``torch.jit.trace``, ``FakeTensorMode``).
    """
    return not is_traced() and all(part.device.type == "cpu" and is_plain(part) for part in tensors)
