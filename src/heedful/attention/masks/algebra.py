"""The algebra of masks: small objects, true = may attend, that combine with ``&``, ``|`` and ``~``.

A mask is a rule over positions instead of a matrix. It can be evaluated on any grid of queries and
keys: the whole matrix, a tile, or selected rows. Padding is stored separately and applied last, so
that neither ``|`` nor ``~`` can allow padded keys.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from heedful.attention.places import First, places


class Grid:
    """The queries and keys that a mask is evaluated on.

    Shapes: scores are ``[*leading, Q, K]``; the grid has q of the Q rows and k of the K keys.

    Args:
        shape: of the whole scores, ``[*leading, Q, K]``.
        device: of the result.
        rows: indices ``[q]`` of the selected rows; all Q by default.
        columns: the first selected key and the one after the last; all K by default.
        first: position of row 0; ``K − Q`` by default, so that the last query is at the position of
            the last key (correct for a cache, where there are more keys than queries). Integers
            ``[B]`` if it differs between entries, ``[B, Q]`` for the positions of all rows.

    Raises:
        ValueError: when a mask is evaluated, if the shape of its numbers does not match.

    Example:
        >>> Grid((2, 5), torch.device("cpu")).query.tolist()
        [[3], [4]]
    """

    def __init__(
        self,
        shape: Sequence[int],
        device: torch.device,
        *,
        rows: Tensor | None = None,
        columns: tuple[int, int] | None = None,
        first: First | None = None,
    ) -> None:
        self.leading = tuple(shape[:-2])
        self.queries, self.keys = shape[-2], shape[-1]
        self.rows, self.columns, self.first = rows, columns, first
        self.device = device

    @property
    def query(self) -> Tensor:
        """Positions of the queries, ``[q, 1]``, or ``[B, 1.., q, 1]`` for those of each entry."""
        rows = self.rows
        if rows is None:
            rows = torch.arange(self.queries, device=self.device)
        first = self.keys - self.queries if self.first is None else self.first
        return places(first, rows, len(self.leading)).unsqueeze(-1)

    @property
    def key(self) -> Tensor:
        """Positions of the keys, ``[k]``."""
        start, stop = self.columns or (0, self.keys)
        return torch.arange(start, stop, device=self.device)

    @property
    def sizes(self) -> tuple[int, int]:
        """Numbers of queries q and keys k."""
        start, stop = self.columns or (0, self.keys)
        return self.queries if self.rows is None else len(self.rows), stop - start

    def part(self, rows: slice) -> "Grid":
        """The grid restricted to some of the rows."""
        index = torch.arange(rows.start, rows.stop, device=self.device)
        chosen = index if self.rows is None else self.rows[rows]
        shape = (*self.leading, self.queries, self.keys)
        return Grid(shape, self.device, rows=chosen, columns=self.columns, first=self.first)

    def per_entry(self, numbers: Tensor) -> Tensor:
        """Reshape one number for each leading entry, ``[B]`` or more, to ``[B, 1.., 1, 1]``.

        With as many dimensions as the scores have before the keys, it is one number for each query.
        """
        extra = len(self.leading) - numbers.dim()
        if extra == -1:
            return self.per_query(numbers)
        if extra < 0:
            raise self._misfit(numbers.shape, "it must index leading dimensions only")
        return numbers.to(self.device).reshape(*numbers.shape, *[1] * (extra + 2))

    def per_query(self, numbers: Tensor) -> Tensor:
        """Reshape one number for each query, ``[.., Q]``, to ``[.., 1.., q, 1]``."""
        numbers = self._spread(numbers, self.queries, "query")
        return (numbers if self.rows is None else numbers[..., self.rows]).unsqueeze(-1)

    def per_key(self, numbers: Tensor) -> Tensor:
        """Reshape one number for each key, ``[.., K]``, to ``[.., 1.., 1, k]``."""
        numbers = self._spread(numbers, self.keys, "key")
        return (numbers if self.columns is None else numbers[..., slice(*self.columns)]).unsqueeze(
            -2
        )

    def per_pair(self, pairs: Tensor) -> Tensor:
        """Select the grid's part of a tensor that broadcasts to the whole scores."""
        pairs = pairs.to(self.device)
        if self.rows is not None and pairs.dim() > 1 and pairs.shape[-2] > 1:
            pairs = pairs[..., self.rows, :]
        if self.columns is not None and pairs.dim() > 0 and pairs.shape[-1] > 1:
            pairs = pairs[..., slice(*self.columns)]
        return pairs

    def _spread(self, numbers: Tensor, length: int, what: str) -> Tensor:
        extra = len(self.leading) - (numbers.dim() - 1)
        if extra < 0 or numbers.shape[-1] != length:
            raise self._misfit(numbers.shape, f"expected one number for each {what} ({length})")
        leading = numbers.shape[:-1]
        return numbers.to(self.device).reshape(*leading, *[1] * extra, length)

    def _misfit(self, given: Sequence[int], hint: str) -> ValueError:
        whole = [*self.leading, self.queries, self.keys]
        return ValueError(f"mask shape {list(given)} does not match scores {whole}: {hint}")


class Mask:
    """Base of all masks; a subclass implements :meth:`rule`.

    Example:
        >>> class Diagonal(Mask):
        ...     def rule(self, grid):
        ...         return grid.query == grid.key
        >>> Diagonal().dense((2, 2)).tolist()
        [[True, False], [False, True]]
    """

    paddings: tuple["Mask", ...] = ()
    """The padding masks, which apply to the whole expression."""
    tensors: tuple[Tensor, ...] = ()
    """The tensors in the expression."""

    def rule(self, grid: Grid) -> Tensor:
        """Booleans that broadcast to the grid, without padding."""
        raise NotImplementedError(f"{type(self).__name__} does not implement `allows`")

    def allows(self, grid: Grid) -> Tensor:
        """Booleans that broadcast to the grid: the rule, then padding."""
        allowed = self.rule(grid)
        for padding in self.paddings:
            allowed = allowed & padding.rule(grid)
        return allowed

    def dense(
        self,
        shape: Sequence[int],
        device: torch.device | str = "cpu",
        *,
        first: First | None = None,
    ) -> Tensor:
        """Booleans that broadcast to scores of ``shape [.., Q, K]``; see :class:`Grid`."""
        return self.allows(Grid(shape, torch.device(device), first=first))

    def for_heads(self, dims: int) -> "Mask":
        """The mask for scores ``[.., H, Q, K]``: tensors ``[.., Q, K]`` with ``dims`` dimensions
        are for all heads."""
        return self

    def of_vectors(self, query: Tensor, key: Tensor, first: First | None) -> "Mask":
        """The mask for these queries ``[.., Q, D]`` and keys ``[.., K, D]``, if they decide it."""
        return self

    def __and__(self, other: "Mask | Tensor") -> "Mask":
        return Combined("&", self, as_mask(other))

    def __or__(self, other: "Mask | Tensor") -> "Mask":
        return Combined("|", self, as_mask(other))

    __rand__, __ror__ = __and__, __or__

    def __invert__(self) -> "Mask":
        return _Not(self)


class Combined(Mask):
    """Two masks joined by ``&`` or ``|``."""

    def __init__(self, sign: str, one: Mask, other: Mask) -> None:
        self.sign, self.one, self.other = sign, one, other
        self.paddings = (*one.paddings, *other.paddings)
        self.tensors = (*one.tensors, *other.tensors)

    def for_heads(self, dims: int) -> Mask:
        return Combined(self.sign, self.one.for_heads(dims), self.other.for_heads(dims))

    def of_vectors(self, query: Tensor, key: Tensor, first: First | None) -> Mask:
        one, other = (part.of_vectors(query, key, first) for part in (self.one, self.other))
        if one is self.one and other is self.other:
            return self
        return Combined(self.sign, one, other)

    def rule(self, grid: Grid) -> Tensor:
        one, other = _structure(self.one, grid), _structure(self.other, grid)
        return one & other if self.sign == "&" else one | other


class _Not(Mask):
    def __init__(self, one: Mask) -> None:
        self.one, self.paddings, self.tensors = one, one.paddings, one.tensors

    def for_heads(self, dims: int) -> Mask:
        return _Not(self.one.for_heads(dims))

    def of_vectors(self, query: Tensor, key: Tensor, first: First | None) -> Mask:
        return _Not(self.one.of_vectors(query, key, first))

    def rule(self, grid: Grid) -> Tensor:
        return ~_structure(self.one, grid)


def _structure(mask: Mask, grid: Grid) -> Tensor:
    """The rule of a part of an expression, without padding; padding itself allows everything."""
    if mask.paddings == (mask,):
        return torch.ones((), dtype=torch.bool, device=grid.device)
    return mask.rule(grid)


class Dense(Mask):
    """A boolean matrix ``[.., Q, K]`` as a mask; see :func:`as_mask`.

    Example:
        >>> (~Dense(torch.tensor([[True, False]]))).dense((1, 2)).tolist()
        [[False, True]]
    """

    def __init__(self, matrix: Tensor) -> None:
        self.matrix, self.tensors = matrix, (matrix,)

    def for_heads(self, dims: int) -> Mask:
        return Dense(self.matrix.unsqueeze(-3)) if self.matrix.dim() == dims else self

    def rule(self, grid: Grid) -> Tensor:
        return grid.per_pair(self.matrix)


def as_mask(mask: "Mask | Tensor") -> Mask:
    """Convert booleans that broadcast to ``[.., Q, K]`` to a mask; return a mask unchanged.

    Raises:
        TypeError: the argument is neither.

    Example:
        >>> type(as_mask(torch.tensor([True, False]))).__name__
        'Dense'
    """
    if isinstance(mask, Mask):
        return mask
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        what = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise TypeError(
            f"mask must be boolean (true = may attend), a mask or numbers to add, not {what}"
        )
    return Dense(mask)
