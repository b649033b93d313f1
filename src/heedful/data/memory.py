"""A translation memory: units of a corpus, found by source and context.

Stored as JSON lines ``[source, target, context, times]``, which cannot contain code.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from heedful.basics.bounded_reading import read_json_lines
from heedful.basics.errors import UserError
from heedful.basics.files import atomic_file
from heedful.basics.notices import notice

MOST_UNITS = 1_000_000
"""Maximum number of different units of a memory."""


class Entry(NamedTuple):
    """A unit of a memory.

    Attributes:
        source: the text.
        target: its translation.
        context: distinguishes units with the same source, such as the context of a message or an
            id.
        times: number of times the unit was added.
    """

    source: str
    target: str
    context: str | None = None
    times: int = 1


@dataclass(frozen=True)
class Match:
    """A match of a source in a memory.

    Attributes:
        target: the translation.
        kind: ``context`` if the context is also equal, else ``exact``.
        others: further translations of the source, the most frequent first.
    """

    target: str
    kind: str
    others: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """A JSON object: ``kind`` and ``others``."""
        return {"kind": self.kind, "others": list(self.others)}


class Memory:
    """A translation memory in a dictionary, which needs about a kilobyte per unit.

    Example:
        >>> memory = Memory([Entry("Open", "Öffnen", times=2), Entry("Open", "Offen", "state")])
        >>> memory.find("Open").target, memory.find("Open", "state").target
        ('Öffnen', 'Offen')
    """

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._counts: dict[str, dict[tuple[str, str | None], int]] = {}
        self._size = self.left_out = 0
        for entry in entries:
            self.add(entry)

    def __len__(self) -> int:
        return self._size

    def add(self, entry: Entry) -> None:
        """Add a unit; empty units and units beyond the limit are skipped and counted."""
        if not entry.source.strip() or not entry.target.strip():
            self.left_out += 1
            return
        key = entry.target, entry.context
        is_new = key not in self._counts.get(entry.source, ())
        if is_new and self._size >= MOST_UNITS:
            self.left_out += 1
            return
        self._size += is_new
        known = self._counts.setdefault(entry.source, {})
        known[key] = known.get(key, 0) + entry.times

    def find(self, source: str, context: str | None = None) -> Match | None:
        """Find a translation: of the same context if possible, else the most frequent.

        White space around the source is ignored; the translation gets that of the source.
        """
        known = self._counts.get(source)
        before = after = ""
        if known is None:
            inner = source.strip()
            known = self._counts.get(inner) if inner else None
            if known is None:
                return None
            before, after = source[: source.index(inner)], source[len(source.rstrip()) :]
        totals: dict[str, int] = defaultdict(int)
        of_context: dict[str, int] = defaultdict(int)
        for (target, own), count in known.items():
            totals[target] += count
            if context is not None and own == context:
                of_context[target] += count
        chosen = of_context or totals
        best = max(chosen, key=lambda target: chosen[target])
        ranked = sorted(totals, key=lambda target: -totals[target])
        others = tuple(target for target in ranked if target != best)
        return Match(before + best + after, "context" if of_context else "exact", others)

    def search(self, text: str, limit: int = 10) -> list[Entry]:
        """Units whose source or target contains the text, ignoring case; shortest sources first."""
        wanted = re.compile(re.escape(text), re.IGNORECASE)
        found = (one for one in self if wanted.search(one.source) or wanted.search(one.target))
        return sorted(found, key=lambda one: len(one.source))[:limit]

    def __iter__(self) -> Iterator[Entry]:
        for source, known in self._counts.items():
            for (target, context), count in known.items():
                yield Entry(source, target, context, count)

    def statistics(self) -> dict[str, int]:
        """The numbers of units, sources, sources with several translations, and contexts."""
        several = sum(len({target for target, _ in known}) > 1 for known in self._counts.values())
        contexts = sum(entry.context is not None for entry in self)
        return {
            "units": len(self),
            "sources": len(self._counts),
            "sources_with_several_targets": several,
            "units_with_context": contexts,
        }

    def save(self, path: Path) -> None:
        """Write the memory atomically.

        Raises:
            UserError: the file cannot be written.
        """
        if self.left_out:
            notice(
                f"{path.name}: {self.left_out:,} units left out of the memory: empty, or beyond "
                f"{MOST_UNITS:,}"
            )
        with atomic_file(path) as file:
            for entry in self:
                file.write((json.dumps(list(entry), ensure_ascii=False) + "\n").encode("utf-8"))

    @classmethod
    def load(cls, path: Path) -> "Memory":
        """Load a saved object.

        Raises:
            UserError: the file is missing or damaged.
        """
        memory = cls()
        for number, row in enumerate(read_json_lines(path), start=1):
            if not _is_entry(row):
                raise UserError(f"{path}, line {number}: no unit of a memory; the file is damaged")
            memory.add(Entry(*row))
        return memory


def _is_entry(row: Any) -> bool:
    return (
        isinstance(row, list)
        and len(row) == len(Entry._fields)
        and isinstance(row[0], str)
        and isinstance(row[1], str)
        and (row[2] is None or isinstance(row[2], str))
        and isinstance(row[3], int)
        and row[3] > 0
    )
