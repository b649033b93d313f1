"""Runs a model on given vectors or on drawn examples, and traces what its heads read and write.

Shapes: T steps, A steps that are answered, I width of the inputs, O width of the outputs.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple, Self

import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor

from heedful.basics.cancellation import check_cancelled
from heedful.basics.errors import UserError
from heedful.basics.json_models import read_object
from heedful.inference import Axis, Trace
from heedful.inference.inference_mode import ready
from heedful.inference.tracing import Decision, Described, trace_model
from heedful.models import SequenceModel
from heedful.tasks.algorithm.batches import SINGLE, AlgorithmBatch, generator
from heedful.tasks.algorithm.problems import MOST_SIZE, Problem
from heedful.tasks.algorithm.texts import bit_texts, read_vector, vector_texts

_MOST_STEPS = 10_000
_MOST_WEIGHTS = 1 << 26
"""Maximum numbers of one map of a trace."""


class Asked(BaseModel):
    """An example to draw, or given vectors."""

    model_config = ConfigDict(extra="forbid")

    size: Annotated[int, Field(ge=1, le=MOST_SIZE, description="Size of an example to draw.")] = 0
    seed: Annotated[int, Field(ge=0, lt=2**31, description="Which example to draw.")] = 1
    vectors: Annotated[
        list[str],
        Field(
            max_length=_MOST_STEPS,
            description="Instead of a size: input vectors, as 0110 or as numbers with spaces.",
        ),
    ] = []
    answers: Annotated[
        int,
        Field(ge=0, le=_MOST_STEPS, description="With vectors: steps after them, without input."),
    ] = 0

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if bool(self.size) == bool(self.vectors):
            raise ValueError('give either "size" or "vectors"')
        if self.answers and self.size:
            raise ValueError('"answers" goes with "vectors", not with "size"')
        return self


class Answer(NamedTuple):
    """The output for an example."""

    outputs: list[str]
    """The bits of each answered step."""
    log_probability: float
    """Natural logarithm of the probability of these bits."""
    right: list[str] | None = None
    """The right bits, if the example was drawn."""
    wrong_bits: int | None = None
    """How many of the bits are wrong."""

    def __str__(self) -> str:
        return " ".join(self.outputs)

    def to_json(self) -> dict[str, Any]:
        """The result as a value that :mod:`json` can write."""
        return {key: value for key, value in self._asdict().items() if value is not None}


class AlgorithmPredictor:
    """A trained model.

    Args:
        recipe: of the run.
        model: with trained weights, on ``device``.
        device: where to compute.
        precision: precision of matrix products.
    """

    def __init__(
        self, recipe: Any, model: SequenceModel, *, device: torch.device, precision: str
    ) -> None:
        self.problem: Problem = recipe.data
        self.model = model
        self.device, self.precision = device, precision

    def predict(self, inputs: Sequence[Asked | Mapping[str, Any]]) -> list[Answer]:
        """One result for each input, in their order.

        Args:
            inputs: examples to draw or given vectors, or their fields as dictionaries.

        Raises:
            UserError: an input is invalid; the message has its number, from 1.
        """
        found = []
        for number, one in enumerate(inputs, start=1):
            check_cancelled()
            where = f"input {number}"
            asked = one if isinstance(one, Asked) else read_object(Asked, dict(one), where)
            batch = self._batch(asked, where)
            with ready(self.model, self.device, self.precision):
                logits = self._logits(batch)
            found.append(_answer(logits, None if asked.vectors else batch.targets[0]))
        return found

    def _logits(self, batch: AlgorithmBatch) -> Tensor:
        """``[A, O]``"""
        logits: Tensor = self.model(batch.inputs)[0, batch.answered]
        return logits.float()

    def _batch(self, asked: Asked, where: str) -> AlgorithmBatch:
        widths = self.problem.widths
        if not asked.vectors:
            if problem := self.problem.refused(asked.size):
                raise UserError(f"{where}: {problem}")
            rng = generator(asked.seed, SINGLE, asked.size)
            return AlgorithmBatch.of(self.problem.draw(rng, 1, asked.size)).to(self.device)
        rows = [
            read_vector(one, widths.inputs, f"{where}, vector {number}")
            for number, one in enumerate(asked.vectors, start=1)
        ]
        rows += [[0.0] * widths.inputs] * asked.answers
        answered = torch.ones(len(rows), dtype=torch.bool)
        if asked.answers:
            answered[: -asked.answers] = False
        targets = torch.zeros(1, int(answered.sum()), widths.outputs)
        return AlgorithmBatch(torch.tensor([rows]), targets, answered).to(self.device)

    def trace(self, asked: Asked, relevance: bool = False) -> Trace:
        """What the heads read and write at each step.

        Args:
            asked: the input.
            relevance: ignored: weights of a step affect those of all later steps, so that weights
                and gradients of one step do not say what an output depends on.

        Raises:
            UserError: the input is invalid, or too long to show.
        """
        batch = self._batch(asked, "the input")
        steps, slots = batch.inputs.shape[1], getattr(self.model.settings, "slots", 0)
        linked = any(axes[0] == "slots" for axes in self.model.attention_axes().values())
        if steps * slots * (slots if linked else 1) > _MOST_WEIGHTS:
            raise UserError(
                f"the input has {steps:,} steps, too many to show with {slots:,} slots; "
                "give a shorter one"
            )
        with ready(self.model, self.device, self.precision):
            bits = bit_texts(self._logits(batch) > 0)

        def decide() -> Decision:
            logits = self._logits(batch)
            return Decision(bits, _log_probabilities(logits))

        axes = {
            "steps": Axis("labels", _step_labels(batch, bits), steps=True),
            "slots": Axis("slots", [f"slot {place + 1}" for place in range(slots)]),
        }
        return trace_model(
            self.model,
            decide,
            Described(f"{self.problem.kind}: {' '.join(bits)}", axes),
            ready(self.model, self.device, self.precision),
        )


def _step_labels(batch: AlgorithmBatch, bits: Sequence[str]) -> list[str]:
    """Each step's input, and its output if it is answered."""
    labels = [f"{place} {text}" for place, text in enumerate(vector_texts(batch.inputs[0]), 1)]
    is_empty = (batch.inputs[0] == 0).all(1).tolist()
    for place, own in zip(batch.answered.nonzero().flatten().tolist(), bits, strict=True):
        labels[place] = f"{place + 1} → {own}" if is_empty[place] else f"{labels[place]} → {own}"
    return labels


def _log_probabilities(logits: Tensor) -> Tensor:
    """Of the most probable bits of each step ``[A]``."""
    return -F.softplus(-logits.abs()).sum(1)


def _answer(logits: Tensor, targets: Tensor | None) -> Answer:
    bits = logits > 0
    outputs, total = bit_texts(bits), float(_log_probabilities(logits).sum())
    if targets is None:
        return Answer(outputs, total)
    wrong = int((bits != (targets > 0.5)).sum())
    return Answer(outputs, total, bit_texts(targets > 0.5), wrong)
