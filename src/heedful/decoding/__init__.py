"""Search: greedy, beam and sampling over whatever offers ``start``, ``step`` and ``select``."""

from heedful.decoding.continued import Continued
from heedful.decoding.decodable import Decodable, State
from heedful.decoding.ensemble import Ensemble
from heedful.decoding.hypothesis import Hypothesis, length_penalty
from heedful.decoding.options import SearchOptions
from heedful.decoding.search import search

__all__ = [
    "Continued",
    "Decodable",
    "Ensemble",
    "Hypothesis",
    "SearchOptions",
    "State",
    "length_penalty",
    "search",
]
