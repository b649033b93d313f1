"""Texts as tokens and recordings as scaled frames, and what that needs from the training examples.

Shapes: T frames, M bands.
"""

import functools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from unicodedata import normalize

import numpy as np
import torch
from torch import Tensor

from heedful.basics.notices import notice
from heedful.basics.symbols import UNKNOWN
from heedful.data.listed_vocabularies import Characters, ListedSettings
from heedful.data.sentences import split_into_sentences
from heedful.tasks.column_spec import refuse_other_data
from heedful.tasks.synthesis.examples import Recording, SpeechFeatures, SpeechFiles

_SMALL = 1e-3
"""The least standard deviation of a band."""
_QUIET = 1e-4
"""The largest sample of a silent recording."""


class Scale(NamedTuple):
    """Mean and standard deviation of each band of the training recordings, ``[M]``.

    Models predict frames of mean 0 and variance 1.
    """

    mean: Tensor
    deviation: Tensor

    @classmethod
    def of(cls, known: Mapping[str, Any]) -> "Scale":
        """That of a run."""
        return cls(*(torch.tensor(known[name]) for name in ("mean", "deviation")))

    def scaled(self, frames: Tensor) -> Tensor:
        """Frames ``[T, M]`` of mean 0 and variance 1."""
        return (frames - self.mean) / self.deviation

    def restored(self, frames: Tensor) -> Tensor:
        """Log-mel features ``[T, M]`` of scaled frames."""
        return frames * self.deviation + self.mean


class _Sums:
    """What is summed over the training recordings."""

    def __init__(self, features: SpeechFeatures, floor: float) -> None:
        self.features, self.floor = features, floor
        self.count, self.sum = 0, torch.zeros(features.bands, dtype=torch.float64)
        self.squares, self.silent, self.seen = self.sum.clone(), list[str](), 0
        self.characters, self.longest_text = 0, 0

    def texts(self, examples: Iterable[Recording], longest: float) -> Iterator[str]:
        """The texts, while frames are summed; too long recordings are left out of the sums."""
        for one in examples:
            text = spaced(one.text)
            sound = one.samples(self.features)
            self.seen += 1
            if np.abs(sound.samples).max() <= _QUIET:
                self.silent.append(one.where)
            if sound.seconds <= longest:
                frames = log_mel(self.features.of(sound), self.floor).double()
                self.count += len(frames)
                self.sum += frames.sum(0)
                self.squares += frames.square().sum(0)
                self.characters += len(text) + 1
                self.longest_text = max(self.longest_text, len(text))
            yield text


def collect(
    examples: Iterable[Recording], data: SpeechFiles, model: Any, entries: Sequence[str] = ()
) -> dict[str, Any]:
    """The vocabulary of the training texts, the scale of their recordings, and settings.

    Silent recordings are counted in a notice.

    Args:
        examples: the training examples.
        data: the table ``[data]`` of the recipe.
        model: the table ``[model]``.
        entries: characters that come before those of the texts.

    Raises:
        UserError: there are no texts.
    """
    sums = _Sums(data.features, data.floor)
    vocabulary = Characters.train(
        sums.texts(examples, data.longest),
        _listed(data.lower_case),
        vocabulary=data.vocabulary_size,
        minimum_count=data.minimum_count,
        where="data.train",
    )
    if sums.silent:
        count, named = len(sums.silent), sums.silent[0]
        notice(f"{count:,} of {sums.seen:,} training recordings are silent, such as {named}")
    count = max(1, sums.count)
    mean = sums.sum / count
    deviation = (sums.squares / count - mean.square()).clamp(min=0).sqrt().clamp(min=_SMALL)
    return {
        "entries": list(dict.fromkeys([*entries, *vocabulary.entries])),
        "lower_case": data.lower_case,
        "language": data.language,
        "features": data.features.model_dump(),
        "floor": data.floor,
        "mean": mean.tolist(),
        "deviation": deviation.tolist(),
        "longest": data.longest,
        "pace": sums.count * data.features.step / max(1, sums.characters),
        "most_tokens": model.max_length - 1,
        "longest_text": max(1, sums.longest_text),
    }


def continued(
    theirs: Mapping[str, Any], examples: Iterable[Recording], data: SpeechFiles, model: Any
) -> dict[str, Any]:
    """What :func:`collect` returns for a run that starts from another one: its characters, then
    those that it lacks. The scale is that of the new recordings.

    Args:
        theirs: the facts of the other run.
        examples: the training examples.
        data: the table ``[data]`` of the recipe.
        model: the table ``[model]``.

    Raises:
        UserError: the recipe reads sounds or texts in another way, or there are no texts.
    """
    refuse_other_data(data, theirs, ("features", "lower_case", "floor"))
    return collect(examples, data, model, theirs["entries"])


def extended_embedding(theirs: Tensor, vocabulary: int, seed: int) -> Tensor:
    """The embeddings of a vocabulary that begins with that of another run.

    Vectors of new characters are drawn from a normal distribution with the deviation of the others.

    Args:
        theirs: the other run's, ``[V, D]``.
        vocabulary: the number of symbols, at least V.
        seed: of the draws.

    Returns:
        ``[vocabulary, D]``.
    """
    generator = torch.Generator().manual_seed(seed)
    more = torch.randn(vocabulary - len(theirs), theirs.shape[1], generator=generator)
    return torch.cat([theirs, (more * theirs.std()).to(theirs.dtype)])


def _listed(lower_case: bool) -> ListedSettings:
    return ListedSettings(lower_case=lower_case, normalise="nfc")


def log_mel(frames: Tensor, floor: float) -> Tensor:
    """Features ``[T, M]`` that are not below the logarithm of ``floor``."""
    return frames.clamp(min=math.log(floor))


def spaced(text: str) -> str:
    """A text with single spaces, and none at its ends."""
    return " ".join(text.split())


def features_of(known: Mapping[str, Any]) -> SpeechFeatures:
    """The features that a run was trained with."""
    return SpeechFeatures.model_validate(known["features"])


def vocabulary_of(known: Mapping[str, Any]) -> Characters:
    """The vocabulary."""
    return _vocabulary(tuple(known["entries"]), known["lower_case"])


@functools.lru_cache(maxsize=4)
def _vocabulary(entries: tuple[str, ...], lower_case: bool) -> Characters:
    return Characters(entries, _listed(lower_case))


def tokens_of(text: str, known: Mapping[str, Any]) -> list[int]:
    """The tokens of a text, without END; unknown characters, and a space beside another one or at
    an end that they leave, are left out."""
    vocabulary = vocabulary_of(known)
    spaces, found = set(vocabulary.word_starts()), list[int]()
    for one in vocabulary.encode(spaced(text)):
        if one != UNKNOWN and (one not in spaces or (found and found[-1] not in spaces)):
            found.append(one)
    return found[:-1] if found and found[-1] in spaces else found


def unknown_in(text: str, known: Mapping[str, Any]) -> list[str]:
    """The characters of a text that the vocabulary lacks."""
    vocabulary = vocabulary_of(known)
    cut = vocabulary.cut(spaced(text))
    pairs = zip(cut, vocabulary.encode(spaced(text)), strict=True)
    return [character for character, token in pairs if token == UNKNOWN]


def frames_of(example: Recording, known: Mapping[str, Any]) -> Tensor:
    """The scaled frames ``[T, M]`` of a recording.

    Raises:
        UserError: it cannot be read.
    """
    frames = log_mel(example.frames(features_of(known)), known["floor"])
    return Scale.of(known).scaled(frames)


def check_fits(frames: int, tokens: Sequence[int], known: Mapping[str, Any]) -> str:
    """Why an example cannot be trained on; empty if it can.

    Args:
        frames: of its recording.
        tokens: of its text.
        known: see :func:`collect`.
    """
    longest, most = known["longest"], known["most_tokens"]
    if (frames - 1) * features_of(known).seconds > longest:
        return f"recordings of more than {longest:g} seconds (data.longest)"
    if len(tokens) > most:
        return f"texts of more than {most:,} characters (model.max_length)"
    if not tokens:
        return "texts without a known character"
    return ""


def sentences_of(text: str, known: Mapping[str, Any]) -> list[str]:
    """The sentences of a text; each longer one than any of the training is cut after a punctuation
    mark, at a space, or where it must be.

    Example:
        >>> known = {"language": "en", "most_tokens": 99, "longest_text": 16}
        >>> sentences_of("One, two, three, four. Five", known)
        ['One, two, three,', 'four.', 'Five']
    """
    found: list[str] = []
    most = min(known["most_tokens"], known["longest_text"])
    for line in text.splitlines():
        for sentence in split_into_sentences(spaced(line), known["language"]):
            found += _cut(spaced(normalize("NFC", sentence)), most)
    return [one for one in found if one]


def _cut(sentence: str, most: int) -> Iterator[str]:
    while len(sentence) > most:
        places = range(most, most // 3, -1)
        spaces = [place for place in places if sentence[place] == " "]
        marks = [place for place in spaces if not sentence[place - 1].isalnum()]
        end = next(iter(marks or spaces), most)
        yield sentence[:end].strip()
        sentence = sentence[end:].strip()
    yield sentence
