"""Traces that clients look at: opened ones, and the last few that were made."""

import asyncio
import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from starlette.requests import Request

from heedful.basics.cancelling import check_cancelled
from heedful.basics.device import one_thread
from heedful.inference import Trace
from heedful.serving.asking import Desk
from heedful.serving.readers import ServedReaders, Tracing
from heedful.serving.saying import RefusedError, said
from heedful.viewing.wire import map_bytes, summary

_MOST = 16
_MOST_BYTES = 256 << 20


class WhichTrace(NamedTuple):
    """An opened trace's name, or what a trace is to be made of."""

    trace: str | None
    model: str | None = None
    source: str = ""
    target: str | None = None
    gradients: bool = False
    begins: bool = False
    latest: bool = False


@dataclass(frozen=True)
class ShownTrace:
    """A trace as it is sent: a byte a weight, a quarter of what the trace itself takes."""

    summary: bytes
    """JSON."""
    maps: tuple[bytes, ...]

    @classmethod
    def of(cls, trace: Trace) -> "ShownTrace":
        """What is sent of a trace."""
        facts = json.dumps(
            summary(trace), ensure_ascii=False, allow_nan=False, separators=(",", ":")
        )
        maps = []
        for number in range(len(trace.maps)):
            check_cancelled()
            maps.append(map_bytes(trace, number))
        return cls(facts.encode(), tuple(maps))

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.summary) + sum(map(len, self.maps))


class KeptTraces:
    """Finds a trace: the opened ones by name, others made by the engine; keeps the last few."""

    def __init__(self, desk: Desk, opened: Mapping[str, Trace], readers: ServedReaders) -> None:
        self._desk, self._opened, self._readers = desk, opened, readers
        self._kept: OrderedDict[WhichTrace, ShownTrace] = OrderedDict()

    async def get(self, request: Request, which: WhichTrace) -> ShownTrace:
        """The trace.

        Raises:
            RefusedError: there is none of that name, or none can be made.
        """
        found = self._kept.get(which) or await self._made(request, which)
        self._kept[which] = found
        self._kept.move_to_end(which)
        while len(self._kept) > 1 and (
            len(self._kept) > _MOST or sum(one.size for one in self._kept.values()) > _MOST_BYTES
        ):
            self._kept.popitem(last=False)
        return found

    async def _made(self, request: Request, which: WhichTrace) -> ShownTrace:
        if which.trace is not None:
            if which.trace not in self._opened:
                names = ", ".join(self._opened) or "none"
                raise RefusedError(404, f"no trace {said(which.trace)}; opened are {names}")
            return await asyncio.to_thread(_shown_aside, self._opened[which.trace])
        trace = self._tracing(which)

        def make() -> ShownTrace:
            return ShownTrace.of(trace(which.source, which.target, relevance=which.gradients))

        return await self._desk.wait(request, self._desk.run(request, make))

    def _tracing(self, which: WhichTrace) -> Tracing:
        if which.model is not None and which.model in self._readers:
            reader = self._readers[which.model]
            return partial(reader.trace, begins=which.begins, latest=which.latest)
        return self._desk.models.choose(which.model, None, None).translator.trace


def _shown_aside(trace: Trace) -> ShownTrace:
    with one_thread():  # the engine's thread alone is to have a pool
        return ShownTrace.of(trace)
