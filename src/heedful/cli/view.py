"""``heedful view``: what a run attends to, in the browser or as one HTML file."""

import threading
import webbrowser
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple
from urllib.parse import urlencode

import typer

from heedful.basics.errors import UserError
from heedful.cli.commands import add_command
from heedful.tasks.options import Checkpoint, Device, Threads, use_threads

if TYPE_CHECKING:
    from heedful.inference import Trace
    from heedful.serving import Served

_TRACE = ".safetensors"


@dataclass(frozen=True)
class View:
    """Look at what a model attends to.

    Without --output or --save a page opens in the browser, served to this machine alone; Ctrl-C
    ends it.

    Examples:

        heedful view runs/en-de

        heedful view runs/en-de "The small dog sees the red house." --output view.html

        heedful view runs/en-de "The small dog." --with runs/bahdanau --output both.html

        heedful view runs/mood "a film that one remembers"

        heedful view trace.safetensors
    """

    what: Annotated[
        Path,
        typer.Argument(metavar="RUN|TRACE", help="A run, or a saved trace (.safetensors)."),
    ]
    text: Annotated[
        str | None,
        typer.Argument(help="What to look at; in the browser it can be typed there."),
    ] = None
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            help="The translation to look at, a pair's second text, or what follows a prompt; "
            "default: the run's own.",
        ),
    ] = None
    beside: Annotated[
        list[Path] | None,
        typer.Option("--with", help="A further run or trace, to compare; repeatable."),
    ] = None
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write one HTML file that needs nothing else."),
    ] = None
    save: Annotated[
        Path | None, typer.Option("--save", help="Write the trace itself (.safetensors).")
    ] = None
    port: Annotated[int, typer.Option(help="Of the page; 0 is any free one.")] = 0
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Whether to open the page.")
    ] = True
    checkpoint: Checkpoint = None
    device: Device = "auto"
    threads: Threads = None


def _run(options: View) -> None:
    """Run the command."""
    use_threads(options.threads)
    save, output = options.save, options.output
    places = [options.what, *(options.beside or [])]
    outputs = [_named(path, ending) for path, ending in ((output, ".html"), (save, _TRACE)) if path]
    opened = _opened(places, options.checkpoint, options.device)
    if not outputs:
        _serve(opened, options)
        return
    made = _traced(opened, options.text, options.target)
    if save is not None:
        if len(made) > 1:
            raise UserError("--save writes one trace; leave --with out")
        made[0].save(save)
    if output is not None:
        from heedful.viewing.page import export_html

        export_html(made, output)


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, "view", View, _run)


def _named(path: Path, ending: str) -> Path:
    from heedful.inference.files import check_output

    check_output(path)
    if path.suffix != ending:
        raise UserError(f"{path}: its name has to end in {ending}")
    return path


class _Opened(NamedTuple):
    """What the page is to show, each by a name of its own."""

    models: "list[Served]"
    traces: "dict[str, Trace]"


def _opened(places: list[Path], checkpoint: str | None, device: str) -> _Opened:
    """The runs, and the traces."""
    from heedful.inference import Trace
    from heedful.interop.ctranslate2_facts import is_export
    from heedful.serving.loading import load_all
    from heedful.serving.served import names_of

    files = [place for place in places if place.suffix == _TRACE]
    runs = [place for place in places if place.suffix != _TRACE]
    for run in runs:
        if is_export(run):
            raise UserError(
                f"{run} was exported for CTranslate2, which shows no attention: view the run that "
                "it was made from"
            )
    traces = {
        name.removesuffix(_TRACE): Trace.load(file)
        for file, name in zip(files, names_of(files), strict=True)
    }
    models = load_all(runs, [], several=True, checkpoint=checkpoint, device=device)
    return _Opened(models, traces)


def _traced(opened: _Opened, text: str | None, target: str | None) -> list["Trace"]:
    """What the runs make of the text, and the traces that there are."""
    models, traces = opened
    if models and text is None:
        raise UserError('a run needs a text to look at: heedful view RUN "TEXT" --output FILE')
    if not models and (text is not None or target is not None):
        raise UserError("a saved trace has its texts; leave TEXT and --target out")
    made = {one.name: _measured(one, text or "", target) for one in models}
    if len(made) > 1:  # to tell them apart
        made = {name: replace(one, title=f"{name}: {one.title}") for name, one in made.items()}
    return [*made.values(), *traces.values()]


def _measured(model: "Served", text: str, target: str | None) -> "Trace":
    """A trace with the sentence's faithfulness, where there is one."""
    trace = model.trace(text, target, relevance=True)
    if len(trace.decided) < 2 or len(text.split()) < 2:
        return trace  # nothing written, or nothing to leave out
    return replace(trace, faithfulness=model.spec.faithfulness(model.predictor, text, target))


def _serve(opened: _Opened, options: View) -> None:
    from heedful.serving import LOOPBACK, make_application, run_server
    from heedful.serving.server import address_of, end_command, open_port

    models, traces = opened
    text, target = options.text, options.target
    if target is not None and all(model.spec.translates for model in models):
        raise UserError("--target is for --output and --save; on the page it is typed")
    if target is not None and text is None:
        raise UserError("--target is what goes with TEXT; give both")
    if text is not None and not models:
        raise UserError("a saved trace has its texts; leave TEXT out")
    with open_port(LOOPBACK[0], options.port) as listening:
        if options.browser:
            given = {"text": text, "second": target}
            typed = urlencode({name: value for name, value in given.items() if value})
            page = address_of(listening) + (f"#{typed}" if typed else "")
            threading.Timer(0.5, webbrowser.open, [page]).start()
        application = make_application(models, traces=traces, hosts=LOOPBACK)
        names = [*(one.name for one in models), *traces]
        run_server(application, listening=listening, what=", ".join(names))
    end_command(application)
