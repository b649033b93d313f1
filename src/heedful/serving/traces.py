"""Traces for clients: those opened from files, and a cache of the last computed ones."""

import asyncio
import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter
from pydantic import Field, StrictBool, StrictStr, TypeAdapter, create_model
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from heedful.basics.cancellation import check_cancelled
from heedful.basics.device import one_thread
from heedful.basics.errors import UserError
from heedful.inference import Trace
from heedful.serving.errors import RefusedError, printable
from heedful.serving.handling import RequestHandler
from heedful.serving.openapi import answers, body_of
from heedful.serving.request_parsing import check_fields, check_input, texts_in
from heedful.serving.responses import compressed
from heedful.tasks.endpoints import ModelRequest
from heedful.tasks.spec import specs
from heedful.viewing.trace_encoding import map_bytes, summary

_MOST = 16
_MOST_BYTES = 256 << 20
_BINARY = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}


class TraceRequest(ModelRequest):
    """``POST /api/trace``: trace a text or an input of ``predict``, or get an opened trace."""

    source: StrictStr | None = None
    target: StrictStr | None = None
    input: Any = None
    gradients: StrictBool = False
    trace: StrictStr | None = None

    @property
    def options(self) -> frozenset[str]:
        """Names of the task options that are true."""
        return frozenset(name for name in _options() if getattr(self, name))


def _options() -> list[str]:
    """Names of all tasks' options for traces."""
    return sorted({name for spec in specs() for name in spec.trace_options})


def _requests() -> tuple[type[TraceRequest], Any]:
    """The request classes for a trace and for one of its maps, with the options of all tasks."""
    options: dict[str, Any] = dict.fromkeys(_options(), (StrictBool, False))
    of_trace = create_model(
        "TraceRequest", __base__=TraceRequest, __doc__=TraceRequest.__doc__, **options
    )
    number: Any = (Annotated[int, Field(ge=0)], ...)
    of_map = create_model(
        "AttentionRequest", __base__=of_trace, __doc__="``POST /api/attention``.", map=number
    )
    return of_trace, of_map


class WhichTrace(NamedTuple):
    """Identifies a trace: the name of an opened one, or what to compute."""

    trace: str | None
    model: str | None = None
    source: str = ""
    target: str | None = None
    gradients: bool = False
    options: frozenset[str] = frozenset()
    input: str | None = None
    """An input of ``/api/predict`` as JSON, instead of ``source`` and ``target``."""


def routes(handler: RequestHandler, opened: Mapping[str, Trace]) -> APIRouter:
    """The endpoints that describe models and return attention weights."""
    router = APIRouter(prefix="/api", tags=["heedful's contract"])
    kept = KeptTraces(handler, opened)
    of_trace, of_map = _requests()
    anything = answers(dict[str, Any])

    @router.get("/models", responses=anything)
    async def models(request: Request) -> JSONResponse:
        """Describe the models, and list the opened traces."""
        await handler.fields(request)
        served = handler.models.models
        return JSONResponse(
            {
                "models": [one.facts for one in handler.models.listed("models")],
                "readers": [one.facts for one in handler.models.listed("readers")],
                "traces": list(opened),
                "panels": handler.models.panels(),
                "inputs": {
                    one.name: TypeAdapter(one.spec.input_type()).json_schema() for one in served
                },
            }
        )

    @router.post("/trace", openapi_extra=body_of(of_trace), responses=anything)
    async def trace(request: Request) -> Response:
        """The summary of a trace: its axes, its maps and their thumbnails."""
        asked = check_fields(of_trace, await handler.fields(request, strings=False))
        found = await kept.get(request, _which(handler, asked))
        return await compressed(request, found.summary, "application/json")

    @router.post(
        "/attention",
        openapi_extra=body_of(of_map),
        responses=answers(None, _BINARY),
    )
    async def attention(request: Request) -> Response:
        """The weights of one map of a trace, one byte per weight."""
        asked = check_fields(of_map, await handler.fields(request, strings=False))
        found = await kept.get(request, _which(handler, asked))
        if asked.map >= len(found.maps):
            raise RefusedError(
                404, f"no map {printable(asked.map)}; the trace has {len(found.maps)} maps"
            )
        return await compressed(request, found.maps[asked.map], "application/octet-stream")

    return router


def _which(handler: RequestHandler, asked: TraceRequest) -> WhichTrace:
    if asked.trace is not None:
        return WhichTrace(trace=asked.trace)
    if asked.source is None and asked.input is None:
        raise RefusedError(400, "give source (a text) or trace (the name of an opened trace)")
    if asked.source is not None and asked.input is not None:
        raise RefusedError(400, "give source or input, not both")
    handler.check_texts([asked.source or "", asked.target or "", *texts_in(asked.input)])
    model = handler.models.choose_traced(asked.model)
    try:
        model.check_trace(asked.source or "", asked.options)
    except UserError as error:
        raise RefusedError(400, str(error)) from None
    given = None
    if asked.input is not None:
        check_input(model.spec.input_type(), asked.input, "input")
        given = json.dumps(asked.input)
    which = WhichTrace(None, model.name, asked.source or "", asked.target, asked.gradients)
    return which._replace(options=asked.options, input=given)


@dataclass(frozen=True)
class EncodedTrace:
    """A trace encoded for a client: one byte per weight, a quarter of the size of the trace."""

    summary: bytes
    """JSON."""
    maps: tuple[bytes, ...]

    @classmethod
    def of(cls, trace: Trace) -> "EncodedTrace":
        """Encode a trace."""
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
        """Size in bytes."""
        return len(self.summary) + sum(map(len, self.maps))


class KeptTraces:
    """Finds opened traces by name and lets the engine compute others; caches the last few."""

    def __init__(self, handler: RequestHandler, opened: Mapping[str, Trace]) -> None:
        self._handler, self._opened = handler, opened
        self._kept: OrderedDict[WhichTrace, EncodedTrace] = OrderedDict()

    async def get(self, request: Request, which: WhichTrace) -> EncodedTrace:
        """The encoded trace.

        Raises:
            RefusedError: no opened trace has this name, or the trace cannot be computed.
        """
        found = self._kept.get(which) or await self._made(request, which)
        self._kept[which] = found
        self._kept.move_to_end(which)
        while len(self._kept) > 1 and (
            len(self._kept) > _MOST or sum(one.size for one in self._kept.values()) > _MOST_BYTES
        ):
            self._kept.popitem(last=False)
        return found

    async def _made(self, request: Request, which: WhichTrace) -> EncodedTrace:
        if which.trace is not None:
            if which.trace not in self._opened:
                names = ", ".join(self._opened) or "none"
                raise RefusedError(404, f"no trace {printable(which.trace)}; opened: {names}")
            return await asyncio.to_thread(_encoded_aside, self._opened[which.trace])
        model = self._handler.models.choose(which.model)

        def make() -> EncodedTrace:
            how = dict.fromkeys(which.options, True)
            if which.input is None:
                return EncodedTrace.of(
                    model.trace(which.source, which.target, relevance=which.gradients, **how)
                )
            spec = model.spec
            value = TypeAdapter(spec.input_type()).validate_python(json.loads(which.input))
            given = spec.read_request(value)
            texts = given if isinstance(given, tuple) else (given,)
            return EncodedTrace.of(model.trace(*texts, relevance=which.gradients, **how))

        return await self._handler.wait(request, self._handler.run(request, make))


def _encoded_aside(trace: Trace) -> EncodedTrace:
    with one_thread():  # only the engine's thread may create a thread pool
        return EncodedTrace.of(trace)
