"""Several processes that train together share out one order of batches."""

import itertools
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import cast

import pytest
import torch

from heedful.data.batching import TokenBatches
from heedful.data.positions import Position, Rank, of_rank
from heedful.data.streams import Stream, WindowBatches
from heedful.tasks.several.training import Part, SeveralTasks
from heedful.training.protocol import Task
from stream_help import write_stream
from test_batching import random_corpus, same

START = Position(3)


@pytest.mark.parametrize("count", [2, 3])
def test_ranks_share_out_one_order_of_pairs(tmp_path: Path, count: int) -> None:
    corpus = random_corpus(tmp_path / "c", 100, 9)
    batches = TokenBatches(corpus, 40, pool=16)
    whole = list(islice(batches.batches(START), 12))
    of_ranks = [
        list(islice(batches.batches(START, Rank(index, count)), 12 // count))
        for index in range(count)
    ]
    for step, found in enumerate(zip(*of_ranks, strict=True)):
        assert {after for after, _ in found} == {whole[(step + 1) * count - 1][0]}
        for index, (_, batch) in enumerate(found):
            assert same(batch, whole[step * count + index][1])


def test_ranks_go_on_from_a_position_of_any_number_of_them(tmp_path: Path) -> None:
    write_stream([list(range(4, 60)), list(range(60, 99))], tmp_path / "s", 100)
    batches = WindowBatches(Stream(tmp_path / "s"), 7, 3)
    whole = list(islice(batches.batches(START), 20))
    after, _ = next(batches.batches(START, Rank(0, 4)))
    second = next(batches.batches(after, Rank(1, 2)))
    assert second[0] == whole[5][0]
    assert torch.equal(second[1].tokens, whole[5][1].tokens)


def test_a_rank_is_one_of_their_number(tmp_path: Path) -> None:
    write_stream([[5, 6, 7]], tmp_path / "s", 100)
    with pytest.raises(ValueError, match="rank 2 is not one of 2"):
        next(WindowBatches(Stream(tmp_path / "s"), 4, 2).batches(START, Rank(2, 2)))


class Numbers:
    """A task whose batches are numbers."""

    def batches(self, position: Position, rank: Rank) -> Iterator[tuple[Position, int]]:
        order = (
            (position._replace(index=index + 1), index) for index in itertools.count(position.index)
        )
        return of_rank(order, rank)


def test_batches_of_a_group_are_those_of_one_task() -> None:
    """Four batches of a group, by one, two or four processes."""
    parts = {name: Part(cast(Task, Numbers()), 1.0, 10) for name in ("one", "other")}
    task = SeveralTasks(torch.nn.Linear(1, 1), parts)

    def of(rank: Rank) -> list[tuple[Position, str, int, Position]]:
        found = islice(task.batches(START, rank), 12 * rank.each)
        return [(after, one.name, one.batch, one.after) for after, one in found]

    whole = of(Rank(0, 1, 4))
    assert {name for _, name, _, _ in whole} == {"one", "other"}
    for group in range(12):
        assert len({(after, name) for after, name, _, _ in whole[4 * group : 4 * group + 4]}) == 1
    for count in (2, 4):
        ranks = [of(Rank(index, count, 4 // count)) for index in range(count)]
        each = 4 // count
        joined = [
            one
            for group in range(12)
            for rank in ranks
            for one in rank[each * group : each * (group + 1)]
        ]
        assert joined == whole
