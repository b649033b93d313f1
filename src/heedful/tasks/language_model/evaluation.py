"""Evaluation of language models."""

from collections.abc import Sequence

from heedful.evaluation.outcome import Figure, ReportTable
from heedful.inference.generator import Generator
from heedful.tasks.texts.score import TextScore


def score_text(name: str, generator: Generator, texts: Sequence[str]) -> TextScore:
    """The perplexity of documents, in all of its units."""
    found = generator.perplexity(texts, joined=True)
    details = found.to_json()
    values = {
        "loss": -found.log_probability / max(1, found.tokens),
        **{key: value for key, value in details.items() if key.startswith(("perplexity", "bits"))},
    }
    figures = {key: Figure(value, unit=_unit(key), rises=False) for key, value in values.items()}
    rows = [(key.replace("_", " "), f"{value:.4f}") for key, value in values.items()]
    rows += [(key, f"{details[key]:,}") for key in ("tokens", "words", "lines", "bytes", "unknown")]
    table = ReportTable(f"{len(texts):,} documents", ("score", "value"), rows)
    return TextScore(name, len(texts), "documents", figures, [table], details)


def _unit(key: str) -> str:
    if key == "loss":
        return "nats a token"
    return key.replace("_per_", " a ") if key.startswith("bits") else ""
