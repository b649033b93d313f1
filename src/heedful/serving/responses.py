"""Response bodies: compact JSON, compressed where that is worth it."""

import asyncio
import gzip
import json
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

LINES = {"application/x-ndjson": {"schema": {"type": "string"}}}
"""What a stream of lines is, in the OpenAPI description."""
_LITTLE = 1_000


def json_bytes(content: Any) -> bytes:
    """JSON in UTF-8."""
    return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


async def compressed(request: Request, content: bytes, kind: str = "application/json") -> Response:
    """An answer, compressed where the client takes that and it is worth it."""
    headers = {"Vary": "Accept-Encoding"}
    if len(content) > _LITTLE and "gzip" in request.headers.get("accept-encoding", "").lower():
        content = await asyncio.to_thread(gzip.compress, content, 1)
        headers["Content-Encoding"] = "gzip"
    return Response(content, media_type=kind, headers=headers)
