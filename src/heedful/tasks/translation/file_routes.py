"""LibreTranslate's ``/translate_file`` and ``/download_file``."""

import asyncio
from pathlib import PurePosixPath
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictStr, WithJsonSchema
from pydantic.functional_validators import InstanceOf

from heedful.basics.errors import UserError
from heedful.data.documents import Document
from heedful.data.documents.formats import (
    FILE_EXTENSIONS,
    TABLES,
    Columns,
    Opening,
    detect_format,
)
from heedful.data.documents.plain import PlainDocument
from heedful.data.readers.opening import CHUNK, GZIP_MAGIC, XZ_MAGIC
from heedful.tasks.endpoints import Download, Route, SearchAll, Server, Upload
from heedful.tasks.translation.kept_files import kept_files
from heedful.tasks.translation.served_texts import AUTO, Detected, ServedTexts
from heedful.tasks.translation.upload_limits import check_upload

TEXT = ".txt"
Column = Annotated[StrictStr, Field(max_length=200)]
"""A column of a table, by its name in the first row or by its number."""
UPLOADED = tuple(sorted({TEXT, *FILE_EXTENSIONS, *TABLES}))
"""Extensions of the files that are translated."""
_MEDIA_TYPES = {
    ".csv": "text/csv",
    ".htm": "text/html",
    ".html": "text/html",
    ".json": "application/json",
    ".po": "text/x-gettext-translation",
    ".pot": "text/x-gettext-translation-template",
    ".srt": "application/x-subrip",
    ".txt": "text/plain",
    ".vtt": "text/vtt",
    ".xhtml": "application/xhtml+xml",
    ".xlf": "application/x-xliff+xml",
    ".xliff": "application/x-xliff+xml",
    ".xml": "application/xml",
}


class FileRequest(BaseModel):
    """``POST /translate_file``."""

    model_config = ConfigDict(extra="ignore", arbitrary_types_allowed=True)

    file: Annotated[InstanceOf[Upload], WithJsonSchema({"type": "string", "format": "binary"})]
    source: StrictStr
    target: StrictStr
    source_column: Column | None = None
    target_column: Column | None = None
    model: StrictStr | None = None
    """The name of a run, if several translate between these languages."""


class FileAnswer(BaseModel):
    """The URL of the translated file."""

    translatedFileUrl: str  # noqa: N815 - the contract's name
    detectedLanguage: Detected | None = None  # noqa: N815 - the contract's name


class FileRoutes:
    """The routes of files.

    Args:
        server: the server.
        texts: translates documents.
    """

    def __init__(self, server: Server, texts: ServedTexts) -> None:
        self._server, self._texts = server, texts
        self._opening = asyncio.Lock()
        self._kept = kept_files(server.limits.files, server.limits.file_time, server.shared_files)

    @property
    def routes(self) -> list[Route]:
        """The routes."""
        return [
            Route("/translate_file", self.translate_file, FileAnswer, FileRequest, takes_file=True),
            Route("/download_file/{name}", self.download_file, Download),
        ]

    async def translate_file(self, request: FileRequest, search: SearchAll) -> dict[str, Any]:
        """Translate a document; it keeps its format."""
        models, upload = self._server.models, request.file
        self._kept.require_room(len(upload.data))
        target = models.require_code(request.target)
        is_auto = request.source.strip().lower() == AUTO
        source = None if is_auto else models.require_code(request.source)
        async with self._opening:  # parsing needs much more memory than the file
            document, ending = await asyncio.to_thread(
                _opened, request, source, target, self._server.limits.characters
            )
        words = "\n".join(document.segments)
        self._server.check_texts([words])
        answer: dict[str, Any] = {}
        if source is None:
            [found] = await self._texts.sources([words], target)
            source, answer["detectedLanguage"] = found.language, found.model_dump()
        texts = self._texts
        if request.model is not None:
            texts = ServedTexts(self._server, self._of_pair(request.model, source, target))
        [[data]] = await texts.translate_documents([document], [source], target, search)
        media_type = _MEDIA_TYPES.get(ending, "application/octet-stream")
        file = Download(f"translation.{target}{ending}", data, media_type)
        name = self._kept.add(file, ending)
        return {"translatedFileUrl": f"{upload.address}download_file/{name}", **answer}

    def _of_pair(self, name: str, source: str, target: str) -> Any:
        model = self._server.models.choose(name)
        if (model.source, model.target) != (source, target):
            raise UserError(f"the model {model.name} does not translate {source} to {target}")
        return model

    async def download_file(self, request: dict[str, str], search: SearchAll) -> Download | None:
        """A translated file; it is deleted after some time."""
        return self._kept.get(request["name"])


def _opened(
    request: FileRequest, source: str | None, target: str, characters: int
) -> tuple[Document, str]:
    """The document of an upload, and the extension of its format.

    The client's name is used for nothing but its extension.
    """
    upload, own = request.file, request.source_column
    ending = PurePosixPath(upload.name.replace("\\", "/")).suffix.casefold()
    if ending not in UPLOADED:
        known = ", ".join(UPLOADED)
        raise UserError(f"this file format is not supported; supported are {known}")
    if upload.data.startswith((GZIP_MAGIC, XZ_MAGIC)):
        raise UserError("the file is compressed; send it uncompressed")
    check_upload(upload.data, ending, characters)
    name = f"file{ending}"
    if ending == TEXT:
        return PlainDocument(upload.data, name), ending
    columns = None if own is None else Columns(own, request.target_column or own)
    if ending in TABLES and columns is None:
        raise UserError("the file is a table; name its columns with source_column")
    try:
        found = detect_format(name, upload.data[:CHUNK], None, columns)
        if found is None:
            raise UserError(f"the content is not that of a {ending} file")
        return found.open(upload.data, name, Opening(None, source, target, columns)), ending
    except UserError as error:  # it may quote the file
        readable = (one if one.isprintable() else " " for one in str(error))
        raise UserError("".join(readable)) from None
