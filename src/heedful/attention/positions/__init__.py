"""Positions: what tells one place in a sequence from another. One mechanism a file.

Added to the inputs: :class:`Learned`, :class:`Sinusoidal`. Within the attention, where they are a
:class:`RelativePositions`: :class:`ALiBi`, :class:`Rotary`, :class:`Shaw`, :class:`T5Buckets`.
"""

from heedful.attention.positions.alibi import ALiBi, alibi_slopes
from heedful.attention.positions.base import RelativePositions
from heedful.attention.positions.learned import Learned
from heedful.attention.positions.rotary import Rotary, ntk_base, rotary_angles, rotate
from heedful.attention.positions.shaw import Shaw
from heedful.attention.positions.sinusoidal import Sinusoidal, sinusoids
from heedful.attention.positions.t5 import T5Buckets

__all__ = [
    "ALiBi",
    "Learned",
    "RelativePositions",
    "Rotary",
    "Shaw",
    "Sinusoidal",
    "T5Buckets",
    "alibi_slopes",
    "ntk_base",
    "rotary_angles",
    "rotate",
    "sinusoids",
]
