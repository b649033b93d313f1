"""Runs of any task: the run folder, its recipe and its checkpoints."""
