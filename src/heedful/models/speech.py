"""The base class of models that transcribe sounds.

Shapes: B sounds, T frames, F features, S positions, A width of an annotation, L target tokens, D
width of a state, V vocabulary.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from heedful.basics.symbols import PAD
from heedful.layers.recurrent import Hidden
from heedful.models.pairs import PairModel

BLANK = PAD
"""The symbol of CTC for no output; no text contains it."""


class Sounds(NamedTuple):
    """Features of sounds."""

    frames: Tensor
    """``[B, T, F]``, padded."""
    lengths: Tensor
    """Frames of each sound ``[B]``, each at least 1."""


class Annotations(NamedTuple):
    """What an encoder has heard."""

    vectors: Tensor
    """``[B, S, A]``."""
    lengths: Tensor
    """Positions of each sound ``[B]``."""
    final: Hidden = ()
    """The state of a recurrent encoder's top layer after the last position."""


class SpeechModel(PairModel):
    """Base of models that transcribe sounds; their sources are :class:`Sounds`.

    A model has a decoder with attention, an output of each position for CTC, or both.
    """

    features: int
    """Width of a frame F."""
    reduction: int
    """Frames of a position."""
    has_decoder: bool
    """Whether it has a decoder with attention."""
    ctc: nn.Linear | None
    """The output of each position for CTC; None without CTC."""

    def listen(self, sounds: Sounds) -> Annotations:
        """The annotations of sounds."""
        raise NotImplementedError

    def spell(self, heard: Annotations, target_in: Tensor) -> Tensor:
        """The states ``[B, L, D]`` that predict each next token, given ``target_in [B, L]``."""
        raise NotImplementedError

    def begin(self, heard: Annotations) -> Any:
        """The state of decoding before the first step, one row per sound."""
        raise NotImplementedError

    def states(self, source: Any, target_in: Tensor) -> Tensor:
        return self.spell(self.listen(source), target_in)

    def start(self, source: Any) -> Any:
        return self.begin(self.listen(source))

    def emissions(self, heard: Annotations) -> Tensor:
        """Logarithms of the probabilities of all symbols, and of no symbol (:data:`BLANK`), at each
        position ``[B, S, V]``.

        Source: Graves et al. 2006, "Connectionist Temporal Classification: Labelling Unsegmented
        Sequence Data with Recurrent Neural Networks", section 3.
        """
        if self.ctc is None:
            raise ValueError("the model has no output for CTC: model.outputs = 'attention'")
        found: Tensor = self.ctc(heard.vectors).float().log_softmax(-1)
        return found

    def positions(self, frames: Tensor | int) -> Any:
        """Number of positions of so many frames."""
        return (frames + self.reduction - 1) // self.reduction

    def sample(self, rows: int, length: int) -> Any:
        """Silence, to measure the speed of :meth:`start` and :meth:`step`."""
        return Sounds(torch.zeros(rows, length, self.features), torch.full((rows,), length))
