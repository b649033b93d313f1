"""The entry points of search: for a batch of sources, and for a stream of sources."""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain

import torch
from torch import Tensor

from heedful.decoding.beam import Beams
from heedful.decoding.decodable import Decodable, SelectableT
from heedful.decoding.greedy import GreedySearch, most_probable
from heedful.decoding.hypothesis import Hypothesis
from heedful.decoding.options import SearchOptions
from heedful.decoding.sampling import sample
from heedful.decoding.search_loop import Finished, Method, NewSources, SourceT, Supply, run


def search(
    decodable: Decodable[SourceT, SelectableT],
    source: SourceT,
    *,
    rows: int,
    options: SearchOptions,
    max_lengths: Tensor,
    keys: Sequence[int] | None = None,
) -> list[list[Hypothesis]]:
    """Find the outputs of a batch of sources.

    Args:
        decodable: generates tokens; its first step gets BEGIN.
        source: the argument of its ``start``, for ``rows`` sources.
        rows: number of sources B.
        options: search settings.
        max_lengths: integers ``[B]``, on the decodable's device: the maximum length in tokens, END
            included. At this length only END is allowed, so every output has a full score.
        keys: for sampling, a number for each source, from which its random numbers are derived;
            0 … B − 1 by default.

    Returns:
        The hypotheses of each source, best score first: ``options.nbest`` of them, or fewer if
        there are no more. They never contain PAD, UNKNOWN and BEGIN.

    Raises:
        ValueError: ``max_lengths`` or ``keys`` have the wrong length, or probabilities are not
            finite.
    """
    if len(max_lengths) != rows or (keys is not None and len(keys) != rows):
        raise ValueError(f"expected one maximal length and one key for each of {rows} sources")
    if rows == 0:
        return []
    own = range(rows) if keys is None else keys
    if options.sample:
        return sample(decodable, NewSources(source, max_lengths, own).checked(), options)
    once = iter([NewSources(source, max_lengths, range(rows))])
    steps = search_stream(decodable, lambda: next(once, None), options)
    found = dict(chain.from_iterable(steps))
    return [found[row] for row in range(rows)]


def search_stream(
    decodable: Decodable[SourceT, SelectableT],
    supply: Supply[SourceT],
    options: SearchOptions,
    *,
    wanted: Callable[[int], bool] | None = None,
) -> Iterator[list[Finished]]:
    """Find the outputs of sources that enter the search as others leave it.

    The result of a source does not depend on the others. Sampling, and decodables whose states
    cannot join (:class:`heedful.decoding.Joinable`), run batch by batch: the sources of one call of
    ``supply`` are searched to the end before the next call.

    Args:
        decodable: generates tokens; its first step gets BEGIN.
        supply: returns the next sources; the search ends when it returns none and none is active.
        options: search settings.
        wanted: called at every step with the key of each active source; if it returns false, the
            source is removed without a result.

    Yields:
        After each step at which sources were decided, their keys and hypotheses.

    Raises:
        ValueError: the lengths of a supply do not match, or probabilities are not finite.
    """
    if options.sample:
        for given in iter(supply, None):
            found = sample(decodable, given.checked(), options)
            yield list(zip(given.keys, found, strict=True))
        return

    def method(device: torch.device) -> Method:
        if options.beam == 1:
            return GreedySearch(options, most_probable, device)
        return Beams(options, device)

    yield from run(decodable, method, supply, wanted)
