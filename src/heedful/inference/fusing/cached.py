"""A cache of fused forms, which are rebuilt when a model's weights may have changed."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from heedful.basics.addresses import is_plain
from heedful.kernels.cached_attention import can_step
from heedful.kernels.program import NotFusedError

T = TypeVar("T")


def reads_in_place(like: Tensor) -> bool:
    """Whether a search keeps keys and values like a tensor where the steps leave them."""
    return can_step(like)


class _Entry(NamedTuple):
    modules: list[nn.Module]
    state: list[object] | None
    made: Any


class FusedCache(Generic[T]):
    """Fused forms of models, as long as the models exist and their weights do not change."""

    def __init__(self) -> None:
        self._made: WeakKeyDictionary[nn.Module, _Entry] = WeakKeyDictionary()

    def of(
        self,
        model: nn.Module,
        parts: Sequence[nn.Module],
        others: Sequence[Tensor],
        make: Callable[[], T],
    ) -> T | None:
        """The fused form of ``parts`` of a model, if it can currently replace the modules.

        This requires the CPU, float32, no gradients, no hooks, a compiler, and that ``make`` does
        not raise NotFusedError. The form is rebuilt when the version counter of a weight changes,
        and after a step of an optimiser that has one of the weights.

        Args:
            model: the model.
            parts: its modules.
            others: further weights that ``make`` reads; at least one.
            make: builds the fused form.
        """
        if not reads_in_place(others[0]):
            return None
        known = self._made.get(model)
        if known is None or known.state != _state(known.modules, others):
            modules = [part for one in parts for part in one.modules()]
            state = _state(modules, others)
            made = None if state is None else _try(make)
            if made is not None:
                _optimised.watch(_weights(modules, others))
            known = self._made[model] = _Entry(modules, state, made)
        usual = not any(
            part.training or part._forward_hooks or part._forward_pre_hooks
            for part in known.modules
        )
        return known.made if usual else None


class _OptimiserSteps:
    """Counts steps of optimisers that have fused weights.

    PyTorch's fused optimisers change weights without increasing their version counters. Nothing is
    hooked before a model is fused, and other optimisers are not counted after that.
    """

    def __init__(self) -> None:
        self.steps = 0
        self._storages: set[int] = set()

    def watch(self, weights: Iterable[Tensor]) -> None:
        """From now on, count the steps of optimisers that have these weights."""
        if not self._storages:
            register_optimizer_step_post_hook(self._count)
        self._storages.update(map(_storage, weights))

    def _count(self, optimiser: Optimizer, *_: object) -> None:
        held = (weight for group in optimiser.param_groups for weight in group["params"])
        if any(is_plain(weight) and _storage(weight) in self._storages for weight in held):
            self.steps += 1


def _storage(weight: Tensor) -> int:
    return weight.untyped_storage().data_ptr()


_optimised = _OptimiserSteps()


def _state(modules: Sequence[nn.Module], others: Sequence[Tensor]) -> list[object] | None:
    """A state that changes when parts of modules or weights change, or an optimiser steps.

    None if changes are not counted, for tensors that were created in inference mode.
    """
    inside = [tuple(part._modules.values()) for part in modules]
    weights = _weights(modules, others)
    if any(weight.is_inference() for weight in weights):
        return None
    return [_optimised.steps, inside, [(weight.data_ptr(), weight._version) for weight in weights]]


def _weights(modules: Sequence[nn.Module], others: Sequence[Tensor]) -> list[Tensor]:
    own = [weight for part in modules for weight in part._parameters.values()]
    return [weight for weight in (*own, *others) if weight is not None]


def _try(make: Callable[[], T]) -> T | None:
    try:
        return make()
    except NotFusedError:
        return None
