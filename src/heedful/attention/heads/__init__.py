"""Parts of :class:`~heedful.attention.MultiHeadAttention` beside score, normalizer and positions.

:class:`QueryKeyNorm` normalizes queries and keys, a :class:`HeadMixing` combines the scores or
weights of several heads, :class:`OutputGate` scales the contexts. One mechanism per file.
"""

from heedful.attention.heads.differential import Differential, initial_lambda
from heedful.attention.heads.gate import OutputGate
from heedful.attention.heads.mixing import HeadMixing
from heedful.attention.heads.query_key_norm import QueryKeyNorm
from heedful.attention.heads.talking import TalkingHeads

__all__ = [
    "Differential",
    "HeadMixing",
    "OutputGate",
    "QueryKeyNorm",
    "TalkingHeads",
    "initial_lambda",
]
