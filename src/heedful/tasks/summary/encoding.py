"""Texts and summaries as tokens, over a vocabulary that each text extends by its unknown words."""

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from heedful.basics.errors import UserError
from heedful.basics.symbols import PAD, UNKNOWN
from heedful.data.listed_vocabularies import ListedSettings, ListedVocabulary, Words
from heedful.tasks.column_spec import LeftOutError
from heedful.tasks.summary.examples import Summarised

_BEFORE = re.compile(r" ([.,;:!?)\]}%])")
_AFTER = re.compile(r"([(\[{]) ")


class EncodedText(NamedTuple):
    """A text as tokens."""

    words: list[str]
    tokens: list[int]
    """Words that are not in the vocabulary have the tokens from its size on."""
    unknown: list[str]
    """The words of the tokens from the vocabulary's size on."""


def collect(examples: Iterable[Summarised], data: Any, longest: int) -> dict[str, Any]:
    """The vocabulary of the training data, and the settings that encoding needs.

    Args:
        examples: the training examples.
        data: the table ``[data]`` of the recipe.
        longest: most words of a text.
    """
    settings = ListedSettings(lower_case=data.lower_case, split=data.split)
    words = Words.train(
        (text for one in examples for text in (one.source, *one.targets)),
        settings,
        vocabulary=data.vocabulary_size,
        minimum_count=data.minimum_count,
        where="data.train",
    )
    return {
        "words": list(words.entries),
        "lower_case": data.lower_case,
        "split": data.split,
        "cuts": data.longest_source is not None,
        "longest_source": longest if data.longest_source is None else data.longest_source,
        "longest_summary": data.longest_summary,
    }


class _Listed:
    """A list of words as a key of a cache: lists are compared by identity, which takes no time."""

    def __init__(self, words: list[str]) -> None:
        self.words = words

    def __hash__(self) -> int:
        return id(self.words)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Listed) and other.words is self.words


def words_of(known: Mapping[str, Any]) -> ListedVocabulary:
    """The vocabulary."""
    return _words(_Listed(known["words"]), known["lower_case"], known["split"])


@functools.lru_cache(maxsize=4)
def _words(listed: _Listed, lower_case: bool, split: Any) -> Words:
    return Words(listed.words, ListedSettings(lower_case=lower_case, split=split))


def excess(source: str, known: Mapping[str, Any]) -> int:
    """By how many words a text is longer than the model reads."""
    longest: int = known["longest_source"]
    return max(0, len(words_of(known).cut(source)) - longest)


def encode_text(source: str, known: Mapping[str, Any], where: str = "the text") -> EncodedText:
    """A text as tokens, cut to ``data.longest_source`` words if this is set.

    Args:
        source: the text.
        known: the facts from the training data.
        where: the text, for messages.

    Raises:
        UserError: the text has no words, or is too long and may not be cut.
    """
    vocabulary, longest = words_of(known), known["longest_source"]
    words, tokens = list(vocabulary.cut(source)), vocabulary.encode(source)
    if not words:
        raise UserError(f"{where} has no words; give a text to summarise")
    if len(words) > longest and not known["cuts"]:
        raise UserError(
            f"{where} has {len(words):,} words, more than the model's {longest:,}; give a shorter "
            "text, or train with data.longest_source, to which longer texts are cut"
        )
    words, unknown = words[:longest], dict[str, int]()
    for word, token in zip(words, tokens, strict=False):
        if token == UNKNOWN:
            unknown.setdefault(word, vocabulary.size + len(unknown))
    found = [
        unknown[word] if token == UNKNOWN else token
        for word, token in zip(words, tokens, strict=False)
    ]
    return EncodedText(words, found, list(unknown))


def encode(example: Any, known: Mapping[str, Any]) -> dict[str, Any]:
    """The row of an example, or of a text without summaries.

    Raises:
        UserError: as :func:`encode_text`, for a text without summaries.
        LeftOutError: the text is too long, or all summaries are.
    """
    targets = getattr(example, "targets", None)
    if targets is None:
        return {"source": encode_text(example.source, known, example.where).tokens}
    if not known["cuts"] and excess(example.source, known):
        raise LeftOutError(
            f"their text has more than {known['longest_source']:,} words "
            "(data.longest_source cuts longer texts)"
        )
    text = encode_text(example.source, known)
    size = words_of(known).size
    extension = {word: size + place for place, word in enumerate(text.unknown)}
    rows = [_encode_target(one, extension, known) for one in targets if _fits(one, known)]
    if not rows:
        raise LeftOutError(
            f"their summaries have no words or more than {known['longest_summary']:,} "
            "(data.longest_summary)"
        )
    width = max(map(len, rows))
    return {"source": text.tokens, "targets": [row + [PAD] * (width - len(row)) for row in rows]}


def left_out_summaries(example: Summarised, known: Mapping[str, Any]) -> int:
    """How many summaries of an example are left out, while others of it are trained."""
    fitting = sum(_fits(one, known) for one in example.targets)
    return len(example.targets) - fitting if fitting else 0


def _fits(summary: str, known: Mapping[str, Any]) -> bool:
    longest: int = known["longest_summary"]
    return 0 < len(words_of(known).cut(summary)) <= longest


def _encode_target(text: str, extension: Mapping[str, int], known: Mapping[str, Any]) -> list[int]:
    vocabulary = words_of(known)
    pairs = zip(vocabulary.cut(text), vocabulary.encode(text), strict=True)
    return [extension.get(word, UNKNOWN) if token == UNKNOWN else token for word, token in pairs]


def spelled(tokens: Sequence[int], unknown: Sequence[str], known: Mapping[str, Any]) -> list[str]:
    """The word of each token; ``unknown`` are those of the text that extend the vocabulary."""
    vocabulary = words_of(known)
    size = vocabulary.size
    return [
        unknown[token - size] if token >= size else vocabulary.pieces([token])[0]
        for token in tokens
    ]


def written(words: Sequence[str]) -> str:
    """The text of words; punctuation marks are set as usual.

    Example:
        >>> written(["a", "model", "(", "small", ")", "."])
        'a model (small).'
    """
    return _AFTER.sub(r"\1", _BEFORE.sub(r"\1", " ".join(words)))
