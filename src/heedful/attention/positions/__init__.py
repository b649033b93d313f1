"""Positions: what tells one place in a sequence from another. One mechanism a file."""

from heedful.attention.positions.learned import Learned
from heedful.attention.positions.sinusoidal import Sinusoidal, sinusoids

__all__ = ["Learned", "Sinusoidal", "sinusoids"]
