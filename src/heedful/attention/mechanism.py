"""The parts of an attention, and queries that are projected for them.

Shapes: Q queries, K keys, dq, dk widths, D width after projection; ``..`` is any number of leading
dimensions.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from heedful.attention.checking import check_part
from heedful.attention.heads.mixing import HeadMixing
from heedful.attention.masks import Grid
from heedful.attention.normalizers import Normalizer
from heedful.attention.normalizers.recurrent import RecurrentNormalizer
from heedful.attention.overrides import describes
from heedful.attention.places import First, places
from heedful.attention.positions.base import RelativePositions
from heedful.attention.scores import RecurrentScore, Score
from heedful.basics.shapes import leading_sizes


class FusedForm(NamedTuple):
    """What fused kernels need of a mechanism whose scores are dot products."""

    scale: float
    """Factor on the dot products."""
    sink: Tensor | float | None = None
    """The score of one more key of value 0: ``[H]`` or one number; None for no such key."""
    cap: float | None = None
    """c of scores ``c tanh(scale · qᵀk / c)``; None for scores without a cap."""
    factor: float = 1.0
    """Factor on the capped scores."""


@dataclass(slots=True)
class Mechanism:
    """The parts of an attention: score, normalizer, positions and what mixes the heads."""

    score: Score
    normalize: Normalizer
    positions: RelativePositions | None = None
    mixing: HeadMixing | None = None

    def check(self) -> "Mechanism":
        """Return itself; raise TypeError if a part has the wrong class, and ValueError if parts do
        not fit."""
        check_part("score", self.score, Score)
        check_part("normalize", self.normalize, Normalizer)
        for part in (self.score, self.normalize):
            if isinstance(part, RecurrentScore | RecurrentNormalizer):
                raise ValueError(  # noqa: TRY004
                    f"{type(part).__name__} needs the weights of the step before: use it in "
                    "RecurrentAttention, which computes one query after another"
                )
        if self.positions is not None:
            check_part("positions", self.positions, RelativePositions)
            self.positions.check_score(self.score)
        if self.mixing is not None:
            check_part("mixing", self.mixing, HeadMixing)
        return self

    def fused_scale(self, width: int) -> float | None:
        """The factor on a dot product of width ``width``, if this is the softmax of such products;
        else None."""
        form = self.fused_form(width)
        return form.scale if form is not None and form.sink is None and form.cap is None else None

    def fused_form(self, width: int) -> FusedForm | None:
        """The form in which fused kernels compute this for vectors of width ``width``; else
        None."""
        if self.mixing is not None or not self._only_biases():
            return None
        factor, sink = self.softmax_scale(), self.sink_logits()
        if factor is None:
            if sink is None:
                return None
            factor = 1.0
        scale = self.dot_scale(width)
        if scale is not None:
            return FusedForm(scale * factor, sink)
        capped = self.capped_dot(width)
        return None if capped is None else FusedForm(capped[0], sink, capped[1], factor)

    def computed(self, width: int) -> Literal["fused", "tiles", "plain"]:
        """How the context is computed for heads of width ``width``: by a fused kernel, in tiles
        whose memory does not grow with Q · K, or by the plain implementation."""
        form = self.fused_form(width)
        if form is not None and form.cap is None:  # With a cap, only on NVIDIA GPUs.
            return "fused"
        tiles = self.tanh_vector() is not None and self.softmax_scale() is not None
        return "tiles" if tiles and self.positions is None and self.mixing is None else "plain"

    def dot_scale(self, width: int) -> float | None:
        """The factor, if the score is a scaled dot product of vectors of width ``width``; else
        None."""
        known = describes(self.score, "dot_scale", "compare")
        return self.score.dot_scale(width) if known else None

    def capped_dot(self, width: int) -> tuple[float, float] | None:
        """The factor and the cap, if the score is a soft-capped dot product of vectors of width
        ``width``; else None."""
        known = describes(self.score, "capped_dot", "compare")
        return self.score.capped_dot(width) if known else None

    def tanh_vector(self) -> Tensor | None:
        """``v [D]``, if the score is ``vᵀ tanh(query + key)``; else None."""
        known = describes(self.score, "tanh_vector", "compare")
        return self.score.tanh_vector() if known else None

    def softmax_scale(self) -> float | None:
        """The factor on the scores, if the normalizer is a softmax; else None."""
        known = describes(self.normalize, "softmax_scale", "forward")
        return self.normalize.softmax_scale() if known else None

    def sink_logits(self) -> Tensor | float | None:
        """The score of one more key of value 0, if the normalizer is a softmax with one; else
        None."""
        known = describes(self.normalize, "sink_logits", "forward")
        return self.normalize.sink_logits() if known else None

    def _only_biases(self) -> bool:
        """Whether positions only rotate and add their bias to the scores."""
        one = self.positions
        return one is None or (
            not one.changes_values
            and describes(one, "changes_values", "context")
            and describes(one, "bias", "compare")
        )

    def remember(self, key: Tensor, first: First = 0) -> Tensor:
        """Rotate and project keys ``[.., K, dk]`` at positions ``first``, ``first + 1``, …"""
        if self.positions is not None:
            key = self.positions.turn_key(key, _places(first, key))
        return self.score.project_key(key)


@dataclass(slots=True)
class ProjectedQuery:
    """Queries after the score's projection, and their positions."""

    projected: Tensor
    """``[.., Q, D]``"""
    vectors: Tensor
    """The queries before the projection: ``[.., Q, dq]``."""
    first: First | None
    """Position of the first query, or positions of each row; None: the last query is at the
    position of the last key."""
    rows: Tensor | None = None
    """Indices ``[Q]`` of the queries, if they are selected rows of a larger tensor."""
    whole: int = 0
    """Number of queries of the larger tensor."""

    @classmethod
    def project(
        cls, mechanism: Mechanism, query: Tensor, keys: int, first: First | None = None
    ) -> "ProjectedQuery":
        """Rotate and project ``query [.., Q, dq]``."""
        whole = query.shape[-2]
        turned = query
        if mechanism.positions is not None:
            start = keys - whole if first is None else first
            turned = mechanism.positions.turn_query(query, _places(start, query))
        return cls(mechanism.score.project_query(turned), query, first, whole=whole)

    def choose(self, rows: Tensor) -> "ProjectedQuery":
        """Only the queries of ``rows [R]``."""
        return ProjectedQuery(
            self.projected[..., rows, :], self.vectors[..., rows, :], self.first, rows, self.whole
        )

    def places(self, first: First) -> Tensor:
        """Positions ``[Q]`` or ``[B, 1, Q]`` if row 0 is at position ``first``."""
        if self.rows is not None:
            return places(first, self.rows, self.projected.dim() - 2)
        return _places(first, self.projected)

    def grid(self, key: Tensor) -> Grid:
        """The grid of these queries and keys ``[.., K, D]``."""
        # If there are fewer heads of keys, the grid has the queries' heads.
        shape = (*leading_sizes(self.projected, key), self.whole, key.shape[-2])
        return Grid(shape, self.projected.device, rows=self.rows, first=self.first)

    def key_places(self, keys: int) -> Tensor:
        """Positions ``[Q]`` or ``[B, 1, Q]`` of the queries, counted like those of the keys."""
        return self.places(keys - self.whole if self.first is None else self.first)


def _places(first: First, like: Tensor) -> Tensor:
    """Positions of the rows of ``like [.., L, D]``."""
    if isinstance(first, int):
        return torch.arange(first, first + like.shape[-2], device=like.device)
    return places(first, torch.arange(like.shape[-2], device=like.device), like.dim() - 2)
