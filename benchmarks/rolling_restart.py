"""Replaces the workers of a server under load, and counts requests that fail.

    python benchmarks/rolling_restart.py RUN --texts FILE [--workers 2] [--restarts 3]
    python benchmarks/rolling_restart.py RUN --texts FILE --kill          a worker is also killed
    python benchmarks/rolling_restart.py RUN --texts FILE --memory 1 2 4  memory of so many workers
    python benchmarks/rolling_restart.py RUN --texts FILE --throughput    2 workers or 2 threads

Copies RUN to a temporary folder and starts ``heedful serve`` on a free loopback port. Clients send
requests without a pause; every second client opens a new connection for each request. For each
restart, the weights of the copy are changed, as if the model had been trained again, and the server
gets SIGHUP. Each response must be the translation by the old or by the new weights; after the
restart, only by the new ones.

``--memory`` prints the proportional set size (PSS), which counts shared memory once.
``--throughput`` needs an idle machine.
"""

import argparse
import asyncio
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import torch

from heedful.runs.checkpoints import open_checkpoint, save_checkpoint
from heedful.tasks.pairs.building import load_translator
from reporting import machine, said

PATIENCE = 120.0
"""Seconds to wait for the server."""
PHASES = "before", "during", "after"


class Response(NamedTuple):
    """A response, or a request that failed (``answer`` is None)."""

    began: float
    ended: float
    text: str
    answer: str | None
    error: str = ""


class Clients:
    """Clients that send requests to a server, in a thread.

    Args:
        port: the server's port on this machine.
        texts: the texts to translate.
        clients: the number of clients.
        languages: source and target language.
    """

    def __init__(
        self, port: int, texts: Sequence[str], clients: int, languages: tuple[str, str]
    ) -> None:
        self.port, self.texts, self.clients, self.languages = port, texts, clients, languages
        self.responses: list[Response] = []
        self._turn = count()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._all()))

    def __enter__(self) -> "Clients":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def between(self, began: float, ended: float) -> list[Response]:
        """The responses to requests that were sent in an interval of ``time.monotonic()``."""
        return [one for one in list(self.responses) if began <= one.began < ended]

    def errors(self) -> list[str]:
        """The errors of failed requests."""
        return [one.error for one in list(self.responses) if one.answer is None]

    async def _all(self) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(self.clients):
                group.create_task(self._client(keeps=number % 2 == 0))

    async def _client(self, keeps: bool) -> None:
        connection: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        while not self._stop.is_set():
            text = self.texts[next(self._turn) % len(self.texts)]
            began, error, answer = time.monotonic(), "", None
            try:
                async with asyncio.timeout(PATIENCE):
                    connection = connection or await asyncio.open_connection("127.0.0.1", self.port)
                    answer, closed = await self._ask(*connection, text, keeps)
            except (OSError, ValueError, asyncio.IncompleteReadError, TimeoutError) as failure:
                error, closed = repr(failure), True
            self.responses.append(Response(began, time.monotonic(), text, answer, error))
            if closed and connection is not None:
                connection[1].close()
                connection = None
        if connection is not None:
            connection[1].close()

    async def _ask(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, text: str, keeps: bool
    ) -> tuple[str, bool]:
        """The translation, and whether the server closes the connection."""
        source, target = self.languages
        fields = {"text": text, "source": source, "target": target, "memory": False}
        body = json.dumps(fields).encode()
        close = "" if keeps else "Connection: close\r\n"
        head = (
            "POST /api/translate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"{close}Content-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().lower().splitlines()
        found = dict(line.split(": ", 1) for line in lines[1:] if line)
        answer = json.loads(await reader.readexactly(int(found["content-length"])))
        if lines[0].split()[1] != "200":
            raise ValueError(f"{lines[0]}: {answer}")
        return str(answer["translations"][0]["text"]), found.get("connection") == "close"


class Server:
    """A process of ``heedful serve``, its port and its messages."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.messages: list[str] = []
        self._read = threading.Thread(target=self._listen, daemon=True)
        self._read.start()
        address = self.wait_for(" at http").split(" at ")[1].split()[0]
        self.port = urllib.parse.urlsplit(address).port or 0

    def _listen(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.messages.append(line.rstrip())

    def wait_for(self, part: str, since: int = 0) -> str:
        """Wait for a message that contains a text; returns it."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            ended = not self._read.is_alive()
            for line in self.messages[since:]:
                if part in line:
                    return line
            if ended:
                break
            time.sleep(0.02)
        raise SystemExit(f"no '{part}' in: " + "\n".join(self.messages))

    @property
    def workers(self) -> list[int]:
        """The processes of the workers; this one if there are none."""
        parent = self.process.pid
        found = Path(f"/proc/{parent}/task/{parent}/children").read_text(encoding="ascii").split()
        return [int(pid) for pid in found] or [parent]

    @property
    def memory(self) -> float:
        """The proportional set size of all its processes, in MB."""
        return sum(pss(pid) for pid in {self.process.pid, *self.workers})

    def reload(self) -> float:
        """Reload the models; returns the seconds that this took."""
        seen, began = len(self.messages), time.monotonic()
        self.process.send_signal(signal.SIGHUP)
        self.wait_for("heedful: reloaded", seen)
        return time.monotonic() - began


@contextmanager
def server(run: Path, workers: int, threads: int, *more: str) -> Iterator[Server]:
    """A running server."""
    command = [sys.executable, "-m", "heedful", "serve", str(run), "--port", "0", "--whole-lines"]
    command += ["--workers", str(workers), "--threads", str(threads), "--device", "cpu", *more]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        yield Server(process)
    finally:
        process.terminate()
        process.wait()


def pss(pid: int) -> float:
    """The proportional set size of a process, in MB."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1000
    raise ValueError(pid)


def train_again(run: Path, seed: int) -> None:
    """Change all weights of a run, as another training would."""
    chance = torch.Generator().manual_seed(seed)
    for path in sorted((run / "checkpoints").iterdir()):
        point = open_checkpoint(path)
        weights = {
            name: tensor + 0.3 * tensor.std() * torch.randn(tensor.shape, generator=chance)
            if tensor.is_floating_point() and tensor.numel() > 1
            else tensor
            for name, tensor in point.weights().items()
        }
        training, state = point.training(), point.state
        shutil.rmtree(path)
        save_checkpoint(path, weights, training, state)


def translations(run: Path, texts: Sequence[str]) -> dict[str, str]:
    """The translation of each text alone."""
    translator = load_translator([run], device="cpu")
    return {text: translator.translate([text])[0].text for text in texts}


def judged(responses: Sequence[Response], *allowed: dict[str, str]) -> dict[str, Any]:
    """The figures of responses: how many, failures, wrong ones, percentiles of seconds."""
    seconds = sorted(one.ended - one.began for one in responses if one.answer is not None)
    right = Counter(
        one.answer is not None and any(one.answer == known[one.text] for known in allowed)
        for one in responses
    )
    failed = sum(one.answer is None for one in responses)
    return {
        "requests": len(responses),
        "failed": failed,
        "wrong": right[False] - failed,
        **{f"p{share}_ms": 1000 * percentile(seconds, share) for share in (50, 95, 99, 100)},
    }


def percentile(ranked: Sequence[float], share: int) -> float:
    """The percentile of sorted values."""
    return ranked[min(len(ranked) - 1, len(ranked) * share // 100)] if ranked else float("nan")


def drill(options: argparse.Namespace, run: Path, texts: Sequence[str]) -> dict[str, Any]:
    """Restart the workers of a server under load."""
    known, figures = translations(run, texts), []
    pair = (options.source, options.target)
    languages = ("--languages", f"{run}={pair[0]}:{pair[1]}")
    with (
        server(run, options.workers, options.threads, *languages) as one,
        Clients(one.port, texts, options.clients, pair) as clients,
    ):
        for number in range(options.restarts):
            began = time.monotonic()
            time.sleep(options.seconds)
            train_again(run, number)
            new = translations(run, texts)
            restart = time.monotonic()
            took = one.reload()
            ended = time.monotonic()
            time.sleep(options.seconds)
            figures.append(
                {
                    "seconds": took,
                    "before": judged(clients.between(began, restart), known),
                    "during": judged(clients.between(restart, ended), known, new),
                    "after": judged(clients.between(ended, time.monotonic()), new),
                }
            )
            known = new
        found: dict[str, Any] = {"restarts": figures}
        if options.kill:
            found["kill"] = killed(one, clients, options.seconds)
        found["errors"] = clients.errors()
    return found


def killed(one: Server, clients: Clients, seconds: float) -> dict[str, Any]:
    """Kill a worker; only requests on its connections may fail."""
    before, seen, began = len(clients.errors()), len(one.messages), time.monotonic()
    victim = one.workers[0]
    subprocess.run(["kill", "-9", str(victim)], check=True)
    one.wait_for("another one starts", seen)
    while victim in one.workers or len(one.workers) < 2:
        time.sleep(0.05)
    time.sleep(seconds)
    sent = clients.between(began, time.monotonic())
    return {"requests": len(sent), "failed": len(clients.errors()) - before}


def throughput(options: argparse.Namespace, run: Path, texts: Sequence[str]) -> dict[str, float]:
    """Requests per second of 1 worker with 2 threads, and of 2 workers with 1 thread each."""
    found, pair = {}, (options.source, options.target)
    languages = ("--languages", f"{run}={pair[0]}:{pair[1]}")
    for workers in (1, 2):
        with server(run, workers, 2, *languages) as one:
            with Clients(one.port, texts, options.clients, pair) as clients:
                time.sleep(min(3.0, options.seconds))  # warm-up
                began = time.monotonic()
                time.sleep(options.seconds)
                sent = clients.between(began, time.monotonic())
            answered = sum(response.answer is not None for response in sent)
            found[f"{workers} × {2 // workers}"] = answered / options.seconds
    return found


def memories(options: argparse.Namespace, run: Path, texts: Sequence[str]) -> dict[int, float]:
    """Memory by number of workers, in MB, after some requests."""
    found, pair = {}, (options.source, options.target)
    languages = ("--languages", f"{run}={pair[0]}:{pair[1]}")
    for workers in options.memory:
        with server(run, workers, workers, *languages) as one:
            with Clients(one.port, texts, 2 * workers, pair):
                time.sleep(options.seconds)
            found[workers] = one.memory
    return found


def report(found: dict[str, Any]) -> str:
    """The figures as Markdown."""
    lines = [f"{said(found['machine'])}; run {found['run']}", ""]
    if "restarts" in found:
        lines += [
            "| restart | seconds | | requests | failed | wrong | p50 ms | p95 ms | p99 ms | max |",
            "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        ]
    for number, restart in enumerate(found.get("restarts", []), start=1):
        for phase in PHASES:
            own = restart[phase]
            times = " | ".join(f"{own[f'p{share}_ms']:.0f}" for share in (50, 95, 99, 100))
            lines.append(
                f"| {number} | {restart['seconds']:.1f} | {phase} | {own['requests']:,} | "
                f"{own['failed']} | {own['wrong']} | {times} |"
            )
    if "kill" in found:
        lines += ["", "a worker killed: {failed} of {requests} failed".format(**found["kill"])]
    for error, times in Counter(found.get("errors", [])).items():
        lines.append(f"error, {times} times: {error}")
    for name, speed in (found.get("throughput") or {}).items():
        lines.append(f"workers × threads {name}: {speed:.1f} requests/s")
    for workers, size in (found.get("memory") or {}).items():
        lines.append(f"memory with {workers} workers: {size:.0f} MB")
    return "\n".join(lines)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure all figures."""
    torch.set_num_threads(1)
    lines = options.texts.read_text(encoding="utf-8").splitlines()
    texts = list(dict.fromkeys(line for line in lines if line.strip()))[: options.most]
    found: dict[str, Any] = {"machine": machine(options.threads), "run": options.run.name}
    with tempfile.TemporaryDirectory() as folder:
        run = Path(shutil.copytree(options.run, Path(folder) / "run"))
        if options.memory:
            found["memory"] = memories(options, run, texts)
        elif options.throughput:
            found["throughput"] = throughput(options, run, texts)
        else:
            found.update(drill(options, run, texts))
    return found


def main() -> None:
    """Measure and print; the exit code is 1 if a restart lost a request."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("--texts", type=Path, required=True, help="one text per line")
    parser.add_argument("--most", type=int, default=50, help="number of texts to use")
    parser.add_argument("--source", default="en")
    parser.add_argument("--target", default="de")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--restarts", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="before and after each restart")
    parser.add_argument("--kill", action="store_true", help="kill a worker after the restarts")
    parser.add_argument("--memory", type=int, nargs="+", metavar="WORKERS")
    parser.add_argument("--throughput", action="store_true")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    found = measure(options)
    print(json.dumps(found, indent=1) if options.json else report(found))
    phases = [one[name] for one in found.get("restarts", []) for name in PHASES]
    sys.exit(1 if any(phase["failed"] or phase["wrong"] for phase in phases) else 0)


if __name__ == "__main__":
    main()
