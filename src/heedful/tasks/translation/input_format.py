"""The formats that ``heedful translate`` reads, without importing any of them."""

from enum import StrEnum


class Format(StrEnum):
    """The format of the input; after the first two, a document's."""

    AUTO = "auto"
    LINES = "lines"
    TSV = "tsv"
    CSV = "csv"
    PO = "po"
    XLIFF = "xliff"
    TMX = "tmx"
    JSON = "json"
    YAML = "yaml"
    XCSTRINGS = "xcstrings"
    ANDROID = "android"
    STRINGS = "strings"
    PROPERTIES = "properties"
    RESX = "resx"
    QT = "qt"
    HTML = "html"
    MARKDOWN = "markdown"
    RST = "rst"
    SUBTITLES = "subtitles"
    DOCX = "docx"
    PPTX = "pptx"
    XLSX = "xlsx"
    OPENDOCUMENT = "opendocument"
    EPUB = "epub"
