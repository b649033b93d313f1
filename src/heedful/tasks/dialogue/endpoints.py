"""``POST /api/chat`` and ``/api/chat/stream``."""

from collections.abc import Callable
from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    Field,
    StrictBool,
    StrictInt,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    field_validator,
    model_validator,
)

from heedful.basics.errors import UserError
from heedful.basics.limits import MOST_FACTS
from heedful.basics.settings import explain
from heedful.data.readers.dialogues import Dialogue, Turn
from heedful.decoding import SearchOptions
from heedful.tasks.dialogue.responder import Answer, Responder
from heedful.tasks.endpoints import Endpoint, Limits, Model, ModelRequest, OnLine, Work, too_large

_BYTES_A_WEIGHT = 7


def _first_problem(given: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    """Name the turn and the field of the first problem."""
    try:
        return handler(given)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(map(str, problem["loc"]))
        raise ValueError(f"{place}: {problem['msg']}" if place else problem["msg"]) from None


class SaidTurn(Turn):
    """A turn of a conversation; an answer of the model can be empty."""

    @field_validator("text")
    @classmethod
    def _says_something(cls, given: str) -> str:
        return given


class ChatRequest(ModelRequest):
    """``POST /api/chat``; only turns before the last one may be empty."""

    turns: Annotated[
        list[SaidTurn], Field(min_length=1, max_length=MOST_FACTS), WrapValidator(_first_problem)
    ]
    beam: Annotated[StrictInt, Field(ge=1)] | None = None
    length_penalty: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] | None = None
    sample: StrictBool = False
    temperature: Annotated[float, Field(ge=1e-6, le=100, allow_inf_nan=False)] | None = None
    top_k: Annotated[StrictInt, Field(ge=1)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] | None = None
    seed: Annotated[StrictInt, Field(ge=0, lt=1 << 63)] | None = None
    alignments: StrictBool = False

    @model_validator(mode="after")
    def _asks_something(self) -> Self:
        if not self.turns[-1].text.strip():
            raise ValueError("the last turn is empty")
        return self


class ChatResponse(BaseModel):
    """The answer, and how many of the oldest turns were not read for it."""

    model: str
    answer: dict[str, Any]


class ChatEndpoint(Endpoint[ChatRequest]):
    """The next turn of a dialogue."""

    path = "chat"
    request = ChatRequest
    response = ChatResponse
    only_texts = False

    def texts(self, request: ChatRequest) -> list[str]:
        return [f"{one.speaker}: {one.text}" for one in request.turns]

    def work(self, model: Model, request: ChatRequest, limits: Limits, on_line: OnLine) -> Work:
        def finish(found: Answer) -> dict[str, Any]:
            return {"model": model.name, "answer": _shown(found, limits)}

        return Work(finish, call=_answering(model, request, limits))


class ChatStream(Endpoint[ChatRequest]):
    """The next turn of a dialogue; one line of JSON for each piece of it as it is written."""

    path = "chat/stream"
    request = ChatRequest
    streams = True
    only_texts = False

    def texts(self, request: ChatRequest) -> list[str]:
        return [f"{one.speaker}: {one.text}" for one in request.turns]

    def work(self, model: Model, request: ChatRequest, limits: Limits, on_line: OnLine) -> Work:
        def finish(found: Answer) -> dict[str, Any]:
            return {"done": True, **_shown(found, limits)}

        def on_piece(text: str) -> None:
            on_line({"text": text})

        return Work(finish, call=_answering(model, request, limits, on_piece))


ENDPOINTS = (ChatEndpoint(), ChatStream())


def _shown(found: Answer, limits: Limits) -> dict[str, Any]:
    weights = 0 if found.weights is None else found.weights.numel()
    if weights * _BYTES_A_WEIGHT > limits.answer:
        raise too_large(limits.answer, "send fewer turns, or ask without alignments")
    return found.to_json()


def _answering(
    model: Model,
    request: ChatRequest,
    limits: Limits,
    on_piece: Callable[[str], None] | None = None,
) -> Callable[[], Answer]:
    """A function that answers a request.

    Raises:
        UserError: the request exceeds the limits, or settings exclude each other.
    """
    responder: Responder = model.predictor
    options = options_of(responder.options, request)
    if options.width > max(limits.hypotheses, responder.options.beam):
        raise UserError(f"a beam of {options.width:,}; the maximum is {limits.hypotheses}")
    dialogue = Dialogue.model_construct(turns=[*request.turns])
    alignments = request.alignments and responder.aligns
    return lambda: responder.answer(dialogue, options, alignments=alignments, stream=on_piece)


def options_of(usual: SearchOptions, given: Any, flag: Callable[[str], str] = str) -> SearchOptions:
    """The search options of a responder, changed by those of a request or of a command.

    Args:
        usual: the options of the responder.
        given: has the fields of :class:`ChatRequest` from ``beam`` to ``seed``.
        flag: the user's name of a field.

    Raises:
        UserError: a setting is out of range, or two exclude each other.
    """
    names = ("temperature", "top_k", "top_p", "seed")
    own = {name: one for name in names if (one := getattr(given, name)) is not None}
    for name in ("beam", "length_penalty") if given.sample else own:
        if getattr(given, name) is not None:
            sample, one = flag("sample"), flag(name)
            if given.sample:
                raise UserError(f"{sample} and {one} exclude each other; leave out one of them")
            raise UserError(f"{one} is for sampling; add {sample}, or leave it out")
    changed: dict[str, Any] = {"sample": True, **own} if given.sample else {}
    for name in ("beam", "length_penalty"):
        if getattr(given, name) is not None:
            changed[name] = getattr(given, name)
    try:
        return SearchOptions(**{**usual.model_dump(), **changed})
    except ValidationError as error:
        raise UserError(explain(error, SearchOptions)) from None
