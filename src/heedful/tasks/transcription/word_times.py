"""When each word of a text is spoken.

Shapes: B sounds, S positions, L target tokens.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch.nn.utils.rnn import pad_sequence

from heedful.attention import watch
from heedful.basics.symbols import BEGIN
from heedful.data.listed_vocabularies import ListedVocabulary
from heedful.inference.alignment import rows_of
from heedful.inference.time_alignment import monotonic_positions
from heedful.models import Annotations, SpeechModel
from heedful.tasks.transcription.subwords import Subwords


class Word(NamedTuple):
    """A word, and when it is spoken."""

    text: str
    start: float
    """Seconds from the beginning of the sound."""
    end: float


def token_positions(
    model: SpeechModel, heard: Annotations, tokens: Sequence[Sequence[int]]
) -> list[list[int] | None]:
    """The position of each token of some texts, in evaluation mode; None if the model neither
    attends to the sound nor has CTC.

    The best alignment that never goes back, by the probabilities of CTC if the model has it, and
    otherwise by the weights of the decoder's attention (the mean of its heads).
    """
    lengths = heard.lengths.tolist()
    if model.ctc is not None:
        found: list[list[int] | None] = []
        emissions = model.emissions(heard).exp().cpu()
        for own, text, length in zip(emissions, tokens, lengths, strict=True):
            chances = own[:length, list(text)].T
            found.append(monotonic_positions(chances, strict=True))
        return found
    if model.alignment is None:
        return [None] * len(tokens)
    rows = [torch.tensor([BEGIN, *own]) for own in tokens]
    target_in = pad_sequence(rows, batch_first=True).to(heard.vectors.device)
    with watch(model, [model.alignment.module]) as seen:
        model.spell(heard, target_in)
    calls = torch.cat(seen[model.alignment.module], dim=2).float().cpu()
    weights = rows_of(calls, model.alignment).mean(1)
    cut = zip(weights, tokens, lengths, strict=True)
    return [monotonic_positions(own[: len(text), :length]) for own, text, length in cut]


def words_at(
    vocabulary: ListedVocabulary | Subwords,
    tokens: Sequence[int],
    positions: Sequence[int],
    seconds: float,
) -> list[Word]:
    """The words of a text with their times.

    A word lasts from the position of its first token to the end of that of its last one.

    Args:
        vocabulary: of the tokens.
        tokens: the text.
        positions: of each token.
        seconds: of a position.
    """
    texts = vocabulary.decode(tokens).split()
    spans: dict[int, tuple[int, int]] = {}
    for token, word, place in zip(tokens, vocabulary.word_indices(tokens), positions, strict=True):
        if word >= 0 and vocabulary.decode([token]).strip():  # not a space alone
            first, _ = spans.get(word, (place, place))
            spans[word] = first, place + 1
    return [
        Word(texts[word], first * seconds, end * seconds) for word, (first, end) in spans.items()
    ]
