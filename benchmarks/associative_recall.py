"""Makes data of multi-query associative recall: keys with values, then keys whose values are asked.

    python benchmarks/associative_recall.py --out FOLDER [--length 48] [--pairs 8] [--symbols 32]
                                            [--train 20000] [--validation 500] [--test 1000]

Arora et al. 2023, "Zoology: Measuring and Improving Recall in Efficient Language Models", section 4
and appendix E: a text begins with pairs of a key and its value, drawn without repetition. Then
every key comes once more, followed by its value; most of them come soon, by a power law. Between
them are random values. The value of a key that comes again is the tag of that word. Other words
have the tag ``_``, which ``data.untagged`` of the recipe names, so that accuracy is that of the
queried places.

Writes ``{train,validation,test}.tsv``: ``word TAB tag``, an empty line after each text. The same
seed gives the same files.
"""

import argparse
import random
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path

from heedful.basics.files import write_text

UNTAGGED = "_"
_POWER = 0.01
"""The exponent a of the power law a · x^(a − 1), as in the paper."""
Word = tuple[str, str]


def text(length: int, pairs: int, symbols: int, draw: random.Random) -> list[Word]:
    """The words of a text and their tags.

    Args:
        length: number of words; at least four for each pair.
        pairs: number of keys.
        symbols: number of different keys, and of different values.
        draw: the source of randomness.
    """
    keys = [f"k{key}" for key in draw.sample(range(symbols), pairs)]
    values = [f"v{draw.randrange(symbols)}" for _ in keys]
    places = _places((length - 2 * pairs) // 2, pairs, draw)
    asked = dict(zip(places, zip(keys, values, strict=True), strict=True))
    words = [(word, UNTAGGED) for pair in zip(keys, values, strict=True) for word in pair]
    while len(words) < length:
        place = (len(words) - 2 * pairs) // 2
        if place in asked and len(words) + 2 <= length:
            key, value = asked[place]
            words += [(key, value), (value, UNTAGGED)]
        else:
            words.append((f"v{draw.randrange(symbols)}", UNTAGGED))
            if len(words) < length:
                words.append((f"v{draw.randrange(symbols)}", UNTAGGED))
    return words


def _places(room: int, count: int, draw: random.Random) -> list[int]:
    """Different places below ``room``, drawn with the power law; in any order."""
    weights = [_POWER * place ** (_POWER - 1) for place in range(1, room + 1)]
    left = list(range(room))
    found = []
    for _ in range(count):
        at = draw.choices(range(len(left)), cum_weights=list(accumulate(weights)))[0]
        found.append(left.pop(at))
        weights.pop(at)
    return found


def texts(count: int, sizes: Sequence[int], seed: str) -> Iterator[str]:
    """The lines of texts, with an empty line after each."""
    draw = random.Random(seed)
    length, pairs, symbols = sizes
    for _ in range(count):
        lines = (f"{word}\t{tag}" for word, tag in text(length, pairs, symbols, draw))
        yield "\n".join(lines) + "\n\n"


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--length", type=int, default=48, help="words of a text")
    parser.add_argument("--pairs", type=int, default=8, help="keys of a text")
    parser.add_argument("--symbols", type=int, default=32, help="different keys; as many values")
    parser.add_argument("--train", type=int, default=20_000)
    parser.add_argument("--validation", type=int, default=500)
    parser.add_argument("--test", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args(given)
    if asked.length < 4 * asked.pairs or asked.symbols < asked.pairs:
        parser.error("a text has at least four words for each pair, and different keys")
    asked.out.mkdir(parents=True, exist_ok=True)
    sizes = (asked.length, asked.pairs, asked.symbols)
    for part in ("train", "validation", "test"):
        made = texts(getattr(asked, part), sizes, f"{part} {asked.seed}")
        write_text(asked.out / f"{part}.tsv", "".join(made))


if __name__ == "__main__":
    main()
