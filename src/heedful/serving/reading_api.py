"""Our own contract for single texts: ``/api/classify``, ``tag``, ``fill`` and ``generate``."""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import Field, StrictBool, StrictInt, StrictStr, ValidationError
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from heedful.basics.cancelling import check_cancelled
from heedful.basics.errors import UserError
from heedful.basics.settings import explain as explain_settings
from heedful.decoding import SearchOptions
from heedful.inference.classifier import Classifier, Text
from heedful.inference.explaining import explain
from heedful.inference.filler import Filler
from heedful.inference.generator import Generated, Generator
from heedful.inference.tagger import Tagger
from heedful.serving.asking import Desk, refusal
from heedful.serving.native import ModelRequest
from heedful.serving.packing import LINES, json_bytes, packed
from heedful.serving.readers import ServedReaders
from heedful.serving.reading import check_fields
from heedful.serving.saying import RefusedError, log_failure
from heedful.serving.spec import answers, body_of
from heedful.serving.work import EngineFailedError, TooLongError

_MOST_STOPS = 16
_MOST_CANDIDATES = 100


class ClassifyRequest(ModelRequest):
    """``POST /api/classify``."""

    text: StrictStr | list[StrictStr]
    second: StrictStr | list[StrictStr] | None = None
    explain: StrictBool = False
    label: StrictStr | None = None


class TagRequest(ModelRequest):
    """``POST /api/tag``."""

    text: StrictStr | list[StrictStr]


class FillRequest(ModelRequest):
    """``POST /api/fill``."""

    text: StrictStr
    count: Annotated[StrictInt, Field(ge=1, le=_MOST_CANDIDATES)] = 5


class GenerateStreamRequest(ModelRequest):
    """``POST /api/generate/stream``."""

    prompt: StrictStr = ""
    max_tokens: Annotated[StrictInt, Field(ge=1)] = 64
    stop: Annotated[list[StrictStr], Field(max_length=_MOST_STOPS)] = Field(default_factory=list)
    begins: StrictBool = False
    beam: Annotated[StrictInt, Field(ge=1)] | None = None
    temperature: Annotated[float, Field(gt=0, le=100, allow_inf_nan=False)] | None = None
    top_k: Annotated[StrictInt, Field(ge=1)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] | None = None
    seed: Annotated[StrictInt, Field(ge=0, lt=1 << 63)] | None = None


class GenerateRequest(GenerateStreamRequest):
    """``POST /api/generate``."""

    nbest: Annotated[StrictInt, Field(ge=1)] = 1


def routes(desk: Desk, readers: ServedReaders) -> APIRouter:
    """What of ``/api`` is about single texts."""
    router = APIRouter(prefix="/api", tags=["heedful's contract"])
    anything = answers(dict[str, Any])

    @router.post("/classify", openapi_extra=body_of(ClassifyRequest), responses=anything)
    async def classify(request: Request) -> Response:
        """The class of each text, and which words it rests on."""
        asked = check_fields(ClassifyRequest, await desk.fields(request))
        name, classifier = readers.choose(Classifier, asked.model)
        if asked.label is not None and not asked.explain:
            raise RefusedError(400, "label says which one to explain; set explain, or leave it out")
        texts = _texts(asked)
        desk.check_texts([part for text in texts for part in _parts(text)])

        def answer() -> list[dict[str, Any]]:
            if not asked.explain:
                return [one.to_json() for one in classifier.classify(texts)]
            explained = []
            for text in texts:
                check_cancelled()
                explained.append(_explained(classifier, text, asked.label))
            return explained

        return await _answer(desk, request, name, "results", answer)

    @router.post("/tag", openapi_extra=body_of(TagRequest), responses=anything)
    async def tag(request: Request) -> Response:
        """A tag for each word; words are parted by white space."""
        asked = check_fields(TagRequest, await desk.fields(request))
        name, tagger = readers.choose(Tagger, asked.model)
        texts = _list(asked.text)
        desk.check_texts(texts)

        def answer() -> list[dict[str, Any]]:
            return [one.to_json() for one in tagger.taggings([text.split() for text in texts])]

        return await _answer(desk, request, name, "results", answer)

    @router.post("/fill", openapi_extra=body_of(FillRequest), responses=anything)
    async def fill(request: Request) -> Response:
        """What may stand at each hidden place of a text."""
        asked = check_fields(FillRequest, await desk.fields(request))
        name, filler = readers.choose(Filler, asked.model)
        desk.check_texts([asked.text])

        def answer() -> dict[str, Any]:
            return filler.fill(asked.text, asked.count).to_json()

        return await _answer(desk, request, name, "result", answer)

    @router.post("/generate", openapi_extra=body_of(GenerateRequest), responses=anything)
    async def generate(request: Request) -> Response:
        """What follows a prompt: one text, or several."""
        asked = check_fields(GenerateRequest, await desk.fields(request))
        name, generator = readers.choose(Generator, asked.model)
        writing = _writing(desk, request, generator, asked, asked.nbest)
        found = await desk.wait(request, writing)
        texts = [one.to_json() for one in found]
        return await packed(request, json_bytes({"model": name, "texts": texts}))

    @router.post(
        "/generate/stream",
        openapi_extra=body_of(GenerateStreamRequest),
        responses=answers(None, LINES),
    )
    async def stream(request: Request) -> Response:
        """A text in pieces, a line of JSON as each is written."""
        asked = check_fields(GenerateStreamRequest, await desk.fields(request))
        _, generator = readers.choose(Generator, asked.model)
        return _stream(desk, request, generator, asked)

    return router


async def _answer(
    desk: Desk, request: Request, name: str, field: str, work: Callable[[], Any]
) -> Response:
    found = await desk.wait(request, desk.run(request, work))
    content = await asyncio.to_thread(json_bytes, {"model": name, field: found})
    return await packed(request, content)


def _list(text: str | list[str]) -> list[str]:
    return [text] if isinstance(text, str) else text


def _texts(asked: ClassifyRequest) -> list[Text]:
    """The texts, or pairs of them.

    Raises:
        RefusedError: 400, there are not as many second texts as first ones.
    """
    first = _list(asked.text)
    if asked.second is None:
        return list(first)
    second = _list(asked.second)
    if len(first) != len(second):
        raise RefusedError(400, f"{len(first):,} texts and {len(second):,} second ones")
    return list(zip(first, second, strict=True))


def _parts(text: Text) -> tuple[str, ...]:
    return (text,) if isinstance(text, str) else text


def _explained(classifier: Classifier, text: Text, label: str | None) -> dict[str, Any]:
    """The class and its words, of which the first ``first_words`` are the first text's."""
    rows = classifier.rows(text)
    if not rows:
        return {**classifier.classify([text])[0].to_json(), "words": [], "first_words": 0}
    found = explain(classifier, text, label=label).to_json()
    first = len(classifier.vocabulary.decode(rows[0].first).split())
    return {**found, "first_words": first}


def _writing(
    desk: Desk,
    request: Request,
    generator: Generator,
    asked: GenerateStreamRequest,
    nbest: int,
    on_piece: Callable[[str], None] | None = None,
) -> "Future[list[Generated]]":
    """Hand the engine what a request wants written; ``on_piece`` takes it as it is written.

    Raises:
        RefusedError: 400, it is more than is allowed; 429, the queue is full.
    """
    desk.check_texts([asked.prompt, *asked.stop])
    limits = desk.limits
    if asked.max_tokens > limits.tokens:
        raise RefusedError(400, f"{asked.max_tokens:,} tokens; the most is {limits.tokens:,}")
    if max(asked.beam or 1, nbest) > limits.hypotheses:
        raise RefusedError(400, f"too wide a beam, or texts; the most is {limits.hypotheses}")
    options = _options(asked, nbest)
    return desk.run(
        request,
        lambda: generator.generate(
            asked.prompt,
            options=options,
            max_tokens=asked.max_tokens,
            stop=asked.stop,
            begins=asked.begins,
            stream=on_piece,
        ),
    )


def _options(asked: GenerateStreamRequest, nbest: int) -> SearchOptions:
    """How to write: by drawing, unless a beam is given.

    Raises:
        RefusedError: 400, settings exclude each other.
    """
    drawing = {
        name: value
        for name in ("temperature", "top_k", "top_p", "seed")
        if (value := getattr(asked, name)) is not None
    }
    if asked.beam is not None and drawing:
        raise RefusedError(400, f"beam is for searching and {next(iter(drawing))} for drawing")
    chosen: dict[str, Any] = {"sample": True}
    if asked.beam is not None:
        chosen = {"beam": max(asked.beam, nbest)}
    try:
        return SearchOptions(**chosen, **drawing, nbest=nbest)
    except ValidationError as error:
        raise RefusedError(400, explain_settings(error, SearchOptions)) from None


def _stream(
    desk: Desk, request: Request, generator: Generator, asked: GenerateStreamRequest
) -> Response:
    """Pieces as they are written; from the first line on an error is a line, too."""
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[str | None] = asyncio.Queue()
    future = _writing(desk, request, generator, asked, 1, lambda one: _put(loop, lines, one))
    future.add_done_callback(lambda _: _put(loop, lines, None))
    until = loop.time() + desk.limits.timeout

    async def written() -> AsyncIterator[bytes]:
        try:
            while (piece := await asyncio.wait_for(lines.get(), until - loop.time())) is not None:
                yield json_bytes({"text": piece}) + b"\n"
            [whole] = future.result()
            yield json_bytes({"done": True, **whole.to_json()}) + b"\n"
        except TimeoutError:
            yield json_bytes({"error": desk.too_late().message}) + b"\n"
        except (UserError, EngineFailedError, TooLongError) as error:
            yield json_bytes({"error": refusal(error).message}) + b"\n"
        except Exception as error:  # noqa: BLE001 - nothing of it may reach the client
            log_failure("a stream", error)
            yield json_bytes({"error": "an error of the server"}) + b"\n"
        finally:
            future.cancel()

    return StreamingResponse(written(), media_type="application/x-ndjson")


def _put(
    loop: asyncio.AbstractEventLoop, lines: "asyncio.Queue[str | None]", piece: str | None
) -> None:
    loop.call_soon_threadsafe(lines.put_nowait, piece)
