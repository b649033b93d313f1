"""Compares the model with the best fuzzy match of the memory on held-out pairs, by match class.

    pip install --target benchmarks/.peers/rapidfuzz rapidfuzz
    python benchmarks/fuzzy_matches.py RUN FILE.tsv

The memory's best match is the entry whose source is most similar to the segment: the normalised
insertion and deletion similarity of RapidFuzz (``fuzz.ratio``), on characters. Its
unchanged target is what a translation memory offers without a model.
"""

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / ".peers" / "rapidfuzz"))

from rapidfuzz import fuzz, process

import heedful
from heedful.data.memory import Memory
from heedful.data.readers import read_pairs
from heedful.evaluation.metrics import score_corpus
from heedful.tasks.pairs.run import MEMORY

CLASSES = (100, 95, 85, 75, 50, 0)
"""The minimum similarity of each class, in percent."""


def best_matches(sources: Sequence[str], memory: Memory) -> list[tuple[float, str]]:
    """For each source, the similarity of the memory's best match and its most frequent target."""
    entries = {entry.source: entry.target for entry in memory}
    known = list(entries)
    found = []
    for source in sources:
        text, similarity, _ = process.extractOne(source, known, scorer=fuzz.ratio)
        match = memory.find(text)
        found.append((similarity, match.target if match else entries[text]))
    return found


def scores(outputs: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """BLEU and chrF of outputs."""
    found = score_corpus(list(outputs), list(references), bootstrap=0)
    return {one.name: round(one.value, 1) for one in found if one.name in ("BLEU", "chrF2")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run")
    parser.add_argument("file", help="held-out pairs")
    parser.add_argument("--count", type=int, default=1_000_000, help="maximum number of pairs")
    parser.add_argument("--beam", type=int, default=5)
    arguments = parser.parse_args()
    translator = heedful.load_translator(arguments.run)
    translator.options = translator.options.model_copy(update={"beam": arguments.beam})
    memory = Memory.load(Path(arguments.run) / MEMORY)
    pairs = list(read_pairs([arguments.file]))[: arguments.count]
    matches = best_matches([pair.source for pair in pairs], memory)
    outputs = [one.text for one in translator.translate([pair.source for pair in pairs])]
    by_class: dict[int, list[int]] = defaultdict(list)
    for row, (similarity, _) in enumerate(matches):
        by_class[next(low for low in CLASSES if similarity >= low)].append(row)
    for low in CLASSES:
        rows = by_class[low]
        references = [pairs[row].target for row in rows]
        line = {
            "similarity from": low,
            "segments": len(rows),
            "model": scores([outputs[row] for row in rows], references) if rows else None,
            "best match": scores([matches[row][1] for row in rows], references) if rows else None,
        }
        print(json.dumps(line))


if __name__ == "__main__":
    main()
