"""Search settings, shared by the command line, recipes and Python."""

from typing import Self

from pydantic import Field, model_validator

from heedful.basics.limits import MOST_BEAM, MOST_POSITIONS, MOST_SAMPLES
from heedful.basics.settings import Settings


class SearchOptions(Settings):
    """Settings of a search; greedy is ``beam = 1``.

    Raises:
        ValueError: a setting is out of range, or two exclude each other.
    """

    beam: int = Field(default=5, ge=1, le=MOST_BEAM)
    """Hypotheses kept at each step."""
    nbest: int = Field(default=1, ge=1, le=MOST_SAMPLES)
    """Hypotheses returned for each source, best first; at most ``beam``."""
    length_penalty: float = Field(default=1.0, ge=0.0, le=10.0, allow_inf_nan=False)
    """Exponent A of the penalty ((5 + |Y|) / 6)^A; see ``heedful.decoding.length_penalty``."""
    sample: bool = False
    """Draw from the model's distribution instead of searching for the most probable output."""
    temperature: float = Field(default=1.0, ge=1e-6, le=1e6, allow_inf_nan=False)
    """Sampling: divides the logits; below 1 sharper, above 1 flatter."""
    top_k: int | None = Field(default=None, ge=1)
    """Sampling: only from the k most probable tokens."""
    top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    """Sampling: only from the smallest set of tokens with at least this much probability."""
    seed: int = Field(default=1, ge=0)
    """Sampling: the same seed, line number and model give the same sample in any batch."""
    forced_length: int | None = Field(default=None, ge=1, le=MOST_POSITIONS)
    """Exactly this many tokens (for measuring speed); END is then forced and not scored."""

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if not self.sample and self.nbest > self.beam:
            raise ValueError(
                f"nbest {self.nbest} is more than beam {self.beam}; "
                f"set beam to at least {self.nbest}"
            )
        if not self.sample and (self.temperature != 1.0 or self.top_k or self.top_p != 1.0):
            raise ValueError("temperature, top_k and top_p need sampling; add sample")
        return self

    @property
    def width(self) -> int:
        """Number of rows of the model's batch for one source."""
        return self.nbest if self.sample else self.beam
