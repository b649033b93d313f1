"""Evaluation of masked language models."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from heedful.evaluation.outcome import Figure, ReportTable
from heedful.inference.fill_mask import FillMask
from heedful.tasks.masked.head import sentence_pairs, sentence_rule
from heedful.tasks.masked.training import MaskedTask
from heedful.tasks.texts.recipe import EncoderRecipe, MaskedHead
from heedful.tasks.texts.score import TextScore
from heedful.tasks.texts.sentences import write_texts


def score_masked(
    name: str,
    filler: FillMask,
    texts: Sequence[str],
    recipe: EncoderRecipe,
    falling: frozenset[str],
) -> TextScore:
    """The figures of a validation on other texts, with masks drawn as in a validation.

    Args:
        name: the head.
        filler: the loaded run.
        texts: documents.
        recipe: the recipe of the run.
        falling: figures for which lower is better.
    """
    head = cast(MaskedHead, recipe.heads()[name])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "test"
        write_texts(texts, path, filler.vocabulary, sentence_rule(head, recipe.max_tokens))
        # Masks depend on the batches: use those of a validation, so that figures are comparable.
        limits = (recipe.max_tokens, recipe.training.batch_tokens)
        rows_of_text = sentence_pairs(path, filler.vocabulary, head, *limits)
        task = MaskedTask(
            filler.model,
            rows_of_text,
            rows_of_text,
            name=name,
            pairs=head.masking.of_pairs or "next",
            device=filler.device,
        )
        found = task.validate().figures
    figures = {
        key: Figure(value, unit="nats" if key.endswith("loss") else "", rises=key not in falling)
        for key, value in found.items()
    }
    rows = [(key, f"{value:.4f}") for key, value in found.items()]
    table = ReportTable(f"{name}: {len(texts):,} documents", ("score", "value"), rows)
    return TextScore(name, len(texts), "documents", figures, [table], dict(found))
