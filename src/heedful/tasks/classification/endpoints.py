"""``POST /api/classify``."""

from typing import Any

from pydantic import BaseModel, StrictBool, StrictStr

from heedful.basics.cancellation import check_cancelled
from heedful.basics.errors import UserError
from heedful.inference.explaining import explain
from heedful.inference.text_reader import Text
from heedful.tasks.endpoints import Endpoint, Limits, Model, ModelRequest, OnLine, Work, as_list


class ClassifyRequest(ModelRequest):
    """``POST /api/classify``."""

    text: StrictStr | list[StrictStr]
    second: StrictStr | list[StrictStr] | None = None
    explain: StrictBool = False
    label: StrictStr | None = None


class ClassifyResponse(BaseModel):
    """A result for each text."""

    model: str
    results: list[dict[str, Any]]


class Classify(Endpoint[ClassifyRequest]):
    """The label or labels of each text, and the words that one of them depends on."""

    path = "classify"
    request = ClassifyRequest
    response = ClassifyResponse

    def texts(self, request: ClassifyRequest) -> list[str]:
        if request.label is not None and not request.explain:
            raise UserError("label is the label to explain; set explain, or leave out label")
        label = [] if request.label is None else [request.label]
        return [*(part for text in _inputs(request) for part in _parts(text)), *label]

    def work(self, model: Model, request: ClassifyRequest, limits: Limits, on_line: OnLine) -> Work:
        classifier, inputs = model.predictor, _inputs(request)

        def call() -> list[dict[str, Any]]:
            if not request.explain:
                return [one.to_json() for one in classifier.classify(inputs)]
            explained = []
            for text in inputs:
                check_cancelled()
                explained.append(_explained(classifier, text, request.label))
            return explained

        return Work(lambda found: {"model": model.name, "results": found}, call=call)


ENDPOINTS = (Classify(),)


def _inputs(request: ClassifyRequest) -> list[Text]:
    """The texts, or pairs of them."""
    first = as_list(request.text)
    if request.second is None:
        return list(first)
    second = as_list(request.second)
    if len(first) != len(second):
        raise UserError(f"{len(first):,} values of text but {len(second):,} of second")
    return list(zip(first, second, strict=True))


def _parts(text: Text) -> tuple[str, ...]:
    return (text,) if isinstance(text, str) else text


def _explained(classifier: Any, text: Text, label: str | None) -> dict[str, Any]:
    """The label and the words; the first ``first_words`` belong to the first text."""
    rows = classifier.rows(text)
    if not rows:
        return {**classifier.classify([text])[0].to_json(), "words": [], "first_words": 0}
    found = explain(classifier, text, label=label).to_json()
    first = len(classifier.vocabulary.decode(rows[0].first).split())
    return {**found, "first_words": first}
