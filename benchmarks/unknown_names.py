"""Measures how many unknown names a translation keeps, with and without ``--keep-unknown``.

    python benchmarks/unknown_names.py RUN [--count 200] [--seed 1]

Takes units of the run's memory, which are segments that the model has learnt, with one placeholder
that has letters. An invented name replaces it on both sides: one word, two words, a word with
capital letters inside, or a word with digits. A name is kept if the translation has it once, as
whole words. The memory is not used for translating.
"""

import argparse
import json
import random
import re
from collections.abc import Sequence

import heedful
from heedful.data.examples import Pair
from heedful.data.memory import Memory
from heedful.data.protected.pairs import Rules, protect_both
from heedful.data.protected.unknown import KnownWords
from heedful.evaluation.metrics import score_corpus
from heedful.tasks.pairs.run import open_pair_run

KINDS = ("one word", "two words", "capitals inside", "digits")


def invented(kind: str, source: random.Random) -> str:
    """A name of this kind."""

    def word() -> str:
        syllables = [
            source.choice("bdfgklmnprstvz") + source.choice(["a", "e", "i", "o", "u", "or", "ix"])
            for _ in range(source.choice((2, 3)))
        ]
        return "".join(syllables).capitalize()

    if kind == "two words":
        return f"{word()} {word()}"
    if kind == "capitals inside":
        return word() + word()
    return f"{word()}{source.randint(2, 99)}" if kind == "digits" else word()


def segments(memory: Memory, rules: Rules, count: int, seed: int) -> list[tuple[str, str, Pair]]:
    """Kind, name and pair of random units with the name in place of their only placeholder."""
    drawn = random.Random(seed)
    known = KnownWords(entry.source for entry in memory)
    units = sorted({(entry.source, entry.target) for entry in memory})
    drawn.shuffle(units)
    found: list[tuple[str, str, Pair]] = []
    for source, target in units:
        own, other = protect_both(Pair(source, target), rules)
        texts = list(own.spans.values())
        words = len(re.findall(r"[^\W\d_]+", own.text))
        if len(texts) != 1 or not any(one.isalpha() for one in texts[0]) or words < 4:
            continue
        if any(re.search(r"\w⟦|⟧\w", side.text) for side in (own, other)):
            continue  # part of a word
        kind = KINDS[len(found) % len(KINDS)]
        name = invented(kind, drawn)
        if any(word in known for word in name.split()):
            continue
        pair = Pair(*(re.sub(r"⟦\d+⟧", name, side.text) for side in (own, other)))
        found.append((kind, name, pair))
        if len(found) == count:
            break
    return found


def kept(found: Sequence[tuple[str, str, Pair]], outputs: Sequence[str]) -> dict[str, object]:
    """Names that are in the outputs exactly once, by kind, and chrF."""
    right = [
        len(re.findall(rf"(?<!\w){re.escape(name)}(?!\w)", output)) == 1
        for (_, name, _), output in zip(found, outputs, strict=True)
    ]
    by_kind = {
        kind: f"{sum(own)} of {len(own)}"
        for kind in KINDS
        if (own := [one for one, (other, _, _) in zip(right, found, strict=True) if other == kind])
    }
    references = [pair.target for _, _, pair in found]
    (score,) = score_corpus(outputs, references, metrics=("chrf",), bootstrap=0)
    return {"kept": f"{sum(right)} of {len(right)}", **by_kind, "chrf": round(score.value, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=0, help="print this many losses")
    arguments = parser.parse_args()
    run = open_pair_run(arguments.run)
    memory, rules = run.memory(), run.recipe.data.rules
    if memory is None or rules is None:
        parser.error(f"{arguments.run} needs a memory and data.protect")
    found = segments(memory, rules, arguments.count, arguments.seed)
    sources = [pair.source for _, _, pair in found]
    plain = heedful.load_translator(arguments.run)
    figures = {}
    for name, translator in (
        ("model alone", plain),
        ("--keep-unknown", plain.keeping_unknown(memory)),
    ):
        outputs = [one.text for one in translator.translate(sources)]
        figures[name] = kept(found, outputs)
        lost = [
            (source, output)
            for (_, own, _), source, output in zip(found, sources, outputs, strict=True)
            if own not in output
        ]
        for source, output in lost[: arguments.show]:
            print(f"{source}\n    {output}")
    print(json.dumps(figures, ensure_ascii=False, indent=1))


if __name__ == "__main__":
    main()
