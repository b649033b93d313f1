"""Documents in which the branches of ICU messages are segments of their own."""

from collections.abc import Callable, Sequence

from heedful.data.documents.base import Document
from heedful.data.memory import Memory
from heedful.data.protected.messages import Message, Piece
from heedful.data.protected.pairs import Rules


def with_branches(document: Document, rules: Rules | None, memory: Memory | None) -> Document:
    """The document with its ICU messages as branches, if the rules protect them (``icu``).

    Messages that the memory has are left whole.
    """
    if rules is None or "icu" not in rules.names:
        return document
    known = memory or Memory()
    found = BranchDocument(
        document, rules.target, lambda text, context: known.find(text, context) is not None
    )
    return found if found.has_messages else document


class BranchDocument(Document):
    """A document with the pieces of its ICU messages in place of the messages.

    Messages with markup of the format, and malformed ones, stay whole.

    Args:
        document: the opened document.
        language: code of the target language, for its plural categories.
        is_known: whether a text is to stay whole because its translation is known.
    """

    def __init__(
        self,
        document: Document,
        language: str | None,
        is_known: Callable[[str, str | None], bool] = lambda text, context: False,
    ) -> None:
        super().__init__(document.name)
        self._document, self._language = document, language
        self._messages: list[Message | None] = []
        self._places: list[tuple[int, Piece | None]] = []
        self.spans, self.reports = dict(document.spans), document.reports
        contexts = document.contexts or [None] * len(document.segments)
        for number, (text, context) in enumerate(zip(document.segments, contexts, strict=True)):
            message = None if document.spans.get(text) else Message.parse(text)
            if message is not None and is_known(text, context):
                message = None
            self._messages.append(message)
            pieces = [None] if message is None else message.pieces
            for piece in pieces:
                self._places.append((number, piece))
                self.segments.append(text if piece is None else piece.text)
                self.contexts.append(context if piece is None else None)
                if piece is not None and piece.spans:
                    self.spans.setdefault(piece.text, piece.spans)

    @property
    def has_messages(self) -> bool:
        """Whether there are messages with branches."""
        return any(self._messages)

    def accepts(self, place: int, translation: str) -> bool:
        """Whether a translation has the markup of the segment, or the arguments of the piece."""
        number, piece = self._places[place]
        message = self._messages[number]
        if message is None or piece is None:
            return self._document.accepts(number, translation)
        return message.accepts(piece, translation)

    def pieces(self, place: int) -> list[str]:
        number, piece = self._places[place]
        return self._document.pieces(number) if piece is None else super().pieces(place)

    def _original(self) -> bytes:
        return self._document.contents()

    def _with(self, translations: Sequence[str]) -> bytes:
        found: list[dict[str, str]] = [{} for _ in self._messages]
        kinds: list[str | None] = [None] * len(self._messages)
        refused: set[int] = set()
        for place, ((number, piece), text, translation, kind) in enumerate(
            zip(self._places, self.segments, translations, self.matches, strict=True)
        ):
            found[number][text] = translation
            if piece is None:
                kinds[number] = kind
            elif not self.accepts(place, translation):
                refused.add(number)
        whole = [self._whole(number, own, refused) for number, own in enumerate(found)]
        self._document.fill(whole, kinds)
        if refused:
            self.report(
                len(refused),
                "messages whose branches lack arguments in their translation; these branches were "
                "left untranslated",
            )
        return self._document.contents()

    def _whole(self, number: int, translations: dict[str, str], refused: set[int]) -> str:
        """The translation of a segment of the document; adds those that it refuses."""
        message, text = self._messages[number], self._document.segments[number]
        if message is None:
            return translations[text]
        joined = message.joined(translations.get, self._language)
        if self._document.accepts(number, joined):
            return joined
        refused.add(number)
        return text
