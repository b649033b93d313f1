"""Windows of lines that are sorted and batched together."""

from collections.abc import Callable, Iterable, Iterator, Sequence

WINDOW = 10_000
"""Lines that are sorted by length together."""


def windows(
    blocks: Iterable[Sequence[str]],
    size: int = WINDOW,
    more_waits: Callable[[], bool] | None = None,
) -> Iterator[list[str]]:
    """Join blocks of lines into windows of ``size`` lines.

    Args:
        blocks: lines, in blocks of any size.
        size: lines of a full window.
        more_waits: returns whether more input is waiting; if not, the window is yielded,
            so that the writer of a pipe gets an answer. If None, windows are always full.

    Example:
        >>> list(windows([["a", "b"], ["c"]], size=2))
        [['a', 'b'], ['c']]
    """
    waiting: list[str] = []
    for block in blocks:
        waiting.extend(block)
        while len(waiting) >= size:
            yield waiting[:size]
            waiting = waiting[size:]
        if waiting and more_waits is not None and not more_waits():
            yield waiting
            waiting = []
    if waiting:
        yield waiting
