"""``heedful serve``: the translation server and its page."""

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
        f"heedful: the key is printed this once; its hash is in {path} "
        f"(heedful serve RUN --keys {path})",
        err=True,
    )
    raise typer.Exit


@dataclass(frozen=True)
class Serve:
    """Serve runs over HTTP: LibreTranslate's contract, heedful's own, and a page.

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
            help="Runs of any task; of those that translate, one a language pair.",
        ),
    ]
    host: Annotated[str, typer.Option(help="Where to listen; 0.0.0.0 is every network.")] = (
        "127.0.0.1"
    )
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 is any free port.")] = 5000
    languages: Annotated[
        list[str] | None,
        typer.Option(
            "--languages",
            metavar="RUN=en:de",
            help="A run's languages, if it does not know them, or under other codes; repeatable.",
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
            help="Print a new API key, add its hash to FILE, and end.",
        ),
    ] = None
    cors: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN", help="A web site whose pages may send requests; * is all; repeatable."
        ),
    ] = None
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-host",
            metavar="NAME",
            help="A name that clients know this server by, in DNS or behind a proxy that passes it "
            "on; * is any; repeatable.",
        ),
    ] = None
    split_sentences: Annotated[
        bool,
        typer.Option(
            "--split-sentences/--whole-lines",
            help="Whether a line's sentences are translated one by one.",
        ),
    ] = True
    queue: Annotated[
        int, typer.Option(min=1, help="Requests that may wait; further ones are answered 429.")
    ] = 256
    gather: Annotated[
        float,
        typer.Option(min=0, max=1000, help="Milliseconds to wait for requests to go together."),
    ] = 5.0
    max_connections: Annotated[
        int,
        typer.Option(
            "--max-connections", min=1, help="Connections at a time; further ones are answered 503."
        ),
    ] = 512
    head_timeout: Annotated[
        float,
        typer.Option(
            "--head-timeout", min=0.001, help="Seconds within which a request's head has to come."
        ),
    ] = 10.0
    max_body: Annotated[
        int, typer.Option("--max-body", min=1, help="Bytes of a request's body.")
    ] = 2 << 20
    max_characters: Annotated[
        int, typer.Option("--max-characters", min=1, help="Characters of a request.")
    ] = 100_000
    max_texts: Annotated[int, typer.Option("--max-texts", min=1, help="Texts of a request.")] = (
        1_000
    )
    timeout: Annotated[
        float, typer.Option(min=0.001, help="Seconds until a request is given up.")
    ] = 60.0
    job_time: Annotated[
        float,
        typer.Option(
            "--job-time",
            min=0.001,
            help="Seconds that a trace, other words, a given beginning or a text that is written "
            "may take while other requests wait.",
        ),
    ] = 10.0
    grace: Annotated[
        float, typer.Option(min=0, help="Seconds that requests in hand have when it is stopped.")
    ] = 30.0
    log_requests: Annotated[
        bool, typer.Option("--log-requests", help="A line a request on standard error, no texts.")
    ] = False
    log_texts: Annotated[bool, typer.Option("--log-texts", help="Texts, too.")] = False
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
            f"--host {host} without --keys: whoever reaches port {port} may use the server; "
            "heedful serve --new-key FILE makes a key"
        )
    for origin in origins:
        if origin != "*" and not origin.startswith(("http://", "https://")):
            raise UserError(f"--cors {origin}: an origin is like https://example.org, or *")
    use_threads(options.threads)
    # Before the models are loaded, which takes longer than to say that the port is taken.
    with open_port(host, port) as listening:
        from heedful.serving import make_application
        from heedful.serving.loading import load_all

        models = load_all(
            options.runs,
            options.languages or [],
            {"engine": options.engine, "quantization": options.quantization},
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
        body=options.max_body,
        characters=options.max_characters,
        texts=options.max_texts,
        timeout=options.timeout,
        job_time=options.job_time,
        grace=options.grace,
    )


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, "serve", Serve, _run)
