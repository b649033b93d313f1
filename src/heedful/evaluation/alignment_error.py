"""Alignment error rate: word links compared with manual links.

Och and Ney 2003, "A systematic comparison of various statistical alignment models", section 4.1.
Annotators mark links as *sure* (S) or only *possible* (P, which includes S). For links A::

    precision = |A ∩ P| / |A|      recall = |A ∩ S| / |S|
    AER = 1 − (|A ∩ S| + |A ∩ P|) / (|A| + |S|)
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from heedful.basics.errors import UserError
from heedful.basics.notices import notice
from heedful.data.links import Link, RangeCheck, pharaoh_items

_NUMBERED = re.compile(r"(\d{1,7})\s+(\d{1,7})\s+(\d{1,7})(?:\s+([SPsp]))?(?:\s+[\d.]+)?")


@dataclass(frozen=True)
class GoldLinks:
    """A sentence's links (source word, target word), from 0; ``sure`` ⊆ ``possible``."""

    sure: frozenset[Link]
    possible: frozenset[Link]


@dataclass(frozen=True)
class AlignmentScore:
    """The agreement of links with the gold links.

    Attributes:
        precision: share of the links that are sure or possible gold links; 0 without links.
        recall: share of the sure gold links that were found.
        aer: the alignment error rate, from 0 (best) to 1.
        f1: harmonic mean of precision and recall.
        links: number of links.
        sure: number of sure gold links.
        possible: number of gold links, sure or possible.
        links_in_sure: number of links that are sure gold links.
        links_in_possible: number of links that are sure or possible gold links.
    """

    precision: float
    recall: float
    aer: float
    f1: float
    links: int
    sure: int
    possible: int
    links_in_sure: int
    links_in_possible: int


def alignment_error_rate(
    gold: Sequence[GoldLinks], hypotheses: Sequence[Iterable[Link]]
) -> AlignmentScore:
    """Score links against gold links, summed over all sentences.

    Args:
        gold: one item per sentence, counted from 0 (see :func:`read_gold`).
        hypotheses: the links (source word, target word) of each sentence, counted from 0;
            duplicate links count once.

    Raises:
        UserError: the numbers of sentences differ, or the gold has no sure link.

    Example:
        >>> gold = [GoldLinks(frozenset({(0, 0)}), frozenset({(0, 0), (1, 1)}))]
        >>> score = alignment_error_rate(gold, [[(0, 0), (1, 1), (2, 0)]])
        >>> round(score.precision, 3), score.recall, score.aer
        (0.667, 1.0, 0.25)
    """
    if len(gold) != len(hypotheses):
        raise UserError(
            f"the number of lines differs: gold links {len(gold):,}, links to score "
            f"{len(hypotheses):,}; give one line for each sentence, in the same order"
        )
    links = sure = possible = in_sure = in_possible = 0
    for right, given in zip(gold, hypotheses, strict=True):
        found = set(given)
        links += len(found)
        sure += len(right.sure)
        possible += len(right.possible | right.sure)
        in_sure += len(found & right.sure)
        in_possible += len(found & (right.possible | right.sure))
    if sure == 0:
        raise UserError(
            "the gold alignment has no sure link, so the error rate is undefined; write sure "
            "links as i-j"
        )
    precision = in_possible / links if links else 0.0
    recall = in_sure / sure
    return AlignmentScore(
        precision=precision,
        recall=recall,
        aer=1 - (in_sure + in_possible) / (links + sure),
        f1=2 * precision * recall / (precision + recall) if precision + recall else 0.0,
        links=links,
        sure=sure,
        possible=possible,
        links_in_sure=in_sure,
        links_in_possible=in_possible,
    )


def read_links(
    lines: Sequence[str], *, where: str = "links", swap: bool = False
) -> list[set[Link]]:
    """Links in Pharaoh format (``0-0 1-2``), counted from 0, one line per sentence.

    Args:
        lines: the file's lines.
        where: the file's name, for messages.
        swap: whether links are written as target-source.

    Raises:
        UserError: an item does not have the form i-j.
    """
    found = []
    for number, line in enumerate(lines, start=1):
        links = {(i, j) for i, j, _ in pharaoh_items(line, where, number)}
        found.append({(j, i) for i, j in links} if swap else links)
    return found


def read_gold(
    lines: Sequence[str],
    *,
    where: str = "gold",
    indexing: str = "auto",
    lengths: Sequence[tuple[int, int]] | None = None,
    sentences: int | None = None,
) -> list[GoldLinks]:
    """Gold links, sure and possible.

    Two formats are detected: Pharaoh with ``i-j`` for sure and ``ipj`` for possible links, one
    line per sentence; and one link per line, ``sentence i j`` with an optional ``S`` or ``P``
    (sentences counted from 1). With ``indexing="auto"``, words are counted from 0 if a 0 occurs,
    otherwise from 1.

    Args:
        lines: the file's lines.
        where: the file's name, for messages.
        indexing: the index of the first word, ``0`` or ``1``, or ``auto``.
        lengths: the numbers of source and target words of each sentence, to check links.
        sentences: the number of sentences if ``lengths`` is not known; in files with one link per
            line, the last sentences may have none.

    Raises:
        UserError: an item is invalid, a word is out of range, or the numbers of sentences differ.
    """
    if indexing not in ("auto", "0", "1"):
        raise UserError(f"unknown indexing '{indexing}'; use auto, 0 or 1")
    if _is_numbered(lines):
        rows = _numbered_rows(lines, where, sentences if lengths is None else len(lengths))
    else:
        rows = [pharaoh_items(line, where, number) for number, line in enumerate(lines, start=1)]
    if lengths is not None and len(lengths) != len(rows):
        raise UserError(
            f"{where} has links for {len(rows)} sentences but there are {len(lengths)} sentence "
            "pairs; give one line for each pair, in the same order"
        )
    first = _first_word(rows, indexing, where)
    _check_counting(rows, first, where)
    if lengths is not None:
        _check_range(rows, first, lengths, where)
    gold = []
    for row in rows:
        moved = [(i - first, j - first, kind) for i, j, kind in row]
        gold.append(
            GoldLinks(
                sure=frozenset((i, j) for i, j, kind in moved if kind == "-"),
                possible=frozenset((i, j) for i, j, _ in moved),
            )
        )
    return gold


def _is_numbered(lines: Sequence[str]) -> bool:
    first = next((line for line in lines if line.strip()), "")
    return _NUMBERED.fullmatch(first.strip()) is not None


def _numbered_rows(
    lines: Sequence[str], where: str, sentences: int | None
) -> list[list[tuple[int, int, str]]]:
    rows: dict[int, list[tuple[int, int, str]]] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        match = _NUMBERED.fullmatch(line.strip())
        if match is None or int(match[1]) < 1:
            raise UserError(
                f"{where}, line {number}: '{line.strip()}' is not 'sentence i j' with an optional "
                "S or P, sentences counted from 1"
            )
        kind = "p" if (match[4] or "S").upper() == "P" else "-"
        rows.setdefault(int(match[1]), []).append((int(match[2]), int(match[3]), kind))
    last = max(rows, default=0)
    if sentences is not None and last > sentences:
        raise UserError(
            f"{where} has links for sentence {last} but there are {sentences} sentence pairs"
        )
    return [rows.get(number, []) for number in range(1, (sentences or last) + 1)]


def _first_word(rows: list[list[tuple[int, int, str]]], indexing: str, where: str) -> int:
    if indexing != "auto":
        return int(indexing)
    if any(0 in (i, j) for row in rows for i, j, _ in row):
        return 0
    notice(
        f"{where} has no word 0: words are assumed to be counted from 1 (else give --indexing 0)"
    )
    return 1


def _check_counting(rows: list[list[tuple[int, int, str]]], first: int, where: str) -> None:
    for number, row in enumerate(rows, start=1):
        for i, j, kind in row:
            if min(i, j) < first:
                raise UserError(
                    f"{where}, sentence {number}: word 0 in '{i}{kind}{j}' although words are "
                    "counted from 1; give --indexing 0"
                )


def _check_range(
    rows: list[list[tuple[int, int, str]]],
    first: int,
    lengths: Sequence[tuple[int, int]],
    where: str,
) -> None:
    check = RangeCheck(first)
    for row, sizes in zip(rows, lengths, strict=True):
        check.see([(i, j) for i, j, _ in row], sizes)
    if check.wrong is None:
        return
    number, (i, j), sizes = check.wrong
    for place, side in enumerate(("source", "target")):
        if all(not both[place] for both in lengths):
            raise UserError(f"{where} has links, but no sentence pair has any {side} words")
        if not sizes[place]:
            raise UserError(
                f"{where}, sentence {number} has links, but its {side} is empty; check that the "
                "lines belong together"
            )
    kind = next(kind for a, b, kind in rows[number - 1] if (a, b) == (i, j))
    raise UserError(
        f"{where}, sentence {number}: link '{i}{kind}{j}' is out of range for {sizes[0]} source "
        f"and {sizes[1]} target words counted from {first}; "
        + check.explain(f"give --indexing {1 - first}")
    )
