"""Caches of fixed memory: steps equal the whole computation, whatever rows come, fork and go."""

import pytest
import torch
from torch import Tensor

from heedful.attention import (
    LatentAttention,
    Memory,
    MultiHeadAttention,
    PagedCache,
    StaticCache,
    masks,
)
from heedful.attention.positions import ALiBi, Rotary

B, H, G, D = 3, 4, 2, 6


def module(kind: str = "rotary") -> MultiHeadAttention:
    torch.manual_seed(1)
    if kind == "latent":
        return LatentAttention(H * D, H, 5, rotary=Rotary(4)).double().eval()
    positions = {"rotary": Rotary(D), "alibi": ALiBi(H), "none": None}[kind]
    return MultiHeadAttention(H * D, H, key_heads=G, positions=positions).double().eval()


def sizes(attention: MultiHeadAttention) -> dict[str, int]:
    memory = attention.remember(torch.zeros(1, 1, H * D, dtype=torch.float64))
    widths = {"key_width": memory.key.shape[-1], "value_width": memory.value.shape[-1]}
    return {"heads": memory.key.shape[1], **widths}


def stepped(
    attention: MultiHeadAttention, cache: StaticCache | PagedCache, x: Tensor, first: Tensor
) -> Tensor:
    memory = cache.append(attention.remember(x, first=first))
    return attention.read(x, memory, masks.causal(), first=first)


def whole(attention: MultiHeadAttention, x: Tensor) -> Tensor:
    return attention(x, x, mask=masks.causal())


@pytest.mark.parametrize("kind", ["rotary", "alibi", "none", "latent"])
@pytest.mark.parametrize("paged", [False, True])
def test_pieces_are_the_whole_computation(kind: str, paged: bool) -> None:
    """Rows of different lengths, pieces of several sizes, in float64."""
    attention, x = module(kind), torch.randn(B, 11, H * D, dtype=torch.float64)
    cache: StaticCache | PagedCache
    if paged:
        cache = PagedCache(20, 3, dtype=torch.float64, **sizes(attention))
        cache.add(B)
    else:
        cache = StaticCache(B, 13, dtype=torch.float64, **sizes(attention))
    expected, place = whole(attention, x), 0
    for size in (4, 1, 1, 3, 2):
        first = cache.lengths.clone()
        assert first.tolist() == [place] * B
        found = stepped(attention, cache, x[:, place : place + size], first)
        torch.testing.assert_close(found, expected[:, place : place + size], rtol=1e-12, atol=1e-12)
        place += size
    if isinstance(cache, StaticCache):
        cache.lengths.copy_(torch.tensor([2, 11, 5]))  # Two rows begin again from there.
        rows = [(0, 2), (1, 10), (2, 5)]
        cache.lengths[1] = 10
        step = torch.stack([x[row, [t]] for row, t in rows])
        found = stepped(attention, cache, step, cache.lengths.clone())
        wanted = torch.stack([expected[row, [t]] for row, t in rows])
        torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)


def test_rows_fork_grow_apart_and_leave() -> None:
    attention = module()
    torch.manual_seed(2)
    cache = PagedCache(16, 4, dtype=torch.float64, **sizes(attention))
    cache.add(2)
    texts = torch.randn(2, 6, H * D, dtype=torch.float64)
    stepped(attention, cache, texts, cache.lengths)
    assert cache.pages_in_use == 4
    cache.fork([1, 0, 1, 1])
    assert cache.pages_in_use == 4  # Shared.
    texts = texts[[1, 0, 1, 1]]
    for count in range(3):
        step = torch.randn(4, 1, H * D, dtype=torch.float64)
        texts = torch.cat([texts, step], 1)
        found = stepped(attention, cache, step, cache.lengths)
        torch.testing.assert_close(found, whole(attention, texts)[:, -1:], rtol=1e-12, atol=1e-12)
        # Full pages stay shared by the three rows: 2 pages, and 4 rows' own ones after them.
        assert cache.pages_in_use == (6 if count < 2 else 10)
    cache.free([0, 1])
    assert cache.pages_in_use == 5
    cache.add(1)
    assert cache.lengths.tolist() == [9, 9, 0]
    cache.fork([0, 1])
    step = torch.randn(2, 4, H * D, dtype=torch.float64)
    texts = torch.cat([texts[2:], step], 1)
    found = stepped(attention, cache, step, cache.lengths)
    torch.testing.assert_close(found, whole(attention, texts)[:, -4:], rtol=1e-12, atol=1e-12)
    cache.free([0, 1])
    assert cache.pages_in_use == 0
    assert cache.nbytes == 0


def test_rows_of_a_static_cache_are_selected() -> None:
    attention, x = module(), torch.randn(B, 5, H * D, dtype=torch.float64)
    cache = StaticCache(B, 8, dtype=torch.float64, **sizes(attention))
    stepped(attention, cache, x, cache.lengths.clone())
    rows, step = torch.tensor([2, 2, 0]), torch.randn(B, 1, H * D, dtype=torch.float64)
    cache.select(rows)
    found = stepped(attention, cache, step, cache.lengths.clone())
    expected = whole(attention, torch.cat([x[rows], step], 1))[:, -1:]
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    with pytest.raises(ValueError, match="this cache has 3 rows"):
        cache.select(rows[:2])


@pytest.mark.parametrize("kind", [StaticCache, PagedCache])
def test_integers_are_off_by_half_a_scale(kind: type) -> None:
    given = {"heads": G, "key_width": 64, "dtype": torch.float32}
    first = (B, 8) if kind is StaticCache else (8, 4)
    caches = [kind(*first, int8=int8, **given) for int8 in (False, True)]
    if kind is PagedCache:
        for cache in caches:
            cache.add(B)
    key, value = torch.randn(2, B, G, 7, 64) * torch.logspace(-6, 6, 7)[:, None]
    value[0, 0, 0] = 0.0
    exact, rounded = (cache.append(Memory(key, value)) for cache in caches)
    for one, other in zip(exact, rounded, strict=True):
        one, other = one[:, :, :7], other[:, :, :7]
        bound = one.abs().amax(-1, keepdim=True) / 254 * 1.0001
        assert bool(((one - other).abs() <= bound).all())
        assert not torch.equal(one, other)
    assert not rounded.value[0, 0, 0].any()
    # 1 byte for each component and 4 for the scale, instead of 4 for each component.
    assert caches[1].nbytes * 4 * 64 == caches[0].nbytes * (64 + 4)


def test_a_step_is_compiled_once() -> None:
    attention = module().float()
    cache = StaticCache(B, 16, **sizes(module()))
    compiled = 0

    def counting(graph: torch.fx.GraphModule, inputs: object) -> object:
        nonlocal compiled
        compiled += 1
        return graph.forward

    @torch.compile(fullgraph=True, backend=counting)
    def step(x: Tensor) -> Tensor:
        first = cache.lengths.clone()
        memory = cache.append(attention.remember(x, first=first))
        return attention.read(x, memory, masks.causal(), first=first)

    torch.manual_seed(3)
    x = torch.randn(B, 6, H * D)
    with torch.no_grad():
        found = torch.cat([step(x[:, [t]]) for t in range(6)], 1)
        torch.testing.assert_close(found, whole(attention, x))
    assert compiled == 1


@pytest.mark.parametrize("int8", [False, True])
def test_no_rows_and_no_positions_are_appended(int8: bool) -> None:
    cache = PagedCache(4, 2, heads=2, key_width=3, value_width=5, int8=int8)
    for new, added, kept in ((0, 0, 0), (2, 0, 0), (0, 3, 4), (0, 0, 4)):
        cache.add(new)
        rows = len(cache.lengths)
        step = Memory(torch.ones(rows, 2, added, 3), torch.ones(rows, 2, added, 5))
        memory = cache.append(step)
        assert memory.key.shape == (rows, 2, kept, 3)
        assert memory.value.shape == (rows, 2, kept, 5)
    assert cache.lengths.tolist() == [3, 3]


def test_too_many_positions_and_wrong_shapes_are_refused() -> None:
    cache = StaticCache(2, 4, heads=1, key_width=3)
    step = Memory(torch.ones(2, 1, 3, 3), torch.ones(2, 1, 3, 3))
    cache.append(step)
    with pytest.raises(ValueError, match=r"needs 6 places of this cache, which has 4.*length=6"):
        cache.append(step)
    with pytest.raises(ValueError, match=r"key \[2, 2, 1, 3\]: expected \[2, 1, positions, 3\]"):
        cache.append(Memory(torch.ones(2, 2, 1, 3), torch.ones(2, 1, 1, 3)))
    paged = PagedCache(3, 2, heads=1, key_width=3)
    paged.add(2)
    with pytest.raises(MemoryError, match="4 pages are needed and 3 of 3 are left"):
        paged.append(step)
    assert paged.lengths.tolist() == [0, 0]
    with pytest.raises(IndexError, match="row 2 of 2 rows"):
        paged.free([2])
    uneven = Memory(torch.ones(2, 1, 2, 3), torch.ones(2, 1, 1, 3))
    for one in (StaticCache(2, 4, heads=1, key_width=3), paged):
        with pytest.raises(ValueError, match="a step has 2 keys and 1 values in each row"):
            one.append(uneven)
    for given in ({"heads": 0}, {"key_width": 0}):
        with pytest.raises(ValueError, match="must be at least 1, not 0"):
            StaticCache(**{"rows": 1, "length": 1, "heads": 1, "key_width": 1} | given)
