"""``heedful generate``: a language model continues prompts."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedful.basics.errors import UserError
from heedful.tasks.line_commands import (
    Encoding,
    Json,
    Output,
    TraceFile,
    bar,
    check_outputs,
    numbered,
    save_trace,
)
from heedful.tasks.options import (
    Checkpoint,
    Device,
    SearchPrecision,
    Threads,
    opening_of,
    use_threads,
)

if TYPE_CHECKING:
    from heedful.basics.progress import Advance
    from heedful.decoding import SearchOptions
    from heedful.inference.generator import Generated, Generator

_WINDOW = 256  # prompts per window; generation takes a while for each


@dataclass(frozen=True)
class Generate:
    """Continue a prompt; the text is printed while it is generated.

    Without --prompt, prompts are read from FILE, one per line. Each output line contains a prompt
    and its continuation, with line breaks replaced by spaces. --json keeps line breaks, and writes
    prompt and continuation separately.

    Examples:

        heedful generate runs/gpt --prompt "Once upon a time" --temperature 0.8 --top-k 40

        heedful generate runs/gpt --prompt "ROMEO:" --beam 1 --max-tokens 40 --stop "\\n\\n"

        heedful generate runs/gpt prompts.txt --nbest 3 --output texts.jsonl
    """

    run: Annotated[Path, typer.Argument(help="The run of a language model.")]
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="One prompt per line; may be gzip- or xz-compressed; default or -: standard "
            "input.",
        ),
    ] = "-"
    encoding: Encoding = None
    prompt: Annotated[
        str | None,
        typer.Option("--prompt", help="The text to continue; empty to begin a document."),
    ] = None
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", help="Maximum number of generated tokens.")
    ] = 256
    stop: Annotated[
        list[str] | None,
        typer.Option("--stop", help="Stop before this string (\\n is a line break); repeatable."),
    ] = None
    begins: Annotated[
        bool, typer.Option("--begins", help="Treat each prompt as the beginning of a document.")
    ] = False
    nbest: Annotated[
        int, typer.Option("--nbest", help="Number of texts per prompt, written as JSON lines.")
    ] = 1
    beam: Annotated[
        int | None, typer.Option("--beam", help="Beam search instead of sampling; 1 is greedy.")
    ] = None
    length_penalty: Annotated[
        float | None,
        typer.Option(help="Exponent of the length penalty; higher values favour longer output."),
    ] = None
    temperature: Annotated[
        float | None, typer.Option(help="Sampling temperature; below 1 is less random.")
    ] = None
    top_k: Annotated[int | None, typer.Option(help="Sample from the K most probable tokens.")] = (
        None
    )
    top_p: Annotated[
        float | None,
        typer.Option(help="Sample from the most probable tokens with this total probability."),
    ] = None
    seed: Annotated[int | None, typer.Option(help="Seed of sampling.")] = None
    output: Output = None
    json: Json = False
    trace: TraceFile = None
    checkpoint: Checkpoint = None
    device: Device = "auto"
    threads: Threads = None
    precision: SearchPrecision = "float32"


def run(options: Generate) -> None:
    """Run the command."""
    check_outputs(options.output, options.trace)
    if options.prompt is not None and options.file != "-":
        raise UserError(f"both --prompt and {options.file} are given; leave one of them out")
    if options.prompt is None and options.file == "-" and sys.stdin.isatty():
        raise UserError('give a prompt: heedful generate RUN --prompt "TEXT"')
    if options.trace is not None and (options.prompt is None or options.nbest > 1):
        raise UserError("--trace needs one text; give --prompt, and leave out --nbest")
    search = _search_of(options)
    use_threads(options.threads)
    from heedful.tasks.texts.loading import load_generator

    generator = load_generator(options.run, **opening_of(options))
    how: dict[str, Any] = {
        "options": search,
        "max_tokens": options.max_tokens,
        "stop": [one.replace("\\n", "\n").replace("\\t", "\t") for one in options.stop or []],
        "begins": options.begins,
    }
    as_json = options.json or options.nbest > 1
    if options.prompt is None:
        _answer_lines(
            generator, (options.file, options.encoding), options.output, how, json=as_json
        )
        return
    found = _answer(generator, options.prompt, options.output, how, json=as_json)
    if options.trace is not None:
        save_trace(
            generator.trace(options.prompt, found[0].text, begins=options.begins), options.trace
        )


def _search_of(options: Generate) -> "SearchOptions":
    """Search options: sampling, or beam search if a beam is given.

    Raises:
        UserError: a setting is out of range, or two exclude each other.
    """
    from heedful.basics.settings import check
    from heedful.decoding import SearchOptions

    beam, nbest, penalty = options.beam, options.nbest, options.length_penalty
    sampling = {
        "temperature": options.temperature,
        "top_k": options.top_k,
        "top_p": options.top_p,
        "seed": options.seed,
    }
    given: dict[str, Any] = {name: one for name, one in sampling.items() if one is not None}
    if beam is not None and given:
        name = next(iter(given)).replace("_", "-")
        raise UserError(f"--{name} is for sampling, not for beam search; leave out one of them")
    if beam is None and penalty is not None:
        raise UserError("--length-penalty is for beam search; add --beam, or leave it out")
    if beam is not None and beam < 1:
        raise UserError(f"--beam {beam}: the minimum is 1")
    given |= {"sample": True} if beam is None else {"beam": max(beam, nbest)}
    given |= {} if penalty is None else {"length_penalty": penalty}
    return check(SearchOptions, {**given, "nbest": nbest}, "search options")


def _answer(
    generator: "Generator", prompt: str, output: Path | None, how: dict[str, Any], *, json: bool
) -> "list[Generated]":
    """Continue one prompt; the text is written piece by piece."""
    from heedful.inference.files import opened_output

    with opened_output(output) as lines:

        def show(piece: str) -> None:
            lines.write(piece.encode())
            lines.flush()

        if json:
            found = generator.generate(prompt, **how)
            show(_object(found) + "\n")
            return found
        before = [prompt]  # printed with the first piece, because the request may be refused

        def show_on(piece: str) -> None:
            show((before.pop() if before else "") + piece)

        found = generator.generate(prompt, **how, stream=show_on)
        show_on("\n")
    return found


def _answer_lines(
    generator: "Generator",
    file: tuple[str, str | None],
    output: Path | None,
    how: dict[str, Any],
    *,
    json: bool,
) -> None:
    """Continue each line of a file; ``file`` is its name and its encoding."""
    from heedful.inference.files import line_windows, write_lines

    windows = line_windows(file[0], encoding=file[1], size=_WINDOW)
    with bar("writing", file[0], output, "prompts") as advance:
        lines = _lines(generator, windows, how, advance, json=json)
        write_lines(lines, output, "text")


def _lines(
    generator: "Generator",
    windows: Iterator[list[str]],
    how: dict[str, Any],
    advance: "Advance | None",
    *,
    json: bool,
) -> Iterator[Iterator[str]]:
    for first, window in numbered(windows):
        found = generator.generate_all(window, **how, first=first - 1, advance=advance)
        yield (_object(own) if json else own[0].prompt + own[0].text for own in found)


def _object(found: "list[Generated]") -> str:
    from json import dumps

    best, *others = found
    return dumps({**best.to_json(), "alternatives": list(map(_own, others))}, ensure_ascii=False)


def _own(one: "Generated") -> dict[str, Any]:
    return {name: value for name, value in one.to_json().items() if name != "prompt"}
