"""The segments of documents that are translated together, and the documents with translations."""

from collections.abc import Mapping, Sequence

from heedful.data.documents import Document
from heedful.data.protected.known import KnownSpans

MOST_SPANS = 64
"""Maximum number of tags, or pairs of them, in a segment that is translated as a whole."""


class RefusedTexts:
    """Segments whose words are translated one by one, so that all markup is kept.

    Args:
        pieces: index of a segment → its words and markup in turn, beginning and ending with words.

    Example:
        >>> refused = RefusedTexts({4: ["Press ", "<b>", "OK", "</b>", ""]})
        >>> refused.words
        ['Press', 'OK']
        >>> refused.joined(["Drücken Sie", "OK"])
        {4: 'Drücken Sie <b>OK</b>'}
    """

    def __init__(self, pieces: Mapping[int, Sequence[str]]) -> None:
        self._pieces = pieces
        self._places = {
            (number, place): text.strip()
            for number, own in pieces.items()
            for place, text in enumerate(own)
            if place % 2 == 0 and any(map(str.isalpha, text))
        }

    def __len__(self) -> int:
        return len(self._pieces)

    @property
    def words(self) -> list[str]:
        """The texts to translate."""
        return list(self._places.values())

    @property
    def segments(self) -> list[int]:
        """For each text to translate, the index of its segment."""
        return [number for number, _ in self._places]

    def joined(self, translations: Sequence[str]) -> dict[int, str]:
        """Index of a segment → its translation, with the white space of the segment.

        Args:
            translations: those of `words`.
        """
        made = dict(zip(self._places, translations, strict=True))
        found = {}
        for number, own in self._pieces.items():
            parts = list(own)
            for place, piece in enumerate(own):
                if translation := made.get((number, place), "").strip():
                    start, end = len(piece) - len(piece.lstrip()), len(piece.rstrip())
                    parts[place] = piece[:start] + translation + piece[end:]
            found[number] = "".join(parts)
        return found


class DocumentTexts:
    """The segments of several documents.

    Args:
        documents: the opened documents.
    """

    def __init__(self, documents: Sequence[Document]) -> None:
        self.documents = documents
        self.segments = [text for one in documents for text in one.segments]
        """The segments of all documents, in order."""
        self.contexts = [context for one in documents for context in _contexts(one)]
        """The context of each segment, for memory matches."""
        self.places = [
            (number, place)
            for number, one in enumerate(documents)
            for place in range(len(one.segments))
        ]
        """For each segment, the index of its document and its index there."""
        self._spans = {text: chains for one in documents for text, chains in one.spans.items()}
        few = {text: own for text, own in self._spans.items() if len(own) <= MOST_SPANS}
        self.known = KnownSpans(self.segments, few)
        """The markup of the segments that can be translated as a whole."""

    def is_whole(self, number: int) -> bool:
        """Whether a segment can be translated as a whole, rather than its words in pieces."""
        return len(self._spans.get(self.segments[number], ())) <= MOST_SPANS

    @property
    def sizes(self) -> list[int]:
        """The number of segments of each document."""
        return [len(one.segments) for one in self.documents]

    def accepts(self, number: int, translation: str) -> bool:
        """Whether the translation of a segment has the markup of the segment."""
        document, place = self.places[number]
        return self.documents[document].accepts(place, translation)

    def refused(self, translations: Sequence[str]) -> "RefusedTexts":
        """The segments whose translation has other markup, to be translated in pieces."""
        pieces: dict[int, list[str]] = {}
        for number, one in enumerate(translations):
            if not self.accepts(number, one):
                document, place = self.places[number]
                pieces[number] = self.documents[document].pieces(place)
        return RefusedTexts(pieces)

    def filled(
        self,
        translations: Sequence[str],
        second: Sequence[str],
        matches: Sequence[str | None],
    ) -> list[bytes]:
        """The documents with translations of all segments.

        Args:
            translations: one for each segment.
            second: used where the first ones have other markup than their segments. If these have
                other markup, too, the segment stays as it is.
            matches: the kind of match of the first ones that are from a memory; None for others.
        """
        chosen, kinds = [], []
        for number, given in enumerate(zip(translations, second, self.segments, strict=True)):
            *possible, segment = given
            one = next((one for one in possible if self.accepts(number, one)), segment)
            chosen.append(one)
            kinds.append(matches[number] if one == translations[number] else None)
        contents, at = [], 0
        for document, size in zip(self.documents, self.sizes, strict=True):
            document.fill(chosen[at : at + size], kinds[at : at + size])
            contents.append(document.contents())
            at += size
        return contents


def _contexts(document: Document) -> Sequence[str | None]:
    return document.contexts or [None] * len(document.segments)
