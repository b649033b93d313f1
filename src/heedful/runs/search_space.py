"""The search space of one setting: the entries of a recipe's ``[tune]``."""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import Field, model_validator

from heedful.basics.errors import UserError
from heedful.basics.settings import Settings

NOT_COMPARABLE = frozenset(
    {
        *("data.train", "data.validation", "data.test", "data.source", "data.target"),
        *("data.encoding", "data.validation_share", "data.test_share", "training.choose_by"),
        *("evaluation.tokenise", "evaluation.validation_pairs"),
        *("data.kind", "data.sizes", "masking.share", "replacing.weight", "replacing.share"),
    }
)
"""Settings that change what figures measure."""
_FIXED = {
    "seed": "a seed is not chosen by validation; --seeds trains the winner with several",
    "task": "all trials must train the same task",
    "training.max_minutes": "--minutes sets it for all trials",
    "training.device": "it does not change what the model learns",
    "training.threads": "it does not change what the model learns",
    **dict.fromkeys(NOT_COMPARABLE, "the figures of trials would not be comparable"),
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
    """Whether values are drawn on a logarithmic scale."""
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
        """Whether the range contains integers only."""
        return all(isinstance(end, int) for end in (self.low, self.high, self.step or 1))

    def ends(self) -> list[Any]:
        """The values to validate: every choice, or both ends of the range."""
        return list(self.choices) if self.choices is not None else [self.low, self.high]

    def has(self, value: Any) -> bool:
        """Whether the space contains a value."""
        if self.choices is not None:
            return value in self.choices
        number = isinstance(value, int | float) and not isinstance(value, bool)
        assert self.low is not None
        assert self.high is not None
        return number and self.low <= value <= self.high


def whole_keys(tables: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Entries by dotted key, for quoted keys as well as nested tables.

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


def keys_within(key: str, values: Iterable[Any]) -> list[str]:
    """A key, and those of the tables that are its values.

    Example:
        >>> keys_within("model", [{"layers": 2, "attention": {"score": "dot"}}, 3])
        ['model', 'model.attention', 'model.attention.score', 'model.layers']
    """
    found = {key}
    for value in values:
        if isinstance(value, Mapping):
            for name, inner in value.items():
                found.update(keys_within(f"{key}.{name}", [inner]))
    return sorted(found)


def refuse_unsearchable(key: str, values: Iterable[Any], where: str) -> None:
    """Raise UserError with the reason for a setting that cannot be searched, also in a table."""
    for one in keys_within(key, values):
        if one in _FIXED:
            raise UserError(f"{where}: '{one}' cannot be searched: {_FIXED[one]}")
