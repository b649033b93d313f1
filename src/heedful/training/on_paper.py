"""What a training step of a model costs, usually without allocating it: on the device ``meta``.

Operations are multiplications and additions of matrix products, forward and backward, counted as
the model computes them. The attention of PyTorch's fused kernels is counted in full, masked pairs
included, as is usual (Chowdhery et al. 2022, "PaLM", appendix B); what such a kernel computes again
in the backward pass is not counted.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx
from torch.overrides import TorchFunctionMode

from heedful.basics.operation_counting import count
from heedful.layers.transformer import DecoderLayer, EncoderLayer
from heedful.training.operations import OperationCounter, operation_counter


class StepCost(NamedTuple):
    """The cost of one forward and backward pass."""

    forward: int
    """Operations of the forward pass."""
    backward: int
    """Operations of the backward pass."""
    repeated: int
    """Operations that checkpointing of the layers repeats."""
    saved: int
    """Bytes of what the forward pass keeps for the backward pass, without parameters; numbers in
    float32."""
    checkpointed: int | None
    """As ``saved``, if only the inputs of layers are kept, with the largest layer computed again;
    None if the model has no layers of a Transformer."""


class _Fused(torch.autograd.Function):
    """Attention as a fused kernel computes it: it keeps a number for each query, no weights."""

    @staticmethod
    def forward(ctx: FunctionCtx, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        *outer, heads, length, _ = query.shape
        # As in memory: positions before heads, so that joining the heads copies nothing. Zeros,
        # because the model may look at values: attention with overflow takes another formula.
        context = query.new_zeros(*outer, length, heads, value.shape[-1]).transpose(-3, -2)
        sums = query.new_zeros(query.shape[:-1])
        ctx.save_for_backward(query, key, value, context, sums)
        count(_operations(query, key, value))
        return context

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        query, key, value, _, _ = ctx.saved_tensors
        count(2 * _operations(query, key, value))
        return tuple(torch.zeros_like(one) for one in (query, key, value))


def _operations(query: Tensor, key: Tensor, value: Tensor) -> int:
    """Of scores and context, ``[.., Q, D]``, ``[.., K, D]`` and ``[.., K, E]``."""
    return 2 * query.shape[:-1].numel() * key.shape[-2] * (query.shape[-1] + value.shape[-1])


class _FusedAttention(TorchFunctionMode):
    """Replaces PyTorch's attention, which on ``meta`` would keep its weights."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is F.scaled_dot_product_attention:
            return _Fused.apply(*args[:3])  # type: ignore[no-untyped-call]
        return func(*args, **(kwargs or {}))


class _Ledger:
    """Records what is kept for the backward pass, and what each layer of a Transformer needs."""

    def __init__(self, model: nn.Module, counter: OperationCounter) -> None:
        self.counter = counter
        self.weights = {one.untyped_storage()._cdata for one in model.parameters()}
        self.kept: dict[int, tuple[torch.UntypedStorage, int | None]] = {}
        self.inputs: list[int] = []
        self.operations: list[int] = []
        self.layer: int | None = None
        self._began = 0
        for part in model.modules():
            if isinstance(part, EncoderLayer | DecoderLayer):
                part.register_forward_pre_hook(self._enter)
                part.register_forward_hook(self._leave)

    def keep(self, tensor: Tensor) -> Tensor:
        """Record a tensor that the backward pass needs; each storage counts once."""
        storage = tensor.untyped_storage()
        if storage._cdata not in self.weights:
            self.kept.setdefault(storage._cdata, (storage, self.layer))
        return tensor

    def _enter(self, part: nn.Module, inputs: tuple[Any, ...]) -> None:
        self.layer, self._began = len(self.inputs), self.counter.get_total_flops()
        self.inputs.append(sum(one.nbytes for one in inputs[:1] if isinstance(one, Tensor)))

    def _leave(self, part: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        self.operations.append(self.counter.get_total_flops() - self._began)
        self.layer = None

    def saved(self, layer: int | None = None) -> int:
        """Bytes that are kept, of a layer or of all."""
        chosen = [one for one, own in self.kept.values() if layer is None or own == layer]
        return sum(one.nbytes() for one in chosen)

    def checkpointed(self) -> int | None:
        """Bytes that are kept if layers keep their inputs only, and one is computed again."""
        if not self.inputs:
            return None
        layers = [self.saved(number) for number in range(len(self.inputs))]
        return self.saved() - sum(layers) + sum(self.inputs) + max(layers)


def real_step_cost(build: Callable[[], nn.Module], loss: Callable[[Any], Tensor]) -> StepCost:
    """As :func:`step_cost`, of a model whose steps depend on values, such as lengths.

    It is computed on the CPU, in float64, in which heedful's compiled code is not used, so that
    PyTorch counts all products.

    Args:
        build: builds the model.
        loss: computes a loss from the model, on the default device.
    """
    with torch.random.fork_rng([]):
        model = build().double()
        cost = step_cost(model, lambda: loss(model), device="cpu")
    halved = None if cost.checkpointed is None else cost.checkpointed // 2
    return cost._replace(saved=cost.saved // 2, checkpointed=halved)


def step_cost(model: nn.Module, loss: Callable[[], Tensor], *, device: str = "meta") -> StepCost:
    """The cost of a forward and a backward pass.

    Args:
        model: on ``device``, in training mode. It cannot be used afterwards.
        loss: computes a loss from the model, on the default device.
        device: the device.

    Example:
        >>> with torch.device("meta"):
        ...     linear = nn.Linear(3, 5)
        >>> step_cost(linear, lambda: linear(torch.zeros(2, 3, device="meta")).sum())[:2]
        (60, 60)
    """
    with operation_counter() as counter:
        ledger = _Ledger(model, counter)
        keeping = torch.autograd.graph.saved_tensors_hooks(ledger.keep, lambda one: one)
        with torch.device(device), _FusedAttention(), keeping:
            found = loss()
        forward = counter.get_total_flops()
        found.backward()
        backward = counter.get_total_flops() - forward
    repeated = sum(ledger.operations)
    return StepCost(forward, backward, repeated, ledger.saved(), ledger.checkpointed())
