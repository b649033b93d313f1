"""Whether the parts of an attention module fit together."""

from typing import Any, Literal

from heedful.attention.masks.settings import MaskSettings
from heedful.attention.normalizers.base import NormalizerSettings
from heedful.attention.positions.base import RelativePositions
from heedful.attention.scores.base import Score, ScoreSettings

Role = Literal["self", "causal", "cross"]
"""What a module attends to: its own text, its own text up to the query, or another text."""


def check_parts(
    score: ScoreSettings, normalizer: NormalizerSettings, max_length: int | None
) -> None:
    """Raise ValueError if a score is not trained, or has no meaning with the normalizer."""
    if not normalizer.passes_gradient:
        raise ValueError(
            f"'{normalizer.name}' passes no gradient to the scores, which would not be trained"
        )
    if normalizer.name == "plain-sum" and score.least is None:
        raise ValueError(
            f"plain-sum needs scores that are not negative, and those of '{score.name}' may be; "
            "choose the score exp-dot"
        )
    if normalizer.name != "plain-sum" and score.least is not None:
        raise ValueError(
            f"the score '{score.name}' is an exponential already; choose the normalizer plain-sum"
        )
    longest = score.longest()
    if longest is not None and max_length is not None and longest < max_length:
        raise ValueError(
            f"the score '{score.name}' has {longest} positions, fewer than max_length = "
            f"{max_length}; set positions of the score to {max_length}"
        )


def check_selection(mask: MaskSettings | None, role: Role, score: Score, width: int) -> None:
    """Raise ValueError if a mask selects by products, and attention is not causal or has no dot
    products."""
    if mask is None or not mask.reads_vectors or role == "cross":
        return
    if role != "causal":
        raise ValueError(
            f"the mask '{mask.name}' selects among earlier positions: it is for attention that is "
            "causal, as in a decoder or a GPT"
        )
    if score.dot_scale(width) is None:
        raise ValueError(
            f"the mask '{mask.name}' compares queries and keys by dot products; choose the score "
            "scaled-dot, dot or general"
        )


def refuse_parts_of_keys(score: ScoreSettings, parts: dict[str, Any]) -> None:
    """Raise ValueError if a part changes keys, which the score does not read."""
    if _act_on_keys(parts["positions"]):
        raise ValueError(
            f"the score '{score.name}' does not read the keys, which these positions change; "
            "choose alibi, t5 or none"
        )
    if parts["query_key_norm"] is not None:
        raise ValueError(
            f"the score '{score.name}' does not read the keys, which query_key_norm changes; "
            "choose none"
        )


def _act_on_keys(positions: RelativePositions | None) -> bool:
    """Whether positions change keys, instead of only adding a bias to scores."""
    if positions is None:
        return False
    own, base = type(positions), RelativePositions
    return own.turn is not base.turn or own.compare is not base.compare
