"""The problems of the algorithm task: each answer is right, and each batch can be drawn again."""

from collections import defaultdict
from itertools import islice, pairwise, product
from math import log2
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from heedful.data.positions import Position, Rank
from heedful.tasks.algorithm.batches import TEST, VALIDATION, AlgorithmBatch, held_out
from heedful.tasks.algorithm.batches import training_batches as batches
from heedful.tasks.algorithm.problems import (
    PROBLEMS,
    AssociativeRecall,
    Copy,
    Drawn,
    NGrams,
    PrioritySort,
    Problem,
    RepeatCopy,
    ShortestPath,
)

problems = pytest.mark.parametrize("problem", [kind() for kind in PROBLEMS], ids=lambda p: p.kind)


def draw(problem: Problem, size: int, rows: int = 20, seed: int = 3) -> Drawn:
    return problem.draw(np.random.default_rng(seed), rows, size)


def answers(drawn: Drawn) -> Any:
    return drawn.targets[:, drawn.answered]


@problems
def test_shapes_are_as_stated(problem: Problem) -> None:
    for size in {*problem.sizes, problem.sizes[1]}:
        drawn = draw(problem, size, rows=4)
        assert drawn.inputs.shape[0] == drawn.targets.shape[0] == 4
        assert drawn.inputs.shape[1] == drawn.targets.shape[1] == len(drawn.answered)
        assert len(drawn.answered) <= problem.steps(size)
        assert (drawn.inputs.shape[2], drawn.targets.shape[2]) == problem.widths
        assert drawn.answered.any()
        assert not drawn.targets[:, ~drawn.answered].any()


def test_copy_answers_the_vectors() -> None:
    drawn = draw(Copy(), 7)
    np.testing.assert_array_equal(answers(drawn), drawn.inputs[:, :7, :8])
    assert not drawn.inputs[:, 8:].any()
    np.testing.assert_array_equal(drawn.inputs[:, :, 8].sum(1), 1)


@pytest.mark.parametrize("seed", range(5))
def test_repeat_copy_repeats_as_often_as_the_input_says(seed: int) -> None:
    drawn = draw(RepeatCopy(bits=3, repeats=(2, 4)), 5, seed=seed)
    count = (len(drawn.answered) - 7) // 5
    deviation = np.arange(1, 11).std()
    np.testing.assert_allclose(drawn.inputs[:, 5, 4], (count - 5.5) / deviation, rtol=1e-6)
    copies = [drawn.inputs[:, :5, :3]] * count
    np.testing.assert_array_equal(answers(drawn)[:, :-1, :3], np.concatenate(copies, 1))
    np.testing.assert_array_equal(answers(drawn)[:, -1], [[0, 0, 0, 1]] * 20)
    assert not answers(drawn)[:, :-1, 3].any()


def test_recall_answers_the_item_after_the_one_that_is_asked() -> None:
    bits, long, size = 6, 3, 5
    for row in zip(*draw(AssociativeRecall(), size)[:2], strict=True):
        inputs, targets = row
        starts = np.flatnonzero(inputs[:, bits])
        items = [inputs[at + 1 : at + 1 + long, :bits].tolist() for at in starts]
        first, second = np.flatnonzero(inputs[:, bits + 1])
        asked = inputs[first + 1 : second, :bits].tolist()
        assert len(items) == size
        followers = [items[at + 1] for at in range(size - 1) if items[at] == asked]
        assert targets[-long:].tolist() in followers
        assert not inputs[second + 1 :].any()


def test_sorting_answers_the_vectors_by_priority() -> None:
    drawn = draw(PrioritySort(bits=16), 10)
    for inputs, found in zip(drawn.inputs, answers(drawn), strict=True):
        pairs = sorted(((row[16], row[:16].tolist()) for row in inputs[:10]), reverse=True)
        assert found.tolist() == [vector for _, vector in pairs[:8]]


def test_bits_of_n_grams_follow_their_table() -> None:
    """With one context of one bit, the shares of ones after 0 and after 1 vary as Beta(½, ½)."""
    drawn = draw(NGrams(context=1, sizes=(400, 400)), 400, rows=400)
    bits, following = drawn.inputs[:, :, 0], drawn.targets[:, :, 0]
    np.testing.assert_array_equal(bits[:, 1:], following[:, :-1])
    shares = (following * bits).sum(1) / bits.sum(1).clip(1)
    assert abs(shares.mean() - 0.5) < 0.08
    assert abs(shares.var() - 1 / 8) < 0.04  # of Beta(½, ½)


def test_the_bound_of_n_grams_is_that_of_a_count_by_hand() -> None:
    problem = NGrams(context=3, sizes=(60, 60))
    drawn, total = draw(problem, 60, rows=5), 0.0
    for inputs, targets in zip(drawn.inputs[:, :, 0], drawn.targets[:, :, 0], strict=True):
        counts: dict[tuple[float, ...], list[float]] = defaultdict(lambda: [0.5, 0.5])
        for place in range(2, 59):
            own = counts[tuple(inputs[place - 2 : place + 1])]
            total -= log2(own[targets[place]] / sum(own))
            own[targets[place]] += 1
    assert problem.bound(drawn) == pytest.approx(total / 5)


def test_no_constant_predicts_n_grams_better_than_the_bound() -> None:
    problem = NGrams(context=2, sizes=(100, 100))
    drawn = draw(problem, 100, rows=200)
    bound, ones = problem.bound(drawn), answers(drawn).mean()
    constant = -(ones * log2(ones) + (1 - ones) * log2(1 - ones)) * 98
    assert bound is not None
    assert bound < 0.85 * constant


def paths(edges: set[tuple[int, int]], begin: int, end: int, count: int) -> list[list[int]]:
    """All walks of ``count`` edges, by trying all."""
    nodes = {node for edge in edges for node in edge}
    tried = ([begin, *middle, end] for middle in product(nodes, repeat=count - 1))
    return [one for one in tried if all(edge in edges for edge in pairwise(one))]


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_no_other_path_is_as_short(size: int) -> None:
    problem = ShortestPath(nodes=6, edges=9)
    drawn = draw(problem, size, rows=30)
    for inputs, found in zip(drawn.inputs, answers(drawn), strict=True):
        edges = {(int(row[:6].argmax()), int(row[6:12].argmax())) for row in inputs[:9]}
        assert len(edges) == 9
        begin, end = int(inputs[9, :6].argmax()), int(inputs[9, 6:12].argmax())
        for shorter in range(1, size):
            assert paths(edges, begin, end, shorter) == []
        assert paths(edges, begin, end, size) == [[begin, *found.argmax(1).tolist()]]
        assert found.sum() == size


@pytest.mark.parametrize(("size", "most"), [(1, 20), (2, 9), (3, 11), (4, 14)])
def test_as_many_edges_as_are_accepted_can_be_drawn(size: int, most: int) -> None:
    problem = ShortestPath(nodes=5, edges=most, sizes=(size, size))
    assert draw(problem, size, rows=50).inputs[:, :most].any(2).all()
    assert problem.model_copy(update={"edges": most + 1}).refused(size)


@problems
def test_batches_are_a_function_of_the_position(problem: Problem) -> None:
    whole = batches(problem, 1000, Position(7))
    first = [next(whole) for _ in range(4)]
    resumed = batches(problem, 1000, first[1][0])
    for (place, batch), (other, again) in zip(first[2:], resumed, strict=False):
        assert place == other
        assert torch.equal(batch.inputs, again.inputs)
        assert torch.equal(batch.targets, again.targets)
    other_seed = next(batches(problem, 1000, Position(8)))[1]
    assert not _same(first[0][1], other_seed)
    assert not _same(first[0][1], first[1][1])


def test_each_rank_draws_its_own_batches_only(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, drawn, known = Copy(), [0], Copy.draw

    def counted(*given: Any) -> Drawn:
        drawn[0] += 1
        return known(*given)

    monkeypatch.setattr(Copy, "draw", counted)
    whole = list(islice(batches(problem, 200, Position(7, 0, 3)), 8))
    for index in range(2):
        drawn[0] = 0
        ranks = batches(problem, 200, Position(7, 0, 3), Rank(index, 2, each=2))
        own = list(islice(ranks, 4))
        assert drawn[0] == 4
        for place, (after, batch) in zip((0, 1, 4, 5), own, strict=True):
            expected = whole[2 * index + place][1]
            assert torch.equal(batch.inputs, expected.inputs)
            assert torch.equal(batch.targets, expected.targets)
            assert after == Position(7, 0, 7 if place < 4 else 11)


def _same(one: AlgorithmBatch, other: AlgorithmBatch) -> bool:
    return one.inputs.shape == other.inputs.shape and torch.equal(one.inputs, other.inputs)


@problems
def test_held_out_examples_are_complete_and_of_their_own(problem: Problem) -> None:
    parts = {part: list(held_out(problem, 7, part, 100)) for part in (VALIDATION, TEST)}
    for found in parts.values():
        assert sum(len(one.inputs) for one in found) == 100
    seen = {
        part: {one.inputs[0].tobytes() for one in found if one.inputs.size > 50}
        for part, found in parts.items()
    }
    assert not seen[VALIDATION] & seen[TEST]
    [again, *_] = held_out(problem, 7, TEST, 100)
    np.testing.assert_array_equal(parts[TEST][0].inputs, again.inputs)


@problems
def test_parts_of_a_batch_have_all_rows(problem: Problem) -> None:
    _, batch = next(batches(problem, 2000, Position(2)))
    parts = batch.split(3, fewest=1)
    assert sum(part.weight for part in parts) == batch.weight
    assert torch.equal(torch.cat([part.inputs for part in parts]), batch.inputs)
    assert torch.equal(torch.cat([part.targets for part in parts]), batch.targets)


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        (Copy, {"sizes": (5, 3)}, "the first must not exceed the second"),
        (Copy, {"sizes": (0, 3)}, "0 vectors: give 1 to 1000"),
        (AssociativeRecall, {"sizes": (1, 3)}, "1 items: give 2 to 1000"),
        (NGrams, {"sizes": (5, 9)}, "5 bits: give more than 5, the context"),
        (RepeatCopy, {"repeats": (3, 2)}, "two ascending numbers"),
        (ShortestPath, {"nodes": 4, "edges": 8, "sizes": (1, 2)}, "paths of 2: give at most 7"),
        (ShortestPath, {"nodes": 4, "edges": 6, "sizes": (1, 4)}, "needs more nodes than 4"),
    ],
)
def test_impossible_problems_are_refused(
    kind: type[Problem], values: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        kind(**values)
