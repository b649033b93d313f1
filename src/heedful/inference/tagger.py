"""Tagging of the words of sentences.

Shapes: B rows, L tokens, C tags.
"""

import copy
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from heedful.basics.cancellation import check_cancelled
from heedful.basics.errors import UserError
from heedful.basics.notices import notice
from heedful.data.examples import require_list
from heedful.data.tag_schemes import Scheme
from heedful.data.vocabularies import encode_words
from heedful.data.vocabulary import Vocabulary
from heedful.inference.batches import Item, token_batches
from heedful.inference.inference_mode import ready
from heedful.inference.sliding_windows import count_phrase, room_for_text, spans
from heedful.inference.tag_chain import TagChain
from heedful.inference.text_reader import Advance, Row, check_head, only_row
from heedful.inference.trace import Trace
from heedful.inference.tracing import Decision, describe_texts, trace_model
from heedful.models.encoders import ChainTagger, HeadedEncoder, Sequences, sequences_of


@dataclass(frozen=True)
class Tagging:
    """A sentence's words and their tags."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    """One tag per word."""
    probabilities: tuple[float, ...]
    """The probability of each word's tag."""
    windows: int = 1
    """Number of windows."""

    def to_json(self) -> dict[str, Any]:
        """A JSON object; its fields are described in docs/texts.md."""
        return {
            "words": list(self.words),
            "tags": list(self.tags),
            "probabilities": list(self.probabilities),
            "windows": self.windows,
        }


_Wanted = Mapping[tuple[int, int], Sequence[tuple[int, int]]]
"""Sentence and window → the words that are taken from it, and their tokens in it."""


class _Windows(NamedTuple):
    """The windows of sentences."""

    items: list[Item]
    wanted: dict[tuple[int, int], list[tuple[int, int]]]
    counts: list[int]
    """Number of windows of each sentence."""


class Tagger:
    """A predictor of tags: an encoder with a head for tags, and its vocabulary.

    A word's tag is that of its first token. A sentence longer than the model's maximum is read in
    windows that overlap by at least half; a word's tag is taken from the window in which the word
    is farthest from a cut. With a conditional random field, a word's emissions are taken from that
    window, and the tags of the whole sentence are chosen together.

    Args:
        model: the encoder and its heads.
        vocabulary: text to tokens.
        tags: the names of the tags, in the order of the head's outputs.
        head: the name of the head.
        temperature: the logits are divided by it, which changes probabilities but no tag.
        scheme: a conditional random field gives only sequences of tags that follow this scheme.
        device: the device of the model.
        precision: precision of matrix products: float32, bfloat16 or float16.
        batch_tokens: maximum number of padded tokens in a batch.
        notify: called with notices; by default they are printed to standard error.

    Raises:
        ValueError: the model has no such head, or no states of tokens.
    """

    task = "tagging"

    def __init__(
        self,
        model: HeadedEncoder,
        vocabulary: Vocabulary,
        tags: Sequence[str],
        *,
        head: str = "tagging",
        temperature: float = 1.0,
        scheme: Scheme | None = None,
        device: torch.device | str = "cpu",
        precision: str = "float32",
        batch_tokens: int = 8192,
        notify: Callable[[str], None] = notice,
    ) -> None:
        check_head(model, head)
        if model.encoder.dim is None:
            raise ValueError("this encoder gives tokens no vectors of their own")
        self.model, self.vocabulary, self.tags, self.head = model, vocabulary, tuple(tags), head
        self.device, self.precision = torch.device(device), precision
        self.batch_tokens, self.notify = batch_tokens, notify
        self.max_length = model.max_length
        self.temperature = temperature
        self.scheme, own = scheme, model.heads[head]
        self.chain = TagChain(own, self.tags, scheme) if isinstance(own, ChainTagger) else None

    def at(self, temperature: float) -> Self:
        """The same tagger with another temperature."""
        other = copy.copy(self)
        other.temperature = temperature
        return other

    def tag(self, sentences: Iterable[Sequence[str]]) -> list[list[str]]:
        """The tags of each sentence's words.

        Raises:
            UserError: a word is empty or white space only, or not valid Unicode.
        """
        return [list(one.tags) for one in self.taggings(sentences)]

    def predict(self, texts: Iterable[str]) -> list[Tagging]:
        """The tags of words separated by spaces; every predictor has this method."""
        require_list(texts, "predict")
        return self.taggings([text.split() for text in texts])

    def trace(self, words: Sequence[str], *, relevance: bool = True) -> Trace:
        """The attention weights of the model for a sentence; ``decided`` are the tags.

        See :meth:`heedful.inference.classifier.Classifier.trace`.

        Raises:
            UserError: the sentence is empty or too long.
        """
        tokens, firsts = self.encode(words)
        row = only_row([Row(tokens, None)] if tokens else [], self.max_length)
        places = [place + 1 for place in firsts]  # BEGIN is at 0
        batch = Sequences(*(part.to(self.device) for part in sequences_of([row.first])))

        def decide() -> Decision:
            encoded = self.model.encoder(batch)
            logits = self.model.heads[self.head](encoded)[0].float()[places]
            if self.chain is None:
                best = (logits / self.temperature).log_softmax(1).max(1)
                chosen, values = best.indices.tolist(), best.values
            else:
                chosen, values = self.chain.decide([logits], self.temperature)[0]
            return Decision([self.tags[tag] for tag in chosen], values, places)

        attends = bool(self.model.attention_axes())
        described = describe_texts(self.vocabulary, tokens, None, " ".join(words), attends)
        context = ready(self.model, self.device)
        return trace_model(self.model, decide, described, context, relevance=relevance)

    def taggings(
        self, sentences: Iterable[Sequence[str]], *, advance: Advance | None = None
    ) -> list[Tagging]:
        """The same as `tag`, with probabilities."""
        require_list(sentences, "tag", "[text.split()]")
        blocks = self.tag_blocks([list(sentences)], advance=advance)
        return [one for block in blocks for one in block]

    def tag_blocks(
        self, blocks: Iterable[Sequence[Sequence[str]]], *, advance: Advance | None = None
    ) -> Iterator[list[Tagging]]:
        """The same as `taggings`, block by block; sentences of a block are batched together."""
        counts: Counter[str] = Counter()
        first = 1
        for block in blocks:
            found = self._block(block, first, advance or (lambda count: None))
            counts["windows"] += sum(one.windows > 1 for one in found)
            first += len(block)
            yield found
        if counts["windows"]:
            self.notify(
                f"{count_phrase(counts['windows'], 'sentence')} longer than the model's "
                f"{self.max_length:,} tokens: read in windows"
            )

    def _block(
        self, sentences: Sequence[Sequence[str]], first: int, advance: Advance
    ) -> list[Tagging]:
        items, wanted, windows = self._windows(sentences, first)
        with ready(self.model, self.device, self.precision):
            decided = self._decide(self._logits(items, wanted, [*map(len, sentences)]))
        found = []
        for words, (own, values), parts in zip(sentences, decided, windows, strict=True):
            tags = tuple(self.tags[tag] for tag in own)
            found.append(Tagging(tuple(words), tags, tuple(values.tolist()), parts))
        advance(len(found))
        return found

    def _windows(self, sentences: Sequence[Sequence[str]], first: int) -> _Windows:
        """The windows of sentences."""
        room = room_for_text(self.max_length)
        made = _Windows([], {}, [])
        for line, words in enumerate(sentences):
            check_cancelled()
            tokens, firsts = self.encode(words, first + line)
            parts = spans(len(tokens), room, room // 2) if tokens else []
            made.counts.append(len(parts))
            made.items.extend(Item(line, part, tokens[a:b]) for part, (a, b) in enumerate(parts))
            starts = [start for start, _ in parts]
            for word, place in enumerate(firsts):
                part = _part_of(place, parts, starts, len(tokens))
                own = made.wanted.setdefault((line, part), [])
                own.append((word, place - parts[part][0]))
        return made

    def logits(self, sentences: Sequence[Sequence[str]]) -> list[Tensor]:
        """The logits of the words of sentences, each ``[W, C]``; the emissions of a chain.

        Raises:
            UserError: a word is empty or white space only, or not valid Unicode.
        """
        items, wanted, _ = self._windows(sentences, 1)
        with ready(self.model, self.device, self.precision):
            return self._logits(items, wanted, [*map(len, sentences)])

    def _logits(
        self, items: Sequence[Item], wanted: _Wanted, counts: Sequence[int]
    ) -> list[Tensor]:
        """The logits of the words of each sentence; ``counts`` are the words of each."""
        found = [torch.empty(count, len(self.tags)) for count in counts]
        for batch in token_batches(items, 1, self.batch_tokens):
            made = sequences_of([item.tokens for item in batch])
            rows = Sequences(*(part.to(self.device) for part in made))
            logits = self.model.heads[self.head](self.model.encoder(rows)).float().cpu()
            for row, item in enumerate(batch):
                for word, place in wanted.get((item.line, item.part), []):
                    found[item.line][word] = logits[row, place + 1]  # BEGIN is at 0
        return found

    def log_probabilities(self, logits: Sequence[Tensor]) -> list[Tensor]:
        """``log p`` of each tag, for the logits of the words of sentences, each ``[W, C]``."""
        if self.chain is None:
            return [(own / self.temperature).log_softmax(1) for own in logits]
        return self.chain.log_marginals(logits, self.temperature)

    def _decide(self, logits: Sequence[Tensor]) -> list[tuple[list[int], Tensor]]:
        """The tag of each word, by number, and its probability, for the logits of each sentence."""
        if self.chain is None:
            best = [(own / self.temperature).softmax(1).max(1) for own in logits]
            return [(own.indices.tolist(), own.values) for own in best]
        decided = self.chain.decide(logits, self.temperature)
        return [(tags, values.exp()) for tags, values in decided]

    def encode(self, words: Sequence[str], number: int = 1) -> tuple[list[int], list[int]]:
        """A sentence's tokens, and the index of each word's first token.

        Args:
            words: the sentence's words.
            number: the sentence's number, for messages.

        Raises:
            UserError: ``words`` is a string, or a word is empty or not valid Unicode.
        """
        if isinstance(words, str):  # otherwise its letters would be tagged
            raise UserError(
                f"sentence {number} is one text; give its words: a list, such as text.split()"
            )
        if not words:
            return [], []
        try:
            return encode_words(self.vocabulary, words)
        except ValueError as error:
            raise UserError(f"sentence {number}: {error}; leave it out") from error


def _part_of(
    place: int, parts: Sequence[tuple[int, int]], starts: Sequence[int], length: int
) -> int:
    """The window in which a token is farthest from the edges; the first one of several."""
    last = bisect_right(starts, place)
    first = last - 1
    while first and parts[first - 1][1] > place:
        first -= 1
    return max(range(first, last), key=lambda part: _distance(parts[part], place, length))


def _distance(span: tuple[int, int], place: int, length: int) -> int:
    """The distance of a token of a window from the nearest edge that is not an end of the text."""
    start, end = span
    if not start <= place < end:
        return -1
    before = place - start if start else length
    after = end - 1 - place if end < length else length
    return min(before, after)
