"""``heedful serve``: the HTTP server and its page."""

import sys
import webbrowser
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedful.basics.errors import UserError
from heedful.basics.notices import notice
from heedful.cli.commands import add_command
from heedful.tasks.options import (
    Device,
    Engine,
    Quantization,
    SearchPrecision,
    Threads,
    check_threads,
    use_threads,
)

if TYPE_CHECKING:
    import socket

    from heedful.serving.limits import Limits
    from heedful.serving.setup import Setup


def _new_key(path: Path | None) -> None:
    if path is None:
        return
    from heedful.serving.keys import new_key

    key = new_key(path)
    print(key)
    typer.echo(
        f"heedful: the key is shown only once; its hash is in {path} "
        f"(heedful serve RUN --keys {path})",
        err=True,
    )
    raise typer.Exit


@dataclass(frozen=True)
class Serve:
    """Serve runs over HTTP: LibreTranslate's API, heedful's own API, and a page.

    Examples:

        heedful serve runs/en-de

        heedful serve runs/mood runs/gpt

        heedful serve runs/en-de runs/en-fr --host 0.0.0.0 --port 8080 --keys keys.txt

        heedful serve runs/en-de --workers 4 --threads 8

        heedful serve --new-key keys.txt
    """

    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN…",
            help="Runs of any task.",
        ),
    ]
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all networks.")] = (
        "127.0.0.1"
    )
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 for any free port.")
    ] = 5000
    languages: Annotated[
        list[str] | None,
        typer.Option(
            "--languages",
            metavar="RUN=en:de",
            help="Language codes of a run, if it has none or others are needed; repeatable.",
        ),
    ] = None
    keys: Annotated[Path | None, typer.Option(help="Require an API key from this file.")] = None
    new_key: Annotated[
        Path | None,
        typer.Option(
            "--new-key",
            metavar="FILE",
            callback=_new_key,
            is_eager=True,
            help="Print a new API key, add its hash to FILE, and exit.",
        ),
    ] = None
    cors: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN",
            help="Allow requests from pages of this origin; * for all; repeatable.",
        ),
    ] = None
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-host",
            metavar="NAME",
            help="A host name that clients use for this server, for example behind a proxy; * for "
            "any; repeatable.",
        ),
    ] = None
    split_sentences: Annotated[
        bool,
        typer.Option(
            "--split-sentences/--whole-lines",
            help="Split lines into sentences and translate each, or translate whole lines.",
        ),
    ] = True
    examples: Annotated[
        bool | None,
        typer.Option(
            "--examples/--no-examples",
            help="Offer short validation sentences of the runs as examples on the page; default: "
            "only if --host is a loopback address, because other people may read them.",
        ),
    ] = None
    queue: Annotated[
        int, typer.Option(min=1, help="Maximum waiting requests; further ones get status 429.")
    ] = 256
    gather: Annotated[
        float,
        typer.Option(min=0, max=1000, help="Milliseconds to wait for further requests of a batch."),
    ] = 5.0
    max_connections: Annotated[
        int,
        typer.Option(
            "--max-connections",
            min=1,
            help="Maximum open connections; further ones get status 503.",
        ),
    ] = 512
    head_timeout: Annotated[
        float,
        typer.Option(
            "--head-timeout", min=0.001, help="Seconds to wait for the headers of a request."
        ),
    ] = 10.0
    max_body: Annotated[
        int | None,
        typer.Option(
            "--max-body",
            min=1,
            help="Maximum bytes in the body of a request; default: 2 MiB, or 24 MiB if a model "
            "reads images or sounds.",
        ),
    ] = None
    max_characters: Annotated[
        int, typer.Option("--max-characters", min=1, help="Maximum characters in a request.")
    ] = 100_000
    max_texts: Annotated[
        int, typer.Option("--max-texts", min=1, help="Maximum texts in a request.")
    ] = 1_000
    timeout: Annotated[
        float, typer.Option(min=0.001, help="Seconds after which a request is cancelled.")
    ] = 60.0
    file_time: Annotated[
        float,
        typer.Option(
            "--file-time", min=0.001, help="Seconds after which a translated file is deleted."
        ),
    ] = 1800.0
    job_time: Annotated[
        float,
        typer.Option(
            "--job-time",
            min=0.001,
            help="Maximum seconds that a trace, a list of alternatives, a forced prefix or a "
            "generated text may take while other requests wait.",
        ),
    ] = 10.0
    grace: Annotated[
        float, typer.Option(min=0, help="Seconds to finish running requests at shutdown.")
    ] = 30.0
    log_requests: Annotated[
        bool, typer.Option("--log-requests", help="Log one line per request to standard error.")
    ] = False
    log_texts: Annotated[bool, typer.Option("--log-texts", help="Also log the texts.")] = False
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False
    device: Device = "auto"
    threads: Threads = None
    precision: SearchPrecision = "float32"
    engine: Engine = "torch"
    quantization: Quantization = None
    workers: Annotated[
        int,
        typer.Option(
            min=1,
            max=256,
            help="Processes that serve the port; --threads is divided among them.",
        ),
    ] = 1


def _run(options: Serve) -> None:
    """Run the command."""
    from heedful.serving.port import open_port

    setup = _setup(options)
    # Open the port before loading the models, so that a port in use fails at once.
    with open_port(options.host, options.port) as listening:
        if options.workers == 1:
            _serve(options, setup, listening)
        else:
            _serve_with_workers(options, setup, listening)


def _setup(options: Serve) -> "Setup":
    """What to serve.

    Raises:
        UserError: an option is invalid, or the file of keys cannot be read.
    """
    from heedful.serving.admission import host_names, is_loopback
    from heedful.serving.setup import Setup

    host, origins = options.host, options.cors or []
    hosts, addresses = host_names(host, options.allow_host or [])
    if options.keys is not None:
        from heedful.serving.keys import Keys

        Keys.read(options.keys)
    elif not is_loopback(host):
        notice(
            f"--host {host} without --keys: anyone who can reach port {options.port} can use the "
            "server; heedful serve --new-key FILE creates a key"
        )
    for origin in origins:
        if origin != "*" and not origin.startswith(("http://", "https://")):
            raise UserError(f"--cors {origin}: an origin is like https://example.org, or *")
    return Setup(
        runs=options.runs,
        languages=options.languages or [],
        keys=options.keys,
        origins=origins,
        hosts=sorted(hosts),
        addresses=addresses,
        split_sentences=options.split_sentences,
        examples=is_loopback(host) if options.examples is None else options.examples,
        log_requests=options.log_requests,
        log_texts=options.log_texts,
        engine={"engine": options.engine, "quantization": options.quantization},
        device=options.device,
        precision=options.precision,
        limits=_limits(options),
    )


def _serve(options: Serve, setup: "Setup", listening: "socket.socket") -> None:
    """Serve in this process."""
    use_threads(options.threads)
    import torch

    from heedful.serving.server import end_command, run_server

    models = setup.load()
    application = setup.application(models)
    run_server(
        application,
        listening=listening,
        open_page=options.open_page,
        what=", ".join(one.title for one in models),
        reload=partial(setup.reload, application, torch.get_num_threads()),
    )
    end_command(application)


def _serve_with_workers(options: Serve, setup: "Setup", listening: "socket.socket") -> None:
    """Serve in worker processes; this process imports no PyTorch."""
    from heedful.serving.port import address_of
    from heedful.serving.supervisor import run_workers

    address = address_of(listening)
    changed: dict[str, Any] = {}
    if options.threads is not None:
        check_threads(options.threads)
        changed["threads"] = max(1, options.threads // options.workers)
    if "heedful.runs.registry" in sys.modules:  # --plugin has imported it
        from heedful.runs.registry import loaded_files

        changed["plugins"] = loaded_files()

    def announce(titles: list[str]) -> None:
        what = f"{', '.join(titles)} with {options.workers} workers"
        notice(f"serving {what} at {address} (Ctrl-C stops)")
        if options.open_page:
            webbrowser.open(address)

    run_workers(setup.model_copy(update=changed), listening, options.workers, announce)


def _limits(options: Serve) -> "Limits":
    from heedful.serving.limits import Limits

    return Limits(
        queue=options.queue,
        gather_ms=options.gather,
        connections=options.max_connections,
        head_timeout=options.head_timeout,
        **({} if options.max_body is None else {"body": options.max_body}),
        characters=options.max_characters,
        texts=options.max_texts,
        timeout=options.timeout,
        file_time=options.file_time,
        job_time=options.job_time,
        grace=options.grace,
    )


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, "serve", Serve, _run)
