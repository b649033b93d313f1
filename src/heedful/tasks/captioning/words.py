"""Captions as tokens, and what that needs from the training captions."""

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from heedful.basics.errors import UserError
from heedful.basics.notices import notice
from heedful.data.listed_vocabularies import ListedSettings, ListedVocabulary, Words
from heedful.tasks.captioning.examples import Described
from heedful.tasks.column_spec import LeftOutError

_MARKS = ".,;:!?)"


def collect(examples: Iterable[Described], data: Any, longest: int) -> dict[str, Any]:
    """The vocabulary of the training captions, and the settings that encoding needs.

    Args:
        examples: the training examples.
        data: the table ``[data]`` of the recipe.
        longest: most tokens of a caption, END included.

    Raises:
        UserError: there are no captions, or all are too long.
    """
    settings = ListedSettings(lower_case=data.lower_case, split=data.split)
    cut = Words((), settings)
    captions = [caption for one in examples for caption in one.captions]
    words = Words.train(
        captions,
        settings,
        vocabulary=data.vocabulary_size,
        minimum_count=data.minimum_count,
        where="data.train",
    )
    too_long = sum(len(cut.cut(one)) >= longest for one in captions)
    if too_long == len(captions):
        raise UserError(f"all captions have {longest:,} words or more; raise model.max_length")
    if too_long:
        notice(
            f"{too_long:,} of {len(captions):,} training captions have {longest:,} words or more: "
            "left out (model.max_length)"
        )
    return {
        "words": list(words.entries),
        "lower_case": data.lower_case,
        "split": data.split,
        "longest": longest,
        "form": list(data.form),
    }


def words_of(known: Mapping[str, Any]) -> ListedVocabulary:
    """The vocabulary."""
    return _words(tuple(known["words"]), known["lower_case"], known["split"])


@functools.lru_cache(maxsize=4)
def _words(entries: tuple[str, ...], lower_case: bool, split: Any) -> Words:
    return Words(entries, ListedSettings(lower_case=lower_case, split=split))


def in_words(text: str, known: Mapping[str, Any]) -> str:
    """A text as words with spaces between them, as captions are compared."""
    words = words_of(known)
    return words.join(words.cut(text))


def encode(captions: Sequence[str], known: Mapping[str, Any]) -> list[list[int]]:
    """The tokens of captions, without those that are too long, padded with PAD = 0.

    Raises:
        LeftOutError: all captions are too long.
    """
    longest = known["longest"]
    found = [one for one in words_of(known).encode_batch(captions) if len(one) < longest]
    if not found:
        raise LeftOutError(f"all captions have {longest:,} words or more (model.max_length)")
    width = max([1, *map(len, found)])
    return [one + [0] * (width - len(one)) for one in found]


def written(tokens: Sequence[int], known: Mapping[str, Any]) -> str:
    """The text of a caption; punctuation that is a word of its own follows without a space.

    Example:
        >>> known = {"words": ["dog", "."], "lower_case": True, "split": "punctuation"}
        >>> written(words_of(known).encode("A dog."), known)
        '<unk> dog.'
    """
    text = words_of(known).decode(tokens)
    for mark in _MARKS if known["split"] == "punctuation" else "":
        text = text.replace(f" {mark}", mark)
    return text.strip()
