"""The page; a content security policy restricts it to this server.

The modules are served as one file, and the style sheets as another: a browser would find most of
the modules only in other modules, one request after the other.
"""

from functools import cache
from hashlib import sha256
from pathlib import Path

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Message, Receive, Scope, Send

from heedful.serving.errors import RefusedError
from heedful.viewing.page import FOLDER, bundle, style

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
    # The files must be of the same version as the server: the browser revalidates them each time.
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


@cache
def _bundled(name: str) -> tuple[bytes, dict[str, str]]:
    """The content and the headers of ``page.js`` or ``page.css``."""
    content = (bundle("main", panels=True) if name == "page.js" else style()).encode()
    kind = "text/javascript" if name == "page.js" else "text/css"
    tag = f'"{sha256(content).hexdigest()[:32]}"'
    return content, {**_HEADERS, "Content-Type": f"{kind}; charset=utf-8", "ETag": tag}


def add_page(app: FastAPI, folder: Path = FOLDER) -> None:
    """Serve ``/``, ``/page/page.js``, ``/page/page.css`` and the files of the folder."""
    index = folder / "index.html"

    @app.get("/", include_in_schema=False)
    async def page(request: Request) -> Response:
        if not index.is_file():
            raise RefusedError(404, "this server has no page")
        return FileResponse(index, headers=_HEADERS)

    @app.get("/page/page.js", include_in_schema=False)
    @app.get("/page/page.css", include_in_schema=False)
    async def bundled(request: Request) -> Response:
        content, headers = _bundled(request.url.path.rpartition("/")[2])
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers)

    app.mount("/page", _Modules(directory=folder, check_dir=False), name="page")
