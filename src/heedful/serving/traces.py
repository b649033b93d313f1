"""Traces that clients look at: opened ones, and the last few that were made."""

from collections import OrderedDict
from collections.abc import Mapping
from typing import NamedTuple

from starlette.requests import Request

from heedful.inference import Trace
from heedful.serving.asking import Desk
from heedful.serving.saying import RefusedError, said

_MOST = 16
_MOST_BYTES = 256 << 20


class WhichTrace(NamedTuple):
    """An opened trace's name, or what a trace is to be made of."""

    trace: str | None
    model: str | None = None
    source: str = ""
    target: str | None = None
    gradients: bool = False


class KeptTraces:
    """Finds a trace: the opened ones by name, others made by the engine and kept for a while."""

    def __init__(self, desk: Desk, opened: Mapping[str, Trace]) -> None:
        self._desk, self._opened = desk, opened
        self._kept: OrderedDict[WhichTrace, Trace] = OrderedDict()

    async def get(self, request: Request, which: WhichTrace) -> Trace:
        """The trace.

        Raises:
            RefusedError: there is none of that name, or none can be made.
        """
        if which.trace is not None:
            if which.trace not in self._opened:
                names = ", ".join(self._opened) or "none"
                raise RefusedError(404, f"no trace {said(which.trace)}; opened are {names}")
            return self._opened[which.trace]
        found = self._kept.get(which)
        if found is None:
            translator = self._desk.models.choose(which.model, None, None).translator
            found = await self._desk.wait(
                request,
                self._desk.run(
                    lambda: translator.trace(which.source, which.target, relevance=which.gradients)
                ),
            )
        self._kept[which] = found
        self._kept.move_to_end(which)
        while len(self._kept) > 1 and (
            len(self._kept) > _MOST or sum(map(_size, self._kept.values())) > _MOST_BYTES
        ):
            self._kept.popitem(last=False)
        return found


def _size(trace: Trace) -> int:
    return sum(one.weights.numel() * one.weights.element_size() for one in trace.maps)
