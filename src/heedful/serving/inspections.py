"""What the page's panel "How it works" asks for: a model's stages, and an equation in numbers.

They are computed from a run of the model on the text, as a trace is.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr
from starlette.requests import Request
from starlette.responses import Response

from heedful.inference import Trace
from heedful.inference.architecture import architecture_of
from heedful.inference.equation import Equation, equation_of
from heedful.inference.lens import lens_of
from heedful.inference.removal import effect_of_heads
from heedful.serving.errors import RefusedError
from heedful.serving.handling import RequestHandler
from heedful.serving.openapi import request_body, response_schemas
from heedful.serving.request_parsing import check_fields
from heedful.serving.responses import compressed_response, json_bytes
from heedful.serving.traces import (
    NUMBER,
    TraceKey,
    TraceRequest,
    compute_trace,
    trace_key,
    trace_request,
)
from heedful.viewing.inspection_encoding import (
    architecture_json,
    equation_json,
    lens_json,
    removal_json,
)

_MAX_EQUATIONS = 8
_MAX_BYTES = 128 << 20
_Name = Annotated[StrictStr, Field(max_length=300)]
_MODULE: Any = (_Name, ...)


class Head(BaseModel):
    """A head of an attention module."""

    model_config = ConfigDict(extra="forbid")

    module: _Name
    head: Annotated[StrictInt, Field(ge=0)]


_HEADS: Any = (Annotated[list[Head], Field(min_length=1, max_length=4096)], ...)


def routes(handler: RequestHandler) -> APIRouter:
    """The endpoints for one run of a model on one input."""
    router = APIRouter(prefix="/api", tags=["heedful's contract"])
    equations = _Equations(handler)
    anything = response_schemas(dict[str, Any])
    of_model = trace_request("ArchitectureRequest", "``POST /api/architecture``.")
    of_lens = trace_request("LensRequest", "``POST /api/lens``.")
    of_removal: Any = trace_request(
        "RemovalRequest", "``POST /api/removal``.", heads=_HEADS, search=(StrictBool, False)
    )
    of_row: Any = trace_request(
        "EquationRequest", "``POST /api/equation``.", module=_MODULE, head=NUMBER, row=NUMBER
    )

    @router.post("/architecture", openapi_extra=request_body(of_model), responses=anything)
    async def architecture(request: Request) -> Response:
        """The stages of a model, in the order in which they ran on an input."""
        body = check_fields(of_model, await handler.fields(request, strings=False))
        trace = _tracer(handler, _key(handler, body))
        job = handler.run(request, lambda: json_bytes(architecture_json(architecture_of(trace))))
        return await compressed_response(request, await handler.wait(request, job))

    @router.post("/lens", openapi_extra=request_body(of_lens), responses=anything)
    async def lens(request: Request) -> Response:
        """What each layer of a model would predict: the logit lens."""
        body = check_fields(of_lens, await handler.fields(request, strings=False))
        trace = _tracer(handler, _key(handler, body))
        job = handler.run(request, lambda: json_bytes(lens_json(lens_of(trace))))
        return await compressed_response(request, await handler.wait(request, job))

    @router.post("/removal", openapi_extra=request_body(of_removal), responses=anything)
    async def removal(request: Request) -> Response:
        """The decisions of a model with and without some heads."""
        body = check_fields(of_removal, await handler.fields(request, strings=False))
        key = _key(handler, body)
        trace = _tracer(handler, key)
        search = _tracer(handler, key._replace(target=None)) if body.search else trace
        heads = [(one.module, one.head) for one in body.heads]
        job = handler.run(
            request, lambda: json_bytes(removal_json(effect_of_heads(trace, heads, search)))
        )
        return await compressed_response(request, await handler.wait(request, job))

    @router.post("/equation", openapi_extra=request_body(of_row), responses=anything)
    async def equation(request: Request) -> Response:
        """The terms of the attention equation for one row of one head of a module."""
        body = check_fields(of_row, await handler.fields(request, strings=False))
        job = handler.run(request, equations.row(_key(handler, body), body))
        return await compressed_response(request, await handler.wait(request, job))

    return router


def _key(handler: RequestHandler, body: TraceRequest) -> TraceKey:
    if body.trace is not None:
        raise RefusedError(400, "an opened trace has weights only; give a model and source")
    return trace_key(handler, body)._replace(gradients=False)


def _tracer(handler: RequestHandler, key: TraceKey) -> Callable[[], Trace]:
    model = handler.models.choose(key.model)
    return lambda: compute_trace(model, key)


class _Equations:
    """The equations of the last modules that were asked for; used by the engine's thread only."""

    def __init__(self, handler: RequestHandler) -> None:
        self._handler = handler
        self._kept: OrderedDict[tuple[TraceKey, str], Equation] = OrderedDict()
        self._generation = handler.models.generation  # of the models whose equations are kept

    def row(self, key: TraceKey, body: Any) -> Callable[[], bytes]:
        """A job that returns one row as JSON."""
        trace, name = _tracer(self._handler, key), (key, body.module)
        generation = self._handler.models.generation

        def make() -> bytes:
            if generation != self._generation:
                self._generation = generation
                self._kept.clear()
            found = self._kept.get(name) or equation_of(body.module, trace)
            self._keep(name, found)
            return json_bytes(equation_json(found, body.head, body.row))

        return make

    def _keep(self, name: tuple[TraceKey, str], found: Equation) -> None:
        self._kept[name] = found
        self._kept.move_to_end(name)
        while self._kept and (
            len(self._kept) > _MAX_EQUATIONS
            or sum(one.size for one in self._kept.values()) > _MAX_BYTES
        ):
            self._kept.popitem(last=False)
