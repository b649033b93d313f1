"""``POST /api/predict/{model}``: any model of the server, by the contract of its task."""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, StrictStr
from starlette.requests import Request
from starlette.responses import Response

from heedful.serving.asking import Desk
from heedful.serving.packing import json_bytes, packed
from heedful.serving.readers import ServedReaders
from heedful.serving.reading import check_fields
from heedful.serving.spec import answers, body_of

Pair = Annotated[list[StrictStr], Field(min_length=2, max_length=2)]


class PredictRequest(BaseModel):
    """``POST /api/predict/{model}``."""

    model_config = ConfigDict(extra="forbid")

    inputs: list[StrictStr | Pair]
    """Texts, or pairs of texts where the model reads pairs."""


class PredictAnswer(BaseModel):
    """One result for each input, in their order."""

    model: str
    results: list[dict[str, Any]]


def routes(desk: Desk, readers: ServedReaders) -> APIRouter:
    """The endpoint for every task."""
    router = APIRouter(prefix="/api", tags=["heedful's contract"])

    @router.post(
        "/predict/{model:path}",
        openapi_extra=body_of(PredictRequest),
        responses=answers(PredictAnswer),
    )
    async def predict(model: str, request: Request) -> Response:
        """A result for each input: a translation, a label, tags, and so on."""
        asked = check_fields(PredictRequest, await desk.fields(request))
        desk.check_texts(
            [text for one in asked.inputs for text in ([one] if isinstance(one, str) else one)]
        )
        if model in readers:
            predictor = readers[model].reader
        else:
            predictor = desk.models.choose(model, None, None).translator
        inputs = [one if isinstance(one, str) else (one[0], one[1]) for one in asked.inputs]

        def work() -> list[dict[str, Any]]:
            return [one.to_json() for one in predictor.predict(inputs)]

        found = await desk.wait(request, desk.run(request, work))
        content = await asyncio.to_thread(json_bytes, {"model": model, "results": found})
        return await packed(request, content)

    return router
