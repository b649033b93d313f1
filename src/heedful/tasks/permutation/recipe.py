"""The recipe of permutation language models."""

from typing import Any, Literal

from pydantic import Field, model_validator

from heedful.basics.limits import MOST_POSITIONS
from heedful.basics.settings import Settings
from heedful.models import EncoderSettings, registered
from heedful.models.registry import kind_of
from heedful.tasks.texts.data import DocumentData
from heedful.tasks.texts.heads import HeadSettings, require_mask
from heedful.tasks.texts.recipe import EncoderRecipe, TextTrainingSettings
from heedful.tasks.texts.training_settings import choices


class PermutationSettings(Settings):
    """Pre-training in random orders (Yang et al. 2019, sections 2.3 and 2.5)."""

    one_in: int = Field(6, ge=1, le=100)
    """K: one of K tokens is predicted, the last ones of the order; 1 for all."""
    longest_span: int = Field(5, ge=1, le=100)
    """Predicted tokens are drawn in spans of 1 to this number of tokens."""
    pairs: bool = True
    """Rows have two segments; one half of the second ones are of another document."""
    memory: int = Field(0, ge=0, le=MOST_POSITIONS)
    """Number of tokens before a row whose states are read, too, without gradient."""


class PermutationHead(HeadSettings):
    """Predicts tokens in random orders."""

    task: Literal["permutation"] = "permutation"
    data: DocumentData
    permutation: PermutationSettings = PermutationSettings()

    def figures(self) -> tuple[str, ...]:
        return choices(PermutationTraining)

    def check_fit(self, recipe: EncoderRecipe, name: str) -> None:
        _require_two_streams(recipe.model.kind)
        require_mask(recipe, "heedful fill needs a symbol for masked words: set")
        longest = recipe.model.max_length
        if self.permutation.memory > longest:
            raise ValueError(
                f"permutation.memory {self.permutation.memory} is more than model.max_length "
                f"{longest}"
            )


class PermutationTraining(TextTrainingSettings):
    """As all, chosen by loss."""

    choose_by: Literal["loss", "accuracy", "left_to_right_loss"] = "loss"


class PermutationRecipe(EncoderRecipe):
    """An encoder's pre-training on plain text, in random orders."""

    prepared_by = EncoderRecipe.prepared_by | {"permutation"}
    task: Literal["permutation"] = "permutation"
    data: DocumentData
    permutation: PermutationSettings = PermutationSettings()
    training: PermutationTraining = PermutationTraining()

    @model_validator(mode="before")
    @classmethod
    def _model_has_two_streams(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        model = given.get("model", {})
        if not isinstance(model, dict):
            return given
        model = {"kind": "xlnet", **({} if "layers" in model else {"size": "tiny"}), **model}
        _require_two_streams(model["kind"])
        return {**given, "model": model}

    def heads(self) -> Any:
        return {"permutation": PermutationHead(data=self.data, permutation=self.permutation)}


def _require_two_streams(kind: Any) -> None:
    """Raise ValueError unless models of a kind predict tokens in random orders."""
    kinds = [kind_of(one) for one in registered(EncoderSettings) if one.permutes]
    if kind not in kinds:
        named = " or ".join(f"'{each}'" for each in kinds)
        raise ValueError(
            f"model.kind = '{kind}' cannot predict tokens in random orders, which needs a second "
            f"stream of states that know a place but not its token: set model.kind = {named}"
        )
