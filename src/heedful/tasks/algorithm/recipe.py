"""The recipe of problems that are solved by an algorithm."""

from typing import Any, Literal

from pydantic import Field, SerializeAsAny

from heedful.models import SequenceSettings
from heedful.runs.settings import LoopSettings, Recipe
from heedful.tasks.algorithm.problems import Problems


class AlgorithmTraining(LoopSettings):
    """The settings of the training loop."""

    choose_by: Literal["loss", "bits", "wrong_bits"] = "loss"


class AlgorithmRecipe(Recipe):
    """All settings of a run."""

    task: Literal["algorithm"] = "algorithm"
    data: Problems
    model: SerializeAsAny[SequenceSettings] = Field(
        default_factory=lambda: SequenceSettings.model_validate({"kind": "neural-turing-machine"})
    )
    training: AlgorithmTraining = AlgorithmTraining()

    def data_tables(self) -> dict[str, Any]:
        return {"data": self.data}
