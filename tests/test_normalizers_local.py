"""Luong's local attention, against loops that follow section 3.2 of the paper word by word."""

import math

import pytest
import torch
from torch import Tensor

from heedful.attention.normalizers import LocalMonotonic, LocalPredictive, Queries
from heedful.attention.normalizers.local_predictive import local_predictive

DQ = 4


def queries_of(*leading: int, queries: int) -> Queries:
    vectors = torch.randn(*leading, queries, DQ, dtype=torch.float64) * 2
    return Queries(vectors.requires_grad_(), torch.arange(queries))


@pytest.mark.parametrize("window", [0, 1, 3, 50])
def test_local_m_is_the_softmax_of_a_slice(window: int) -> None:
    torch.manual_seed(1)
    scores = torch.randn(9, 6, dtype=torch.float64)
    found = LocalMonotonic(window)(scores, None, queries_of(queries=9))
    for t in range(9):
        low, high = min(6, max(0, t - window)), min(6, t + window + 1)
        expected = torch.zeros(6, dtype=torch.float64)
        expected[low:high] = torch.softmax(scores[t, low:high], -1)
        torch.testing.assert_close(found[t], expected)
    if window < 3:
        assert found[8].eq(0).all()  # Its window lies beyond the last key.


def test_local_m_goes_by_the_queries_positions() -> None:
    scores = torch.randn(2, 8, dtype=torch.float64)
    vectors = torch.zeros(2, DQ, dtype=torch.float64)
    weights = LocalMonotonic(1)(scores, None, Queries(vectors, torch.tensor([6, 3])))
    assert weights[0].nonzero().flatten().tolist() == [5, 6, 7]
    assert weights[1].nonzero().flatten().tolist() == [2, 3, 4]


def by_the_paper(module: LocalPredictive, row: Tensor, h: Tensor, D: int) -> Tensor:
    """Equations 9 and 10 for one query over a sentence of ``len(row)`` words, s from 0."""
    W, v, S = module.query_projection.weight, module.position_projection.weight[0], len(row)
    p = S * torch.sigmoid(v @ torch.tanh(W @ h))
    inside = [s for s in range(S) if p - D <= s <= p + D]
    align = {s: row[s].exp() / sum(row[i].exp() for i in inside) for s in inside}
    gaussians = [torch.exp(-((s - p) ** 2) / (2 * (D / 2) ** 2)) for s in range(S)]
    zero = row.sum() * 0
    return torch.stack([align[s] * gaussians[s] if s in align else zero for s in range(S)])


@pytest.mark.parametrize("window", [1, 2, 3, 10])
def test_local_p_is_equations_nine_and_ten(window: int) -> None:
    torch.manual_seed(2)
    module = LocalPredictive(DQ, hidden_dim=5, window=window).double()
    with torch.no_grad():
        module.position_projection.weight.mul_(4)  # So that positions differ.
    scores = torch.randn(2, 5, 9, dtype=torch.float64).requires_grad_()
    queries = queries_of(2, queries=5)
    lengths = [9, 6]
    allowed = (torch.arange(9) < torch.tensor(lengths).unsqueeze(-1)).unsqueeze(-2)
    found = module(scores, allowed, queries)
    rows = []
    for b, length in enumerate(lengths):
        for t in range(5):
            row = by_the_paper(module, scores[b, t, :length], queries.vectors[b, t], window)
            rows.append(torch.cat([row, torch.zeros(9 - length, dtype=torch.float64)]))
    expected = torch.stack(rows).view_as(found)
    torch.testing.assert_close(found, expected)
    places = module.share(queries.vectors, torch.float64)
    assert places.std() > 0.1
    parts = [scores, queries.vectors, *module.parameters()]
    direction = torch.randn_like(found)
    torch.testing.assert_close(
        torch.autograd.grad(found, parts, direction),
        torch.autograd.grad(expected, parts, direction),
    )


def test_local_p_counts_the_allowed_keys_alone() -> None:
    """Padding to the left, to the right, or a block: the same weights on the same keys."""
    torch.manual_seed(3)
    module, queries = LocalPredictive(DQ, 5, window=2).double(), queries_of(queries=3)
    scores = torch.randn(3, 5, dtype=torch.float64)
    expected = module(scores, None, queries)
    for before, after in ((0, 4), (4, 0), (2, 3)):
        padded = torch.nn.functional.pad(scores, (before, after), value=9.0)
        allowed = torch.zeros(before + 5 + after, dtype=torch.bool)
        allowed[before : before + 5] = True
        found = module(padded, allowed, queries)
        torch.testing.assert_close(found[:, before : before + 5], expected)
        assert found.masked_select(~allowed).eq(0).all()


def test_local_p_always_has_a_key_in_its_window() -> None:
    for share in (0.0, 0.3, 1.0):
        weights = local_predictive(torch.zeros(1, 5), torch.tensor([[share]]), window=1)
        assert weights.sum() >= math.exp(-2) / 2
        assert weights.sum() <= 1


def test_local_p_learns_to_look_somewhere() -> None:
    """From equal scores alone, its position goes to where a target is."""
    torch.manual_seed(4)
    module = LocalPredictive(DQ, 8, window=6)
    queries = Queries(torch.randn(1, DQ), torch.tensor([0]))
    scores, target = torch.zeros(1, 12), 8
    optimiser = torch.optim.Adam(module.parameters(), lr=0.05)
    for _ in range(60):
        loss = -module(scores, None, queries)[0, target]
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert abs(12 * module.share(queries.vectors).item() - target) < 0.7
