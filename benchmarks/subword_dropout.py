"""Trains translators with and without BPE dropout, and scores them on held-out sentences.

    python benchmarks/subword_dropout.py deu-eng.zip --out FOLDER [--dropout 0 0.1] [--steps 3500]

25,000 pairs of Tatoeba (English–German). Sentences are held out with all their translations. They
are translated as they are, and with two letters of one word exchanged.
"""

import argparse
import random
from collections.abc import Sequence
from pathlib import Path

import heedful
from heedful.basics.files import write_text
from heedful.data.readers import read_pairs
from heedful.evaluation.metrics import score_corpus
from tatoeba_joined import Pair
from tatoeba_joined import read_pairs as read_tatoeba

TEST, VALIDATION, TRAIN = 1500, 500, 25_000


def parts(pairs: Sequence[Pair]) -> dict[str, list[Pair]]:
    """The pairs of each part: one per held-out sentence, and a sample of the others."""
    by_source: dict[str, list[str]] = {}
    for source, target in pairs:
        by_source.setdefault(source, []).append(target)
    sources = sorted(by_source)
    random.Random(5).shuffle(sources)
    held_out = sources[:TEST], sources[TEST : TEST + VALIDATION]
    rest = [(one, target) for one in sources[TEST + VALIDATION :] for target in by_source[one]]
    random.Random(6).shuffle(rest)
    test, validation = ([(one, by_source[one][0]) for one in some] for some in held_out)
    return {"test": test, "val": validation, "train": rest[:TRAIN]}


def misspelt(text: str, drawn: random.Random) -> str:
    """A text with two letters exchanged inside of a word of at least four."""
    words = text.split()
    long = [place for place, word in enumerate(words) if len(word) >= 4]
    if long:
        place = drawn.choice(long)
        word = words[place]
        at = drawn.randrange(1, len(word) - 2)
        words[place] = word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    return " ".join(words)


def recipe(folder: Path, dropout: float, steps: int) -> dict[str, object]:
    """The tables of a recipe: that for a corpus of this size, with few steps."""
    return {
        "seed": 1,
        "data": {
            "train": [str(folder / "train.tsv")],
            "validation": [str(folder / "val.tsv")],
            "source": "en",
            "target": "de",
        },
        "tokeniser": {"vocabulary_size": 8000},
        "model": {"kind": "transformer", "size": "tiny", "pre_norm": True, "dropout": 0.3},
        "training": {
            "max_steps": steps,
            "batch_tokens": 2048,
            "learning_rate": 2e-3,
            "warmup_steps": 400,
            "validate_every": 500,
            "checkpoint_every": 500,
            "average_checkpoints": 3,
            "threads": 1,
            "subword_dropout": dropout,
        },
        "evaluation": {"validation_pairs": 300, "beam": 2},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tatoeba", type=Path, help="deu-eng.zip or deu.txt")
    parser.add_argument("--out", type=Path, required=True, help="folder for data and runs")
    parser.add_argument("--dropout", type=float, nargs="+", default=[0.0, 0.1])
    parser.add_argument("--steps", type=int, default=3500)
    arguments = parser.parse_args()
    for name, pairs in parts(read_tatoeba(arguments.tatoeba)).items():
        lines = "".join(f"{source}\t{target}\n" for source, target in pairs)
        write_text(arguments.out / f"{name}.tsv", lines)
    held_out = list(read_pairs([str(arguments.out / "test.tsv")]))
    plain = [pair.source for pair in held_out]
    drawn = random.Random(3)
    wrong = [misspelt(text, drawn) for text in plain]
    for dropout in arguments.dropout:
        run = arguments.out / f"run-{dropout}"
        heedful.train(recipe(arguments.out, dropout, arguments.steps), run)
        translator = heedful.load_translator(run)
        for name, sources in (("as they are", plain), ("misspelt", wrong)):
            scores = score_corpus(
                [one.text for one in translator.translate(sources)],
                [pair.target for pair in held_out],
                metrics=("bleu", "chrf"),
                bootstrap=0,
            )
            figures = ", ".join(f"{one.name} {one.value:.2f}" for one in scores)
            print(f"dropout {dropout}, {name}: {figures}")


if __name__ == "__main__":
    main()
