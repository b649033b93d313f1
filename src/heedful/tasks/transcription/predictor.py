"""Transcribes sounds, and says when each word is spoken.

Shapes: B sounds, S positions, L target tokens, V symbols.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from heedful.basics.errors import UserError
from heedful.basics.notices import counted_notice, notice, once
from heedful.basics.symbols import BEGIN, END
from heedful.basics.thread_contention import without_contention
from heedful.data.readers.sounds import Sound
from heedful.decoding import Decodable, Hypothesis, JointCtc, SearchOptions, search
from heedful.decoding.ctc import best_path, prefix_search
from heedful.decoding.joint_ctc import Emissions
from heedful.inference import Axis, Media, Trace
from heedful.inference.fusing import searched
from heedful.inference.generator import Generator
from heedful.inference.media import MOST_SAMPLES
from heedful.inference.searcher import ended_by_limit
from heedful.inference.tracing import BEGIN_LABEL, END_LABEL, Decision, Described
from heedful.models import Annotations, Sounds, SpeechModel
from heedful.models.speech import BLANK
from heedful.tasks.column_predictor import ColumnPredictor
from heedful.tasks.sound_input import Heard, Part, features_of
from heedful.tasks.transcription.ctc_trace import ctc_map, token_log_probabilities
from heedful.tasks.transcription.language import Language
from heedful.tasks.transcription.recipe import TranscriptionSearch
from heedful.tasks.transcription.texts import spaced, vocabulary_of
from heedful.tasks.transcription.word_times import Word, token_positions, words_at

_AT_ONCE = 16
"""Parts of sounds in a batch."""
_MOST_PARTS = 1_000_000


class Transcript(NamedTuple):
    """The text of a sound."""

    text: str
    words: Sequence[Word]
    """Empty without attention to the sound and without CTC."""
    log_probability: float
    """Natural logarithm of its probability; of a sound in parts, the sum."""
    others: Sequence[tuple[str, float]] = ()
    """Further texts with their log-probabilities, if several are asked for and the sound is not in
    parts."""

    def __str__(self) -> str:
        return self.text

    def to_json(self) -> dict[str, Any]:
        """The result as a value that :mod:`json` can write."""
        words = [
            {"text": word.text, "start": round(word.start, 3), "end": round(word.end, 3)}
            for word in self.words
        ]
        found: dict[str, Any] = {"text": self.text, "log_probability": self.log_probability}
        found["words"] = words
        if self.others:
            found["others"] = [{"text": text, "log_probability": own} for text, own in self.others]
        return found


def find_texts(
    model: SpeechModel,
    heard: Annotations,
    options: SearchOptions,
    language: Language | None = None,
    ctc_weight: float = 0.0,
    keys: Sequence[int] | None = None,
) -> list[list[Hypothesis]]:
    """The best hypotheses for sounds, in evaluation mode: by the decoder, or by CTC without one.

    Args:
        model: the model.
        heard: its annotations of the sounds.
        options: settings of the search.
        language: a language model for the decoder.
        ctc_weight: λ of :class:`heedful.decoding.JointCtc`; 0 for the decoder alone.
        keys: for samples, a number for each sound; by default its place.
    """
    if not model.has_decoder:
        emissions = model.emissions(heard).cpu()
        rows = [own[:length] for own, length in zip(emissions, heard.lengths.tolist(), strict=True)]
        if options.beam == 1:
            return [[best_path(row, BLANK)] for row in rows]
        return [prefix_search(row, BLANK, options.beam)[: options.nbest] for row in rows]
    device = heard.vectors.device
    decodable: Decodable[Annotations, Any] = searched(_Heard(model))
    if language is not None:
        decodable = language.fused(_Heard(model))
    if ctc_weight:
        decodable = JointCtc(decodable, lambda it: _emitted(model, it), ctc_weight, BLANK)
    longest = longest_text(model, language)
    limits = torch.full((len(heard.lengths),), longest, device=device)
    with without_contention(device):
        return search(
            decodable,
            heard,
            rows=len(heard.lengths),
            options=options,
            max_lengths=limits,
            keys=keys,
        )


def longest_text(model: SpeechModel, language: Language | None) -> int:
    """Most tokens of a text, END included."""
    own = model.max_length
    return own if language is None else min(own, int(language.model.max_length))


class _Heard:
    """A model whose search starts from annotations."""

    def __init__(self, model: SpeechModel) -> None:
        self.start, self.step = model.begin, model.step


def _emitted(model: SpeechModel, heard: Annotations) -> Emissions:
    return Emissions(model.emissions(heard), heard.lengths)


class Transcriber(ColumnPredictor[SpeechModel, Heard, Transcript]):
    """Transcribes sounds with a trained model.

    Attributes:
        options: the settings of the search, initially those of the recipe.
        language: a language model for the search; see :meth:`with_language`.
    """

    def __init__(self, *given: Any, **how: Any) -> None:
        super().__init__(*given, **how)
        self.options: TranscriptionSearch = self.recipe.search
        self.language: Language | None = None
        self.notify = once()
        self.features, self.vocabulary = features_of(self.known), vocabulary_of(self.known)

    def with_language(self, generator: Generator, weight: float) -> None:
        """Search with a language model (:class:`heedful.decoding.ShallowFusion`).

        Args:
            generator: a run for language modelling over the same units.
            weight: β, the exponent of its probabilities.

        Raises:
            UserError: the vocabularies do not fit, or the model has no decoder.
        """
        if not self.model.has_decoder:
            raise UserError(
                "a language model needs a decoder with attention: model.outputs = 'attention' or "
                "'both'"
            )
        self.language = Language.of(generator, self.vocabulary, weight, self.device)

    @property
    def seconds(self) -> float:
        """Of a position."""
        return self.model.reduction * self.features.seconds

    def answer_keyed(self, inputs: Sequence[Heard], keys: Sequence[int]) -> list[Transcript]:
        """One text for each of some sounds; long ones are transcribed in parts."""
        of_each = [self._parts(one) for one in inputs]
        parts = [part for own in of_each for part in own]
        numbers = [
            key * _MOST_PARTS + place
            for key, own in zip(keys, of_each, strict=True)
            for place in range(len(own))
        ]
        silent = {place for place, part in enumerate(parts) if _is_silent(part)}
        found = dict.fromkeys(silent, Transcript("", (), 0.0))
        counted_notice(self.notify, _unheard, sum(all(map(_is_silent, own)) for own in of_each))
        heard = [place for place in range(len(parts)) if place not in silent]
        order = sorted(heard, key=lambda place: len(parts[place].features))
        for first in range(0, len(order), _AT_ONCE):
            some = order[first : first + _AT_ONCE]
            transcripts = self._transcribe(
                [parts[place] for place in some], [numbers[place] for place in some]
            )
            found.update(zip(some, transcripts, strict=True))
        texts = iter(found[place] for place in range(len(parts)))
        return [_joined([next(texts) for _ in own]) for own in of_each]

    def _parts(self, heard: Heard) -> list[Part]:
        """The parts of a sound that are transcribed one by one."""
        return heard.parts(self.features, self._longest_part, self.known.get("trim"))

    @property
    def _longest_part(self) -> float:
        """Seconds of the longest part; earlier runs have ``data.longest`` only."""
        return float(self.known.get("longest_part", self.known["longest"]))

    def _transcribe(self, parts: Sequence[Part], keys: Sequence[int]) -> list[Transcript]:
        frames = pad_sequence([part.features for part in parts], batch_first=True)
        lengths = torch.tensor([len(part.features) for part in parts])
        heard = self.model.listen(Sounds(frames.to(self.device), lengths.to(self.device)))
        hypotheses = self._found(heard, keys)
        if self.model.has_decoder:
            longest = longest_text(self.model, self.language)
            ended = sum(ended_by_limit(own, longest, self.options) for own in hypotheses)
            counted_notice(self.notify, self._ended, ended)
        tokens = [own[0].tokens for own in hypotheses]
        places = token_positions(self.model, heard, tokens)
        made = zip(parts, hypotheses, places, strict=True)
        return [self._made(part, own, positions) for part, own, positions in made]

    def _ended(self, ended: int) -> str:
        longest = longest_text(self.model, self.language) - 1
        limit = "model.max_length"
        if longest + 1 < self.model.max_length:
            limit = "the language model reads no more"
        noun = "text was" if ended == 1 else "texts were"
        return f"{ended:,} {noun} ended after {longest:,} tokens ({limit}); the end may be missing"

    def _found(
        self, heard: Annotations, keys: Sequence[int] | None = None
    ) -> list[list[Hypothesis]]:
        weight = self.options.ctc_weight or 0.0
        return find_texts(self.model, heard, self.options, self.language, weight, keys)

    def _made(
        self, part: Part, hypotheses: Sequence[Hypothesis], positions: Sequence[int] | None
    ) -> Transcript:
        found = [
            (spaced(self.vocabulary.decode(one.tokens)), one.log_probability) for one in hypotheses
        ]
        best, *others = found if self.options.sample else _different(found)
        words: list[Word] = []
        if positions is not None:
            whole = len(part.features) * self.features.seconds
            most = whole if part.sound is None else part.sound.seconds
            own = words_at(self.vocabulary, hypotheses[0].tokens, positions, self.seconds)
            # The last position can end after the sound.
            spans = [(word, min(a, most), min(b, most)) for word, a, b in own]
            words = [Word(word, part.start + a, part.start + b) for word, a, b in spans]
        return Transcript(best[0], words, best[1], others)

    def trace(self, heard: Heard, relevance: bool = True) -> Trace:
        """What the model attends to while it transcribes a sound, and where CTC places each token
        (:func:`~heedful.tasks.transcription.ctc_trace.ctc_map`).

        Args:
            heard: the sound; of a long one, the first part.
            relevance: whether to add relevance maps.
        """
        part, *others = self._parts(heard)
        sounds = Sounds(
            part.features.unsqueeze(0).to(self.device),
            torch.tensor([len(part.features)], device=self.device),
        )
        with self.ready():
            listened = self.model.listen(sounds)
            [[best, *_]] = self._found(listened)
        count = int(listened.lengths)
        sound = None if part.sound is None else _media(part.sound, count * self.seconds)
        time = Axis("time", extent=(count, count * self.seconds), media=sound)
        names = self.vocabulary.pieces(best.tokens)
        axes = {"target": Axis("tokens", [BEGIN_LABEL, *names]), "time": time}
        target = torch.tensor([[BEGIN, *best.tokens, END]], device=self.device)

        def decide() -> Decision:
            if not self.model.has_decoder:
                own = self.model.emissions(self.model.listen(sounds))[0].cpu()
                return Decision([*names, END_LABEL], token_log_probabilities(own, best.tokens))
            logits = self.model.teacher_force(sounds, target[:, :-1]).float()
            chosen: Tensor = logits.log_softmax(-1).gather(-1, target[:, 1:, None])
            return Decision([*names, END_LABEL], chosen[0, :, 0])

        title = spaced(self.vocabulary.decode(best.tokens))
        made = self.traced(Described(title, axes), decide, relevance=relevance)
        made = replace(made, part=self._shown(part, others))
        if others:
            self.notify("the trace has only the first part of the recording, which is long")
        if self.model.ctc is None:
            return made
        with self.ready():
            more = ctc_map(self.model.emissions(listened)[0].cpu(), best.tokens)
        return replace(made, axes={**axes, **made.axes}, maps=[*made.maps, *more])

    def _shown(self, part: Part, others: Sequence[Part]) -> str:
        """What a trace of the first part shows of a recording; empty if it shows all of it."""
        found = []
        if part.start:
            found.append(f"Silence of {part.start:.1f} seconds at the beginning is not shown.")
        if others:
            last, seconds = others[-1], self.features.seconds
            whole = last.start + len(last.features) * seconds
            found.append(
                f"Only the first {others[0].start:.1f} of {whole:.1f} seconds are shown. The "
                f"recording is longer than {self._longest_part:.3g} seconds and is transcribed in "
                f"{1 + len(others)} parts."
            )
        return " ".join(found)


def _is_silent(part: Part) -> bool:
    return part.sound is not None and part.sound.is_silent


def _unheard(silent: int) -> str:
    if silent == 1:
        return "1 recording is silent; its text is empty"
    return f"{silent:,} recordings are silent; their texts are empty"


def _different(texts: Sequence[tuple[str, float]]) -> list[tuple[str, float]]:
    """The texts without repetitions, which other spaces or subwords of the same text are."""
    kept: dict[str, float] = {}
    for text, own in texts:
        kept.setdefault(text, own)
    return list(kept.items())


def _media(sound: Sound, seconds: float) -> Media | None:
    """A sound with silence until the end of its last position; None, and a notice, if it is too
    long for a trace."""
    count = max(len(sound.samples), round(seconds * sound.rate))
    if count > MOST_SAMPLES:
        notice(f"the trace has no sound: {seconds:,.0f} seconds are too long")
        return None
    padded = torch.zeros(count)
    padded[: len(sound.samples)] = torch.from_numpy(sound.samples)
    return Media.sound(padded, sound.rate)


def _joined(parts: Sequence[Transcript]) -> Transcript:
    """The transcript of a sound from those of its parts."""
    if len(parts) == 1:
        return parts[0]
    text = " ".join(filter(None, (part.text for part in parts)))
    words = [word for part in parts for word in part.words]
    return Transcript(text, words, sum(part.log_probability for part in parts))
