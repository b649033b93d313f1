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
from heedful.serving.openapi import request_body, response_schemas
from heedful.serving.request_parsing import check_fields, check_input, collect_texts
from heedful.serving.responses import compressed_response
from heedful.serving.served import Served
from heedful.tasks.endpoints import ModelRequest
from heedful.tasks.spec import specs
from heedful.viewing.trace_encoding import map_bytes, summary

_MAX_TRACES = 16
_MAX_BYTES = 256 << 20
_BINARY = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}

NUMBER: Any = (Annotated[int, Field(ge=0)], ...)
"""A required field: a number that counts from 0."""


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


def trace_request(name: str, about: str, **fields: Any) -> type[TraceRequest]:
    """A request class with the fields of a trace, the options of all tasks, and other fields."""
    options: dict[str, Any] = dict.fromkeys(_options(), (StrictBool, False))
    return create_model(name, __base__=TraceRequest, __doc__=about, **options, **fields)


class TraceKey(NamedTuple):
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
    cache = TraceCache(handler, opened)
    of_trace = trace_request("TraceRequest", TraceRequest.__doc__ or "")
    of_map: Any = trace_request("AttentionRequest", "``POST /api/attention``.", map=NUMBER)
    anything = response_schemas(dict[str, Any])

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
                "max_body": handler.limits.body,
                "inputs": {
                    one.name: TypeAdapter(one.spec.input_type()).json_schema() for one in served
                },
            }
        )

    @router.post("/trace", openapi_extra=request_body(of_trace), responses=anything)
    async def trace(request: Request) -> Response:
        """The summary of a trace: its axes, its maps and their thumbnails."""
        body = check_fields(of_trace, await handler.fields(request, strings=False))
        found = await cache.get(request, trace_key(handler, body))
        return await compressed_response(request, found.summary, "application/json")

    @router.post(
        "/attention",
        openapi_extra=request_body(of_map),
        responses=response_schemas(None, _BINARY),
    )
    async def attention(request: Request) -> Response:
        """The weights of one map of a trace, one byte per weight."""
        body = check_fields(of_map, await handler.fields(request, strings=False))
        found = await cache.get(request, trace_key(handler, body))
        if body.map >= len(found.maps):
            raise RefusedError(
                404, f"no map {printable(body.map)}; the trace has {len(found.maps)} maps"
            )
        return await compressed_response(request, found.maps[body.map], "application/octet-stream")

    return router


def trace_key(handler: RequestHandler, body: TraceRequest) -> TraceKey:
    """What a request asks for.

    Raises:
        RefusedError: 400 or 404, the fields do not fit together, or no model has them.
    """
    if body.trace is not None:
        return TraceKey(trace=body.trace)
    if body.source is None and body.input is None:
        raise RefusedError(400, "give source (a text) or trace (the name of an opened trace)")
    if body.source is not None and body.input is not None:
        raise RefusedError(400, "give source or input, not both")
    if body.target is not None and body.input is not None:
        raise RefusedError(400, "target belongs to source; leave it out with input")
    model = handler.models.choose_traced(body.model)
    texts = collect_texts(body.input, model.spec.media_fields)
    handler.check_texts([body.source or "", body.target or "", *texts])
    try:
        model.check_trace(body.source or "", body.options)
    except UserError as error:
        raise RefusedError(400, str(error)) from None
    given = None
    if body.input is not None:
        check_input(model.spec.input_type(), body.input, "input")
        given = json.dumps(body.input)
    key = TraceKey(None, model.name, body.source or "", body.target, body.gradients)
    return key._replace(options=body.options, input=given)


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


class TraceCache:
    """Finds opened traces by name and lets the engine compute others; caches the last few."""

    def __init__(self, handler: RequestHandler, opened: Mapping[str, Trace]) -> None:
        self._handler, self._opened = handler, opened
        self._cache: OrderedDict[TraceKey, EncodedTrace] = OrderedDict()
        self._generation = handler.models.generation  # of the models whose traces are cached

    async def get(self, request: Request, key: TraceKey) -> EncodedTrace:
        """The encoded trace.

        Raises:
            RefusedError: no opened trace has this name, or the trace cannot be computed.
        """
        generation = self._handler.models.generation
        if generation != self._generation:
            self._generation = generation
            self._cache.clear()
        found = self._cache.get(key) or await self._compute(request, key)
        if generation != self._generation:  # replaced meanwhile
            return found
        self._cache[key] = found
        self._cache.move_to_end(key)
        while len(self._cache) > 1 and (
            len(self._cache) > _MAX_TRACES
            or sum(one.size for one in self._cache.values()) > _MAX_BYTES
        ):
            self._cache.popitem(last=False)
        return found

    async def _compute(self, request: Request, key: TraceKey) -> EncodedTrace:
        if key.trace is not None:
            if key.trace not in self._opened:
                names = ", ".join(self._opened) or "none"
                raise RefusedError(404, f"no trace {printable(key.trace)}; opened: {names}")
            return await asyncio.to_thread(_encode, self._opened[key.trace])
        model = self._handler.models.choose(key.model)

        def make() -> EncodedTrace:
            return EncodedTrace.of(compute_trace(model, key))

        return await self._handler.wait(request, self._handler.run(request, make))


def compute_trace(model: Served, key: TraceKey) -> Trace:
    """Trace the input of a key with its model.

    Raises:
        UserError: the input cannot be traced.
    """
    how = dict.fromkeys(key.options, True)
    if key.input is None:
        return model.trace(key.source, key.target, relevance=key.gradients, **how)
    spec = model.spec
    value = TypeAdapter(spec.input_type()).validate_python(json.loads(key.input))
    given = spec.read_request(value)
    texts = given if isinstance(given, tuple) else (given,)
    return model.trace(*texts, relevance=key.gradients, **how)


def _encode(trace: Trace) -> EncodedTrace:
    with one_thread():  # only the engine's thread may create a thread pool
        return EncodedTrace.of(trace)
