"""The training task: errors of frames before and after the post-net, the stop, guided attention.

    L = Σ |y − ŷ| / M + Σ |y − (ŷ + postnet(ŷ))| / M + T · mean BCE(stop) + T · λ · mean A W

The first two are sums over the T frames of a recording; the others are means over its steps, or
over steps and tokens, times T, so that the loss of a batch is a mean over its frames.
Shen et al. 2018, section 2.2; Tachibana, Uenoyama, Aihara 2018, section 4.1.
Shapes: B recordings, T frames, M bands, S steps, L tokens with END.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.attention import watch
from heedful.basics.symbols import END, PAD
from heedful.data.column_batch import ColumnBatch
from heedful.data.store import Store
from heedful.inference.inference_mode import ready
from heedful.models import Source
from heedful.tasks.synthesis.guided_attention import guided_losses
from heedful.tasks.synthesis.speaking import Utterance, alignment_of
from heedful.training.column_task import ColumnTask
from heedful.training.protocol import Loss, Sample, Validation


def texts_of(batch: ColumnBatch) -> Source:
    """The column "text", with END."""
    column = batch["text"]
    tokens = F.pad(column.padded(PAD).long(), (0, 1), value=PAD)
    return Source(tokens.scatter(1, column.lengths[:, None], END), column.lengths + 1)


class SynthesisTask(ColumnTask):
    """Trains a model that synthesises speech.

    Args:
        model: the model to train, on ``device``.
        settings: ``[training]`` of the recipe.
        stores: training data, and validation data or None.
        say: speaks texts.
        write: the text of tokens.
        seconds: of a frame.
        how: ``device`` and ``precision``.
    """

    by = ("frames",)

    def __init__(
        self,
        model: Any,
        settings: Any,
        stores: tuple[Store, Store | None],
        *,
        say: Callable[[Source], list[Utterance]],
        write: Callable[[Sequence[int]], str],
        seconds: float,
        **how: Any,
    ) -> None:
        super().__init__(model, stores[0], stores[1], settings.batch_tokens, **how)
        self.model: Any = model
        self.settings, self.say, self.write, self.seconds = settings, say, write, seconds

    def weight_of(self, batch: ColumnBatch) -> int:
        """The number of frames."""
        return int(batch["frames"].lengths.sum())

    def batch_loss(self, batch: ColumnBatch) -> Loss:
        """The sum over the frames of all parts: ``before`` and ``after`` the post-net, ``stop`` and
        ``guided``, whose weighted sum is ``loss``."""
        column, source = batch["frames"], texts_of(batch)
        frames, lengths = column.padded(), column.lengths
        steps = -(-lengths // self.model.frames_per_step)
        guided, (module, heads, _) = self.settings.guided_attention, self.model.alignment
        with watch(self.model, [module] if guided else [], keep_gradients=True) as seen:
            found = self.model.teacher_force(source, frames, lengths)
        parts = {
            "before": self._error(found.coarse, frames, lengths),
            "after": self._error(found.fine, frames, lengths),
            "stop": (self._stops(found.stops, steps) * lengths).sum(),
        }
        total = parts["before"] + parts["after"] + parts["stop"]
        if guided:
            weights = alignment_of(seen[module], heads)
            characters, width = source.lengths - 1, self.settings.guided_width
            own = (guided_losses(weights, steps, characters, width) * lengths).sum()
            parts["guided"] = own
            total = total + guided * own
        parts = {"loss": total, **parts}
        weight = int(lengths.sum())
        return Loss(
            total,
            {name: own.detach() for name, own in parts.items()},
            dict.fromkeys(parts, weight),
        )

    def _error(self, found: Tensor, frames: Tensor, lengths: Tensor) -> Tensor:
        """The mean over the bands, summed over the frames that count."""
        places = torch.arange(frames.shape[1], device=frames.device)
        away = (found[:, : frames.shape[1]].float() - frames)[places < lengths[:, None]]
        errors = away.abs() if self.settings.error == "l1" else away.square()
        return errors.mean(1).sum()

    def _stops(self, logits: Tensor, steps: Tensor) -> Tensor:
        """The mean cross-entropy of the stop over the steps of each row ``[B]``, of its ``logits
        [B, S]``: the last step is 1, the others are 0."""
        places = torch.arange(logits.shape[1], device=logits.device)
        labels = (places == steps[:, None] - 1).float()
        weight = logits.new_tensor(self.settings.stop_weight, dtype=torch.float32)
        losses = F.binary_cross_entropy_with_logits(
            logits.float(), labels, pos_weight=weight, reduction="none"
        )
        return losses.masked_fill(places >= steps[:, None], 0.0).sum(1) / steps

    def validate(self) -> Validation:
        """The parts of the loss per frame, given the real frames before each step; ``complete``,
        the share of texts, in per cent, that the model speaks from beginning to end by itself."""
        found = super().validate()
        most = self.settings.validation_texts
        if self.held_out is None or not most:
            return found
        said: list[Utterance] = []
        texts: list[str] = []
        lengths: list[int] = []
        with ready(self.model, self.device):
            for batch in self.held_out.once():
                source = texts_of(batch.to(self.device))
                count = most - len(said)
                said += self.say(Source(source.tokens[:count], source.lengths[:count]))
                texts += self._written(source)[:count]
                lengths += batch["frames"].lengths.tolist()[:count]
                if len(said) >= most:
                    break
        complete = 100 * sum(one.complete for one in said) / len(said)
        shown = [
            Sample(text, self._described(one), f"{count * self.seconds:.2f} s")
            for text, one, count in zip(texts, said, lengths, strict=True)
        ]
        figures = {**found.figures, "complete": complete}
        return Validation(figures, shown[: self.settings.samples])

    def _described(self, one: Utterance) -> str:
        how = "complete" if one.complete else "not complete" if one.stopped else "does not stop"
        return f"{len(one.frames) * self.seconds:.2f} s, {how}"

    def _written(self, source: Source) -> list[str]:
        rows = zip(source.tokens.tolist(), source.lengths.tolist(), strict=True)
        return [self.write(row[: length - 1]) for row, length in rows]
