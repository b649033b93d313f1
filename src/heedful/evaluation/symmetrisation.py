"""Symmetrisation: combines the word links of both directions.

A model from English to Spanish and one from Spanish to English each link the words of a pair in
their own way. Intersection and union: Och and Ney 2003, "A systematic comparison of various
statistical alignment models", section 5. Growing between the two: Koehn, Och and Marcu 2003,
"Statistical phrase-based translation", section 3.2; Koehn et al. 2005, "Edinburgh system
description for the 2005 IWSLT speech translation evaluation", section 2.2.

``grow-diag`` begins with the intersection. It goes through the links in order of source and target
word, and adds to each the neighbours, upright, across and diagonal, that are in the union and of
which at least one word has no link yet; over and over, until nothing is added. ``grow-diag-final``
then goes through each direction's links, the forward ones first, and adds those of which at least
one word has no link yet; ``grow-diag-final-and`` only those of which neither has.

What is added counts at once. So the order matters: exchanging the sides, or the directions, may
change what growing finds, though seldom much. The intersection and the union know no order.
"""

from collections.abc import Iterable
from typing import Literal, get_args

from heedful.basics.errors import UserError
from heedful.data.links import Link

Join = Literal["intersection", "union", "grow-diag", "grow-diag-final", "grow-diag-final-and"]
JOINS: tuple[Join, ...] = get_args(Join)
DEFAULT_JOIN: Join = "grow-diag-final-and"

_NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


def check_join(name: str) -> Join:
    """The way of joining of this name.

    Raises:
        UserError: there is none.
    """
    for join in JOINS:
        if join == name:
            return join
    raise UserError(f"'{name}' is not a way to join directions; use one of {', '.join(JOINS)}")


def symmetrise(
    forward: Iterable[Link], reverse: Iterable[Link], join: Join = DEFAULT_JOIN
) -> set[Link]:
    """Join the links of one pair of texts from both directions.

    Args:
        forward: (source word, target word), from the model that writes the target.
        reverse: (source word, target word) too, from the model that writes the source.
        join: how; the module's text defines each.

    Example:
        >>> forward, reverse = {(0, 0), (1, 1), (2, 1)}, {(0, 0), (1, 1), (3, 3)}
        >>> sorted(symmetrise(forward, reverse, "grow-diag"))
        [(0, 0), (1, 1), (2, 1)]
        >>> sorted(symmetrise(forward, reverse, "grow-diag-final-and"))
        [(0, 0), (1, 1), (2, 1), (3, 3)]
    """
    one, other = set(forward), set(reverse)
    if join == "intersection":
        return one & other
    if join == "union":
        return one | other
    growing = _Growing(one & other)
    growing.grow(one | other)
    if join != "grow-diag":
        for links in (one, other):
            growing.finish(links, both=join == "grow-diag-final-and")
    return growing.links


class _Growing:
    """Links that others are added to."""

    def __init__(self, links: set[Link]) -> None:
        self.links: set[Link] = set()
        self._sources: set[int] = set()
        self._targets: set[int] = set()
        for link in links:
            self._add(link)

    def grow(self, candidates: set[Link]) -> None:
        """Add neighbours among the candidates until there is none to add."""
        ordered = sorted(candidates)
        added = True
        while added:
            added = False
            # A link that was added in this turn is met in it if it stands further on.
            for source, target in ordered:
                if (source, target) not in self.links:
                    continue
                for down, across in _NEIGHBOURS:
                    link = (source + down, target + across)
                    if link in candidates and link not in self.links and self._is_free(link):
                        self._add(link)
                        added = True

    def finish(self, links: set[Link], *, both: bool) -> None:
        """Add links of which one word, or ``both``, are free."""
        for link in sorted(links):
            if self._is_free(link, both=both):
                self._add(link)

    def _is_free(self, link: Link, *, both: bool = False) -> bool:
        free = (link[0] not in self._sources, link[1] not in self._targets)
        return all(free) if both else any(free)

    def _add(self, link: Link) -> None:
        self.links.add(link)
        self._sources.add(link[0])
        self._targets.add(link[1])
