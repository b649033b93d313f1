"""``.xcstrings``: string catalogs of Apple's platforms, with plural forms and devices.

Localisations in the target language are added with the state ``needs_review``.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from heedful.basics.errors import UserError
from heedful.data.documents.base import Edit, Entry, joined_surrogates
from heedful.data.documents.json_tree import TOKEN, Node, read_tree
from heedful.data.documents.text_spans import TextSpanDocument
from heedful.data.protected.numbers import locale_of
from heedful.data.readers.languages import choose, not_in_file, takes

_STATES = {None: "needs_review", "exact": "translated", "context": "translated"}
"""The state of a text, by its kind of memory match."""
_INDENTATION = re.compile(r"[ \t]*")
_FORMS = ("zero", "one", "two", "few", "many", "other")


class AppleCatalogDocument(TextSpanDocument):
    """The texts of a string catalog that are not localised yet, in all forms of the language.

    Args:
        data: the uncompressed bytes of the file.
        name: the name in messages.
        source: the source language, which the catalog must have.
        target: the target language.
        encoding: encoding of the text.
    """

    bilingual: ClassVar[bool] = True

    def __init__(
        self, data: bytes, name: str, source: str | None, target: str, encoding: str | None = None
    ) -> None:
        self._wanted, self._target = source, target
        self._plans: list[tuple[Node, dict[str, Any]]] = []
        """Objects of the file with the members to add; integers stand for segments."""
        super().__init__(data, name, encoding)

    def find(self) -> None:
        try:
            self._find_all(self._read())
        except RecursionError as error:
            raise UserError(f"{self.name}: JSON that is nested too deeply") from error

    def _find_all(self, root: Node) -> None:
        own = root.text("sourceLanguage")
        strings = root.child("strings")
        if not own or strings is None:
            raise UserError(f"{self.name}: no string catalog: sourceLanguage or strings is missing")
        if self._wanted is not None and not takes(self._wanted, own):
            raise not_in_file(self._wanted, self.name, [own])
        self._style = _Style.of(self.text, root)
        localised = [one.child("localizations") or Node(0) for one in strings.members.values()]
        there = sorted({code for one in localised for code in one.members} - {own})
        place = choose(self._target, there)
        self._target = self._target if place is None else there[place]
        self._forms = _plural_forms(self._target)
        for (key, one), localizations in zip(strings.members.items(), localised, strict=True):
            flag = one.members.get("shouldTranslate")
            if one.is_object and (flag is None or flag.value is not False):
                self._find_in(key, own, one, localizations)

    def _read(self) -> Node:
        try:
            json.loads(self.text, parse_int=str)
            return read_tree(self.text)
        except json.JSONDecodeError as error:
            raise UserError(f"{self.name}:{error.lineno}: not JSON: {error.msg}") from error
        except KeyError as error:
            raise UserError(f"{self.name}: the key {error} stands twice in one object") from error

    def _find_in(self, key: str, language: str, one: Node, localizations: Node) -> None:
        """Find the texts of a string, and what its target lacks."""
        source = localizations.child(language)
        unit = Node(0, is_object=True)
        unit.members["value"] = Node(0, value=key)
        if source is None or not source.members:
            source = Node(0, is_object=True)
            source.members["stringUnit"] = unit
        elif "stringUnit" not in source.members and "substitutions" in source.members:
            source.members["stringUnit"] = unit
        target = _filled(localizations, self._target)
        plan = self._lacking(key, source, target)
        if not plan or target is not None:
            return
        own = {self._target: plan}
        if one.child("localizations") is not None:
            self._plans.append((localizations, own))
        else:
            self._plans.append((one, {"localizations": own}))

    def _lacking(self, name: str, source: Node, target: Node | None) -> dict[str, Any]:
        """What a localisation lacks; added to the plans if the localisation exists."""
        plan: dict[str, Any] = {}
        there = target or Node(0, is_object=True)
        unit = source.child("stringUnit")
        if unit is not None and unit.text("value").strip():
            self._unit(name, unit.text("value"), there, plan)
        for kind in ("variations", "substitutions"):
            own, other = source.child(kind), there.child(kind)
            if there.members and other is None:
                continue  # the target does not vary
            parts: dict[str, Any] = {}
            for key, part in own.members.items() if own else ():
                lacking = self._parts(name, kind, key, part, _filled(other, key))
                if lacking:
                    parts[key] = lacking
            if parts and other is not None:
                self._plans.append((other, parts))
            elif parts:
                plan[kind] = parts
        if plan and target is not None:
            self._plans.append((target, plan))
        return plan

    def _parts(
        self, name: str, kind: str, key: str, source: Node, target: Node | None
    ) -> dict[str, Any]:
        """What a substitution, or the forms of a variation, lack."""
        if kind == "substitutions":
            facts = {
                fact: self.text[node.start : node.end]
                for fact, node in source.members.items()
                if not node.is_object
            }
            lacking = self._lacking(f"{name}, {key}", source, target)
            if not lacking or target is not None:
                return {}
            return {fact: _Raw(text) for fact, text in facts.items()} | lacking
        forms = source.members
        if key == "plural" and "other" in forms:
            explicit = [one for one in forms if one == "zero" and one not in self._forms]
            wanted = [*explicit, *self._forms]
            forms = {form: forms.get(form, forms["other"]) for form in wanted}
        plan = {}
        for form, part in forms.items():
            other = _filled(target, form)
            lacking = self._lacking(f"{name}, {form}", part, other)
            if lacking and other is None:
                plan[form] = lacking
        if plan and target is not None:
            self._plans.append((target, plan))
            return {}
        return plan

    def _unit(self, name: str, text: str, target: Node, plan: dict[str, Any]) -> None:
        """Add a text, and plan its unit if that is empty or new."""
        unit = target.child("stringUnit")
        is_new = unit is None or _is_new(unit)
        if unit is None and target.members:
            return  # the target varies where the source does not
        text = joined_surrogates(text)
        written = "" if unit is None or is_new else unit.text("value")
        self.entries.append(Entry(name, text, written))
        if is_new:
            plan["stringUnit"] = len(self.segments)
            self.segments.append(text)
            self.contexts.append(None)

    def escaped(self, place: int, translation: str) -> str:
        return json.dumps(translation, ensure_ascii=False)

    def _with(self, translations: Sequence[str]) -> bytes:
        merged: dict[int, tuple[Node, dict[str, Any]]] = {}
        for node, plan in self._plans:
            own = {key: self._translated(part, translations) for key, part in plan.items()}
            merged.setdefault(node.start, (node, {}))[1].update(
                {key: part for key, part in own.items() if part is not None}
            )
        parts: list[str] = []
        last = 0
        for edit in sorted(
            one for node, plan in merged.values() for one in self._edits(node, plan)
        ):
            parts += [self.text[last : edit.start], edit.text]
            last = edit.end
        return self._encoded("".join([*parts, self.text[last:]]))

    def _translated(self, plan: Any, translations: Sequence[str]) -> Any:
        """A plan with translations; None if none of its texts is translated."""
        if isinstance(plan, int):
            if not translations[plan].strip():
                return None
            return {"state": _STATES[self.matches[plan]], "value": translations[plan]}
        if isinstance(plan, _Raw):
            return plan
        parts = {key: self._translated(part, translations) for key, part in plan.items()}
        known = {key: part for key, part in parts.items() if part is not None}
        return known if any(not isinstance(part, _Raw) for part in known.values()) else None

    def _edits(self, node: Node, plan: Mapping[str, Any]) -> list[Edit]:
        """The edits that add members to an object, in the order of their keys."""
        style = self._style
        if style.newline:
            line = self.text.rfind("\n", 0, node.start) + 1
            found = _INDENTATION.match(self.text, line)
            style = style._replace(outer=found[0] if found else "")
        edits = [
            Edit(node.members[key].start, node.members[key].end, style.written(plan[key], 1))
            for key in plan
            if key in node.members
        ]
        new = sorted(set(plan) - set(node.members))
        if new and not node.members:
            own = {key: plan[key] for key in new}
            return [*edits, Edit(node.start, node.end, style.written(own, 0))]
        places: dict[int, str] = {}
        for key in new:
            member = style.member(key, plan[key], 1)
            before = [one for one in node.members if one < key]
            if before:
                at = node.members[before[-1]].end
                places[at] = places.get(at, "") + f",{style.line(1)}{member}"
            else:
                at = next(iter(node.starts.values()))
                places[at] = places.get(at, "") + f"{member},{style.line(1)}"
        return [*edits, *(Edit(at, at, text) for at, text in places.items())]


def _filled(node: Node | None, key: str) -> Node | None:
    """A member with a text; one whose texts are all new or empty counts as absent."""
    found = node.child(key) if node else None
    return None if found is None or _is_blank(found) else found


def _is_blank(node: Node) -> bool:
    if "stringSet" in node.members:
        return False
    unit = node.child("stringUnit")
    parts = (part for part in node.members.values() if part.is_object)
    return (unit is None or _is_new(unit)) and all(map(_is_blank, parts))


def _is_new(unit: Node) -> bool:
    return unit.text("state") == "new" or not unit.text("value").strip()


class _Raw(str):
    """A value as the file has it."""


class _Style(NamedTuple):
    """The white space of a file.

    Attributes:
        colon: a colon with the white space around it.
        newline: the line break between members; empty if they are on one line.
        step: the indentation of a member.
        outer: the indentation of the object that members are added to.
    """

    colon: str
    newline: str
    step: str
    outer: str = ""

    @classmethod
    def of(cls, text: str, root: Node) -> "_Style":
        """The white space of a file by its first member."""
        key, start = next(iter(root.starts.items()))
        before = text[root.start + 1 : start]
        token = TOKEN.match(text, start)
        assert token is not None
        newline = "" if "\n" not in before else "\r\n" if "\r\n" in before else "\n"
        return cls(text[token.end() : root.members[key].start], newline, before.split("\n")[-1])

    def line(self, level: int) -> str:
        """A line break with the indentation of members at a level."""
        return self.newline + self.outer + self.step * level if self.newline else ""

    def member(self, key: str, value: Any, level: int) -> str:
        """A member as JSON."""
        return f"{json.dumps(key, ensure_ascii=False)}{self.colon}{self.written(value, level)}"

    def written(self, value: Any, level: int) -> str:
        """A value as JSON."""
        if isinstance(value, _Raw):
            return str(value)
        if not isinstance(value, Mapping):
            return json.dumps(value, ensure_ascii=False)
        members = (
            self.line(level + 1) + self.member(key, part, level + 1)
            for key, part in sorted(value.items())
        )
        return "{" + ",".join(members) + self.line(level) + "}"


def _plural_forms(language: str) -> list[str]:
    """The names of the plural forms of a language (Unicode CLDR)."""
    locale = locale_of(language)
    own = frozenset({"one"}) if locale is None else locale.plural_form.tags
    return [form for form in _FORMS if form in {*own, "other"}]
