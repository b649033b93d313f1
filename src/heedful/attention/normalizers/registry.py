"""The normalizers that recipes can name. Plug-ins add normalizers with
:func:`register_normalizer`."""

from collections.abc import Callable

import torch

from heedful.attention.normalizers.base import Normalizer
from heedful.attention.normalizers.entmax import Entmax
from heedful.attention.normalizers.entmax15 import Entmax15
from heedful.attention.normalizers.sink_softmax import SinkSoftmax
from heedful.attention.normalizers.softmax import Softmax
from heedful.attention.normalizers.softmax_off_by_one import SoftmaxOffByOne
from heedful.attention.normalizers.sparsemax import Sparsemax
from heedful.basics.named import Named

BuildNormalizer = Callable[[int], Normalizer]
"""Builds a normalizer for the scores of this number of heads."""

_builders: Named[BuildNormalizer] = Named(
    "normalizer",
    {
        "softmax": lambda heads: Softmax(),
        "softmax-off-by-one": lambda heads: SoftmaxOffByOne(),
        "sink-softmax": SinkSoftmax,
        "sparsemax": lambda heads: Sparsemax(),
        "entmax15": lambda heads: Entmax15(),
        "entmax": lambda heads: Entmax(torch.full((heads, 1, 1), 1.5), learned=True),
    },
)
_UNSUPPORTED = {
    "hard": "passes no gradient to the scores",
    "sampled-hard": "is trained by reward; use model.kind = 'recurrent' with attention = "
    "'hard-reinforce'",
    "gumbel": "draws weights at random; use model.kind = 'recurrent' with attention = "
    "'hard-gumbel'",
    "local-monotonic": "needs the position of each query",
    "local-predictive": "needs the position of each query; use model.kind = 'recurrent' with "
    "attention = 'luong-local-p'",
}
"""Normalizers that a Transformer's recipe does not support, and the reason."""


def register_normalizer(name: str, build: BuildNormalizer) -> None:
    """Add a normalizer that recipes can name.

    Args:
        name: the name in recipes.
        build: builds it for a number of heads.

    Raises:
        UserError: the name is already registered.

    Example:
        >>> register_normalizer("of-mine", lambda heads: Softmax())
        >>> build_normalizer("of-mine", 4)
        Softmax()
        >>> del _builders["of-mine"]
    """
    _builders.register(name, build)


def build_normalizer(name: str, heads: int) -> Normalizer:
    """Build the normalizer ``name`` for scores of ``heads`` heads.

    Raises:
        ValueError: the normalizer is unknown.

    Example:
        >>> build_normalizer("sparsemax", 4)
        Sparsemax()
    """
    return _builders[_builders.known(name)](heads)


def known_normalizer(name: str) -> str:
    """Return ``name`` if a Transformer supports this normalizer.

    Raises:
        ValueError: it does not exist, and the message suggests the closest name; or its weights are
            drawn at random or need the position of each query.

    Example:
        >>> known_normalizer("entmax15")
        'entmax15'
    """
    reason = _UNSUPPORTED.get(name)
    if reason is None:
        with torch.device("meta"):
            part = build_normalizer(name, 1)
        if part.draws or part.learns_by_reward:
            reason = "draws weights at random"
    if reason is not None:
        raise ValueError(f"'{name}' {reason}; choose one of {', '.join(_builders)}")
    return name
