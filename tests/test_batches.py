"""Batches of texts for prediction, and the memory that they free."""

import pytest

from heedful.inference import batches
from heedful.inference.batches import Item, token_batches
from heedful.kernels import allocator
from heedful.kernels.allocator import FreedMemory


@pytest.fixture
def returned(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One number each time that memory is returned."""
    seen: list[int] = []
    monkeypatch.setattr(allocator, "return_freed_memory", lambda: seen.append(len(seen)))
    return seen


def test_memory_is_returned_after_so_much_work(returned: list[int]) -> None:
    memory = FreedMemory(10)
    memory.count(9)
    assert not returned
    memory.count(1)
    memory.count(9)
    assert len(returned) == 1
    memory.count(100)
    assert len(returned) == 2


@pytest.mark.parametrize(("width", "expected"), [(1, 2), (4, 8)])
def test_large_batches_return_memory(
    width: int, expected: int, returned: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "_freed", FreedMemory(100))
    items = [Item(line, 0, [5] * 9) for line in range(25)]  # 10 tokens each, with END
    found = list(token_batches(items, width, 10 * width))
    assert len(found) == 25
    assert len(returned) == expected
