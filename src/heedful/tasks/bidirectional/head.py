"""The head of a bidirectional language model: rows of words, output layer, training task."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from torch import nn

from heedful.basics.errors import UserError
from heedful.basics.notices import notice
from heedful.data import columns
from heedful.data.columns import Columns
from heedful.data.store_encoder import StoreEncoder, write_store
from heedful.data.subwords import SAMPLE_TEXTS, reservoir
from heedful.data.vocabularies import SavedVocabulary, separators_of
from heedful.data.vocabulary import Vocabulary
from heedful.inference.sliding_windows import room_for_text
from heedful.models.encoders import HeadedEncoder
from heedful.tasks.bidirectional.training import BOUNDARY, BidirectionalTask, WordOutput
from heedful.tasks.texts.examples import Examples
from heedful.tasks.texts.labelled_rows import seen
from heedful.tasks.texts.part import Training
from heedful.tasks.texts.rows import RowBatches
from heedful.tasks.texts.sentences import encode_texts

Word = tuple[int, ...]
"""The characters of a word."""
UNKNOWN_WORD = BOUNDARY + 1
"""The class of words that are not listed."""


class Row(NamedTuple):
    """A window of a line, from the beginning of a word to the end of a word."""

    tokens: list[int]
    starts: list[int]
    """Where its words begin."""


class WordRows:
    """Cuts texts into rows of whole words, and finds the classes of words.

    Args:
        vocabulary: of characters or bytes.
        max_tokens: maximum characters of a row, with BEGIN and END.

    Attributes:
        cut: number of words that were longer than a row and were cut.
    """

    def __init__(self, vocabulary: Vocabulary, max_tokens: int) -> None:
        self.vocabulary, self.room = vocabulary, room_for_text(max_tokens)
        self.separators = frozenset(separators_of(vocabulary))
        self.cut = 0

    def words(self, tokens: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Start and end of each word."""
        start: int | None = None
        for place, token in enumerate([*tokens, None]):
            if token is not None and token not in self.separators:
                start = place if start is None else start
            elif start is not None:
                yield start, place
                start = None

    def rows(self, text: str) -> Iterator[Row]:
        """The rows of a text: each line by itself, cut between words if it is too long."""
        for line in text.split("\n"):
            tokens = self.vocabulary.encode(line)
            begin, starts, last = 0, list[int](), 0
            for start, end in self._fitting(tokens):
                if starts and end - begin > self.room:
                    yield Row(list(tokens[begin:last]), starts)
                    starts = []
                if not starts:
                    begin = start
                starts.append(start - begin)
                last = end
            if starts:
                yield Row(list(tokens[begin:last]), starts)

    def _fitting(self, tokens: Sequence[int]) -> Iterator[tuple[int, int]]:
        for start, end in self.words(tokens):
            self.cut += end - start > self.room
            for begin in range(start, end, self.room):
                yield begin, min(end, begin + self.room)

    def most_frequent(self, texts: Iterable[str], count: int) -> list[str]:
        """The most frequent words of texts; ties are broken by code-point order."""
        counts: Counter[Word] = Counter()
        for text in texts:
            tokens = self.vocabulary.encode(text)
            counts.update(tuple(tokens[start:end]) for start, end in self.words(tokens))
        spelled: Counter[str] = Counter()
        for word, number in counts.items():
            spelled[self.vocabulary.decode(word)] += number
        ordered = sorted(spelled.items(), key=lambda entry: (-entry[1], entry[0]))
        return [word for word, _ in ordered[:count]]

    def classes(self, words: Sequence[str]) -> dict[Word, int]:
        """The class of each listed word."""
        encoded = self.vocabulary.encode_batch(list(words), threads=1)
        return {tuple(word): UNKNOWN_WORD + 1 + place for place, word in enumerate(encoded)}

    def labelled(self, row: Row, classes: Mapping[Word, int]) -> tuple[list[int], list[int]]:
        """A row's tokens, and the class of each word at its first character, 0 elsewhere."""
        labels = [0] * len(row.tokens)
        tokens, ends = row.tokens, [*row.starts[1:], len(row.tokens)]
        for start, end in zip(row.starts, ends, strict=True):
            while tokens[end - 1] in self.separators:
                end -= 1
            labels[start] = classes.get(tuple(tokens[start:end]), UNKNOWN_WORD)
        return tokens, labels


class WordEncoder(StoreEncoder[str]):
    """Encodes the rows of texts; counts ``words``, and those that were ``cut``.

    Args:
        vocabulary: of characters or bytes.
        max_tokens: maximum characters of a row, with BEGIN and END.
        words: the words that have classes.
    """

    def __init__(self, vocabulary: Vocabulary, max_tokens: int, words: Sequence[str]) -> None:
        self.cutter = WordRows(vocabulary, max_tokens)
        self.words, self.classes = list(words), self.cutter.classes(words)
        self.codecs = {
            "tokens": columns.tokens(vocabulary.size),
            "labels": columns.tokens(UNKNOWN_WORD + 1 + len(words)),
        }

    @property
    def identity(self) -> dict[str, Any]:
        known = self.cutter.vocabulary.fingerprint()
        return {"vocabulary": known, "room": self.cutter.room, "words": self.words}

    def rows(self, items: Sequence[str]) -> tuple[Columns, Counter[str]]:
        before = self.cutter.cut
        rows = [row for text in items for row in self.cutter.rows(text)]
        labelled = [self.cutter.labelled(row, self.classes) for row in rows]
        columns_of_rows = {
            "tokens": self.codecs["tokens"].column([tokens for tokens, _ in labelled]),
            "labels": self.codecs["labels"].column([labels for _, labels in labelled]),
        }
        counts = Counter(words=sum(len(row.starts) for row in rows), cut=self.cutter.cut - before)
        return columns_of_rows, counts


def encode(
    folder: Path, head: Any, examples: Examples, vocabulary: SavedVocabulary, max_tokens: int
) -> dict[str, Any]:
    """Write the rows of training and validation documents; returns facts about them.

    The predicted words of a large corpus are found in a random sample of lines.

    Raises:
        UserError: the training texts have no words.
    """
    cutter = WordRows(vocabulary, max_tokens)
    words = cutter.most_frequent(_lines(examples), head.words)
    if not words:
        raise UserError(f"{', '.join(examples.data.train)}: the training texts have no words")
    written = cut = 0
    for part in ("train", "validation"):
        if part == "train" or examples.data.is_validated:
            how = (WordEncoder, vocabulary, max_tokens, words)
            counts = encode_texts(examples, part, folder.parent / part, *how)
            written = counts["words"] if part == "train" else written
            cut += counts["cut"]
    if cut:
        notice(
            f"{cut:,} words have more than {cutter.room:,} characters: they are cut into "
            "several; raise max_tokens to keep them whole"
        )
    return {"train": written, "unit": "words", "labels": words}


def _lines(examples: Examples) -> Iterable[str]:
    """The lines of the training texts, or a random sample of those of a large corpus."""
    texts = (example.text for example in examples.of("train"))
    lines = (line for text in seen(texts, "documents") for line in text.split("\n"))
    if not examples.is_large:
        return lines
    drawn, total = reservoir(lines, SAMPLE_TEXTS, examples.seed)
    if total > len(drawn):
        notice(
            f"the words that are predicted are found in a random sample of {len(drawn):,} of "
            f"{total:,} lines"
        )
    return drawn


def write_texts(
    folder: Path,
    texts: Iterable[str],
    vocabulary: Vocabulary,
    max_tokens: int,
    words: Sequence[str],
) -> None:
    """Write the rows of texts as a store, in this process."""
    write_store(texts, WordEncoder(vocabulary, max_tokens, words), folder)


def layers(
    name: str, settings: Any, encoder: Any, labels: int, recipe: Any
) -> dict[str, nn.Module]:
    """The output layer, which both directions share."""
    outputs = UNKNOWN_WORD + 1 + labels
    return {name: WordOutput(encoder.direction_dim, outputs, recipe.head_dropout)}


def build_part(name: str, head: Any, training: Training) -> BidirectionalTask:
    """The task for the training loop."""
    folder, settings = training.run.set_folder(name), training.settings

    def rows(part: str) -> RowBatches:
        how = training.reading(name, part)
        return RowBatches(folder / part, settings.batch_tokens, labels="token", **how)

    return BidirectionalTask(
        cast(HeadedEncoder, training.model),
        rows("train"),
        rows("validation") if (folder / "validation").exists() else None,
        name=name,
        device=training.device,
        label_smoothing=settings.label_smoothing,
        precision=training.precision,
    )
