"""Positional encodings. One mechanism per file.

Added to the inputs (subclasses of :class:`AddedPositions`): :class:`Learned`, :class:`Sinusoidal`.
Within the attention (subclasses of :class:`RelativePositions`): :class:`ALiBi`, :class:`Rotary`,
:class:`GridRotary`, :class:`Quadratic`, :class:`Shaw`, :class:`T5Buckets`, :class:`TransformerXL`.
"""

from heedful.attention.positions.added import AddedPositions
from heedful.attention.positions.alibi import ALiBi, alibi_slopes
from heedful.attention.positions.base import RelativePositions
from heedful.attention.positions.grid_rotary import (
    GridRotary,
    grid_coordinates,
    multi_axis_angles,
)
from heedful.attention.positions.learned import Learned
from heedful.attention.positions.quadratic import Quadratic
from heedful.attention.positions.registry import (
    register_position,
    register_relative_position,
)
from heedful.attention.positions.rotary import Rotary, ntk_base, rotary_angles, rotate
from heedful.attention.positions.rotary_scaling import Llama3, RotaryScaling, Yarn
from heedful.attention.positions.settings import HeadSizes, PositionSettings
from heedful.attention.positions.shaw import Shaw
from heedful.attention.positions.sinusoidal import Sinusoidal, sinusoids
from heedful.attention.positions.t5 import T5Buckets
from heedful.attention.positions.transformer_xl import TransformerXL

__all__ = [
    "ALiBi",
    "AddedPositions",
    "GridRotary",
    "HeadSizes",
    "Learned",
    "Llama3",
    "PositionSettings",
    "Quadratic",
    "RelativePositions",
    "Rotary",
    "RotaryScaling",
    "Shaw",
    "Sinusoidal",
    "T5Buckets",
    "TransformerXL",
    "Yarn",
    "alibi_slopes",
    "grid_coordinates",
    "multi_axis_angles",
    "ntk_base",
    "register_position",
    "register_relative_position",
    "rotary_angles",
    "rotate",
    "sinusoids",
]
