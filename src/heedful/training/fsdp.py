"""FSDP2: each process holds a part of the weights, their gradients and the optimiser's state.

PyTorch's ``fully_shard`` (Zhao et al. 2023, "PyTorch FSDP: Experiences on Scaling Fully Sharded
Data Parallel"; Rajbhandari et al. 2020, "ZeRO", stage 3). The weights of a layer are whole only
while the layer is computed. The batches and random numbers of a step are those of its virtual
shards (:mod:`~heedful.training.shards`). Sums are rounded in PyTorch's order.
"""

import atexit
import shutil
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import HashStore
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    OffloadPolicy,
    fully_shard,
    register_fsdp_forward_method,
)

from heedful.basics.errors import UserError
from heedful.layers.max_norm import constrained_modules
from heedful.layers.stacks import (
    is_sharded_alone,
    layer_methods,
    parts_called_apart,
    stacked_layers,
)
from heedful.runs.checkpoints import folder_of, named_tensors
from heedful.runs.sharded_tensors import gathered, is_sharded
from heedful.training.optimiser_shards import write_parts
from heedful.training.optimisers import named_state
from heedful.training.processes import Processes
from heedful.training.protocol import Task
from heedful.training.rounded_gather import RoundedGather, in_float32
from heedful.training.shards import Shards, random_numbers, seed_of
from heedful.training.strategies import BatchLoss, LossModule, batch_loss

_EPSILON = 1e-6
"""Added to norms, as in PyTorch's ``clip_grad_norm_``."""


class ShardedModule(LossModule):
    """A task's model and loss, with weights that are distributed.

    Args:
        task: the task to train.
        shared: parameters that several layers use.
    """

    def __init__(self, task: Task, shared: Sequence[nn.Parameter]) -> None:
        super().__init__(task)
        # The weights of the outermost module include its own parameters, wherever they are used.
        self.shared = nn.ParameterList(shared)
        self.gathers: list[RoundedGather] = []
        """What sends weights of layers in bfloat16; empty if they are sent in float32."""


def shard(
    task: Task,
    device: torch.device,
    precision: str,
    *,
    cpu_offload: bool = False,
    gather_precision: str = "float32",
) -> ShardedModule:
    """Distribute the weights of a task's model over all processes, layer by layer.

    Weights that layers share, and all others, are whole during a step. Optimisers are built after
    this call, because it replaces the parameters of the model.

    Args:
        task: the task to train. All processes have the same weights.
        device: the device of the model.
        precision: of training.
        cpu_offload: whether weights, gradients and the optimiser's state are kept in the memory of
            the CPU; they are copied to the device when a layer is computed.
        gather_precision: in which weights of linear maps and convolutions in layers are sent;
            ``bfloat16`` has an effect only if it is the precision of training, too.

    Raises:
        UserError: the model or the precision cannot be used with FSDP2.
    """
    if precision == "float16":
        raise UserError(
            "training.strategy = 'fsdp' has no loss scaling, which float16 needs; set "
            "training.precision to 'bfloat16' or 'float32'"
        )
    if constrained_modules(task.model):
        raise UserError(
            "training.strategy = 'fsdp' cannot limit the norm of rows (head_max_norm); use 'ddp'"
        )
    _require_group()
    _ignore_warnings()
    pinned = device.type == "cuda"
    options: dict[str, Any] = {
        "mesh": init_device_mesh(device.type, (dist.get_world_size(),)),
        "offload_policy": CPUOffloadPolicy(pinned) if cpu_offload else OffloadPolicy(),
    }
    layers = [one for one in stacked_layers(task.model).values() if is_sharded_alone(one)]
    shared = _shared_parameters(task.model, layers)
    module = ShardedModule(task, shared)
    for layer in layers:
        for name, methods in parts_called_apart(layer).items():
            part = layer.get_submodule(name)
            fully_shard(part, ignored_params=set(shared), **options)
            _gather_in(part, methods)
        fully_shard(layer, ignored_params=set(shared), **options)
        _gather_in(layer, layer_methods(layer))
    fully_shard(module, **options)
    for own in _sharded_modules(module):
        # Losses are divided by the weight of the step, so that gradients are sums.
        own.set_gradient_divide_factor(1.0)
        own.set_force_sum_reduction_for_comms(True)
    if gather_precision == precision == "bfloat16":
        _round_gathers(module)
    # The first call decides which module is the outermost. A validation may come before a step.
    register_fsdp_forward_method(module, "begin")
    module.begin()
    _sharded_modules(module)[0].reshard()
    return module


def _round_gathers(module: ShardedModule) -> None:
    """Send weights of layers in bfloat16, except those that layers share."""
    for layer in _sharded_modules(module)[1:]:  # the first is the outermost
        assert isinstance(layer, nn.Module)
        gather: Any = RoundedGather(layer, module.shared)
        layer.set_custom_all_gather(gather)
        module.gathers.append(gather)


def _ignore_warnings() -> None:
    # Attention returns views. Nothing changes them in place, which would be a mistake.
    warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view", UserWarning)
    # PyTorch 2.13 calls functions that it deprecates.
    warnings.filterwarnings("ignore", "`torch.distributed.* is deprecated", FutureWarning)


def _require_group() -> None:
    """A process group of one process, if there is none."""
    if not dist.is_initialized():
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(backend, store=HashStore(), rank=0, world_size=1)
        atexit.register(_close_group)


def _close_group() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def _gather_in(module: nn.Module, methods: Sequence[str]) -> None:
    for method in methods:
        if method != "forward":  # which `fully_shard` knows
            register_fsdp_forward_method(module, method)


def _shared_parameters(model: nn.Module, layers: Sequence[nn.Module]) -> list[nn.Parameter]:
    """The parameters of layers that other layers, or modules outside of layers, use as well."""
    inside = {id(part) for layer in layers for part in layer.modules()}
    uses = Counter(
        id(parameter)
        for part in model.modules()
        if id(part) not in inside
        for parameter in part.parameters(recurse=False)
    )
    own = [list(layer.parameters()) for layer in layers]
    uses.update(id(parameter) for parameters in own for parameter in parameters)
    found = {id(one): one for parameters in own for one in parameters if uses[id(one)] > 1}
    return list(found.values())


def _sharded_modules(module: nn.Module) -> list[FSDPModule]:
    return [part for part in module.modules() if isinstance(part, FSDPModule)]


class FullySharded(Shards):
    """Computes steps with a model whose weights are distributed.

    Gradients are summed over the processes after every batch, because each process keeps only those
    of its own weights.

    Args:
        task: the task to train.
        parameters: the parameters to compute gradients of, after :func:`shard`.
        device: the device of the model.
        scaler: is not enabled.
        module: the result of :func:`shard`.
        seed: the seed of the run.
        shards: the number of virtual shards.
        processes: the processes that share them.
    """

    def __init__(
        self,
        task: Task,
        parameters: list[nn.Parameter],
        device: torch.device,
        scaler: torch.amp.GradScaler,
        *,
        module: ShardedModule,
        seed: int,
        shards: int,
        processes: Processes,
    ) -> None:
        super().__init__(
            task, parameters, device, scaler, seed=seed, shards=shards, processes=processes
        )
        self.module: ShardedModule = module

    def gradients(self, step: int, batches: Sequence[Any], weight: float) -> list[BatchLoss]:
        """Compute the gradients of a step; returns the losses of this process."""
        self.state.begin()
        losses, states = [], []
        for number, own in self.own_shards(batches):
            for place, batch in enumerate(own):
                with random_numbers(seed_of(self.seed, step, number, place)):
                    losses += self.forward_backward(batch.to(self.device), weight, last=True)
            states.append(self.state.take())
        gathered = self.processes.gather(states)
        self.state.end([state for states in gathered for state in states])
        self.end_step(step)
        return losses

    def forward_backward(self, batch: Any, weight: float, *, last: bool) -> list[BatchLoss]:
        """Compute the loss of a batch and add the gradients of all processes."""
        with self.processes.together():
            loss = self.module(batch)
            torch.autograd.backward(loss.total / weight)
        return [batch_loss(batch.weight, loss)]

    def clip(self, limit: float) -> Tensor:
        """Clip the gradients by the norm of all shards; returns it."""
        gradients = [_local(one.grad) for one in self.parameters if one.grad is not None]
        own = torch.nn.utils.get_total_norm(gradients).double().square().to(self.device)
        with self.processes.together():
            dist.all_reduce(own)
        norm = own.sqrt()
        factor = (limit / (norm + _EPSILON)).clamp(max=1.0)
        for gradient in gradients:
            gradient.mul_(factor.to(gradient.device, gradient.dtype))
        return norm.float()

    def checkpoint(
        self, optimiser: torch.optim.Optimizer
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The model's tensors, and those of the optimiser that are equal in all processes."""
        weights: dict[str, Tensor] = {}
        for name, tensor in named_tensors(self.task.model).items():
            with self.processes.together():
                whole = gathered(tensor.detach())
            if self.rank.index == 0:
                weights[name] = whole.to("cpu", copy=True).contiguous()
        whole_state = {
            name: tensor.to("cpu", copy=True)
            for name, tensor in named_state(optimiser).items()
            if not is_sharded(tensor)
        }
        return weights, whole_state

    def write_parts(self, optimiser: torch.optim.Optimizer, folder: Path, step: int) -> Path | None:
        """Write this process's part of the optimiser's state; the files of all processes."""
        parts: dict[str, Tensor] = {
            name: tensor for name, tensor in named_state(optimiser).items() if is_sharded(tensor)
        }
        if not parts:
            return None
        # Rank 0 removes such folders when training is resumed.
        place = folder / f".{folder_of(step)}.optimiser.part"
        self.processes.by_first(lambda: shutil.rmtree(place, ignore_errors=True))
        with self.processes.together():
            write_parts(parts, place)
        return place

    def require_same_weights(self) -> None:
        """Do nothing: no weight is in two processes."""

    @contextmanager
    def whole_model(self) -> Iterator[None]:
        """A block in which all weights of the model are whole, so that it can be called anyhow."""
        parts = _sharded_modules(self.module)
        layers = parts[1:]  # the first is the outermost
        for part in layers:
            part.set_reshard_after_forward(False, recurse=False)
        with self.processes.together(), in_float32(self.module.gathers):
            for part in parts:
                part.unshard()
        try:
            yield
        finally:
            for part in layers:
                part.set_reshard_after_forward(True, recurse=False)
            for part in parts:
                part.reshard()


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if is_sharded(tensor) else tensor
