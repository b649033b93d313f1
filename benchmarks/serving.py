"""Measures the server under load, compared with the same model translating one text at a time.

    python benchmarks/serving.py RUN --texts FILE [--seconds 20] [--rounds 3] [--threads 2]
    python benchmarks/serving.py RUN --texts FILE --requests 20000    memory as well

Starts ``heedful serve RUN`` on a free loopback port and sends requests from 1, 8 and 64 clients.
Each client keeps a connection open and sends one request at a time (``POST /translate`` with one
text). The baseline is ``Translator.translate([text])`` in a loop in this process, without HTTP,
with the same number of threads. Baseline and clients take turns; ratios are computed within a
round.

Every response is compared with the translation of its text alone. The translation of another text
is counted as *crossed*, a missing response as *lost*, and any other difference as *different*
(batches change scores by rounding, which can decide a tie differently).

Run nothing else at the same time.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import threading
import time
import urllib.parse
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import torch

from heedful.inference import Translator
from heedful.tasks.pairs.building import load_translator
from reporting import machine, said

Right = dict[str, str]


class Load:
    """Clients that send requests to a server and check the responses.

    Args:
        port: the server's port on this machine.
        languages: source and target language.
        right: the translation of each text.
    """

    def __init__(self, port: int, languages: tuple[str, str], right: Right) -> None:
        self.port, self.languages, self.right = port, languages, right
        self.texts = list(right)
        self.others = Counter(right.values())
        self.turn = count()
        self.seconds: list[float] = []
        self.found: Counter[str] = Counter()

    def run(
        self, clients: int, seconds: float | None = None, requests: int | None = None
    ) -> dict[str, Any]:
        """Send requests for some time, or a number of requests; returns the figures."""
        self.seconds, self.found = [], Counter()
        began = time.perf_counter()
        end = None if seconds is None else began + seconds
        asyncio.run(self._all(clients, end, requests))
        took = time.perf_counter() - began
        asked = sum(self.found[what] for what in ("right", "different", "crossed", "lost"))
        return {
            "clients": clients,
            "requests": asked,
            "per_second": len(self.seconds) / took,
            **{f"p{share}_ms": 1000 * _percentile(self.seconds, share) for share in (50, 95, 99)},
            **{what: self.found[what] for what in ("different", "crossed", "lost")},
        }

    async def _all(self, clients: int, end: float | None, requests: int | None) -> None:
        left = count()

        def more() -> bool:
            if end is not None:
                return time.perf_counter() < end
            return next(left) < (requests or 0)

        async with asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(self._client(more))

    async def _client(self, more: Any) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        while more():
            text = self.texts[next(self.turn) % len(self.texts)]
            began = time.perf_counter()
            try:
                answer = await self._ask(reader, writer, text)
            except (OSError, ValueError, asyncio.IncompleteReadError):
                self.found["lost"] += 1
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                continue
            self.seconds.append(time.perf_counter() - began)
            self.found[self._judged(text, answer)] += 1
        writer.close()

    def _judged(self, text: str, answer: str) -> str:
        if answer == self.right[text]:
            return "right"
        return "crossed" if answer in self.others else "different"

    async def _ask(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, text: str
    ) -> str:
        """Send one request in plain HTTP/1.1: a client library would take more time than the
        server."""
        source, target = self.languages
        body = json.dumps({"q": text, "source": source, "target": target}).encode()
        head = (
            "POST /translate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().lower().splitlines()
        length = next(
            int(line.split(":")[1]) for line in lines if line.startswith("content-length")
        )
        answer = json.loads(await reader.readexactly(length))
        if " 200 " not in f"{lines[0]} ":
            raise ValueError(str(answer))
        return str(answer["translatedText"])


@contextmanager
def server(run: Path, threads: int, more: Sequence[str]) -> Iterator[tuple[int, int]]:
    """A running server's port and process id."""
    command = [sys.executable, "-m", "heedful", "serve", str(run), "--port", "0", "--whole-lines"]
    command += ["--threads", str(threads), *more]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        said_first = []
        for line in process.stderr:
            said_first.append(line)
            if " at http" in line:
                break
        else:
            raise SystemExit("".join(said_first))
        # Its later output must not fill the pipe.
        threading.Thread(target=process.stderr.read, daemon=True).start()
        address = urllib.parse.urlsplit(line.split(" at ")[1].split()[0])
        yield int(address.port or 0), process.pid
    finally:
        process.terminate()
        process.wait()


def one_at_a_time(translator: Translator, texts: Sequence[str], seconds: float) -> dict[str, Any]:
    """The baseline: one text at a time, without a server."""
    took: list[float] = []
    began = time.perf_counter()
    for turn in count():
        start = time.perf_counter()
        if start > began + seconds:
            break
        translator.translate([texts[turn % len(texts)]])
        took.append(time.perf_counter() - start)
    return {
        "per_second": len(took) / (time.perf_counter() - began),
        **{f"p{share}_ms": 1000 * _percentile(took, share) for share in (50, 95, 99)},
    }


def memory(load: Load, pid: int, clients: int, requests: int) -> dict[str, Any]:
    """The server's resident memory in MB before the requests and after each 5 % of them."""
    load.run(clients, requests=max(1, requests // 20))
    sizes, totals = [_resident(pid)], Counter[str]()
    for _ in range(20):
        found = load.run(clients, requests=requests // 20)
        totals.update({what: found[what] for what in ("requests", "different", "crossed", "lost")})
        sizes.append(_resident(pid))
    return {"clients": clients, "megabytes": sizes, **totals}


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure all figures."""
    torch.set_num_threads(options.threads)
    translator = load_translator([options.run], device="cpu")
    lines = options.texts.read_text(encoding="utf-8").splitlines()
    texts = list(dict.fromkeys(line for line in lines if line.strip()))[: options.most]
    right = {text: translator.translate([text])[0].text for text in texts}
    languages = (translator.source_language or "en", translator.target_language or "de")
    found: dict[str, Any] = {
        "machine": machine(options.threads),
        "run": options.run.name,
        "beam": translator.options.beam,
        "texts": len(texts),
        "rounds": [],
    }
    more = ["--languages", f"{options.run}={languages[0]}:{languages[1]}", "--device", "cpu"]
    if options.gather is not None:
        more += ["--gather", str(options.gather)]
    with server(options.run, options.threads, more) as (port, pid):
        load = Load(port, languages, right)
        load.run(max(options.clients), seconds=min(3.0, options.seconds))  # warm-up
        for _ in range(options.rounds):
            base = one_at_a_time(translator, texts, options.seconds)
            clients = [load.run(number, seconds=options.seconds) for number in options.clients]
            found["rounds"].append({"base": base, "clients": clients})
        if options.requests:
            found["memory"] = memory(load, pid, max(options.clients), options.requests)
    return found


def report(found: dict[str, Any]) -> str:
    """The figures as Markdown."""
    rounds = found["rounds"]
    lines = [
        f"{said(found['machine'])}; run {found['run']}, beam {found['beam']}, "
        f"{found['texts']:,} texts, {len(rounds)} rounds",
        "",
        "| | requests/s | × one at a time | p50 ms | p95 ms | p99 ms | "
        "different | crossed | lost |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    base = [one["base"] for one in rounds]
    times = " | ".join(f"{median(one[f'p{p}_ms'] for one in base):.0f}" for p in (50, 95, 99))
    speed = median(one["per_second"] for one in base)
    lines.append(f"| one at a time, no server | {speed:.1f} | 1 | {times} | | | |")
    for i, first in enumerate(rounds[0]["clients"]):
        own = [one["clients"][i] for one in rounds]
        ratio = median(
            one["clients"][i]["per_second"] / one["base"]["per_second"] for one in rounds
        )
        times = " | ".join(f"{median(one[f'p{p}_ms'] for one in own):.0f}" for p in (50, 95, 99))
        wrong = " | ".join(
            f"{sum(one[what] for one in own):,}" for what in ("different", "crossed", "lost")
        )
        speed = median(one["per_second"] for one in own)
        many = "clients" if first["clients"] > 1 else "client"
        lines.append(
            f"| {first['clients']} {many} | {speed:.1f} | {ratio:.2f} | {times} | {wrong} |"
        )
    if "memory" in found:
        kept = found["memory"]
        sizes = kept["megabytes"]
        lines += [
            "",
            f"{kept['requests']:,} requests from {kept['clients']} clients: {sizes[0]:.0f} MB "
            f"before, {sizes[len(sizes) // 2]:.0f} MB half way, {sizes[-1]:.0f} MB after; "
            f"{kept['different']:,} different, {kept['crossed']:,} crossed, {kept['lost']:,} lost",
        ]
    return "\n".join(lines)


def _percentile(values: Sequence[float], share: int) -> float:
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, len(ranked) * share // 100)] if ranked else float("nan")


def _resident(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("--texts", type=Path, required=True, help="one text per line")
    parser.add_argument("--most", type=int, default=1000, help="number of texts to use")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--seconds", type=float, default=20.0, help="seconds per measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--requests", type=int, default=0, help="number of requests for the memory test; 0 skips it"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--gather", type=float, help="milliseconds; default: the server's default")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    found = measure(options)
    print(json.dumps(found, indent=1) if options.json else report(found))


if __name__ == "__main__":
    main()
