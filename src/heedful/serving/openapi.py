"""Parts of the OpenAPI description that FastAPI cannot derive: bodies are parsed by us."""

from typing import Any

from pydantic import BaseModel

_FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")


class ErrorAnswer(BaseModel):
    """One line that says what is wrong."""

    error: str


def body_of(kind: type[BaseModel], *, forms: bool = False) -> dict[str, Any]:
    """A request's body: JSON, and with ``forms`` the same fields as a form."""
    schema = kind.model_json_schema()
    schema["properties"]["api_key"] = {"type": "string", "title": "Where the server has keys"}
    content = {"application/json": {"schema": schema}}
    if forms:
        flat = {**schema, "properties": dict(schema["properties"])}
        if "q" in flat["properties"]:
            flat["properties"]["q"] = {"type": "string"}
        content |= {form: {"schema": flat} for form in _FORMS}
    return {"requestBody": {"required": True, "content": content}}


def answers(model: Any, content: dict[str, Any] | None = None) -> dict[int | str, dict[str, Any]]:
    """What may be answered: the model with 200, else an error."""
    first: dict[str, Any] = {"description": "The answer"}
    if content is None:
        first["model"] = model
    else:
        first["content"] = content
    refused = {
        400: "The request is wrong",
        403: "The API key is missing or wrong, or a page of another site asks",
        404: "There is no such thing",
        408: "The body did not come in time",
        413: "The body is too long",
        429: "Too many requests wait, or too many long bodies come; Retry-After says when to come "
        "again",
        500: "The server has failed",
        503: "The server is stopping, its engine has failed, or there are too many connections",
        504: "It took too long",
    }
    errors: dict[int | str, dict[str, Any]] = {
        status: {"description": what, "model": ErrorAnswer} for status, what in refused.items()
    }
    return {200: first, **errors}
