"""Texts as tokens, and what that needs from the training examples."""

import functools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from heedful.basics.errors import UserError
from heedful.basics.notices import notice
from heedful.basics.symbols import UNKNOWN
from heedful.data.listed_vocabularies import Characters, ListedSettings, ListedVocabulary, Words
from heedful.data.sound_features import SoundFeatures
from heedful.decoding.ctc import positions_needed
from heedful.tasks.column_spec import refuse_other_data
from heedful.tasks.transcription.examples import Spoken, SpokenFiles
from heedful.tasks.transcription.subwords import Subwords

_KINDS = {"characters": Characters, "words": Words}
_CLIPPED = 0.01
"""The share of samples at the limit from which a sound is called clipped."""
_LONGER = 1.5
"""Parts of long sounds are at most so many times as long as the longest training sound."""


def collect(examples: Iterable[Spoken], recipe: Any) -> dict[str, Any]:
    """The vocabulary of the training texts, and the settings that encoding needs.

    Silent and clipped sounds are counted in a notice.

    Args:
        examples: the training examples.
        recipe: all settings.

    Raises:
        UserError: there are no texts, or they do not fit the size of the vocabulary.
    """
    data, subwords = recipe.data, recipe.tokeniser
    checked = _Checked(examples, data)
    texts = (spaced(one.text) for one in checked)
    if subwords is not None:
        own = Subwords.train(
            texts, subwords, lower_case=data.lower_case, seed=recipe.seed, where="data.train"
        )
        units: dict[str, Any] = {"units": own.kind, "tokeniser": own.kept()}
    else:
        settings = ListedSettings(lower_case=data.lower_case, normalise="nfc", split="spaces")
        listed = _KINDS[data.units].train(
            texts,
            settings,
            vocabulary=data.vocabulary_size,
            minimum_count=data.minimum_count,
            where="data.train",
        )
        units = {"units": data.units, "entries": list(listed.entries)}
    return {
        **units,
        "lower_case": data.lower_case,
        "features": data.features.model_dump(),
        **_limits(recipe, checked),
    }


def _limits(recipe: Any, checked: "_Checked") -> dict[str, Any]:
    model = recipe.model
    return {
        "longest": recipe.data.longest,
        "longest_part": checked.longest_part,
        "trim": recipe.data.trim,
        "most_tokens": model.max_length - 1,
        "ctc_reduction": model.reduction if model.has_ctc else None,
    }


def continued(theirs: Mapping[str, Any], examples: Iterable[Spoken], recipe: Any) -> dict[str, Any]:
    """What :func:`collect` returns for a run that starts from another one: its vocabulary.

    Args:
        theirs: the facts of the other run.
        examples: the training examples.
        recipe: all settings.

    Raises:
        UserError: the recipe reads sounds or texts in another way, or there are no texts.
    """
    data, vocabulary = recipe.data, vocabulary_of(theirs)
    same = ("features", "lower_case", *(("units",) if recipe.tokeniser is None else ()))
    refuse_other_data(data, theirs, same)
    count = unknown = 0
    checked = _Checked(examples, data)
    for one in checked:
        tokens = vocabulary.encode(spaced(one.text))
        count, unknown = count + len(tokens), unknown + tokens.count(UNKNOWN)
    if not count:
        raise UserError("data.train: no texts; the corpus is empty")
    if unknown:
        notice(
            f"data.train: {unknown:,} of {count:,} {vocabulary.noun} ({unknown / count:.2%}) are "
            "not in the vocabulary of the run that this one starts from"
        )
    return {**theirs, **_limits(recipe, checked)}


class _Checked:
    """The examples; silent and clipped sounds are counted, and the longest one is measured."""

    def __init__(self, examples: Iterable[Spoken], data: SpokenFiles) -> None:
        self.examples, self.data = examples, data
        self.seconds = 0.0

    @property
    def longest_part(self) -> float:
        """Seconds of the longest part of a sound that is transcribed, once all are read."""
        seconds = _LONGER * self.seconds
        return min(self.data.longest, seconds) if seconds else self.data.longest

    def __iter__(self) -> Iterator[Spoken]:
        silent: list[str] = []
        clipped: list[str] = []
        count = 0
        for one in self.examples:
            count += 1
            if self.data.features.kind != "given":
                sound, _ = one.trimmed(self.data.features, self.data.trim)
                if sound.is_silent:
                    silent.append(one.where)
                elif sound.clipped > _CLIPPED:
                    clipped.append(one.where)
                if sound.seconds <= self.data.longest:
                    self.seconds = max(self.seconds, sound.seconds)
            yield one
        for found, how in ((silent, "silent"), (clipped, "clipped (too loud for their format)")):
            if found:
                notice(f"{len(found):,} of {count:,} training sounds are {how}, such as {found[0]}")


def spaced(text: str) -> str:
    """A text with single spaces, and none at its ends."""
    return " ".join(text.split())


def vocabulary_of(known: Mapping[str, Any]) -> ListedVocabulary | Subwords:
    """The vocabulary."""
    if "tokeniser" in known:
        return _subwords(json.dumps(known["tokeniser"]), known["lower_case"])
    return _vocabulary(tuple(known["entries"]), known["units"], known["lower_case"])


@functools.lru_cache(maxsize=4)
def _vocabulary(entries: tuple[str, ...], units: str, lower_case: bool) -> ListedVocabulary:
    settings = ListedSettings(lower_case=lower_case, normalise="nfc", split="spaces")
    return _KINDS[units](entries, settings)


@functools.lru_cache(maxsize=4)
def _subwords(kept: str, lower_case: bool) -> Subwords:
    return Subwords.of(json.loads(kept), lower_case=lower_case)


def ready(text: str, known: Mapping[str, Any]) -> str:
    """A text as transcriptions are compared: with single spaces and, if set, in lower case."""
    return spaced(vocabulary_of(known).ready(text))


def tokens_of(text: str, known: Mapping[str, Any]) -> list[int]:
    """The tokens of a text, without END."""
    return vocabulary_of(known).encode(spaced(text))


def check_fits(frames: int, tokens: Sequence[int], known: Mapping[str, Any]) -> str | None:
    """Why an example cannot be trained on; None if it can.

    Args:
        frames: of its sound.
        tokens: of its text.
        known: see :func:`collect`.
    """
    longest = known["longest"]
    # A sound of N steps has N + 1 frames.
    if (frames - 1) * SoundFeatures.model_validate(known["features"]).seconds > longest:
        return f"recordings of more than {longest:g} seconds (data.longest)"
    if len(tokens) > known["most_tokens"]:
        return f"texts of more than {known['most_tokens']:,} tokens (model.max_length)"
    reduction = known["ctc_reduction"]
    if reduction and positions_needed(tokens) > -(-frames // reduction):
        return (
            f"recordings with fewer positions than their text needs for CTC (the model reads "
            f"{reduction} frames as one position)"
        )
    return None
