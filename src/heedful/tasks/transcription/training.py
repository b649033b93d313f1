"""The training task: cross-entropy of the decoder, the loss of CTC, or a weighted sum of both.

    λ CTC + (1 − λ) attention

Kim, Hori, Watanabe 2017, "Joint CTC-Attention Based End-to-End Speech Recognition Using Multi-Task
Learning", equation 12.
Shapes: B sounds, T frames, F features, S positions, L target tokens, V symbols.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.basics.symbols import BEGIN, END, PAD
from heedful.data.column_batch import ColumnBatch
from heedful.data.sound_augmentation import masked, warped
from heedful.data.store import Store
from heedful.inference.inference_mode import ready
from heedful.kernels.cross_entropy import cross_entropy
from heedful.models import Annotations, Sounds
from heedful.models.speech import BLANK
from heedful.tasks.transcription.errors import measures
from heedful.training.column_task import ColumnTask
from heedful.training.protocol import Loss, Sample, Validation


class Texts(NamedTuple):
    """The texts of a batch."""

    tokens: Tensor
    """``[B, L − 1]``, padded."""
    lengths: Tensor
    """Tokens of each text ``[B]``, without END."""

    @classmethod
    def of(cls, batch: ColumnBatch) -> "Texts":
        """The column "text"."""
        column = batch["text"]
        return cls(column.padded(PAD).long(), column.lengths)

    @property
    def target_in(self) -> Tensor:
        """BEGIN and the tokens, ``[B, L]``."""
        return F.pad(self.tokens, (1, 0), value=BEGIN)

    @property
    def labels(self) -> Tensor:
        """The tokens and END, ``[B, L]``."""
        return F.pad(self.tokens, (0, 1), value=PAD).scatter(1, self.lengths[:, None], END)


def sounds_of(batch: ColumnBatch) -> Sounds:
    """The column "frames"."""
    column = batch["frames"]
    return Sounds(column.padded(), column.lengths)


class TranscriptionTask(ColumnTask):
    """Trains a model that transcribes sounds.

    Args:
        model: the model to train, on ``device``.
        settings: ``[training]`` of the recipe.
        stores: training data, and validation data or None.
        transcribe: finds the texts of sounds.
        write: the text of tokens.
        how: ``device`` and ``precision``.
    """

    by = ("frames",)

    def __init__(
        self,
        model: Any,
        settings: Any,
        stores: tuple[Store, Store | None],
        *,
        transcribe: Callable[[Sounds], list[str]],
        write: Callable[[Sequence[int]], str],
        **how: Any,
    ) -> None:
        super().__init__(model, stores[0], stores[1], settings.batch_tokens, **how)
        self.model: Any = model
        self.settings, self.transcribe, self.write = settings, transcribe, write

    def weight_of(self, batch: ColumnBatch) -> int:
        """The number of target tokens, END included."""
        lengths = batch["text"].lengths
        return int(lengths.sum()) + len(lengths)

    def batch_loss(self, batch: ColumnBatch) -> Loss:
        """The sum over the target tokens. The part ``loss`` is the cross-entropy of the decoder, or
        the loss of CTC without a decoder; ``ctc`` is the loss of CTC beside a decoder."""
        sounds, texts = self._varied(sounds_of(batch)), Texts.of(batch)
        heard = self.model.listen(sounds)
        tokens = int(texts.lengths.sum()) + len(texts.lengths)
        if not self.model.has_decoder:
            own = self._ctc(heard, texts)
            return Loss(own, {"loss": own.detach()}, {"loss": tokens})
        smoothing = self.settings.label_smoothing if self.model.training else 0.0
        real = texts.labels != PAD
        states = self.model.spell(heard, texts.target_in)[real]
        bias = self.model.output_bias
        total, exact = cross_entropy(
            states, self.model.output_table, texts.labels[real], smoothing, bias
        )
        parts, weights = {"loss": exact.sum()}, {"loss": tokens}
        if self.model.ctc is not None:
            weight, own = self.settings.ctc_weight, self._ctc(heard, texts)
            total = (1 - weight) * total + weight * own
            parts, weights = {**parts, "ctc": own.detach()}, {**weights, "ctc": tokens}
        return Loss(total, parts, weights)

    def _varied(self, sounds: Sounds) -> Sounds:
        """Sounds as the recipe changes them in training."""
        masks, warp = self.settings.masks, self.settings.warp
        if not self.model.training:
            return sounds
        if warp is not None:
            own = warped(*sounds, frequency=warp.frequency, time=warp.time)
            sounds = Sounds(*own)
        if masks is None:
            return sounds
        frames = masked(
            sounds.frames,
            sounds.lengths.tolist(),
            bands=(masks.bands, masks.widest),
            frames=(masks.times, masks.longest),
            most=masks.share,
        )
        return sounds._replace(frames=frames)

    def _ctc(self, heard: Annotations, texts: Texts) -> Tensor:
        """The sum of −log p of the texts by CTC; 0 for a sound that ``training.warp`` makes too
        short for its text."""
        emissions = self.model.emissions(heard).transpose(0, 1)  # [S, B, V]
        lengths = heard.lengths, texts.lengths
        loss: Tensor = F.ctc_loss(
            emissions, texts.tokens, *lengths, BLANK, reduction="sum", zero_infinity=True
        )
        return loss

    def validate(self) -> Validation:
        """``loss`` in nats a token; error rates, in per cent, of some transcriptions."""
        found = super().validate()
        most = self.settings.validation_sounds
        if self.held_out is None or not most:
            return found
        outputs: list[str] = []
        references: list[str] = []
        with ready(self.model, self.device):
            for batch in self.held_out.once():
                outputs += self.transcribe(sounds_of(batch.to(self.device)))
                references += self._written(Texts.of(batch))
                if len(outputs) >= most:
                    break
        figures = dict(found.figures)
        for name, how in measures(outputs, references).items():
            errors, count = torch.tensor(how["values"], dtype=torch.float64).sum(0).tolist()
            if not how.get("rises", True):
                figures[name.replace(" ", "_")] = how["scale"] * errors / max(1.0, count)
        shown = [
            Sample(f"recording {number}", output, reference)
            for number, (output, reference) in enumerate(
                zip(outputs[: self.settings.samples], references, strict=False), 1
            )
        ]
        return Validation(figures, shown)

    def _written(self, texts: Texts) -> list[str]:
        """The texts, as they are encoded."""
        rows = zip(texts.tokens.tolist(), texts.lengths.tolist(), strict=True)
        return [self.write(row[:length]) for row, length in rows]
