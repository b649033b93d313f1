"""Key–value caches of fixed memory, for decoding in your own code.

    first = cache.lengths.clone()
    memory = cache.append(attention.remember(x, first=first))
    context = attention.read(x, memory, masks.causal(), first=first)

Rows of a batch may have different lengths: a row's first key is at position 0, and ``causal()``
with the positions of the queries masks the places after them, which are empty. A
:class:`StaticCache` has tensors of constant shapes, so that a compiled step is compiled once. A
:class:`PagedCache` has pages that rows take as they grow and share after a fork (Kwon et al. 2023,
"Efficient Memory Management for Large Language Model Serving with PagedAttention", section 4). Both
can store 8-bit integers.
Shapes: B rows, G heads of keys and values, L places, S places of a page, D and E widths.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from heedful.attention.modules import Memory

_LARGEST = 127


class _Store:
    """Vectors ``[N, G, L, D]``, as they are or as integers with a scale for each vector.

    A vector x is stored as round(x / s) with s = max |x| / 127, so that each component is off by at
    most s / 2.
    """

    def __init__(
        self, shape: Sequence[int], dtype: torch.dtype, device: torch.device | str, int8: bool
    ) -> None:
        self.dtype = dtype
        kind = torch.int8 if int8 else dtype
        self.vectors = torch.zeros(*shape, dtype=kind, device=device)
        self.scales: Tensor | None = None
        if int8:
            scale = torch.promote_types(dtype, torch.float32)
            self.scales = torch.zeros(*shape[:-1], 1, dtype=scale, device=device)

    @property
    def parts(self) -> list[Tensor]:
        return [self.vectors] if self.scales is None else [self.vectors, self.scales]

    def put(self, rows: Tensor, places: Tensor, vectors: Tensor) -> None:
        """Store ``vectors [M, G, D]`` in ``rows [M]`` at ``places [M]``."""
        if self.scales is None:
            self.vectors[rows, :, places] = vectors.to(self.dtype)
            return
        wide = vectors.to(self.scales.dtype)
        scales = wide.abs().amax(-1, keepdim=True) / _LARGEST
        whole = (wide / scales.masked_fill(scales == 0, 1.0)).round()
        self.vectors[rows, :, places] = whole.to(torch.int8)
        self.scales[rows, :, places] = scales

    def restored(self, vectors: Tensor, scales: Tensor | None) -> Tensor:
        """The vectors in their own type."""
        if scales is None:
            return vectors
        return (vectors.to(scales.dtype) * scales).to(self.dtype)


class StaticCache:
    """Keys and values in tensors whose shapes do not change while rows grow.

    Under ``torch.compile``, steps of equal size are compiled once.

    Args:
        rows: number of rows B.
        length: largest number of positions L of a row.
        heads: number of heads of keys and values G: ``attention.key_heads``.
        key_width: width D of a head's keys.
        value_width: width E of a head's values; default: D.
        dtype: type of keys and values.
        device: their device.
        int8: store 8-bit integers, with a scale for each vector. A component is then off by at most
            1/254 of the largest one of its vector.

    Raises:
        ValueError: a size is below 1.

    Source: of the integers: Dettmers et al. 2022, "LLM.int8()", section 2.1.

    Example:
        >>> cache, step = StaticCache(1, 5, heads=2, key_width=4), torch.ones(1, 2, 3, 4)
        >>> memory = cache.append(Memory(step, step))
        >>> memory.key.shape, cache.lengths.tolist()
        (torch.Size([1, 2, 5, 4]), [3])
    """

    def __init__(
        self,
        rows: int,
        length: int,
        *,
        heads: int,
        key_width: int,
        value_width: int | None = None,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        int8: bool = False,
    ) -> None:
        value_width = key_width if value_width is None else value_width
        _check_sizes(rows=rows, length=length, heads=heads, key_width=key_width)
        self.length = length
        self.lengths = torch.zeros(rows, dtype=torch.long, device=device)
        """The number of positions of each row ``[B]``; smaller numbers forget the last ones."""
        self._stores = [
            _Store((rows, heads, length, width), dtype, device, int8)
            for width in (key_width, value_width)
        ]

    @property
    def nbytes(self) -> int:
        """The bytes of all tensors."""
        return sum(part.nbytes for store in self._stores for part in store.parts)

    def append(self, step: Memory) -> Memory:
        """Add one or more positions ``[B, G, s, D]`` to each row.

        Returns:
            Keys ``[B, G, L, D]`` and values ``[B, G, L, E]``, zeros after a row's length. Without
            ``int8`` they are the cache's own tensors.

        Raises:
            ValueError: shapes do not match, or a row would be longer than ``length`` (not checked
                under ``torch.compile``, where indexing raises an error instead).
        """
        count = _check_step(step, self._stores, len(self.lengths))
        if not torch.compiler.is_compiling():
            longest = int(self.lengths.max()) + count
            if longest > self.length:
                raise ValueError(
                    f"a row needs {longest} places of this cache, which has {self.length}: make it "
                    f"with length={longest} or more"
                )
        places = self.lengths.unsqueeze(1) + torch.arange(count, device=self.lengths.device)
        rows = torch.arange(len(places), device=places.device).unsqueeze(1).expand_as(places)
        for store, vectors in zip(self._stores, step, strict=True):
            store.put(rows.flatten(), places.flatten(), vectors.transpose(1, 2).flatten(0, 1))
        self.lengths += count
        return Memory(*(store.restored(store.vectors, store.scales) for store in self._stores))

    def select(self, rows: Tensor) -> None:
        """Keep ``rows [B]``, in this order; a row may be repeated, as a beam does.

        Raises:
            ValueError: their number is not that of the cache's rows.
        """
        if len(rows) != len(self.lengths):
            raise ValueError(f"rows {list(rows.shape)}: this cache has {len(self.lengths)} rows")
        for store in self._stores:
            for part in store.parts:
                part.copy_(part[rows])
        self.lengths.copy_(self.lengths[rows])


class PagedCache:
    """Keys and values in pages of one pool, which rows take as they grow.

    Rows come and go with :meth:`add` and :meth:`free`. :meth:`fork` lets rows share pages; a shared
    page is copied when one of them writes to it. Memory in use is that of the pages in use.

    Args:
        pages: number of pages of the pool.
        page_size: number of positions S of a page.
        heads: number of heads of keys and values G: ``attention.key_heads``.
        key_width: width D of a head's keys.
        value_width: width E of a head's values; default: D.
        dtype: type of keys and values.
        device: their device.
        int8: store 8-bit integers; see :class:`StaticCache`.

    Raises:
        ValueError: a size is below 1.

    Source: Kwon et al. 2023, sections 4.1 to 4.4.

    Example:
        >>> cache, step = PagedCache(8, 2, heads=2, key_width=4), torch.ones(2, 2, 3, 4)
        >>> rows, memory = cache.add(2), cache.append(Memory(step, step))
        >>> cache.pages_in_use, memory.key.shape
        (4, torch.Size([2, 2, 4, 4]))
        >>> cache.free([0]), cache.pages_in_use
        (None, 2)
    """

    def __init__(
        self,
        pages: int,
        page_size: int,
        *,
        heads: int,
        key_width: int,
        value_width: int | None = None,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        int8: bool = False,
    ) -> None:
        value_width = key_width if value_width is None else value_width
        _check_sizes(pages=pages, page_size=page_size, heads=heads, key_width=key_width)
        self.page_size = page_size
        self._stores = [
            _Store((pages, heads, page_size, width), dtype, device, int8)
            for width in (key_width, value_width)
        ]
        self._tables: list[list[int]] = []
        self._lengths: list[int] = []
        self._readers = [0] * pages
        self._unused = list(range(pages - 1, -1, -1))
        self.device = torch.device(device)

    @property
    def lengths(self) -> Tensor:
        """The number of positions of each row ``[B]``."""
        return torch.tensor(self._lengths, dtype=torch.long, device=self.device)

    @property
    def pages_in_use(self) -> int:
        """The number of pages that some row reads."""
        return len(self._readers) - len(self._unused)

    @property
    def nbytes(self) -> int:
        """The bytes of the pages in use."""
        whole = sum(part.nbytes for store in self._stores for part in store.parts)
        return whole // len(self._readers) * self.pages_in_use

    def add(self, count: int) -> list[int]:
        """Append empty rows; returns their numbers."""
        first = len(self._lengths)
        self._tables += [[] for _ in range(count)]
        self._lengths += [0] * count
        return list(range(first, first + count))

    def free(self, rows: Sequence[int]) -> None:
        """Remove rows. The others keep their order, and pages that no row reads can be reused.

        Raises:
            IndexError: a row does not exist.
        """
        gone = self._checked(rows)
        self.fork([row for row in range(len(self._lengths)) if row not in gone])

    def fork(self, rows: Sequence[int]) -> None:
        """Keep these rows, in this order; repeated ones share their pages.

        Raises:
            IndexError: a row does not exist.
        """
        self._checked(rows)
        chosen = [list(self._tables[row]) for row in rows]
        for table in chosen:
            for page in table:
                self._readers[page] += 1
        for table in self._tables:
            self._release(table)
        self._tables, self._lengths = chosen, [self._lengths[row] for row in rows]

    def append(self, step: Memory) -> Memory:
        """Add one or more positions ``[B, G, s, D]`` to each row.

        Returns:
            Keys ``[B, G, T, D]`` and values ``[B, G, T, E]`` for the T places of the longest row's
            pages; what is after a row's length has no meaning.

        Raises:
            ValueError: shapes do not match.
            MemoryError: there are not enough pages; no row has changed.
        """
        count = _check_step(step, self._stores, len(self._lengths))
        self._reserve(count)
        rows = [
            (table[place // self.page_size], place % self.page_size)
            for table, length in zip(self._tables, self._lengths, strict=True)
            for place in range(length, length + count)
        ]
        written = torch.tensor(rows, dtype=torch.long, device=self.device)
        pages, places = written.view(len(rows), 2).T
        for store, vectors in zip(self._stores, step, strict=True):
            store.put(pages, places, vectors.transpose(1, 2).flatten(0, 1))
        self._lengths = [length + count for length in self._lengths]
        return self._gathered()

    def _gathered(self) -> Memory:
        most = max((len(table) for table in self._tables), default=0)
        tables = [table + [0] * (most - len(table)) for table in self._tables]
        index = torch.tensor(tables, dtype=torch.long, device=self.device).view(len(tables), most)
        found = []
        for store in self._stores:
            parts = [part[index].transpose(1, 2).flatten(2, 3) for part in store.parts]
            found.append(store.restored(parts[0], parts[1] if len(parts) > 1 else None))
        return Memory(*found)

    def _reserve(self, count: int) -> None:
        """Give each row the pages for ``count`` positions more, of which it alone writes to."""
        size = self.page_size
        wanted = [-(-(length + count) // size) for length in self._lengths]
        copied = self._shared_pages() if count else []
        needed = len(copied) + sum(
            pages - len(table) for pages, table in zip(wanted, self._tables, strict=True)
        )
        if needed > len(self._unused):
            raise MemoryError(
                f"{needed} pages are needed and {len(self._unused)} of {len(self._readers)} are "
                "left: free rows, or make the cache with more pages"
            )
        for row in copied:
            table = self._tables[row]
            old, table[-1] = table[-1], self._take()
            self._release([old])
            for store in self._stores:
                for part in store.parts:
                    part[table[-1]] = part[old]
        for pages, table in zip(wanted, self._tables, strict=True):
            table += [self._take() for _ in range(pages - len(table))]

    def _shared_pages(self) -> list[int]:
        """The rows whose last page is not full, and is also read by another row that keeps it."""
        readers, found = list(self._readers), []
        for row, (table, length) in enumerate(zip(self._tables, self._lengths, strict=True)):
            if length % self.page_size and readers[table[-1]] > 1:
                readers[table[-1]] -= 1
                found.append(row)
        return found

    def _take(self) -> int:
        page = self._unused.pop()
        self._readers[page] = 1
        return page

    def _release(self, table: Sequence[int]) -> None:
        for page in table:
            self._readers[page] -= 1
            if self._readers[page] == 0:
                self._unused.append(page)

    def _checked(self, rows: Sequence[int]) -> set[int]:
        for row in rows:
            if not 0 <= row < len(self._lengths):
                raise IndexError(f"row {row} of {len(self._lengths)} rows")
        return set(rows)


def _check_sizes(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} must be at least 1, not {size}")


def _check_step(step: Memory, stores: Sequence[_Store], rows: int) -> int:
    """The number of positions of a step; raise ValueError unless it fits."""
    for name, part, store in zip(("key", "value"), step, stores, strict=True):
        heads, width = store.vectors.shape[1], store.vectors.shape[3]
        if part.dim() != 4 or (part.shape[0], part.shape[1], part.shape[3]) != (rows, heads, width):
            raise ValueError(
                f"{name} {list(part.shape)}: expected [{rows}, {heads}, positions, {width}]"
            )
    count = step.key.shape[2]
    if step.value.shape[2] != count:
        raise ValueError(f"a step has {count} keys and {step.value.shape[2]} values in each row")
    return count
