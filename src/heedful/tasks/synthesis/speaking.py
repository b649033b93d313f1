"""Free-running synthesis: a model speaks from its own frames until it stops.

Shapes: B texts, S steps, L tokens with END, T frames, M bands, r frames of a step.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from heedful.attention import watch
from heedful.basics.cancellation import check_cancelled
from heedful.basics.symbols import END, PAD
from heedful.models import Source, SynthesisModel
from heedful.tasks.synthesis.guided_attention import is_complete


class Utterance(NamedTuple):
    """What a model says."""

    coarse: Tensor
    """Frames of the decoder ``[S · r, M]``."""
    frames: Tensor
    """The same with the residual of the post-net."""
    weights: Tensor
    """The alignment ``[S, L]``, with END as the last token."""
    stopped: bool
    """Whether the model stopped by itself, before the limit."""

    @property
    def complete(self) -> bool:
        """See :func:`~heedful.tasks.synthesis.guided_attention.is_complete`."""
        return is_complete(self.weights, stopped=self.stopped)


def source_of(texts: Sequence[Sequence[int]], device: torch.device) -> Source:
    """Texts, each with END, as a source."""
    rows = [torch.tensor([*own, END]) for own in texts]
    tokens = pad_sequence(rows, batch_first=True, padding_value=PAD)
    return Source(tokens.to(device), torch.tensor([len(own) for own in rows], device=device))


def alignment_of(calls: Sequence[Tensor], heads: Sequence[int] | None = None) -> Tensor:
    """Weights ``[B, S, L]``, the mean of some heads, of the calls of a module ``[B, H, .., L]``."""
    joined = torch.cat(list(calls), 2).float()
    return (joined if heads is None else joined[:, list(heads)]).mean(1)


def speak(
    model: SynthesisModel, source: Source, limits: Sequence[int], seed: int = 0
) -> list[Utterance]:
    """What a model says, in evaluation mode; a row says the same alone and beside others.

    Args:
        model: the model.
        source: the texts.
        limits: the most steps of each row, at least 1.
        seed: of the pre-net's dropout.
    """
    rows, device = len(limits), source.tokens.device
    most = torch.tensor(limits, device=device)
    ends = torch.zeros(rows, dtype=torch.long, device=device)  # 0 while a row speaks
    kind = next(model.parameters()).dtype
    frame = torch.zeros(rows, model.bands, device=device, dtype=kind)
    spoken, (module, heads, _) = [], model.alignment
    with watch(model, [module]) as seen:
        state: Any = model.start(source, seed)
        for step in range(1, max(limits) + 1):
            check_cancelled()
            frames, stops, state = model.step(frame, state)
            frame = frames[:, -1]
            spoken.append(frames)
            ends = torch.where((ends == 0) & (stops > 0) & (most >= step), step, ends)
            if bool(((ends > 0) | (most <= step)).all()):
                break
        weights = alignment_of(seen[module], heads)
    steps = torch.where(ends > 0, ends, most)
    coarse = torch.cat(spoken, 1)
    fine = model.refined(coarse, steps * model.frames_per_step)
    found = []
    for row, (count, length) in enumerate(
        zip(steps.tolist(), source.lengths.tolist(), strict=True)
    ):
        last = count * model.frames_per_step
        own = weights[row, :count, :length]
        stopped = bool(ends[row] > 0)
        found.append(Utterance(coarse[row, :last], fine[row, :last], own, stopped))
    return found


def step_limits(tokens: Sequence[int], known: Any, frames_per_step: int) -> list[int]:
    """The most steps for texts of so many tokens: one second and four times the mean pace of the
    training, but not more than data.longest."""
    step = known["features"]["step"] * frames_per_step
    seconds = [min(known["longest"], 1 + 4 * known["pace"] * (count + 1)) for count in tokens]
    return [max(1, int(own / step)) for own in seconds]
