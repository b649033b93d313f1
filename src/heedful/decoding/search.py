"""The one face of search."""

from collections.abc import Sequence

from torch import Tensor

from heedful.decoding.beam import beam_search
from heedful.decoding.decodable import Decodable, SelectableT, SourceT_contra
from heedful.decoding.greedy import greedy_search
from heedful.decoding.hypothesis import Hypothesis
from heedful.decoding.options import SearchOptions
from heedful.decoding.sampling import sample


def search(
    decodable: Decodable[SourceT_contra, SelectableT],
    source: SourceT_contra,
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
        raise ValueError(f"{rows} sources need as many maximal lengths and keys")
    if rows == 0:
        return []
    if int(max_lengths.min()) < 1:
        raise ValueError("a maximal length counts END, so it is at least 1")
    if options.sample:
        own = range(rows) if keys is None else keys
        return sample(decodable, source, options=options, max_lengths=max_lengths, keys=own)
    if options.beam == 1:
        return greedy_search(decodable, source, options=options, max_lengths=max_lengths)
    return beam_search(decodable, source, options=options, max_lengths=max_lengths)
