"""Rows with several documents, which must not influence one another.

Krell et al. 2021, "Efficient Sequence Packing without Cross-contamination", section 3.1: attention
stays within a document, and positions begin anew in each.
Shapes: B rows, T tokens.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from heedful.attention.scores.soft_capped import SoftCapped
from heedful.attention.settings import AttentionSettings

_SEPARABLE = {
    "score": {
        "additive",
        "concat",
        "cosine",
        "dot",
        "energy",
        "exp-dot",
        "gaussian",
        "general",
        "scaled-dot",
        "soft-capped",
    },
    "normalizer": {
        "entmax",
        "entmax15",
        "plain-sum",
        "sink-softmax",
        "smoothed",
        "softmax",
        "softmax-off-by-one",
        "sparsemax",
    },
    "positions": {"none", "rotary", "alibi", "shaw", "t5", "transformer-xl"},
    "mask": {"none", "causal", "window"},
}
"""Parts that depend on a query, a key and their distance only; soft-capped if its score does."""

_ROTATABLE = {"cosine", "dot", "exp-dot", "gaussian", "scaled-dot"}
"""Scores that depend on the distance of rotated queries and keys only: rotating both does not
change them."""


def check_packing(layers: Iterable[AttentionSettings]) -> None:
    """Raise ValueError if attention with a document mask could still depend on other documents."""
    for layer in layers:
        if not layer.is_standard:
            raise ValueError(
                f"attention.kind = '{layer.kind}' sums over all documents of a row; packed windows "
                "need standard attention"
            )
        for key, known in _SEPARABLE.items():
            part = _uncapped(getattr(layer, key))
            if part is not None and part.name not in known:
                raise ValueError(
                    f"attention.{key} = '{part.name}' depends on other documents of a row; packed "
                    f"windows need one of {', '.join(sorted(known))}"
                )
        _check_rotary(layer)
        if getattr(layer.mask, "sinks", 0):
            raise ValueError(
                "attention.mask.sinks are the first tokens of a row, not of a document; packed "
                "windows need sinks = 0"
            )


def _uncapped(part: Any) -> Any:
    """The settings of a part; of a soft-capped score, those of the score in it."""
    return part.score if isinstance(part, SoftCapped.Settings) else part


def _check_rotary(layer: AttentionSettings) -> None:
    """Raise ValueError if rotary positions of a row, not of a document, change the scores."""
    score = _uncapped(layer.score)
    rotated = layer.positions is not None and layer.positions.name == "rotary"
    if rotated and score is not None and score.name not in _ROTATABLE:
        raise ValueError(
            f"attention.score = '{score.name}' with rotary positions depends on the position in a "
            f"row; packed windows need other positions, or one of {', '.join(sorted(_ROTATABLE))}"
        )


def places_in_documents(documents: Tensor) -> Tensor:
    """The position of each token in its document ``[B, T]``.

    Args:
        documents: number of the document of each token ``[B, T]``; the tokens of a document are
            adjacent.

    Example:
        >>> places_in_documents(torch.tensor([[1, 1, 1, 2, 2, 0]])).tolist()
        [[0, 1, 2, 0, 1, 0]]
    """
    place = torch.arange(documents.shape[1], device=documents.device).expand_as(documents)
    begins = torch.ones_like(documents, dtype=torch.bool)
    begins[:, 1:] = documents[:, 1:] != documents[:, :-1]
    return place - torch.where(begins, place, 0).cummax(1).values
