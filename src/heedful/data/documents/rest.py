"""reStructuredText, with the directives and roles of Sphinx."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from heedful.basics.errors import UserError
from heedful.data.documents.marked import Code, Marked, MarkedDocument, one_line
from heedful.data.documents.marked_items import items_of, segment_of
from heedful.data.documents.rest_blocks import UNENDED, Block, find_blocks, width
from heedful.data.documents.rest_inline import AFTER, BEFORE, find_marks

_LINE_END = re.compile(r"(\r\n|\n|\r)")
_PLAIN = re.compile(r"[*`\\]|(?<=`)_+")
_TARGET = re.compile(r"^[ \t]*\.\.[ \t]+_(?:`([^`]+)`|([^:\n]+)):", re.MULTILINE)
_REFERENCE = re.compile(r"[`<]([^`<>]+?)(?:`_|_>`_)(?![\w`])|(?<![\w`])([A-Za-z0-9]+)_(?!\w)")
_MARGIN = 2
"""Characters by which the lines around titles may be longer than these and still follow them."""
_SEPARATOR = "\\ "
_LITERAL = re.compile(r"[ \t]*::[ \t]*$", re.MULTILINE)
"""What announces a literal block, behind the text of a paragraph."""
_SPECIAL = re.compile(r"[\\*`|]|_(?![^\W_])|(?<!\w)\[")


class RestDocument(MarkedDocument):
    """The texts of paragraphs, titles, lists, definitions, quotes and admonitions.

    Literal blocks, tables, comments, options and unknown directives stay. The lines around a title
    become as long as its translation.
    """

    def marked(self) -> Iterator[Marked]:
        try:
            blocks = find_blocks(self.text)
        except RecursionError as error:
            raise UserError(f"{self.name}: lists or quotes that are nested too deeply") from error
        self._targets = _targets(self.text, blocks)
        self._line_end = "\r\n" if "\r\n" in self.text else "\n"
        for block in blocks:
            content = "\n".join(text for _, text in block.lines)
            found = segment_of(self.text, items_of(block.lines, find_marks(content)))
            if found is None:
                continue
            if block.kind == "title":
                first, text = block.lines[0]
                if (found.start, found.end) != (first, first + len(text)):
                    continue  # its markup is the whole title
                found = found._replace(start=block.start, end=block.end)
            yield found._replace(note=block.kind)

    def composed(self, one: Marked, parts: Sequence[str | Code]) -> str | None:
        parts = [part if isinstance(part, Code) else one_line(part) for part in parts]
        ends = {one.pieces[place] for chain in one.chains for place in chain}
        announced = _LITERAL.match(self.text, one.end)
        literal = announced[0] if announced else ""
        for is_escaped in (False, True):
            written = _separated(_escaped(parts) if is_escaped else parts, ends)
            flat = "".join(part.text if isinstance(part, Code) else part for part in written)
            if _signature(_read(flat)) != _signature(parts):
                continue
            for start in ("", "\\"):
                if _is_whole(one.note, start + flat, literal):
                    own = (self.code(part) if isinstance(part, Code) else part for part in written)
                    text = start + "".join(own)
                    if one.note == UNENDED:  # on one line, it would be the term of a definition
                        return text + self._line_end
                    return self._title(one, text) if one.note == "title" else text
        return None

    def _title(self, one: Marked, text: str) -> str:
        """A title with its lines, which get as long as they have to be."""
        *above, title, end, below = _LINE_END.split(self.text[one.start : one.end])
        lead = title[: len(title) - len(title.lstrip())] if above else ""
        own, sign = below.strip(), below.strip()[0]
        surplus = len(own) - width(title.rstrip() if above else title.strip())
        needed = width(lead + text)
        length = needed + surplus if 0 <= surplus <= _MARGIN else max(len(own), needed)
        line = below[: len(below) - len(below.lstrip())] + sign * length
        over = [sign * length, above[1]] if above else []
        name = self._targets.get(one.start)
        is_other = name is not None and _name(name) != _name(_PLAIN.sub("", text))
        target = f".. _`{name}`:{end}{end}" if is_other else ""
        return "".join([target, *over, lead + text, end, line])


def _targets(text: str, blocks: Sequence[Block]) -> dict[int, str]:
    """Where a title begins that the document refers to by its text → that text.

    A translated title needs a target with its old text, or these references lead nowhere.
    """
    titles = [
        (block.start, _PLAIN.sub("", block.lines[0][1]))
        for block in blocks
        if block.kind == "title"
    ]
    counts = Counter(_name(title) for _, title in titles)
    targets = {_name(found[1] or found[2]) for found in _TARGET.finditer(text)}
    referred = {_name(found[1] or found[2]) for found in _REFERENCE.finditer(text)} - targets
    return {
        start: title
        for start, title in titles
        if counts[_name(title)] == 1 and _name(title) in referred and "`" not in title
    }


def _name(text: str) -> str:
    """A name as it is compared."""
    return " ".join(text.casefold().split())


def _read(flat: str) -> list[str | Code]:
    """The words and the codes of a text."""
    return [
        (item.text or "") if item.kind == "words" else Code(item.text or "", item.start, item.end)
        for item in items_of([(0, flat)], find_marks(flat))
    ]


def _signature(parts: Sequence[str | Code]) -> tuple[list[str], str]:
    """The codes, sorted, and the words without white space, in which escapes are characters."""
    codes = [part.text for part in parts if isinstance(part, Code)]
    words = [
        part if isinstance(part, str) else part.text[1:].strip()
        for part in parts
        if isinstance(part, str) or part.text.startswith("\\")
    ]
    kept = sorted(code for code in codes if not code.startswith("\\"))
    return kept, "".join("".join(words).split())


def _escaped(parts: Sequence[str | Code]) -> list[str | Code]:
    return [
        part if isinstance(part, Code) else _SPECIAL.sub(lambda found: "\\" + found[0], part)
        for part in parts
    ]


def _separated(parts: Sequence[str | Code], ends: set[str | Code]) -> list[str | Code]:
    """Words and codes, with escaped spaces where a word stands right beside markup.

    Args:
        parts: words and codes.
        ends: the codes that open or close.
    """
    found: list[str | Code] = []
    is_inside = False
    for part in parts:
        last = found[-1] if found else ""
        if isinstance(part, Code) and not part.text.startswith("\\"):
            is_second = isinstance(last, Code) and not last.text.startswith("\\")
            found += [" "] if is_second and not is_inside else []
            if isinstance(last, str) and last and not is_inside and not _allows(last[-1], BEFORE):
                found.append(_SEPARATOR)
            is_inside = not is_inside if part in ends else is_inside
        elif isinstance(part, str) and part and isinstance(last, Code) and not is_inside:
            is_glued = not _allows(part[0], AFTER) and not last.text.startswith("\\")
            found += [_SEPARATOR] if is_glued else []
        found.append(part)
    return found


def _allows(character: str, signs: str) -> bool:
    return character.isspace() or character in signs


def _is_whole(kind: str, text: str, literal: str) -> bool:
    """Whether a text is still one block of its kind, before what announces a literal block."""
    if kind == "argument":
        return True
    around = {"title": "\n" + "=" * max(4, width(text)), "term": "\n  x"}
    found = find_blocks(("| " if kind == "line" else "") + text + literal + around.get(kind, ""))
    if not found or len(found) > (2 if kind == "term" else 1):
        return False
    kind = "paragraph" if kind == UNENDED else kind
    return found[0].kind == kind and [line for _, line in found[0].lines] == [text.rstrip()]
