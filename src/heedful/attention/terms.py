"""The terms of the equation in one call of a module, for watchers.

Shapes: Q queries, K keys, D width, E width of a value; ``..`` is any number of leading dimensions.
"""

from torch import Tensor

from heedful.attention.functional import projected_scores
from heedful.attention.masks import Mask
from heedful.attention.mechanism import Mechanism, ProjectedQuery
from heedful.attention.watching import Terms


def equation_terms(
    mechanism: Mechanism,
    projected_query: ProjectedQuery,
    key: Tensor,
    value: Tensor,
    mask: Mask | Tensor | None,
    weights: Tensor,
    context: Tensor,
) -> Terms:
    """The terms of one call.

    Args:
        mechanism: the parts.
        projected_query: ``[.., Q, D]``.
        key: ``[.., K, D]``, with as many heads as the queries.
        value: ``[.., K, E]``, likewise.
        mask: of the call.
        weights: ``[.., Q, K]``.
        context: ``[.., Q, E]``.
    """
    query = projected_query.projected
    scores, allowed = projected_scores(mechanism, projected_query, key, mask)
    # If heads are mixed, a head's score or weight depends on those of other heads.
    plain = mechanism.mixing is None
    sink = mechanism.sink_logits() if plain else None
    scale = mechanism.softmax_scale() if plain else None
    return Terms(
        query.detach(),
        key.detach(),
        value.detach(),
        scores.detach(),
        allowed,
        weights.detach(),
        context.detach(),
        dot_scale=mechanism.dot_scale(query.shape[-1]) if plain else None,
        tanh_vector=mechanism.tanh_vector() if plain else None,
        softmax_scale=1.0 if scale is None and sink is not None else scale,
        sink=sink,
    )


def of_one_head(terms: Terms) -> Terms:
    """Terms ``[B, Q, ..]`` of a module without heads as ``[B, 1, Q, ..]``."""

    def headed(part: Tensor) -> Tensor:
        return part.unsqueeze(-3)

    allowed = terms.allowed
    return terms._replace(
        query=headed(terms.query),
        key=headed(terms.key),
        value=headed(terms.value),
        scores=headed(terms.scores),
        allowed=allowed if allowed is None or allowed.dim() < 3 else headed(allowed),
        weights=headed(terms.weights),
        context=headed(terms.context),
    )
