"""Runs: the run folder, its recipe and its checkpoints, whatever the task."""
