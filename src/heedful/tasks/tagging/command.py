"""``heedful tag``: a tag for each word of each line."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
    with_trace,
)
from heedful.tasks.options import Checkpoint, Device, Precision, Threads, opening_of, use_threads

if TYPE_CHECKING:
    from heedful.basics.progress import Advance
    from heedful.inference.tagger import Tagger


@dataclass(frozen=True)
class Tag:
    """Tag words: one sentence per input line, one tag per word in the output line.

    Words are separated by spaces; separate punctuation marks as in the training data. Empty lines
    stay empty. Of a CoNLL-U file (.conllu), the sentences are its words; other columns are ignored.

    Examples:

        echo "The dog sees a cat ." | heedful tag runs/tags --words

        heedful tag runs/tags sentences.txt --json --output tags.jsonl
    """

    run: Annotated[Path, typer.Argument(help="The run of a tagger.")]
    file: File = "-"
    encoding: Encoding = None
    output: Output = None
    words: Annotated[bool, typer.Option("--words", help="Write word/TAG instead of tags only.")] = (
        False
    )
    json: Json = False
    trace: TraceFile = None
    head: Head = None
    checkpoint: Checkpoint = None
    device: Device = "auto"
    threads: Threads = None
    precision: Precision = "float32"


def run(options: Tag) -> None:
    """Run the command."""
    check_outputs(options.output, options.trace)
    if options.json and options.words:
        raise UserError("--json includes the words; leave out --words")
    use_threads(options.threads)
    from heedful.inference.files import write_lines
    from heedful.tasks.texts.loading import load_tagger

    tagger = load_tagger(options.run, head=options.head, **opening_of(options))
    sentences = _sentences(options.file, options.encoding)
    if options.trace is not None:
        sentences = _traced(tagger, sentences, options.trace)
    with bar("tagging", options.file, options.output, "sentences") as advance:
        lines = _lines(tagger, sentences, advance, words=options.words, json=options.json)
        write_lines(lines, options.output, "answer")


def _sentences(path: str, encoding: str | None) -> Iterator[list[list[str]]]:
    """The words of each sentence, in windows."""
    from heedful.data.readers.kinds import extension
    from heedful.data.readers.tagged import read_tagged
    from heedful.inference.files import line_windows
    from heedful.inference.line_windows import WINDOW

    if extension(path) == ".conllu":
        found = read_tagged(path, column="lemma", encoding=encoding)  # which may be "_"
        while window := [list(one.words) for one in islice(found, WINDOW)]:
            yield window
    else:
        for lines in line_windows(path, encoding=encoding):
            yield [line.split() for line in lines]


def _lines(
    tagger: "Tagger",
    sentences: Iterator[list[list[str]]],
    advance: "Advance | None",
    *,
    words: bool,
    json: bool,
) -> Iterator[list[str]]:
    from json import dumps

    for found in tagger.tag_blocks(sentences, advance=advance):
        if json:
            yield [dumps(one.to_json(), ensure_ascii=False) for one in found]
        elif words:
            pairs = [zip(one.words, one.tags, strict=True) for one in found]
            yield [" ".join(f"{word}/{tag}" for word, tag in own) for own in pairs]
        else:
            yield [" ".join(one.tags) for one in found]


def _traced(
    tagger: "Tagger", sentences: Iterator[list[list[str]]], path: Path
) -> Iterator[list[list[str]]]:
    """Write the trace of the only sentence, then yield all of them."""
    every = list(sentences)
    given = (words or None for window in every for words in window)
    for _ in with_trace(given, lambda words: tagger.trace(words), path, "sentence"):
        pass
    yield from every
