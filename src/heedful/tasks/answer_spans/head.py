"""The head of answers in texts: encoding of questions, the layer, and the training task."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from torch import nn

from heedful.basics.errors import UserError
from heedful.basics.notices import notice, once
from heedful.basics.symbols import END
from heedful.data import columns
from heedful.data.examples import SpanQuestion
from heedful.data.token_offsets import TokenLocator
from heedful.data.vocabularies import SavedVocabulary
from heedful.inference.span_reader import Question, SpanReader
from heedful.inference.span_windows import answer_in, right_in, windows_of
from heedful.models.encoders import HeadedEncoder
from heedful.models.span_layer import SpanLayer
from heedful.tasks.answer_spans.batches import SpanBatches
from heedful.tasks.answer_spans.training import SpanTask
from heedful.tasks.texts.examples import Examples
from heedful.tasks.texts.labelled_rows import encode_rows, output_layer
from heedful.tasks.texts.part import Training

_UNALIGNED = "unaligned"


def encode(
    folder: Path, settings: Any, examples: Examples, vocabulary: SavedVocabulary, max_tokens: int
) -> dict[str, Any]:
    """Write the encoded windows of questions; returns facts about them.

    Raises:
        UserError: a question leaves no room for its text.
    """
    locate = TokenLocator(vocabulary)
    codecs = {
        "tokens": columns.tokens(vocabulary.size),
        "boundaries": columns.tokens(max_tokens),
    }
    counts: Counter[str] = Counter(unanswerable=0, long_answers=0)

    def rows(example: SpanQuestion) -> Iterator[tuple[list[int], list[int]]]:
        located = locate(example.context)
        answer, exact = answer_in(example, located)
        counts["unanswerable"] += not example.answers
        counts[_UNALIGNED] += not exact
        counts["long_answers"] += answer is not None and _length(answer) > settings.longest_answer
        question = vocabulary.encode(example.question)
        try:
            windows = windows_of(question, located.tokens, max_tokens, settings.overlap)
        except UserError as error:
            raise UserError(f"{examples.name}: question {example.name}: {error}") from error
        for window in windows:
            joined = [*window.row.first, END, *(window.row.second or [])]
            yield joined, list(right_in(answer, window))

    counted = encode_rows(folder, examples, rows, codecs, max_tokens)
    _report(counts, counted["train"], settings.longest_answer)
    own = {key: counts[key] for key in ("unanswerable", "long_answers")}
    return {**counted, "unit": "questions", **own}


def _length(answer: tuple[int, int]) -> int:
    return answer[1] - answer[0] + 1


def _report(counts: Counter[str], questions: int, longest: int) -> None:
    if counts[_UNALIGNED]:
        notice(
            f"{counts[_UNALIGNED]:,} of {questions:,} training answers begin or end inside a "
            "token: the whole tokens are trained"
        )
    if counts["long_answers"]:
        notice(
            f"{counts['long_answers']:,} of {questions:,} training answers have more than "
            f"longest_answer = {longest} tokens: such answers are trained, but not given"
        )


def layers(
    name: str, settings: Any, encoder: Any, labels: int, recipe: Any
) -> dict[str, nn.Module]:
    """The span layer."""

    def layer(width: int, labels: int, dropout: float, max_norm: float | None) -> SpanLayer:
        return SpanLayer(width, dropout, encoder.span_widths)

    return {name: output_layer(layer, encoder.dim, labels, recipe, "tokens")}


def build_part(name: str, head: Any, training: Training) -> SpanTask:
    """The task for the training loop.

    Raises:
        UserError: a validation question leaves no room for its text.
    """
    run, settings, model = training.run, training.settings, cast(HeadedEncoder, training.model)
    facts = run.facts["sets"][name]
    reader = SpanReader(
        model,
        training.vocabulary,
        may_refuse=facts["unanswerable"] > 0,
        overlap=head.overlap,
        longest=head.longest_answer,
        head=name,
        device=training.device,
        notify=once(),
    )
    validation = run.questions(name, "validation")
    try:
        for number, one in enumerate(validation, start=1):
            reader.windows_of(Question(one.question, one.context), number)
    except UserError as error:
        raise UserError(f"{run.path}: validation {error}") from error
    return SpanTask(
        model,
        SpanBatches(
            run.set_folder(name) / "train",
            settings.batch_tokens,
            **training.reading(name),
        ),
        validation,
        reader,
        device=training.device,
        precision=training.precision,
    )
