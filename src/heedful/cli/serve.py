"""``heedful serve``: the HTTP server and its page."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
    use_threads,
)

if TYPE_CHECKING:
    from heedful.serving.limits import Limits


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


def _run(options: Serve) -> None:
    """Run the command."""
    from heedful.serving.admission import host_names, is_loopback
    from heedful.serving.keys import Keys
    from heedful.serving.server import end_command, open_port, run_server

    host, port, origins = options.host, options.port, options.cors or []
    hosts, addresses = host_names(host, options.allow_host or [])
    keys = None if options.keys is None else Keys.read(options.keys)
    if keys is None and not is_loopback(host):
        notice(
            f"--host {host} without --keys: anyone who can reach port {port} can use the server; "
            "heedful serve --new-key FILE creates a key"
        )
    for origin in origins:
        if origin != "*" and not origin.startswith(("http://", "https://")):
            raise UserError(f"--cors {origin}: an origin is like https://example.org, or *")
    use_threads(options.threads)
    # Open the port before loading the models, so that a port in use fails at once.
    with open_port(host, port) as listening:
        from heedful.serving import make_application
        from heedful.serving.loading import load_all

        models = load_all(
            options.runs,
            options.languages or [],
            {"engine": options.engine, "quantization": options.quantization},
            examples=is_loopback(host) if options.examples is None else options.examples,
            device=options.device,
            precision=options.precision,
        )
        application = make_application(
            models,
            limits=_limits(options),
            keys=keys,
            origins=origins,
            hosts=hosts,
            addresses=addresses,
            log_requests=options.log_requests or options.log_texts,
            log_texts=options.log_texts,
            split_sentences=options.split_sentences,
        )
        what = ", ".join(one.title for one in models)
        run_server(application, listening=listening, open_page=options.open_page, what=what)
    end_command(application)


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
