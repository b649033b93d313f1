"""How many protected spans a run keeps, and what protecting costs.

    python benchmarks/kept_spans.py RUN FILE.tsv [--count 1000]

Translates the sources of FILE by the run's model, without its memory, and compares the spans that
its rules find with those of the output. Then it times the same plain lines with and without rules.
"""

import argparse
import json
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


def kept(translator: Translator, sources: Sequence[str], outputs: Sequence[str]) -> dict[str, int]:
    """Counts of segments: those with spans, all kept, one missing, one added."""
    rules = translator.protection.rules
    assert rules is not None
    counts: Counter[str] = Counter()
    for source, output in zip(sources, outputs, strict=True):
        protected = rules.protect(source)
        if not protected.spans:
            continue
        wanted = Counter(protected.spans.values())
        counts["segments with spans"] += 1
        counts["spans"] += wanted.total()
        missing = sum(max(0, times - output.count(text)) for text, times in wanted.items())
        added = (spans(output, rules) - spans(source, rules) - wanted).total()
        counts["spans missing"] += missing
        counts["segments that keep all"] += not missing
        counts["segments with spans that the source has not"] += bool(added)
        counts["spans left as text"] += protected.left
    return dict(counts)


def cost(translator: Translator, lines: Sequence[str], rounds: int = 5) -> dict[str, float]:
    """Seconds of translating lines with and without the rules, in turn; their ratio."""
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
    parser.add_argument("--count", type=int, default=1_000_000, help="pairs at most")
    parser.add_argument("--beam", type=int, default=5)
    asked = parser.parse_args()
    translator = heedful.load_translator(asked.run)
    translator.options = translator.options.model_copy(update={"beam": asked.beam})
    if translator.protection.rules is None:
        parser.error(f"{asked.run} protects nothing: its recipe has no data.protect")
    pairs = list(read_pairs([asked.file]))[: asked.count]
    sources = [pair.source for pair in pairs]
    outputs = [one.text for one in translator.translate(sources)]
    found: dict[str, object] = dict(kept(translator, sources, outputs))
    scores = score_corpus(outputs, [pair.target for pair in pairs], bootstrap=0)
    found |= {score.name: round(score.value, 2) for score in scores}
    without = [text for text in sources if not translator.protection.rules.protect(text).spans]
    found["plain lines"] = len(without)
    found["seconds"] = cost(translator, without[:300])
    print(json.dumps(found, ensure_ascii=False, indent=1))


if __name__ == "__main__":
    main()
