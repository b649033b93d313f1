"""Fuzz tests of all C functions: random shapes, strides, masks and extreme values.

Results are compared with formulas in float64. Rows next to a row with NaN or infinity must not
change. Tensors end where their memory ends and have NaN in their gaps, so that reading outside them
is an error under ``make sanitize`` or gives NaN. ``HEEDFUL_FUZZ`` is the number of cases.
"""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fuzz_help import NOT_FINITE, Draw, assert_others_equal, doubled, each_case
from heedful.inference.fusing import searched
from heedful.kernels import additive_compiled as compiled
from heedful.kernels import cached_attention as steps
from heedful.kernels import cross_entropy_compiled as compiled_losses
from heedful.kernels import dropout, program
from heedful.kernels import recurrent_cell as cells
from heedful.kernels import recurrent_direction_compiled as directions
from heedful.kernels import short_attention as short
from heedful.kernels import short_attention_operators as short_operators
from heedful.kernels import source_attention as reading
from heedful.kernels import topk as top
from heedful.kernels.additive_tiles import plain_scores
from heedful.kernels.recurrent_cell import Cell, cell_step
from heedful.kernels.recurrent_direction import Direction, direction
from heedful.layers.bfloat16_linear import bfloat16_copy
from heedful.layers.int8_linear import int8_copy, largest_input
from heedful.models.pairs import Source
from heedful.models.transformer import Transformer, TransformerSettings
from tolerance import assert_near, largest

pytestmark = pytest.mark.skipif(short.library() is None, reason="there is no C compiler here")


@each_case
def test_short_attention(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = Draw(seed)
    draw.threads(monkeypatch, short)
    batch, groups, each = draw.size(4), draw.size(3), draw.size(3)
    heads, queries, keys = groups * each, draw.size(), draw.size()
    widths = draw.size(65), draw.size(65)
    scale = draw.scale()
    query = draw.numbers(batch, heads, queries, widths[0], scale=scale).requires_grad_()
    key = draw.numbers(batch, groups, keys, widths[0]).requires_grad_()
    value = draw.numbers(batch, groups, keys, widths[1]).requires_grad_()
    shape = (batch, heads, queries, keys)
    masks = [(keys,), (queries, keys), (batch, 1, 1, keys), (batch, 1, queries, keys), shape]
    mask = draw.mask(*draw.random.choice(masks)) if draw.random.random() < 0.7 else None
    is_causal = draw.random.random() < 0.3
    context = short_operators.short_attention(query, key, value, mask, is_causal, 0.3)
    by_context = draw.numbers(batch, heads, queries, widths[1])
    found = torch.autograd.grad(context, (query, key, value), by_context)

    seen = torch.ones(shape, dtype=torch.bool) if mask is None else mask.expand(shape)
    seen = seen.tril(keys - queries) if is_causal else seen
    wide = doubled(query, key, value)
    q, k, v = wide[0], *(part.repeat_interleave(each, 1) for part in wide[1:])
    weights = (q @ k.mT * 0.3).masked_fill(~seen, -torch.inf).softmax(-1)
    expected = weights.masked_fill(~seen, 0.0) @ v
    by_all = torch.autograd.grad(expected.nan_to_num(0.0), wide, by_context.double())
    spread = max(1.0, scale)  # scores of that size are rounded by that much
    assert_near(context.detach(), expected.detach(), terms=200, size=4 * spread)
    for one, other in zip(found, by_all, strict=True):
        size = spread * max(1.0, float(other.nan_to_num(0.0).abs().max()))
        assert_near(one, other.nan_to_num(0.0), terms=3000, size=8 * size)

    rows = query.detach().permute(2, 0, 1, 3)  # a query's row is one of all entries and heads
    other, row = draw.spoiled(rows)
    if not is_causal:
        again = short_operators.short_attention(
            other.permute(1, 2, 0, 3), key, value, mask, False, 0.3
        )
        clean = context.detach().permute(2, 0, 1, 3)
        assert_others_equal(again.detach().permute(2, 0, 1, 3), clean, row)


@each_case
def test_steps(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = Draw(seed)
    draw.threads(monkeypatch, steps)
    rows, groups, each = draw.rows(), draw.size(3), draw.size(3)
    widths = draw.size(65), draw.size(65)
    made, columns = steps.Steps(), []
    for _ in range(draw.size(5)):
        count, positions = draw.size(5), draw.size(17)
        made.append(*(draw.numbers(count, groups, positions, width) for width in widths))
        columns.append(torch.randint(count, (rows, 1)).expand(rows, positions))
    index = torch.cat(columns, 1)
    firsts, lengths = (torch.randint(made.length + 1, (rows,)) for _ in range(2))
    lengths = torch.minimum(lengths, made.length - firsts)
    query = draw.numbers(rows, groups * each, widths[0], scale=draw.scale())
    found = made.read(query, index, lengths, 0.3, firsts)

    places = torch.arange(made.length)
    there = (places >= firsts[:, None]) & (places < (firsts + lengths)[:, None])
    key, value = (part.double().repeat_interleave(each, 1) for part in made.gather(index))
    scores = 0.3 * (query.double().unsqueeze(2) @ key.mT)
    weights = scores.masked_fill(~there[:, None, None], -torch.inf).softmax(-1).nan_to_num(0.0)
    size = 4 * max(1.0, float(scores.abs().max()) if rows else 0.0)
    assert_near(found, (weights @ value).squeeze(2), terms=100, size=size)
    if rows:
        other, row = draw.spoiled(query)
        assert_others_equal(made.read(other, index, lengths, 0.3, firsts), found, row)


@each_case
def test_sources(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = Draw(seed)
    draw.threads(monkeypatch, reading)
    rows, positions, width, value_width = draw.rows(), draw.size(), draw.size(65), draw.size(65)
    sources = rows + draw.size(3)
    order = torch.randperm(sources)[:rows]
    key, value = draw.numbers(sources, positions, width), draw.numbers(sources, 1, value_width)
    value = value.expand(-1, positions, -1) + draw.numbers(sources, positions, value_width)
    vector = draw.random.choice([None, draw.numbers(width)])
    allowed = draw.mask(sources, 1, positions)
    query = draw.apart(draw.numbers(rows, width, scale=draw.scale()))
    read = reading.Sources(key, value, allowed, order, vector, 0.3)
    contexts, weights = torch.empty(rows, value_width), torch.empty(rows, positions)
    read.read(query, contexts, weights)
    by_context = draw.numbers(rows, value_width, dense=True)
    by_query = draw.apart(torch.empty(rows, width))
    by_key, by_vector = torch.zeros_like(read.key), torch.zeros(rows, width)
    read.read_backward(query, weights, by_context, by_query, by_key, by_vector)

    wide = doubled(query, key, *([] if vector is None else [vector]))
    own, there = wide[1][order], allowed[order].squeeze(1)
    both = wide[0].unsqueeze(1)
    scores = (both @ own.mT).squeeze(1) if vector is None else torch.tanh(both + own) @ wide[2]
    scores = (0.3 * scores).masked_fill(~there, -torch.inf)
    shares = scores.softmax(1).masked_fill(~there, 0.0)
    expected = (shares.unsqueeze(1) @ value[order].double()).squeeze(1)
    by_all = torch.autograd.grad(expected, wide, by_context.double())
    size = 8 * max(1.0, largest(scores))
    assert_near(contexts, expected.detach(), terms=200, size=size)
    found = [by_query, by_key, by_vector.sum(0)]
    for one, other in zip(found, by_all, strict=False):
        other = other.nan_to_num(0.0)
        assert_near(one, other, terms=3000, size=size * max(1.0, largest(other)))
    if rows:
        other, row = draw.spoiled(query)
        again = torch.empty_like(contexts)
        read.read(other, again)
        assert_others_equal(again, contexts, row)


@each_case
def test_additive_scores(seed: int) -> None:
    draw = Draw(seed)
    library = compiled.library()
    assert library is not None
    entries, queries, keys, width = draw.size(3), draw.size(), draw.size(), draw.size(65)
    spread = draw.random.choice([1.0, 20.0, 1e4, 1e36])  # beyond what exponentials can hold
    a = draw.numbers(entries, queries, width) * spread
    b, v = draw.numbers(entries, keys, width) * spread, draw.numbers(width)
    rows, some = slice(queries // 3, queries), slice(keys // 4, keys)
    tiles = compiled.CompiledTiles(library, a, b, v, draw.random.choice([1, 3]))
    g = draw.numbers(entries, rows.stop - rows.start, some.stop - some.start)
    wide = doubled(a, b, v)
    expected = plain_scores(wide[0][:, rows], wide[1][:, some], wide[2])
    found = tiles.scores(rows, some)
    assert_near(found, expected.detach(), terms=width, size=float(v.abs().sum()))
    by_all = torch.autograd.grad(expected, wide, g.double())
    tiles.start_gradients()
    tiles.add_gradients(rows, some, g)
    size = max(1.0, largest(v)) * float(g.abs().sum(2).max() + g.abs().sum(1).max())
    for one, other, terms in zip(tiles.collect(), by_all, (keys, queries, g.numel()), strict=True):
        own = size if one.dim() > 1 else float(g.abs().sum())
        assert_near(one, other, terms=terms, size=2 * own)
    other, row = draw.spoiled(a.transpose(0, 1))
    again = compiled.CompiledTiles(library, other.transpose(0, 1), b, v, 1).scores(rows, some)
    found, again = (
        F.pad(one.transpose(0, 1), (0, 0, 0, 0, rows.start, 0)) for one in (found, again)
    )
    assert_others_equal(again, found, row)


@each_case
def test_losses(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = Draw(seed)
    draw.threads(monkeypatch)
    rows, width = draw.random.choice([1, 7, 119, 120, 121, 250]), draw.size(65)
    symbols = draw.random.choice([1, 2, 31, 95, 97, 479, 480, 481, 700, 961])
    scale, smoothing = draw.scale(), draw.random.choice([0.0, 0.1])
    states = draw.numbers(rows, width, scale=scale)
    table, labels = draw.numbers(symbols, width), torch.randint(symbols, (rows,))
    smooth, exact, *found = compiled_losses.losses_in_c(states, table, labels, smoothing)
    wide = doubled(states, table)
    logits = wide[0] @ wide[1].mT
    expected = F.cross_entropy(logits, labels, reduction="sum", label_smoothing=smoothing)
    each = F.cross_entropy(logits, labels, reduction="none")
    size = max(1.0, largest(logits))
    assert_near(exact, each.detach(), terms=width, size=8 * size)
    assert_near(smooth, expected.detach(), terms=width, size=8 * size * rows)
    by_all = torch.autograd.grad(expected, wide)
    for one, other in zip(found, by_all, strict=True):
        own = max(1.0, largest(states), largest(table)) * size
        assert_near(one, other, terms=max(rows, symbols), size=own)
    other, row = draw.spoiled(states)
    again = compiled_losses.losses_in_c(other, table, labels, smoothing)
    assert_others_equal(again[1], exact, row)
    assert not again[1][row].isfinite()


@each_case
@pytest.mark.parametrize("kind", ["rnn", "gru", "lstm"])
def test_cells(kind: Cell, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = Draw(seed)
    draw.threads(monkeypatch, cells)
    rows, units, parts = draw.rows(), draw.size(), 2 if kind == "lstm" else 1
    gates, spread = {"rnn": 1, "gru": 3, "lstm": 4}[kind] * units, draw.scale()
    share = draw.numbers(rows, gates, scale=spread, dense=True)
    recurrent = draw.apart(draw.numbers(rows, gates))
    before = [draw.numbers(rows, units, dense=True) for _ in range(parts)]
    by_after = [draw.numbers(rows, units, dense=True) for _ in range(parts)]
    wide = doubled(share, recurrent, *before)
    after = cell_step(kind, wide[0], wide[1], tuple(wide[2:]))
    by_all = torch.autograd.grad(
        after, wide, [one.double() for one in by_after], materialize_grads=True
    )
    cell, made = cells.CompiledCell(kind, units), [torch.empty(rows, units) for _ in range(parts)]
    opened = torch.empty_like(share)
    cell.step(share, opened, recurrent, before, made)
    size = 8 * max(1.0, spread)
    for one, other in zip(made, after, strict=True):
        assert_near(one, other.detach(), terms=4, size=size)
    by_state = [torch.zeros(rows, units), *(part.clone() for part in by_after[1:])]
    by_share, by_recurrent = torch.empty_like(share), draw.apart(torch.empty(rows, gates))
    both = before, made
    cell.step_backward(opened, recurrent, *both, by_after[0], by_state, by_share, by_recurrent)
    for one, other in zip([by_share, by_recurrent, *by_state], by_all, strict=True):
        assert_near(one, other, terms=8, size=2 * size * max(1.0, largest(other)))
    if rows:
        other, row = draw.spoiled(share)
        again = [torch.empty(rows, units) for _ in range(parts)]
        cell.step(draw.placed(other, dense=True), None, recurrent, before, again)
        assert_others_equal(again[0], made[0], row)


@each_case
@pytest.mark.parametrize("kind", ["rnn", "gru", "lstm"])
def test_directions(kind: Cell, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = Draw(seed)
    draw.threads(monkeypatch, directions)
    sizes = sorted(1 + draw.random.randrange(30) for _ in range(draw.random.choice([1, 2, 6])))
    sizes, backwards = sizes[::-1], draw.random.random() < 0.5
    units, tokens = draw.size(65), sum(sizes)
    gates = {"rnn": 1, "gru": 3, "lstm": 4}[kind] * units
    given = [
        draw.numbers(tokens, gates, scale=draw.scale()),
        draw.numbers(gates, units, scale=units**-0.5),
        draw.numbers(gates),
    ]
    leaves = [one.clone().requires_grad_() for one in given]
    found = direction(kind, sizes, backwards, *leaves)
    wide = doubled(*given)
    expected = Direction().plain(wide, (kind, sizes, backwards))
    by = [torch.randn_like(one) for one in found]
    for one, other in zip(found, expected, strict=True):
        assert_near(one.detach(), other.detach(), terms=4 * units, size=8 * max(1, largest(other)))
    grads = torch.autograd.grad(found, leaves, by)
    wanted = torch.autograd.grad(expected, wide, [one.double() for one in by])
    size = 8 * max(1.0, largest(given[0]), *(largest(one) for one in wanted))
    for one, other in zip(grads, wanted, strict=True):
        assert_near(one, other, terms=8 * units + tokens, size=size)
    spoiled, token = draw.spoiled(given[0])
    sequences = torch.cat([torch.arange(count) for count in sizes])
    again = direction(kind, sizes, backwards, spoiled, *given[1:])[0]
    others = sequences != sequences[token]
    assert torch.equal(again[others], found[0][others])


@each_case
def test_dropout(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = Draw(seed)
    draw.threads(monkeypatch, dropout)
    hidden = draw.numbers(draw.rows(), draw.size(), scale=draw.scale())
    if hidden.numel():
        hidden, _ = draw.spoiled(hidden)
    share = draw.random.choice([0.0, 1e-6, 0.1, 0.5, 0.99999])
    state = torch.get_rng_state()
    found = dropout.dropout(hidden, share)
    torch.set_rng_state(state)
    monkeypatch.setattr(dropout, "library", lambda: None)
    torch.testing.assert_close(
        found, dropout.dropout(hidden, share), rtol=0, atol=0, equal_nan=True
    )


@each_case
def test_best(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = Draw(seed)
    draw.threads(monkeypatch, top)
    for _ in range(10):
        compare_best(draw)


def compare_best(draw: Draw) -> None:
    rows, first = draw.rows(9), draw.random.randint(0, 5)
    width = first + draw.random.choice([1, 5, 9, 9, 12, 12, 127, 128, 129, 300, 3001])
    k = draw.random.randint(0, min(9, width - first))
    logits = torch.randn(rows, width) * draw.scale()
    logits = logits.round() if draw.random.random() < 0.3 else logits  # many are equal
    share = draw.random.choice([0.0, 0.5, 0.8, 0.99, 1.0])
    logits[torch.rand(rows, width) < share] = -torch.inf
    for _ in range(draw.random.choice([0, 0, 2]) if rows else 0):
        logits[draw.random.randrange(rows), draw.random.randrange(width)] = math.nan
    found = top.best(draw.placed(logits), k, first)
    # What is not a number is offered last, as minus infinity is; of equal ones the first.
    offered = logits[:, first:].nan_to_num(-torch.inf, torch.inf, -torch.inf)
    values, columns = offered.sort(dim=1, descending=True, stable=True)
    assert torch.equal(found.logits, values[:, :k])
    assert torch.equal(found.tokens, columns[:, :k] + first)
    total = found.total.largest.double() + found.total.rest
    expected = logits.double().logsumexp(1)
    expected[~logits.isfinite().any(1)] = math.nan  # as log-probabilities then are
    # One logarithm of a sum near 1 loses the digits that 1 has.
    assert_near(total, expected, terms=1, size=max(1.0, largest(expected)))


def translator(draw: Draw) -> Transformer:
    heads = draw.size(4)
    settings = {
        "layers": draw.random.choice([1, 2]),
        "hidden_size": heads * 2 * draw.size(9),
        "heads": heads,
        "ffn_size": draw.size(),
        "max_length": 40,
        "tied_embeddings": "none",
        "pre_norm": draw.random.random() < 0.5,
        "activation": draw.random.choice(["relu", "silu", "gelu-tanh"]),
        "output_bias": draw.random.random() < 0.5,
    }
    symbols = 20 + draw.size()
    return Transformer(TransformerSettings.model_validate(settings), symbols, symbols).eval()


def logits_of(model: Any, source: Source, tokens: Tensor) -> Tensor:
    """Logits of the fused step after each column of ``tokens``."""
    state = searched(model).start(source)
    assert state.fused is not None
    for place in range(tokens.shape[1]):
        logits, state = searched(model).step(tokens[:, place], state)
    return logits


@each_case
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
@torch.no_grad()
def test_fused_steps(precision: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = Draw(seed)
    draw.threads(monkeypatch)
    exact = translator(draw)
    if precision == "int8" and fused_largest() != largest_input():
        pytest.skip("this processor's whole numbers are others than PyTorch's")
    copies = {"bfloat16": bfloat16_copy, "int8": int8_copy}
    rows, length = draw.random.choice([1, 2, 5, 13, 100]), draw.size(17)
    lengths = torch.randint(1, length + 1, (rows,))
    lengths[0] = length
    source = torch.randint(6, 20, (rows, length))
    source.masked_fill_(torch.arange(length) >= lengths[:, None], 0)
    tokens = torch.randint(6, 20, (rows, 3))
    given = Source(source, lengths)
    model = copies.get(precision, lambda plain: plain)(exact)
    clean = logits_of(model, given, tokens)
    wide = exact.double().teacher_force(given, tokens)[:, -1]
    size = max(1.0, largest(wide))
    allowed = {"float32": 1e-4, "bfloat16": 0.3, "int8": 0.3}[precision]
    assert float((clean - wide).abs().max()) < allowed * size
    model = copies.get(precision, lambda plain: plain)(exact.float())
    table = next(part for name, part in model.named_parameters() if name.startswith("target_emb"))
    table[5, draw.random.randrange(table.shape[1])] = draw.random.choice(NOT_FINITE)
    row = draw.random.randrange(rows)
    tokens[row, -1] = 5
    found = logits_of(model, given, tokens)
    assert_others_equal(found, clean, row)
    assert not found[row].isfinite().any()


def fused_largest() -> int:
    library = program.library()
    assert library is not None
    return int(library.heedful_int8_max_input())


@torch.no_grad()
def test_padding_columns_of_a_row_are_zero() -> None:
    """Products read them; under ``make sanitize``, uninitialised memory is NaN."""
    library = program.library()
    assert library is not None
    columns = int(library.heedful_panel_columns())
    tables = program.Tables(torch.randn(30, 10), 1.0, torch.zeros(4, 10))
    made = program.Program(tables, widest=8, context=10)
    made.close([program.Map(torch.eye(columns), None)], made.slots.hidden)
    found = made.run(torch.tensor([3, 7]), [], None, 0)
    assert torch.equal(found, F.pad(tables.symbols[[3, 7]], (0, columns - 10)))


@pytest.mark.parametrize("token", [-1, 30, 1 << 40])
def test_a_token_out_of_range_raises(token: int) -> None:
    model = Transformer(
        TransformerSettings(layers=1, hidden_size=8, heads=2, ffn_size=8), 30, 30
    ).eval()
    with torch.no_grad():
        source = Source(torch.full((2, 3), 6), torch.tensor([3, 2]))
        with pytest.raises(IndexError):
            logits_of(model, source, torch.tensor([[6], [token]]))
    assert program.library() is not None
