"""Response bodies: compact JSON, compressed if they are long."""

import asyncio
import gzip
import json
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from heedful.tasks.endpoints import Download

LINES = {"application/x-ndjson": {"schema": {"type": "string"}}}
"""The OpenAPI description of a stream of lines."""
FILE = {"*/*": {"schema": {"type": "string", "format": "binary"}}}
"""The OpenAPI description of a file."""
_MIN_COMPRESSED = 1_000


def json_bytes(content: Any) -> bytes:
    """Compact JSON, encoded as UTF-8."""
    return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


async def compressed_response(
    request: Request, content: bytes, kind: str = "application/json"
) -> Response:
    """A response; long ones are compressed with gzip if the client accepts it."""
    headers = {"Vary": "Accept-Encoding"}
    if (
        len(content) > _MIN_COMPRESSED
        and "gzip" in request.headers.get("accept-encoding", "").lower()
    ):
        content = await asyncio.to_thread(gzip.compress, content, 1)
        headers["Content-Encoding"] = "gzip"
    return Response(content, media_type=kind, headers=headers)


def file_response(file: Download) -> Response:
    """A file that browsers save and never show, because it may contain a client's scripts."""
    headers = {
        "Content-Disposition": f"attachment; filename*=utf-8''{quote(file.name, safe='')}",
        "Content-Security-Policy": "sandbox; default-src 'none'",
    }
    return Response(file.data, media_type=file.media_type, headers=headers)
