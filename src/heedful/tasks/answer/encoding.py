"""How stories, questions and answers become numbers, and what that needs from the training data."""

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from heedful.basics.errors import UserError
from heedful.basics.notices import notice
from heedful.basics.symbols import PAD
from heedful.data.listed_vocabularies import ListedSettings, Words
from heedful.tasks.answer.examples import Answered, Asked

_SETTINGS = ListedSettings(lower_case=True)


def collect(examples: Iterable[Answered], memory: int, longer: str) -> dict[str, Any]:
    """The words and answers of the training examples, and the settings that encoding needs.

    Raises:
        UserError: a story has more than ``memory`` facts, and ``longer`` refuses it.
    """
    cut = Words((), _SETTINGS)
    words: set[str] = set()
    answers: set[str] = set()
    count = too_long = supported = 0
    for one in examples:
        count += 1
        too_long += len(one.story) > memory
        supported += bool(one.supports)
        if len(one.story) > memory and longer == "refuse":
            raise UserError(_too_long(len(one.story), memory))
        words.update(word for text in (*one.story, one.question) for word in cut.cut(text))
        answers.add(one.answer)
    if too_long:
        notice(
            f"{too_long:,} of {count:,} training stories have more than {memory} facts; their "
            "oldest facts are left out (data.longer = 'drop-oldest')"
        )
    symbols = {cut.ready(answer) for answer in answers}
    return {
        "words": sorted(words | symbols),
        "answers": sorted(answers),
        "memory": memory,
        "longer": longer,
        "supported": supported,
    }


def _too_long(count: int, memory: int) -> str:
    return (
        f"a story has {count:,} facts, but the memory {memory:,}; raise model.memory, or set "
        "data.longer = 'drop-oldest'"
    )


def words_of(known: Mapping[str, Any]) -> Words:
    """The vocabulary; an answer of several words is an entry of its own."""
    return _words(tuple(known["words"]))


@functools.lru_cache(maxsize=4)
def _words(entries: tuple[str, ...]) -> Words:
    return Words(entries, _SETTINGS)


def answer_symbols(known: Mapping[str, Any]) -> list[int]:
    """The symbol of each answer."""
    words = words_of(known)
    first = words.size - len(words.entries)
    places = {entry: first + place for place, entry in enumerate(words.entries)}
    return [places[words.ready(answer)] for answer in known["answers"]]


def kept_facts(story: Sequence[str], known: Mapping[str, Any]) -> list[str]:
    """The facts that the model reads: the last ones, if there are more than its memory holds.

    Raises:
        UserError: there are more, and the recipe refuses them.
    """
    most = known["memory"]
    if len(story) > most and known["longer"] == "refuse":
        raise UserError(_too_long(len(story), most))
    return list(story[-most:])


def encode(example: Asked, known: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a question; an unknown answer gets the label after the last one."""
    words, facts = words_of(known), kept_facts(example.story, known)
    story = words.encode_batch(facts)
    longest = max(1, *map(len, story))
    row: dict[str, Any] = {
        "story": [one + [PAD] * (longest - len(one)) for one in story],
        "question": words.encode(example.question),
    }
    if not isinstance(example, Answered):
        return row
    dropped = len(example.story) - len(facts)
    answers = known["answers"]
    label = answers.index(example.answer) if example.answer in answers else len(answers)
    supports = [one - dropped for one in example.supports if one > dropped]
    return {**row, "answer": label, "supports": supports}
