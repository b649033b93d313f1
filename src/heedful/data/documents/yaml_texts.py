"""YAML catalogues, as Rails has them: nested keys below the code of the language.

A translation keeps the style of its scalar (plain, quoted or block) where the style can hold it,
and is quoted otherwise. Each scalar is read back before it is written.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import yaml

from heedful.basics.errors import UserError
from heedful.data.documents.text_spans import TextSpanDocument
from heedful.data.protected.messages import PLURAL_FORMS
from heedful.data.protected.numbers import locale_of
from heedful.data.readers.languages import takes

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_RESOLVER = yaml.resolver.Resolver()
_STRING = "tag:yaml.org,2002:str"
_DEEPEST = 500
_PROPERTIES = re.compile(r"(?:[&!]\S*\s+)+")
_HEADER = re.compile(r"([|>][-+\d]*)([^\r\n]*\r?\n)")
_NO_WORDS = re.compile(r"%[-_0^#:]*[A-Za-z]|%\{\w+\}|\A:\w+\Z")
"""Directives of dates, placeholders, and symbols."""
_RULES = re.compile(r"(?:[^.]*\.)?(?:(?:datetime|date)\.order|i18n)\.")
"""Keys of Rails with rules of a language, not texts."""
_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_SURROGATE = re.compile("[\ud800-\udfff]")


class _Scalar(NamedTuple):
    """A scalar, from ``start`` to ``end`` without its anchor and tag.

    Attributes:
        start: start in characters.
        end: end.
        value: its text.
        style: its quote, ``|`` or ``>``; empty if it is plain.
        in_flow: whether it is inside of brackets.
        path: the keys of the collections around it, each with a dot.
        level: number of collections around it.
        is_key: whether it is a key, or part of one.
        is_text: whether it is a string.
    """

    start: int
    end: int
    value: str
    style: str
    in_flow: bool
    path: str
    level: int
    is_key: bool
    is_text: bool


@dataclass
class _Collection:
    """An open mapping or sequence."""

    is_mapping: bool
    in_flow: bool
    in_key: bool
    expects_key: bool
    path: str = ""
    key: str = ""


class YamlDocument(TextSpanDocument):
    """The string values of a YAML file.

    If the only key at the root is the source language, it becomes the target language, and plural
    forms that the target language needs are added, with the translation of ``other``.

    Args:
        data: the uncompressed bytes of the file.
        name: the name in messages.
        source: the source language.
        target: the target language.
        encoding: encoding of the text; default: by its byte order mark, else UTF-8.
    """

    def __init__(
        self,
        data: bytes,
        name: str,
        source: str | None = None,
        target: str | None = None,
        encoding: str | None = None,
    ) -> None:
        self._languages = source, target
        self._added: dict[int, list[str]] = {}
        """The place of a text → the beginnings of further lines with its translation."""
        self._scalars: list[_Scalar] = []
        super().__init__(data, name, encoding)

    def find(self) -> None:
        self._ascii = self.text.isascii() and "\\u" in self.text
        keys: list[_Scalar] = []
        plurals: dict[str, list[_Scalar]] = defaultdict(list)
        try:
            for one in _scalars(self.text):
                if one.level == 0 and one.value:
                    raise self.broken(one.start, "YAML without keys or lists")
                if one.is_key and one.level == 1:
                    keys.append(one)
                if one.is_key:
                    plurals[one.path].append(one)
                if _is_translated(one):
                    self._scalars.append(one)
                    self.add(one.start, one.end, one.value)
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            place = getattr(error, "position", 0) if mark is None else mark.index
            why = getattr(error, "problem", None) or getattr(error, "reason", "")
            raise self.broken(place, f"not YAML: {why}") from error
        except _DeepError as error:
            raise UserError(f"{self.name}: YAML that is nested too deeply") from error
        self._key = self._language_key(keys)
        if self._key is not None:
            self._add_plurals(plurals)

    def _add_plurals(self, keys: Mapping[str, Sequence[_Scalar]]) -> None:
        """Find the plural forms to add: mappings with ``one``, ``other`` and such keys alone.

        Args:
            keys: path of a mapping → its keys.
        """
        locale = locale_of(str(self._languages[1]))
        if locale is None:
            return
        for place, one in enumerate(self._scalars):
            mapping = one.path.removesuffix("other.")
            own = {key.value: key for key in keys.get(mapping, ())}
            if mapping == one.path or not {"one", "other"} <= own.keys() <= {*PLURAL_FORMS}:
                continue
            start = own["other"].start
            line = self.text.rfind("\n", 0, start) + 1
            before = self.text[line - 1 : start] if line > 1 else ""
            if before.strip() or one.in_flow or one.style in ("|", ">"):
                continue
            newline = "\r" * (self.text[line - 2 : line - 1] == "\r") + before
            needed = (form for form in PLURAL_FORMS if form in locale.plural_form.tags)
            self._added[place] = [f"{newline}{form}: " for form in needed if form not in own]

    def _language_key(self, keys: Sequence[_Scalar]) -> _Scalar | None:
        """The key of the source language at the root."""
        source, target = self._languages
        names = [key.value for key in keys]
        if source is None or target is None or not any(takes(source, name) for name in names):
            return None
        if any(takes(target, name) for name in names) and len(names) > 1:
            there = ", ".join(names)[:100]
            raise UserError(f"{self.name} has several languages ({there}); give a file of one")
        return keys[0] if len(keys) == 1 else None

    @property
    def is_for_translation(self) -> bool:
        return self._key is not None

    def escaped(self, place: int, translation: str) -> str:
        one = self._scalars[place]
        is_same = translation == one.value
        own = self.text[one.start : one.end] if is_same else self._written(one, translation)
        return own + "".join(start + own for start in self._added.get(place, ()))

    def _with(self, translations: Sequence[str]) -> bytes:
        text = self._text_with(translations)
        if self._key is not None and any(one.strip() for one in translations):
            start, end = self._key.start, self._key.end
            code = str(self._languages[1]).replace("_", "-")
            text = text[:start] + self._written(self._key, code) + text[end:]
        return self._encoded(text)

    def _written(self, one: _Scalar, text: str) -> str:
        """A scalar with another text."""
        text = _SURROGATE.sub("\ufffd", text)
        if one.style in ("|", ">"):
            return self._block(one, text)
        if one.style == "'":
            quoted = "'" + text.replace("'", "''") + "'"
            return quoted if "\n" not in text and _reads(quoted, text) else self._quoted(text)
        if one.style == '"' or re.search(r"[\n\t]", text) or not _reads(text, text, one.in_flow):
            return self._quoted(text)
        return text

    def _block(self, one: _Scalar, text: str) -> str:
        raw = self.text[one.start : one.end]
        header = _HEADER.match(raw)
        if header is None:  # an empty block
            return self._quoted(text)
        newline = "\r\n" if header[2].endswith("\r\n") else "\n"
        body = raw[header.end() :]
        tail = body[len(body.rstrip()) :]
        indentation = re.search(r"^[ ]*(?=\S)", body, re.MULTILINE)
        ending = one.value[len(one.value.rstrip("\n")) :]
        text = text.strip("\n") + ending
        lines = text.rstrip("\n").split("\n")
        if one.style == ">":
            lines = [part for line in lines for part in (line, "")][:-1]
        if indentation is not None and not re.search(r"\d", header[1]):
            own = newline.join(indentation[0] + line if line else "" for line in lines)
            if _reads(header[0] + own + tail, text):
                return header[0] + own + tail
        return self._quoted(text) + header[2].rstrip() + (tail or newline)

    def _quoted(self, text: str) -> str:
        """A text in double quotes."""
        quoted = _UNPRINTABLE.sub(_escape, json.dumps(text, ensure_ascii=False))
        return re.sub(r"[^\x00-\x7f]", _escape, quoted) if self._ascii else quoted


class _DeepError(Exception):
    """A file is nested too deeply."""


def _escape(found: "re.Match[str]") -> str:
    code = ord(found[0])
    return f"\\U{code:08X}" if code > 0xFFFF else f"\\u{code:04X}"


def _scalars(text: str) -> Iterator[_Scalar]:
    """The scalars of a file, in order.

    Raises:
        yaml.YAMLError: the file is not YAML.
        _DeepError: it is nested too deeply.
    """
    opened: list[_Collection] = []
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.CollectionEndEvent):
            opened.pop()
            continue
        if not isinstance(event, yaml.NodeEvent):
            continue
        outer = opened[-1] if opened else _Collection(False, False, False, False)
        is_key = outer.in_key or outer.expects_key
        outer.expects_key = outer.is_mapping and not outer.expects_key
        if isinstance(event, yaml.CollectionStartEvent):
            if len(opened) == _DEEPEST:
                raise _DeepError
            is_mapping = isinstance(event, yaml.MappingStartEvent)
            in_flow = outer.in_flow or bool(event.flow_style)
            path = outer.path + outer.key
            opened.append(_Collection(is_mapping, in_flow, is_key, is_mapping, path))
        elif isinstance(event, yaml.ScalarEvent):
            start, end = event.start_mark.index, event.end_mark.index
            properties = _PROPERTIES.match(text, start, end)
            start = properties.end() if properties else start
            style, level = event.style or "", len(opened)
            path = outer.path + ("" if is_key else outer.key)
            is_text = _is_string(event)
            if is_key:
                outer.key = f"{event.value}."
            yield _Scalar(
                start, end, event.value, style, outer.in_flow, path, level, is_key, is_text
            )


def _is_translated(one: _Scalar) -> bool:
    """Whether a scalar is a value with words."""
    words = _NO_WORDS.sub("", one.value)
    is_value = one.is_text and not one.is_key and not _RULES.match(one.path)
    return is_value and any(map(str.isalpha, words))


def _is_string(event: yaml.ScalarEvent) -> bool:
    if event.tag not in (None, "!"):
        return bool(event.tag == _STRING)
    resolved = _RESOLVER.resolve(yaml.ScalarNode, event.value, event.implicit)
    return bool(resolved == _STRING)


def _reads(written: str, text: str, in_flow: bool = False) -> bool:
    """Whether a written scalar is this text, as the value of a key or in brackets."""
    try:
        found = list(_scalars(f"k: [{written}]" if in_flow else f"k: {written}"))
    except (yaml.YAMLError, _DeepError):
        return False
    return len(found) == 2 and found[1].value == text and found[1].is_text
