"""Servers for tests: small models with random weights, a server in a thread, a short run."""

import contextlib
import random
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import torch

import heedful
from heedful.data.tokeniser import Tokeniser, Tokenisers, TokeniserSettings
from heedful.decoding import SearchOptions
from heedful.inference import Translator
from heedful.inference.protection import Protection
from heedful.models.transformer import Transformer, TransformerSettings
from heedful.serving import Limits, Served, make_application
from heedful.serving.server import Server, open_port

torch.set_num_threads(1)
WORDS = ["the", "a", "cat", "dog", "sat", "on", "mat", "red", "house", "with", "small", "tree"]
VOCABULARY = 380


def sentences(count: int, seed: int = 1, longest: int = 12) -> list[str]:
    chance = random.Random(seed)
    return [
        " ".join(chance.choices(WORDS, k=chance.randint(1, longest))) + "." for _ in range(count)
    ]


def _tokenisers() -> Tokenisers:
    options = TokeniserSettings(vocabulary_size=VOCABULARY)
    one = Tokeniser.train(sentences(200), options, seed=1, where="the test")
    return Tokenisers(one, one)


TOKENISERS = _tokenisers()
COUNTER = Protection(TOKENISERS, None).counter


def translator(
    kind: type[Translator] = Translator, seed: int = 1, max_length: int = 64, **given: Any
) -> Translator:
    """A small Transformer with different outputs for different inputs."""
    torch.manual_seed(seed)
    shape = {"layers": 1, "hidden_size": 32, "ffn_size": 32, "heads": 2, "max_length": max_length}
    model = Transformer(TransformerSettings.model_validate(shape), VOCABULARY, VOCABULARY)
    with torch.no_grad():
        model.target_embedding.weight.mul_(3)  # sharper distributions, so that ties are rare
    given = {"options": SearchOptions(beam=2), "notify": lambda text: None, **given}
    return kind([model], TOKENISERS, **given)


class Shown:
    """A supplier that records the requests that it returns."""

    def __init__(self, supplier: Any, seen: Any) -> None:
        self.left, self.wanted = supplier.left, supplier.wanted
        self.supplier, self.seen = supplier, seen

    def next(self) -> Any:
        given = self.supplier.next()
        if given:
            self.seen([text for _, text in given])
        return given


class _Searched(Translator):
    """A translator whose searches use a decodable of the test."""

    @property
    def decodable(self) -> Any:
        return self.__dict__["searched"]


class Held:
    """Counts a model's steps and blocks at the fifth."""

    def __init__(self, model: Translator) -> None:
        self.count, self.began, self.more = 0, threading.Event(), threading.Event()
        decodable: Any = model.decodable
        self._step, decodable.step = decodable.step, self.step
        model.__dict__["searched"] = decodable
        model.__class__ = _Searched

    def step(self, *given: Any) -> Any:
        self.count += 1
        if self.count == 5:
            self.began.set()
            self.more.wait(20)
        return self._step(*given)


@contextlib.contextmanager
def serving(*models: Served, limits: Limits | None = None, **given: Any) -> Iterator[httpx.Client]:
    """A server in a thread on a free port, and a client with its base URL."""
    application = make_application(models, limits=limits, **given)
    with running(application) as address, httpx.Client(base_url=address, timeout=30) as client:
        yield client


@contextlib.contextmanager
def running(application: Any) -> Iterator[str]:
    """Serve an application from a thread; yields its address."""
    one = open_port("127.0.0.1", 0)
    server = Server(application)
    thread = threading.Thread(target=server.run, args=([one],))
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{one.getsockname()[1]}"
    finally:
        server.config.timeout_graceful_shutdown = 1
        server.should_exit = True
        thread.join()
        one.close()


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def small_run(folder: Path, name: str = "run", **data: object) -> Path:
    """A run trained for a few steps."""
    from heedful.basics.files import write_text

    for part, count in (("train", 200), ("validation", 4)):
        pairs = [f"{text}\t{text[::-1]}\n" for text in sentences(count, seed=count)]
        write_text(folder / f"{part}.tsv", "".join(pairs))
    known = "\n".join(f'{key} = "{value}"' for key, value in data.items())
    write_text(
        folder / f"{name}.toml",
        f"""
seed = 3
[data]
train = "train.tsv"
validation = "validation.tsv"
max_tokens = 30
{known}
[tokeniser]
vocabulary_size = 360
[model]
kind = "transformer"
layers = 1
hidden_size = 32
ffn_size = 32
heads = 2
max_length = 40
[training]
max_steps = 20
batch_tokens = 300
warmup_steps = 4
threads = 1
""",
    )
    assert heedful.train(folder / f"{name}.toml", folder / name, data=folder)
    return folder / name
