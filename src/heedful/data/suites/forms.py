"""How the examples of a benchmark become rows of texts that a model labels.

Each function reads an official record and yields its items. An item with several rows asks which of
them is right (COPA), which answers are right (MultiRC), or which candidate fits (ReCoRD).
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from heedful.basics.errors import UserError
from heedful.data.subwords import refuse_surrogates
from heedful.data.suites.tasks import FALSE, TRUE, Form, SuiteTask

Record = Mapping[str, Any]
QUESTIONS = {
    "en": {"cause": "What was the cause?", "effect": "What happened as a result?"},
    "ru": {"cause": "Что было причиной?", "effect": "Что произошло в результате?"},
}
"""What COPA's form adds to the premise, by language and field ``question``."""
PLACEHOLDER = "@placeholder"
_HIGHLIGHT = re.compile(r"\s*@highlight\s*")
_WORD = re.compile(r"\S+")
_EDGES = re.compile(r"^\W+|\W+$")


class Item(NamedTuple):
    """An example of a benchmark: what a submission has one prediction for.

    Attributes:
        index: its official index; for MultiRC, those of the passage and of the question.
        rows: the texts of each row.
        labels: the label of each row; None if the example has no label.
        names: of each row, its official index (MultiRC) or its answer (ReCoRD).
        gold: all right answers (ReCoRD).
    """

    index: Any
    rows: tuple[tuple[str, ...], ...]
    labels: tuple[str, ...] | None
    names: tuple[Any, ...] = ()
    gold: tuple[str, ...] = ()


def items_of(record: Record, task: SuiteTask, where: str) -> Iterator[Item]:
    """The items of a record with the fields ``task.read``, its label and its index.

    Args:
        record: the fields of the record; ``idx`` is its index.
        task: the task.
        where: the file and line, for messages.

    Raises:
        UserError: a field has the wrong type, a label is not one of the task's, or a position is
            not in its text.
    """
    return _FORMS[task.form](record, task, where)


def _plain(record: Record, task: SuiteTask, where: str) -> Iterator[Item]:
    texts = tuple(_text(record, name, where) for name in task.text)
    yield Item(_index(record, where), (texts,), _labels(record, task, where))


def _choice(record: Record, task: SuiteTask, where: str) -> Iterator[Item]:
    """Two rows: the premise with its question, and a choice; the right row has the label true."""
    asked = _text(record, "question", where)
    questions = QUESTIONS[task.language]
    if asked not in questions:
        raise UserError(f"{where}: question '{asked}' is neither cause nor effect")
    first = f"{_text(record, 'premise', where)} {questions[asked]}"
    rows = tuple((first, _text(record, name, where)) for name in ("choice1", "choice2"))
    label = record.get(task.label)
    if label is not None and str(label) not in ("0", "1"):
        raise _other_label(where, label, task, ("0", "1"))
    labels = None if label is None else ((TRUE, FALSE), (FALSE, TRUE))[int(label)]
    yield Item(_index(record, where), rows, labels)


def _marked(record: Record, task: SuiteTask, where: str) -> Iterator[Item]:
    """Both sentences, each with the word between brackets."""
    texts = []
    for number in "12":
        text = _text(record, f"sentence{number}", where)
        start, end = record[f"start{number}"], record[f"end{number}"]
        texts.append(_bracketed(text, _number(start, where), _number(end, where), where))
    yield Item(_index(record, where), (tuple(texts),), _labels(record, task, where))


def _pronoun(record: Record, task: SuiteTask, where: str) -> Iterator[Item]:
    """The text with the pronoun between brackets, and the noun that it may stand for."""
    target, text = record["target"], _text(record, "text", where)
    if not isinstance(target, Mapping):
        raise UserError(f"{where}: 'target' must be an object")
    span = _field(target, "span2_text", where)
    start, end = _span(text, str(span), _number(_field(target, "span2_index", where), where), where)
    noun = _text(target, "span1_text", where)
    texts = (_bracketed(text, start, end, where), noun)
    yield Item(_index(record, where), (texts,), _labels(record, task, where))


def _answers(record: Record, task: SuiteTask, where: str) -> Iterator[Item]:
    """For each question, one row for each answer: the passage, and question and answer."""
    passage = record["passage"]
    text = _text(passage, "text", where)
    for question in _list(passage, "questions", where):
        asked = _text(question, "question", where)
        answers = _list(question, "answers", where)
        rows = tuple((text, f"{asked} {_text(one, 'text', where)}") for one in answers)
        labels = [_labels(one, task, where) for one in answers]
        known = [one[0] for one in labels if one is not None]
        if len(known) not in (0, len(rows)):
            raise UserError(f"{where}: some answers of a question have a label, others have none")
        if not answers:
            raise UserError(f"{where}: a question has no answers")
        index = (_index(record, where), _index(question, where))
        names = tuple(_index(one, where) for one in answers)
        yield Item(index, rows, tuple(known) or None, names)


def _cloze(record: Record, task: SuiteTask, where: str) -> Iterator[Item]:
    """For each query, one row for each candidate: the passage, and the query filled with it."""
    passage = record["passage"]
    text = _text(passage, "text", where)
    found = [_entity(text, one, where) for one in _list(passage, "entities", where)]
    candidates = tuple(dict.fromkeys(found))
    if not candidates:
        raise UserError(f"{where}: the passage has no entities, which are the possible answers")
    plain = _HIGHLIGHT.sub(" ", text)
    for query in _list(record, "qas", where):
        asked = _text(query, "query", where)
        if PLACEHOLDER not in asked:
            raise UserError(f"{where}: a query has no {PLACEHOLDER}")
        answers = query.get("answers")
        gold = () if answers is None else _gold(answers, where)
        labels = None
        if answers is not None:
            labels = tuple(TRUE if one in gold else FALSE for one in candidates)
        rows = tuple((plain, asked.replace(PLACEHOLDER, one)) for one in candidates)
        yield Item(_index(query, where), rows, labels, candidates, gold)


_FORMS: dict[Form, Callable[[Record, SuiteTask, str], Iterator[Item]]] = {
    "plain": _plain,
    "choice": _choice,
    "marked": _marked,
    "pronoun": _pronoun,
    "answers": _answers,
    "cloze": _cloze,
}


def _gold(answers: Any, where: str) -> tuple[str, ...]:
    if not isinstance(answers, Sequence) or not answers:
        raise UserError(f"{where}: 'answers' must be a list of answers")
    return tuple(dict.fromkeys(_text(one, "text", where) for one in answers))


def _entity(text: str, entity: Any, where: str) -> str:
    """The text of an entity; the official positions include the last character."""
    if isinstance(entity, Mapping) and "text" in entity:
        return _text(entity, "text", where)
    start = _number(_field(entity, "start", where), where)
    end = _number(_field(entity, "end", where), where)
    if not 0 <= start <= end < len(text):
        raise UserError(f"{where}: an entity at {start} to {end} is not in the passage")
    return text[start : end + 1]


def _span(text: str, span: str, index: int, where: str) -> tuple[int, int]:
    """Start and end of the words of ``span`` that are nearest to word ``index`` of the text.

    Words are separated by white space; case and punctuation around the span are ignored, because
    the official files are not exact in either, nor in the index.
    """
    words = [match.span() for match in _WORD.finditer(text)]
    wanted = _EDGES.sub("", " ".join(span.split())).casefold()
    if not wanted:
        raise UserError(f"{where}: the pronoun (span2_text) is empty")
    number = len(span.split())
    found = []
    for place in range(len(words) - number + 1):
        start, end = words[place][0], words[place + number - 1][1]
        own = text[start:end]
        if " ".join(_EDGES.sub("", own).split()).casefold() == wanted:
            front = len(own) - len(re.sub(r"^\W+", "", own))
            back = len(own) - len(re.sub(r"\W+$", "", own))
            found.append((abs(place - index), start + front, end - back))
    if not found:
        raise UserError(f"{where}: '{span}' (span2_text) is not in the text")
    _, start, end = min(found)
    return start, end


def _bracketed(text: str, start: int, end: int, where: str) -> str:
    if not 0 <= start < end <= len(text):
        raise UserError(f"{where}: characters {start} to {end} are not in the text")
    return f"{text[:start]}[ {text[start:end]} ]{text[end:]}"


def _labels(record: Any, task: SuiteTask, where: str) -> tuple[str, ...] | None:
    """The label of a record as a tuple; None if it has none."""
    value = record.get(task.label)
    if value is None:
        return None
    label = str(value).lower() if isinstance(value, bool) else str(value).strip()
    if task.is_numeric:
        if not _is_number(label):
            raise UserError(f"{where}: '{label}' ({task.label}) is not a number")
    elif label not in task.labels:
        if label.lower() not in task.labels:
            raise _other_label(where, label, task, task.labels)
        label = label.lower()
    return (label,)


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _other_label(where: str, label: Any, task: SuiteTask, known: Sequence[str]) -> UserError:
    return UserError(
        f"{where}: the label '{label}' is not one of {task.title}'s: {', '.join(known)}; is this "
        "the file of another task?"
    )


def _field(record: Any, name: str, where: str) -> Any:
    if not isinstance(record, Mapping) or name not in record:
        raise UserError(f"{where}: there is no field '{name}'; is this the file of another task?")
    return record[name]


def _index(record: Any, where: str) -> str | int:
    """The official index, which a submission repeats."""
    found = _field(record, "idx", where)
    if isinstance(found, bool) or not isinstance(found, str | int):
        raise UserError(f"{where}: 'idx' must be a text or a whole number")
    refuse_surrogates(str(found), f"{where}: 'idx'")
    return found


def _text(record: Any, name: str, where: str) -> str:
    found = _field(record, name, where)
    if not isinstance(found, str):
        raise UserError(f"{where}: '{name}' must be a text")
    return found


def _list(record: Any, name: str, where: str) -> list[Any]:
    found = _field(record, name, where)
    if not isinstance(found, list):
        raise UserError(f"{where}: '{name}' must be a list")
    return found


def _number(value: Any, where: str) -> int:
    if type(value) is not int:
        raise UserError(f"{where}: '{value}' must be a whole number")
    return value
