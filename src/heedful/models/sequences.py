"""The base class of models that map a sequence of vectors to a sequence of logits, step by step.

Shapes: B batch, T steps, I width of the inputs, O width of the outputs.
"""

from torch import Tensor, nn


class SequenceModel(nn.Module):
    """Base of models of sequences of vectors.

    A subclass implements :meth:`forward` and, if it attends to something, :meth:`attention_axes`.
    The output of a step depends on no later input.
    """

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits ``[B, T, O]`` for ``inputs [B, T, I]``."""
        raise NotImplementedError

    def attention_axes(self) -> dict[str, tuple[str, ...]]:
        """Module → the axes of its queries and keys: "steps", and "slots" of a memory."""
        return {}
