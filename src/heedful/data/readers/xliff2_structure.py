"""The structure of XLIFF 2: which elements and attributes it has, and their values.

From the specification (XLIFF 2.1, section 4, "Core"), as tables. `xliff2_rules` checks what these
cannot say.
"""

import re
from typing import TYPE_CHECKING, NamedTuple

from heedful.basics.errors import UserError

if TYPE_CHECKING:
    from lxml import etree

CORE = "urn:oasis:names:tc:xliff:document:"
MODULES = ("urn:oasis:names:tc:xliff:", "http://www.w3.org/2005/11/its")
XML = "{http://www.w3.org/XML/1998/namespace}"
_SCHEMA = "{http://www.w3.org/2001/XMLSchema-instance}"

_INLINE = r"(?:(?:cp|ph|pc|sc|ec|mrk|sm|em) )*"
_FOREIGN = r"(?:(?:module|other) )*"
CONTENT = {
    "xliff": r"(?:module )*(?:notes )?(?:module )*(?:file )+",
    "file": rf"(?:skeleton )?{_FOREIGN}(?:notes )?{_FOREIGN}(?:(?:unit|group) )+",
    "group": rf"{_FOREIGN}(?:notes )?{_FOREIGN}(?:(?:unit|group) )*",
    "unit": rf"{_FOREIGN}(?:notes )?{_FOREIGN}(?:originalData )?{_FOREIGN}"
    r"(?:ignorable )*segment (?:(?:segment|ignorable) )*",
    "segment": r"source (?:target )?",
    "ignorable": r"source (?:target )?",
    "notes": r"(?:note )+",
    "note": "",
    "originalData": r"(?:data )+",
    "data": r"(?:cp )*",
    **dict.fromkeys(("source", "target", "pc", "mrk"), _INLINE),
    **dict.fromkeys(("cp", "ph", "sc", "ec", "sm", "em"), ""),
}
"""Element → its children as a regular expression: the names of elements of the core, ``module``, or
``other`` for extensions."""

_CODE = "id canCopy canDelete canReorder copyOf type subType"
_SINGLE = f"{_CODE} disp equiv dataRef subFlows"
_STRUCTURE = "id name canResegment translate srcDir trgDir type"
ATTRIBUTES = {
    name: frozenset(allowed.split())
    for name, allowed in {
        "xliff": "version srcLang trgLang",
        "file": f"{_STRUCTURE} original",
        "skeleton": "href",
        "group": _STRUCTURE,
        "unit": _STRUCTURE,
        "notes": "",
        "note": "id appliesTo category priority ref",
        "originalData": "",
        "data": "id dir",
        "segment": "id canResegment state subState",
        "ignorable": "id",
        "source": "",
        "target": "order",
        "cp": "hex",
        "ph": _SINGLE,
        "pc": f"{_CODE} canOverlap dispStart dispEnd equivStart equivEnd dataRefStart dataRefEnd "
        "subFlowsStart subFlowsEnd dir",
        "sc": f"{_SINGLE} canOverlap dir isolated",
        "ec": f"{_SINGLE} canOverlap dir isolated startRef",
        "mrk": "id translate type ref value",
        "sm": "id translate type ref value",
        "em": "startRef",
    }.items()
}
"""Element → its attributes without a namespace."""
REQUIRED = {
    "xliff": ("version", "srcLang"),
    **dict.fromkeys(("file", "group", "unit", "data", "ph", "pc", "sc", "mrk", "sm"), ("id",)),
    "cp": ("hex",),
    "em": ("startRef",),
}
EXTENSIBLE = frozenset({"xliff", "file", "group", "unit", "notes", "note", "mrk", "sm"})
"""Elements that may have attributes of any namespace."""
SPACED = frozenset({"xliff", "file", "group", "unit", "source", "target", "data", "skeleton"})
"""Elements that may have ``xml:space``."""

SPOKEN = frozenset({"xliff", "file", "group", "unit", "source", "target"})
"""Elements that may have ``xml:lang``."""

_TOKEN = r"[\w.\-:·]+"
_OWN = r"[^\s:]+:[^\s:][^\s]*"
_YES = "yes|no"
LANGUAGE = r"[A-Za-z]{2,8}(?:-[A-Za-z0-9]{1,8})*|[ix](?:-[A-Za-z0-9]{1,8})+"
VALUES = {
    "id": _TOKEN,
    "srcLang": LANGUAGE,
    "trgLang": LANGUAGE,
    **dict.fromkeys(
        ("canResegment", "translate", "canCopy", "canDelete", "canOverlap", "isolated"), _YES
    ),
    "canReorder": "yes|no|firstNo",
    **dict.fromkeys(("srcDir", "trgDir", "dir"), "ltr|rtl|auto"),
    "state": "initial|translated|reviewed|final",
    "subState": _OWN,
    "subType": _OWN,
    "appliesTo": "source|target",
    "priority": "[1-9]|10",
    "order": "[1-9][0-9]*",
    "hex": "[0-9A-Fa-f]{4,6}",
    **dict.fromkeys(("subFlows", "subFlowsStart", "subFlowsEnd"), rf"{_TOKEN}(?: {_TOKEN})*"),
}
"""Attribute → its values as a regular expression."""
_TYPES = {
    **dict.fromkeys(("ph", "pc", "sc", "ec"), "fmt|ui|quote|link|image|other"),
    **dict.fromkeys(("mrk", "sm"), rf"generic|comment|term|{_OWN}"),
    **dict.fromkeys(("group", "unit", "file"), _OWN),
}
_RESERVED = {"fmt": {"lb", "pb", "b", "i", "u"}, "ui": {"var"}}
"""Type → the subtypes of XLIFF itself, without their prefix ``xlf:``."""
_FORMATS = (
    "a|b|bdo|big|blockquote|body|br|button|caption|center|cite|code|col|colgroup|dd|del|div|dl|dt|"
    "em|h[1-6]|head|hr|html|i|img|label|legend|li|ol|p|pre|q|s|samp|select|small|span|strike|"
    "strong|sub|sup|table|tbody|td|tfoot|th|thead|title|tr|tt|u|ul"
)
"""The values of ``fs:fs`` (section 5.4, "Format Style")."""
_MODULE_ELEMENTS = {"validation": frozenset({"validation", "rule"})}


class Named(NamedTuple):
    """The namespace and the local name of an element or attribute."""

    namespace: str
    local: str

    @classmethod
    def of(cls, tag: str) -> "Named":
        namespace, _, local = tag.rpartition("}")
        return cls(namespace.removeprefix("{"), local)


def is_core(element: "etree._Element") -> bool:
    """Whether an element is one of XLIFF itself, and not of a module or extension."""
    return str(element.tag).startswith("{" + CORE)


def local(element: "etree._Element") -> str:
    """The name of an element without its namespace."""
    return str(element.tag).rpartition("}")[2]


def invalid(element: "etree._Element", name: str, problem: str) -> UserError:
    """The error for an invalid element, with its line."""
    return UserError(f"{name}:{element.sourceline}: invalid XLIFF 2: {problem}; correct the file")


def check_structure(root: "etree._Element", name: str) -> None:
    """Check elements and attributes of a document.

    Raises:
        UserError: the first that is invalid, with its line.
    """
    for element in root.iter("*"):
        problem = _of_element(element) if is_core(element) else _of_module(element)
        if problem:
            raise invalid(element, name, problem)


def _kind(element: "etree._Element") -> str:
    if is_core(element):
        return local(element)
    return "module" if Named.of(str(element.tag)).namespace.startswith(MODULES) else "other"


def _of_element(element: "etree._Element") -> str | None:
    own = local(element)
    if own not in ATTRIBUTES:
        parent = element.getparent()
        is_of_module = parent is not None and not is_core(parent)
        return None if is_of_module else f"<{own}> is unknown"
    if own == "skeleton":
        has_content = len(element) > 0 or bool((element.text or "").strip())
        if has_content == (element.get("href") is not None):
            return "<skeleton> needs content or href, not both"
    else:
        children = "".join(f"{_kind(child)} " for child in element.iterchildren("*"))
        if not re.fullmatch(CONTENT[own], children):
            return f"<{own}> may not have these elements in this order: {children.strip() or '-'}"
    missing = [one for one in REQUIRED.get(own, ()) if element.get(one) is None]
    if missing:
        return f"<{own}> lacks {missing[0]}"
    return next(filter(None, (_of_attribute(element, own, *one) for one in element.items())), None)


def _of_attribute(element: "etree._Element", own: str, key: str, value: str) -> str | None:
    namespace, attribute = Named.of(key)
    if namespace:
        if key == f"{XML}space" and own in SPACED:
            return None if value in ("default", "preserve") else f"xml:space={value!r}"
        if key == f"{XML}lang" and own in SPOKEN:
            return None if re.fullmatch(LANGUAGE, value) else f"xml:lang={value!r}"
        if not key.startswith((XML, _SCHEMA)) and (
            own in EXTENSIBLE or namespace.startswith(MODULES)
        ):
            return _of_format_style(element, namespace, attribute, value)
        return None if key.startswith(_SCHEMA) else f"<{own}> may not have the attribute {key}"
    if attribute not in ATTRIBUTES[own]:
        return f"<{own}> may not have the attribute {attribute}"
    pattern = _TYPES[own] if attribute == "type" else VALUES.get(attribute)
    if pattern and not re.fullmatch(pattern, value):
        return f"<{own}> has {attribute}={value!r}"
    return _of_pair(element, own, attribute, value)


def _of_pair(element: "etree._Element", own: str, attribute: str, value: str) -> str | None:
    """A problem of an attribute that depends on another one."""
    if attribute == "subState" and element.get("state") is None:
        return "subState without state"
    if attribute == "subType":
        kind = element.get("type")
        if kind is None:
            return "subType without type"
        prefix, _, rest = value.partition(":")
        if prefix == "xlf" and rest not in _RESERVED.get(kind, ()):
            return f"subType={value!r} with type={kind!r}"
    if attribute == "hex":
        code = int(value, 16)
        is_xml = code in (9, 10, 13) or 0x20 <= code <= 0xD7FF or 0xE000 <= code <= 0xFFFD
        if is_xml or 0x10000 <= code <= 0x10FFFF:
            return f"hex={value!r} is a character that XML can hold"
    return None


def _of_format_style(
    element: "etree._Element", namespace: str, attribute: str, value: str
) -> str | None:
    if not namespace.startswith("urn:oasis:names:tc:xliff:fs:"):
        return None
    own = local(element)
    is_end = own == "ec" and element.get("isolated") != "yes"
    if attribute not in ("fs", "subFs") or is_end:
        return f"<{own}> may not have the attribute fs:{attribute}"
    return f"fs:fs={value!r}" if attribute == "fs" and not re.fullmatch(_FORMATS, value) else None


def _of_module(element: "etree._Element") -> str | None:
    namespace, own = Named.of(str(element.tag))
    module = namespace.removeprefix(MODULES[0]).partition(":")[0]
    known = _MODULE_ELEMENTS.get(module)
    return f"<{own}> is unknown" if known is not None and own not in known else None
