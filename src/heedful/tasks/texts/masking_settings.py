"""The table ``[masking]`` of recipes for pre-training on masked tokens."""

from typing import Any, Literal

from pydantic import Field, model_validator

from heedful.basics.settings import Settings


class MaskingSettings(Settings):
    """Pre-training of an encoder (Devlin et al. 2019, section 3.1)."""

    share: float = Field(0.15, gt=0, lt=1)
    """Share of tokens to predict; 80 % of them are masked, 10 % replaced, 10 % unchanged."""
    whole_word: bool = False
    """Mask whole words, with all their tokens."""
    next_sentence: bool = True
    """Also predict whether the second segment of a pair follows the first."""
    sentence_order: bool = False
    """Predict which of two consecutive segments comes first (Lan et al. 2020, section 3.1), instead
    of ``next_sentence``, which is then false by default."""

    @model_validator(mode="before")
    @classmethod
    def _one_of_both(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("sentence_order") is True:
            return {"next_sentence": False, **given}
        return given

    @model_validator(mode="after")
    def _not_both(self) -> "MaskingSettings":
        if self.next_sentence and self.sentence_order:
            raise ValueError(
                "next_sentence and sentence_order are both true: pairs of segments are for one of "
                "them; set one to false"
            )
        return self

    @property
    def of_pairs(self) -> Literal["next", "order"] | None:
        """What is predicted of pairs of segments; None if rows have one segment."""
        return "next" if self.next_sentence else "order" if self.sentence_order else None
