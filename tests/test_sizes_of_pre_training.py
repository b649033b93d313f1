"""Sizes on paper of pre-training: the operations are those of a real training step."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomlkit
import torch

from heedful.basics.symbols import END
from heedful.data.masking import MaskedBatch
from heedful.data.permutation import PermutedBatch
from heedful.models.encoders import Sequences
from heedful.runs.recipe import check_recipe, find_recipe, read_recipe, with_overrides
from heedful.tasks.bidirectional.training import BidirectionalTask
from heedful.tasks.permutation.training import PermutationTask
from heedful.tasks.replaced.training import ReplacedTask
from heedful.tasks.size_on_paper import Assumptions, size_on_paper
from heedful.tasks.spec import spec_named
from heedful.tasks.texts.rows import RowBatch
from heedful.training.on_paper import real_step_cost

ROWS, LENGTH = 3, 60
SPACE = END + 2
"""The symbol of white space in the sketch of a recipe."""
Step = Callable[[Any, Any, Any], torch.Tensor]


def rows() -> Sequences:
    tokens = torch.full((ROWS, LENGTH), END + 1)
    return Sequences(tokens, torch.full((ROWS,), LENGTH), torch.zeros_like(tokens))


def replaced(model: Any, recipe: Any, no: Any) -> torch.Tensor:
    """Rows with 15 % of 60 tokens masked."""
    count = 9
    places = torch.cartesian_prod(torch.arange(ROWS), torch.arange(count))
    labels = torch.zeros(len(places), dtype=torch.long)
    batch = MaskedBatch(
        *(rows(), places, labels, None, ROWS), draws=torch.rand(len(places)), tokens=ROWS * LENGTH
    )
    return ReplacedTask(model, no, None, device=torch.device("cpu")).loss(batch).total


def permuted(model: Any, recipe: Any, no: Any) -> torch.Tensor:
    count, memory = LENGTH // recipe.permutation.one_in, recipe.permutation.memory
    order = torch.full((ROWS, LENGTH), -1)
    order[:, :count] = torch.arange(count)
    places = torch.arange(count).expand(ROWS, count)
    labels = torch.full((ROWS, count), END + 1)
    earlier = torch.full((ROWS, memory), END + 1) if memory else None
    batch = PermutedBatch(rows(), order, places, labels, earlier, ROWS * count)
    return PermutationTask(model, no, None, device=torch.device("cpu")).loss(batch).total


def bidirectional(model: Any, recipe: Any, no: Any) -> torch.Tensor:
    """Ten words of five characters and a space in each row."""
    made = rows()
    made.tokens[:, 5::6] = SPACE
    labels = torch.zeros_like(made.tokens)
    labels[:, ::6] = 1
    batch = RowBatch(made, labels, int((labels > 0).sum()))
    return BidirectionalTask(model, no, None, device=torch.device("cpu")).loss(batch).total


CASES: list[tuple[str, list[str], Step]] = [
    ("wikitext2-electra-tiny", [], replaced),
    ("wikitext2-xlnet-tiny", [], permuted),
    ("wikitext2-xlnet-tiny", ["permutation.memory=16"], permuted),
    ("wikitext2-elmo-tiny", ["words=500"], bidirectional),
]


@pytest.mark.parametrize(("name", "changes", "step"), CASES)
def test_the_operations_are_those_of_training(
    name: str, changes: list[str], step: Step, tmp_path: Path
) -> None:
    tables = with_overrides(read_recipe(find_recipe(name)), changes)
    recipe: Any = check_recipe(tables, name)
    file = tmp_path / "recipe.toml"
    file.write_text(tomlkit.dumps(tables), encoding="utf-8")
    found = size_on_paper(str(file), Assumptions(batch=ROWS, length=LENGTH))
    build = spec_named(recipe.task).sketch(recipe).build
    counted = real_step_cost(build, lambda model: step(model, recipe, None))
    training = (counted.forward + counted.backward) / (ROWS * LENGTH)
    # The fused loss of words has no product with its bias.
    assert found["operations_per_token"]["training"] == pytest.approx(training, rel=1e-3)
