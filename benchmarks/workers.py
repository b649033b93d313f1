"""Worker processes that are measured in turns, one at a time.

A worker reads one JSON object per line and answers with one. The parent sends requests to A, B, A,
B, …, so that other load on the machine affects all of them equally. This file uses the standard
library only, because it is also imported by the Python of peers, where heedful is not installed.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_OF_ALLOCATORS = ("MALLOC_", "GLIBC_TUNABLES", "LD_PRELOAD")
"""Environment variables that would also change the C allocator of the plain variants."""


class WorkerError(RuntimeError):
    """A worker ended, or reported that a request failed."""


class Worker:
    """A process that answers requests.

    Args:
        python: the Python interpreter.
        script: the worker's file, which calls :func:`serve`.
        arguments: its command line.
        threads: number of threads for any library that the worker uses.
    """

    def __init__(self, python: Path, script: Path, arguments: Sequence[str], threads: int) -> None:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(_OF_ALLOCATORS)}
        limits = {name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
        offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
        self.name = " ".join([script.name, *arguments[:2]])
        self._process = subprocess.Popen(
            [str(python), str(script), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env=kept | limits | offline,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process.stdin:
            self._process.stdin.close()
        if kind is not None:
            self._process.kill()
        self._process.wait()

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send a request and wait for the answer.

        Raises:
            WorkerError: the worker has ended; its messages are on standard error.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise WorkerError(f"{self.name} ended with exit code {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def serve(answer: Callable[[Mapping[str, Any]], dict[str, Any]]) -> None:
    """Answer requests from standard input until it ends.

    Output of libraries is redirected to standard error, so that it does not mix with answers.
    """
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)
        for line in sys.stdin:
            print(json.dumps(answer(json.loads(line))), file=answers, flush=True)


def described(outputs: Sequence[Sequence[int]], end: int) -> dict[str, Any]:
    """A summary of the outputs, which the parent checks.

    Args:
        outputs: the tokens of each sentence.
        end: the token that ends a sentence.
    """
    return {
        "sentences": len(outputs),
        "lengths": sorted({len(tokens) for tokens in outputs}),
        "ended": sum(end in tokens for tokens in outputs),
    }


def batched(sentences: Sequence[list[int]], width: int, tokens: int) -> list[list[list[int]]]:
    """Batches of sentences, longest first, limited by padded source tokens times width.

    END counts as a token. A batch has at least one sentence of any length.
    """
    batches: list[list[list[int]]] = []
    for sentence in sorted(sentences, key=len, reverse=True):
        batch = batches[-1] if batches else []
        if batch and (len(batch) + 1) * (len(batch[0]) + 1) * width <= tokens:
            batch.append(sentence)
        else:
            batches.append([sentence])
    return batches


class Translating:
    """Handles the requests to a side that translates all sentences in batches, or one by one.

    Args:
        work: the input from the parent: ``sentences`` (longest first), ``length`` of outputs, etc.
        facts: the description of the side.
        translate: translates sentences, given the beam and the tokens per batch; returns outputs in
            the same order, and the seconds.
        end: the token that ends a sentence.
    """

    def __init__(
        self,
        work: Mapping[str, Any],
        facts: Mapping[str, Any],
        translate: Callable[[list[list[int]], int, int], tuple[list[list[int]], float]],
        end: int,
    ) -> None:
        self.sentences: list[list[int]] = work["sentences"]
        self.facts, self.translate, self.end = dict(facts), translate, end

    def __call__(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if request["ask"] == "facts":
            return self.facts
        beam, tokens = request["beam"], request.get("tokens", 4096)
        if request["ask"] == "each":
            chosen = self.sentences[:: request["every"]]
            timed = [self.translate([sentence], beam, tokens) for sentence in chosen]
            outputs = [found[0] for found, _ in timed]
            measured: dict[str, Any] = {"milliseconds": [1000 * seconds for _, seconds in timed]}
        else:
            outputs, seconds = self.translate(self.sentences, beam, tokens)
            measured = {"seconds": seconds}
            if request.get("outputs"):
                measured["outputs"] = outputs
        return measured | described(outputs, self.end)
