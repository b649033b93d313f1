"""Search: greedy, beam and sampling over whatever offers ``start``, ``step`` and ``select``."""

from heedful.decoding.continued import Continued
from heedful.decoding.decodable import Decodable, Joinable, State
from heedful.decoding.ensemble import Ensemble
from heedful.decoding.hypothesis import Hypothesis, length_penalty
from heedful.decoding.options import SearchOptions
from heedful.decoding.running import Supplied
from heedful.decoding.search import search, search_stream

__all__ = [
    "Continued",
    "Decodable",
    "Ensemble",
    "Hypothesis",
    "Joinable",
    "SearchOptions",
    "State",
    "Supplied",
    "length_penalty",
    "search",
    "search_stream",
]
