"""``heedful view``: inspect attention in the browser or in one HTML file."""

import threading
import webbrowser
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple
from urllib.parse import urlencode

import typer

from heedful.basics.errors import UserError
from heedful.basics.notices import notice
from heedful.cli.commands import add_command
from heedful.tasks.options import Checkpoint, Device, Threads, use_threads

if TYPE_CHECKING:
    from heedful.inference import Trace
    from heedful.serving import Served

_TRACE = ".safetensors"
_LONGEST_ADDRESS = 60_000
"""Characters of a page's address; systems limit those of a program's arguments."""


@dataclass(frozen=True)
class View:
    """Inspect the attention of a model.

    Without --output or --save, a page opens in the browser. Its server accepts only connections
    from this machine. Press Ctrl-C to stop it.

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
        typer.Argument(help="The input text; in the browser, you can type it on the page."),
    ] = None
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            help="The translation, the second text of a pair, or the continuation of a prompt; "
            "default: the run's own output.",
        ),
    ] = None
    beside: Annotated[
        list[Path] | None,
        typer.Option("--with", help="Another run or trace to compare with; repeatable."),
    ] = None
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write one self-contained HTML file."),
    ] = None
    save: Annotated[Path | None, typer.Option("--save", help="Write the trace (.safetensors).")] = (
        None
    )
    port: Annotated[int, typer.Option(help="Port of the page; 0 for any free port.")] = 0
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")
    ] = True
    checkpoint: Checkpoint = None
    device: Device = "auto"
    threads: Threads = None


def _run(options: View) -> None:
    """Run the command."""
    use_threads(options.threads)
    save, output = options.save, options.output
    places = [options.what, *(options.beside or [])]
    outputs = [
        _check_name(path, ending) for path, ending in ((output, ".html"), (save, _TRACE)) if path
    ]
    opened = _open(places, options.checkpoint, options.device)
    if not outputs:
        _serve(opened, options)
        return
    made = _traces(opened, options.text, options.target)
    if save is not None:
        if len(made) > 1:
            raise UserError("--save writes one trace; leave out --with")
        made[0].save(save)
    if output is not None:
        from heedful.viewing.page import export_html

        export_html(made, output)


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, "view", View, _run)


def _check_name(path: Path, ending: str) -> Path:
    from heedful.inference.files import check_output

    check_output(path)
    if path.suffix != ending:
        raise UserError(f"{path}: the file name must end in {ending}")
    return path


class _Opened(NamedTuple):
    """The models and traces to show, each with a unique name."""

    models: "list[Served]"
    traces: "dict[str, Trace]"


def _open(places: list[Path], checkpoint: str | None, device: str) -> _Opened:
    """Load the runs and the saved traces."""
    from heedful.inference import Trace
    from heedful.interop.ctranslate2_facts import is_export
    from heedful.serving.loading import load_all
    from heedful.serving.served import unique_names

    files = [place for place in places if place.suffix == _TRACE]
    runs = [place for place in places if place.suffix != _TRACE]
    for run in runs:
        if is_export(run):
            raise UserError(
                f"{run} was exported for CTranslate2, which gives no attention weights: view the "
                "run that it was exported from"
            )
    traces = {
        name.removesuffix(_TRACE): Trace.load(file)
        for file, name in zip(files, unique_names(files), strict=True)
    }
    models = load_all(runs, [], several=True, examples=True, checkpoint=checkpoint, device=device)
    return _Opened(models, traces)


def _traces(opened: _Opened, text: str | None, target: str | None) -> list["Trace"]:
    """A trace of the text for each run, then the saved traces."""
    models, traces = opened
    if models and text is None:
        raise UserError('a run needs a text: heedful view RUN "TEXT" --output FILE')
    if not models and (text is not None or target is not None):
        raise UserError("a saved trace contains its texts; leave out TEXT and --target")
    made = {one.name: _trace_with_faithfulness(one, text or "", target) for one in models}
    if len(made) > 1:  # distinguish their titles
        made = {name: replace(one, title=f"{name}: {one.title}") for name, one in made.items()}
    return [*made.values(), *traces.values()]


def _trace_with_faithfulness(model: "Served", text: str, target: str | None) -> "Trace":
    """The trace of a text, with its faithfulness if the task computes one."""
    text = model.spec.read_argument(text)
    trace = model.trace(text, target, relevance=True)
    if len(trace.decided) < 2 or len(text.split()) < 2:
        return trace  # no output, or no word that can be left out
    return replace(trace, faithfulness=model.spec.faithfulness(model.predictor, text, target))


def _serve(opened: _Opened, options: View) -> None:
    from heedful.serving import LOOPBACK, make_application, run_server
    from heedful.serving.port import address_of, open_port
    from heedful.serving.server import end_command

    models, traces = opened
    text, target = options.text, options.target
    if target is not None and not any(model.spec.panel.takes_second for model in models):
        raise UserError("--target needs --output or --save; on the page, type the target")
    if target is not None and text is None:
        raise UserError("--target needs TEXT; give both")
    if text is not None and not models:
        raise UserError("a saved trace contains its texts; leave out TEXT")
    shown = models[0].spec.read_argument(text) if text is not None else None
    fragment = _fragment(shown, target)
    with open_port(LOOPBACK[0], options.port) as listening:
        page = address_of(listening) + fragment
        if options.browser:
            threading.Timer(0.5, webbrowser.open, [page]).start()
        elif fragment:
            notice(f"the page with this input: {page}")
        application = make_application(models, traces=traces, hosts=LOOPBACK)
        names = [*(one.name for one in models), *traces]
        run_server(application, listening=listening, what=", ".join(names))
    end_command(application)


def _fragment(text: str | None, second: str | None) -> str:
    """The end of the page's address that has the input."""
    inputs = {name: value for name, value in (("text", text), ("second", second)) if value}
    fragment = urlencode(inputs)
    if len(fragment) > _LONGEST_ADDRESS:
        notice("the input is too long for the address of the page; enter it on the page")
        return ""
    return f"#{fragment}" if fragment else ""
