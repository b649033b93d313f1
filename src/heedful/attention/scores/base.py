"""The base class of scores: project queries and keys separately, then compare.

Shapes: B batch, Q queries, K keys, D width. ``..`` is any number of leading dimensions.
"""

from typing import ClassVar

from torch import Tensor, nn

from heedful.basics.parts import Parts, PartSettings


class Score(nn.Module):
    """Compares each query with each key: ``(query [.., Q, dq], key [.., K, dk]) -> [.., Q, K]``.

    A subclass implements :meth:`compare`, and overrides the projections if it has any. They are
    separate so that keys that are read many times are projected once.

    Example:
        >>> import torch
        >>> class Manhattan(Score):
        ...     def compare(self, query, key):
        ...         return -torch.cdist(query, key, p=1)
        >>> Manhattan()(torch.zeros(1, 2), torch.tensor([[1.0, 2.0]]))
        tensor([[-3.]])
    """

    def project_query(self, query: Tensor) -> Tensor:
        """Everything that depends only on the query, ``[.., Q, dq] -> [.., Q, D]``."""
        return query

    def project_key(self, key: Tensor) -> Tensor:
        """Everything that depends only on the key, ``[.., K, dk] -> [.., K, D]``."""
        return key

    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        """Scores of projected queries and keys, ``[.., Q, K]``."""
        raise NotImplementedError(f"{type(self).__name__} does not implement `compare`")

    def dot_scale(self, width: int) -> float | None:
        """The factor, if :meth:`compare` is a scaled dot product of width ``width``; else None.

        A number enables the fused kernels.
        """
        return None

    def capped_dot(self, width: int) -> tuple[float, float] | None:
        """The factor and c, if :meth:`compare` is ``c tanh(factor · qᵀk / c)``; else None.

        Numbers enable FlexAttention on NVIDIA GPUs.
        """
        return None

    def tanh_vector(self) -> Tensor | None:
        """``v [D]``, if :meth:`compare` is ``vᵀ tanh(query + key)``; else None.

        A vector enables the tiled kernels of the additive score.
        """
        return None

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """Scores ``[.., Q, K]`` of ``query [.., Q, dq]`` and ``key [.., K, dk]``."""
        return self.compare(self.project_query(query), self.project_key(key))


class ScoreSettings(PartSettings):
    """Base of the settings of scores; a table of this type is that of the score it names.

    The score compares queries ``[.., Q, query_dim]`` with keys ``[.., K, key_dim]``.

    Example:
        >>> ScoreSettings.model_validate("cosine").build(4, 4)
        Cosine()
    """

    parts: ClassVar[Parts["ScoreSettings"]] = Parts("score")
    least: ClassVar[float | None] = None
    """The number below which no score is; None if there is none."""

    reads_past: ClassVar[bool] = False
    """Whether scores depend on the weights of earlier steps."""
    reads_keys: ClassVar[bool] = True
    """Whether scores depend on the vectors of the keys."""

    def build(self, query_dim: int, key_dim: int) -> Score:
        """The score for queries and keys of these widths.

        Raises:
            ValueError: the score does not compare vectors of these widths.
        """
        raise NotImplementedError(f"{type(self).__name__} does not implement `build`")

    def compared(self, width: int) -> int:
        """Width of the vectors that are compared, for queries of width ``width``."""
        return width

    def longest(self) -> int | None:
        """The largest number of keys; None if there is no limit."""
        return None


def equal_width(name: str, query_dim: int, key_dim: int) -> int:
    """The width of queries and keys.

    Raises:
        ValueError: they differ.
    """
    if query_dim != key_dim:
        raise ValueError(
            f"the score '{name}' compares vectors of equal width; queries have {query_dim} "
            f"components and keys {key_dim}. Choose general, additive or concat"
        )
    return query_dim


def require_width(name: str, tensor: Tensor, width: int) -> None:
    """Raise ValueError unless the last dimension of ``tensor`` is ``width``."""
    if tensor.shape[-1] != width:
        raise ValueError(
            f"{name} has shape {list(tensor.shape)}: expected [.., {width}] in the last dimension"
        )


def require_same_width(query: Tensor, key: Tensor) -> None:
    """Raise ValueError unless query and key are equally wide."""
    if query.shape[-1] != key.shape[-1]:
        raise ValueError(
            f"query {list(query.shape)} and key {list(key.shape)} differ in their last dimension; "
            "a dot product needs equal widths (General, Additive and Concat do not)"
        )
