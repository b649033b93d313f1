"""Models that answer questions about stories on paper."""

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.basics.symbols import END
from heedful.models import StoryModel, build_story_model
from heedful.tasks.answer.recipe import AnswerRecipe
from heedful.tasks.sketch import Sketch

_FACTS = 16
"""Of a story, unless a length is given."""
_FACT, _QUESTION = 7, 5
"""Tokens."""
_SYMBOLS, _ANSWERS = 200, 100
"""Words, and answers among them, which are in the data."""


def sketch_story_model(recipe: AnswerRecipe) -> Sketch:
    """The model of a recipe with 200 symbols and 100 answers."""
    training, memory = recipe.training, recipe.model.memory
    answers = range(_SYMBOLS - _ANSWERS, _SYMBOLS)

    def build() -> StoryModel:
        return build_story_model(recipe.model, _SYMBOLS, answers)

    def loss(model: StoryModel, rows: int, length: int) -> Tensor:
        story = torch.full((rows, length, _FACT), END + 1)
        found = model(story, torch.full((rows, _QUESTION), END + 1))
        labels = torch.zeros(rows, dtype=torch.long)
        total = F.cross_entropy(found.logits, labels)
        if not training.supervision or found.scores is None:
            return total
        chosen = torch.zeros(found.scores.shape[:2], dtype=torch.long)
        return total + F.cross_entropy(found.scores.flatten(0, 1), chosen.flatten())

    def rows_of_batch(facts: int) -> int:
        each = max(facts * _FACT, _QUESTION) + 1
        return training.batch_rows or max(1, training.batch_tokens // each)

    return Sketch(
        build,
        loss,
        _SYMBOLS,
        min(_FACTS, memory),
        f"facts of {_FACT} words each",
        row="question about a story",
        unit="question",
        of_rows=True,
        longest=memory,
        rows_of_batch=rows_of_batch,
    )
