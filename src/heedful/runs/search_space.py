"""What a search may try for one setting: the entries of a recipe's ``[tune]``."""

from collections.abc import Mapping
from typing import Any

from pydantic import Field, model_validator

from heedful.basics.errors import UserError
from heedful.basics.settings import Settings

_FIXED = {
    "seed": "it is no setting to choose by validation; --seeds trains the winner with more",
    "task": "trials would learn different things",
    "training.max_minutes": "--minutes says it for all trials",
    "training.device": "it is no part of what is learnt",
    "training.threads": "it is no part of what is learnt",
    **dict.fromkeys(
        (
            *("data.train", "data.validation", "data.test", "data.source", "data.target"),
            *("data.encoding", "data.validation_share", "data.test_share", "training.choose_by"),
            *("evaluation.tokenise", "evaluation.validation_pairs"),
        ),
        "figures of its trials could not be compared",
    ),
}


class SearchSpace(Settings):
    """A range of numbers, or a list of choices.

    Example:
        >>> SearchSpace(low=5e-4, high=4e-3, log=True).ends()
        [0.0005, 0.004]
        >>> SearchSpace(choices=["gru", "lstm"]).ends()
        ['gru', 'lstm']
    """

    low: int | float | None = None
    high: int | float | None = None
    log: bool = False
    """Whether equal ratios are equally likely, rather than equal differences."""
    step: int | float | None = Field(None, gt=0)
    choices: list[Any] | None = Field(None, min_length=1)

    @model_validator(mode="after")
    def _range_or_choices(self) -> "SearchSpace":
        if self.choices is not None:
            if (self.low, self.high, self.log, self.step) != (None, None, False, None):
                raise ValueError("give choices, or low and high, not both")
            return self
        if self.low is None or self.high is None:
            raise ValueError(
                "give a range {low = …, high = …} (log = true, step = …) or {choices = […]}"
            )
        if self.low > self.high:
            raise ValueError(f"low {self.low} is above high {self.high}")
        if self.log and (self.step is not None or self.low <= 0):
            raise ValueError("log = true needs a low above 0, and no step")
        return self

    @property
    def whole(self) -> bool:
        """Whether the range has whole numbers only."""
        return all(isinstance(end, int) for end in (self.low, self.high, self.step or 1))

    def ends(self) -> list[Any]:
        """The values that must be right for all to be: every choice, or both ends."""
        return list(self.choices) if self.choices is not None else [self.low, self.high]

    def has(self, value: Any) -> bool:
        """Whether a value may be drawn."""
        if self.choices is not None:
            return value in self.choices
        number = isinstance(value, int | float) and not isinstance(value, bool)
        assert self.low is not None
        assert self.high is not None
        return number and self.low <= value <= self.high


def whole_keys(tables: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Entries by dotted key, whether the file has them quoted or as tables in tables.

    Example:
        >>> whole_keys({"model.dropout": {"low": 0}, "training": {"betas": {"choices": []}}})
        {'model.dropout': {'low': 0}, 'training.betas': {'choices': []}}
    """
    result: dict[str, Any] = {}
    for key, value in tables.items():
        inner = isinstance(value, Mapping) and value
        if inner and all(isinstance(each, Mapping) for each in value.values()):
            result |= whole_keys(value, f"{before}{key}.")
        else:
            result[before + key] = value
    return result


def refuse_unsearchable(key: str, where: str) -> None:
    """Raise UserError for a setting that is the same in all trials, saying why."""
    if key in _FIXED:
        raise UserError(f"{where}: '{key}' cannot be searched: {_FIXED[key]}")
