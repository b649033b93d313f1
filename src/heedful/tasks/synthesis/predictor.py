"""Speaks texts, and says when each word is spoken.

Shapes: S steps, L tokens with END, N samples.
"""

import io
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import soundfile
import torch
from numpy.typing import NDArray

from heedful.basics.errors import UserError
from heedful.basics.notices import notice
from heedful.data.griffin_lim import to_sound
from heedful.data.readers.data_uris import uri_of
from heedful.data.readers.sounds import Sound
from heedful.inference import Axis, Media, Trace
from heedful.inference.tracing import END_LABEL, Decision, Described
from heedful.models import SynthesisModel
from heedful.tasks.column_predictor import ColumnPredictor
from heedful.tasks.synthesis.examples import Said
from heedful.tasks.synthesis.recipe import SpeakingSettings
from heedful.tasks.synthesis.speaking import Utterance, source_of, speak, step_limits
from heedful.tasks.synthesis.texts import (
    Scale,
    features_of,
    sentences_of,
    tokens_of,
    unknown_in,
    vocabulary_of,
)

_AT_ONCE = 16
"""Sentences in a batch."""
_NAMED = 5
"""Unknown characters that a notice names."""


class Word(NamedTuple):
    """A word, and when it is spoken."""

    text: str
    start: float
    """Seconds from the beginning of the sound."""
    end: float


class Alignment(NamedTuple):
    """What a sentence's steps attend to."""

    tokens: Sequence[str]
    """The characters, and END."""
    start: float
    """Seconds from the beginning of the sound to the first step."""
    step: float
    """Seconds of a step."""
    weights: torch.Tensor
    """``[S, L]``."""


class Speech(NamedTuple):
    """A spoken text."""

    text: str
    sound: Sound
    alignments: Sequence[Alignment]
    """One for each sentence."""
    words: Sequence[Word]
    """By the character with the largest weight at each step."""
    complete: bool
    """Whether there is a sentence, and each is said from beginning to end
    (:func:`~heedful.tasks.synthesis.guided_attention.is_complete`)."""

    def file(self, form: str = "WAV") -> bytes:
        """A file of 16 bits a sample: ``WAV``, ``FLAC`` or ``OGG``."""
        file = io.BytesIO()
        kind = "VORBIS" if form == "OGG" else "PCM_16"
        soundfile.write(file, self.sound.samples, self.sound.rate, format=form, subtype=kind)
        return file.getvalue()

    def to_json(self) -> dict[str, Any]:
        """The result as a value that :mod:`json` can write; the sound is a data URI of a WAV."""
        return {
            "text": self.text,
            "sound": uri_of("audio/wav", self.file()),
            "rate": self.sound.rate,
            "seconds": round(self.sound.seconds, 3),
            "complete": self.complete,
            "words": [
                {"text": word.text, "start": round(word.start, 3), "end": round(word.end, 3)}
                for word in self.words
            ],
        }

    def __str__(self) -> str:
        return json.dumps(self.to_json(), ensure_ascii=False)


class Speaker(ColumnPredictor[SynthesisModel, Said, Speech]):
    """Speaks texts with a trained model.

    Attributes:
        options: how texts are spoken, initially as in the recipe.
    """

    def __init__(self, *given: Any, **how: Any) -> None:
        super().__init__(*given, **how)
        self.options: SpeakingSettings = self.recipe.decoding
        self.features, self.vocabulary = features_of(self.known), vocabulary_of(self.known)
        self.scale = Scale.of(self.known)

    @property
    def seconds(self) -> float:
        """Of a step."""
        return self.model.frames_per_step * self.features.seconds

    def answer(self, inputs: Sequence[Said]) -> list[Speech]:
        """One sound for each of some texts, which are spoken sentence by sentence.

        Characters that the vocabulary lacks are left out, and counted in a notice, as are sentences
        whose end was not reached.
        """
        self._notice_unknown([one.text for one in inputs])
        of_each = [self._encoded(one.text) for one in inputs]
        sentences = [sentence for own in of_each for sentence in own]
        order = sorted(range(len(sentences)), key=lambda place: len(sentences[place]))
        found: dict[int, Utterance] = {}
        for first in range(0, len(order), _AT_ONCE):
            some = order[first : first + _AT_ONCE]
            found.update(zip(some, self.utter([sentences[place] for place in some]), strict=True))
        if unfinished := sum(not one.stopped for one in found.values()):
            notice(
                f"{unfinished:,} of {len(found):,} sentences reached the time limit before the "
                "model stopped, so that their end may be missing or repeated"
            )
        said = iter(found[place] for place in range(len(sentences)))
        pairs = zip(inputs, of_each, strict=True)
        return [
            self._joined(one.text, [(sentence, next(said)) for sentence in own])
            for one, own in pairs
        ]

    def utter(self, sentences: Sequence[Sequence[int]]) -> list[Utterance]:
        """What the model says for the tokens of some sentences, in :meth:`ready`."""
        limits = step_limits(
            [len(own) for own in sentences], self.known, self.model.frames_per_step
        )
        source = source_of(sentences, self.device)
        return speak(self.model, source, limits, self.options.seed)

    def _encoded(self, text: str) -> list[list[int]]:
        """The tokens of each sentence that has any."""
        own = (tokens_of(one, self.known) for one in sentences_of(text, self.known))
        return [tokens for tokens in own if tokens]

    def _notice_unknown(self, texts: Sequence[str]) -> None:
        unknown = Counter(one for text in texts for one in unknown_in(text, self.known))
        if unknown:
            named = ", ".join(repr(one) for one, _ in unknown.most_common(_NAMED))
            notice(
                f"{unknown.total():,} characters that the training texts lack were left out: "
                f"{named}{', …' if len(unknown) > _NAMED else ''}"
            )

    def sound_of(self, one: Utterance) -> Sound:
        """The sound of an utterance; silence of one step if it has a single frame."""
        if len(one.frames) == 1:
            return Sound(np.zeros(self.features.sizes[1], np.float32), self.features.rate)
        return to_sound(
            self.scale.restored(one.frames.float().cpu()),
            self.features,
            iterations=self.options.iterations,
            momentum=self.options.momentum,
            seed=self.options.seed,
        )

    def _joined(self, text: str, said: Sequence[tuple[Sequence[int], Utterance]]) -> Speech:
        """The sound of a text, with pauses between its sentences; a pause alone for none."""
        rate = self.features.rate
        pause = np.zeros(max(1, round(self.options.pause * rate)), np.float32)
        pieces: list[NDArray[np.float32]] = []
        count, alignments = 0, list[Alignment]()
        words: list[Word] = []
        for tokens, one in said:
            if pieces:
                pieces.append(pause)
                count += len(pause)
            names = [*self.vocabulary.pieces(tokens), END_LABEL]
            own = Alignment(names, count / rate, self.seconds, one.weights.cpu())
            alignments.append(own)
            pieces.append(self.sound_of(one).samples)
            count += len(pieces[-1])
            ends = count / rate
            words += [word._replace(end=min(word.end, ends)) for word in self._words(tokens, own)]
        whole = np.concatenate(pieces) if count else pause
        complete = bool(said) and all(one.complete for _, one in said)
        return Speech(text, Sound(whole, rate), alignments, words, complete)

    def _words(self, tokens: Sequence[int], own: Alignment) -> list[Word]:
        """The words of a sentence that a step attends to, in order."""
        texts = self.vocabulary.decode(tokens).split()
        owners = [*self.vocabulary.word_indices(tokens), -1]
        spaces = set(self.vocabulary.word_starts())
        spans: dict[int, tuple[int, int]] = {}
        for step, place in enumerate(own.weights.argmax(1).tolist()):
            word = owners[place]
            if word >= 0 and tokens[place] not in spaces:
                spans[word] = spans.get(word, (step, step))[0], step + 1
        return [
            Word(texts[word], own.start + first * own.step, own.start + end * own.step)
            for word, (first, end) in sorted(spans.items())
        ]

    def trace(self, said: Said, relevance: bool = False) -> Trace:
        """What the model attends to while it speaks a text.

        Args:
            said: the text; of several sentences, the first one.
            relevance: not used: a decision is whether to stop, which says little about the sound.

        Raises:
            UserError: the text has no known character.
        """
        sentences = self._encoded(said.text)
        if not sentences:
            raise UserError("the text has no character that the training texts have")
        self._notice_unknown([said.text])
        tokens = sentences[0]
        with self.ready():
            [one] = self.utter([tokens])
            sound = self.sound_of(one)
        steps = len(one.weights)
        media = Media.sound(torch.from_numpy(sound.samples), sound.rate)
        names = [*self.vocabulary.pieces(tokens), END_LABEL]
        axes = {
            "source": Axis("tokens", names),
            "time": Axis("time", extent=(steps, sound.seconds), media=media, steps=True),
        }
        words = {"source": [*self.vocabulary.word_indices(tokens), -1]}
        source = source_of([tokens], self.device)
        lengths = torch.tensor([len(one.coarse)], device=self.device)

        def decide() -> Decision:
            # The same frames as free-running: each step reads its own last frame.
            frames = one.coarse.unsqueeze(0)
            found = self.model.teacher_force(source, frames, lengths, self.options.seed)
            stops = found.stops[0].float()
            chosen = torch.where(stops > 0, stops, -stops)
            labels = [
                "stop" if logit > 0 else f"{place * self.seconds:.2f} s"
                for place, logit in enumerate(stops.tolist())
            ]
            return Decision(labels, torch.nn.functional.logsigmoid(chosen))

        title = self.vocabulary.decode(tokens)
        return self.traced(Described(title, axes, words), decide, relevance=False)
