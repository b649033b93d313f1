"""Training speed: heedful's loop against a plain one around torch.nn.Transformer, on one corpus.

    python benchmarks/train_speed.py [--repetitions 5] [--steps 10] [--threads 2]

Real target tokens a second (padding not counted) of the tiny Transformer, from the same batches.
Every variant has a process of its own, since the C allocator's settings are a process's; they take
turns, a few steps each. The tables' ratios are to the plain loop.

- plain loop: ``torch.nn.Transformer`` as it comes, float32, logits of the whole batch,
  ``nn.CrossEntropyLoss``, ``torch.optim.Adam``, the default allocator.
- plain loop, dropout as ours: ``torch.nn.Transformer`` also drops attention weights and the
  feed-forward network's hidden layer, which heedful's recipes do not; here it does not either.
- ours: the training loop, as ``heedful train`` runs it, in the best precision for the processor.
- ours, default allocator: without the setting that keeps freed memory.
- ours, dropout as plain: with dropout everywhere that ``torch.nn.Transformer`` has it.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import torch

from corpus import MULTI30K, Corpus, prepare_corpus
from heedful.basics.device import choose_precision, keep_freed_memory
from heedful.data.batching import TokenBatches
from heedful.data.positions import Position
from heedful.data.shards import EncodedCorpus
from heedful.data.tokeniser import Tokenisers
from heedful.decoding import SearchOptions
from heedful.inference.translator import Translator
from heedful.models import build_model
from heedful.models.transformer import TransformerSettings
from heedful.runs.recipe import TrainingSettings
from heedful.tasks.translation import TranslationTask
from heedful.training.loop import Loop
from heedful.training.report import Report
from plain_loop import PlainLoop
from reporting import machine, said, speed_table, summarised
from workers import Worker, serve

PLAIN, OURS = "plain loop", "ours"
DROPOUT = 0.1
VARIANTS: dict[str, dict[str, Any]] = {
    PLAIN: {"plain": True, "dropout_everywhere": True},
    "plain loop, dropout as ours": {"plain": True},
    "ours, default allocator": {"default_allocator": True},
    "ours, dropout as plain": {"dropout_everywhere": True},
    OURS: {},
}
TRAINING = TrainingSettings(learning_rate=1e-3, warmup_steps=100, log_every=10**9)


class Trained(Protocol):
    """A training that goes on a few steps at a time."""

    parameters: int

    def go_on(self, steps: int) -> tuple[float, int, float]:
        """Seconds spent, target tokens learnt from, and the loss a token in nats."""
        ...


class _Recorded(Loop):
    """The loop; what its records sum up is kept, the last step's included."""

    recorded = (0.0, 0.0, 0.0)
    """Seconds, tokens and summed loss so far."""

    def _log(self) -> None:
        progress = self.progress
        now = (progress.seconds, progress.weight, progress.sums["loss"])
        self.recorded = tuple(a + b for a, b in zip(self.recorded, now, strict=True))
        super()._log()


class Ours:
    """The product's loop and its own clock: that of the tokens/s which ``heedful train`` shows."""

    def __init__(
        self, corpus: Path, settings: TransformerSettings, batch_tokens: int, precision: str
    ) -> None:
        tokenisers = Tokenisers.load(corpus / "tokenisers")
        sizes = tokenisers.source.size, tokenisers.target.size
        cpu = torch.device("cpu")
        self.model = build_model(settings, *sizes)
        task = TranslationTask(
            self.model,
            TokenBatches(EncodedCorpus.open(corpus / "train"), batch_tokens),
            [],
            Translator([self.model], tokenisers),
            options=SearchOptions(),
            device=cpu,
            label_smoothing=TRAINING.label_smoothing,
            precision=precision,
            tokenise="none",
            validation_pairs=1,
            samples=0,
        )
        self.parameters = sum(p.numel() for p in self.model.parameters())
        self._run = tempfile.TemporaryDirectory()
        self.loop = _Recorded(
            task,
            TRAINING,
            Path(self._run.name),
            seed=1,
            device=cpu,
            precision=precision,
            report=Report(1),
        )

    def go_on(self, steps: int) -> tuple[float, int, float]:
        """Train on; the checkpoint at the end is not in the time."""
        progress = self.loop.progress
        last = progress.step + steps
        self.loop.settings = TRAINING.model_copy(
            update={"max_steps": last, "validate_every": 10**9, "checkpoint_every": 10**9}
        )
        before = self.loop.recorded
        self.loop.run()
        seconds, weight, loss = (
            now - then for now, then in zip(self.loop.recorded, before, strict=True)
        )
        return seconds, int(weight), loss / weight


class Plain:
    """The plain loop over the same batches."""

    def __init__(
        self, corpus: Path, settings: TransformerSettings, batch_tokens: int, everywhere: bool
    ) -> None:
        encoded = EncodedCorpus.open(corpus / "train")
        self.batches = TokenBatches(encoded, batch_tokens)
        self.position = Position(1, 0, 0)
        vocabulary = Tokenisers.load(corpus / "tokenisers").target.size
        self.plain = PlainLoop(settings, vocabulary, TRAINING, dropout_everywhere=everywhere)
        self.parameters = sum(p.numel() for p in self.plain.parameters())

    def go_on(self, steps: int) -> tuple[float, int, float]:
        """Train on."""
        weight, total = 0, 0.0
        began = time.perf_counter()
        batches = self.batches.batches(self.position)
        for _ in range(steps):
            self.position, batch = next(batches)
            total += self.plain.step(batch) * batch.weight
            weight += batch.weight
        return time.perf_counter() - began, weight, total / weight


def work(options: argparse.Namespace) -> None:
    """Be a worker: build one variant, then train as often as asked."""
    variant = VARIANTS[options.worker]
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    everywhere = DROPOUT if variant.get("dropout_everywhere") else 0.0
    settings = TransformerSettings.model_validate(
        {
            "layers": options.layers,
            "dim": options.dim,
            "inner": options.inner,
            "heads": options.heads,
            "dropout": DROPOUT,
            "attention_dropout": everywhere,
            "inner_dropout": everywhere,
        }
    )
    training: Trained
    precision = "float32"
    if variant.get("plain"):
        training = Plain(options.corpus, settings, options.batch_tokens, bool(everywhere))
    else:
        if not variant.get("default_allocator"):
            keep_freed_memory()
        precision = choose_precision(options.precision, torch.device("cpu"))
        training = Ours(options.corpus, settings, options.batch_tokens, precision)

    def answer(request: Mapping[str, Any]) -> dict[str, Any]:
        seconds, tokens, loss = training.go_on(request["steps"])
        facts = {"precision": precision, "parameters": training.parameters}
        return {"seconds": seconds, "tokens": tokens, "loss": loss, **facts}

    serve(answer)


def measure(options: argparse.Namespace, corpus: Corpus) -> dict[str, Any]:
    """Let the variants take turns; speeds, ratios, and what was trained."""
    speeds: dict[str, list[float]] = {name: [] for name in options.variants}
    last: dict[str, dict[str, Any]] = {}
    with ExitStack() as stack:
        workers = {
            name: stack.enter_context(_worker(name, options, corpus)) for name in options.variants
        }
        for worker in workers.values():
            worker.ask(steps=options.warm_up)
        for repetition in range(options.repetitions):
            for name, worker in workers.items():
                last[name] = worker.ask(steps=options.steps)
                speeds[name].append(last[name]["tokens"] / last[name]["seconds"])
            if len({answer["tokens"] for answer in last.values()}) > 1:
                raise RuntimeError(f"the variants learnt from different batches: {last}")
            print(f"repetition {repetition + 1} of {options.repetitions}", file=sys.stderr)
    base = speeds.get(PLAIN)
    rows = {}
    for name, own in speeds.items():
        facts = {key: last[name][key] for key in ("precision", "parameters", "loss")}
        rows[name] = {**summarised(own, base), **facts}
    return {
        "unit": "target tokens/s",
        "machine": machine(options.threads),
        "corpus": corpus.what,
        "vocabulary": corpus.vocabulary,
        "steps": options.steps,
        "batch_tokens": options.batch_tokens,
        "variants": rows,
    }


def _worker(name: str, options: argparse.Namespace, corpus: Corpus) -> Worker:
    sizes = ("layers", "dim", "inner", "heads", "batch_tokens", "threads", "precision")
    arguments = ["--worker", name, "--corpus", str(corpus.folder)]
    for key in sizes:
        arguments += [f"--{key.replace('_', '-')}", str(getattr(options, key))]
    return Worker(Path(sys.executable), Path(__file__), arguments, options.threads)


def report(found: dict[str, Any]) -> str:
    """The table, and under it what it depends on."""
    named = {
        f"{name} ({figures['precision']})": figures for name, figures in found["variants"].items()
    }
    counts = ", ".join(
        f"{name} {figures['parameters']:,}" for name, figures in found["variants"].items()
    )
    return "\n".join(
        [
            "## Training the tiny Transformer",
            "",
            speed_table(found["unit"], named),
            "",
            f"{found['corpus']}, vocabulary {found['vocabulary']:,}, batches of at most "
            f"{found['batch_tokens']:,} tokens, {found['steps']} steps a repetition.",
            f"Parameters: {counts}.",
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
    parser.add_argument("--variants", nargs="+", choices=list(VARIANTS), default=list(VARIANTS))
    parser.add_argument("--precision", default="auto", help="of ours (default: auto)")
    for name, value in {
        "repetitions": 5,
        "steps": 10,
        "warm-up": 5,
        "threads": 2,
        "batch-tokens": 4096,
        "vocabulary": 8000,
        "layers": 4,
        "dim": 128,
        "inner": 256,
        "heads": 4,
    }.items():
        parser.add_argument(f"--{name}", type=int, default=value, help=f"default {value}")
    parser.add_argument("--pairs", type=int, help="training pairs (default: all)")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON instead")
    parser.add_argument("--worker", choices=list(VARIANTS), help=argparse.SUPPRESS)
    parser.add_argument("--corpus", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main() -> None:
    """Measure and print; as a worker, serve."""
    options = parse()
    if options.worker:
        work(options)
        return
    with tempfile.TemporaryDirectory() as temporary:
        data = None if options.made else options.data
        corpus = prepare_corpus(Path(temporary), data, options.vocabulary, options.pairs)
        found = measure(options, corpus)
    print(json.dumps(found) if options.json else report(found))


if __name__ == "__main__":
    main()
