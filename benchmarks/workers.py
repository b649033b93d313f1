"""Programs that are measured in turn: each in a process of its own, only one of them at work.

A worker reads one JSON object a line and answers with one; the parent asks A, B, A, B, …, so that
whatever else the machine does meets all of them alike. Standard library only: a peer's Python,
which has no heedful, imports this file too.
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
"""Variables that would change the C allocator of the plain variants as well."""


class WorkerError(RuntimeError):
    """A worker ended, or answered that it could not do what it was asked for."""


class Worker:
    """A process that answers requests.

    Args:
        python: which Python runs it.
        script: the worker's file, which ends in :func:`serve`.
        arguments: its command line.
        threads: of the processor, for whatever library the worker computes with.
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
            WorkerError: the worker has ended; its own words are on standard error.
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

    What libraries print goes to standard error, so that it does not get among the answers.
    """
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)
        for line in sys.stdin:
            print(json.dumps(answer(json.loads(line))), file=answers, flush=True)


def described(outputs: Sequence[Sequence[Sequence[int]]], end: int) -> dict[str, Any]:
    """What batches of output tokens say of themselves, for the parent to check.

    Args:
        outputs: of each batch, of each sentence, its tokens.
        end: the token that ends a sentence.
    """
    sentences = [tokens for batch in outputs for tokens in batch]
    return {
        "sentences": len(sentences),
        "lengths": sorted({len(tokens) for tokens in sentences}),
        "ended": sum(end in tokens for tokens in sentences),
    }
