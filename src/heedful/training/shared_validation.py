"""Shares the work of a validation among the processes that train together."""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import TypeVar

from heedful.training.processes import join

A = TypeVar("A")
B = TypeVar("B")


def over_processes(work: Callable[[A], B], items: Iterable[A]) -> list[B]:
    """The results for all items, in their order, in every process.

    Each process works on one of every ``N`` items and sends its results to the others. Figures that
    are computed from the results in their order are therefore those of one process. All processes
    call the function at the same time with the same items.

    Args:
        work: the result of an item, which is pickled; must not depend on the other items.
        items: the items.

    Example:
        >>> over_processes(len, ["a", "bcd"])
        [1, 3]
    """
    processes = join()
    index, count = processes.rank[:2]
    if count == 1:
        return [work(item) for item in items]
    with processes.together():
        own = [work(item) for item in islice(items, index, None, count)]
    return _interleaved(processes.gather(own))


def outputs_over_processes(work: Callable[[list[A]], list[B]], inputs: Sequence[A]) -> list[B]:
    """The outputs of a function that takes all inputs at once, such as a search.

    An output must not depend on the other inputs.

    Args:
        work: returns one output for each input; outputs are pickled.
        inputs: the inputs, the same in all processes.

    Example:
        >>> outputs_over_processes(lambda texts: [text.upper() for text in texts], ["a", "b"])
        ['A', 'B']
    """
    count = join().rank.count
    if count == 1:
        return work(list(inputs))
    return _interleaved(
        over_processes(
            lambda place: work(list(inputs[place::count])) if inputs[place::count] else [],
            range(count),
        )
    )


def _interleaved(lists: Sequence[Sequence[B]]) -> list[B]:
    """One item of every list in turn; an earlier list may have one item more."""
    longest = max(map(len, lists))
    return [one[place] for place in range(longest) for one in lists if place < len(one)]
