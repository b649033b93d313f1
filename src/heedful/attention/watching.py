"""Watching: attention weights on demand, apart from computing.

``with watch(model) as seen:`` makes the watched modules compute and hand over their weights while
the block runs. Nothing else in the code carries weights.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from torch import Tensor, nn


class Watchable(nn.Module):
    """An attention module whose weights can be watched."""

    def __init__(self) -> None:
        super().__init__()
        self._watchers: list[_Watcher] = []

    @property
    def watched(self) -> bool:
        """Whether somebody wants this module's weights now."""
        return bool(self._watchers)

    def __getstate__(self) -> dict[str, object]:
        # A copy made while somebody watches is not what they watch.
        return {**self.__dict__, "_watchers": []}

    def show(self, weights: Tensor) -> None:
        """Hand ``weights [B, H, Q, K]``, before dropout, to those who watch."""
        for watcher in self._watchers:
            watcher.see(weights)


class _Watcher:
    def __init__(self, keep_gradients: bool) -> None:
        self.weights: list[Tensor] = []
        self.keep_gradients = keep_gradients

    def see(self, weights: Tensor) -> None:
        self.weights.append(weights if self.keep_gradients else weights.detach())


class Seen(Mapping[str, list[Tensor]]):
    """What was watched: module name → weights ``[B, H, Q, K]``, one tensor a call of the module."""

    def __init__(self, watchers: dict[str, _Watcher]) -> None:
        self._watchers = watchers

    def __getitem__(self, name: str) -> list[Tensor]:
        return self._watchers[name].weights

    def __iter__(self) -> Iterator[str]:
        return iter(self._watchers)

    def __len__(self) -> int:
        return len(self._watchers)


@contextmanager
def watch(
    model: nn.Module, names: Iterable[str] | None = None, *, keep_gradients: bool = False
) -> Iterator[Seen]:
    """Watch the attention weights of a model while the block runs.

    Args:
        model: any module that holds attention modules of this library.
        names: the watched modules' names in ``model.named_modules()``; all unless given.
        keep_gradients: keep the weights in the graph, for a loss on them.

    Raises:
        ValueError: a name is not that of an attention module; the nearest one is given.

    Example:
        >>> import torch
        >>> from heedful.attention import MultiHeadAttention
        >>> layer = MultiHeadAttention(8, heads=2)
        >>> with watch(layer) as seen:
        ...     context = layer(torch.zeros(1, 3, 8), torch.zeros(1, 5, 8))
        >>> seen[""][0].shape
        torch.Size([1, 2, 3, 5])
    """
    there = {name: part for name, part in model.named_modules() if isinstance(part, Watchable)}
    wanted = list(there) if names is None else list(names)
    for name in wanted:
        if name not in there:
            near = difflib.get_close_matches(name, there, n=1, cutoff=0.0)
            hint = f"; did you mean '{near[0]}'?" if near else ""
            raise ValueError(f"the model has no attention module named '{name}'{hint}")
    watchers = {name: _Watcher(keep_gradients) for name in wanted}
    for name, watcher in watchers.items():
        there[name]._watchers.append(watcher)
    try:
        yield Seen(watchers)
    finally:
        for name, watcher in watchers.items():
            there[name]._watchers.remove(watcher)
