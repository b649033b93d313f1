"""The built-in corpus: pairs of texts whose translation is correct by construction."""

import difflib
import re
from collections.abc import Callable
from random import Random
from typing import NamedTuple

from babel import Locale, UnknownLocaleError
from babel.localedata import locale_identifiers

from heedful.basics.errors import UserError
from heedful.data.demo.cldr import CldrPairs
from heedful.data.demo.english import english
from heedful.data.demo.german import german
from heedful.data.demo.grammar import sentence
from heedful.data.demo.templates import filled_template
from heedful.data.examples import Pair

# Shares of a corpus for English and German.
_GRAMMAR_SHARE = 0.7
_TEMPLATE_SHARE = 0.07
# So many draws in a row without anything new mean that there is (almost) nothing left to draw.
_PATIENCE = 5000
# A piece is a word or a run of digits; marks between them are in every text and do not count.
_PIECE = re.compile(r"\d+|[^\d\s.,;:!?()/、，。·-]+")


class DemoCorpus(NamedTuple):
    """Three parts without common sources or targets."""

    train: list[Pair]
    validation: list[Pair]
    test: list[Pair]


def pieces(text: str) -> set[str]:
    """The words and the runs of digits of a text.

    >>> sorted(pieces("The book costs €12.50."))
    ['12', '50', 'The', 'book', 'costs', '€']
    """
    return set(_PIECE.findall(text.replace("€", " € ")))


def _locale(code: str) -> Locale:
    """Return the locale of a language code such as "de", "pt-BR" or "zh_Hans".

    Raises:
        UserError: Babel does not know the locale.
    """
    try:
        return Locale.parse(code.strip().replace("-", "_"))
    except (UnknownLocaleError, ValueError):
        pass
    known = [name.replace("_", "-") for name in locale_identifiers()]
    names = {
        name.lower(): short for short, name in Locale("en").languages.items() if short in known
    }
    wanted = code.strip().lower().replace("_", "-")
    near = difflib.get_close_matches(wanted, [*known, *names], n=1, cutoff=0.5)
    if wanted in names:
        near = [names[wanted]]
    elif wanted.split("-")[0] in known:
        near = [wanted.split("-")[0]]
    suggestion = repr(names.get(near[0], near[0])) if near else ""
    hint = f"did you mean {suggestion}?" if near else "use one such as 'de' or 'pt-BR'"
    raise UserError(f"unknown language code {code!r}: {hint}")


class _Source:
    """The generator of pairs for two languages."""

    def __init__(self, source: str, target: str) -> None:
        self.source, self.target = _locale(source), _locale(target)
        if self.source == self.target:
            raise UserError(
                f"the demo corpus needs two languages, but source and target are both {source!r}: "
                "choose another target"
            )
        languages = (self.source.language, self.target.language)
        self.grammar = languages in (("en", "de"), ("de", "en"))
        self._swapped = languages == ("de", "en")
        self.cldr = CldrPairs(self.source, self.target)
        if not self.cldr.topics:
            raise UserError(f"the CLDR has no names in both {source!r} and {target!r}")

    def draw(self, random: Random) -> Pair:
        chance = random.random() if self.grammar else 1.0
        if chance >= _GRAMMAR_SHARE:
            return self.cldr.draw(random)
        if chance < _TEMPLATE_SHARE:
            english_locale, german_locale = self.source, self.target
            if self._swapped:
                english_locale, german_locale = german_locale, english_locale
            pair = filled_template(random, english_locale, german_locale)
        else:
            meaning = sentence(random)
            pair = Pair(english(meaning), german(meaning))
        return Pair(pair.target, pair.source) if self._swapped else pair


class _Collector:
    """Draws new pairs: no source and no target occurs twice in the corpus."""

    def __init__(self, source: _Source, random: Random) -> None:
        self._source, self._random = source, random
        self._sources: set[str] = set()
        self._targets: set[str] = set()

    def collect(self, count: int, part: str, accept: Callable[[Pair], bool]) -> list[Pair]:
        found: list[Pair] = []
        misses = 0
        while len(found) < count:
            pair = self._source.draw(self._random)
            new = pair.source not in self._sources and pair.target not in self._targets
            if not (new and accept(pair)):
                misses += 1
                if misses > _PATIENCE:
                    raise UserError(
                        f"the demo corpus found only {len(found)} of {count} requested {part} "
                        "pairs: request fewer, or more training pairs"
                    )
                continue
            misses = 0
            self._sources.add(pair.source)
            self._targets.add(pair.target)
            found.append(pair)
        return found


def demo_corpus(
    source: str, target: str, *, seed: int, train: int, validation: int, test: int
) -> DemoCorpus:
    """Generate a corpus for two languages, without a download.

    Between English and German, 70 % are sentences of a small grammar and 30 % values (dates,
    quantities, …) from the Unicode CLDR; for other languages, all pairs are from the CLDR.
    Validation and test data are new combinations of known pieces: none of their sources and targets
    is in `train`, but all of their words and numbers are. Equal arguments give equal corpora, and a
    source has exactly one target.

    Args:
        source: Language code of the sources, such as "en" or "pt-BR".
        target: Language code of the targets.
        seed: Seed of the random generator.
        train: Number of training pairs.
        validation: Number of validation pairs.
        test: Number of test pairs.

    Raises:
        UserError: An unknown language code, the same language twice, or too many pairs.
    """
    for part, count in (("training", train), ("validation", validation), ("test", test)):
        if count < (1 if part == "training" else 0):
            raise UserError(f"the demo corpus cannot have {count} {part} pairs")
    collector = _Collector(_Source(source, target), Random(seed))
    seen_pairs = collector.collect(train, "training", lambda pair: True)
    seen_source = set().union(*(pieces(pair.source) for pair in seen_pairs))
    seen_target = set().union(*(pieces(pair.target) for pair in seen_pairs))

    def accept(pair: Pair) -> bool:
        return pieces(pair.source) <= seen_source and pieces(pair.target) <= seen_target

    return DemoCorpus(
        seen_pairs,
        collector.collect(validation, "validation", accept),
        collector.collect(test, "test", accept),
    )


def describe(source: str, target: str) -> str:
    """Describe the corpus for two languages in one line.

    Raises:
        UserError: An unknown language code, or the same language twice.

    >>> describe("en", "de")[:52]
    'English → German: 70 % sentences of a small grammar,'
    """
    pairs = _Source(source, target)
    names = f"{pairs.source.get_display_name('en')} → {pairs.target.get_display_name('en')}"
    topics = f"{', '.join(pairs.cldr.topics)} as the Unicode CLDR writes them"
    if pairs.grammar:
        share = round(100 * _GRAMMAR_SHARE)
        return f"{names}: {share} % sentences of a small grammar, {100 - share} % {topics}"
    return f"{names}: {topics}"
