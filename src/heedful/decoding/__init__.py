"""Search: greedy, beam and sampling over any object with ``start``, ``step`` and ``select``."""

from heedful.decoding.decodable import Decodable, Joinable, State
from heedful.decoding.ensemble import Ensemble
from heedful.decoding.forced_prefix import ForcedPrefix
from heedful.decoding.hypothesis import Hypothesis, length_penalty
from heedful.decoding.joint_ctc import JointCtc
from heedful.decoding.options import SearchOptions
from heedful.decoding.search import search, search_stream
from heedful.decoding.search_loop import NewSources
from heedful.decoding.shallow_fusion import ShallowFusion

__all__ = [
    "Decodable",
    "Ensemble",
    "ForcedPrefix",
    "Hypothesis",
    "Joinable",
    "JointCtc",
    "NewSources",
    "SearchOptions",
    "ShallowFusion",
    "State",
    "length_penalty",
    "search",
    "search_stream",
]
