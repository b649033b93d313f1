"""Compares word aligners on 200 manually aligned English–Spanish pairs of Europarl.

    python benchmarks/alignment.py
    python benchmarks/alignment.py --links heedful=links.txt --eflomal eflomal/bin/eflomal-align

IBM Model 1 is implemented below (Brown et al. 1993, "The mathematics of statistical machine
translation", section 4.1), with a NULL word and five iterations of EM from uniform probabilities.
The first 50 gold pairs are the validation set, for selecting rules and settings; the other 150 are
the test set, with 95 % bootstrap intervals over sentences. All aligners are trained on the same
5,262 pairs. Files of links have one line for each of the 200 gold pairs, with English positions
before Spanish ones, counted from 0.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heedful.data.links import Link
from heedful.evaluation.alignment_error import (
    AlignmentScore,
    GoldLinks,
    alignment_error_rate,
    read_gold,
    read_links,
)
from heedful.evaluation.symmetrisation import symmetrise
from reporting import table

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "align-enes-europarl5k"
DEVELOPMENT = 50
Sentences = list[list[str]]
Links = list[set[Link]]


class IbmModel1:
    """``t(target word | source word)``, estimated by expectation maximisation.

    Args:
        sources: words of each text; NULL is added to each.
        targets: words of each translation.
        iterations: number of EM iterations.
    """

    def __init__(self, sources: Sentences, targets: Sentences, iterations: int = 5) -> None:
        self._sources: dict[str | None, int] = {None: 0}
        self._targets: dict[str, int] = {}
        left, right, rows, row = [], [], [], 0
        for source, target in zip(sources, targets, strict=True):
            own = [0] + [self._sources.setdefault(w, len(self._sources)) for w in source]
            for word in target:
                left += own
                right += [self._targets.setdefault(word, len(self._targets))] * len(own)
                rows += [row] * len(own)
                row += 1
        keys = np.array(left) * len(self._targets) + np.array(right)
        pairs, each = np.unique(keys, return_inverse=True)
        of_source = pairs // len(self._targets)
        place = np.array(rows)
        chance: NDArray[np.float64] = np.full(len(pairs), 1 / len(self._targets))
        for _ in range(iterations):
            weights = chance[each]
            shares = weights / np.bincount(place, weights)[place]
            counts = np.bincount(each, shares, len(pairs))
            chance = counts / np.bincount(of_source, counts)[of_source]
        self._chance = dict(zip(pairs.tolist(), chance.tolist(), strict=True))

    def align(self, sources: Sentences, targets: Sentences) -> Links:
        """The most probable source word of each target word; no link if it is NULL."""
        return [
            {
                (place - 1, position)
                for position, word in enumerate(target)
                if (place := self._best([None, *source], word)) > 0
            }
            for source, target in zip(sources, targets, strict=True)
        ]

    def _best(self, source: Sequence[str | None], word: str) -> int:
        chances = [self._of(own, word) for own in source]
        return int(np.argmax(chances)) if max(chances) > 0 else 0

    def _of(self, own: str | None, word: str) -> float:
        if own not in self._sources or word not in self._targets:
            return 0.0
        key = self._sources[own] * len(self._targets) + self._targets[word]
        return self._chance.get(key, 0.0)


def read(name: str, data: Path) -> Sentences:
    """The words of each line."""
    lines = (data / name).read_text(encoding="utf-8").split("\n")[:-1]
    return [line.split() for line in lines]


def swapped(links: Links) -> Links:
    """Links with source and target exchanged."""
    return [{(j, i) for i, j in each} for each in links]


def joined(forward: Links, reverse: Links) -> dict[str, Links]:
    """Links of both directions, and of three ways to combine them."""
    both = list(zip(forward, reverse, strict=True))
    return {
        "en→es": forward,
        "es→en": reverse,
        **{
            join: [symmetrise(*each, join) for each in both]
            for join in ("intersection", "union", "grow-diag-final-and")
        },
    }


def ibm_model_1(data: Path) -> dict[str, Links]:
    """Links of IBM Model 1 in both directions, and combined."""
    english, spanish = read("train.en", data), read("train.es", data)
    gold = read("dev.en", data), read("dev.es", data)
    forward = IbmModel1(english, spanish).align(*gold)
    reverse = IbmModel1(spanish, english).align(*gold[::-1])
    return joined(forward, swapped(reverse))


def eflomal(program: Path, data: Path) -> dict[str, Links]:
    """Links of the program eflomal (Östling and Tiedemann 2016), unmodified, on the same pairs."""
    with tempfile.TemporaryDirectory() as folder:
        texts = [Path(folder) / side for side in ("en", "es")]
        for path in texts:
            whole = [(data / f"{part}.{path.name}").read_bytes() for part in ("train", "dev")]
            path.write_bytes(b"".join(whole))
        out = [Path(folder) / name for name in ("forward", "reverse")]
        arguments = ["-s", texts[0], "-t", texts[1], "-f", out[0], "-r", out[1], "--overwrite"]
        subprocess.run([program, *arguments], check=True, stdout=sys.stderr)
        found = [read_links(path.read_text().split("\n")[:-1]) for path in out]
    sentences = len(read("dev.en", data))
    # Its "reverse" links also have the order source-target.
    return joined(found[0][-sentences:], found[1][-sentences:])


def interval(
    gold: Sequence[GoldLinks], links: Links, resamples: int, seed: int
) -> tuple[float, float]:
    """The 95 % bootstrap interval of F1 over sentences."""
    counts = np.array(
        [
            (len(each & right.sure), len(each & right.possible), len(each), len(right.sure))
            for each, right in zip(links, gold, strict=True)
        ]
    )
    draws = np.random.default_rng(seed).integers(0, len(gold), (resamples, len(gold)))
    in_sure, in_possible, found, sure = counts[draws].sum(1).T
    precision, recall = in_possible / np.maximum(found, 1), in_sure / sure
    f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-12)
    low, high = np.quantile(f1, [0.025, 0.975])
    return float(low), float(high)


def scored(name: str, links: Links, gold: Sequence[GoldLinks], options: Any) -> dict[str, Any]:
    """The figures of an aligner on the selected part of the gold pairs."""
    parts = {"all": slice(None), "first": slice(DEVELOPMENT), "rest": slice(DEVELOPMENT, None)}
    part = parts[options.part]
    right, own = list(gold[part]), links[part]
    score: AlignmentScore = alignment_error_rate(right, own)
    low, high = interval(right, own, options.bootstrap, options.seed)
    figures = {"aer": score.aer, "precision": score.precision, "recall": score.recall}
    return {"name": name, **figures, "f1": score.f1, "low": low, "high": high, "links": score.links}


def main() -> None:
    """Score, print a table and optionally write the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--part", choices=["rest", "first", "all"], default="rest")
    parser.add_argument("--links", action="append", default=[], metavar="NAME=FILE")
    parser.add_argument("--eflomal", type=Path, help="the program eflomal-align")
    parser.add_argument("--bootstrap", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=12345)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if not options.data.exists():
        sys.exit(f"alignment: no corpus at {options.data}; pass its folder with --data")
    words = read("dev.en", options.data), read("dev.es", options.data)
    lengths = [(len(one), len(two)) for one, two in zip(*words, strict=True)]
    lines = (options.data / "dev.key").read_text().split("\n")[:-1]
    gold = read_gold(lines, indexing="1", lengths=lengths)
    makers: dict[str, Callable[[], dict[str, Links]]] = {
        "IBM Model 1": lambda: ibm_model_1(options.data)
    }
    if options.eflomal:
        makers["eflomal"] = lambda: eflomal(options.eflomal, options.data)
    rows, seconds = [], {}
    for name, make in makers.items():
        began = time.perf_counter()
        found = make()
        seconds[name] = time.perf_counter() - began
        rows += [scored(f"{name}, {how}", links, gold, options) for how, links in found.items()]
    for given in options.links:
        name, _, file = given.partition("=")
        links = read_links(Path(file).read_text().split("\n")[:-1], where=file)
        rows.append(scored(name, links, gold, options))
    titles = ("", "F1", "95 % interval", "precision", "recall", "AER", "links")
    cells = [
        (
            row["name"],
            f"{row['f1']:.3f}",
            f"{row['low']:.3f} to {row['high']:.3f}",
            *(f"{row[figure]:.3f}" for figure in ("precision", "recall", "aer")),
            f"{row['links']:,}",
        )
        for row in rows
    ]
    print(table(titles, cells))
    if options.json:
        report = {"part": options.part, "seconds": seconds, "rows": rows}
        options.json.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
