"""``heedful classify``: the label of each text, and the words that it depends on."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedful.basics.errors import UserError
from heedful.tasks.line_commands import (
    Encoding,
    File,
    Head,
    Json,
    Output,
    TraceFile,
    bar,
    check_outputs,
    numbered,
    save_trace,
)
from heedful.tasks.options import Checkpoint, Device, Precision, Threads, opening_of, use_threads
from heedful.tasks.texts.pairs import text_of_line

if TYPE_CHECKING:
    from heedful.inference.classifier import Classifier
    from heedful.inference.explaining import Explanation, Labelled
    from heedful.inference.text_reader import Advance, Text
    from heedful.tasks.multi_label.predictor import MultiLabelClassifier

    AnyClassifier = Classifier | MultiLabelClassifier

_WORDS_SHOWN = 5
_LEAST = 0.005
_TABLE_WINDOW = 10_000


@dataclass(frozen=True)
class Classify:
    """Classify texts: one label for each text, in the same order; empty for an empty text.

    A run for task = "multi-label" gives any number of labels, with data.separator between them. For
    a model of pairs, separate the two texts of a line with a TAB.

    Examples:

        echo "a film that one remembers" | heedful classify runs/mood --explain

        heedful classify runs/teams mails.csv --text body --json --output teams.jsonl

        echo "a film that one remembers" | heedful classify runs/mood --trace film.safetensors
    """

    run: Annotated[Path, typer.Argument(help="The run of a classifier.")]
    file: File = "-"
    text: Annotated[
        list[str] | None,
        typer.Option(
            "--text",
            metavar="COLUMN",
            help="Read FILE as a table (CSV, TSV, JSON lines) with the text in this column (name "
            "or number from 1); give it twice for pairs.",
        ),
    ] = None
    encoding: Encoding = None
    output: Output = None
    scores: Annotated[
        bool,
        typer.Option("--scores", help="Append a TAB and the probability of each label."),
    ] = False
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="Append a TAB and the words that the probability of the label depends on most; "
            "with several labels, for each of them.",
        ),
    ] = False
    json: Json = False
    trace: TraceFile = None
    head: Head = None
    checkpoint: Checkpoint = None
    device: Device = "auto"
    threads: Threads = None
    precision: Precision = "float32"


def run(options: Classify) -> None:
    """Run the command."""
    check_outputs(options.output, options.trace)
    if options.json and options.scores:
        raise UserError("--json includes the scores; leave out --scores")
    use_threads(options.threads)
    from heedful.inference.files import write_lines

    classifier = _load(options)
    windows = _windows(classifier, options.file, options.text, options.encoding)
    if options.trace is not None:
        windows = _traced(classifier, windows, options.trace)
    answer = _Answer(
        classifier, scores=options.scores, explained=options.explain, json=options.json
    )
    with bar("classifying", options.file, options.output, "texts") as advance:
        write_lines(answer.lines(windows, advance), options.output, "answer")


def _load(options: Classify) -> "AnyClassifier":
    """The classifier of the run, for one label or for several.

    Raises:
        UserError: the run is not one of a classifier.
    """
    from heedful.tasks.spec import spec_of_run
    from heedful.tasks.texts.loading import load_classifier

    _, spec = spec_of_run(options.run)
    if spec.gives_sets and spec.command == "classify":
        found: MultiLabelClassifier = spec.load(
            options.run, head=options.head, **opening_of(options)
        )
        return found
    return load_classifier(options.run, head=options.head, **opening_of(options))


def _windows(
    classifier: "AnyClassifier", file: str, columns: list[str] | None, encoding: str | None
) -> "Iterator[list[Text]]":
    """The texts, in windows that are batched together."""
    from heedful.data.readers import read_texts
    from heedful.inference.files import line_windows

    if not columns:
        for first, lines in numbered(line_windows(file, encoding=encoding)):
            yield [
                text_of_line(line, classifier.pairs, first + place)
                for place, line in enumerate(lines)
            ]
        return
    window: list[Text] = []
    for texts in read_texts(file, text=columns, encoding=encoding):
        window.append(texts[0] if len(texts) == 1 else (texts[0], texts[1]))
        if len(window) == _TABLE_WINDOW:
            yield window
            window = []
    yield window


def _traced(
    classifier: "AnyClassifier", windows: "Iterator[list[Text]]", path: Path
) -> "Iterator[list[Text]]":
    """Write the trace of the only text, then yield all texts."""
    every = list(windows)
    texts = [text for window in every for text in window if "".join(text).strip()]
    if len(texts) != 1:
        raise UserError(f"--trace needs one text; the input has {len(texts):,}")
    save_trace(classifier.trace(texts[0]), path)
    yield from every


class _Answer:
    """Writes the results."""

    def __init__(
        self, classifier: "AnyClassifier", *, scores: bool, explained: bool, json: bool
    ) -> None:
        self.classifier, self.scores = classifier, scores
        self.explained, self.json = explained, json
        self.separator: str | None = getattr(classifier, "separator", None)
        """Stands between labels; None if texts have one label."""

    def lines(
        self, windows: "Iterator[list[Text]]", advance: "Advance | None"
    ) -> Iterator[Iterator[str]]:
        """One line per text, window by window."""
        report: Advance = advance or (lambda count: None)
        if self.explained:
            number = 0
            for window in windows:
                yield (
                    self._explained(text, number + place, report)
                    for place, text in enumerate(window, start=1)
                )
                number += len(window)
            return
        for found in self.classifier.classify_blocks(windows, advance=report):
            yield map(self._line, found)

    def _line(self, one: "Labelled") -> str:
        from json import dumps

        if self.json:
            return dumps(one.to_json(), ensure_ascii=False)
        if not one.given:
            return ""
        between = self.separator or ""
        if not self.scores:
            return between.join(one.given)
        scores = (f"{one.probabilities[label]:.4f}" for label in one.given)
        return f"{between.join(one.given)}\t{between.join(scores)}"

    def _explained(self, text: "Text", number: int, advance: "Advance") -> str:
        from json import dumps

        from heedful.inference.explaining import explain

        advance(1)
        rows = self.classifier.rows(text)
        if not rows:
            return self._line(self.classifier.classify_rows([[]])[0])
        try:
            if self.separator is not None:
                return self._explained_labels(text)
            found = explain(self.classifier, text)
        except UserError as error:
            raise UserError(f"text {number}: {error}") from error
        if self.json:
            return dumps(found.to_json(), ensure_ascii=False)
        return f"{self._line(found.classification)}\t{_words(found)}"

    def _explained_labels(self, text: "Text") -> str:
        """The labels of a text, and the words of each."""
        from json import dumps

        from heedful.inference.explaining import explain
        from heedful.inference.text_reader import only_row

        row = only_row(self.classifier.rows(text), self.classifier.max_length)
        (whole,) = self.classifier.classify_rows([[row]])
        found = [explain(self.classifier, text, label=label) for label in whole.given]
        if not self.json:
            return "\t".join([self._line(whole), *map(_words, found)])
        words = {one.label: one.to_json()["words"] for one in found}
        return dumps({**whole.to_json(), "words": words}, ensure_ascii=False)


def _words(found: "Explanation[Any]") -> str:
    """The most important words, each with the fall in the label's probability without it.

    If the probability hardly changes (the label is almost certain), the change in log-odds is used.
    """
    most = sorted(found.words, key=lambda one: -abs(one.fall))[:_WORDS_SHOWN]
    shown = [f"{one.word}:{one.fall:.2f}" for one in most if abs(one.fall) >= _LEAST]
    if not shown:
        most = sorted(found.words, key=lambda one: -abs(one.log_odds))[:_WORDS_SHOWN]
        shown = [f"{one.word}:{one.log_odds:.2f}nat" for one in most]
    return " ".join(shown)
