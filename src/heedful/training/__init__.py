"""Training: the one loop, for any task."""

from heedful.training.train import train

__all__ = ["train"]
