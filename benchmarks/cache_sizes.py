"""Cache bytes and translation speed of the Transformers of a comparison.

    python benchmarks/cache_sizes.py runs/key-value-heads --source test.en [--sentences 200]
                                     [--beam 5] [--rounds 5] [--threads 1] [--json]

Takes the first seed of each variant of ``heedful compare``. Bytes are those that the decoder's
caches store for one target token, and for one source token, in all layers together. Speed is that
of beam search on the first sentences of the test set. The variants take turns in one process; the
ratio is the median of the rounds' ratios to the first variant, above 1 is faster.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import heedful
from heedful.attention import Memory
from heedful.basics.bounded_reading import read_json
from heedful.decoding import SearchOptions
from heedful.inference.translator import Translator
from heedful.models.transformer import Transformer
from reporting import machine, said, summarised, table


def runs_of(folder: Path) -> dict[str, Path]:
    """The runs of the first seed by the name of their variant, in the report's order."""
    report = read_json(folder / "report.json")
    return {
        variant["name"]: folder / variant["folder"] / f"seed-{report['seeds'][0]}"
        for variant in report["variants"]
    }


def cache_bytes(model: Transformer) -> tuple[int, int]:
    """The bytes of all layers' caches for a target token, and for a source token."""
    token = torch.zeros(1, 1, model.settings.hidden_size)
    layers = model.decoder_layers()
    return (
        sum(stored(layer.self_attention.remember(token)) for layer in layers),
        sum(stored(layer.cross_attention.remember(token)) for layer in layers),
    )


def stored(memory: Memory) -> int:
    """The bytes of keys and values."""
    return memory.key.nbytes + memory.value.nbytes


def measure(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The figures of each variant."""
    torch.set_num_threads(options.threads)
    texts = options.source.read_text(encoding="utf-8").splitlines()[: options.sentences]
    search = SearchOptions(beam=options.beam)
    translators: dict[str, Translator] = {
        name: heedful.load_translator(run, device="cpu") for name, run in runs_of(folder).items()
    }
    speeds: dict[str, list[float]] = {name: [] for name in translators}
    tokens = {}
    for turn in range(options.rounds + 1):  # the first one warms up
        for name, translator in translators.items():
            begin = time.perf_counter()
            outputs = translator.translate(texts, options=search)
            if turn:
                speeds[name].append(len(texts) / (time.perf_counter() - begin))
            tokens[name] = sum(len(one.tokens) for one in outputs)
    first = next(iter(speeds.values()))
    rows = {}
    for name, translator in translators.items():
        model = translator.models[0]
        assert isinstance(model, Transformer)
        of_target, of_source = cache_bytes(model)
        rows[name] = {
            "bytes_of_target_token": of_target,
            "bytes_of_source_token": of_source,
            "tokens": tokens[name],
            **summarised(speeds[name], first),
        }
    return {
        "machine": machine(options.threads),
        "sentences": len(texts),
        "beam": options.beam,
        "rows": rows,
    }


def report(found: dict[str, Any]) -> str:
    """A table with one row for each variant."""
    titles = ["", "bytes, target token", "bytes, source token", "sentences/s", "ratio", "tokens"]
    rows = [
        [
            name,
            f"{row['bytes_of_target_token']:,}",
            f"{row['bytes_of_source_token']:,}",
            f"{row['median']:.1f}",
            f"{row['ratio']:.2f}×",
            f"{row['tokens']:,}",
        ]
        for name, row in found["rows"].items()
    ]
    what = f"{found['sentences']:,} sentences, beam {found['beam']}."
    return "\n".join([table(titles, rows), "", what, said(found["machine"])])


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="folder of a comparison with its report")
    parser.add_argument("--source", type=Path, required=True, help="source texts, one per line")
    parser.add_argument("--sentences", type=int, default=200)
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    found = measure(options.folder, options)
    print(json.dumps(found, indent=2) if options.json else report(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
