"""Symmetrisation: combines the word links of both directions.

An English-Spanish and a Spanish-English model link the words of a pair differently. Intersection
and union: Och and Ney 2003, "A systematic comparison of various statistical alignment models",
section 5. Growing from one to the other: Koehn, Och and Marcu 2003, "Statistical phrase-based
translation", section 3.2; Koehn et al. 2005, "Edinburgh system description for the 2005 IWSLT
speech translation evaluation", section 2.2.

``grow-diag`` starts with the intersection. It visits the links in order of source and target word,
and adds their horizontal, vertical and diagonal neighbours that are in the union and of which at
least one word has no link yet. It repeats this until no link is added. ``grow-diag-final`` then
visits the links of each direction, the forward ones first, and adds those of which at least one
word has no link yet; ``grow-diag-final-and`` only those of which neither word has one.

Added links count immediately, so the result depends on the order: exchanging the sides or the
directions may change it slightly. Intersection and union do not depend on the order.
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
    """Check the name of a join.

    Raises:
        UserError: the name is unknown.
    """
    for join in JOINS:
        if join == name:
            return join
    raise UserError(f"'{name}' is not a way to join directions; use one of {', '.join(JOINS)}")


def symmetrise(
    forward: Iterable[Link], reverse: Iterable[Link], join: Join = DEFAULT_JOIN
) -> set[Link]:
    """Combine the links of one pair from both directions.

    Args:
        forward: (source word, target word), from the model that writes the target.
        reverse: (source word, target word), too, from the model that writes the source.
        join: the method; the module's docstring defines each.

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
    """A set of links that grows."""

    def __init__(self, links: set[Link]) -> None:
        self.links: set[Link] = set()
        self._sources: set[int] = set()
        self._targets: set[int] = set()
        for link in links:
            self._add(link)

    def grow(self, candidates: set[Link]) -> None:
        """Add neighbouring candidates until no link can be added."""
        ordered = sorted(candidates)
        added = True
        while added:
            added = False
            # Links added in this pass are also visited if they come later in the order.
            for source, target in ordered:
                if (source, target) not in self.links:
                    continue
                for down, across in _NEIGHBOURS:
                    link = (source + down, target + across)
                    if link in candidates and link not in self.links and self._is_free(link):
                        self._add(link)
                        added = True

    def finish(self, links: set[Link], *, both: bool) -> None:
        """Add links of which one word, or ``both``, have no link yet."""
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
