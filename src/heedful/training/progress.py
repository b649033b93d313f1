"""Where a training stands."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from heedful.data.positions import Position


@dataclass
class Progress:
    """Where a training stands; a checkpoint has all of it."""

    step: int
    position: Position
    sums: dict[str, float] = field(default_factory=dict)
    """Named loss sums since the last record, as they were last read from the device."""
    weights: dict[str, float] = field(default_factory=dict)
    """What they are sums over."""
    weight: int = 0
    """Tokens since the last record."""
    seconds: float = 0.0
    """Spent training since the last record."""
    total_weight: int = 0
    total_seconds: float = 0.0
    operations_per_weight: float = 0.0
    best: list[float] | None = None
    """The best validation's rank: see ``Loop.rank``."""
    best_step: int | None = None
    worse: int = 0
    """Validations since the best one."""
    stopped: bool = False
    given_up: bool = False
    """Whether it was ended from outside: see ``Stop``."""

    def to_state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return asdict(self) | {"position": list(self.position)}

    @classmethod
    def from_state(cls, state: Mapping[str, Any], patience: int | None) -> "Progress":
        """What :meth:`to_state` gave, with the patience of today's settings."""
        # Until there were tasks with several weights, all sums had one.
        weights = state.get("weights", dict.fromkeys(state["sums"], state["weight"]))
        position = Position(*state["position"])
        progress = cls(**{**state, "weights": weights, "position": position})
        progress.stopped = patience is not None and progress.worse >= patience
        return progress
