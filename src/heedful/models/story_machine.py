"""A memory machine that reads a story and a question word by word, and then answers.

Graves et al. 2016, "Hybrid computing using a neural network with dynamic external memory", Methods,
"bAbI task descriptions": the words of the facts and of the question are the steps of a sequence;
the answer is the output of the step after the last one. Any model of sequences of vectors can be
the machine: a differentiable neural computer, a neural Turing machine, an LSTM.
Shapes: B stories, N facts, L tokens of a fact, Q tokens of a question, T steps, C answers.
"""

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field, SerializeAsAny
from torch import Tensor, nn

from heedful.basics.limits import MOST_WIDTH
from heedful.basics.symbols import END, PAD
from heedful.layers.dropout import Dropout
from heedful.models.registry import (
    SequenceSettings,
    StorySettings,
    build_sequence_model,
    register_model,
)
from heedful.models.stories import StoryModel, StoryOutput


class StoryMachineSettings(StorySettings):
    """Sizes and options of a machine that reads stories."""

    kind: Literal["story-machine"] = "story-machine"
    embedding_size: int = Field(64, ge=1, le=MOST_WIDTH)
    """Width of the embeddings of words."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout on the embeddings."""
    machine: SerializeAsAny[SequenceSettings] = Field(
        default_factory=lambda: SequenceSettings.model_validate(
            {
                "kind": "differentiable-neural-computer",
                "hidden_size": 128,
                "slots": 64,
                "slot_size": 32,
                "read_heads": 4,
            }
        )
    )
    """The model of sequences."""


def packed(story: Tensor, question: Tensor) -> tuple[Tensor, Tensor]:
    """The words of each story and its question as one sequence, and the length of each.

    Args:
        story: ``[B, N, L]``, padded.
        question: ``[B, Q]``, padded.

    Returns:
        Tokens ``[B, T]``: facts, question, END, padding; and lengths ``[B]``, END included.

    Example:
        >>> story, question = torch.tensor([[[7, 8], [9, 0]], [[6, 0], [0, 0]]]), torch.ones(2, 1)
        >>> packed(story, 5 * question.long())
        (tensor([[7, 8, 9, 5, 3],
                [6, 5, 3, 0, 0]]), tensor([5, 3]))
    """
    tokens = torch.cat([story.flatten(1), F.pad(question, (0, 1), value=END)], 1)
    exists = tokens != PAD
    lengths = exists.sum(1)
    order = (~exists).long().argsort(dim=1, stable=True)  # all words first, in their order
    return tokens.gather(1, order)[:, : int(lengths.max())], lengths


class StoryMachine(StoryModel):
    """A machine that reads a story and a question word by word.

    Args:
        settings: sizes and options.
        words: number of symbols of the vocabulary.
        answers: the symbol of each answer ``[C]``; only their number counts.

    Source: Graves et al. 2016, Methods.

    Example:
        >>> machine = {"kind": "recurrent-sequence", "hidden_size": 8}
        >>> settings = StoryMachineSettings.model_validate({"machine": machine})
        >>> model = StoryMachine(settings, 30, answers=[5, 6, 7])
        >>> story, question = torch.tensor([[[4, 5], [6, 0]]]), torch.tensor([[9, 5, 4]])
        >>> model(story, question).logits.shape
        torch.Size([1, 3])
    """

    def __init__(self, settings: StoryMachineSettings, words: int, answers: Sequence[int]) -> None:
        super().__init__()
        width = settings.embedding_size
        self.table = nn.Embedding(words, width, PAD)
        nn.init.normal_(self.table.weight, std=width**-0.5)
        with torch.no_grad():
            self.table.weight[PAD].zero_()
        self.drop = Dropout(settings.dropout)
        self.machine = build_sequence_model(settings.machine, width, len(answers))

    def forward(self, story: Tensor, question: Tensor, *, linear: bool = False) -> StoryOutput:
        """Answer questions; there is no linear form."""
        tokens, lengths = packed(story, question)
        logits = self.machine(self.drop(self.table(tokens)))  # [B, T, C]
        last = (lengths - 1)[:, None, None].expand(-1, 1, logits.shape[-1])
        return StoryOutput(logits.gather(1, last).squeeze(1))

    def attention_axes(self) -> dict[str, tuple[str, ...]]:
        """Those of the machine: "steps" are the words of the facts and the question, and END."""
        own = self.machine.attention_axes()
        return {f"machine.{name}": axes for name, axes in own.items()}


register_model(StoryMachineSettings, StoryMachine)
