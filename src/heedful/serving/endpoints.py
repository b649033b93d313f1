"""The endpoints that tasks declare: heedful's API (``/api/…``) and the APIs of other programs."""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from heedful.basics.errors import UserError
from heedful.basics.json_models import named
from heedful.serving.errors import RefusedError, log_failure
from heedful.serving.handling import RequestHandler, http_error
from heedful.serving.jobs import EngineFailedError, TooLongError
from heedful.serving.openapi import (
    path_parameters,
    request_body,
    response_schemas,
    upload_body,
)
from heedful.serving.request_parsing import check_fields, check_input, collect_texts
from heedful.serving.responses import (
    FILE,
    LINES,
    compressed_response,
    file_response,
    json_bytes,
)
from heedful.serving.served import Served
from heedful.tasks.endpoints import (
    Download,
    Endpoint,
    Line,
    ModelRequest,
    NoRoomError,
    Route,
    Work,
    too_large,
)
from heedful.tasks.spec import TaskSpec, specs


class PredictRequest(BaseModel):
    """``POST /api/predict/{model}``."""

    model_config = ConfigDict(extra="forbid")

    inputs: list[Any]
    """Inputs of the model's task: texts, pairs of texts or objects."""


class PredictResponse(BaseModel):
    """One result for each input, in the same order."""

    model: str
    results: list[dict[str, Any]]


def routes(handler: RequestHandler) -> APIRouter:
    """The endpoints of all tasks, and ``predict``, which works for every task."""
    router = APIRouter(prefix="/api", tags=["heedful's contract"])
    known: dict[str, Endpoint[Any]] = {}
    for spec in specs():
        for endpoint in spec.endpoints():
            if endpoint.path not in known:
                known[endpoint.path] = endpoint
                _add(router, handler, spec, endpoint)
            elif known[endpoint.path] is not endpoint:
                raise UserError(f"two tasks have an endpoint /api/{endpoint.path}")
    _add_predict(router, handler)
    return router


def _add(
    router: APIRouter, handler: RequestHandler, spec: TaskSpec, endpoint: Endpoint[Any]
) -> None:
    async def answer(request: Request) -> Response:
        fields = await handler.fields(request, strings=endpoint.only_texts)
        body = check_fields(endpoint.request, fields)
        return await _handle(handler, spec, endpoint, request, body)

    router.add_api_route(
        f"/{endpoint.path}",
        answer,
        methods=["POST"],
        name=endpoint.path,
        description=endpoint.about,
        openapi_extra=request_body(endpoint.request),
        responses=response_schemas(None, LINES)
        if endpoint.streams
        else response_schemas(endpoint.response),
    )


def contracts(handler: RequestHandler) -> APIRouter:
    """The APIs of other programs that tasks declare."""
    router = APIRouter()
    for spec in specs():
        for contract in spec.contracts(handler):
            for route in contract.routes:
                _add_route(router, handler, contract.name, route)
    return router


def _add_route(router: APIRouter, handler: RequestHandler, tag: str, route: Route) -> None:
    async def answer(request: Request) -> Response:
        body: Any = request.path_params
        if route.request is not None:
            files = 1 if route.takes_file else 0
            body = check_fields(route.request, await handler.fields(request, files=files))
        try:
            found = await route.answer(body, partial(handler.search_all, request))
        except NoRoomError as error:
            raise RefusedError(429, str(error), retry_after=60) from None
        except UserError as error:
            raise RefusedError(400, str(error)) from None
        if found is None:
            raise RefusedError(404, "not found")
        return file_response(found) if isinstance(found, Download) else JSONResponse(found)

    if route.request is None:
        described = path_parameters(route.path)
    elif route.takes_file:
        described = upload_body(route.request)
    else:
        described = request_body(route.request, forms=True)
    router.add_api_route(
        route.path,
        answer,
        methods=["GET" if route.request is None else "POST"],
        name=getattr(route.answer, "__name__", route.path),
        description=(route.answer.__doc__ or "").strip(),
        openapi_extra=described,
        responses=response_schemas(None, FILE)
        if route.response is Download
        else response_schemas(route.response),
        tags=[tag],
    )


def _add_predict(router: APIRouter, handler: RequestHandler) -> None:
    @router.post(
        "/predict/{model:path}",
        openapi_extra=request_body(PredictRequest),
        responses=response_schemas(PredictResponse),
    )
    async def predict(model: str, request: Request) -> Response:
        """Predict with a model: one result for each input, such as a translation, label or tags."""
        body = check_fields(PredictRequest, await handler.fields(request, strings=False))
        served = handler.models.choose(model)
        handler.check_texts(collect_texts(body.inputs, served.spec.media_fields))
        kind, places = served.spec.input_type(), [f"inputs.{n}" for n in range(len(body.inputs))]
        inputs = [
            named(served.spec.read_request(check_input(kind, one, place)), place)
            for place, one in zip(places, body.inputs, strict=True)
        ]

        def call() -> list[dict[str, Any]]:
            return [one.to_json() for one in served.predictor.predict(inputs)]

        work = Work(lambda found: {"model": model, "results": found}, call=call)
        return await _respond(handler, request, served, work)


async def _handle(
    handler: RequestHandler,
    spec: TaskSpec,
    endpoint: Endpoint[Any],
    request: Request,
    body: ModelRequest,
) -> Response:
    source, target = endpoint.languages(body)
    model = handler.models.choose(body.model, source, target, endpoint=endpoint, does=spec.does)
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[Line | None] = asyncio.Queue()

    def put(line: Line | None) -> None:
        loop.call_soon_threadsafe(lines.put_nowait, line)

    try:
        handler.check_texts(endpoint.texts(body))
        work = endpoint.work(model, body, handler.limits, put)
    except UserError as error:
        raise RefusedError(400, str(error)) from None
    if not endpoint.streams:
        return await _respond(handler, request, model, work)
    return _stream(handler, handler.submit(request, model, work), work, lines, put)


async def _respond(
    handler: RequestHandler, request: Request, model: Served, work: Work
) -> Response:
    found = await handler.wait(request, handler.submit(request, model, work))
    try:
        content = await asyncio.to_thread(lambda: json_bytes(work.finish(found)))
        if work.most is not None and len(content) > work.most:
            raise too_large(work.most, work.hint)
    except UserError as error:
        raise RefusedError(400, str(error)) from None
    return await compressed_response(request, content)


def _stream(
    handler: RequestHandler,
    future: "Future[Any]",
    work: Work,
    lines: "asyncio.Queue[Line | None]",
    put: Callable[[Line | None], None],
) -> Response:
    """A response of lines, sent as they are produced; errors are also sent as a line."""
    future.add_done_callback(lambda _: put(None))
    until = asyncio.get_running_loop().time() + handler.limits.timeout

    async def encoded_lines() -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        try:
            while (line := await asyncio.wait_for(lines.get(), until - loop.time())) is not None:
                yield json_bytes(line) + b"\n"
            yield json_bytes(work.finish(future.result())) + b"\n"
        except TimeoutError:
            yield json_bytes({"error": handler.timed_out().message}) + b"\n"
        except (UserError, EngineFailedError, TooLongError) as error:
            yield json_bytes({"error": http_error(error).message}) + b"\n"
        except Exception as error:  # noqa: BLE001 - no detail may reach the client
            log_failure("a stream", error)
            yield json_bytes({"error": "internal server error"}) + b"\n"
        finally:
            future.cancel()

    return StreamingResponse(encoded_lines(), media_type="application/x-ndjson")
