"""Conditional random fields against all sequences of tags."""

from itertools import product

import pytest
import torch
from torch import Tensor

from heedful.attention.hidden_markov import Chain, chain_marginals
from heedful.layers.linear_chain import best_tags, log_likelihood, log_marginals, log_partition

LENGTHS = torch.tensor([4, 1, 3, 0])


def made(words: int = 4, tags: int = 3) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(2)
    emissions = 2 * torch.randn(len(LENGTHS), words, tags, generator=draw, dtype=torch.float64)
    transitions = 2 * torch.randn(tags, tags, generator=draw, dtype=torch.float64)
    return emissions.requires_grad_(), transitions.requires_grad_()


def score(emissions: Tensor, transitions: Tensor, path: tuple[int, ...]) -> Tensor:
    """The score of a sequence of tags, term by term."""
    total = emissions.new_zeros(())
    for word, tag in enumerate(path):
        total = total + emissions[word, tag]
        if word:
            total = total + transitions[path[word - 1], tag]
    return total


def scores(emissions: Tensor, transitions: Tensor, length: int) -> dict[tuple[int, ...], Tensor]:
    paths = product(range(emissions.shape[1]), repeat=length)
    return {path: score(emissions, transitions, path) for path in paths}


def assert_gradients(found: Tensor, expected: Tensor, of: tuple[Tensor, Tensor]) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    weights = torch.arange(1.0, found.numel() + 1, dtype=found.dtype).reshape(found.shape)
    own = torch.autograd.grad((weights * found).sum(), of, retain_graph=True)
    others = torch.autograd.grad((weights * expected).sum(), of, retain_graph=True)
    for one, other in zip(own, others, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_the_partition_is_the_sum_over_all_sequences() -> None:
    emissions, transitions = made()
    expected = torch.stack(
        [
            torch.stack(list(scores(row, transitions, length).values())).logsumexp(0)
            for row, length in zip(emissions, LENGTHS.tolist(), strict=True)
        ]
    )
    found = log_partition(emissions, transitions, LENGTHS)
    assert_gradients(found, expected, (emissions, transitions))
    assert found[3] == 0


@pytest.mark.parametrize("unknown", [False, True])
def test_the_likelihood_of_tags_and_its_gradient(unknown: bool) -> None:
    emissions, transitions = made()
    tags = torch.tensor([[0, 2, 1, 1], [2, 0, 0, 0], [1, 1, 0, 2], [0, 0, 0, 0]])
    if unknown:
        tags[0, 1] = tags[0, 2] = tags[1, 0] = tags[2, 2] = -1
    rows = []
    for row, own, length in zip(emissions, tags.tolist(), LENGTHS.tolist(), strict=True):
        every = scores(row, transitions, length)
        agreeing = [
            value
            for path, value in every.items()
            if all(right in (-1, tag) for right, tag in zip(own, path, strict=False))
        ]
        rows.append(
            torch.stack(agreeing).logsumexp(0) - torch.stack([*every.values()]).logsumexp(0)
        )
    found = log_likelihood(emissions, transitions, tags, LENGTHS)
    assert_gradients(found, torch.stack(rows), (emissions, transitions))


def test_marginals_are_sums_of_the_probabilities_of_sequences() -> None:
    emissions, transitions = made()
    found = log_marginals(emissions, transitions, LENGTHS)
    expected = torch.zeros_like(found)
    for number, length in enumerate(LENGTHS.tolist()):
        every = scores(emissions[number], transitions, length)
        total = torch.stack(list(every.values())).logsumexp(0)
        for word, tag in product(range(length), range(emissions.shape[2])):
            own = [value for path, value in every.items() if path[word] == tag]
            expected[number, word, tag] = torch.stack(own).logsumexp(0) - total
    assert_gradients(found, expected, (emissions, transitions))


def test_the_best_tags_are_those_of_the_best_of_all_sequences() -> None:
    emissions, transitions = made()
    found = best_tags(emissions, transitions, LENGTHS)
    for row, own, length in zip(emissions, found, LENGTHS.tolist(), strict=True):
        every = scores(row, transitions, length)
        assert tuple(own) == max(every, key=lambda path: float(every[path].detach()))


def test_padding_and_other_rows_change_nothing() -> None:
    emissions, transitions = made()
    whole = log_partition(emissions, transitions, LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        alone = log_partition(
            emissions[row : row + 1, :length], transitions, LENGTHS[row : row + 1]
        )
        torch.testing.assert_close(alone[0], whole[row], rtol=0, atol=1e-12)


def test_a_hidden_markov_model_without_empty_word_is_such_a_field() -> None:
    emissions, transitions = made()
    jumps = transitions.softmax(1)
    first = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    rows = len(emissions)
    chain = Chain(jumps.expand(rows, -1, -1), first.expand(rows, -1), torch.zeros(()).double())
    real = torch.arange(4) < LENGTHS[:, None]
    nowhere = emissions.new_full((rows, 4), -60.0)
    likelihood, weights = chain_marginals(emissions, nowhere, real, chain, marginals=True)
    assert weights is not None
    begun = torch.cat([emissions[:, :1] + first.log(), emissions[:, 1:]], 1)
    found = log_partition(begun, jumps.log(), LENGTHS)
    torch.testing.assert_close(found, likelihood, rtol=1e-9, atol=1e-9)
    marginals = log_marginals(begun, jumps.log(), LENGTHS).exp() * real[:, :, None]
    torch.testing.assert_close(marginals, weights, rtol=1e-9, atol=1e-9)


def test_hundreds_of_words_do_not_overflow() -> None:
    emissions = 300 * torch.randn(2, 400, 5, generator=torch.Generator().manual_seed(1))
    emissions.requires_grad_()
    transitions = torch.zeros(5, 5, requires_grad=True)
    lengths = torch.tensor([400, 37])
    tags = emissions.detach().argmax(2)
    found = log_likelihood(emissions, transitions, tags, lengths)
    expected = [
        torch.log_softmax(row.double(), 1).max(1).values[:length].sum()
        for row, length in zip(emissions, lengths.tolist(), strict=True)
    ]
    torch.testing.assert_close(found.double(), torch.stack(expected), rtol=1e-4, atol=0.05)
    found.sum().backward()
    assert emissions.grad is not None
    assert emissions.grad.isfinite().all()
