"""Probabilities of the words of texts, given the words before them and those after them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from heedful.basics.errors import UserError
from heedful.basics.notices import notice
from heedful.data.examples import require_list
from heedful.data.vocabulary import Vocabulary
from heedful.inference.batches import Item, token_batches
from heedful.inference.inference_mode import ready
from heedful.inference.text_reader import check_head
from heedful.inference.trace import Trace
from heedful.models.elmo import Elmo
from heedful.models.encoders import HeadedEncoder, Sequences, sequences_of
from heedful.tasks.bidirectional.head import UNKNOWN_WORD, Row, WordRows
from heedful.tasks.bidirectional.training import WordOutput, predictions


@dataclass(frozen=True)
class WordScores:
    """A text's words and their log-probabilities in nats."""

    text: str
    words: tuple[str, ...]
    known: tuple[bool, ...]
    """Whether a word is among those that are predicted; otherwise its probability is that of all
    other words together."""
    forward: tuple[float, ...]
    """Given the words before it in its row."""
    backward: tuple[float, ...]
    """Given the words after it in its row."""

    def to_json(self) -> dict[str, Any]:
        """A JSON object; its fields are described in docs/texts.md."""
        return {
            "text": self.text,
            "words": list(self.words),
            "known": list(self.known),
            "forward": list(self.forward),
            "backward": list(self.backward),
        }


class WordPredictor:
    """A predictor of words in both directions: ELMo with its output layer, and its vocabulary.

    Each line of a text is a row of its own, and a line longer than the model's maximum is several.

    Args:
        model: the encoder and its heads.
        vocabulary: text to characters.
        words: the words that are predicted.
        head: the name of the head.
        device: the device of the model.
        precision: precision of matrix products: float32, bfloat16 or float16.
        batch_tokens: maximum number of padded tokens in a batch.
        notify: called with notices; by default they are printed to standard error.

    Raises:
        ValueError: the model has no such head.
    """

    task = "bidirectional"

    def __init__(
        self,
        model: HeadedEncoder,
        vocabulary: Vocabulary,
        words: Sequence[str],
        *,
        head: str = "bidirectional",
        device: torch.device | str = "cpu",
        precision: str = "float32",
        batch_tokens: int = 8192,
        notify: Callable[[str], None] = notice,
    ) -> None:
        check_head(model, head)
        self.model, self.vocabulary, self.words, self.head = model, vocabulary, list(words), head
        self.device, self.precision = torch.device(device), precision
        self.batch_tokens, self.notify = batch_tokens, notify
        self.max_length = model.max_length
        self.classes = WordRows(vocabulary, self.max_length).classes(self.words)

    def predict(self, texts: Iterable[str]) -> list[WordScores]:
        """The scores of each text's words; an empty text has none.

        Raises:
            UserError: ``texts`` is a string, or a text is not valid Unicode.
        """
        require_list(texts, "predict")
        texts = list(texts)
        cutter = WordRows(self.vocabulary, self.max_length)
        rows = [list(cutter.rows(text)) for text in texts]
        items = [
            Item(line, part, row.tokens)
            for line, own in enumerate(rows)
            for part, row in enumerate(own)
        ]
        found: dict[tuple[int, int], tuple[list[int], list[float], list[float]]] = {}
        with ready(self.model, self.device, self.precision):
            for batch in token_batches(items, 1, self.batch_tokens):
                chosen = [rows[item.line][item.part] for item in batch]
                for item, scores in zip(batch, self._scores(chosen, cutter), strict=True):
                    found[item.line, item.part] = scores
        if cutter.cut:
            self.notify(f"{cutter.cut:,} words longer than the model's maximum were cut")
        return [self._joined(text, line, rows[line], found) for line, text in enumerate(texts)]

    def _scores(
        self, rows: Sequence[Row], cutter: WordRows
    ) -> list[tuple[list[int], list[float], list[float]]]:
        """The classes of each row's words and their log-probabilities in both directions."""
        encoder, head = self.model.encoder, self.model.heads[self.head]
        assert isinstance(encoder, Elmo)
        assert isinstance(head, WordOutput)
        batch = sequences_of([row.tokens for row in rows])
        labels = torch.zeros_like(batch.tokens)
        for place, row in enumerate(rows):
            own = cutter.labelled(row, self.classes)[1]
            labels[place, 1 : 1 + len(own)] = torch.tensor(own)
        moved = Sequences(*(part.to(self.device) for part in batch))
        sizes = [len(row.starts) + 1 for row in rows]
        directions = []
        for states, classes in predictions(encoder.directions(moved), labels.to(self.device)):
            every = head.log_probabilities(states)
            scores = every.gather(1, classes.unsqueeze(1)).squeeze(1).cpu()
            directions.append((classes.cpu().split(sizes), scores.split(sizes)))
        (classes, forward), (_, backward) = directions
        return [
            (own[:-1].tolist(), right[:-1].tolist(), left[1:].tolist())  # without END and BEGIN
            for own, right, left in zip(classes, forward, backward, strict=True)
        ]

    def _joined(
        self,
        text: str,
        line: int,
        rows: Sequence[Row],
        found: dict[tuple[int, int], tuple[list[int], list[float], list[float]]],
    ) -> WordScores:
        words: list[str] = []
        for row in rows:
            ends = [*row.starts[1:], len(row.tokens)]
            pairs = zip(row.starts, ends, strict=True)
            words += [self.vocabulary.decode(row.tokens[a:b]).strip() for a, b in pairs]
        scores = [found[line, part] for part in range(len(rows))]
        return WordScores(
            text,
            tuple(words),
            tuple(one != UNKNOWN_WORD for own, _, _ in scores for one in own),
            tuple(one for _, own, _ in scores for one in own),
            tuple(one for _, _, own in scores for one in own),
        )

    def trace(self, text: str, *, relevance: bool = True) -> Trace:
        """There is nothing to trace.

        Raises:
            UserError: always.
        """
        raise UserError("ELMo has no attention to trace; use heedful predict for probabilities")
