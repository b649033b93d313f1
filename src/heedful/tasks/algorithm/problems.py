"""Problems that are solved by an algorithm, whose examples are drawn at random.

An example is a sequence of input vectors, and bits that the model must output at some of the steps.
Graves et al. 2014, "Neural Turing Machines", section 4: copy, repeat copy, associative recall,
dynamic n-grams and priority sort. Graves et al. 2016, "Hybrid computing using a neural network with
dynamic external memory": shortest paths of random graphs, here small ones.
"""

from typing import Annotated

from pydantic import Field

from heedful.tasks.algorithm.problem import MOST_SIZE, Drawn, Problem, Widths
from heedful.tasks.algorithm.shortest_path import ShortestPath
from heedful.tasks.algorithm.vector_problems import (
    AssociativeRecall,
    Copy,
    NGrams,
    PrioritySort,
    RepeatCopy,
)

__all__ = [
    "MOST_SIZE",
    "PROBLEMS",
    "AssociativeRecall",
    "Copy",
    "Drawn",
    "NGrams",
    "PrioritySort",
    "Problem",
    "Problems",
    "RepeatCopy",
    "ShortestPath",
    "Widths",
]

Problems = Annotated[
    Copy | RepeatCopy | AssociativeRecall | NGrams | PrioritySort | ShortestPath,
    Field(discriminator="kind"),
]
PROBLEMS: tuple[type[Problem], ...] = (
    Copy,
    RepeatCopy,
    AssociativeRecall,
    NGrams,
    PrioritySort,
    ShortestPath,
)
"""All problems, in the order of the documentation."""
