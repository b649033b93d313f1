"""JSON catalogues: i18next and other nested strings, Chrome's messages.json, ARB."""

import json
from collections.abc import Iterator
from typing import NamedTuple

from heedful.basics.errors import UserError
from heedful.data.documents.json_tree import TOKEN
from heedful.data.documents.text_spans import TextSpanDocument
from heedful.data.readers.kinds import extension


class _String(NamedTuple):
    """A string value: its position without quotes, and the keys that lead to it."""

    start: int
    end: int
    keys: tuple[str, ...]


class JsonDocument(TextSpanDocument):
    """The string values of a JSON file.

    In Chrome's ``messages.json``, only ``message`` values are texts. In ARB, values below keys that
    begin with ``@`` are not texts.
    """

    def find(self) -> None:
        try:
            whole = json.loads(self.text, parse_int=str)
        except json.JSONDecodeError as error:
            raise UserError(f"{self.name}:{error.lineno}: not JSON: {error.msg}") from error
        except RecursionError as error:
            raise UserError(f"{self.name}: JSON that is nested too deeply") from error
        is_chrome = (
            isinstance(whole, dict)
            and bool(whole)
            and all(isinstance(one, dict) and "message" in one for one in whole.values())
        )
        is_arb = extension(self.name) == ".arb" or (isinstance(whole, dict) and "@@locale" in whole)
        self._ascii = self.text.isascii() and "\\u" in self.text
        for one in self._strings():
            if is_chrome and one.keys[1:] != ("message",):
                continue
            if is_arb and any(key.startswith("@") for key in one.keys):
                continue
            value = json.loads(f'"{self.text[one.start : one.end]}"', strict=False)
            self.add(one.start, one.end, value)

    def escaped(self, place: int, translation: str) -> str:
        return json.dumps(translation, ensure_ascii=self._ascii)[1:-1]

    def _strings(self) -> Iterator[_String]:
        """All string values, in order."""
        opened: list[tuple[str, list[str]]] = []  # objects and arrays, with the key under way
        expects_key = False
        for found in TOKEN.finditer(self.text):
            token = found[0]
            if token[0] == '"' and expects_key:
                opened[-1][1][:] = [json.loads(token, strict=False)]
            elif token[0] == '"':
                keys = tuple(key for _, own in opened for key in own)
                yield _String(found.start() + 1, found.end() - 1, keys)
            elif token in "{[":
                opened.append((token, []))
                expects_key = token == "{"
            elif token in "}]":
                opened.pop()
                expects_key = False
            elif token in ",:":
                expects_key = token == "," and opened[-1][0] == "{"
