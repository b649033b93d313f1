"""The evaluation of several files: the accuracy of each, and their mean error."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from heedful.evaluation.outcome import Evaluation, Figure, ReportTable


def with_files(found: Evaluation, files: Any, paths: Sequence[str]) -> Evaluation:
    """The evaluation with a table that has a row for each file.

    Args:
        found: of all files together, in their order.
        files: ``data`` of the recipe, which reads them.
        paths: the files.
    """
    assert found.examples is not None
    right = [a == b for a, b in zip(found.examples.outputs, found.examples.references, strict=True)]
    first, rows, errors = 0, [], []
    for path in paths:
        count = sum(1 for _ in files.read([path], files.encoding))
        wrong = count - sum(right[first : first + count])
        first += count
        errors.append(100 * wrong / max(1, count))
        rows.append((Path(path).name, f"{count:,}", f"{wrong:,}", f"{errors[-1]:.1f} %"))
    mean = sum(errors) / len(errors)
    rows.append(("mean of the files", f"{first:,}", f"{first - sum(right):,}", f"{mean:.2f} %"))
    figures = {**found.figures, "mean_error": Figure(mean, "%", rises=False)}
    table = ReportTable(found.title, ("file", "questions", "wrong", "error"), rows)
    each = zip(map(str, paths), errors, strict=True)
    details = {"files": [{"file": path, "error": error} for path, error in each]}
    made = replace(found, figures=figures, tables=[table])
    return replace(made, details={**made.to_json(), **details})
