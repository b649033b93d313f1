"""Translation speed: heedful's search against MarianMT's ``generate``, same sizes, same sentences.

    python benchmarks/install_peers.py transformers
    python benchmarks/translate_speed.py [--repetitions 5] [--threads 2]

Greedy and beam 5: sentences a second on test_2016 of Multi30k (1,000 sentences), token ids in and
out, random weights, exactly 16 target tokens a sentence, in the same batches. Each side has a
process of its own, and they take turns. MarianMT comes from transformers, in an environment of its
own. The ratios are to the first of:

- MarianMT: 16 tokens by ``max_new_tokens``; the end is ruled out by −∞ in the model's own bias.
- MarianMT, min_new_tokens: the usual way to rule it out, which costs ``generate`` more copies.
- ours: heedful's search, with the allocator setting that keeps freed memory.
- ours, default allocator: without it.

All are in float32; where the processor multiplies bfloat16 in hardware, ours in bfloat16 as well.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import torch

from corpus import MULTI30K, prepare_corpus
from heedful.basics.device import autocast, has_fast_bfloat16, keep_freed_memory
from heedful.basics.symbols import END
from heedful.decoding import SearchOptions, search
from heedful.inference.batches import Item, source_of, token_batches
from heedful.models import build_model
from heedful.models.transformer import Transformer, TransformerSettings
from install_peers import how_to_install, peer_python
from reporting import machine, said, speed_table, summarised
from workers import Worker, WorkerError, described, serve

HERE = Path(__file__).resolve().parent
MARIAN = "MarianMT"
CPU = torch.device("cpu")
SEARCHES = {1: "greedy", 5: "beam 5"}


def translate(
    model: Transformer, batches: Sequence[Sequence[Sequence[int]]], beam: int, length: int
) -> list[list[list[int]]]:
    """The output tokens of each batch of source tokens."""
    options = SearchOptions(beam=beam, forced_length=length)
    outputs = []
    for batch in batches:
        source = source_of(batch, CPU)
        limits = torch.full((len(batch),), length)
        found = search(model, source, rows=len(batch), options=options, max_lengths=limits)
        outputs.append([list(hypotheses[0].tokens) for hypotheses in found])
    return outputs


def work(options: argparse.Namespace) -> None:
    """Be our worker: build the model, then translate as often as asked."""
    if options.keep:
        keep_freed_memory()
    given = json.loads(options.work.read_text(encoding="utf-8"))
    sizes = dict(given["sizes"])
    vocabulary = sizes.pop("vocabulary")
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    model = build_model(TransformerSettings.model_validate(sizes), vocabulary, vocabulary).eval()
    assert isinstance(model, Transformer)
    parameters = sum(p.numel() for p in model.parameters())

    def answer(request: Mapping[str, Any]) -> dict[str, Any]:
        if request["ask"] == "facts":
            return {"versions": f"PyTorch {torch.__version__}", "parameters": parameters}
        beam = request["beam"]
        batches = given["batches"][str(beam)]
        began = time.perf_counter()
        with torch.inference_mode(), autocast(CPU, options.worker):
            outputs = translate(model, batches, beam, given["length"])
        return {"seconds": time.perf_counter() - began, **described(outputs, END)}

    serve(answer)


class Side(NamedTuple):
    """One row of the tables: whom to ask, and for what."""

    worker: Worker
    request: dict[str, str]


def start(options: argparse.Namespace, file: Path, stack: ExitStack) -> dict[str, Side]:
    """The workers of both sides; MarianMT's only where it is installed."""
    arguments = ["--work", str(file), "--threads", str(options.threads)]
    sides = {}
    peer = peer_python("transformers")
    if peer and not options.ours_only:
        script = HERE / "marian_worker.py"
        marian = stack.enter_context(Worker(peer, script, arguments, options.threads))
        sides[MARIAN] = Side(marian, {"force": "bias"})
        sides[f"{MARIAN}, min_new_tokens"] = Side(marian, {"force": "option"})
    elif not options.ours_only:
        print(f"MarianMT left out: {how_to_install('transformers')}", file=sys.stderr)
    ours = {"ours, default allocator": ["float32"], "ours": ["float32", "--keep"]}
    if has_fast_bfloat16(CPU):
        ours["ours, bfloat16"] = ["bfloat16", "--keep"]
    for name, own in ours.items():
        command = ["--worker", *own, *arguments]
        worker = Worker(Path(sys.executable), Path(__file__), command, options.threads)
        sides[name] = Side(stack.enter_context(worker), {})
    return sides


def measure(options: argparse.Namespace, sentences: list[list[int]], file: Path) -> dict[str, Any]:
    """Let the sides take turns; speeds, ratios, versions."""
    batches = {
        beam: [
            [item.tokens for item in batch]
            for batch in token_batches(
                [Item(line, 0, tokens) for line, tokens in enumerate(sentences)],
                beam,
                options.batch_tokens,
            )
        ]
        for beam in SEARCHES
    }
    sizes = {key: getattr(options, key) for key in ("layers", "dim", "inner", "heads")}
    given = {"sizes": sizes | {"vocabulary": options.vocabulary}, "length": options.length}
    file.write_text(json.dumps({**given, "batches": batches}), encoding="utf-8")
    speeds: dict[int, dict[str, list[float]]] = {}
    with ExitStack() as stack:
        sides = start(options, file, stack)
        facts = {name: side.worker.ask(ask="facts") for name, side in sides.items()}
        for beam in SEARCHES:
            speeds[beam] = {name: [] for name in sides}
            for repetition in range(-1, options.repetitions):
                # The first round warms up; the allocator needs all sizes of batch for that.
                for name, side in sides.items():
                    answer = side.worker.ask(ask="run", beam=beam, **side.request)
                    _require_whole(name, answer, len(sentences), options.length)
                    if repetition >= 0:
                        speeds[beam][name].append(len(sentences) / answer["seconds"])
                print(f"{SEARCHES[beam]}, repetition {repetition + 1}", file=sys.stderr)
    return {
        "unit": "sentences/s",
        "machine": machine(options.threads),
        "sentences": len(sentences),
        "length": options.length,
        "batch_tokens": options.batch_tokens,
        "vocabulary": options.vocabulary,
        "sides": facts,
        "searches": {SEARCHES[beam]: _summaries(found) for beam, found in speeds.items()},
    }


def _require_whole(name: str, answer: Mapping[str, Any], sentences: int, length: int) -> None:
    """Raise unless every sentence has come out, with exactly ``length`` tokens and no end."""
    found = answer["sentences"], answer["lengths"], answer["ended"]
    if found != (sentences, [length], 0):
        raise WorkerError(
            f"{name}: {found[0]} sentences, lengths {found[1]}, {found[2]} with an end inside; "
            f"expected {sentences} of {length} tokens"
        )


def _summaries(found: dict[str, list[float]]) -> dict[str, dict[str, Any]]:
    return {name: summarised(own, found.get(MARIAN)) for name, own in found.items()}


def report(found: dict[str, Any]) -> str:
    """A table a search, and under them what they depend on."""
    parts = ["## Translating", ""]
    for name, figures in found["searches"].items():
        parts += [f"### {name}", "", speed_table(found["unit"], figures), ""]
    if MARIAN not in found["sides"]:
        parts += [f"No ratio: {how_to_install('transformers')}", ""]
    workers = "; ".join(
        f"{name}: {facts['parameters']:,} parameters, {facts['versions']}"
        for name, facts in found["sides"].items()
        if "," not in name
    )
    return "\n".join(
        [
            *parts,
            f"{found['sentences']:,} sentences, {found['length']} target tokens each, batches of "
            f"{found['batch_tokens']:,} padded source tokens times beam, vocabulary "
            f"{found['vocabulary']:,}, random weights.",
            f"{workers}.",
            said(found["machine"]),
        ]
    )


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = MULTI30K if MULTI30K.is_dir() else None
    parser.add_argument("--data", type=Path, default=default, help="folder with Multi30k's files")
    parser.add_argument("--made", action="store_true", help="made texts even where Multi30k lies")
    parser.add_argument("--ours-only", action="store_true", help="without MarianMT")
    for name, value in {
        "repetitions": 5,
        "threads": 2,
        "length": 16,
        "batch-tokens": 8192,  # padded source tokens times beam: what heedful's translator takes
        "vocabulary": 8000,
        "layers": 4,
        "dim": 128,
        "inner": 256,
        "heads": 4,
    }.items():
        parser.add_argument(f"--{name}", type=int, default=value, help=f"default {value}")
    parser.add_argument("--pairs", type=int, help="training pairs and test sentences at most")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON instead")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--keep", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main() -> None:
    """Measure and print; as a worker, serve."""
    options = parse()
    if options.worker:
        work(options)
        return
    with tempfile.TemporaryDirectory() as temporary:
        data = None if options.made else options.data
        folder = Path(temporary)
        corpus = prepare_corpus(folder, data, options.vocabulary, options.pairs)
        found = {"corpus": corpus.what, **measure(options, corpus.test, folder / "work.json")}
    print(json.dumps(found) if options.json else report(found))


if __name__ == "__main__":
    main()
