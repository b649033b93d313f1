"""The recipe that is chosen for a file of questions."""

from pathlib import Path
from typing import Any

from heedful.data.readers.questions import QuestionColumns, read_questions
from heedful.runs.recipe import find_data
from heedful.tasks.default_recipe import data_table, refuse_pipe
from heedful.tasks.texts.default_recipe import PIPE, SEED, measure_texts, shares, steps, tokeniser

_LEAST, _MOST = 64, 384


def choose(
    paths: list[str],
    *,
    context: str | None = None,
    question: str | None = None,
    answer: str | None = None,
    start: str | None = None,
    encoding: str | None = None,
    format: Any = None,
    folder: Path | None = None,
) -> dict[str, Any]:
    """Choose a recipe for questions about texts; returns its tables.

    The model is bidirectional attention flow, which learns from fewer examples than a Transformer
    without pre-training and shows its attention. docs/span-answers.md gives the reasons.

    Raises:
        UserError: the files are invalid, or have no such columns.
    """
    refuse_pipe(paths, PIPE)
    columns = QuestionColumns(
        context or "context", question or "question", answer or "answer", start
    )
    found = read_questions(
        find_data(paths, folder), columns=columns, format=format, encoding=encoding
    )
    size = measure_texts(found, paths[0])
    length = max(_LEAST, min(_MOST, size.longest + 3))
    given = {"context": context, "question": question, "answer": answer, "start": start}
    return {
        "task": "answer-spans",
        "seed": SEED,
        "data": {
            **data_table(paths, encoding=encoding, format=format, **given),
            **shares(size),
        },
        "tokeniser": tokeniser(size),
        "max_tokens": length,
        "overlap": min(64, length // 4),
        "model": {"kind": "bidirectional-attention-flow", "max_length": length},
        "training": {**steps(size, passes=10), "choose_by": "f1"},
    }
