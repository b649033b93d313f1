"""The contract of a task for single texts, for each head or for a recipe without heads."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

import torch
from torch import Tensor, nn

from heedful.data.vocabularies import SavedVocabulary
from heedful.runs.start import Start
from heedful.tasks.spec import spec_named
from heedful.tasks.texts.examples import Examples
from heedful.tasks.texts.recipe import TextRecipe, TextTrainingSettings
from heedful.tasks.texts.rows import Labels, RowBatches
from heedful.tasks.texts.run import TextRun
from heedful.training.protocol import Task


class Training(NamedTuple):
    """The arguments for building a training task, without its own settings."""

    run: TextRun
    model: nn.Module
    """On ``device``."""
    vocabulary: SavedVocabulary
    settings: TextTrainingSettings
    """The settings of this training, some of which may have changed since the run was started."""
    device: torch.device
    precision: str

    def reading(self, name: str, part: str = "train") -> dict[str, Any]:
        """How the encoded examples of a part of the head ``name`` are read.

        Returns:
            ``window``: number of examples that are shuffled together, or None; ``verified``:
            whether files are compared with their hashes when they are first read.
        """
        return {
            "window": self.settings.shuffle_window if part == "train" else None,
            "verified": self.run.verifies(self.run.set_folder(name) / part),
        }

    def batches(self, name: str, labels: Labels) -> RowBatches:
        """The training batches of the head ``name``, whose store has ``tokens`` and ``labels``."""
        folder, size = self.run.set_folder(name) / "train", self.settings.batch_tokens
        return RowBatches(folder, size, labels=labels, **self.reading(name))


class TextPart(Protocol):
    """A task: its settings are those of a head, or a recipe that has no heads."""

    def fresh_model(self, run: TextRun) -> nn.Module:
        """The model of a run of this task, with random initial weights.

        Raises:
            ValueError: the settings contradict each other.
        """
        ...

    def encode(
        self,
        folder: Path,
        settings: Any,
        examples: Examples,
        vocabulary: SavedVocabulary,
        recipe: TextRecipe,
    ) -> dict[str, Any]:
        """Write the encoded training examples to ``folder``; returns facts about them."""
        ...

    def layers(
        self, name: str, settings: Any, encoder: Any, labels: int, recipe: Any
    ) -> dict[str, nn.Module]:
        """The modules of the head by name."""
        ...

    def paper_loss(self, sketch: Any) -> Tensor:
        """The loss of the head of a :class:`~heedful.tasks.texts.sketch.SketchedHead`."""
        ...

    def build_part(self, name: str, settings: Any, training: Training) -> Task:
        """The task of the training loop."""
        ...

    def kept_weights(
        self, start: Start, recipe: TextRecipe, labels: Mapping[str, list[str]]
    ) -> dict[str, Tensor]:
        """The weights that a run of this task takes from the run that it starts from."""
        ...


def part_of(task: str) -> TextPart:
    """The task with a name."""
    return cast(TextPart, spec_named(task))
