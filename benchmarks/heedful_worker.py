"""heedful's worker in the translation benchmarks: a model with random weights, and heedful's
search."""

import argparse
import json
import multiprocessing
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import torch

from heedful.basics.device import autocast, has_fast_bfloat16
from heedful.basics.errors import UserError
from heedful.basics.symbols import END
from heedful.decoding import SearchOptions, search
from heedful.inference.batches import source_of
from heedful.inference.inference_mode import in_precision
from heedful.kernels.allocator import keep_freed_memory
from heedful.layers.int8_linear import largest_input
from heedful.models import build_model
from heedful.models.pairs import PairModel
from heedful.models.recurrent_settings import RecurrentSettings
from heedful.models.transformer import TransformerSettings
from workers import Translating, batched, serve

CPU = torch.device("cpu")
POOLS = ("none", "threads", "processes")
"""The kind of pool for several workers of one thread each; ``none`` is one worker with all
threads."""


def precisions(*, few_rows: bool = False) -> list[str]:
    """The precisions for translation that are fast on this processor.

    For few rows, bfloat16 is fast on any processor, because reading the weights takes most time.
    """
    known = ["float32", *(["bfloat16"] if few_rows or has_fast_bfloat16(CPU) else [])]
    try:
        largest_input()
    except UserError:  # PyTorch does not support int8 products on this processor
        return known
    return [*known, "int8"]


def random_model(work: Mapping[str, Any]) -> PairModel:
    """The model of ``work["model"]``: the same weights for the same settings."""
    torch.manual_seed(1)
    given, vocabulary = work["model"], work["vocabulary"]
    kind = RecurrentSettings if given["kind"] == "recurrent" else TransformerSettings
    settings = kind.model_validate(given)
    return build_model(settings, vocabulary, vocabulary).eval()


class Searcher:
    """A model whose outputs for a batch all have one length.

    Args:
        work: settings of the model, length of the outputs.
        precision: precision of matrix products.
        threads: number of threads for a batch.
    """

    def __init__(self, work: Mapping[str, Any], precision: str, threads: int) -> None:
        keep_freed_memory()
        torch.set_num_threads(threads)
        model = random_model(work)
        self.parameters = sum(p.numel() for p in model.parameters())
        (self.model,), self.products = in_precision([model], precision, CPU)
        self.length = work["length"]

    def __call__(self, batch: Sequence[Sequence[int]], beam: int) -> list[list[int]]:
        """The tokens of the best output of each source."""
        options = SearchOptions(beam=beam, forced_length=self.length)
        limits = torch.full((len(batch),), self.length)
        with torch.inference_mode(), autocast(CPU, self.products):
            found = search(
                self.model,
                source_of(batch, CPU),
                rows=len(batch),
                options=options,
                max_lengths=limits,
            )
        return [list(hypotheses[0].tokens) for hypotheses in found]


class _Pool:
    """Workers of one thread each, which share the batches."""

    searchers: ClassVar[list[Searcher]] = []
    """The searcher of this process, which all threads use."""

    @classmethod
    def prepare(cls, work: Mapping[str, Any], precision: str) -> None:
        """Initialise a worker: the thread's number of PyTorch threads, and the process's model."""
        torch.set_num_threads(1)
        if not cls.searchers:
            cls.searchers.append(Searcher(work, precision, 1))

    @classmethod
    def search(cls, batch: list[list[int]], beam: int) -> list[list[int]]:
        return cls.searchers[0](batch, beam)


def pool_of(kind: str, count: int, work: Mapping[str, Any], precision: str) -> Executor:
    """A pool of ``count`` workers: threads of this process, or processes."""
    if kind == "threads":
        _Pool.prepare(work, precision)
        return ThreadPoolExecutor(count, initializer=_Pool.prepare, initargs=(work, precision))
    spawn = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(count, spawn, _Pool.prepare, (work, precision))


Translate = Callable[[list[list[int]], int, int], tuple[list[list[int]], float]]


def translating(
    each: Callable[[list[list[list[int]]], int], list[list[list[int]]]],
) -> Translate:
    """Maps sentences, beam and tokens per batch to outputs and seconds."""

    def translate(
        sentences: list[list[int]], beam: int, tokens: int
    ) -> tuple[list[list[int]], float]:
        began = time.perf_counter()
        outputs = each(batched(sentences, beam, tokens), beam)
        seconds = time.perf_counter() - began
        return [output for batch in outputs for output in batch], seconds

    return translate


def main() -> None:
    """Build the model, then handle requests for translations."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True, help="JSON: model, sentences, length")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--pool", choices=POOLS, default="none")
    options = parser.parse_args()
    work = json.loads(options.work.read_text(encoding="utf-8"))
    facts: dict[str, Any] = {
        "versions": f"PyTorch {torch.__version__}",
        "precision": options.precision,
        "our_weights": True,
    }
    if options.pool == "none":
        searcher = Searcher(work, options.precision, options.threads)
        facts["parameters"] = searcher.parameters
        translate = translating(lambda batches, beam: [searcher(one, beam) for one in batches])
        serve(Translating(work, facts, translate, END))
        return
    few = {key: work[key] for key in ("model", "vocabulary", "length")}
    with pool_of(options.pool, options.threads, few, options.precision) as pool:
        translate = translating(
            lambda batches, beam: list(pool.map(_Pool.search, batches, [beam] * len(batches)))
        )
        facts["workers"] = f"workers: {options.threads} {options.pool} of one thread"
        serve(Translating(work, facts, translate, END))


if __name__ == "__main__":
    sys.exit(main())
