"""``POST /api/fill``."""

from typing import Annotated, Any

from pydantic import BaseModel, Field, StrictInt, StrictStr

from heedful.tasks.endpoints import Endpoint, Limits, Model, ModelRequest, OnLine, Work

_MOST_CANDIDATES = 100


class FillRequest(ModelRequest):
    """``POST /api/fill``."""

    text: StrictStr
    count: Annotated[StrictInt, Field(ge=1, le=_MOST_CANDIDATES)] = 5


class FillResponse(BaseModel):
    """The filled-in text, and the candidates for each mask."""

    model: str
    result: dict[str, Any]


class Fill(Endpoint[FillRequest]):
    """Predict the masked words of a text."""

    path = "fill"
    request = FillRequest
    response = FillResponse

    def texts(self, request: FillRequest) -> list[str]:
        return [request.text]

    def work(self, model: Model, request: FillRequest, limits: Limits, on_line: OnLine) -> Work:
        return Work(
            lambda found: {"model": model.name, "result": found},
            call=lambda: model.predictor.fill(request.text, request.count).to_json(),
        )


ENDPOINTS = (Fill(),)
