"""Models of sequences of vectors on paper."""

import torch
from torch import Tensor

from heedful.models import SequenceModel, build_sequence_model
from heedful.tasks.algorithm.problem import MOST_SIZE
from heedful.tasks.algorithm.recipe import AlgorithmRecipe
from heedful.tasks.algorithm.training import Answers
from heedful.tasks.sketch import Sketch


def sketch_sequence_model(recipe: AlgorithmRecipe) -> Sketch:
    """The model of a recipe; every step is answered. The usual length is that of an example of the
    mean size."""
    problem, widths = recipe.data, recipe.data.widths

    def build() -> SequenceModel:
        return build_sequence_model(recipe.model, *widths)

    def loss(model: SequenceModel, rows: int, length: int) -> Tensor:
        number = next(model.parameters()).dtype
        logits = model(torch.zeros(rows, length, widths.inputs, dtype=number))
        return Answers(logits, torch.zeros(rows, length, widths.outputs)).loss()

    return Sketch(
        build,
        loss,
        vocabulary=0,
        length=problem.steps(sum(problem.sizes) // 2),
        counted="vectors",
        unit="vector",
        longest=problem.steps(MOST_SIZE),
    )
