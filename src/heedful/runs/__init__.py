"""Runs: the run folder and the recipe; builds model, tokeniser and task."""

from heedful.runs.building import load_translator
from heedful.runs.recipe import Recipe, check_recipe, read_recipe
from heedful.runs.run import Run, open_run

__all__ = ["Recipe", "Run", "check_recipe", "load_translator", "open_run", "read_recipe"]
