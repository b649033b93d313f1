"""Writes predictions in the official submission formats."""

import csv
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from heedful.basics.files import atomic_file
from heedful.data.suites.forms import Item
from heedful.data.suites.tasks import SuiteTask


def write_submission(
    path: Path, items: Sequence[Item], answers: Sequence[Any], task: SuiteTask
) -> None:
    """Write one prediction for each item, in their order.

    GLUE: TSV with the columns ``index`` and ``prediction``; numbers have three decimals. SuperGLUE
    and Russian SuperGLUE: JSON lines with ``idx`` and ``label``; for MultiRC, a line for each
    passage with its questions and their answers. RuCoLA: CSV with ``id`` and ``acceptable``.

    Args:
        path: the file.
        items: the items of the test set.
        answers: the answers of :func:`heedful.evaluation.suites.answer_of`.
        task: the task.

    Raises:
        ValueError: there is not one answer for each item.
        UserError: the file cannot be written.
    """
    if len(items) != len(answers):
        raise ValueError(f"{len(answers)} answers for {len(items)} items")
    if path.suffix == ".tsv":
        lines: Iterable[str] = _tsv(items, answers, task)
    elif path.suffix == ".csv":
        lines = _csv(items, answers, task)
    else:
        lines = map(_json, _objects(items, answers, task))
    with atomic_file(path) as file:
        for line in lines:
            file.write(f"{line}\n".encode())


def _tsv(items: Sequence[Item], answers: Sequence[Any], task: SuiteTask) -> Iterable[str]:
    yield "index\tprediction"
    for item, answer in zip(items, answers, strict=True):
        written = f"{answer:.3f}" if task.is_numeric else task.written_label(answer)
        yield f"{item.index}\t{written}"


def _csv(items: Sequence[Item], answers: Sequence[Any], task: SuiteTask) -> Iterable[str]:
    yield f"id,{task.label}"
    for item, answer in zip(items, answers, strict=True):
        line = io.StringIO()
        csv.writer(line, lineterminator="").writerow([item.index, task.written_label(answer)])
        yield line.getvalue()


def _objects(
    items: Sequence[Item], answers: Sequence[Any], task: SuiteTask
) -> Iterable[dict[str, Any]]:
    if task.form == "answers":
        yield from _passages(items, answers)
        return
    for item, answer in zip(items, answers, strict=True):
        label = answer if task.form in ("choice", "cloze") else task.written_label(answer)
        yield {"idx": item.index, "label": label}


def _passages(items: Sequence[Item], answers: Sequence[Any]) -> Iterable[dict[str, Any]]:
    """A line for each passage; its questions follow one another."""
    passages: dict[Any, list[dict[str, Any]]] = {}
    for item, labels in zip(items, answers, strict=True):
        passage, question = item.index
        given = [
            {"idx": name, "label": int(label)}
            for name, label in zip(item.names, labels, strict=True)
        ]
        passages.setdefault(passage, []).append({"idx": question, "answers": given})
    for index, questions in passages.items():
        yield {"idx": index, "passage": {"questions": questions}}


def _json(line: dict[str, Any]) -> str:
    return json.dumps(line, ensure_ascii=False)
