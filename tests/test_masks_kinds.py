"""Every kind of mask against its definition, the rule on padding, and FlexAttention's form."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention.flex_attention import flex_attention

from heedful.attention import attend, dot, masks
from heedful.attention.mechanism import FusedForm

DOCUMENTS = torch.tensor([[0, 0, 1, 1, 1, 2, 2], [3, 3, 3, 3, 3, 3, 4]])


@given(
    st.integers(1, 7), st.integers(1, 7), st.integers(0, 3), st.integers(0, 3), st.integers(1, 4)
)
@settings(max_examples=40, deadline=None)
def test_kinds_mean_what_they_say(
    queries: int, keys: int, before: int, after: int, size: int
) -> None:
    def table(mask: masks.Mask) -> list[list[bool]]:
        rows: list[list[bool]] = mask.dense((queries, keys)).expand(queries, keys).tolist()
        return rows

    window = table(masks.window(before, after))
    block = table(masks.block(size))
    even = table(masks.function(lambda query, key: (query + key) % 2 == 0))
    prefix = masks.prefix(torch.tensor([before])).dense((1, queries, keys))[0].tolist()
    for row in range(queries):
        query = row + keys - queries  # The last query stands at the last key.
        for key in range(keys):
            assert window[row][key] == (query - before <= key <= query + after)
            assert block[row][key] == (query // size == key // size)
            assert even[row][key] == ((query + key) % 2 == 0)
            assert prefix[row][key] == (key <= query or key < before)


def test_documents_keep_to_themselves() -> None:
    allowed = masks.document(DOCUMENTS).dense((2, 4, 7, 7))
    assert allowed.shape == (2, 1, 7, 7)
    for entry in range(2):
        same = DOCUMENTS[entry][:, None] == DOCUMENTS[entry][None]
        assert allowed[entry, 0].equal(same)
    one = masks.document(torch.tensor([5]), torch.tensor([4, 5, 5]))  # a cache: one query
    assert one.dense((1, 3)).tolist() == [[False, True, True]]


def test_padding_is_applied_last_whatever_the_expression() -> None:
    padding, shape = masks.padding(torch.tensor([2])), (1, 3, 3)
    real = padding.dense(shape)
    causal = masks.causal().dense(shape)
    for mask, expected in (
        (masks.causal() & padding, causal & real),
        (~(masks.causal() & padding), ~causal & real),
        (masks.causal() | padding, real),
        (~masks.causal() | (masks.causal() & padding), real),
        (~padding, torch.zeros(shape, dtype=torch.bool)),
        (padding & masks.padding(torch.tensor([1])), torch.arange(3) < 1),
    ):
        assert mask.dense(shape).expand(shape).equal(expected.expand(shape))


def test_tensors_join_in() -> None:
    table = torch.tensor([[True, False], [True, True]])
    assert (masks.causal() & table).dense((2, 2)).equal(table)
    assert (table & masks.causal()).dense((2, 2)).equal(table)
    assert (~masks.as_mask(table)).dense((2, 2)).equal(~table)
    with pytest.raises(TypeError, match=r"mask must be boolean .* not torch.float32"):
        masks.causal() & torch.zeros(2, 2)


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_rows_and_tiles_are_parts_of_the_whole(data: st.DataObject) -> None:
    shape = (2, 3, 7, 7)
    mask = (masks.causal() | masks.block(3)) & masks.document(DOCUMENTS) & masks.window(4)
    mask = mask & masks.padding(torch.tensor([6, 3])) & (torch.arange(49).view(7, 7) % 5 > 0)
    whole = mask.dense(shape).expand(shape)
    rows = torch.tensor(data.draw(st.lists(st.integers(0, 6), min_size=1, max_size=5)))
    start = data.draw(st.integers(0, 6))
    stop = data.draw(st.integers(start + 1, 7))
    grid = masks.Grid(shape, torch.device("cpu"), rows=rows, columns=(start, stop))
    part = mask.allows(grid)
    expected = whole[..., rows, start:stop]
    assert part.expand(expected.shape).equal(expected)


FLEX = {
    "causal": masks.causal(),
    "window and padding": masks.window(20, 5) & masks.padding(torch.tensor([100, 64])),
    "document": masks.document(torch.arange(128).view(1, -1) // 50) | masks.block(16),
    "not": ~(masks.causal() & masks.padding(torch.tensor([128, 90]))),
    "table": masks.as_mask(torch.arange(128 * 128).view(128, 128) % 3 > 0),
    "prefix": masks.prefix(torch.tensor([17, 0])),
}


@pytest.mark.filterwarnings("ignore:flex_attention called without")
@pytest.mark.parametrize("name", FLEX)
def test_the_block_form_gives_what_ours_gives(name: str) -> None:
    torch.manual_seed(0)
    query, key, value = (torch.randn(2, 2, 128, 16) for _ in range(3))
    block = masks.flex_mask(FLEX[name], (2, 2, 128, 128))
    expected = flex_attention(query, key, value, block_mask=block)
    found = attend(query, key, value, mask=FLEX[name])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_numbers_are_added_and_minus_infinity_masks() -> None:
    torch.manual_seed(1)
    query, key, value = (torch.randn(2, 5, 4, dtype=torch.float64) for _ in range(3))
    bias = torch.randn(5, 5, dtype=torch.float64)
    scores = query @ key.transpose(1, 2) / 2 + bias
    expected = torch.softmax(scores, -1) @ value
    torch.testing.assert_close(attend(query, key, value, mask=bias), expected)
    allowed = torch.rand(5, 5) > 0.4
    allowed[2] = False
    for nothing in (float("-inf"), torch.finfo(torch.float64).min):
        numbers = torch.zeros(5, 5, dtype=torch.float64).masked_fill(~allowed, nothing)
        by_numbers = attend(query, key, value, mask=numbers)
        torch.testing.assert_close(by_numbers, attend(query, key, value, mask=allowed))
        assert by_numbers[:, 2].eq(0).all()


def test_finite_numbers_stay_finite_with_half_queries() -> None:
    torch.manual_seed(2)
    x = torch.randn(1, 2, 5, 4)
    numbers = torch.zeros(5, 5)
    numbers[0, 1], numbers[1], numbers[2, :2] = 1e5, -1e5, -1e5
    found = attend(*[x.half()] * 3, mask=numbers)
    torch.testing.assert_close(found.float(), attend(x, x, x, mask=numbers), atol=5e-3, rtol=0)


def test_wrong_kinds_are_refused() -> None:
    with pytest.raises(ValueError, match="before=-1 and after=-1 of a window must be at least 0"):
        masks.window(-1)
    with pytest.raises(ValueError, match="at least 1 position, not 0"):
        masks.block(0)
    with pytest.raises(TypeError, match="query_documents must be integers"):
        masks.document(torch.zeros(3))
    with pytest.raises(TypeError, match="lengths must be a tensor of integers, not list"):
        masks.padding([1, 2])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"expected one number for each query \(4\)"):
        masks.document(torch.zeros(3, dtype=torch.long)).dense((4, 3))
    with pytest.raises(TypeError, match="must return a boolean tensor, not"):
        masks.function(lambda query, key: query - key).dense((2, 2))
    with pytest.raises(ValueError, match=r"shape must be \[B, H, Q, K\], not \[2, 2\]"):
        masks.flex_mask(masks.causal(), (2, 2))
    with pytest.raises(ValueError, match=r"mask \[3, 3\] does not broadcast .* \[2, 2\]"):
        attend(torch.zeros(2, 4), torch.zeros(2, 4), torch.zeros(2, 4), mask=torch.zeros(3, 3))


@pytest.mark.filterwarnings("ignore:flex_attention called without")
@pytest.mark.parametrize("name", [*FLEX, "nothing at first"])
@pytest.mark.parametrize("grouped", [False, True])
def test_large_masks_go_by_blocks_of_rows(
    name: str, grouped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outputs and gradients; the whole mask is never made."""
    torch.manual_seed(2)
    mask = {**FLEX, "nothing at first": masks.function(lambda q, k: (q > 40) & (k > 9))}[name]
    query, key, value = (
        torch.randn(2, heads, 128, 8, dtype=torch.float64, requires_grad=True)
        for heads in ((4, 2, 2) if grouped else (4, 4, 4))
    )
    grid = masks.Grid((2, 4, 128, 128), torch.device("cpu"))

    def results() -> list[torch.Tensor]:
        out = dot.dot_context(query, key, value, mask, grid, form=FusedForm(0.3))
        return [out, *torch.autograd.grad(out.square().sum(), (query, key, value))]

    whole = results()
    monkeypatch.setattr(dot, "_LARGE", 1)
    monkeypatch.setattr(dot, "_BLOCK", 20)
    for ours, theirs in zip(results(), whole, strict=True):
        torch.testing.assert_close(ours, theirs)
    with torch.no_grad():  # FlexAttention has no backward on the CPU.
        inputs = (part.detach() for part in (query, key, value))
        flex = dot.flex_context(*inputs, mask, grid, form=FusedForm(0.3), compiled=False)
    torch.testing.assert_close(flex, whole[0])
