"""The HTTP contract of LibreTranslate, so that its clients work unchanged."""

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Annotated, Any, Literal

from babel import Locale, UnknownLocaleError
from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, StrictStr
from starlette.requests import Request
from starlette.responses import JSONResponse

from heedful.inference import Translation
from heedful.serving.errors import RefusedError
from heedful.serving.handling import RequestHandler
from heedful.serving.openapi import answers, body_of
from heedful.serving.request_parsing import check_fields
from heedful.serving.served import Served, plain_code
from heedful.tasks.endpoints import Search, search_options

AUTO = "auto"


class TranslateRequest(BaseModel):
    """``POST /translate``."""

    model_config = ConfigDict(extra="ignore")

    q: StrictStr | list[StrictStr]
    source: StrictStr
    target: StrictStr
    format: Literal["text", "html"] = "text"
    alternatives: Annotated[int, Field(ge=0)] = 0


class DetectRequest(BaseModel):
    """``POST /detect``."""

    model_config = ConfigDict(extra="ignore")

    q: StrictStr


class Detected(BaseModel):
    """A language, and how sure that is, in percent."""

    confidence: float
    language: str


class TranslateAnswer(BaseModel):
    """In the shape of ``q``: strings, or lists of them."""

    translatedText: str | list[str]  # noqa: N815 - the contract's name
    detectedLanguage: Detected | list[Detected] = Field(default=None)  # type: ignore[assignment]  # noqa: N815 - absent, not null
    alternatives: list[str] | list[list[str]] = Field(default=None)  # type: ignore[assignment]  # absent, not null


class LanguageAnswer(BaseModel):
    """A language and what it is translated into."""

    code: str
    name: str
    targets: list[str]


def routes(handler: RequestHandler) -> APIRouter:
    """``/translate``, ``/detect``, ``/languages`` and ``/frontend/settings``."""
    router = APIRouter(tags=["LibreTranslate's contract"])

    @router.post(
        "/translate",
        openapi_extra=body_of(TranslateRequest, forms=True),
        responses=answers(TranslateAnswer),
    )
    async def translate(request: Request) -> JSONResponse:
        """Translate a text or a list of texts."""
        asked = check_fields(TranslateRequest, await handler.fields(request))
        return JSONResponse(await _translate(handler, request, asked))

    @router.post(
        "/detect",
        openapi_extra=body_of(DetectRequest, forms=True),
        responses=answers(list[Detected]),
    )
    async def detect(request: Request) -> JSONResponse:
        """Which of the served languages a text is in, the likeliest first."""
        asked = check_fields(DetectRequest, await handler.fields(request))
        handler.check_texts([asked.q])
        [ranked] = await handler.detect([asked.q])
        return JSONResponse([_detected(*one) for one in ranked])

    @router.get("/languages", responses=answers(list[LanguageAnswer]))
    async def languages() -> JSONResponse:
        """The languages served, and what each is translated into."""
        return JSONResponse(
            [
                {"code": code, "name": language_name(code), "targets": handler.models.targets(code)}
                for code in handler.models.codes
            ]
        )

    @router.get("/frontend/settings", responses=answers(dict[str, Any]))
    async def settings() -> JSONResponse:
        """What a page in front of this server may want to know."""
        return JSONResponse(_settings(handler))

    return router


def language_name(code: str) -> str:
    """A language's name in English; its code where it has none."""
    try:
        return Locale.parse(plain_code(code), sep="-").get_display_name("en") or code
    except (UnknownLocaleError, ValueError):
        return code


async def _translate(
    handler: RequestHandler, request: Request, asked: TranslateRequest
) -> dict[str, Any]:
    texts = [asked.q] if isinstance(asked.q, str) else asked.q
    if asked.format == "html":
        raise RefusedError(400, "format html is not supported yet: tags would be lost; send text")
    most = handler.limits.hypotheses - 1
    if asked.alternatives > most:
        raise RefusedError(400, f"{asked.alternatives:,} alternatives; the most is {most}")
    handler.check_texts(texts)
    target = handler.models.require_code(asked.target)
    answer: dict[str, Any] = {}
    if asked.source.strip().lower() == AUTO:
        detected = [_likeliest(handler, ranked, target) for ranked in await handler.detect(texts)]
        sources = [language for language, _ in detected]
        shown = [_detected(*one) for one in detected]
        answer["detectedLanguage"] = shown[0] if isinstance(asked.q, str) else shown
    else:
        sources = [handler.models.require_code(asked.source)] * len(texts)
    found = await _from_each(handler, request, texts, sources, target, asked.alternatives)
    results = [one.text for one in found]
    answer["translatedText"] = results[0] if isinstance(asked.q, str) else results
    if asked.alternatives:
        others = [_others(one, asked.alternatives) for one in found]
        answer["alternatives"] = others[0] if isinstance(asked.q, str) else others
    return answer


async def _from_each(
    handler: RequestHandler,
    request: Request,
    texts: Sequence[str],
    sources: Sequence[str],
    target: str,
    alternatives: int,
) -> list[Translation]:
    """Each text from its own language; one that is in the target language stays as it is."""
    places: dict[str, list[int]] = {}
    for i, source in enumerate(sources):
        places.setdefault(source, []).append(i)
    found: dict[int, Translation] = {}
    if target in places and (target, target) not in handler.models.pairs:
        found |= {i: Translation(texts[i], texts[i]) for i in places.pop(target)}
    models = [handler.models.of_pair(source, target) for source in places]
    futures: list[Future[list[Translation]]] = []
    try:
        for model, own in zip(models, places.values(), strict=True):
            options = search_options(model.predictor.options, handler.limits, alternatives + 1)
            futures.append(handler.search(model, Search([texts[i] for i in own], options)))
        answers = await handler.wait_all(request, futures)
    finally:
        for future in futures:
            future.cancel()
    for own, translations in zip(places.values(), answers, strict=True):
        found |= dict(zip(own, translations, strict=True))
    return [found[i] for i in range(len(texts))]


def _likeliest(
    handler: RequestHandler, ranked: Sequence[tuple[str, float]], target: str
) -> tuple[str, float]:
    """The likeliest language that can be translated, or is the target already."""
    sources = handler.models.sources(target)
    possible = [one for one in ranked if one[0] in sources or one[0] == target]
    if not possible:
        raise RefusedError(400, f"no language that can be detected is translated to {target}")
    # Where nothing speaks for any language, it is one that can be translated.
    return max(possible, key=lambda one: (one[1], one[0] in sources))


def _others(one: Translation, count: int) -> list[str]:
    """At most ``count`` alternatives that read differently."""
    texts = dict.fromkeys(other.text for other in one.alternatives)
    texts.pop(one.text, None)
    return list(texts)[:count]


def _detected(language: str, probability: float) -> dict[str, Any]:
    return {"confidence": round(100 * probability, 1), "language": language}


def _settings(handler: RequestHandler) -> dict[str, Any]:
    def shown(model: Served | None, side: str) -> dict[str, str]:
        code = AUTO if model is None else str(getattr(model, side))
        return {"code": code, "name": "Auto Detect" if model is None else language_name(code)}

    pairs = list(handler.models.pairs.values())
    first = pairs[0] if pairs else None
    return {
        "apiKeys": handler.keys is not None,
        "charLimit": handler.limits.characters,
        "frontendTimeout": 500,
        "keyRequired": handler.keys is not None,
        "language": {"source": shown(first, "source"), "target": shown(first, "target")},
        "suggestions": False,
        "supportedFilesFormat": [],
    }
