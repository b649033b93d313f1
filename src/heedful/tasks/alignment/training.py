"""Training on pairs of texts by the likelihood of the target, summed over all alignments.

Shapes: B batch, T target tokens.
"""

from heedful.attention import watch
from heedful.basics.device import autocast
from heedful.data.batching import Batch
from heedful.evaluation.metrics import perplexity
from heedful.inference.batches import source_of, target_in_of
from heedful.models.aligner import WordAligner
from heedful.models.pairs import Source
from heedful.tasks.pairs.training import EncodedPairs, PairTask
from heedful.training.protocol import Loss, Validation
from heedful.training.shared_validation import over_processes
from heedful.training.terms import (
    TeacherForced,
    modules_of,
    with_terms,
)


class AlignmentTask(PairTask[WordAligner]):
    """The training task of word aligners; the arguments are those of :class:`PairTask`."""

    def loss(self, batch: Batch) -> Loss:
        """``−log p`` of the batch's targets without their END, plus the terms."""
        watching = watch(self.model, modules_of(self.terms), keep_gradients=True)
        with autocast(self.device, self.precision), watching as seen:
            source = Source(batch.source, batch.source_lengths)
            total = -self.model.log_likelihood(source, batch.target_in).sum()
            # The sum over alignments gives no loss of single tokens.
            surprise = total.new_zeros(batch.target_out.shape)
            loss = Loss(total, {"loss": total.detach()})
            return with_terms(
                loss, self.terms, TeacherForced(batch.target_out, seen, surprise, batch.links)
            )

    def validate(self) -> Validation:
        """``loss`` per token (nats) and ``perplexity``."""
        if not self.validation:
            return Validation({}, [])
        total, weight = 0.0, 0
        with self.translator.ready():
            batches = self.translator.encoded_batches(self.validation)
            for loss, own in over_processes(self._batch_loss, batches):
                total, weight = total + loss, weight + own
        figures = {"loss": total / max(weight, 1), "perplexity": perplexity(total, weight)}
        return Validation(figures, [])

    def _batch_loss(self, batch: EncodedPairs) -> tuple[float, int]:
        """The loss of an encoded batch, and its number of target tokens.

        END counts, as in the weight of a training batch.
        """
        sources, targets = batch
        source, target_in = source_of(sources, self.device), target_in_of(targets, self.device)
        loss = -self.model.log_likelihood(source, target_in).sum().item()
        return loss, sum(len(target) + 1 for target in targets)
