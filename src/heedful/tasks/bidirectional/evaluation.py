"""Evaluation of bidirectional language models."""

import tempfile
from pathlib import Path
from typing import Any, cast

from heedful.evaluation.outcome import Figure, ReportTable
from heedful.tasks.bidirectional.head import write_texts
from heedful.tasks.bidirectional.training import BidirectionalTask
from heedful.tasks.texts.recipe import EncoderRecipe
from heedful.tasks.texts.rows import RowBatches
from heedful.tasks.texts.score import ScoredHead, TextScore


def score_bidirectional(head: ScoredHead, falling: frozenset[str]) -> TextScore:
    """The figures of a validation on other texts.

    Args:
        head: the head of a run, and documents.
        falling: figures for which lower is better.
    """
    predictor: Any = head.predictor()
    recipe = cast(EncoderRecipe, head.run.recipe)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "test"
        limits = (predictor.vocabulary, recipe.max_tokens)
        write_texts(path, iter(head.examples), *limits, predictor.words)
        rows = RowBatches(path, recipe.training.batch_tokens, labels="token")
        task = BidirectionalTask(
            predictor.model, rows, rows, name=head.name, device=predictor.device
        )
        found = task.validate().figures
    figures = {
        key: Figure(value, unit="nats" if key.endswith("loss") else "", rises=key not in falling)
        for key, value in found.items()
    }
    table = ReportTable(
        f"{head.name}: {len(head.examples):,} documents",
        ("score", "value"),
        [(key, f"{value:.4f}") for key, value in found.items()],
    )
    return TextScore(head.name, len(head.examples), "documents", figures, [table], dict(found))
