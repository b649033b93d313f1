"""``POST /api/generate`` and ``/api/generate/stream``."""

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BaseModel, Field, StrictBool, StrictInt, StrictStr, ValidationError

from heedful.basics.errors import UserError
from heedful.basics.settings import explain
from heedful.decoding import SearchOptions
from heedful.inference.generator import Generated
from heedful.tasks.endpoints import Endpoint, Limits, Model, ModelRequest, OnLine, Work

_MOST_STOPS = 16


class GenerateStreamRequest(ModelRequest):
    """``POST /api/generate/stream``."""

    prompt: StrictStr = ""
    max_tokens: Annotated[StrictInt, Field(ge=1)] = 64
    stop: Annotated[list[StrictStr], Field(max_length=_MOST_STOPS)] = Field(default_factory=list)
    begins: StrictBool = False
    beam: Annotated[StrictInt, Field(ge=1)] | None = None
    temperature: Annotated[float, Field(ge=1e-6, le=100, allow_inf_nan=False)] | None = None
    top_k: Annotated[StrictInt, Field(ge=1)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] | None = None
    seed: Annotated[StrictInt, Field(ge=0, lt=1 << 63)] | None = None


class GenerateRequest(GenerateStreamRequest):
    """``POST /api/generate``."""

    nbest: Annotated[StrictInt, Field(ge=1)] = 1


class GenerateResponse(BaseModel):
    """The texts, best first."""

    model: str
    texts: list[dict[str, Any]]


class Generate(Endpoint[GenerateRequest]):
    """Continue a prompt with one or several texts."""

    path = "generate"
    request = GenerateRequest
    response = GenerateResponse

    def texts(self, request: GenerateRequest) -> list[str]:
        return [request.prompt, *request.stop]

    def work(self, model: Model, request: GenerateRequest, limits: Limits, on_line: OnLine) -> Work:
        def finish(found: list[Generated]) -> dict[str, Any]:
            return {"model": model.name, "texts": [one.to_json() for one in found]}

        return Work(finish, call=_generating(model, request, limits, request.nbest))


class GenerateStream(Endpoint[GenerateStreamRequest]):
    """Continue a prompt; one line of JSON for each piece of the text as it is generated."""

    path = "generate/stream"
    request = GenerateStreamRequest
    streams = True

    def texts(self, request: GenerateStreamRequest) -> list[str]:
        return [request.prompt, *request.stop]

    def work(
        self, model: Model, request: GenerateStreamRequest, limits: Limits, on_line: OnLine
    ) -> Work:
        def finish(found: list[Generated]) -> dict[str, Any]:
            return {"done": True, **found[0].to_json()}

        def on_piece(text: str) -> None:
            on_line({"text": text})

        return Work(finish, call=_generating(model, request, limits, 1, on_piece))


ENDPOINTS = (Generate(), GenerateStream())


def _generating(
    model: Model,
    request: GenerateStreamRequest,
    limits: Limits,
    nbest: int,
    on_piece: Callable[[str], None] | None = None,
) -> Callable[[], list[Generated]]:
    """A function that generates the texts of a request.

    Raises:
        UserError: the request exceeds the limits, or settings exclude each other.
    """
    if request.max_tokens > limits.tokens:
        raise UserError(f"{request.max_tokens:,} tokens; the maximum is {limits.tokens:,}")
    if max(request.beam or 1, nbest) > limits.hypotheses:
        raise UserError(f"beam or nbest is too large; the maximum is {limits.hypotheses}")
    options = _options(request, nbest)

    def call() -> list[Generated]:
        found: list[Generated] = model.predictor.generate(
            request.prompt,
            options=options,
            max_tokens=request.max_tokens,
            stop=request.stop,
            begins=request.begins,
            stream=on_piece,
        )
        return found

    return call


def _options(request: GenerateStreamRequest, nbest: int) -> SearchOptions:
    """Sampling, unless a beam is given."""
    sampling = {
        name: value
        for name in ("temperature", "top_k", "top_p", "seed")
        if (value := getattr(request, name)) is not None
    }
    if request.beam is not None and sampling:
        raise UserError(f"{next(iter(sampling))} is for sampling, not for beam search")
    chosen: dict[str, Any] = {"sample": True}
    if request.beam is not None:
        chosen = {"beam": max(request.beam, nbest)}
    try:
        return SearchOptions(**chosen, **sampling, nbest=nbest)
    except ValidationError as error:
        raise UserError(explain(error, SearchOptions)) from None
