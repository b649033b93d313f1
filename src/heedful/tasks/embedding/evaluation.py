"""Evaluation of embeddings."""

from collections.abc import Sequence
from typing import Any

from heedful.data.examples import Similar
from heedful.evaluation.outcome import Examples, Figure, ReportTable
from heedful.tasks.embedding.measures import measure
from heedful.tasks.embedding.predictor import Embedder
from heedful.tasks.texts.score import TextScore


def score_vectors(
    name: str, embedder: Embedder, examples: Sequence[Similar], settings: Any
) -> TextScore:
    """Correlations of the cosine with ratings, or retrieval of the similar texts.

    Args:
        name: the head.
        embedder: makes the vectors.
        examples: one or more.
        settings: those of the head.
    """
    found = measure(embedder, examples, settings.contrastive_temperature, settings.data.range)
    figures = {key: Figure(value, rises=key != "loss") for key, value in found.figures.items()}
    rated = examples[0].rating is not None
    outputs = [repr(float(cosine)) for cosine in found.cosines]
    references = ["1" if one.rating is None else repr(float(one.rating)) for one in examples]
    measures: dict[str, Any] = {"pearson": {"kind": "pearson"}} if rated else {}
    if found.ranks:
        reciprocal = [[1 / rank, 1.0] for rank in found.ranks]
        first = [[float(rank == 1), 1.0] for rank in found.ranks]
        measures = {
            "mean_reciprocal_rank": {"kind": "mean", "values": reciprocal},
            "recall_at_1": {"kind": "mean", "values": first},
        }
    texts = [" ⏎ ".join(example.texts) for example in examples]
    rows = [(key.replace("_", " "), f"{value:.4f}") for key, value in found.figures.items()]
    title = f"{len(examples):,} {'pairs with ratings' if rated else 'examples'}"
    return TextScore(
        name,
        len(examples),
        "examples",
        figures,
        [ReportTable(title, ("score", "value"), rows)],
        found.figures,
        outputs or None,
        Examples(texts, references, outputs, measures) if outputs else None,
    )
