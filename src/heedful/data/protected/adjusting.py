"""Adjusts translations to their sources: accelerators, capital letters, final punctuation.

A source says what its translation needs. The translation is adjusted while placeholders stand for
its protected spans, so that these stay as they are.
"""

import re
from dataclasses import dataclass

ACCELERATORS = {"accelerator": "&", "accelerator-underscore": "_"}
"""Rule → the marker before the letter of a keyboard shortcut, as in ``&File`` and ``_File``."""
CASE, PUNCTUATION = "case", "punctuation"
ADJUSTMENTS = (*ACCELERATORS, CASE, PUNCTUATION)
"""The rules that adjust a translation; they protect no spans."""

_ENDS = {"…": "…", "...": "…", ".": ".", "。": ".", "?": "?", "？": "?", "؟": "?", "!": "!"}
_ENDS |= {"！": "!", ":": ":", "：": ":", **dict.fromkeys("।։።။។", ".")}
_TRAILING = "\"'”’»)]} \t\u00a0\u202f"
_LAST_MARK = re.compile(r"\s*(?:\.{2,3}|…+|[.:。：।։።။។])$")
_STOPS = {
    **dict.fromkeys(("zh", "ja"), "。"),
    **dict.fromkeys(("hi", "mr", "ne", "bn", "as"), "।"),
    **dict.fromkeys(("th", "lo"), ""),
    "km": "។",
    "my": "။",
    "hy": "։",
    "am": "።",
}
"""Language → its full stop, if it is not a dot; empty for languages without one."""
_COLONS = {"fr": "\u00a0:", "zh": "：", "ja": "："}
_PLACEHOLDER = re.compile(r"⟦\d{1,2}⟧")
_APPENDED = r"\s*\({}([A-Za-z0-9])\)"
_LOOK_BACK = 40
"""Characters before a marker in which its word begins."""
_TRIED = 50
"""Maximum number of places that are tried for a marker."""
_ABBREVIATED = re.compile(r"\.\S*$|(?<!\w)\w{1,3}$")


def final_mark(text: str) -> str:
    """The kind of mark at the end of a text, inside of quotes and brackets; empty for none.

    Example:
        >>> final_mark("Open…"), final_mark("(Ready.)"), final_mark("开始："), final_mark("OK")
        ('…', '.', ':', '')
    """
    inner = text.rstrip().rstrip(_TRAILING)
    return next((kind for end, kind in _ENDS.items() if inner.endswith(end)), "")


def is_capitalised(text: str) -> bool | None:
    """Whether the first character of a text is a capital letter; None if it has no case."""
    first = text.lstrip()[:1]
    return None if first.lower() == first.upper() else first.isupper()


def is_all_capitals(text: str) -> bool:
    """Whether a text has two words or more, all in capital letters."""
    words = re.findall(r"[^\W\d_]{2,}", _PLACEHOLDER.sub(" ", text))
    return len(words) > 1 and all(map(str.isupper, words))


def accelerators(text: str, marker: str) -> list[tuple[int, int, str]]:
    """The places (start, end) of accelerator markers, and the letters that they mark.

    A marker is not one in the middle of a word before a capital letter (``R&D``), in an entity
    (``&amp;``) or in an identifier (``some_name``). In ``開く(&O)``, the brackets belong to it.

    Example:
        >>> accelerators("Save &As", "&"), accelerators("R&D", "&"), accelerators("開く(&O)", "&")
        ([(5, 6, 'A')], [], [(2, 6, 'O')])
    """
    appended = re.search(_APPENDED.format(marker), text)
    if appended is not None:
        return [(*appended.span(), appended[1])]
    found = []
    for place in re.finditer(rf"(?<!{marker}){marker}(?=[^\W_])(?!#?\w+;)", text):
        before, after = text[max(0, place.start() - _LOOK_BACK) : place.start()], text[place.end()]
        within = before[-1:].isalnum()
        if within and marker == "_" and not re.search(r"(?<!\w)[^\W\d_a-z][^\W\d_A-Z]*$", before):
            continue
        if not within or after.islower():
            found.append((*place.span(), after))
    return found


def without_accelerator(text: str, marker: str) -> tuple[str, str] | None:
    """A text without its accelerator marker, and the marked letter; None if it has not one."""
    found = accelerators(text, marker)
    if len(found) != 1:
        return None
    ((start, end, letter),) = found
    return text[:start] + text[end:], letter


def with_accelerator(text: str, marker: str, letter: str) -> str:
    """A translation with exactly one marker.

    It stands before the same letter, at the start of a word if possible. If the translation does
    not have that letter, it stands before the first one. In scripts without case, the letter of the
    source is appended in brackets.

    Example:
        >>> with_accelerator("Datei öffnen", "&", "O"), with_accelerator("開く…", "&", "O")
        ('&Datei öffnen', '開く(&O)…')
    """
    for start, end, _ in reversed(accelerators(text, marker)):
        text = text[:start] + text[end:]
    bare = _PLACEHOLDER.sub(lambda found: " " * len(found[0]), text)
    places = [
        found.start()
        for found in re.finditer(r"[^\W_]", bare)
        if found[0].lower() != found[0].upper() or found[0] == letter
    ]
    starts = [place for place in places if not bare[place - 1 : place].isalnum()]
    same = letter.casefold()
    ranked = [
        place for some in (starts, places) for place in some if bare[place].casefold() == same
    ]
    for place in [*ranked, *starts, *places][:_TRIED]:
        marked = text[:place] + marker + text[place:]
        if len(accelerators(marked, marker)) == 1:  # not so in "R&D" and "&&"
            return marked
    mark = _LAST_MARK.search(text)
    place = len(text.rstrip()) if mark is None else mark.start()
    return f"{text[:place]}({marker}{letter.upper()}){text[place:]}"


@dataclass(frozen=True)
class Adjustment:
    """What the translation of a source needs.

    Attributes:
        marker: the accelerator marker; empty for none.
        letter: the letter that it marks in the source.
        all_capitals: whether the translation is in capital letters.
        capital: whether it begins with a capital letter.
        end: how the source ends: ``:``, ``…``, ``...``, ``.``, empty for none; None if the end of
            the translation stays as it is.
        language: code of the target language.
        last: the placeholder of what has to end the translation; empty for none.
    """

    marker: str = ""
    letter: str = ""
    all_capitals: bool = False
    capital: bool = False
    end: str | None = None
    language: str | None = None
    last: str = ""

    def applied(self, translation: str) -> str:
        """The translation, adjusted; placeholders stay as they are."""
        if not translation.strip():
            return translation
        if self.end is not None:
            translation = self._ended(translation)
        if self.all_capitals:
            translation = translation.upper()
        elif self.capital:
            translation = _capitalised(translation)
        if self.marker:
            translation = with_accelerator(translation, self.marker, self.letter)
        if self.last and not translation.rstrip().endswith(self.last):
            first, _, second = translation.partition(self.last)
            translation = first.rstrip() + second.rstrip() + self.last
        return translation

    def _ended(self, translation: str) -> str:
        text = translation.rstrip()
        mark = _LAST_MARK.search(text)
        kind, wanted = final_mark(text), final_mark(self.end or "")
        if kind == wanted or kind in ("?", "!") or (kind and mark is None):
            return translation  # a question, or a mark inside of quotes
        inner = text if mark is None else text[: mark.start()]
        if not inner or (not self.end and _ABBREVIATED.search(inner)):
            return translation
        return inner + self._form(wanted) + translation[len(text) :]

    def _form(self, mark: str) -> str:
        """A mark as the target language writes it."""
        code = re.split("[-_@.]", (self.language or "").casefold())[0]
        if mark == ".":
            return _STOPS.get(code, ".")
        return _COLONS.get(code, ":") if mark == ":" else self.end or ""


def _capitalised(text: str) -> str:
    """A text with a capital letter at its start, unless its first word has one inside (iPhone)."""
    first = re.match(r"\w+", text)
    if first is None or any(map(str.isupper, first[0])):
        return text
    return text[0].upper() + text[1:]


def adjustment_for(
    text: str, rules: tuple[str, ...], language: str | None
) -> tuple[str, Adjustment]:
    """The text to translate, and what its translation needs.

    Args:
        text: a source with placeholders, without its accelerator marker.
        rules: of :data:`ADJUSTMENTS`; others are ignored.
        language: code of the target language.
    """
    end = None
    if PUNCTUATION in rules:
        last = text.rstrip()[-1:]
        dots = "..." if text.rstrip().endswith("...") else last
        end = dots if last in (":", "…", ".") else "" if last.isalnum() else None
    if CASE in rules and is_all_capitals(text):
        # Models know few words in capital letters.
        lower = text.lower()
        return _capitalised(lower), Adjustment(all_capitals=True, end=end, language=language)
    capital = CASE in rules and is_capitalised(text) is True
    return text, Adjustment(capital=capital, end=end, language=language)
