"""Evaluation: bits per sequence and wrong bits, at the trained sizes or at others."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import typer


@dataclass(frozen=True)
class AlgorithmEvaluation:
    """Which sizes to score."""

    size: Annotated[
        list[int] | None,
        typer.Option(
            "--size",
            help="Size of the examples of an algorithm task, such as 120 vectors to copy; "
            "repeatable. Default: the sizes of training.",
        ),
    ] = None


class SizeScore(NamedTuple):
    """The score of the examples of a size."""

    size: int | None
    """None for the sizes of training."""
    examples: int
    nats: float
    """Cross-entropy per bit."""
    bits: float
    """Cross-entropy per sequence in bits."""
    wrong: list[list[float]]
    """Wrong bits, and all bits, of each example."""
    bound: float | None
    """The least bits per sequence on average; None if 0."""
    texts: tuple[list[str], list[str], list[str]]
    """Inputs, right outputs and outputs."""

    @property
    def wrong_bits(self) -> float:
        """The share of wrong bits in percent."""
        return 100 * sum(one for one, _ in self.wrong) / sum(all_ for _, all_ in self.wrong)

    @property
    def exact(self) -> float:
        """The share of sequences without a wrong bit in percent."""
        return 100 * sum(not one for one, _ in self.wrong) / len(self.wrong)


def score(predictor: Any, seed: int, size: int | None, *, texts: bool) -> SizeScore:
    """Score a predictor on the test examples of a size.

    Args:
        predictor: an :class:`~heedful.tasks.algorithm.predictor.AlgorithmPredictor`.
        seed: of the recipe.
        size: of the examples; those of training if None.
        texts: whether to return inputs and outputs as text.
    """
    from heedful.basics.cancellation import check_cancelled
    from heedful.inference.inference_mode import ready
    from heedful.tasks.algorithm.batches import TEST, AlgorithmBatch, held_out
    from heedful.tasks.algorithm.texts import bit_texts, vector_texts
    from heedful.tasks.algorithm.training import answers

    problem, nats = predictor.problem, 0.0
    wrong: list[list[float]] = []
    bounds: list[float] = []
    shown: tuple[list[str], list[str], list[str]] = ([], [], [])
    with ready(predictor.model, predictor.device, predictor.precision):
        for drawn in held_out(problem, seed, TEST, problem.test, size):
            check_cancelled()
            batch = AlgorithmBatch.of(drawn).to(predictor.device)
            found, rows = answers(predictor.model, batch), len(batch.inputs)
            nats += float(found.loss())
            each = float(batch.weight // rows)
            wrong += [[float(one), each] for one in found.wrong().tolist()]
            bound = problem.bound(drawn)
            bounds += [] if bound is None else [bound] * rows
            for row in range(rows) if texts else ():
                outputs = (batch.targets[row] > 0.5, found.logits[row] > 0)
                both = (" ".join(bit_texts(one)) for one in outputs)
                for kept, text in zip(
                    shown, (" | ".join(vector_texts(batch.inputs[row])), *both), strict=True
                ):
                    kept.append(text)
    bits = sum(all_ for _, all_ in wrong)
    least = sum(bounds) / len(bounds) if bounds else None
    per_sequence = nats / math.log(2) / len(wrong)
    return SizeScore(size, len(wrong), nats / bits, per_sequence, wrong, least, shown)


def evaluate(predictor: Any, recipe: Any, sizes: Sequence[int]) -> Any:
    """The evaluation at some sizes, or at those of training if there are none.

    Raises:
        UserError: a size is impossible.
    """
    from heedful.basics.errors import UserError
    from heedful.evaluation.outcome import Evaluation, Examples, ReportTable

    for size in sizes:
        if problem := recipe.data.refused(size):
            raise UserError(f"--size {size}: {problem}")
    scored: list[int | None] = list(sizes) or [None]
    scores = [score(predictor, recipe.seed, one, texts=not sizes) for one in scored]
    has_bound = any(one.bound is not None for one in scores)
    header = ("size", "examples", "bits per sequence", *(("least",) if has_bound else ()))
    rows = [_row(one, recipe.data.sizes, has_bound) for one in scores]
    title = f"{recipe.data.kind}, sizes in {recipe.data.size_name}"
    table = ReportTable(title, (*header, "wrong bits", "without error"), rows)
    examples = None
    if not sizes:
        inputs, right, outputs = scores[0].texts
        wrong = scores[0].wrong
        measure = {"kind": "mean", "values": wrong, "scale": 100.0, "rises": False}
        examples = Examples(inputs, right, outputs, {"wrong_bits": measure})
    return Evaluation(
        title,
        {name: one for each in scores for name, one in _figures(each).items()},
        None if examples is None else examples.outputs,
        [table],
        settings={"sizes": list(sizes)} if sizes else {},
        examples=examples,
    )


def _row(one: SizeScore, trained: Sequence[int], has_bound: bool) -> tuple[str, ...]:
    low, high = trained
    size = f"{low}–{high}" if low < high else f"{low}"
    least = "" if one.bound is None else f"{one.bound:.1f}"
    return (
        size if one.size is None else str(one.size),
        f"{one.examples:,}",
        f"{one.bits:.4g}",
        *((least,) if has_bound else ()),
        f"{one.wrong_bits:.3f} %",
        f"{one.exact:.1f} %",
    )


def _figures(one: SizeScore) -> dict[str, Any]:
    from heedful.evaluation.outcome import Figure

    own = "" if one.size is None else f"_at_{one.size}"
    return {
        f"wrong_bits{own}": Figure(one.wrong_bits, "%", rises=False),
        f"exact{own}": Figure(one.exact, "%"),
        f"bits{own}": Figure(one.bits, "bits a sequence", rises=False),
        f"loss{own}": Figure(one.nats, "nats a bit", rises=False),
    }
