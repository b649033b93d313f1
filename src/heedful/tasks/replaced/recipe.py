"""The recipe of replaced-token detection."""

from collections.abc import Mapping
from typing import Any, Literal, cast

from pydantic import Field

from heedful.basics.limits import MOST_LAYERS
from heedful.basics.settings import Settings
from heedful.models.bert import BertSettings
from heedful.models.electra import generator_settings
from heedful.tasks.texts.data import DocumentData
from heedful.tasks.texts.heads import HeadSettings, require_mask
from heedful.tasks.texts.recipe import EncoderRecipe, TextTrainingSettings
from heedful.tasks.texts.training_settings import choices


class ReplacingSettings(Settings):
    """How tokens are replaced and detected (Clark et al. 2020, section 2 and 3.2)."""

    share: float = Field(0.15, gt=0, lt=1)
    """Share of tokens that are masked, and that the generator fills."""
    whole_word: bool = False
    """Mask whole words, with all their tokens."""
    generator_size: float = Field(0.25, gt=0, le=1)
    """The generator's ``hidden_size``, ``ffn_size`` and ``heads`` as a share of the
    discriminator's."""
    generator_layers: int | None = Field(None, ge=1, le=MOST_LAYERS)
    """Layers of the generator; by default, as many as the discriminator's."""
    weight: float = Field(50.0, gt=0)
    """λ of the discriminator's loss; that of the generator has the weight 1."""


class ReplacedHead(HeadSettings):
    """Says of each token whether it was replaced."""

    task: Literal["replaced"] = "replaced"
    data: DocumentData
    replacing: ReplacingSettings = ReplacingSettings()

    def generator(self, discriminator: BertSettings) -> BertSettings:
        """The settings of the generator."""
        own = self.replacing
        return generator_settings(discriminator, own.generator_size, own.generator_layers)

    def figures(self) -> tuple[str, ...]:
        return choices(ReplacedTraining)

    def check_fit(self, recipe: EncoderRecipe, name: str) -> None:
        if recipe.model.kind != "bert":
            raise ValueError(
                "replaced tokens need model.kind = 'bert', an encoder that reads both sides of a "
                f"token and whose embeddings a generator can share, not '{recipe.model.kind}'"
            )
        require_mask(recipe, "replaced tokens need")
        try:
            self.generator(cast(BertSettings, recipe.model))
        except ValueError as error:
            raise ValueError(f"replacing: the generator: {_plain(error)}") from error


class ReplacedTraining(TextTrainingSettings):
    """As all, chosen by loss."""

    choose_by: Literal["loss", "masked_accuracy", "replaced_accuracy", "replaced_f1"] = "loss"


class ReplacedRecipe(EncoderRecipe):
    """An encoder's pre-training on plain text, as a discriminator."""

    task: Literal["replaced"] = "replaced"
    data: DocumentData
    replacing: ReplacingSettings = ReplacingSettings()
    training: ReplacedTraining = ReplacedTraining()

    def heads(self) -> Mapping[str, Any]:
        return {"replaced": ReplacedHead(data=self.data, replacing=self.replacing)}


def _plain(error: ValueError) -> str:
    """The reason of an error of settings, in one line."""
    problems = getattr(error, "errors", None)
    found = problems()[0]["msg"] if callable(problems) else str(error)
    return str(found).removeprefix("Value error, ")
