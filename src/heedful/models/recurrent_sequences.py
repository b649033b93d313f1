"""Recurrent layers from vectors to logits: the baseline of models with a memory.

Shapes: B batch, T steps, I and O widths of input and output, D width of a state.
"""

from typing import Literal

from pydantic import Field
from torch import Tensor, nn

from heedful.basics.limits import MOST_LAYERS, MOST_WIDTH
from heedful.layers.recurrent import RecurrentStack
from heedful.models.registry import SequenceSettings, register_model
from heedful.models.sequences import SequenceModel


class RecurrentSequenceSettings(SequenceSettings):
    """Sizes of recurrent layers."""

    kind: Literal["recurrent-sequence"] = "recurrent-sequence"
    cell: Literal["lstm", "gru"] = "lstm"
    layers: int = Field(3, ge=1, le=MOST_LAYERS)
    hidden_size: int = Field(256, ge=1, le=MOST_WIDTH)


class RecurrentSequence(SequenceModel):
    """LSTM or GRU layers, and a linear map of the states of the last one.

    Args:
        settings: sizes.
        inputs: width of the inputs.
        outputs: width of the outputs.

    Example:
        >>> import torch
        >>> model = RecurrentSequence(RecurrentSequenceSettings(hidden_size=8), 3, 2)
        >>> model(torch.zeros(1, 5, 3)).shape
        torch.Size([1, 5, 2])
    """

    def __init__(self, settings: RecurrentSequenceSettings, inputs: int, outputs: int) -> None:
        super().__init__()
        own, self.settings = settings, settings
        self.stack = RecurrentStack(own.cell, inputs, own.hidden_size, own.layers, dropout=0.0)
        self.output = nn.Linear(own.hidden_size, outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits ``[B, T, O]`` for ``inputs [B, T, I]``; the states start with zeros."""
        zeros = inputs.new_zeros(len(inputs), self.settings.hidden_size)
        layer = (zeros, zeros) if self.settings.cell == "lstm" else (zeros,)
        states, _ = self.stack(inputs, (layer,) * self.settings.layers)
        logits: Tensor = self.output(states)
        return logits


register_model(RecurrentSequenceSettings, RecurrentSequence)
