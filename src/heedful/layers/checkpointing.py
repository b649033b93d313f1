"""Activation checkpointing: layers are computed again in the backward pass instead of stored.

Chen, Xu, Zhang, Guestrin 2016, "Training Deep Nets with Sublinear Memory Cost", section 4. Only the
inputs of each layer are kept until the backward pass, which computes the layer a second time.
Losses and gradients are identical, because the same random numbers are drawn again.
"""

import contextvars
import functools
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, get_device_states, set_device_states

from heedful.attention.watching import watched_as_now
from heedful.basics.operation_counting import repeated
from heedful.kernels.dropout import drawing_from, drawn_from
from heedful.layers.caches import Cache
from heedful.layers.stacks import layer_methods, stacked_layers

_Call = Callable[..., Any]


def checkpoint_layers(model: nn.Module) -> int:
    """Compute the layers of a model again in the backward pass; returns their number.

    Names of parameters do not change. Calls without gradients, and calls with the cache of a
    search, are computed as before.
    """
    layers = stacked_layers(model).values()
    for layer in layers:
        for name in layer_methods(layer):
            setattr(layer, name, _checkpointed(getattr(layer, name)))
    return len(layers)


def _checkpointed(forward: _Call) -> _Call:
    @functools.wraps(forward)
    def run(*inputs: Any, **named: Any) -> Any:
        has_cache = any(isinstance(one, Cache) for one in (*inputs, *named.values()))
        if not torch.is_grad_enabled() or has_cache:
            return forward(*inputs, **named)
        if torch.compiler.is_compiling():
            return checkpoint(forward, *inputs, use_reentrant=False, **named)
        return checkpoint(
            _Repeatable(forward), *inputs, use_reentrant=False, preserve_rng_state=False, **named
        )

    return run


class _Repeatable:
    """A call that can be repeated, perhaps in another thread, with the state of the first time."""

    def __init__(self, forward: _Call) -> None:
        self.forward, self.again = forward, False
        self.context = contextvars.copy_context()
        self.watched = watched_as_now()
        generator = drawn_from()
        self.generator = None if generator is None else generator.clone_state()
        self.random: Tensor | None = None
        self.on_devices: tuple[list[int], list[Tensor]] = [], []

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        if self.again:
            return self.context.copy().run(self._repeat, inputs, named)
        self.again = True
        before, self.on_devices = torch.get_rng_state(), get_device_states(*inputs)
        result = self.forward(*inputs, **named)
        # Threads share PyTorch's generator. Those with a generator of their own must not touch it.
        if not torch.equal(before, torch.get_rng_state()):
            self.random = before
        return result

    def _repeat(self, inputs: tuple[Any, ...], named: dict[str, Any]) -> Any:
        with ExitStack() as stack:
            stack.enter_context(repeated())
            stack.enter_context(self.watched())
            if self.generator is not None:
                stack.enter_context(drawing_from(self.generator.clone_state()))
            devices, states = self.on_devices
            if self.random is not None or devices:
                stack.enter_context(torch.random.fork_rng(devices))
                set_device_states(devices, states)
            if self.random is not None:
                torch.set_rng_state(self.random)
            return self.forward(*inputs, **named)
