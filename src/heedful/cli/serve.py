"""``heedful serve``: the translation server and its page."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedful.basics.errors import UserError
from heedful.basics.notices import notice
from heedful.tasks.options import (
    Device,
    Engine,
    Quantization,
    SearchPrecision,
    Threads,
    use_threads,
)

if TYPE_CHECKING:
    from heedful.serving import Served


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


def serve(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN…",
            help="Runs of any task; of those that translate, one a language pair.",
        ),
    ],
    host: Annotated[
        str, typer.Option(help="Where to listen; 0.0.0.0 is every network.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 is any free port.")] = 5000,
    languages: Annotated[
        list[str] | None,
        typer.Option(
            "--languages",
            metavar="RUN=en:de",
            help="A run's languages, if it does not know them, or under other codes; repeatable.",
        ),
    ] = None,
    keys: Annotated[Path | None, typer.Option(help="Require an API key from this file.")] = None,
    new_key: Annotated[
        Path | None,
        typer.Option(
            "--new-key",
            metavar="FILE",
            callback=_new_key,
            is_eager=True,
            help="Print a new API key, add its hash to FILE, and end.",
        ),
    ] = None,
    cors: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN", help="A web site whose pages may send requests; * is all; repeatable."
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-host",
            metavar="NAME",
            help="A name that clients know this server by, in DNS or behind a proxy that passes it "
            "on; * is any; repeatable.",
        ),
    ] = None,
    split_sentences: Annotated[
        bool,
        typer.Option(
            "--split-sentences/--whole-lines",
            help="Whether a line's sentences are translated one by one.",
        ),
    ] = True,
    queue: Annotated[
        int, typer.Option(min=1, help="Requests that may wait; further ones are answered 429.")
    ] = 256,
    gather: Annotated[
        float,
        typer.Option(min=0, max=1000, help="Milliseconds to wait for requests to go together."),
    ] = 5.0,
    max_connections: Annotated[
        int,
        typer.Option(
            "--max-connections", min=1, help="Connections at a time; further ones are answered 503."
        ),
    ] = 512,
    head_timeout: Annotated[
        float,
        typer.Option(
            "--head-timeout", min=0.001, help="Seconds within which a request's head has to come."
        ),
    ] = 10.0,
    max_body: Annotated[
        int, typer.Option("--max-body", min=1, help="Bytes of a request's body.")
    ] = 2 << 20,
    max_characters: Annotated[
        int, typer.Option("--max-characters", min=1, help="Characters of a request.")
    ] = 100_000,
    max_texts: Annotated[
        int, typer.Option("--max-texts", min=1, help="Texts of a request.")
    ] = 1_000,
    timeout: Annotated[
        float, typer.Option(min=0.001, help="Seconds until a request is given up.")
    ] = 60.0,
    job_time: Annotated[
        float,
        typer.Option(
            "--job-time",
            min=0.001,
            help="Seconds that a trace, other words, a given beginning or a text that is written "
            "may take while other requests wait.",
        ),
    ] = 10.0,
    grace: Annotated[
        float, typer.Option(min=0, help="Seconds that requests in hand have when it is stopped.")
    ] = 30.0,
    log_requests: Annotated[
        bool, typer.Option("--log-requests", help="A line a request on standard error, no texts.")
    ] = False,
    log_texts: Annotated[bool, typer.Option("--log-texts", help="Texts, too.")] = False,
    open_page: Annotated[
        bool, typer.Option("--open", help="Open the page in the browser.")
    ] = False,
    device: Device = "auto",
    threads: Threads = None,
    precision: SearchPrecision = "float32",
    engine: Engine = "torch",
    quantization: Quantization = None,
) -> None:
    """Serve runs over HTTP: LibreTranslate's contract, heedful's own, and a page.

    Examples:

        heedful serve runs/en-de

        heedful serve runs/mood runs/gpt

        heedful serve runs/en-de runs/en-fr --host 0.0.0.0 --port 8080 --keys keys.txt

        heedful serve --new-key keys.txt
    """
    from heedful.serving.admission import host_names, is_loopback
    from heedful.serving.keys import Keys
    from heedful.serving.limits import Limits
    from heedful.serving.server import end_command, open_port, run_server

    limits = Limits(
        queue=queue,
        gather_ms=gather,
        connections=max_connections,
        head_timeout=head_timeout,
        body=max_body,
        characters=max_characters,
        texts=max_texts,
        timeout=timeout,
        job_time=job_time,
        grace=grace,
    )
    hosts, addresses = host_names(host, allow_host or [])
    known_keys = None if keys is None else Keys.read(keys)
    if known_keys is None and not is_loopback(host):
        notice(
            f"--host {host} without --keys: whoever reaches port {port} may use the server; "
            "heedful serve --new-key FILE makes a key"
        )
    for origin in cors or []:
        if origin != "*" and not origin.startswith(("http://", "https://")):
            raise UserError(f"--cors {origin}: an origin is like https://example.org, or *")
    use_threads(threads)
    # Before the models are loaded, which takes longer than to say that the port is taken.
    listening = open_port(host, port)
    with listening:
        chosen: dict[str, Any] = {"device": device, "precision": precision}
        asked = {"engine": engine, "quantization": quantization}
        models = load_all(runs, languages or [], asked, **chosen)
        from heedful.serving import make_application

        application = make_application(
            models,
            limits=limits,
            keys=known_keys,
            origins=cors or (),
            hosts=hosts,
            addresses=addresses,
            log_requests=log_requests or log_texts,
            log_texts=log_texts,
            split_sentences=split_sentences,
        )
        what = ", ".join(
            f"{one.source} to {one.target}" if one.spec.translates else one.name for one in models
        )
        run_server(application, listening=listening, open_page=open_page, what=what)
    end_command(application)


def load_all(
    runs: list[Path],
    languages: list[str],
    asked: dict[str, Any] | None = None,
    *,
    several: bool = False,
    **chosen: Any,
) -> "list[Served]":
    """The models of runs, by names that are all different; of several heads, ``name/head`` each.

    Args:
        runs: folders of runs.
        languages: ``RUN=source:target`` for those that do not know them.
        asked: of what translates: engine, quantization.
        several: whether runs may have no languages, or the same.
        chosen: device, precision, checkpoint.

    Raises:
        UserError: a folder is no run, its languages are not known, or two runs translate between
            the same.
    """
    from heedful.basics.device import one_thread
    from heedful.basics.notices import once
    from heedful.interop.ctranslate2_facts import is_export
    from heedful.serving import Served
    from heedful.serving.served import names_of
    from heedful.tasks.spec import spec_named, spec_of_run

    tasks = [None if is_export(run) else spec_of_run(run) for run in runs]
    pairs = [run for run, one in zip(runs, tasks, strict=True) if not one or one[1].translates]
    given = _languages(pairs, languages)
    found: list[Served] = []
    for path, name, task in zip(runs, names_of(runs), tasks, strict=True):
        if task is None or task[1].translates:
            own = None if task is None else task[1].name
            found.append(_translating(path, name, own, given, several, **(asked or {}), **chosen))
            continue
        run, spec = task
        heads = spec.heads(run.recipe)
        for head, decides in heads.items():
            # Computing is the engine's: its thread alone is to have a pool of threads.
            with one_thread():
                predictor = spec.load(path, head=head if len(heads) > 1 else None, **chosen)
            predictor.say = once()
            full = f"{name}/{head}" if len(heads) > 1 else name
            found.append(Served(full, predictor, task=spec_named(decides).name))
    if not several:
        _require_different(found, dict(zip(names_of(runs), runs, strict=True)))
    return found


def _require_different(models: "list[Served]", paths: dict[str, Path]) -> None:
    """Raise UserError if two models translate between the same languages."""
    from heedful.serving.served import plain_code

    taken: dict[tuple[str, str], Path] = {}
    for one in models:
        if one.source is None or one.target is None:
            continue
        run = paths[one.name]
        pair = plain_code(one.source), plain_code(one.target)
        if pair in taken:
            raise UserError(
                f"{taken[pair]} and {run} both translate {one.source} to {one.target}; leave one "
                f"out, or give it another code: --languages {run}={one.source}:{one.target}-x-2"
            )
        taken[pair] = run


def _translating(
    run: Path,
    name: str,
    task: str | None,
    given: dict[Path, tuple[str, str]],
    several: bool,
    **chosen: Any,
) -> "Served":
    """A run's translator that has translated once, so that the first client need not wait."""
    import torch

    from heedful.basics.device import one_thread
    from heedful.basics.notices import once
    from heedful.interop.engines import load_with_engine
    from heedful.serving import Served

    threads = torch.get_num_threads()
    # Computing is the engine's: its thread alone is to have a pool of threads.
    with one_thread():
        translator = load_with_engine([run], threads=threads, model=True, **chosen)
        source, target = given.get(run, (translator.source_language, translator.target_language))
        if not several and (source is None or target is None):
            raise UserError(
                f"{run} does not know its languages; give them: --languages {run}=en:de"
            )
        translator.say = lambda text: None
        translator.translate(["."])
    translator.say = once()
    return Served(name, translator, source, target, task)


def _languages(runs: list[Path], given: list[str]) -> dict[Path, tuple[str, str]]:
    found: dict[Path, tuple[str, str]] = {}
    for one in given:
        run, equals, pair = one.rpartition("=")
        source, colon, target = pair.partition(":")
        path = Path(run) if equals else runs[0]
        if not (colon and source and target and pair.isprintable()):
            raise UserError(f"--languages {one}: give RUN=source:target, as in {runs[0]}=en:de")
        if path not in runs or (not equals and len(runs) > 1):
            raise UserError(f"--languages {one}: say for which of the runs, as {runs[0]}=en:de")
        found[path] = (source, target)
    return found


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(no_args_is_help=True)(serve)
