"""What a loss changes besides gradients: buffers of the model and the state of the task.

Each virtual shard begins with the state of the step. After the step, the new state is combined from
those of all shards: numbers are averaged, whole numbers must be equal.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from heedful.basics.errors import UserError
from heedful.training.protocol import Task

State = dict[str, Tensor]
"""Changed tensors by name, on the CPU."""

_BUFFER, _TASK = "buffer ", "state "


def tree_sum(tensors: Sequence[Tensor]) -> Tensor:
    """The sum of tensors, neighbours first: ``(0 + 1) + (2 + 3)``; a last one alone is kept.

    Example:
        >>> tree_sum([torch.tensor(one) for one in (1.0, 2.0, 3.0, 4.0)])
        tensor(10.)
    """
    while len(tensors) > 1:
        pairs = [one + other for one, other in zip(tensors[::2], tensors[1::2], strict=False)]
        tensors = [*pairs, *tensors[2 * len(pairs) :]]
    return tensors[0]


class ShardState:
    """Keeps the state of a step and collects that of its shards.

    The state is that of checkpoints: the persistent buffers of the model, such as the statistics of
    batch normalization, and the tensors of the task, such as moving averages.

    Args:
        task: the task to train.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        saved = task.model.state_dict().keys()
        self._names = [name for name, _ in task.model.named_buffers() if name in saved]
        self._buffers: State = {}
        self._tensors: State = {}
        """Both are those before the step."""

    def begin(self) -> None:
        """Keep the state before a step."""
        self._tensors = {name: one.clone() for name, one in self.task.tensors().items()}
        self._buffers = {name: self._buffer(name).clone() for name in self._names}

    def take(self) -> State:
        """The state that a shard changed; restores the state before the step."""
        found: State = {}
        # Values are compared, because batch normalization does not change a tensor's version.
        for name, before in self._buffers.items():
            now = self._buffer(name)
            if not torch.equal(now, before):
                found[_BUFFER + name] = now.detach().to("cpu", copy=True)
                now.copy_(before)
        changed = {
            _TASK + name: one.detach().to("cpu", copy=True)
            for name, one in self.task.tensors().items()
            if name not in self._tensors or not torch.equal(one, self._tensors[name])
        }
        if changed:
            self.task.load({name: one.clone() for name, one in self._tensors.items()})
        return found | changed

    def end(self, states: Sequence[State]) -> None:
        """Combine the states of all shards, by number of the shard.

        Raises:
            UserError: a whole number differs between shards.
        """
        names = {name for state in states for name in state}
        if not names:
            return
        combined = {name: self._combined(name, states) for name in sorted(names)}
        for name, value in combined.items():
            if name.startswith(_BUFFER):
                self._buffer(name.removeprefix(_BUFFER)).copy_(value)
        tensors = {
            name.removeprefix(_TASK): value
            for name, value in combined.items()
            if name.startswith(_TASK)
        }
        if tensors:
            self.task.load(self._tensors | tensors)

    def _buffer(self, name: str) -> Tensor:
        return self.task.model.get_buffer(name)

    def _combined(self, name: str, states: Sequence[State]) -> Tensor:
        values = [state.get(name, self._before(name)) for state in states]
        known = [value for value in values if value is not None]
        if len(known) == len(values) and known[0].is_floating_point():
            return tree_sum(known) / len(known)
        if len(known) == len(values) and all(torch.equal(one, known[0]) for one in known):
            return known[0]
        raise UserError(
            f"the {name} differs between virtual shards and cannot be averaged; use "
            "training.virtual_shards = 1 and one process"
        )

    def _before(self, name: str) -> Tensor | None:
        if name.startswith(_BUFFER):
            return self._buffers[name.removeprefix(_BUFFER)].cpu()
        return self._tensors.get(name.removeprefix(_TASK))
