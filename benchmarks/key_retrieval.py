"""How many values fast weights hold: retrieval by key, with the sum and the delta rule.

    python benchmarks/key_retrieval.py --out FOLDER [--keys 20 60 100 200] [--models softmax …]
                                       [--with-replacement] [--steps 20000] [--seeds 1]
    python benchmarks/key_retrieval.py --out FOLDER --report [--figure curves.svg]

Schlag, Irie, Schmidhuber 2021, section 6.1. A sequence consists of S pairs of a key and a value;
then one of the keys is asked. Without replacement, every key occurs once, so the experiment
measures the capacity. With replacement, there are 2 · S pairs (S when tested), and the last value
of a key is the right one, so that the memory must replace the earlier one.

Keys have trained embeddings; values are one-hot vectors of S components. The key of a pair is a
linear map to 64 components of its embedding and its value, and β is one, too; the query is a linear
map of the embedding alone. The loss is half the squared distance to the value. Adam, learning rate
0.001, 32 sequences a step. Every 100 steps, all keys of 20 new sequences are asked (at most 200 of
each). Training stops at a loss of 0.001, after eleven tests without progress, or at ``--steps``.
The result is the lowest loss of a test, as in the paper.

Each result is written to FOLDER as JSON when its training ends; one that exists is not trained
again.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.attention import attend
from heedful.attention.delta import DeltaState, delta_step
from heedful.attention.feature_maps import DpfpFeatures, EluPlusOne
from heedful.attention.linear import linear_read, linear_state
from heedful.basics.files import write_text
from heedful.basics.progress import progress
from reporting import machine, said, table

WIDTH = 64
ROWS = 32
EVERY = 100
TESTS = 20
MOST_ASKED = 200
PATIENCE = 10
ENOUGH = 1e-3
MAPS: dict[str, nn.Module] = {
    "linear": EluPlusOne(),
    "dpfp-1": DpfpFeatures(1),
    "dpfp-2": DpfpFeatures(2),
    "dpfp-3": DpfpFeatures(3),
}
MODELS = ("softmax", *(f"{name}-{rule}" for name, rule in product(MAPS, ("sum", "delta"))))


class Sequences(NamedTuple):
    """Pairs ``[B, T]`` of a key and a value, numbers below S."""

    keys: Tensor
    values: Tensor


def draw(rows: int, count: int, length: int, replace: bool, random: torch.Generator) -> Sequences:
    """Sequences of ``length`` pairs out of ``count`` keys and as many values."""
    if replace:
        shape = (rows, length)
        keys, values = (torch.randint(count, shape, generator=random) for _ in range(2))
        return Sequences(keys, values)
    orders = (torch.rand(rows, count, generator=random).argsort(1)[:, :length] for _ in range(2))
    return Sequences(*orders)


def last_value(given: Sequences, asked: Tensor) -> Tensor:
    """The last value ``[B, Q]`` of each key ``asked [B, Q]``."""
    places = torch.arange(given.keys.shape[1])
    same = given.keys.unsqueeze(1) == asked.unsqueeze(2)
    return given.values.gather(1, (same * (places + 1)).argmax(-1))


class Retrieval(nn.Module):
    """The model of the experiment, with one of ``MODELS``."""

    def __init__(self, name: str, count: int) -> None:
        super().__init__()
        self.count = count
        map_name, _, self.rule = name.rpartition("-")
        self.feature_map = None if name == "softmax" else MAPS[map_name]
        width = int(2.2 * count)
        self.embedding = nn.Embedding(count, width)
        self.key = nn.Linear(width + count, WIDTH)
        self.query = nn.Linear(width, WIDTH)
        self.strength = nn.Linear(width + count, 1)
        for part in (self.key, self.query):
            if self.feature_map is None:
                nn.init.xavier_uniform_(part.weight)
            else:
                nn.init.uniform_(part.weight, -(WIDTH**-0.5), WIDTH**-0.5)

    def forward(self, given: Sequences, asked: Tensor) -> Tensor:
        """The vectors ``[B, Q, S]`` retrieved for the keys ``asked [B, Q]``."""
        values = F.one_hot(given.values, self.count).float()
        pairs = torch.cat([self.embedding(given.keys), values], -1)
        key, query = self.key(pairs), self.query(self.embedding(asked))
        if self.feature_map is None:
            return attend(query, key, values)
        if self.rule == "sum":
            state = linear_state(key, values, feature_map=self.feature_map)
            return linear_read(query, state, feature_map=self.feature_map)
        key, query = (_shares(self.feature_map(one)) for one in (key, query))
        strength = self.strength(pairs).sigmoid().squeeze(-1)
        _, memory = delta_step(key, key, values, strength)
        return _read(memory, query)


def _shares(features: Tensor) -> Tensor:
    return features / features.sum(-1, keepdim=True).clamp(min=1e-6)


def _read(memory: DeltaState, query: Tensor) -> Tensor:
    found: Tensor = query @ memory.S
    return found


def loss_of(model: Retrieval, given: Sequences, asked: Tensor) -> Tensor:
    """Half the squared distance to the right value, mean over all questions."""
    right = F.one_hot(last_value(given, asked), model.count).float()
    return (model(given, asked) - right).square().sum(-1).mean() / 2


def test_loss(model: Retrieval, replace: bool, random: torch.Generator) -> float:
    """The mean loss of all keys of new sequences of S pairs."""
    losses, weight = 0.0, 0
    with torch.no_grad():
        for _ in range(TESTS):
            given = draw(1, model.count, model.count, replace, random)
            asked = given.keys.unique()[:MOST_ASKED].unsqueeze(0)
            losses += float(loss_of(model, given, asked)) * asked.shape[1]
            weight += asked.shape[1]
    return losses / weight


def train(name: str, count: int, replace: bool, seed: int, most: int) -> dict[str, Any]:
    """Train one model and return its result."""
    torch.manual_seed(seed)
    random = torch.Generator().manual_seed(seed)
    model, begin = Retrieval(name, count), time.perf_counter()
    optimiser = torch.optim.Adam(model.parameters(), 1e-3)
    length = 2 * count if replace else count
    best, since, curve = float("inf"), 0, []
    what = f"{name}, {count} keys, seed {seed}"
    with progress(what, most, "steps") as advance:
        for step in range(1, most + 1):
            given = draw(ROWS, count, length, replace, random)
            place = torch.randint(length, (ROWS, 1), generator=random)
            loss = loss_of(model, given, given.keys.gather(1, place))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            advance(1)
            if step % EVERY:
                continue
            found = test_loss(model, replace, random)
            curve.append(found)
            best, since = (found, 0) if found < best else (best, since + 1)
            if best <= ENOUGH or since > PATIENCE:
                break
    return {
        "model": name,
        "keys": count,
        "with_replacement": replace,
        "seed": seed,
        "loss": best,
        "steps": step,
        "stopped_by_limit": best > ENOUGH and since <= PATIENCE,
        "seconds": time.perf_counter() - begin,
        "curve": curve,
        "machine": machine(torch.get_num_threads()),
    }


def results_in(folder: Path) -> list[dict[str, Any]]:
    """The results in a folder, of the smallest number of keys first."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*.json")]
    return sorted(found, key=lambda one: (MODELS.index(one["model"]), one["keys"], one["seed"]))


def report(found: Sequence[dict[str, Any]]) -> str:
    """A table for each setting: models by numbers of keys."""
    parts = []
    for replace in (False, True):
        own = [one for one in found if one["with_replacement"] == replace]
        if not own:
            continue
        counts = sorted({one["keys"] for one in own})
        rows = []
        for name in [name for name in MODELS if any(one["model"] == name for one in own)]:
            cells = [[o for o in own if (o["model"], o["keys"]) == (name, n)] for n in counts]
            rows.append([name, *(_cell(cell) for cell in cells)])
        title = "With replacement" if replace else "Without replacement"
        parts += [title, "", table(["", *(f"{n} keys" for n in counts)], rows), ""]
    minutes = sum(one["seconds"] for one in found) / 60
    cut = sum(one["stopped_by_limit"] for one in found)
    parts.append(
        f"*: stopped at the largest number of steps ({cut} of {len(found)}). "
        f"{minutes:.0f} minutes. {said(found[0]['machine'])}"
    )
    return "\n".join(parts)


def _cell(cell: Sequence[dict[str, Any]]) -> str:
    if not cell:
        return ""
    mean = sum(one["loss"] for one in cell) / len(cell)
    return f"{mean:.3f}" + "*" * any(one["stopped_by_limit"] for one in cell)


def draw_curves(found: Sequence[dict[str, Any]], path: Path) -> None:
    """Losses by number of keys, one panel per setting."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    settings = sorted({one["with_replacement"] for one in found})
    for axes, replace in zip(
        figure.subplots(1, len(settings), squeeze=False)[0], settings, strict=True
    ):
        own = [one for one in found if one["with_replacement"] == replace]
        for name in [name for name in MODELS if any(one["model"] == name for one in own)]:
            points = sorted((one["keys"], one["loss"]) for one in own if one["model"] == name)
            axes.plot(*zip(*points, strict=True), marker="o", markersize=3, label=name)
        axes.set_title("keys may come again" if replace else "each key once", fontsize=10)
        axes.set_xlabel("keys")
        axes.set_ylabel("loss (half the squared distance)")
        axes.set_ylim(bottom=0)
        axes.legend(fontsize=8)
    figure.savefig(path)


def main(arguments: Sequence[str] | None = None) -> int:
    """Train what is missing, and report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--keys", type=int, nargs="+", default=[20, 60, 100, 200])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--with-replacement", action="store_true")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--report", action="store_true", help="train nothing")
    parser.add_argument("--figure", type=Path, help="write the curves as a figure")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    options.out.mkdir(parents=True, exist_ok=True)
    wanted = [] if options.report else product(options.keys, options.models, range(options.seeds))
    for count, name, seed in wanted:
        replace = options.with_replacement
        kind = "again" if replace else "once"
        path = options.out / f"{name}-{count}-{kind}-{seed + 1}.json"
        if not path.exists():
            write_text(path, json.dumps(train(name, count, replace, seed + 1, options.steps)))
    found = results_in(options.out)
    if not found:
        print(f"{options.out} has no results", file=sys.stderr)
        return 2
    if options.figure:
        draw_curves(found, options.figure)
    print(report(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
