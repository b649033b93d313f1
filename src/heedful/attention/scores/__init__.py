"""Scores: compare queries with keys. One mechanism per file."""

from heedful.attention.scores.additive import Additive
from heedful.attention.scores.base import Score, ScoreSettings
from heedful.attention.scores.concat import Concat
from heedful.attention.scores.cosine import Cosine
from heedful.attention.scores.coverage import Coverage
from heedful.attention.scores.dot import Dot
from heedful.attention.scores.energy import Energy
from heedful.attention.scores.exp_dot import ExpDot
from heedful.attention.scores.gaussian import Gaussian
from heedful.attention.scores.general import General
from heedful.attention.scores.location import Location
from heedful.attention.scores.location_aware import LocationAware
from heedful.attention.scores.recurrent import RecurrentScore
from heedful.attention.scores.registry import build_score, register_score
from heedful.attention.scores.scaled_dot import ScaledDot
from heedful.attention.scores.soft_capped import SoftCapped
from heedful.attention.scores.trilinear import Trilinear

__all__ = [
    "Additive",
    "Concat",
    "Cosine",
    "Coverage",
    "Dot",
    "Energy",
    "ExpDot",
    "Gaussian",
    "General",
    "Location",
    "LocationAware",
    "RecurrentScore",
    "ScaledDot",
    "Score",
    "ScoreSettings",
    "SoftCapped",
    "Trilinear",
    "build_score",
    "register_score",
]
