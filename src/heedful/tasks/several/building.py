"""Builds the training task of a run with several heads."""

from typing import cast

from heedful.tasks.several.training import Part, SeveralTasks
from heedful.tasks.spec import spec_named
from heedful.tasks.texts.part import Training, part_of
from heedful.tasks.texts.recipe import SeveralRecipe


def build_task(training: Training) -> SeveralTasks:
    """The task for the training loop."""
    recipe = cast(SeveralRecipe, training.run.recipe)
    parts = {
        name: Part(
            part_of(head.task).build_part(name, head, training),
            head.weight,
            training.run.facts["sets"][name]["train"],
            spec_named(head.task).falling,
        )
        for name, head in recipe.tasks.items()
    }
    return SeveralTasks(training.model, parts, recipe.temperature)
