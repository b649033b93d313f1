"""Outputs of CTC and times of tokens, against the enumeration of all paths."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.decoding.ctc import (
    best_path,
    log_probability,
    occupation,
    positions_needed,
    prefix_search,
)
from heedful.inference.time_alignment import monotonic_positions


def emissions(positions: int, symbols: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    found = torch.randn(positions, symbols, generator=generator, dtype=torch.float64)
    return (2 * found).log_softmax(-1)


def all_outputs(given: Tensor, blank: int) -> dict[tuple[int, ...], float]:
    """The probability of each output, by enumeration of all paths."""
    positions, symbols = given.shape
    found: dict[tuple[int, ...], float] = {}
    for path in itertools.product(range(symbols), repeat=positions):
        probability = math.exp(sum(float(given[s, v]) for s, v in enumerate(path)))
        output = tuple(symbol for symbol, _ in itertools.groupby(path) if symbol != blank)
        found[output] = found.get(output, 0.0) + probability
    return found


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("blank", [0, 2])
def test_a_wide_search_finds_all_outputs(seed: int, blank: int) -> None:
    given = emissions(4, 3, seed)
    expected = all_outputs(given, blank)
    found = prefix_search(given, blank, beam=1000)
    assert {one.tokens for one in found} == expected.keys()
    for one in found:
        assert math.exp(one.log_probability) == pytest.approx(expected[one.tokens])
        assert log_probability(given, one.tokens, blank) == pytest.approx(one.log_probability)
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    assert found[0].tokens == max(expected, key=lambda output: expected[output])


def test_the_best_path_is_not_the_best_output() -> None:
    given = torch.tensor([[0.6, 0.4], [0.6, 0.4]]).log()
    assert best_path(given, 0).tokens == ()
    assert prefix_search(given, 0, beam=2)[0].tokens == (1,)
    assert best_path(given, 0).log_probability == pytest.approx(math.log(0.36))


def test_the_best_path_joins_repetitions() -> None:
    path = [0, 3, 3, 0, 3, 2, 2, 0, 0]
    given = torch.full((len(path), 4), 0.01)
    given[range(len(path)), path] = 0.97
    assert best_path(given.log(), 0).tokens == (3, 3, 2)
    assert prefix_search(given.log(), 0, beam=3)[0].tokens == (3, 3, 2)
    assert positions_needed([3, 3, 2]) == 4
    assert positions_needed([]) == 0


def states_of(path: tuple[int, ...], blank: int) -> list[int]:
    """The state of each position: 2 · i + 1 in the i-th symbol of the output, else even."""
    found, count = [], 0
    for place, symbol in enumerate(path):
        count += symbol != blank and (place == 0 or path[place - 1] != symbol)
        found.append(2 * count - (symbol != blank))
    return found


@pytest.mark.parametrize("blank", [0, 2])
@pytest.mark.parametrize("tokens", [(), (1,), (1, 3), (3, 3), (1, 3, 1), (3, 1, 1)])
def test_occupations_are_those_of_all_paths(tokens: tuple[int, ...], blank: int) -> None:
    given = emissions(5, 4, seed=len(tokens))
    expected = torch.zeros(2 * len(tokens) + 1, 5, dtype=torch.float64)
    for path in itertools.product(range(4), repeat=5):
        output = tuple(symbol for symbol, _ in itertools.groupby(path) if symbol != blank)
        if output == tokens:
            chance = math.exp(sum(float(given[s, v]) for s, v in enumerate(path)))
            expected[states_of(path, blank), range(5)] += chance
    found = occupation(given, tokens, blank)
    torch.testing.assert_close(found, expected / expected.sum(0), rtol=1e-12, atol=1e-14)


def test_occupations_are_the_gradients_of_the_loss() -> None:
    """The gradient of PyTorch's loss by the emissions: their probabilities minus occupations."""
    given = emissions(200, 6, seed=1).requires_grad_()
    tokens = [1, 2, 2, 5, 3, 3, 3, 4] * 5
    rows = torch.tensor([tokens]), torch.tensor([200]), torch.tensor([len(tokens)])
    F.ctc_loss(given[:, None], *rows, reduction="sum").backward()
    gradient = given.grad
    assert gradient is not None
    found = occupation(given.detach(), tokens, 0)
    summed = torch.zeros(200, 6, dtype=torch.float64)
    states = torch.zeros(2 * len(tokens) + 1, dtype=torch.long)
    states[1::2] = torch.tensor(tokens)
    summed.index_add_(1, states, found.T)
    torch.testing.assert_close(given.detach().exp() - gradient, summed, rtol=1e-9, atol=1e-12)


def test_an_output_without_a_path() -> None:
    with pytest.raises(ValueError, match="2 positions; the output needs 3"):
        occupation(emissions(2, 4, seed=1), [1, 1], 0)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_positions_are_the_best_of_all(strict: bool, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    weights = torch.rand(3, 5, generator=generator).softmax(-1)

    def product(positions: tuple[int, ...]) -> float:
        return math.prod(float(weights[t, s]) for t, s in enumerate(positions))

    def allowed(positions: tuple[int, ...]) -> bool:
        pairs = itertools.pairwise(positions)
        return all(a < b if strict else a <= b for a, b in pairs)

    best = max(filter(allowed, itertools.product(range(5), repeat=3)), key=product)
    assert monotonic_positions(weights, strict=strict) == list(best)


def test_positions_of_difficult_inputs() -> None:
    assert monotonic_positions(torch.zeros(0, 4)) == []
    assert monotonic_positions(torch.zeros(3, 1)) == [0, 0, 0]
    assert monotonic_positions(torch.zeros(3, 2), strict=True) == [0, 0, 0]  # too few
    assert monotonic_positions(torch.eye(3).flip(0)) in ([2, 2, 2], [1, 1, 1], [0, 0, 0])
