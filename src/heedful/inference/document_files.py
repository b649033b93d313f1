"""Translation of documents, as a whole or in sections."""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from heedful.basics.notices import notice
from heedful.data.documents import Document
from heedful.data.memory import Memory
from heedful.data.protected.known import KnownSpans
from heedful.decoding import SearchOptions
from heedful.inference.document_texts import DocumentTexts
from heedful.inference.files import opened_output
from heedful.inference.line_windows import windows
from heedful.inference.memory_first import translate_with_memory
from heedful.inference.span_placement import PlacingTranslator
from heedful.inference.translation import Translation
from heedful.inference.translation_window import Advance
from heedful.inference.translator import Translator

if TYPE_CHECKING:
    from heedful.data.documents.sections import Sections


def translate_document(
    translator: Translator,
    document: Document,
    output: Path | None,
    *,
    options: SearchOptions,
    memory: Memory | None = None,
    advance: Advance | None = None,
) -> list[Translation]:
    """Translate a document; everything except its targets is unchanged.

    Args:
        translator: the predictor.
        document: the opened file.
        output: the file to write, compressed if its name ends in ``.gz``; standard output if None.
        options: search settings.
        memory: exact matches with the markup of the segment are taken from it, and marked as such.
        advance: called with progress.

    Returns:
        The translations of its segments.

    Raises:
        UserError: the output cannot be written; nothing is left behind.
    """
    filling = _Filling(translator, options, memory, advance)
    found = filling.fill(document)
    filling.tell(document.name)
    with opened_output(output, compresses=True) as file:
        file.write(document.contents())
        file.flush()
    return found


def translate_sections(
    translator: Translator,
    sections: "Sections",
    output: Path | None,
    *,
    options: SearchOptions,
    memory: Memory | None = None,
    advance: Advance | None = None,
    prepare: Callable[[Document], Document] = lambda document: document,
    seen: Callable[[Document, Sequence[Translation]], None] = lambda document, found: None,
) -> None:
    """The same as `translate_document`, with only one section in memory at a time.

    Args:
        translator: the predictor.
        sections: the opened file.
        output: the file to write, compressed if its name ends in ``.gz``; standard output if None.
        options: search settings.
        memory: exact matches are taken from it.
        advance: called with progress.
        prepare: changes the document of a section before it is translated.
        seen: called with the document of each section and its translations.

    Raises:
        UserError: the output cannot be written; nothing is left behind.
    """
    filling = _Filling(translator, options, memory, advance)
    with opened_output(output, compresses=True) as file:
        for section in sections:
            document = prepare(section.document)
            found = filling.fill(document)
            file.write(section.trimmed(document.contents()))
            seen(document, found)
        file.flush()
    sections.tell()
    filling.tell(sections.name)


class _Filling:
    """Fills documents, and counts what notices tell about all of them."""

    def __init__(
        self,
        translator: Translator,
        options: SearchOptions,
        memory: Memory | None,
        advance: Advance | None,
    ) -> None:
        self._translator, self._options = translator, options
        self._memory, self._advance = memory or Memory(), advance
        self._matches: Counter[str] = Counter()
        self._several = self._in_pieces = 0
        self._warned: Counter[str] = Counter()

    def fill(self, document: Document) -> list[Translation]:
        """Fill a document; returns the translations of its segments."""
        known = KnownSpans(document.segments, document.spans)
        own = self._keeping(document, known)
        made = translate_with_memory(
            own,
            self._memory,
            windows([text] for text in document.segments),
            options=self._options,
            scores=False,
            contexts=document.contexts,
            keeps=known.keeps,
            advance=self._advance,
            counts=self._warned,
        )
        found = list(chain.from_iterable(made))
        self._translate_refused(own, document, found)
        kinds = [None if one.match is None else one.match.kind for one in found]
        self._matches.update(kind for kind in kinds if kind is not None)
        self._several += sum(bool(one.match and one.match.others) for one in found)
        document.fill([one.text for one in found], kinds)
        return found

    def tell(self, name: str) -> None:
        """Print the notices."""
        self._translator.warn(self._warned)
        if count := self._in_pieces:
            segments = "segments were" if count > 1 else "segment was"
            notice(f"{name}: {count:,} {segments} translated in pieces to keep the markup")
        if self._matches:
            ranked = self._matches.most_common()
            counts = " and ".join(f"{count:,} {kind}" for kind, count in ranked)
            more = f", {self._several:,} of them with other translations in it"
            notice(f"{name}: {counts} matches taken from the memory{more if self._several else ''}")

    def _keeping(self, document: Document, known: KnownSpans) -> Translator | PlacingTranslator:
        """A translator that keeps the document's markup, by placeholders or by word alignment."""
        if self._translator.protection.rules is None and self._translator.aligns:
            return PlacingTranslator(self._translator, known=known)
        if not document.spans:
            return self._translator
        return self._translator.with_known_spans(known)

    def _translate_refused(
        self,
        translator: Translator | PlacingTranslator,
        document: Document,
        found: list[Translation],
    ) -> None:
        """Translate the words of segments one by one where the translation has other markup."""
        refused = DocumentTexts([document]).refused([one.text for one in found])
        if not refused:
            return
        texts = windows([text] for text in refused.words)
        made = chain.from_iterable(
            translator.translate_windows(
                texts, options=self._options, scores=False, counts=self._warned
            )
        )
        for number, text in refused.joined([one.text for one in made]).items():
            found[number] = Translation(document.segments[number], text)
        self._in_pieces += len(refused)
