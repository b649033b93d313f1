"""Runs: the run folder, its recipe and its checkpoints, whatever the task."""

from heedful.runs.recipe import check_recipe, read_recipe
from heedful.runs.run import Run, open_run
from heedful.runs.settings import Recipe

__all__ = ["Recipe", "Run", "check_recipe", "open_run", "read_recipe"]
