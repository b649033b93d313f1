"""Tags that mark spans, against seqeval and against encoding."""

import random
from itertools import pairwise, product
from typing import get_args

import pytest
from seqeval.metrics.sequence_labeling import get_entities
from seqeval.scheme import BILOU, IOB2, IOBES, IOE2, Entities

from heedful.basics.errors import UserError
from heedful.data.tag_schemes import Scheme, Span, mark_spans, may_follow, require_scheme, spans

PEERS = {"IOB2": IOB2, "IOE2": IOE2, "IOBES": IOBES, "BILOU": BILOU}
LETTERS = {
    **dict.fromkeys(("IOB1", "IOB2"), "IB"),
    **dict.fromkeys(("IOE1", "IOE2"), "IE"),
    "IOBES": "BIES",
    "BILOU": "BILU",
}
SCHEMES = get_args(Scheme)


def tags_of(letters: str, types: str = "XY") -> list[str]:
    return ["O", *(f"{letter}-{kind}" for letter in letters for kind in types)]


def random_tags(letters: str) -> list[list[str]]:
    draw, tags = random.Random(3), tags_of(letters)
    return [draw.choices(tags, k=draw.randint(0, 9)) for _ in range(2000)]


def test_spans_of_any_tags_are_those_of_seqeval() -> None:
    for tags in random_tags("BIES"):
        expected = [Span(kind, start, end + 1) for kind, start, end in get_entities(tags)]
        assert spans(tags) == expected, tags


@pytest.mark.parametrize("scheme", PEERS)
def test_strict_spans_are_those_of_seqeval(scheme: Scheme) -> None:
    for tags in random_tags(LETTERS[scheme]):
        (found,) = Entities([tags], PEERS[scheme]).entities
        expected = [Span(one.tag, one.start, one.end) for one in found]
        assert spans(tags, scheme) == expected, tags


def encoded(found: list[Span], length: int, scheme: Scheme) -> list[str]:
    """Write spans as tags."""
    tags = ["O"] * length
    firsts = {span.start: span.type for span in found}
    lasts = {span.end: span.type for span in found}
    for kind, start, end in found:
        letters = ["I"] * (end - start)
        if scheme == "IOB2" or (scheme == "IOB1" and lasts.get(start) == kind):
            letters[0] = "B"
        if scheme == "IOE2" or (scheme == "IOE1" and firsts.get(end) == kind):
            letters[-1] = "E"
        if scheme in ("IOBES", "BILOU"):
            begin, last, alone = "BES" if scheme == "IOBES" else "BLU"
            letters[0], letters[-1] = begin, last
            if end - start == 1:
                letters = [alone]
        tags[start:end] = [f"{letter}-{kind}" for letter in letters]
    return tags


@pytest.mark.parametrize("scheme", SCHEMES)
def test_tags_may_follow_if_their_strict_spans_are_written_so(scheme: Scheme) -> None:
    allowed = 0
    for tags in product(tags_of(LETTERS[scheme]), repeat=4):
        path = [None, *tags, None]
        may = all(may_follow(scheme, *pair) for pair in pairwise(path))
        found = spans(tags, scheme)
        assert may == (encoded(found, 4, scheme) == list(tags)), tags
        if may:
            assert found == spans(tags)
            allowed += 1
    # A sentence begins with a word outside, or with a span of one of two types and any length.
    ways = [1]
    for length in range(1, 5):
        ways.append(ways[-1] + 2 * sum(ways[:length]))
    assert allowed == ways[4]


def test_other_tags_mark_no_spans() -> None:
    assert not mark_spans(["O"])
    assert not mark_spans(["B-X", "NOUN"])
    require_scheme(["O", "B-X", "I-X"], "IOB2", "file")
    with pytest.raises(UserError, match="the tag 'E-X' is not of the scheme IOB2"):
        require_scheme(["O", "B-X", "E-X"], "IOB2", "file")
