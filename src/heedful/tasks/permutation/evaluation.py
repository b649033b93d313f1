"""Evaluation of permutation language models."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from heedful.evaluation.outcome import Figure, ReportTable
from heedful.inference.fill_mask import FillMask
from heedful.tasks.permutation.head import permuted_rows, sentence_rule
from heedful.tasks.permutation.training import PermutationTask
from heedful.tasks.texts.run import TextRun
from heedful.tasks.texts.score import TextScore
from heedful.tasks.texts.sentences import write_texts


def score_permutation(
    name: str, filler: FillMask, texts: Sequence[str], run: TextRun, falling: frozenset[str]
) -> TextScore:
    """The figures of a validation on other texts, with orders drawn as in a validation.

    Args:
        name: the head.
        filler: the loaded run.
        texts: documents.
        run: the run.
        falling: figures for which lower is better.
    """
    recipe: Any = run.recipe
    head = recipe.heads()[name]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "test"
        write_texts(texts, path, filler.vocabulary, sentence_rule(head, recipe.max_tokens))
        limits = (recipe.max_tokens, recipe.training.batch_tokens)
        rows = permuted_rows(path, filler.vocabulary, head.permutation, *limits)
        task = PermutationTask(filler.model, rows, rows, name=name, device=filler.device)
        found = task.validate().figures
    figures = {
        key: Figure(value, unit="nats" if key.endswith("loss") else "", rises=key not in falling)
        for key, value in found.items()
    }
    rows_shown = [(key, f"{value:.4f}") for key, value in found.items()]
    table = ReportTable(f"{name}: {len(texts):,} documents", ("score", "value"), rows_shown)
    return TextScore(name, len(texts), "documents", figures, [table], dict(found))
