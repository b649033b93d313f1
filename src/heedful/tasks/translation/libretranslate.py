"""The HTTP API of LibreTranslate, so that its clients work unchanged."""

import asyncio
from typing import Annotated, Any, Literal

from babel import Locale, UnknownLocaleError
from pydantic import BaseModel, ConfigDict, Field, StrictStr

from heedful.basics.errors import UserError
from heedful.data.documents import Document
from heedful.data.documents.html import HtmlDocument
from heedful.inference.translation import Translation
from heedful.tasks.endpoints import (
    Contract,
    Model,
    Route,
    SearchAll,
    Server,
    as_list,
    plain_code,
)
from heedful.tasks.translation.file_routes import UPLOADED, FileRoutes
from heedful.tasks.translation.served_texts import AUTO, Detected, ServedTexts


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


class TranslateAnswer(BaseModel):
    """Strings, or lists of strings if ``q`` is a list."""

    translatedText: str | list[str]  # noqa: N815 - the contract's name
    detectedLanguage: Detected | list[Detected] = Field(default=None)  # type: ignore[assignment]  # noqa: N815 - absent, not null
    alternatives: list[str] | list[list[str]] = Field(default=None)  # type: ignore[assignment]  # absent, not null


class LanguageAnswer(BaseModel):
    """A language and its target languages."""

    code: str
    name: str
    targets: list[str]


class LibreTranslate:
    """``/translate``, ``/detect``, ``/languages``, ``/frontend/settings`` and files.

    Args:
        server: the server.
    """

    def __init__(self, server: Server) -> None:
        self._server, self._models = server, server.models
        self._texts = ServedTexts(server)
        self._files = FileRoutes(server, self._texts)

    @property
    def contract(self) -> Contract:
        """The routes."""
        return Contract(
            "LibreTranslate's contract",
            [
                Route("/translate", self.translate, TranslateAnswer, TranslateRequest),
                Route("/detect", self.detect, list[Detected], DetectRequest),
                Route("/languages", self.languages, list[LanguageAnswer]),
                Route("/frontend/settings", self.settings, dict[str, Any]),
                *self._files.routes,
            ],
        )

    async def translate(self, request: TranslateRequest, search: SearchAll) -> dict[str, Any]:
        """Translate a text or a list of texts."""
        texts = as_list(request.q)
        most = self._server.limits.hypotheses - 1
        if request.alternatives > most:
            raise UserError(f"{request.alternatives:,} alternatives; the maximum is {most}")
        self._server.check_texts(texts)
        target = self._models.require_code(request.target)
        answer: dict[str, Any] = {}
        documents: list[Document] = []
        if request.format == "html":
            documents = await asyncio.to_thread(lambda: [_html(text) for text in texts])
        if request.source.strip().lower() == AUTO:
            words = ["\n".join(one.segments) for one in documents] or texts
            detected = await self._texts.sources(words, target)
            sources = [one.language for one in detected]
            shown = [one.model_dump() for one in detected]
            answer["detectedLanguage"] = shown[0] if isinstance(request.q, str) else shown
        else:
            sources = [self._models.require_code(request.source)] * len(texts)
        count = request.alternatives
        if documents:
            filled = self._texts.translate_documents(documents, sources, target, search, count)
            found = [[one.decode() for one in ranked] for ranked in await filled]
        else:
            made = await self._texts.translate(texts, sources, target, search, count)
            found = [_different(one, 1 + count) for one in made]
        results = [best for best, *_ in found]
        answer["translatedText"] = results[0] if isinstance(request.q, str) else results
        if count:
            others = [others for _, *others in found]
            answer["alternatives"] = others[0] if isinstance(request.q, str) else others
        return answer

    async def detect(self, request: DetectRequest, search: SearchAll) -> list[dict[str, Any]]:
        """Detect the language of a text among the served languages; most probable first."""
        self._server.check_texts([request.q])
        [ranked] = await self._texts.detect([request.q])
        return [Detected.of(*one).model_dump() for one in ranked]

    async def languages(self, request: None, search: SearchAll) -> list[dict[str, Any]]:
        """The served languages and their target languages."""
        return [
            {"code": code, "name": language_name(code), "targets": self._models.targets(code)}
            for code in self._models.codes
        ]

    async def settings(self, request: None, search: SearchAll) -> dict[str, Any]:
        """Settings for web front ends of this server."""
        first = next(iter(self._models.pairs.values()), None)
        return {
            "apiKeys": self._server.needs_key,
            "charLimit": self._server.limits.characters,
            "filesTranslation": True,
            "frontendTimeout": 500,
            "keyRequired": self._server.needs_key,
            "language": {side: _shown(first, side) for side in ("source", "target")},
            "suggestions": False,
            "supportedFilesFormat": list(UPLOADED),
        }


def language_name(code: str) -> str:
    """The English name of a language; its code if it has no name."""
    try:
        return Locale.parse(plain_code(code), sep="-").get_display_name("en") or code
    except (UnknownLocaleError, ValueError):
        return code


def _different(one: Translation, count: int) -> list[str]:
    """At most ``count`` different texts, best first."""
    return list(dict.fromkeys(each.text for each in (one, *one.alternatives)))[:count]


def _html(text: str) -> HtmlDocument:
    """A fragment of HTML, or a page."""
    return HtmlDocument(text.encode(), "the HTML", "utf-8")


def _shown(model: Model | None, side: str) -> dict[str, str]:
    if model is None:
        return {"code": AUTO, "name": "Auto Detect"}
    code = str(getattr(model, side))
    return {"code": code, "name": language_name(code)}
