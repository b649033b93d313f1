"""The page and its modules; a content security policy restricts them to this server."""

from pathlib import Path

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Message, Receive, Scope, Send

import heedful.viewing
from heedful.serving.errors import RefusedError

FOLDER = Path(str(heedful.viewing.__file__)).parent / "page"
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    # The versions of all modules must match, so the browser revalidates them each time.
    "Cache-Control": "no-cache",
}


class _Modules(StaticFiles):
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = [(name.lower().encode(), value.encode()) for name, value in _HEADERS.items()]
                message["headers"] = [*message.get("headers", []), *own]
            await send(message)

        await super().__call__(scope, receive, guarded)


def add_page(app: FastAPI, folder: Path = FOLDER) -> None:
    """Serve ``/`` and ``/page/<file>``."""
    index = folder / "index.html"

    @app.get("/", include_in_schema=False)
    async def page(request: Request) -> Response:
        if not index.is_file():
            raise RefusedError(404, "this server has no page")
        return FileResponse(index, headers=_HEADERS)

    app.mount("/page", _Modules(directory=folder, check_dir=False), name="page")
