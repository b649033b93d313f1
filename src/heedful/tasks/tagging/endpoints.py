"""``POST /api/tag``."""

from typing import Any

from pydantic import BaseModel, StrictStr

from heedful.tasks.endpoints import Endpoint, Limits, Model, ModelRequest, OnLine, Work, as_list


class TagRequest(ModelRequest):
    """``POST /api/tag``."""

    text: StrictStr | list[StrictStr]


class TagResponse(BaseModel):
    """The words of each text and their tags."""

    model: str
    results: list[dict[str, Any]]


class Tag(Endpoint[TagRequest]):
    """A tag for each word; words are separated by white space."""

    path = "tag"
    request = TagRequest
    response = TagResponse

    def texts(self, request: TagRequest) -> list[str]:
        return as_list(request.text)

    def work(self, model: Model, request: TagRequest, limits: Limits, on_line: OnLine) -> Work:
        def call() -> list[dict[str, Any]]:
            return [one.to_json() for one in model.predictor.predict(as_list(request.text))]

        return Work(lambda found: {"model": model.name, "results": found}, call=call)


ENDPOINTS = (Tag(),)
