"""Attention: context = aggregate(normalize(mask(score(query, key))), value).

The parts: :mod:`scores <heedful.attention.scores>`, :mod:`masks <heedful.attention.masks>`,
:mod:`normalizers <heedful.attention.normalizers>`, :mod:`positions <heedful.attention.positions>`.
"""

from heedful.attention import masks, normalizers, positions, scores
from heedful.attention.functional import attend, attention_weights
from heedful.attention.modules import Attention, Memory
from heedful.attention.multi_head import MultiHeadAttention
from heedful.attention.watching import watch

__all__ = [
    "Attention",
    "Memory",
    "MultiHeadAttention",
    "attend",
    "attention_weights",
    "masks",
    "normalizers",
    "positions",
    "scores",
    "watch",
]
