"""Questions about stories: JSON lines, or the format of the bAbI tasks (Weston et al. 2016)."""

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from heedful.basics.errors import UserError
from heedful.data.readers.labelled import objects_of_lines
from heedful.data.readers.opening import open_input
from heedful.data.readers.text import lines_of

_NUMBERED = re.compile(r"\s*(\d+)\s+(\S.*)")


def read_stories(path: str, encoding: str | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
    """The examples of a file, plain, gzip or xz: where each is, and its fields.

    JSON lines have an object a line. In a file of bAbI, lines are numbered within a story; a line
    with TABs has a question, its answer and the numbers of the supporting lines, which become the
    numbers of facts, from 1.

    Args:
        path: the file; ``-`` is standard input.
        encoding: its encoding; UTF-8 by default.

    Raises:
        UserError: a line has neither format; the message has file and line.
    """
    with open_input(path) as file:
        lines, before = lines_of(file, encoding), []
        for line in lines:
            before.append(line)
            if line.strip():
                break
        every = chain(before, lines)
        if before and before[-1].lstrip()[:1] not in ("", "{"):
            yield from _babi(file.name, every)
            return
        for where, found in objects_of_lines(file.name, every):
            if found is not None:
                yield where, found


def _babi(name: str, lines: Iterable[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    facts: dict[int, str] = {}
    for number, line in enumerate(lines, start=1):
        where = f"{name}:{number}"
        if not line.strip():
            continue
        match = _NUMBERED.match(line)
        if match is None:
            raise UserError(
                f"{where}: neither a JSON object nor a numbered line; write one object a line with "
                "story, question and answer, or use the format of the bAbI tasks"
            )
        place, text = int(match[1]), match[2]
        if place == 1:
            facts = {}
        question, *rest = (part.strip() for part in text.split("\t"))
        if not rest:
            facts[place] = question
            continue
        order = {line: fact for fact, line in enumerate(facts, start=1)}
        supports = rest[1].split() if len(rest) > 1 else []
        for one in supports:
            if not one.isdecimal() or int(one) not in order:
                raise UserError(
                    f"{where}: the supporting fact {one} does not exist; "
                    f"the story has the lines {', '.join(map(str, order))}"
                )
        yield (
            where,
            {
                "story": list(facts.values()),
                "question": question,
                "answer": rest[0],
                "supports": [order[int(one)] for one in supports],
            },
        )
