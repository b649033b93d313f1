"""Questions with answers in texts: SQuAD's JSON format, and tables."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from heedful.basics.bounded_reading import MOST_BYTES, parse_json
from heedful.basics.errors import UserError
from heedful.basics.notices import notice, notice_left_out
from heedful.data.examples import SpanQuestion
from heedful.data.readers.labelled import LabelledFormat, table_records, with_choice
from heedful.data.readers.opening import Input, open_input
from heedful.data.readers.text import codec_name
from heedful.data.subwords import refuse_surrogates

Misplaced = Literal["error", "skip"]
_SHOWN = 40
_HEAD = 8192
"""Bytes by which a format is recognised."""
_VALUES = 50_000_000


class QuestionColumns(NamedTuple):
    """The columns of a table of questions."""

    context: str = "context"
    question: str = "question"
    answer: str = "answer"
    """The answer; empty if the text has none."""
    start: str | None = None
    """The index of its first character, from 0; None to take the first place where it occurs."""


def read_questions(
    paths: Sequence[str | Path],
    *,
    columns: QuestionColumns | None = None,
    format: LabelledFormat | None = None,
    encoding: str | None = None,
    misplaced: Misplaced = "error",
) -> Iterator[SpanQuestion]:
    """Stream the questions of files.

    Formats: the JSON files of SQuAD 1.1 and 2.0 (``data``, ``paragraphs``, ``qas``,
    ``is_impossible``), which are found by their content, or tables (``tsv``, ``csv``, ``jsonl``)
    with a question a row. In a table, a question has one answer; an empty one means that the text
    has none.

    Args:
        paths: plain, gzip or xz; ``-`` is standard input.
        columns: the columns of tables.
        format: that of tables; default: from the file name.
        encoding: encoding of the files; default: UTF-8.
        misplaced: what to do with a question with an answer that is not in the text at its place:
            ``error``, or ``skip``, which leaves the question out and counts it.

    Raises:
        UserError: a file is missing or invalid, a question or text is empty, or an answer is not in
            its text at its place. The message names the file and the question.
    """
    codec_name(encoding)
    columns = columns or QuestionColumns()
    for path in paths:
        counts: Counter[str] = Counter()
        with open_input(path) as file:
            if format is None and is_squad(file, encoding):
                found = _squad(file, encoding)
            else:
                found = _table(file, columns, encoding, format, counts)
            for where, question in found:
                wrong = _misplaced(question)
                if wrong is None:
                    yield question
                elif misplaced == "error":
                    raise UserError(
                        f"{where}: {wrong}; correct it, or leave such questions out with "
                        "data.misplaced = 'skip'"
                    )
                else:
                    counts["questions with an answer that is not in the text at its place"] += 1
        notice_left_out(path, counts)


def read_asked(file: Input, encoding: str | None = None) -> list[tuple[str, str, str]]:
    """The identifier, the question and the text of each question of a file in SQuAD's format.

    Answers are not read: a file of test questions has none.

    Raises:
        UserError: the file is invalid, or a question or text is empty.
    """
    return [(one.name, one.question, one.context) for _, one in _squad(file, encoding, False)]


def is_squad(file: Input, encoding: str | None = None) -> bool:
    """Whether a file has SQuAD's format: one JSON object with a list ``data`` of articles."""
    head = file.head()[:_HEAD].decode(codec_name(encoding), errors="replace")
    begin = "".join(head.split())
    if not begin.startswith("{") or '"data":[' not in begin:
        return False
    return '"paragraphs":[' in begin or begin.startswith(('{"data":[', '{"version":'))


def _misplaced(question: SpanQuestion) -> str | None:
    for text, start in question.answers:
        if not text.strip():
            return "an answer is empty"
        if start < 0 and start == question.context.find(text):
            return f"the answer '{text[:_SHOWN]}' does not occur in the text"
        if start < 0 or not question.context.startswith(text, start):
            short = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
            other = question.context.find(text)
            hint = f"; it occurs at {other:,}" if other >= 0 else ", and not elsewhere"
            return f"the answer '{short}' is not in the text at character {start:,}{hint}"
    return None


def _table(
    file: Input,
    columns: QuestionColumns,
    encoding: str | None,
    format: LabelledFormat | None,
    counts: Counter[str],
) -> Iterator[tuple[str, SpanQuestion]]:
    names = [name for name in columns if name is not None]
    repeated = 0
    options = "--context, --question, --answer and --start"
    records = with_choice(table_records(file, names, encoding, format), options)
    for number, (where, values) in enumerate(records, start=1):
        if values is None:
            counts["empty lines"] += 1
            continue
        context, question, answer, *rest = values
        _require(question, context, where)
        answers: tuple[tuple[str, int], ...] = ()
        if answer.strip():
            start = _start(rest[0], where, columns.start) if rest else context.find(answer)
            repeated += not rest and context.count(answer) > 1
            answers = ((answer, start),)
        yield where, SpanQuestion(question, context, answers, str(number))
    if repeated:
        notice(
            f"{file.name}: answers that occur several times in their texts: {repeated:,}; the "
            "first place is used (a column with the start of each answer says which: data.start)"
        )


def _start(given: str, where: str, name: str | None) -> int:
    try:
        return int(given)
    except ValueError:
        raise UserError(
            f"{where}: '{name}' is '{given}', not the number of the answer's first character"
        ) from None


def _require(question: str, context: str, where: str) -> None:
    if not question.strip():
        raise UserError(f"{where}: the question is empty; fill it in or remove it")
    if not context.strip():
        raise UserError(f"{where}: the text is empty; fill it in or remove its questions")
    refuse_surrogates(question, where)
    refuse_surrogates(context, where)


def _squad(
    file: Input, encoding: str | None, with_answers: bool = True
) -> Iterator[tuple[str, SpanQuestion]]:
    name = file.name
    content, total = [], 0
    for chunk in file.chunks():
        total += len(chunk)
        if total > MOST_BYTES:
            raise UserError(f"{name}: more than {MOST_BYTES:,} bytes; split the file")
        content.append(chunk)
    try:
        text = b"".join(content).decode(codec_name(encoding))
    except UnicodeDecodeError as error:
        raise UserError(f"{name}: byte {error.start:,} is not {encoding or 'UTF-8'}") from error
    found = parse_json(text.encode("utf-8", "surrogatepass"), name, _VALUES)
    for place, article in enumerate(_list(found, "data", name)):
        where = f"{name}: data[{place}]"
        for row, paragraph in enumerate(_list(article, "paragraphs", where)):
            yield from _paragraph(paragraph, f"{where}.paragraphs[{row}]", name, with_answers)


def _paragraph(
    paragraph: Any, where: str, name: str, with_answers: bool
) -> Iterator[tuple[str, SpanQuestion]]:
    context = _text(paragraph, "context", where)
    for place, one in enumerate(_list(paragraph, "qas", where)):
        own = f"{where}.qas[{place}]"
        question = _text(one, "question", own)
        identifier = _identifier(one, own)
        shown = f"{name}: question {identifier}"
        _require(question, context, shown)
        answers = _answers(one, own, shown) if with_answers else ()
        yield shown, SpanQuestion(question, context, answers, identifier)


def _identifier(one: dict[str, Any], where: str) -> str:
    """The identifier of a question; its place in the file, if it has none."""
    found = one.get("id", where)
    if isinstance(found, bool) or not isinstance(found, str | int):
        raise UserError(f"{where}: 'id' must be a text or a whole number, or be left out")
    refuse_surrogates(str(found), f"{where}: 'id'")
    return str(found)


def _answers(one: dict[str, Any], where: str, shown: str) -> tuple[tuple[str, int], ...]:
    impossible = one.get("is_impossible", False)
    if not isinstance(impossible, bool):
        raise UserError(f"{shown}: 'is_impossible' must be true or false")
    if impossible:
        if one.get("answers"):
            raise UserError(
                f"{shown} has answers, but is_impossible is true; remove the answers if the text "
                "has none, or set is_impossible to false"
            )
        return ()
    answers = _list(one, "answers", where)
    if not answers:
        raise UserError(
            f"{shown} has no answer; add one, or is_impossible = true if the text has none"
        )
    return tuple(
        (_text(answer, "text", where), _number(answer, "answer_start", where)) for answer in answers
    )


def _list(found: Any, key: str, where: str) -> list[Any]:
    value = found.get(key) if isinstance(found, dict) else None
    if not isinstance(value, list):
        raise UserError(f"{where}: no list '{key}'; the file is not in SQuAD's format")
    return value


def _text(found: Any, key: str, where: str) -> str:
    value = found.get(key) if isinstance(found, dict) else None
    if not isinstance(value, str):
        raise UserError(f"{where}: no text '{key}'; the file is not in SQuAD's format")
    return value


def _number(found: Any, key: str, where: str) -> int:
    value = found.get(key)
    if isinstance(value, bool) or not isinstance(value, int):
        raise UserError(
            f"{where}: '{key}' is not a whole number; the file is not in SQuAD's format"
        )
    return value


def check_names(names: Sequence[str], where: str) -> None:
    """Check that each question has an identifier of its own, which a prediction file needs.

    Raises:
        UserError: two questions have the same one.
    """
    name, count = Counter(names).most_common(1)[0] if names else ("", 0)
    if count > 1:
        raise UserError(
            f"{where}: {count:,} questions have the identifier '{name}', so that a prediction file "
            "would keep one of their answers; give one file, whose identifiers differ"
        )


def write_predictions(answers: dict[str, str]) -> str:
    """The official prediction file: a JSON object from identifiers to answers."""
    return json.dumps(answers, ensure_ascii=False, indent=0) + "\n"
