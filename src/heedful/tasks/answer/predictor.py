"""Answers questions about stories, and shows which facts each hop reads.

Shapes: B questions, N facts, K hops.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor

from heedful.attention import watch
from heedful.basics.notices import counted_notice, once
from heedful.inference import Axis, Trace
from heedful.inference.tracing import END_LABEL, Decision, Described
from heedful.models import StoryModel
from heedful.tasks.answer.encoding import kept_facts, words_of
from heedful.tasks.answer.examples import Asked
from heedful.tasks.answer.training import read_batch
from heedful.tasks.column_predictor import ColumnPredictor

_SHOWN = 3
_NO_FACT = "(no further fact)"


class ReadFact(NamedTuple):
    """A fact that a hop reads."""

    number: int
    """From 1 in the given story; 0 for "no further fact"."""
    text: str
    weight: float


class Answer(NamedTuple):
    """The answer to a question."""

    answer: str
    log_probability: float
    """Natural logarithm of its probability."""
    hops: list[list[ReadFact]]
    """The facts with the largest weights at each hop, the largest first; empty for a model without
    hops."""

    def __str__(self) -> str:
        return self.answer

    def to_json(self) -> dict[str, Any]:
        """The result as a value that :mod:`json` can write."""
        hops = [[one._asdict() for one in hop] for hop in self.hops]
        return {"answer": self.answer, "log_probability": self.log_probability, "hops": hops}


class StoryPredictor(ColumnPredictor[StoryModel, Asked, Answer]):
    """Answers questions with a trained model."""

    def __init__(self, *given: Any, **how: Any) -> None:
        super().__init__(*given, **how)
        self._notice = once()

    def answer(self, inputs: Sequence[Asked]) -> list[Answer]:
        """One answer for each of some questions."""
        self._say_dropped(inputs)
        module = self._hops_module()
        with watch(self.model, [] if module is None else [module]) as seen:
            best = self._scores(inputs).max(1)
        hops = [] if module is None else [one.mean(1)[:, -1] for one in seen[module]]  # [B, N]
        return [
            Answer(
                self.known["answers"][number],
                score,
                [self._largest(asked, hop[row]) for hop in hops],
            )
            for row, (asked, number, score) in enumerate(
                zip(inputs, best.indices.tolist(), best.values.tolist(), strict=True)
            )
        ]

    def _scores(self, inputs: Sequence[Asked]) -> Tensor:
        """Log-probabilities ``[B, C]``."""
        found = read_batch(self.model, self.batch(inputs))
        return found.logits.float().log_softmax(1)

    def _hops_module(self) -> str | None:
        axes = self.model.attention_axes()
        return next((name for name, own in axes.items() if own == ("hops", "facts")), None)

    def _largest(self, asked: Asked, weights: Tensor) -> list[ReadFact]:
        dropped = len(asked.story) - len(kept_facts(asked.story, self.known))
        first = dropped + (0 if self.model.can_stop else 1)
        count = len(self._labels(asked))
        largest = weights[:count].sort(descending=True, stable=True)
        found = []
        for place, weight in zip(
            largest.indices[:_SHOWN].tolist(), largest.values[:_SHOWN].tolist(), strict=True
        ):
            stops = self.model.can_stop and place == 0
            number = 0 if stops else first + place
            found.append(ReadFact(number, self._labels(asked)[place], weight))
        return found

    def _labels(self, asked: Asked) -> list[str]:
        """What the columns of the weights stand for."""
        return [_NO_FACT] * self.model.can_stop + kept_facts(asked.story, self.known)

    def _say_dropped(self, inputs: Sequence[Asked]) -> None:
        most = self.known["memory"]
        longer = sum(len(one.story) > most for one in inputs)
        if self.known["longer"] == "drop-oldest":
            counted_notice(self._notice, self._dropped, longer, len(inputs))

    def _dropped(self, longer: int, stories: int) -> str:
        most = self.known["memory"]
        return (
            f"{longer} of {stories} stories have more than {most} facts; "
            "their oldest facts are not read"
        )

    def trace(self, asked: Asked, relevance: bool = True) -> Trace:
        """The facts that each hop reads.

        Args:
            asked: the story and the question.
            relevance: whether to add relevance maps.
        """
        [found] = self.predict([asked])
        facts = kept_facts(asked.story, self.known)
        vocabulary = words_of(self.known)

        def cut(text: str) -> list[str]:
            return list(vocabulary.cut(text))

        words = [word for fact in facts for word in cut(fact)]
        hops = [f"hop {number + 1}" for number in range(max(1, len(found.hops)))]
        axes = {
            "hops": Axis("labels", hops, steps=True),
            "facts": Axis("slots", self._labels(asked)),
            "story": Axis("labels", [*facts, asked.question]),
            "question": Axis("tokens", cut(asked.question)),
            "steps": Axis("tokens", [*words, *cut(asked.question), END_LABEL], steps=True),
        }

        def decide() -> Decision:
            return Decision([found.answer], self._scores([asked]).max(1).values)

        described = Described(f"{asked.question} {found.answer}", axes)
        return self.traced(described, decide, relevance=relevance)
