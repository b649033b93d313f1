"""Read XML as a stream in constant memory, without entities, DTDs or network access."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypedDict

from heedful.basics.errors import UserError
from heedful.data.readers.opening import Input
from heedful.data.readers.text import codec_name

if TYPE_CHECKING:
    from lxml import etree

Event = tuple[str, "etree._Element"]


class Safe(TypedDict):
    """Safe options for parsers of lxml."""

    resolve_entities: bool
    no_network: bool
    load_dtd: bool
    huge_tree: bool
    remove_comments: bool
    remove_pis: bool


# huge_tree stays off: it would lift libxml2's limits on expansion, depth and one text's length
# (10 million characters), which no translation unit reaches; the file itself may have any length.
SAFE: Safe = {
    "resolve_entities": False,
    "no_network": True,
    "load_dtd": False,
    "huge_tree": False,
    "remove_comments": True,
    "remove_pis": True,
}


def stream_elements(
    file: Input,
    encoding: str | None,
    kind: str,
    starts: Sequence[str],
    ends: Sequence[str],
    whole: Callable[["etree._Element"], bool] | None = None,
) -> Iterator[Event]:
    """``("start", element)`` and ``("end", element)`` for the named elements, in any namespace.

    An element at its end is complete. After it is yielded, it is removed with all elements before
    it, unless ``whole``, called with the first of all elements, is true.

    Raises:
        UserError: the XML is invalid, declares entities, or does not have the declared encoding.
    """
    from lxml import etree

    parser = etree.XMLPullParser(
        events=("start", "end"),
        tag=[f"{{*}}{name}" for name in {*starts, *ends}],
        encoding=codec_name(encoding).removesuffix("-sig") if encoding else None,
        **SAFE,
    )
    checked = kept = False
    try:
        for chunk in file.chunks():
            parser.feed(chunk)
            for event, element in parser.read_events():
                if not checked:
                    refuse_entities(element, file.name)
                    checked, kept = True, whole is not None and whole(element)
                name = str(element.tag).rsplit("}", 1)[-1]
                if event == "start" and name in starts:
                    yield "start", element
                elif event == "end" and name in ends:
                    refuse_references(element, file.name)
                    yield "end", element
                    if not kept:
                        _forget(element)
        parser.close()
    except etree.XMLSyntaxError as error:
        raise broken(file.name, kind, error) from error


def refuse_entities(element: "etree._Element", name: str) -> None:
    """Raise an error for a document that declares entities, before using any part of it.

    Raises:
        UserError: the document type declares at least one entity.
    """
    declared = element.getroottree().docinfo.internalDTD
    if declared is not None and any(True for _ in declared.iterentities()):
        raise UserError(
            f"{name}: its DOCTYPE declares entities, which are not expanded for safety; write them "
            "out and remove the declarations"
        )


def refuse_references(element: "etree._Element", name: str) -> None:
    """Raise an error for an undefined entity reference.

    Raises:
        UserError: the element contains an entity reference such as ``&nbsp;``.
    """
    from lxml import etree

    for reference in element.iter(etree.Entity):
        raise UserError(
            f"{name}:{element.sourceline}: unknown entity {reference.text}; write the character "
            "itself or its number (&#…;)"
        )


def broken(name: str, kind: str, error: "etree.XMLSyntaxError") -> UserError:
    """The error for XML that is not well-formed."""
    reason = (error.msg or "not well-formed").split(", line ")[0]
    return UserError(f"{name}:{error.lineno or 1}: broken {kind}: {reason}; correct the file there")


def _forget(element: "etree._Element") -> None:
    element.clear()
    parent = element.getparent()
    while parent is not None and element.getprevious() is not None:
        del parent[0]
