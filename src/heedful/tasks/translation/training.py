"""Training on pairs of texts by cross-entropy of the next target token.

Shapes: B batch, T target tokens, D width.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from heedful.attention import watch
from heedful.basics.device import autocast
from heedful.basics.symbols import PAD
from heedful.data.batching import Batch, StoreBatches
from heedful.data.examples import Pair
from heedful.decoding import SearchOptions
from heedful.evaluation.metrics import perplexity, score_corpus
from heedful.inference.batches import source_of, target_in_of, target_out_of
from heedful.inference.translator import Translator
from heedful.models import PairModel, Source
from heedful.tasks.pairs.training import EncodedPairs, PairTask
from heedful.training.distillation import Predicted, loss_of_logits, wide
from heedful.training.protocol import Loss, Sample, Validation
from heedful.training.shared_validation import outputs_over_processes, over_processes
from heedful.training.terms import (
    TeacherForced,
    Term,
    modules_of,
    with_terms,
)


class TranslationTask(PairTask[PairModel]):
    """The training task of translation.

    Args:
        model: any model for pairs.
        train: batches of the training corpus.
        validation: pairs to validate on; may be empty.
        translator: translates the validation pairs with ``model``.
        options: search options at validation.
        device: where the model is.
        label_smoothing: ε in [0, 1) of the training loss.
        terms: additional losses on attention weights.
        precision: precision of matrix products in training; validation is in float32.
        tokenise: sacreBLEU's tokeniser at validation.
        validation_pairs: number of validation pairs that are translated.
        samples: number of translations that are shown.
    """

    def __init__(
        self,
        model: PairModel,
        train: StoreBatches[Batch],
        validation: Sequence[Pair],
        translator: Translator,
        *,
        options: SearchOptions,
        device: torch.device,
        label_smoothing: float,
        terms: Sequence[Term] = (),
        precision: str,
        tokenise: str,
        validation_pairs: int,
        samples: int,
    ) -> None:
        super().__init__(
            model, train, validation, translator, device=device, terms=terms, precision=precision
        )
        self.options = options
        self.label_smoothing = label_smoothing
        self.tokenise = tokenise
        self.validation_pairs = validation_pairs
        self.samples = samples

    def loss(self, batch: Batch) -> Loss:
        """Summed cross-entropy of the batch's target tokens plus the terms.

        The part ``loss`` is the cross-entropy without smoothing; each term adds its own parts.
        """
        source = Source(batch.source, batch.source_lengths)
        # Without terms, no module is watched, so the fast path is used.
        watching = watch(self.model, modules_of(self.terms), keep_gradients=True)
        with autocast(self.device, self.precision), watching as seen:
            total, exact = self._cross_entropy(
                source, batch.target_in, batch.target_out, self.label_smoothing
            )
            loss = Loss(total, {"loss": exact.sum()})
            if not self.terms:
                return loss
            surprise = exact.new_zeros(batch.target_out.shape)
            surprise[batch.target_out != PAD] = exact
            return with_terms(
                loss, self.terms, TeacherForced(batch.target_out, seen, surprise, batch.links)
            )

    def predict(self, model: PairModel, batch: Batch) -> Predicted:
        """The logits of all target tokens, which are in memory as a whole."""
        source, real = Source(batch.source, batch.source_lengths), batch.target_out != PAD
        with autocast(self.device, self.precision):
            states = model.states(source, batch.target_in)[real]
            logits = model.logits(states)
        return Predicted(wide(logits), batch.target_out[real], states=lambda: states)

    def loss_of(self, predicted: Predicted, batch: Batch) -> Loss:
        """The loss from what the model predicts; see :meth:`loss`."""
        return loss_of_logits(predicted, self.label_smoothing)

    def _cross_entropy(
        self, source: Source, target_in: Tensor, target_out: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        return self.model.losses(source, target_in, target_out, target_out != PAD, smoothing)

    def validate(self) -> Validation:
        """``loss`` per token (nats) and ``perplexity`` of all pairs; BLEU and chrF of some."""
        if not self.validation:
            return Validation({}, [])
        figures = self._validation_loss()
        pairs = self.validation[: self.validation_pairs]
        outputs = outputs_over_processes(self._translated, [pair.source for pair in pairs])
        references = [pair.target for pair in pairs]
        metrics: tuple[Literal["bleu"], Literal["chrf"]] = ("bleu", "chrf")
        scores = score_corpus(
            outputs, references, metrics=metrics, tokenise=self.tokenise, bootstrap=0
        )
        figures |= {name: score.value for name, score in zip(metrics, scores, strict=True)}
        shown = [
            Sample(pair.source, output, pair.target)
            for pair, output in zip(pairs[: self.samples], outputs, strict=False)
        ]
        return Validation(figures, shown)

    def _validation_loss(self) -> dict[str, float]:
        """The mean loss over all target tokens, in float32 and without smoothing."""
        total, weight = 0.0, 0
        with self.translator.ready():
            batches = self.translator.encoded_batches(self.validation)
            for loss, own in over_processes(self._batch_loss, batches):
                total, weight = total + loss, weight + own
        return {"loss": total / max(weight, 1), "perplexity": perplexity(total, weight)}

    def _batch_loss(self, batch: EncodedPairs) -> tuple[float, int]:
        """The summed loss of an encoded batch, and its number of target tokens."""
        sources, targets = batch
        target_in = target_in_of(targets, self.device)
        target_out = target_out_of(targets, self.device)
        source = source_of(sources, self.device)
        loss = self._cross_entropy(source, target_in, target_out, 0.0)[1].sum().item()
        return loss, sum(len(target) + 1 for target in targets)

    def _translated(self, sources: list[str]) -> list[str]:
        """The translations of validation sources."""
        found = self.translator.translate(sources, options=self.options)
        return [translation.text for translation in found]
