"""Parts of the OpenAPI description that FastAPI cannot derive, because heedful parses bodies."""

import re
from typing import Any

from pydantic import BaseModel

_FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")


class ErrorAnswer(BaseModel):
    """An error message of one line."""

    error: str


def request_body(kind: type[BaseModel], *, forms: bool = False) -> dict[str, Any]:
    """The body of a request: JSON, and with ``forms`` also a form with the same fields."""
    schema = kind.model_json_schema()
    schema["properties"]["api_key"] = {"type": "string", "title": "Required if the server has keys"}
    content = {"application/json": {"schema": schema}}
    if forms:
        flat = {**schema, "properties": dict(schema["properties"])}
        if "q" in flat["properties"]:
            flat["properties"]["q"] = {"type": "string"}
        content |= {form: {"schema": flat} for form in _FORMS}
    return {"requestBody": {"required": True, "content": content}}


def upload_body(kind: type[BaseModel]) -> dict[str, Any]:
    """The body of a request with a file: a multipart form."""
    form = _FORMS[1]
    body = request_body(kind, forms=True)["requestBody"]
    return {"requestBody": {"required": True, "content": {form: body["content"][form]}}}


def path_parameters(path: str) -> dict[str, Any]:
    """The parameters of a path: its parts in braces."""
    names = re.findall(r"{(\w+)}", path)
    text = {"in": "path", "required": True, "schema": {"type": "string"}}
    return {"parameters": [{"name": name, **text} for name in names]}


def response_schemas(
    model: Any, content: dict[str, Any] | None = None
) -> dict[int | str, dict[str, Any]]:
    """The possible responses: the model with status 200, or an error."""
    first: dict[str, Any] = {"description": "The response"}
    if content is None:
        first["model"] = model
    else:
        first["content"] = content
    refused = {
        400: "The request is invalid",
        403: "The API key is missing or wrong, or a page of another site sent the request",
        404: "Not found",
        408: "The body did not arrive in time",
        413: "The body is too long",
        429: "Too many requests are waiting, or too many long bodies arrive at once; Retry-After "
        "gives the time to wait",
        500: "Internal server error",
        503: "The server is stopping, its engine has failed, or there are too many connections",
        504: "The request took too long",
    }
    errors: dict[int | str, dict[str, Any]] = {
        status: {"description": what, "model": ErrorAnswer} for status, what in refused.items()
    }
    return {200: first, **errors}
