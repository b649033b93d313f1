"""How good a run for single texts is, on the test examples that it keeps or on others."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from heedful.basics.errors import UserError
from heedful.data.examples import Labelled, Tagged
from heedful.evaluation.classification import score_classification, score_tagging
from heedful.evaluation.report import ReportTable
from heedful.runs.run import Run
from heedful.runs.summary import record
from heedful.tasks.masked.learning import MaskedTask
from heedful.tasks.texts.building import sentence_pairs
from heedful.tasks.texts.loading import load_classifier, load_filler, load_generator, load_tagger
from heedful.tasks.texts.preparation import write_sentences
from heedful.tasks.texts.reading import read
from heedful.tasks.texts.recipe import (
    ClassificationHead,
    EncoderRecipe,
    FileSettings,
    LabelledData,
    LanguageRecipe,
    MaskedHead,
    TaggedData,
    TaggingHead,
)
from heedful.tasks.texts.run import Example, TextRun
from heedful.tasks.texts.sources import Examples


class TextScore(NamedTuple):
    """What one thing that was learnt has scored."""

    name: str
    examples: int
    unit: str
    figures: Mapping[str, float]
    tables: Sequence[ReportTable]
    """For people."""
    details: Mapping[str, Any]
    """All that was measured, as JSON."""


def score_text_run(
    run: TextRun,
    *,
    data: Sequence[str] | None = None,
    encoding: str | None = None,
    head: str | None = None,
    mistakes: int = 10,
    device: str = "auto",
    precision: str = "float32",
    checkpoint: str | int | None = None,
) -> list[TextScore]:
    """Score each thing that a run has learnt.

    Args:
        run: the run.
        data: files, in the form of the run's own; its test examples if None.
        encoding: of those files, if it is not the recipe's.
        head: only this one, of a run that learnt several.
        mistakes: how many of the worst to show.
        device: ``auto``, ``cpu``, ``cuda`` or ``mps``.
        precision: as in :func:`heedful.tasks.texts.loading.load_classifier`.
        checkpoint: likewise.

    Raises:
        UserError: there is nothing to score, or a file cannot be used.
    """
    chosen = {"device": device, "precision": precision, "checkpoint": checkpoint}
    recipe = run.recipe
    if isinstance(recipe, LanguageRecipe):
        return [_language(run, recipe, data, encoding, chosen)]
    if not isinstance(recipe, EncoderRecipe):
        raise TypeError(f"no scores for {recipe.task}")
    heads = recipe.heads()
    if head is not None and head not in heads:
        raise UserError(f"{run.path} has no head '{head}'; there are {', '.join(heads)}")
    if data is not None and head is None and len(heads) > 1:
        raise UserError(f"{run.path} has learnt several things: say which data are for (--head)")
    scores = []
    for name, settings in heads.items():
        if head not in (None, name):
            continue
        examples = _examples(run, name, settings.data, data, encoding)
        if not examples and len(heads) == 1:
            raise _nothing(run)
        if not examples:
            continue
        if isinstance(settings, ClassificationHead):
            scores.append(_classification(run, name, examples, mistakes, chosen))
        elif isinstance(settings, TaggingHead):
            scores.append(_tagging(run, name, examples, mistakes, chosen))
        else:
            scores.append(_masked(run, name, settings, examples, chosen))
    if not scores:
        raise _nothing(run)
    return scores


def _nothing(run: TextRun) -> UserError:
    return UserError(
        f"{run.path} keeps no test examples (its recipe names no data.test); give files with --data"
    )


def _examples(
    run: TextRun,
    name: str,
    own: FileSettings,
    data: Sequence[str] | None,
    encoding: str | None,
) -> Sequence[Example]:
    if data is None:
        if isinstance(own, LabelledData):
            return run.labelled(name, "test")
        return (
            run.tagged(name, "test") if isinstance(own, TaggedData) else run.documents(name, "test")
        )
    nothing = {"validation": [], "test": [], "validation_share": 0.0, "test_share": 0.0}
    chosen = {} if encoding is None else {"encoding": encoding}
    others = own.model_copy(update={"train": list(data), **nothing, **chosen})
    with tempfile.TemporaryDirectory() as folder:
        return list(Examples(name, others, run.recipe.seed, Path(folder), None).of("train"))


def _classification(
    run: TextRun, name: str, examples: Sequence[Example], mistakes: int, chosen: dict[str, Any]
) -> TextScore:
    found = [example for example in examples if isinstance(example, Labelled)]
    classifier = load_classifier(run.path, head=name, **chosen)
    given = classifier.classify([read(example) for example in found])
    labels = [one.label or classifier.labels[0] for one in given]
    report = score_classification(
        [example.label for example in found],
        labels,
        labels=classifier.labels,
        probabilities=[one.probability for one in given],
        texts=[example.texts for example in found],
        worst=mistakes,
        unseen="count",
    )
    return TextScore(name, len(found), "texts", report.figures(), report.tables(), report.as_json())


def _tagging(
    run: TextRun, name: str, examples: Sequence[Example], mistakes: int, chosen: dict[str, Any]
) -> TextScore:
    found = [example for example in examples if isinstance(example, Tagged)]
    tagger = load_tagger(run.path, head=name, **chosen)
    given = tagger.taggings([example.words for example in found])
    report = score_tagging(
        [example.tags for example in found],
        [one.tags for one in given],
        labels=tagger.tags,
        words=[example.words for example in found],
        probabilities=[one.probabilities for one in given],
        worst=mistakes,
        unseen="count",
    )
    words = sum(len(example.words) for example in found)
    return TextScore(name, words, "words", report.figures(), report.tables(), report.as_json())


def _masked(
    run: TextRun,
    name: str,
    head: MaskedHead,
    examples: Sequence[Example],
    chosen: dict[str, Any],
) -> TextScore:
    filler = load_filler(run.path, head=name, **chosen)
    recipe = run.recipe
    if not isinstance(recipe, EncoderRecipe):
        raise TypeError("hidden tokens are told by an encoder")
    texts = (text for text in examples if isinstance(text, str))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "test"
        write_sentences(texts, filler.vocabulary, path, recipe.max_tokens, head)
        # What is hidden depends on the batches: as at validation, so that figures compare.
        limits = (recipe.max_tokens, recipe.training.batch_tokens)
        rows_of_text = sentence_pairs(path, filler.vocabulary, head, *limits)
        task = MaskedTask(filler.model, rows_of_text, rows_of_text, name=name, device=filler.device)
        figures = task.validate().figures
    rows = [(key, f"{value:.4f}") for key, value in figures.items()]
    table = ReportTable(f"{name}: {len(examples):,} documents", ("score", "value"), rows)
    return TextScore(name, len(examples), "documents", figures, [table], dict(figures))


def _language(
    run: TextRun,
    recipe: LanguageRecipe,
    data: Sequence[str] | None,
    encoding: str | None,
    chosen: dict[str, Any],
) -> TextScore:
    name = next(iter(recipe.sets()))
    texts = [
        text for text in _examples(run, name, recipe.data, data, encoding) if isinstance(text, str)
    ]
    if not texts:
        raise _nothing(run)
    generator = load_generator(run.path, **chosen)
    found = generator.perplexity(texts, joined=True)
    details = found.to_json()
    figures = {
        "loss": -found.log_probability / max(1, found.tokens),
        **{key: value for key, value in details.items() if key.startswith(("perplexity", "bits"))},
    }
    rows = [(key.replace("_", " "), f"{value:.4f}") for key, value in figures.items()]
    rows += [(key, f"{details[key]:,}") for key in ("tokens", "words", "lines", "bytes", "unknown")]
    table = ReportTable(f"{len(texts):,} documents", ("score", "value"), rows)
    return TextScore(name, len(texts), "documents", figures, [table], details)


def joined_tables(scores: Sequence[TextScore]) -> list[ReportTable]:
    """All tables; with the name of what was learnt before the title where there are several."""
    if len(scores) == 1:
        return list(scores[0].tables)
    return list(
        chain.from_iterable(
            [replace(table, title=f"{score.name}: {table.title}") for table in score.tables]
            for score in scores
        )
    )


def record_text_scores(run: Run, scores: Sequence[TextScore], how: dict[str, Any]) -> None:
    """Keep what a run scored on its own test set; equal scorings are kept once.

    Args:
        run: the run.
        scores: of each thing that it learnt.
        how: the checkpoint and precision that were used.
    """
    named = {
        f"{score.name}.{key}" if len(scores) > 1 else key: {"value": value, "low": None}
        for score in scores
        for key, value in score.figures.items()
    }
    record(run, {**how, "scores": named})
