"""Measures how many protected spans a run keeps, and the cost of protection.

    python benchmarks/kept_spans.py RUN FILE.tsv [--count 1000]

Translates the sources of FILE with the run's model, without its memory, and compares the spans that
its rules find in source and output. Then it measures the time with and without rules.
"""

import argparse
import json
import re
import statistics
import time
from collections import Counter
from collections.abc import Sequence

import heedful
from heedful.data.protected.pairs import Rules
from heedful.data.protected.spans import find_spans
from heedful.data.readers import read_pairs
from heedful.evaluation.metrics import score_corpus
from heedful.inference import Translator
from heedful.inference.protection import Protection


def spans(text: str, rules: Rules) -> Counter[str]:
    """The texts of the spans that the rules find."""
    return Counter(text[span.start : span.end] for span in find_spans(text, rules.names))


def wanted_by_rule(text: str, rules: Rules) -> dict[str, Counter[str]]:
    """For each rule, the texts that a translation must contain, with numbers in the target
    format."""
    wanted: dict[str, Counter[str]] = {}
    for span in find_spans(text, rules.names):
        own = rules.rendering(span.rule, text[span.start : span.end])
        wanted.setdefault(span.rule, Counter())[own] += 1
    return wanted


def kept(
    translator: Translator, sources: Sequence[str], outputs: Sequence[str]
) -> dict[str, dict[str, int]]:
    """Counts for each rule, and for all: segments with spans, spans, missing, added."""
    rules = translator.protection.rules
    assert rules is not None
    found: dict[str, Counter[str]] = {"all": Counter()}
    for source, output in zip(sources, outputs, strict=True):
        wanted = wanted_by_rule(source, rules)
        total = sum(wanted.values(), Counter[str]())
        for rule, texts in [*wanted.items(), ("all", total)]:
            if not texts:
                continue
            missing = sum(max(0, times - output.count(text)) for text, times in texts.items())
            counts = found.setdefault(rule, Counter())
            counts["segments"] += 1
            counts["segments that keep all"] += not missing
            counts["spans"] += texts.total()
            counts["spans missing"] += missing
        added = spans(output, rules) - spans(source, rules) - total
        found["all"]["segments with spans of their own"] += bool(added)
        found["all"]["spans left as text"] += rules.protect(source).left
    return {rule: dict(counts) for rule, counts in found.items()}


def white_space(translator: Translator, sources: Sequence[str]) -> dict[str, int]:
    """The number of segments with the line breaks and outer spaces of the source."""
    texts = [f"  {one}\n\n{two}\n" for one, two in zip(sources[::2], sources[1::2], strict=False)]
    outputs = [one.text for one in translator.translate(texts)]
    shape = re.compile(r"  \S[^\n]*\S?\n\n\S[^\n]*\S?\n")
    same = sum(shape.fullmatch(output) is not None for output in outputs)
    return {"segments": len(texts), "as in the source": same}


def cost(translator: Translator, lines: Sequence[str], rounds: int = 5) -> dict[str, float]:
    """Seconds of translating lines with and without the rules, in turns, and their ratio."""
    own = translator.protection
    plain = Protection(translator.tokenisers, None)
    seconds: dict[str, list[float]] = {"protected": [], "plain": []}
    for _ in range(rounds):
        for name, protection in (("protected", own), ("plain", plain)):
            translator.protection = protection
            began = time.perf_counter()
            translator.translate(lines)
            seconds[name].append(time.perf_counter() - began)
    translator.protection = own
    found = {name: statistics.median(values) for name, values in seconds.items()}
    return {**found, "ratio": found["protected"] / found["plain"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run")
    parser.add_argument("file")
    parser.add_argument("--count", type=int, default=1_000_000, help="maximum number of pairs")
    parser.add_argument("--beam", type=int, default=5)
    arguments = parser.parse_args()
    translator = heedful.load_translator(arguments.run)
    translator.options = translator.options.model_copy(update={"beam": arguments.beam})
    if translator.protection.rules is None:
        parser.error(f"{arguments.run} protects nothing: its recipe has no data.protect")
    pairs = list(read_pairs([arguments.file]))[: arguments.count]
    sources = [pair.source for pair in pairs]
    outputs = [one.text for one in translator.translate(sources)]
    found: dict[str, object] = dict(kept(translator, sources, outputs))
    found["white space"] = white_space(translator, sources[:200])
    scores = score_corpus(outputs, [pair.target for pair in pairs], bootstrap=0)
    found |= {score.name: round(score.value, 2) for score in scores}
    without = [text for text in sources if not translator.protection.rules.protect(text).spans]
    found["plain lines"] = len(without)
    found["seconds"] = cost(translator, without[:300])
    print(json.dumps(found, ensure_ascii=False, indent=1))


if __name__ == "__main__":
    main()
