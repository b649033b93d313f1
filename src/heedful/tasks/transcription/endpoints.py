"""``POST /api/subtitles``."""

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    Field,
    StrictStr,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from heedful.tasks.endpoints import Endpoint, Limits, Model, ModelRequest, OnLine, Work

FORMS = ("srt", "vtt")
"""The formats of subtitles."""
_Seconds = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]


def _first_problem(given: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    """Name the word and the field of the first problem only: there may be many."""
    try:
        return handler(given)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False, include_input=False)[0]
        raise ValueError(f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}") from None


class TimedWord(BaseModel):
    """A word of a transcript."""

    text: StrictStr
    start: _Seconds
    end: _Seconds


class Transcribed(BaseModel):
    """A result of ``POST /api/predict/{model}``, of which only the words are used."""

    words: list[TimedWord]


class SubtitlesRequest(ModelRequest):
    """``POST /api/subtitles``."""

    result: Annotated[Transcribed, WrapValidator(_first_problem)]
    form: Literal["srt", "vtt"]


class SubtitlesResponse(BaseModel):
    """A file of subtitles."""

    model: str
    subtitles: str


class Subtitles(Endpoint[SubtitlesRequest]):
    """Subtitles of a recording that was transcribed, as ``heedful transcribe --subtitles``."""

    path = "subtitles"
    request = SubtitlesRequest
    response = SubtitlesResponse
    only_texts = False

    def texts(self, request: SubtitlesRequest) -> list[str]:
        return [" ".join(word.text for word in request.result.words)]

    def work(
        self, model: Model, request: SubtitlesRequest, limits: Limits, on_line: OnLine
    ) -> Work:
        def finish(_: None) -> dict[str, Any]:
            from heedful.tasks.transcription.subtitles import subtitles
            from heedful.tasks.transcription.word_times import Word

            given = ((" ".join(one.text.split()), one) for one in request.result.words)
            words = [Word(text, one.start, one.end) for text, one in given if text]
            lines = subtitles(words, request.form)
            return {"model": model.name, "subtitles": "".join(f"{line}\n" for line in lines)}

        return Work(finish, call=lambda: None)


ENDPOINTS = (Subtitles(),)
