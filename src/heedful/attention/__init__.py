"""Attention: context = aggregate(normalize(mask(score(query, key))), value).

The parts: :mod:`scores <heedful.attention.scores>`, :mod:`masks <heedful.attention.masks>`,
:mod:`normalizers <heedful.attention.normalizers>`, :mod:`positions <heedful.attention.positions>`;
for several heads, :mod:`heads <heedful.attention.heads>`;
for linearized attention and the delta rule, :mod:`feature_maps <heedful.attention.feature_maps>`.

Example:
    >>> import torch
    >>> from heedful.attention import Attention, masks, normalizers, scores, watch
    >>> attention = Attention(score=scores.Additive(4, 4, 8), normalize=normalizers.Sparsemax())
    >>> attention(torch.zeros(1, 2, 4), torch.zeros(1, 3, 4), mask=masks.causal()).shape
    torch.Size([1, 2, 4])
"""

from heedful.attention import feature_maps, heads, masks, normalizers, positions, scores
from heedful.attention.axial import AxialAttention
from heedful.attention.caches import PagedCache, StaticCache
from heedful.attention.coverage import coverage_loss
from heedful.attention.delta import DeltaState, delta_attend, delta_step, delta_weights
from heedful.attention.delta_heads import DeltaAttention
from heedful.attention.differential import DifferentialAttention
from heedful.attention.disagreement import disagreement
from heedful.attention.divergences import (
    jensen_shannon,
    jensen_shannon_distance,
    kullback_leibler,
)
from heedful.attention.functional import attend, attention_weights
from heedful.attention.latent import LatentAttention
from heedful.attention.learned_queries import LearnedQueries
from heedful.attention.linear import (
    LinearState,
    linear_attend,
    linear_read,
    linear_state,
    linear_step,
    linear_weights,
)
from heedful.attention.linear_heads import LinearAttention
from heedful.attention.modules import Attention, Memory
from heedful.attention.multi_head import MultiHeadAttention
from heedful.attention.packed import attend_packed
from heedful.attention.pointer import Pointer
from heedful.attention.recurrent import AttentionState, RecurrentAttention
from heedful.attention.structured import StructuredSelfAttention
from heedful.attention.watching import watch
from heedful.kernels.additive_selection import use_kernel

__all__ = [
    "Attention",
    "AttentionState",
    "AxialAttention",
    "DeltaAttention",
    "DeltaState",
    "DifferentialAttention",
    "LatentAttention",
    "LearnedQueries",
    "LinearAttention",
    "LinearState",
    "Memory",
    "MultiHeadAttention",
    "PagedCache",
    "Pointer",
    "RecurrentAttention",
    "StaticCache",
    "StructuredSelfAttention",
    "attend",
    "attend_packed",
    "attention_weights",
    "coverage_loss",
    "delta_attend",
    "delta_step",
    "delta_weights",
    "disagreement",
    "feature_maps",
    "heads",
    "jensen_shannon",
    "jensen_shannon_distance",
    "kullback_leibler",
    "linear_attend",
    "linear_read",
    "linear_state",
    "linear_step",
    "linear_weights",
    "masks",
    "normalizers",
    "positions",
    "scores",
    "use_kernel",
    "watch",
]
