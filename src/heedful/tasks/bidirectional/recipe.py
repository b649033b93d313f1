"""The recipe of a bidirectional language model."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, SerializeAsAny, field_validator

from heedful.basics.limits import MOST_SYMBOLS
from heedful.models import EncoderSettings, registered
from heedful.models.elmo import ElmoSettings
from heedful.models.registry import kind_of
from heedful.tasks.texts.data import DocumentData
from heedful.tasks.texts.heads import HeadSettings
from heedful.tasks.texts.recipe import EncoderRecipe, TextTrainingSettings
from heedful.tasks.texts.training_settings import choices


class BidirectionalHead(HeadSettings):
    """Predicts each word from the words before it, and from those after it."""

    smooths_labels = True
    task: Literal["bidirectional"] = "bidirectional"
    data: DocumentData
    words: int = Field(10_000, ge=1, le=MOST_SYMBOLS)
    """Number of words that are predicted; all others are predicted as one unknown word."""

    def figures(self) -> tuple[str, ...]:
        return choices(BidirectionalTraining)

    @property
    def paper_labels(self) -> int:
        return self.words

    def check_fit(self, recipe: EncoderRecipe, name: str) -> None:
        model = recipe.model
        if not model.has_directions:
            kinds = [kind_of(each) for each in registered(EncoderSettings) if each.has_directions]
            named = " or ".join(f"'{kind}'" for kind in kinds)
            raise ValueError(
                f"model.kind = '{model.kind}' is not a language model in each direction: "
                f"task = 'bidirectional' needs model.kind = {named}"
            )
        if getattr(model, "frozen", False):
            raise ValueError("model.frozen leaves nothing to pre-train: set it in fine-tuning")
        if self.data.sentences is not None:
            raise ValueError("data.sentences is for masked tokens; leave it out")


class BidirectionalTraining(TextTrainingSettings):
    """As all, chosen by loss."""

    choose_by: Literal["loss"] = "loss"


class BidirectionalRecipe(EncoderRecipe):
    """An encoder's pre-training as a language model in each direction."""

    prepared_by = EncoderRecipe.prepared_by | {"words"}
    task: Literal["bidirectional"] = "bidirectional"
    data: DocumentData
    model: SerializeAsAny[EncoderSettings] = Field(default_factory=lambda: ElmoSettings())
    words: int = Field(10_000, ge=1, le=MOST_SYMBOLS)
    """Number of words that are predicted; all others are predicted as one unknown word."""
    training: BidirectionalTraining = BidirectionalTraining()

    @field_validator("model", mode="before")
    @classmethod
    def _kind_defaults_to_bert(cls, given: Any) -> Any:
        """The kind is ELMo by default."""
        return {"kind": "elmo", **given} if isinstance(given, dict) else given

    def heads(self) -> Mapping[str, Any]:
        return {"bidirectional": BidirectionalHead(data=self.data, words=self.words)}
