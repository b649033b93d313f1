"""The part of ``heedful translate`` that translates a document and checks its translations."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from heedful.basics.notices import notice
from heedful.data.documents import Document
from heedful.data.documents.branches import with_branches
from heedful.data.documents.sections import Sections
from heedful.data.memory import Memory
from heedful.data.protected.choosing import ALWAYS
from heedful.data.protected.pairs import Rules
from heedful.data.units import Unit
from heedful.decoding import SearchOptions
from heedful.evaluation.checks import SERIOUS, check_units
from heedful.inference.document_files import translate_document, translate_sections
from heedful.inference.translation import Translation
from heedful.inference.translator import Translator
from heedful.tasks.line_commands import bar


def translate_file(
    file: str,
    output: Path | None,
    translator: Translator,
    options: SearchOptions,
    document: Document | Sections,
    memory: Memory | None,
) -> Counter[str]:
    """Translate a document; returns, and prints, the number of serious findings of each check.

    Args:
        file: its name, for the progress bar.
        output: the file to write; standard output if None.
        translator: the predictor.
        options: search settings.
        document: the opened file.
        memory: exact matches are taken from it.
    """
    counts: Counter[str] = Counter()

    def prepare(one: Document) -> Document:
        return with_branches(one, translator.protection.rules, memory)

    def seen(one: Document, found: Sequence[Translation]) -> None:
        counts.update(_findings(one, [each.text for each in found], translator))

    if not isinstance(document, Sections):
        document = prepare(document)
    with bar("translating", file, output, "segments", document.count) as advance:
        if isinstance(document, Sections):
            translate_sections(
                translator,
                document,
                output,
                options=options,
                memory=memory,
                advance=advance,
                prepare=prepare,
                seen=seen,
            )
        else:
            found = translate_document(
                translator, document, output, options=options, memory=memory, advance=advance
            )
            seen(document, found)
    if counts:
        by_check = ", ".join(f"{count:,} {name}" for name, count in counts.most_common())
        notice(f"{document.name}: {by_check}; see heedful check")
    return counts


def _findings(
    document: Document, translations: Sequence[str], translator: Translator
) -> Counter[str]:
    """The numbers of serious findings of the checks, by kind."""
    rules = translator.protection.rules or Rules(
        ALWAYS, translator.source_language, translator.target_language
    )
    pairs = zip(document.segments, translations, strict=True)
    units = (Unit(str(number), *pair) for number, pair in enumerate(pairs, start=1))
    return Counter(
        one.check for _, found in check_units(units, rules) for one in found if one.check in SERIOUS
    )
