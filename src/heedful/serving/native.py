"""Our own contract, ``/api/…``: scores, n-best, word alignments, alternatives, attention."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictStr
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from heedful.basics.errors import UserError
from heedful.evaluation.faithfulness import faithfulness
from heedful.inference import Trace, Translation
from heedful.inference.texts import Cut, one_line
from heedful.serving.asking import Desk, refusal
from heedful.serving.packing import LINES, json_bytes, packed
from heedful.serving.readers import ServedReaders
from heedful.serving.reading import check_fields, require_one_line
from heedful.serving.saying import RefusedError, log_failure, said
from heedful.serving.served import Served
from heedful.serving.spec import answers, body_of
from heedful.serving.traces import KeptTraces, WhichTrace
from heedful.serving.work import EngineFailedError

# As JSON: a digit or two less where a weight is 0, or 1.
_BYTES_A_WEIGHT = 7
_BINARY = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}


class ModelRequest(BaseModel):
    """A request that may name a model."""

    model_config = ConfigDict(extra="forbid")

    model: StrictStr | None = None


class TranslateRequest(ModelRequest):
    """``POST /api/translate``."""

    source: StrictStr | None = None
    target: StrictStr | None = None
    text: StrictStr | list[StrictStr]
    nbest: Annotated[int, Field(ge=1)] = 1
    beam: Annotated[int, Field(ge=1)] | None = None
    length_penalty: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] | None = None
    alignments: StrictBool = False
    sentences: StrictBool | None = None
    prefix: StrictStr | None = None


class StreamRequest(TranslateRequest):
    """``POST /api/translate/stream``."""

    text: StrictStr


class AlternativesRequest(ModelRequest):
    """``POST /api/alternatives``."""

    source: StrictStr | None = None
    target: StrictStr | None = None
    text: StrictStr
    prefix: StrictStr = ""
    count: Annotated[int, Field(ge=1)] = 5


class TraceRequest(ModelRequest):
    """``POST /api/trace``: of a text, or one that the server has opened."""

    source: StrictStr | None = None
    target: StrictStr | None = None
    gradients: StrictBool = False
    begins: StrictBool = False
    latest: StrictBool = False
    trace: StrictStr | None = None


class AttentionRequest(TraceRequest):
    """``POST /api/attention``."""

    map: Annotated[int, Field(ge=0)]


class FaithfulnessRequest(ModelRequest):
    """``POST /api/faithfulness``."""

    source: StrictStr
    target: StrictStr | None = None


def routes(
    desk: Desk, traces: Mapping[str, Trace], readers: ServedReaders | None = None
) -> APIRouter:
    """What of ``/api`` is about translating, and about traces of any model."""
    router = APIRouter(prefix="/api", tags=["heedful's contract"])
    readers = readers or ServedReaders(())
    kept = KeptTraces(desk, traces, readers)
    anything = answers(dict[str, Any])

    @router.get("/models", responses=anything)
    async def models(request: Request) -> JSONResponse:
        """The models with their facts, and the traces that were opened."""
        await desk.fields(request)
        return JSONResponse(
            {
                "models": [model.facts for model in desk.models.models],
                "readers": [reader.facts for reader in readers.readers],
                "traces": list(traces),
            }
        )

    @router.post("/translate", openapi_extra=body_of(TranslateRequest), responses=anything)
    async def translate(request: Request) -> Response:
        """Translations with scores, n-best and word alignments."""
        asked = check_fields(TranslateRequest, await desk.fields(request))
        return await _translate(desk, request, asked)

    @router.post(
        "/translate/stream", openapi_extra=body_of(StreamRequest), responses=answers(None, LINES)
    )
    async def stream(request: Request) -> Response:
        """A long text's parts, a line of JSON as each is finished."""
        asked = check_fields(StreamRequest, await desk.fields(request))
        return _stream(desk, asked)

    @router.post("/alternatives", openapi_extra=body_of(AlternativesRequest), responses=anything)
    async def alternatives(request: Request) -> JSONResponse:
        """Other words at a place of a translation."""
        asked = check_fields(AlternativesRequest, await desk.fields(request))
        model = desk.models.choose(asked.model, asked.source, asked.target)
        desk.check_texts([asked.text, asked.prefix])
        require_one_line(asked.text, "alternatives are")
        if asked.count > desk.limits.hypotheses:
            raise RefusedError(400, f"{asked.count:,} words; the most is {desk.limits.hypotheses}")
        found = await desk.wait(
            request,
            desk.run(
                request,
                lambda: model.translator.alternatives(asked.text, asked.prefix, asked.count),
            ),
        )
        return JSONResponse({"alternatives": [dict(vars(one)) for one in found]})

    @router.post("/trace", openapi_extra=body_of(TraceRequest), responses=anything)
    async def trace(request: Request) -> Response:
        """The summary of what a model attends to while it writes an output."""
        asked = check_fields(TraceRequest, await desk.fields(request))
        found = await kept.get(request, _which(desk, readers, asked))
        return await packed(request, found.summary, "application/json")

    @router.post(
        "/attention",
        openapi_extra=body_of(AttentionRequest),
        responses=answers(None, _BINARY),
    )
    async def attention(request: Request) -> Response:
        """The weights of one of its maps, a byte each."""
        asked = check_fields(AttentionRequest, await desk.fields(request))
        found = await kept.get(request, _which(desk, readers, asked))
        if asked.map >= len(found.maps):
            raise RefusedError(404, f"no map {said(asked.map)}; there are {len(found.maps)}")
        return await packed(request, found.maps[asked.map], "application/octet-stream")

    @router.post("/faithfulness", openapi_extra=body_of(FaithfulnessRequest), responses=anything)
    async def faithful(request: Request) -> JSONResponse:
        """How an output's probability falls without the source words attended to most."""
        asked = check_fields(FaithfulnessRequest, await desk.fields(request))
        model = desk.models.choose(asked.model, None, None)
        desk.check_texts([asked.source, asked.target or ""])
        found = await desk.wait(
            request,
            desk.run(request, lambda: faithfulness(model.translator, asked.source, asked.target)),
        )
        return JSONResponse(found.to_json())

    return router


async def _translate(desk: Desk, request: Request, asked: TranslateRequest) -> Response:
    model = desk.models.choose(asked.model, asked.source, asked.target)
    options = desk.options(model, asked.nbest, asked.beam, asked.length_penalty)
    texts = [asked.text] if isinstance(asked.text, str) else asked.text
    desk.check_texts([*texts, asked.prefix or ""] if asked.prefix else texts)
    alignments = asked.alignments and model.translator.aligns
    if asked.prefix is None:
        found = await desk.wait(
            request,
            desk.translate(model, texts, options, alignments=alignments, sentences=asked.sentences),
        )
    else:
        if len(texts) != 1:
            raise RefusedError(400, "prefix is the beginning of one translation; send one text")
        require_one_line(texts[0], "a prefix is the beginning of the translation")
        prefix = asked.prefix
        one = await desk.wait(
            request,
            desk.run(
                request,
                lambda: model.translator.continue_from(
                    texts[0], prefix, options=options, alignments=alignments
                ),
            ),
        )
        found = [one]
    most = desk.limits.answer
    weights = sum(one.alignment.size for one in found if one.alignment is not None)
    if weights * _BYTES_A_WEIGHT > most:
        raise _too_large(most)
    content = await asyncio.to_thread(
        lambda: json_bytes({"model": model.name, "translations": [_shown(one) for one in found]})
    )
    if len(content) > most:
        raise _too_large(most)
    return await packed(request, content, "application/json")


def _too_large(most: int) -> RefusedError:
    return RefusedError(
        400,
        f"the answer would have more than {most:,} bytes; send less text, or ask for fewer "
        "translations, or without alignments",
    )


def _stream(desk: Desk, asked: StreamRequest) -> Response:
    """Parts as the engine finishes them; from the first line on an error is a line, too."""
    if asked.prefix is not None:
        raise RefusedError(400, "prefix is for /api/translate: a text with one is not split")
    model = desk.models.choose(asked.model, asked.source, asked.target)
    options = desk.options(model, asked.nbest, asked.beam, asked.length_penalty)
    desk.check_texts([asked.text])
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()

    def on_part(text: int, part: int, cut: Cut, translation: Translation) -> None:
        line: dict[str, Any] = {**_shown(translation), "text": one_line(translation.text)}
        line |= {"part": part, "parts": len(cut.parts), "before": cut.parts[part].before}
        if part == len(cut.parts) - 1:
            line["after"] = cut.after
        loop.call_soon_threadsafe(lines.put_nowait, line)

    alignments = asked.alignments and model.translator.aligns
    future = desk.translate(
        model,
        [asked.text],
        options,
        alignments=alignments,
        on_part=on_part,
        sentences=asked.sentences,
    )
    future.add_done_callback(lambda _: loop.call_soon_threadsafe(lines.put_nowait, None))

    until = loop.time() + desk.limits.timeout

    async def written() -> AsyncIterator[bytes]:
        after = asked.text  # all of it, if there is nothing to translate
        try:
            while (line := await asyncio.wait_for(lines.get(), until - loop.time())) is not None:
                after = line.pop("after", after)
                yield json_bytes(line) + b"\n"
            [whole] = future.result()
            yield json_bytes({"done": True, "after": after, "score": whole.score}) + b"\n"
        except TimeoutError:
            yield json_bytes({"error": desk.too_late().message}) + b"\n"
        except (UserError, EngineFailedError) as error:
            yield json_bytes({"error": refusal(error).message}) + b"\n"
        except Exception as error:  # noqa: BLE001 - nothing of it may reach the client
            log_failure("a stream", error)
            yield json_bytes({"error": "an error of the server"}) + b"\n"
        finally:
            future.cancel()

    return StreamingResponse(written(), media_type="application/x-ndjson")


def _which(desk: Desk, readers: ServedReaders, asked: TraceRequest) -> WhichTrace:
    if asked.trace is not None:
        return WhichTrace(trace=asked.trace)
    if asked.source is None:
        raise RefusedError(400, "give source, the text to look at, or trace, an opened one's name")
    desk.check_texts([asked.source, asked.target or ""])
    if asked.model is not None and asked.model in readers:
        which = WhichTrace(None, asked.model, asked.source, asked.target, asked.gradients)
        return which._replace(begins=asked.begins, latest=asked.latest)
    if asked.begins or asked.latest:
        name = "begins" if asked.begins else "latest"
        raise RefusedError(400, f"{name} is for what writes on from a prompt; leave it out")
    model: Served = desk.models.choose(asked.model, None, None)
    require_one_line(asked.source, "a trace is")
    return WhichTrace(None, model.name, asked.source, asked.target, asked.gradients)


def _shown(one: Translation) -> dict[str, Any]:
    """A translation's fields, its words, and the weights between them."""
    shown = one.to_json()
    shown["source_words"], shown["target_words"] = one.source.split(), one.text.split()
    if one.alignment is not None:
        shown["soft"] = [
            {"first": row.first, "weights": [round(weight, 4) for weight in row.weights.tolist()]}
            for row in one.alignment.rows()
        ]
    shown["parts"], shown["at_limit"] = one.parts, one.at_limit
    return shown
