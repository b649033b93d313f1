"""Evaluation of replaced-token detection."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from heedful.evaluation.outcome import Figure, ReportTable
from heedful.tasks.replaced.head import rows_of, sentence_rule
from heedful.tasks.replaced.predictor import DetectReplaced
from heedful.tasks.replaced.recipe import ReplacedHead, ReplacedRecipe
from heedful.tasks.replaced.training import ReplacedTask
from heedful.tasks.texts.score import TextScore
from heedful.tasks.texts.sentences import write_texts


def score_replaced(
    name: str,
    detector: DetectReplaced,
    texts: Sequence[str],
    recipe: ReplacedRecipe,
    falling: frozenset[str],
) -> TextScore:
    """The figures of a validation on other texts, with tokens drawn as in a validation.

    Args:
        name: the head.
        detector: the loaded run.
        texts: documents.
        recipe: the recipe of the run.
        falling: figures for which lower is better.
    """
    head = cast(ReplacedHead, recipe.heads()[name])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "test"
        write_texts(texts, path, detector.vocabulary, sentence_rule(head, recipe.max_tokens))
        rows = rows_of(path, detector.vocabulary, head, recipe)
        task = ReplacedTask(
            detector.model,
            rows,
            rows,
            name=name,
            weight=head.replacing.weight,
            device=detector.device,
        )
        found = task.validate().figures
    figures = {
        key: Figure(value, unit="nats" if key.endswith("loss") else "", rises=key not in falling)
        for key, value in found.items()
    }
    lines = [(key, f"{value:.4f}") for key, value in found.items()]
    table = ReportTable(f"{name}: {len(texts):,} documents", ("score", "value"), lines)
    return TextScore(name, len(texts), "documents", figures, [table], dict(found))
