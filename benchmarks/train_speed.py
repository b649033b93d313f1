"""Training speed: heedful's loop, a plain loop around torch.nn.Transformer, Eole and Sockeye.

    python benchmarks/install_peers.py eole sockeye
    python benchmarks/train_speed.py [--sizes tiny base] [--repetitions 5] [--threads 2]

Measures target tokens per second (without padding) of the tiny and the base Transformer on
Multi30k, in batches of at most 4,096 tokens. heedful and the plain loop get the same batches. Each
variant runs in a separate process, because allocator settings apply to a process; variants take
turns of a few steps. The baseline of the ratios is the plain loop.

- plain loop: unmodified ``torch.nn.Transformer``, float32, logits of the whole batch,
  ``nn.CrossEntropyLoss``, ``torch.optim.Adam``, the default allocator.
- plain loop, dropout as ours: without the dropout on attention weights and in the feed-forward
  networks, which heedful's recipes do not have.
- ours: heedful's training loop, as in ``heedful train``, in the fastest precision.
- ours, default allocator: without the setting that keeps freed memory.
- ours, dropout as plain: with dropout everywhere that ``torch.nn.Transformer`` has it.
- Eole, Sockeye: their own commands with the fastest settings (``train_peers.py``), one run per
  turn.

By default, the base size is measured for the plain loop, heedful and the peers only.
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

import limits
import train_peers
from corpus import MULTI30K, Corpus, prepare_corpus
from heedful.data.batching import TokenBatches
from heedful.data.positions import Position
from heedful.data.saved_vocabularies import load_tokenisers
from heedful.data.store import Store
from heedful.decoding import SearchOptions
from heedful.inference.translator import Translator
from heedful.kernels.allocator import keep_freed_memory
from heedful.models import build_model
from heedful.models.transformer import TransformerSettings
from heedful.tasks.pairs.recipe import TrainingSettings
from heedful.tasks.translation.training import TranslationTask
from heedful.training.fastest_precision import training_precision
from heedful.training.loop import Loop
from heedful.training.report import Report
from install_peers import how_to_install, peer_python
from plain_loop import PlainLoop
from reporting import machine, said, summarised, table
from sizes import SIZES
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
OF_BASE = [PLAIN, OURS]
STEPS = {"tiny": 10, "base": 4}
"""Updates per turn; other sizes use the number of tiny."""
TRAINING = TrainingSettings(learning_rate=1e-3, warmup_steps=100, log_every=10**9)


class Trained(Protocol):
    """A training that runs a few steps at a time."""

    parameters: int

    def go_on(self, steps: int) -> tuple[float, int, float]:
        """Run steps; returns seconds, target tokens, and the loss per token in nats."""
        ...


class _Recorded(Loop):
    """The training loop, which keeps the sums of its records, including the last step's."""

    recorded = (0.0, 0.0, 0.0)
    """The seconds, tokens and summed loss so far."""

    def _log(self) -> None:
        progress = self.progress
        self._read_sums()
        now = (progress.seconds, progress.weight, progress.sums["loss"])
        self.recorded = tuple(a + b for a, b in zip(self.recorded, now, strict=True))
        super()._log()


class Ours:
    """heedful's training loop, timed by the clock that ``heedful train`` uses for tokens/s."""

    def __init__(
        self,
        corpus: Path,
        settings: TransformerSettings,
        batch_tokens: int,
        precision: str,
        device: str = "cpu",
        training: TrainingSettings = TRAINING,
    ) -> None:
        tokenisers = load_tokenisers(corpus / "tokenisers")
        sizes = tokenisers.source.size, tokenisers.target.size
        there = torch.device(device)
        self.training = training
        self.model = build_model(settings, *sizes).to(there)
        task = TranslationTask(
            self.model,
            TokenBatches(Store.open(corpus / "train"), batch_tokens),
            [],
            Translator([self.model], tokenisers),
            options=SearchOptions(),
            device=there,
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
            training,
            Path(self._run.name),
            seed=1,
            device=there,
            precision=precision,
            report=Report(1),
        )

    def go_on(self, steps: int) -> tuple[float, int, float]:
        """Run steps; the checkpoint at the end is not timed."""
        progress = self.loop.progress
        last = progress.step + steps
        self.loop.settings = self.training.model_copy(
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
        self,
        corpus: Path,
        settings: TransformerSettings,
        batch_tokens: int,
        everywhere: bool,
        device: str = "cpu",
        precision: str = "float32",
    ) -> None:
        encoded = Store.open(corpus / "train")
        self.batches = TokenBatches(encoded, batch_tokens)
        self.position = Position(1, 0, 0)
        vocabulary = load_tokenisers(corpus / "tokenisers").target.size
        self.plain = PlainLoop(
            settings,
            vocabulary,
            TRAINING,
            dropout_everywhere=everywhere,
            device=device,
            precision=precision,
        )
        self.parameters = sum(p.numel() for p in self.plain.parameters())

    def go_on(self, steps: int) -> tuple[float, int, float]:
        """Run steps."""
        weight, total = 0, torch.zeros((), device=self.plain.device)
        began = time.perf_counter()
        batches = self.batches.batches(self.position)
        for _ in range(steps):
            self.position, batch = next(batches)
            total += self.plain.step(batch) * batch.weight
            weight += batch.weight
        loss = total.item() / weight  # waits for the device
        return time.perf_counter() - began, weight, loss


def work(options: argparse.Namespace) -> None:
    """Run as a worker: build one variant, then handle requests to train."""
    variant = VARIANTS[options.worker]
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    everywhere = DROPOUT if variant.get("dropout_everywhere") else 0.0
    settings = TransformerSettings.model_validate(
        SIZES[options.sizes[0]]._asdict()
        | {"dropout": DROPOUT, "attention_dropout": everywhere, "ffn_dropout": everywhere}
    )
    training: Trained
    precision = "float32"
    if variant.get("plain"):
        training = Plain(options.corpus, settings, options.batch_tokens, bool(everywhere))
    else:
        if not variant.get("default_allocator"):
            keep_freed_memory()
        precision = options.precision
        if precision == "auto":
            first = Ours(options.corpus, settings, options.batch_tokens, "float32").loop.task
            start, cpu = Position(1, 0, 0), torch.device("cpu")
            precision = training_precision(first, start, cpu, None, lambda text: None)
        training = Ours(options.corpus, settings, options.batch_tokens, precision)

    def answer(request: Mapping[str, Any]) -> dict[str, Any]:
        seconds, tokens, loss = training.go_on(request["steps"])
        facts = {"precision": precision, "parameters": training.parameters}
        return {"seconds": seconds, "tokens": tokens, "loss": loss, **facts}

    serve(answer)


def measure(options: argparse.Namespace, corpus: Corpus) -> dict[str, Any]:
    """Measure the variants and the peers in turns, size by size."""
    texts = train_peers.write_texts(corpus, corpus.folder / "words")
    known, sizes = limits.limits(options.threads), {}
    for size in options.sizes:
        work = SIZES[size].training(texts.source_tokens, corpus.vocabulary)
        sizes[size] = {"operations": work, **_measure_size(size, options, corpus, texts)}
    return {
        "machine": machine(options.threads),
        "limits": limits.highest(known, limits.limits(options.threads)),
        "corpus": corpus.what,
        "vocabulary": corpus.vocabulary,
        "batch_tokens": options.batch_tokens,
        "sizes": sizes,
    }


def _measure_size(
    size: str, options: argparse.Namespace, corpus: Corpus, texts: train_peers.Texts
) -> dict[str, Any]:
    steps = options.steps or STEPS.get(size, STEPS["tiny"])
    names = options.variants or (OF_BASE if size == "base" else list(VARIANTS))
    peers, left_out = _peers(options)
    speeds: dict[str, list[float]] = {name: [] for name in (*names, *peers)}
    facts: dict[str, dict[str, Any]] = {
        name: {"precision": train_peers.precision_of(name)} for name in peers
    }
    training = train_peers.Training(
        texts, SIZES[size], options.batch_tokens, steps, options.threads
    )
    with ExitStack() as stack:
        workers = {
            name: stack.enter_context(_worker(name, size, options, corpus)) for name in names
        }
        for worker in workers.values():
            worker.ask(steps=options.warm_up)
        for repetition in range(options.repetitions):
            for name, worker in workers.items():
                answer = worker.ask(steps=steps)
                speeds[name].append(answer["tokens"] / answer["seconds"])
                facts[name] = answer
            if len({facts[name]["tokens"] for name in names}) > 1:
                raise RuntimeError(f"the variants got different batches: {facts}")
            for name in [one for one in peers if one not in left_out]:
                try:
                    speeds[name].append(train_peers.PEERS[name][1](training))
                except train_peers.PeerError as error:
                    left_out[name] = str(error)
            print(f"{size}, repetition {repetition + 1} of {options.repetitions}", file=sys.stderr)
    base = speeds.get(PLAIN)
    rows = {}
    for name, own in speeds.items():
        if name not in left_out:
            about = {key: facts[name].get(key) for key in ("precision", "parameters", "loss")}
            rows[name] = {**summarised(own, base), **about}
    return {"steps": steps, "variants": rows, "left_out": left_out}


def _peers(options: argparse.Namespace) -> tuple[list[str], dict[str, str]]:
    """The installed peers, and the reason why others are skipped."""
    if options.ours_only:
        return [], {}
    there, left_out = [], {}
    for name, (environment, _) in train_peers.PEERS.items():
        if peer_python(environment):
            there.append(name)
        else:
            left_out[name] = how_to_install(environment)
    return there, left_out


def _worker(name: str, size: str, options: argparse.Namespace, corpus: Corpus) -> Worker:
    arguments = ["--worker", name, "--corpus", str(corpus.folder), "--sizes", size]
    for key in ("batch_tokens", "threads", "precision"):
        arguments += [f"--{key.replace('_', '-')}", str(getattr(options, key))]
    return Worker(Path(sys.executable), Path(__file__), arguments, options.threads)


def report(found: dict[str, Any]) -> str:
    """A table for each size, followed by versions and settings."""
    parts = ["## Training", ""]
    for size, own in found["sizes"].items():
        parts += [f"### {size}", "", _rows(own, found["limits"]), ""]
        parts += [f"Skipped: {name}: {why}" for name, why in own["left_out"].items()]
        counts = [
            f"{name} {figures['parameters']:,}"
            for name, figures in own["variants"].items()
            if figures["parameters"]
        ]
        parts += [f"Steps per repetition: {own['steps']}. Parameters: {', '.join(counts)}.", ""]
    return "\n".join(
        [
            *parts,
            f"{found['corpus']}, vocabulary {found['vocabulary']:,}, batches of at most "
            f"{found['batch_tokens']:,} tokens. {', '.join(train_peers.VERSIONS.values())}.",
            limits.said(found["limits"]),
            said(found["machine"]),
        ]
    )


def _rows(found: dict[str, Any], rates: Mapping[str, float]) -> str:
    rows = []
    for name, figures in found["variants"].items():
        ratio, limit = figures.get("ratio"), limits.operations(rates, figures["precision"])
        cells = [f"{figures[which]:,.0f}" for which in ("median", "lowest", "highest")]
        cells.append("–" if ratio is None else f"{ratio:.2f}×")
        cells.append(
            "–" if limit is None else f"{figures['median'] * found['operations'] / limit:.0%}"
        )
        rows.append([f"{name} ({figures['precision']})", *cells])
    titles = ["", "target tokens/s, median", "lowest", "highest", "ratio", "of the limit"]
    return table(titles, rows)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = MULTI30K if MULTI30K.is_dir() else None
    parser.add_argument("--data", type=Path, default=default, help="folder with Multi30k's files")
    parser.add_argument(
        "--made", action="store_true", help="use random texts even if Multi30k is available"
    )
    parser.add_argument("--variants", nargs="+", choices=list(VARIANTS), help="of ours")
    parser.add_argument("--ours-only", action="store_true", help="without Eole and Sockeye")
    parser.add_argument("--sizes", nargs="+", choices=list(SIZES), default=["tiny", "base"])
    parser.add_argument("--steps", type=int, help=f"updates per turn (default: {STEPS})")
    parser.add_argument(
        "--precision", choices=["auto", "float32", "bfloat16"], default="auto", help="of ours"
    )
    for name, value in {
        "repetitions": 5,
        "warm-up": 5,
        "threads": 2,
        "batch-tokens": 4096,
        "vocabulary": 8000,
    }.items():
        parser.add_argument(f"--{name}", type=int, default=value, help=f"default {value}")
    parser.add_argument("--pairs", type=int, help="training pairs (default: all)")
    parser.add_argument(
        "--json", action="store_true", help="print all figures as JSON instead of a report"
    )
    parser.add_argument("--worker", choices=list(VARIANTS), help=argparse.SUPPRESS)
    parser.add_argument("--corpus", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main() -> None:
    """Measure and print, or run as a worker."""
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
