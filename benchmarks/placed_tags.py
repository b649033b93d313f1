"""Measures how many tags word alignment places correctly in a given translation.

    python benchmarks/placed_tags.py ALIGNER FILE.tsv

FILE contains pairs with tags on both sides. The tags are removed, the words of source and reference
are aligned, the source's tags are inserted into the reference, and their positions are compared
with the original ones. A tag is correct if the number of characters before it, without white space,
is the same as in the original reference.
"""

import argparse
import json
from collections import Counter
from pathlib import Path

from lxml import etree

from heedful.data.examples import Pair
from heedful.data.protected.spans import find_spans
from heedful.data.readers import read_pairs
from heedful.inference.span_placement import place_spans, remove_spans
from heedful.tasks.pairs.aligners import build_aligner, load_directions, runs_of

RULES = ("tags",)


def places(text: str) -> Counter[tuple[str, int]]:
    """The tags of a text, each with the number of characters before it."""
    found: Counter[tuple[str, int]] = Counter()
    characters = place = 0
    for span in find_spans(text, RULES):
        characters += len("".join(text[place : span.start].split()))
        found[text[span.start : span.end], characters] += 1
        place = span.end
    return found


def is_well_formed(text: str) -> bool:
    """Whether a text is well-formed as the content of an XML element."""
    plain = text.replace("&", "&amp;")
    pieces, place = [], 0
    for span in find_spans(plain, RULES):
        pieces += [plain[place : span.start].replace("<", "&lt;"), plain[span.start : span.end]]
        place = span.end
    pieces.append(plain[place:].replace("<", "&lt;"))
    try:
        etree.fromstring(f"<x>{''.join(pieces)}</x>")
    except etree.XMLSyntaxError:
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("aligner", type=Path)
    parser.add_argument("file")
    parser.add_argument(
        "--wrong", type=int, default=0, help="number of incorrect segments to print"
    )
    asked = parser.parse_args()
    pairs = [pair for pair in read_pairs([asked.file]) if find_spans(pair.source, RULES)]
    sources = [remove_spans(pair.source, find_spans(pair.source, RULES)) for pair in pairs]
    targets = [remove_spans(pair.target, find_spans(pair.target, RULES)) for pair in pairs]
    aligner = build_aligner(load_directions(runs_of(asked.aligner)), None)
    aligned = aligner.weights(
        [
            Pair(*each)
            for each in zip(
                (bare.text for bare in sources), (bare.text for bare in targets), strict=True
            )
        ]
    )
    counts: Counter[str] = Counter()
    for pair, bare, reference, weights in zip(pairs, sources, targets, aligned, strict=True):
        placed = place_spans(bare, reference.text, weights)
        gold, found = places(pair.target), places(placed)
        counts["tags"] += gold.total()
        counts["tags right"] += (gold & found).total()
        counts["segments"] += 1
        counts["segments right"] += gold == found
        counts["segments with the tags of the reference"] += Counter(
            tag for tag, _ in gold.elements()
        ) == Counter(tag for tag, _ in found.elements())
        counts["well formed"] += is_well_formed(placed)
        counts["sources well formed"] += is_well_formed(pair.source)
        if gold != found and asked.wrong:
            asked.wrong -= 1
            print(pair.source, pair.target, placed, "", sep="\n")
    print(json.dumps(dict(counts), indent=1))


if __name__ == "__main__":
    main()
