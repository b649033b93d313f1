"""Parses and checks the fields of a request: JSON, a form, or the query string."""

import gc
import json
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.datastructures import UploadFile
from starlette.requests import Request

from heedful.serving.admission import is_from_browser
from heedful.serving.errors import RefusedError, printable
from heedful.tasks.endpoints import Upload

_MAX_FIELDS = 100

M = TypeVar("M", bound=BaseModel)


async def read_fields(request: Request, files: int = 0) -> dict[str, Any]:
    """The fields of a request; the body takes precedence over the query string.

    A body is read as JSON if its content type is JSON. Clients that are not browsers may omit the
    type: a body that starts like an object is then read as JSON. From a browser, such a body is
    refused, because a page can send plain text to another site without that site's permission.

    Args:
        request: the request.
        files: maximum number of files in a multipart form, which become `Upload`.

    Raises:
        RefusedError: 400, the body is invalid, or a field is given twice.
    """
    fields = _unique_fields(request.query_params.multi_items())
    body = await request.body()
    if not body.strip():
        return fields
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        return {**fields, **await _multipart(request, len(body), files)}
    like_json = body.lstrip()[:1] in (b"{", b"[")
    if kind.endswith("json") or (like_json and not is_from_browser(request.headers)):
        return {**fields, **_json(body)}
    if like_json:
        raise RefusedError(400, "send JSON with Content-Type: application/json")
    return {**fields, **_form(body)}


def check_lists(fields: dict[str, Any], maximum: int, strings: bool = True) -> dict[str, Any]:
    """The fields, with lists that pydantic can validate quickly.

    pydantic reports every wrong value of a list, which takes seconds for a million values. With
    ``strings`` (lists must contain texts), a list with a wrong value is therefore replaced by that
    value alone.

    Raises:
        RefusedError: 400, there are too many fields, or a list has more than ``maximum`` values.
    """
    if len(fields) > _MAX_FIELDS:
        raise RefusedError(400, f"{len(fields):,} fields; the maximum is {_MAX_FIELDS}")
    found = dict(fields)
    for name, value in fields.items():
        if isinstance(value, list):
            if len(value) > maximum:
                raise RefusedError(
                    400, f"{printable(name)}: {len(value):,} values; the maximum is {maximum:,}"
                )
            wrong = next((one for one in value if not isinstance(one, str)), "")
            if strings and not isinstance(wrong, str):
                found[name] = [wrong]
    return found


def check_fields(kind: type[M], fields: dict[str, Any]) -> M:
    """Validate fields as a request of type ``kind``.

    Raises:
        RefusedError: 400, a field is missing, unknown, of the wrong type, out of range or not valid
            Unicode.
    """
    try:
        found = kind.model_validate(fields)
    except ValidationError as error:
        raise RefusedError(400, _message_of(error)) from None
    except RecursionError:
        raise RefusedError(400, "the request is nested too deeply") from None
    return found


def check_input(kind: Any, value: Any, place: str) -> Any:
    """Validate a JSON value as an input of a task.

    Args:
        kind: the type of the input, for pydantic.
        value: the client's value.
        place: the path of the value in the request, for errors.

    Raises:
        RefusedError: 400, the value does not have the type.
    """
    try:
        return TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(
            [place, *(printable(one) for one in problem["loc"] if isinstance(one, str))]
        )
        message = problem["msg"].removeprefix("Value error, ")
        raise RefusedError(400, f"{where}: {message[:1].lower()}{message[1:]}") from None
    except RecursionError:
        raise RefusedError(400, "the request is nested too deeply") from None


def collect_texts(value: Any, without: Collection[str] = ()) -> list[str]:
    """All strings in a JSON value, without the names of fields.

    Args:
        value: the value.
        without: fields that are not collected.
    """
    found, left = [], [value]
    while left:
        one = left.pop()
        if isinstance(one, str):
            found.append(one)
        elif isinstance(one, dict):
            left.extend(own for name, own in one.items() if name not in without)
        elif isinstance(one, list):
            left.extend(one)
    return found


def check_unicode(texts: Iterable[str]) -> None:
    """Check that texts can be encoded as UTF-8.

    Raises:
        RefusedError: 400, a text contains half of a surrogate pair.
    """
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise RefusedError(
                400, f"a text is not valid Unicode at character {error.start}"
            ) from None


def _json(body: bytes) -> dict[str, Any]:
    try:
        with _without_gc():
            found = json.loads(body)
    except UnicodeDecodeError:
        raise RefusedError(400, "the body is not UTF-8") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise RefusedError(400, f"the body is not JSON: {error.msg}, {where}") from None
    except RecursionError:
        raise RefusedError(400, "the body is nested too deeply") from None
    except ValueError:  # an integer of thousands of digits
        raise RefusedError(400, "the body contains a number that is too long") from None
    if not isinstance(found, dict):
        raise RefusedError(400, "the body is not a JSON object")
    return found


@contextmanager
def _without_gc() -> Iterator[None]:
    """Disable the garbage collector, which would scan all objects many times while a body with a
    million lists is parsed: seconds instead of hundredths of a second."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _form(body: bytes) -> dict[str, Any]:
    try:
        pairs = parse_qsl(
            body.decode(), keep_blank_values=True, errors="strict", max_num_fields=_MAX_FIELDS
        )
    except UnicodeDecodeError:
        raise RefusedError(400, "the form is not UTF-8") from None
    except ValueError:
        raise RefusedError(400, "the form has too many fields") from None
    return _unique_fields(pairs)


async def _multipart(request: Request, size: int, files: int) -> dict[str, Any]:
    from starlette.formparsers import MultiPartException, MultiPartParser

    parser = MultiPartParser(
        request.headers,
        request.stream(),
        max_files=files,
        max_fields=_MAX_FIELDS,
        max_part_size=size + 1,
    )
    parser.spool_max_size = size + 1  # files stay in memory
    try:
        form = await parser.parse()
    except (MultiPartException, UnicodeError, LookupError, KeyError):
        what = "contains several files" if files else "contains a file"
        raise RefusedError(400, f"the form is invalid or {what}") from None
    pairs = [(name, await _value(request, value)) for name, value in form.multi_items()]
    await form.close()
    return _unique_fields(pairs)


async def _value(request: Request, value: str | UploadFile) -> str | Upload:
    if isinstance(value, str):
        return value
    return Upload(value.filename or "", await value.read(), str(request.base_url))


def _unique_fields(pairs: Iterable[tuple[str, str | Upload]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in pairs:
        if name in fields:
            raise RefusedError(400, f"{printable(name)} is given twice; send several texts as JSON")
        fields[name] = value
    return fields


def _message_of(error: ValidationError) -> str:
    """A message of one line for the first problem, without the client's values."""
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    problem = problems[0]
    place = printable(problem["loc"][0]) if problem["loc"] else "the request"
    if len(problem["loc"]) > 1 and isinstance(problem["loc"][1], str):
        return f"{place}: input should be a text or a list of texts"  # none of a union's types
    if len(problem["loc"]) > 1:
        inside = ".".join(printable(one) for one in problem["loc"][1:])
        return f"{place}.{inside}: {problem['msg'][:1].lower()}{problem['msg'][1:]}"
    if problem["type"] == "missing":
        others = [printable(one["loc"][0]) for one in problems if one["type"] == "extra_forbidden"]
        known = f", and {others[0]} is not a field of this request" if others else ""
        return f"{place} is missing{known}"
    if problem["type"] == "extra_forbidden":
        return f"{place} is not a field of this request"
    message = problem["msg"].removeprefix("Value error, ")
    return f"{place}: {message[:1].lower()}{message[1:]}"
