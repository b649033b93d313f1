"""heedful: attention models. Train one from your own data, run it, and look at what it attends to."""

__version__ = "0.1.0"
