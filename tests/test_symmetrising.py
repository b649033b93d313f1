"""Joining both directions: the published procedure written naively, real links, properties."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.basics.errors import UserError
from heedful.data.links import Link
from heedful.evaluation.alignment_error import read_links
from heedful.evaluation.symmetrisation import JOINS, Join, check_join, symmetrise

HANSARDS = Path(__file__).parents[1] / "../shared/data/align-enfr"
SIZE = 6

links = st.sets(st.tuples(st.integers(0, SIZE - 1), st.integers(0, SIZE - 1)), max_size=14)


def as_published(forward: set[Link], reverse: set[Link], join: Join) -> set[Link]:
    """Koehn et al.'s procedure over whole matrices, as it is printed: loop over all points."""
    points = [(i, j) for i in range(SIZE) for j in range(SIZE)]
    joined = [[(i, j) in forward and (i, j) in reverse for j in range(SIZE)] for i in range(SIZE)]

    def row_free(i: int) -> bool:
        return not any(joined[i])

    def column_free(j: int) -> bool:
        return not any(row[j] for row in joined)

    changed = True
    while changed:
        changed = False
        for i, j in points:
            if not joined[i][j]:
                continue
            steps = [(-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1)]
            for near in [(i + down, j + across) for down, across in steps]:
                there = near in forward or near in reverse
                if there and (row_free(near[0]) or column_free(near[1])):
                    joined[near[0]][near[1]] = changed = True
    if join != "grow-diag":
        for direction in (forward, reverse):
            for i, j in points:
                free = [row_free(i), column_free(j)]
                enough = any(free) if join == "grow-diag-final" else all(free)
                if (i, j) in direction and enough:
                    joined[i][j] = True
    return {(i, j) for i, j in points if joined[i][j]}


@settings(max_examples=150, deadline=None)
@given(links, links)
def test_growing_is_the_published_procedure(forward: set[Link], reverse: set[Link]) -> None:
    for join in ("grow-diag", "grow-diag-final", "grow-diag-final-and"):
        assert symmetrise(forward, reverse, join) == as_published(forward, reverse, join), join


@settings(max_examples=100, deadline=None)
@given(links, links)
def test_each_lies_between_intersection_and_union(forward: set[Link], reverse: set[Link]) -> None:
    found = {join: symmetrise(forward, reverse, join) for join in JOINS}
    assert found["intersection"] == forward & reverse
    assert found["union"] == forward | reverse
    for join, joined in found.items():
        assert found["intersection"] <= joined <= found["union"], join
    assert found["grow-diag"] <= found["grow-diag-final-and"]
    assert found["grow-diag"] <= found["grow-diag-final"]
    # Afterwards no word stands free that either direction links to another free word.
    for join in ("grow-diag-final", "grow-diag-final-and"):
        sources, targets = ({link[side] for link in found[join]} for side in (0, 1))
        assert all(i in sources or j in targets for i, j in found["union"])


def swapped(given_links: set[Link]) -> set[Link]:
    return {(j, i) for i, j in given_links}


@settings(max_examples=50, deadline=None)
@given(links, links)
def test_no_order_matters_to_intersection_and_union(forward: set[Link], reverse: set[Link]) -> None:
    for join in ("intersection", "union"):
        joined = symmetrise(forward, reverse, join)
        assert symmetrise(reverse, forward, join) == joined
        assert swapped(symmetrise(swapped(reverse), swapped(forward), join)) == joined
    # Growing looks at the directions together, so that they may be exchanged.
    assert symmetrise(reverse, forward, "grow-diag") == symmetrise(forward, reverse, "grow-diag")


@settings(max_examples=50, deadline=None)
@given(links)
def test_directions_that_agree_stay_as_they_are(both: set[Link]) -> None:
    assert all(symmetrise(both, both, join) == both for join in JOINS)
    assert symmetrise(both, set(), "intersection") == set()
    assert symmetrise(both, set(), "union") == both


def test_real_links_are_joined_as_published() -> None:
    if not HANSARDS.exists():
        pytest.skip("the Hansards links are not on this machine")
    for system in ("giza", "fastalign"):
        read = {
            kind: read_links(
                (HANSARDS / f"hyp.{system}.enfr{kind}.talp").read_text().splitlines(),
                swap=kind == ".reverse",
            )
            for kind in ("", ".reverse", ".intersection", ".union")
        }
        for join in ("intersection", "union"):
            both = zip(read[""], read[".reverse"], strict=True)
            assert [symmetrise(*each, join) for each in both] == read[f".{join}"]


def test_an_unknown_way_is_one_clear_line() -> None:
    assert check_join("union") == "union"
    with pytest.raises(UserError, match=r"'gdfa' is not a way .* grow-diag-final-and"):
        check_join("gdfa")
