"""The progress of a training run."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from heedful.data.positions import Position


@dataclass
class Progress:
    """The progress of a training run; checkpoints contain all of it."""

    step: int
    position: Position
    sums: dict[str, float] = field(default_factory=dict)
    """Named loss sums since the last log, as last read from the device."""
    weights: dict[str, float] = field(default_factory=dict)
    """The weights of these sums."""
    weight: int = 0
    """Tokens (or examples) since the last log."""
    seconds: float = 0.0
    """Training time since the last log."""
    total_weight: int = 0
    total_seconds: float = 0.0
    operations_per_weight: float = 0.0
    best: list[float] | None = None
    """The best validation's rank: see ``Loop.rank``."""
    best_step: int | None = None
    worse: int = 0
    """Validations since the best one without improvement."""
    stopped: bool = False
    given_up: bool = False
    """Whether a ``Stop`` function ended training."""

    def to_state(self) -> dict[str, Any]:
        """The state for a checkpoint."""
        return asdict(self) | {"position": list(self.position)}

    @classmethod
    def from_state(cls, state: Mapping[str, Any], patience: int | None) -> "Progress":
        """Restore the state from :meth:`to_state`, with the patience of the current settings."""
        # In earlier versions all sums had one weight.
        weights = state.get("weights", dict.fromkeys(state["sums"], state["weight"]))
        position = Position(*state["position"])
        progress = cls(**{**state, "weights": weights, "position": position})
        progress.stopped = patience is not None and progress.worse >= patience
        return progress
