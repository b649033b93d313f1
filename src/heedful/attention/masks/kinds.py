"""The kinds of masks. Positions of queries and keys count from 0; see :class:`~.algebra.Grid`."""

from collections.abc import Callable

import torch
from torch import Tensor

from heedful.attention.masks.algebra import Grid, Mask


class Padding(Mask):
    """See :func:`padding`."""

    def __init__(self, lengths: Tensor) -> None:
        self.lengths = _integers("lengths", lengths)
        self.paddings = (self,)

    def rule(self, grid: Grid) -> Tensor:
        return grid.key < grid.per_entry(self.lengths)

    def allows(self, grid: Grid) -> Tensor:
        return self.rule(grid)


class Causal(Mask):
    """The mask of :func:`causal`, for scores ``[.., Q, K]``.

    Source: Vaswani et al. 2017, section 3.2.3.

    Example:
        >>> isinstance(causal(), Causal)
        True
    """

    def rule(self, grid: Grid) -> Tensor:
        return grid.key <= grid.query


class Window(Mask):
    """See :func:`window`."""

    def __init__(self, before: int, after: int) -> None:
        self.before, self.after = before, after

    def rule(self, grid: Grid) -> Tensor:
        return (grid.key >= grid.query - self.before) & (grid.key <= grid.query + self.after)


class Block(Mask):
    """See :func:`block`."""

    def __init__(self, size: int) -> None:
        self.size = size

    def rule(self, grid: Grid) -> Tensor:
        return grid.key // self.size == grid.query // self.size


class Sinks(Mask):
    """See :func:`sinks`."""

    def __init__(self, count: int) -> None:
        self.count = count

    def rule(self, grid: Grid) -> Tensor:
        return grid.key < self.count


class Document(Mask):
    """See :func:`document`."""

    def __init__(self, query_documents: Tensor, key_documents: Tensor) -> None:
        self.query_documents = _integers("query_documents", query_documents)
        self.key_documents = _integers("key_documents", key_documents)

    def rule(self, grid: Grid) -> Tensor:
        return grid.per_query(self.query_documents) == grid.per_key(self.key_documents)


class Prefix(Mask):
    """See :func:`prefix`."""

    def __init__(self, lengths: Tensor) -> None:
        self.lengths = _integers("lengths", lengths)

    def rule(self, grid: Grid) -> Tensor:
        return (grid.key <= grid.query) | (grid.key < grid.per_entry(self.lengths))


class Function(Mask):
    """See :func:`function`."""

    def __init__(self, allows: Callable[[Tensor, Tensor], Tensor]) -> None:
        self.function = allows

    def rule(self, grid: Grid) -> Tensor:
        allowed = self.function(grid.query, grid.key)
        if not isinstance(allowed, Tensor) or allowed.dtype != torch.bool:
            what = allowed.dtype if isinstance(allowed, Tensor) else type(allowed).__name__
            raise TypeError(f"a mask's function must return a boolean tensor, not {what}")
        return allowed


def _integers(name: str, numbers: Tensor) -> Tensor:
    if not isinstance(numbers, Tensor):
        raise TypeError(f"{name} must be a tensor of integers, not {type(numbers).__name__}")
    if numbers.is_floating_point() or numbers.dtype == torch.bool:
        raise TypeError(f"{name} must be integers, not {numbers.dtype}")
    return numbers


def padding(lengths: Tensor) -> Mask:
    """Only the first ``lengths[b]`` keys exist in each entry of the batch.

    Padding applies to the whole expression, last: ``~(causal() & padding(n))`` allows later keys
    that exist, but none beyond n.

    Args:
        lengths: integers ``[B]`` (or more leading dimensions of the scores).

    Raises:
        TypeError: the lengths are not integers.

    Example:
        >>> padding(torch.tensor([1, 2])).dense((2, 1, 3)).tolist()
        [[[True, False, False]], [[True, True, False]]]
    """
    return Padding(lengths)


def causal() -> Mask:
    """A query may attend to keys up to its own position, counted from the end.

    The last query may attend to all keys (bottom-right alignment), as is correct with a cache,
    where there are more keys than queries.

    Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.2.3.

    Example:
        >>> causal().dense((2, 3)).tolist()
        [[True, True, False], [True, True, True]]
    """
    return Causal()


def window(before: int, after: int | None = None) -> Mask:
    """A query may attend to keys up to ``before`` positions before and ``after`` after it.

    Args:
        before: 0 or more.
        after: 0 or more; the same as ``before`` by default.

    Raises:
        ValueError: one is negative.

    Source: Beltagy, Peters, Cohan 2020, "Longformer", section 3.1 (sliding window).

    Example:
        >>> window(1, 0).dense((3, 3)).tolist()
        [[True, False, False], [True, True, False], [False, True, True]]
    """
    after = before if after is None else after
    if before < 0 or after < 0:
        raise ValueError(f"before={before} and after={after} of a window must be at least 0")
    return Window(before, after)


def block(size: int) -> Mask:
    """A query may attend to the keys of its own block of ``size`` positions.

    Raises:
        ValueError: the size is below 1.

    Source: Child et al. 2019, "Generating Long Sequences with Sparse Transformers", section 4.3.

    Example:
        >>> block(2).dense((3, 3)).tolist()
        [[True, True, False], [True, True, False], [False, False, True]]
    """
    if size < 1:
        raise ValueError(f"a block must have at least 1 position, not {size}")
    return Block(size)


def sinks(count: int) -> Mask:
    """Every query may attend to the first ``count`` keys: ``causal() & (window(w, 0) | sinks(n))``.

    Args:
        count: 0 or more.

    Raises:
        ValueError: the count is negative.

    Source: Xiao et al. 2024, "Efficient Streaming Language Models with Attention Sinks", section
    3.2 (StreamingLLM).

    Example:
        >>> (causal() & (window(1, 0) | sinks(1))).dense((4, 4)).tolist()[3]  # [Q, K]
        [True, False, True, True]
    """
    if count < 0:
        raise ValueError(f"count must be at least 0, not {count}")
    return Sinks(count)


def document(query_documents: Tensor, key_documents: Tensor | None = None) -> Mask:
    """A query may attend to the keys of its own document (or segment), if a row contains several.

    Args:
        query_documents: the document of each query, integers ``[.., Q]``.
        key_documents: the document of each key, ``[.., K]``; that of the queries by default.

    Raises:
        TypeError: they are not integers.
        ValueError: when used, if there is not one number for each query and key.

    Source: Krell et al. 2021, "Efficient Sequence Packing without Cross-contamination".

    Example:
        >>> document(torch.tensor([0, 0, 1])).dense((3, 3)).tolist()
        [[True, True, False], [True, True, False], [False, False, True]]
    """
    return Document(query_documents, query_documents if key_documents is None else key_documents)


def prefix(lengths: Tensor) -> Mask:
    """Causal, but every query may attend to the first ``lengths[b]`` keys (prefix language model).

    Args:
        lengths: integers ``[B]``.

    Raises:
        TypeError: the lengths are not integers.

    Source: Raffel et al. 2020, "Exploring the Limits of Transfer Learning", section 3.2.1.

    Example:
        >>> prefix(torch.tensor([2])).dense((1, 3, 3)).tolist()
        [[[True, True, False], [True, True, False], [True, True, True]]]
    """
    return Prefix(lengths)


def function(allows: Callable[[Tensor, Tensor], Tensor]) -> Mask:
    """A mask from a function of the positions of queries ``[Q, 1]`` and keys ``[K]``.

    Raises:
        TypeError: when used, if the function does not return booleans.

    Example:
        >>> function(lambda query, key: (query - key) % 2 == 0).dense((2, 2)).tolist()
        [[True, False], [False, True]]
    """
    return Function(allows)
