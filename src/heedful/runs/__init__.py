"""Runs: the run folder and the recipe; builds model, tokeniser and task."""

from heedful.runs.building import load_translator
from heedful.runs.recipe import PairRecipe, Recipe, check_recipe, read_recipe
from heedful.runs.run import PairRun, Run, open_pair_run, open_run

__all__ = [
    "PairRecipe",
    "PairRun",
    "Recipe",
    "Run",
    "check_recipe",
    "load_translator",
    "open_pair_run",
    "open_run",
    "read_recipe",
]
