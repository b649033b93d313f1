"""The application: all contracts, the page, health and metrics, behind the middleware."""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from heedful import __version__
from heedful.inference import Trace
from heedful.serving import endpoints, inspections
from heedful.serving import traces as traced
from heedful.serving.admission import Admission
from heedful.serving.engine import Engine
from heedful.serving.errors import error_response
from heedful.serving.handling import RequestHandler
from heedful.serving.keys import Keys
from heedful.serving.limits import MEDIA_BODY, Limits
from heedful.serving.metrics import Metrics
from heedful.serving.middleware import Middleware, State
from heedful.serving.openapi import response_schemas
from heedful.serving.page import add_page
from heedful.serving.served import Served, ServedModels
from heedful.serving.shared import Shared


def make_application(
    models: Sequence[Served] = (),
    *,
    traces: Mapping[str, Trace] | None = None,
    limits: Limits | None = None,
    keys: Keys | None = None,
    origins: Collection[str] = (),
    hosts: Collection[str] = (),
    addresses: bool = False,
    log_requests: bool = False,
    log_texts: bool = False,
    split_sentences: bool = True,
    shared: Shared | None = None,
) -> FastAPI:
    """Make the ASGI application for `heedful.serving.server.run_server` or another ASGI server.

    Args:
        models: the models to serve, of any task.
        traces: opened traces by name.
        limits: limits of requests and of the server.
        keys: API keys that are accepted; no key is required if None.
        origins: other sites whose pages may send requests (CORS); ``*`` allows all; none if empty.
        hosts: accepted host names; any if empty.
        addresses: whether any IP address is also accepted as host.
        log_requests: whether to log one line per request, without its texts.
        log_texts: whether to log texts.
        split_sentences: whether to split lines into sentences and translate each; requests to
            ``/api/…`` can override it.
        shared: what this process shares with other workers that serve the same port.
    """
    limits = _limits_for(models, limits or Limits())
    metrics, state = Metrics(shared), State()
    engine = _engine(limits, metrics)
    handler = RequestHandler(
        ServedModels(models),
        engine,
        limits,
        metrics,
        keys,
        log_texts,
        split_sentences,
        None if shared is None else shared.files,
    )

    app = _make_app(engine)
    app.state.serving, app.state.limits, app.state.engine = state, limits, engine
    app.state.models, app.state.keys = handler.models, keys
    inspected = inspections.routes(handler), traced.routes(handler, traces or {})
    for router in (endpoints.contracts(handler), *inspected, endpoints.routes(handler)):
        app.include_router(router)
    _add_status(app, handler)
    add_page(app)
    app.add_middleware(
        Middleware,
        state=state,
        limits=limits,
        metrics=metrics,
        admission=Admission(hosts, addresses, origins),
        keys=keys,
        log_requests=log_requests,
    )
    _add_origins(app, origins)
    return app


def _engine(limits: Limits, metrics: Metrics) -> Engine:
    return Engine(
        queue=limits.queue,
        gather=limits.gather_ms / 1000,
        job_time=limits.job_time,
        observe=metrics.observe_slice,
        on_waiting=metrics.set_waiting,
    )


def _add_origins(app: FastAPI, origins: Collection[str]) -> None:
    """Allow the pages of other sites to read responses."""
    if origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
        )


def _limits_for(models: Sequence[Served], limits: Limits) -> Limits:
    """Limits with :data:`MEDIA_BODY` if a model reads images or sounds and no other is given."""
    if "body" in limits.model_fields_set or not any(one.spec.media_fields for one in models):
        return limits
    return limits.model_copy(update={"body": MEDIA_BODY})


def _make_app(engine: Engine) -> FastAPI:
    """An application without routes, which closes the engine at shutdown."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(engine.close)

    app = FastAPI(
        title="heedful",
        version=__version__,
        description="LibreTranslate's HTTP contract, and heedful's own under /api.",
        openapi_url="/spec",
        docs_url=None,  # these pages would load scripts from another site
        redoc_url=None,
        lifespan=lifespan,
    )
    app.add_exception_handler(HTTPException, _refused)
    return app


def _add_status(app: FastAPI, handler: RequestHandler) -> None:
    """Add ``/health``, ``/ready`` and ``/metrics``."""

    @app.get("/health", responses=response_schemas(dict[str, str]))
    async def health() -> Response:
        """Whether the server accepts work."""
        if not handler.engine.alive:
            return error_response(503, "the engine is not running")
        return JSONResponse({"status": "ok"})

    @app.get("/ready", responses=response_schemas(dict[str, str]))
    async def ready() -> Response:
        """Whether the models are loaded and requests are accepted."""
        if not handler.engine.alive:
            return error_response(503, "the engine is not running")
        return JSONResponse({"status": "ready"})

    @app.get("/metrics", include_in_schema=False)
    async def figures(request: Request) -> Response:
        await handler.fields(request)
        metrics = handler.metrics
        return Response(metrics.text(), headers={"Content-Type": metrics.content_type})


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return error_response(error.status_code, error.detail, dict(error.headers or {}))
