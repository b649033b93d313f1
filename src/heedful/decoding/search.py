"""The faces of search: one for a batch of sources, one for sources that enter as others leave."""

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
from heedful.decoding.search_loop import Finished, Method, SourceT, Supplied, Supply, run


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
        decodable: what writes tokens; its first step is given BEGIN.
        source: whatever its ``start`` takes, for ``rows`` sources.
        rows: number of sources B.
        options: how to search.
        max_lengths: integers ``[B]``, on the decodable's device: the longest output in tokens, END
            included. At that length END is the only choice, so every output has a full score.
        keys: for sampling, a number for each source, that makes its samples its own; 0 … B − 1
            unless given.

    Returns:
        For each source its hypotheses, best score first: ``options.nbest`` of them, or fewer where
        there are no more. PAD, UNKNOWN and BEGIN are never in them.

    Raises:
        ValueError: ``max_lengths`` or ``keys`` do not fit, or probabilities are not finite.
    """
    if len(max_lengths) != rows or (keys is not None and len(keys) != rows):
        raise ValueError(f"expected one maximal length and one key for each of {rows} sources")
    if rows == 0:
        return []
    own = range(rows) if keys is None else keys
    if options.sample:
        return sample(decodable, Supplied(source, max_lengths, own).checked(), options)
    once = iter([Supplied(source, max_lengths, range(rows))])
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

    Each source finds what it would find by itself. A decodable whose states cannot join
    (:class:`heedful.decoding.Joinable`) is searched batch by batch, and so is sampling: then what
    ``supply`` gives is searched to its end before it is asked again.

    Args:
        decodable: what writes tokens; its first step is given BEGIN.
        supply: gives the next sources; the search ends when it has none while none is under way.
        options: how to search.
        wanted: asked at every step of the keys under way; a source that is not wanted any more
            leaves, and nothing is found for it.

    Yields:
        After each step at which sources were decided, their keys and hypotheses.

    Raises:
        ValueError: what was supplied does not fit, or probabilities are not finite.
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
