"""``heedful tag``: a tag for each word of each line."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli.answering import (
    Encoding,
    File,
    Head,
    Json,
    Output,
    TraceFile,
    bar,
    check_outputs,
    save_trace,
    the_only,
)
from heedful.tasks.options import Checkpoint, Device, Precision, Threads, use_threads

if TYPE_CHECKING:
    from heedful.basics.progress import Advance
    from heedful.inference.tagger import Tagger


def tag(
    run: Annotated[Path, typer.Argument(help="The run that tags.")],
    file: File = "-",
    encoding: Encoding = None,
    output: Output = None,
    words: Annotated[
        bool, typer.Option("--words", help="Write each word and its tag, word/TAG, not tags only.")
    ] = False,
    json: Json = False,
    trace: TraceFile = None,
    head: Head = None,
    checkpoint: Checkpoint = None,
    device: Device = "auto",
    threads: Threads = None,
    precision: Precision = "float32",
) -> None:
    """Tag: a sentence a line in, words parted by spaces; as many tags a line out.

    An empty line stays empty. Marks of punctuation are words if spaces part them, as in the data
    that the run has learnt from.

    Examples:

        echo "The dog sees a cat ." | heedful tag runs/tags --words

        heedful tag runs/tags sentences.txt --json --output tags.jsonl
    """
    check_outputs(output, trace)
    use_threads(threads)
    from heedful.inference.files import line_windows, write_lines
    from heedful.tasks.texts.loading import load_tagger

    tagger = load_tagger(run, head=head, device=device, precision=precision, checkpoint=checkpoint)
    windows = line_windows(file, encoding=encoding)
    if trace is not None:
        windows = _traced(tagger, windows, trace)
    with bar("tagging", file, output, "sentences") as advance:
        lines = _lines(tagger, windows, advance, words=words, json=json)
        write_lines(lines, output, "answer")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(no_args_is_help=True)(tag)


def _lines(
    tagger: "Tagger",
    windows: Iterator[list[str]],
    advance: "Advance | None",
    *,
    words: bool,
    json: bool,
) -> Iterator[list[str]]:
    from json import dumps

    sentences = ([line.split() for line in window] for window in windows)
    for found in tagger.tag_blocks(sentences, advance=advance):
        if json:
            yield [dumps(one.to_json(), ensure_ascii=False) for one in found]
        elif words:
            pairs = [zip(one.words, one.tags, strict=True) for one in found]
            yield [" ".join(f"{word}/{tag}" for word, tag in own) for own in pairs]
        else:
            yield [" ".join(one.tags) for one in found]


def _traced(tagger: "Tagger", windows: Iterator[list[str]], path: Path) -> Iterator[list[str]]:
    """The one sentence that there is, its trace having been written."""
    line = the_only(line for window in windows for line in window)
    save_trace(tagger.trace(line.split()), path)
    yield [line]
