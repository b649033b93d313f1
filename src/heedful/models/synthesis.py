"""The base class of models that synthesise speech.

Shapes: B texts, N rows of synthesis, L source tokens, T frames, M bands of a frame, r frames of a
step, S = ⌈T / r⌉ steps.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.models.pairs import AlignmentSource, Source


class Spectrogram(NamedTuple):
    """The output of a model, given the frames before each step."""

    coarse: Tensor
    """Frames of the decoder ``[B, S · r, M]``."""
    fine: Tensor
    """The same with the residual of the post-net; padding is 0."""
    stops: Tensor
    """The logit of each step's probability to be the last one, ``[B, S]``."""


class SynthesisModel(nn.Module):
    """Base of models that synthesise speech: tokens of characters to frames of features.

    Sources are :class:`~heedful.models.pairs.Source`: tokens, END, then PAD. Each step predicts r
    frames and whether they are the last ones. It reads the last frame of the step before; the first
    step reads zeros. A subclass implements :meth:`unroll`, :meth:`start` and :meth:`step`.

    Source: Shen et al. 2018, "Natural TTS Synthesis by Conditioning WaveNet on Mel Spectrogram
    Predictions", section 2.2; several frames a step: Wang et al. 2017, "Tacotron: Towards
    End-to-End Speech Synthesis", section 3.3.
    """

    bands: int
    """M."""
    frames_per_step: int
    """r, the reduction factor."""
    max_length: int
    """Longest text in tokens, END included."""
    postnet: nn.Module | None
    """Computes the residual of frames ``[B, T, M]`` with lengths ``[B]``."""

    def unroll(self, source: Source, inputs: Tensor, seed: int = 0) -> tuple[Tensor, Tensor]:
        """Frames ``[B, S · r, M]`` of the decoder and logits of the stop ``[B, S]``.

        Args:
            source: the texts.
            inputs: the frame that each step reads, ``[B, S, M]``.
            seed: of the pre-net's dropout in inference.
        """
        raise NotImplementedError

    def start(self, source: Source, seed: int = 0) -> Any:
        """The state before the first step, one row per text."""
        raise NotImplementedError

    def step(self, frame: Tensor, state: Any) -> tuple[Tensor, Tensor, Any]:
        """Frames ``[N, r, M]``, logits of the stop ``[N]``, and the state after them.

        Args:
            frame: the last frame of the step before, ``[N, M]``; zeros before the first step.
            state: of :meth:`start`, or of the step before.
        """
        raise NotImplementedError

    def teacher_force(
        self, source: Source, frames: Tensor, lengths: Tensor, seed: int = 0
    ) -> Spectrogram:
        """The output, given the real frames before each step.

        Args:
            source: the texts.
            frames: ``[B, T, M]``, padded.
            lengths: frames of each row ``[B]``.
            seed: of the pre-net's dropout in inference.
        """
        coarse, stops = self.unroll(source, self.inputs(frames), seed)
        return Spectrogram(coarse, self.refined(coarse, lengths), stops)

    def inputs(self, frames: Tensor) -> Tensor:
        """The frame that each step reads, ``[B, S, M]``, of ``frames [B, T, M]``: 0 for the first
        step, then the last frame of the step before."""
        r = self.frames_per_step
        last = frames[:, r - 1 :: r]
        steps = -(-frames.shape[1] // r)
        return F.pad(last, (0, 0, 1, 0))[:, :steps]

    def refined(self, coarse: Tensor, lengths: Tensor) -> Tensor:
        """Frames ``[B, T, M]`` with the residual of the post-net; of each row, ``lengths [B]``
        frames count, and the others are 0."""
        places = torch.arange(coarse.shape[1], device=coarse.device)
        there = (places < lengths[:, None]).unsqueeze(-1)
        found = coarse.masked_fill(~there, 0.0)
        if self.postnet is None:
            return found
        residual: Tensor = self.postnet(found, lengths)
        return found + residual

    @property
    def alignment(self) -> AlignmentSource:
        """The attention module whose weights are the alignment of steps with tokens."""
        raise NotImplementedError

    def attention_axes(self) -> dict[str, tuple[str, str]]:
        """Attention module name → the axes ("source", "time") of its queries and its keys."""
        raise NotImplementedError
