"""The report on the output of a system, as data, as JSON and as tables."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from heedful.evaluation.alignment_error import AlignmentScore
from heedful.evaluation.attention_statistics import COVERED, HeadStatistics
from heedful.evaluation.breakdown import (
    Faults,
    LengthBucket,
    SentenceScore,
    bucket_statistics,
    find_faults,
    rank_statistics,
)
from heedful.evaluation.metrics import Score, score_statistics
from heedful.evaluation.outcome import ReportTable
from heedful.evaluation.significance import Comparison, compare_statistics
from heedful.evaluation.statistics import (
    DEFAULT_SEED,
    METRICS,
    MetricName,
    SentenceStatistics,
    check_parallel,
    collect,
)


@dataclass(frozen=True)
class ReportSettings:
    """What to measure.

    Attributes:
        metrics: the scores to compute.
        tokenise: sacrebleu's tokeniser for BLEU.
        lowercase: whether to compare in lower case.
        bootstrap: resamples for intervals.
        seed: of all resampling.
        by_length: whether to score by source length, too.
        sentences: number of worst and of best sentences to keep.
    """

    metrics: tuple[MetricName, ...] = METRICS
    tokenise: str = "13a"
    lowercase: bool = False
    bootstrap: int = 1000
    seed: int = DEFAULT_SEED
    by_length: bool = False
    sentences: int = 3


@dataclass(frozen=True)
class Example:
    """A sentence with its scores; ``line`` counts from 1."""

    line: int
    chrf: float
    bleu: float
    source: str | None
    output: str
    reference: str


@dataclass(frozen=True)
class Report:
    """The results; parts that were not requested are empty or None."""

    system: str
    count: int
    scores: list[Score] = field(default_factory=list)
    against: str | None = None
    comparisons: list[Comparison] = field(default_factory=list)
    faults: Faults | None = None
    by_length: list[LengthBucket] = field(default_factory=list)
    worst: list[Example] = field(default_factory=list)
    best: list[Example] = field(default_factory=list)
    alignment: AlignmentScore | None = None
    attention: list[HeadStatistics] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """The report as a value that :mod:`json` can write; sentences of faults count from 1."""
        values = dataclasses.asdict(self)
        for bucket in values["by_length"]:
            bucket["name"] = f"{bucket['shortest']}-{bucket['longest'] or ''}"
        if self.faults is not None:
            values["faults"] = {
                name: [index + 1 for index in value] if isinstance(value, list) else value
                for name, value in values["faults"].items()
            }
        for comparison, made in zip(values["comparisons"], self.comparisons, strict=True):
            comparison["difference"] = made.difference
        return values

    def tables(self) -> list[ReportTable]:
        """The report as tables, for a terminal or as plain text."""
        makers = (
            self._score_table,
            self._comparison_table,
            self._alignment_table,
            self._fault_table,
            self._length_table,
            self._attention_table,
        )
        tables = [table for make in makers if (table := make()) is not None]
        for title, examples in (("worst sentences", self.worst), ("best sentences", self.best)):
            if examples:
                tables.append(_example_table(title, examples))
        signatures = self._signature_table()
        return tables if signatures is None else [*tables, signatures]

    def _score_table(self) -> ReportTable | None:
        if not self.scores:
            return None
        rows = [
            (score.name, f"{score.value:.2f}", _interval(score), _made_of(score))
            for score in self.scores
        ]
        title = f"{self.system}: {self.count} sentences"
        return ReportTable(title, ("metric", "score", "95 % interval", "made of"), rows)

    def _signature_table(self) -> ReportTable | None:
        # Signatures are long, so they have their own table.
        rows = [(score.name, score.signature) for score in self.scores]
        return ReportTable("how it was scored", ("metric", "signature"), rows) if rows else None

    def _comparison_table(self) -> ReportTable | None:
        if not self.comparisons:
            return None
        verdicts = {"first": self.system, "second": str(self.against), None: "not significant"}
        rows = [
            (
                each.name,
                f"{each.first:.2f}",
                f"{each.second:.2f}",
                f"{each.difference:+.2f}",
                f"{each.bootstrap_p:.4f}",
                f"{each.randomisation_p:.4f}",
                verdicts[each.better],
            )
            for each in self.comparisons
        ]
        header = (
            "metric",
            self.system,
            str(self.against),
            "difference",
            "p (bootstrap)",
            "p (randomisation)",
            "better",
        )
        return ReportTable(f"{self.system} against {self.against}", header, rows)

    def _alignment_table(self) -> ReportTable | None:
        score = self.alignment
        if score is None:
            return None
        row = (
            f"{100 * score.aer:.1f} %",
            f"{100 * score.precision:.1f} %",
            f"{100 * score.recall:.1f} %",
            f"{100 * score.f1:.1f} %",
            str(score.links),
            f"{score.sure} / {score.possible}",
        )
        header = ("AER", "precision", "recall", "F1", "links", "gold sure / all")
        return ReportTable("alignment", header, [row])

    def _fault_table(self) -> ReportTable | None:
        if self.faults is None:
            return None
        kinds = {
            "copy of the source": self.faults.copies,
            "empty": self.faults.empty,
            "repeats itself": self.faults.repeats,
            "far too short": self.faults.too_short,
            "far too long": self.faults.too_long,
        }
        rows = [
            (name, str(len(found)), f"{100 * len(found) / self.faults.count:.1f} %", _lines(found))
            for name, found in kinds.items()
        ]
        return ReportTable("faults", ("fault", "sentences", "share", "lines"), rows)

    def _length_table(self) -> ReportTable | None:
        if not self.by_length:
            return None
        names = [score.name for score in self.by_length[0].scores]
        rows = [
            (
                bucket.name,
                str(bucket.count),
                *(f"{score.value:.1f} {_interval(score)}".strip() for score in bucket.scores),
            )
            for bucket in self.by_length
        ]
        return ReportTable(
            "by source length", (f"source {self.by_length[0].unit}", "sentences", *names), rows
        )

    def _attention_table(self) -> ReportTable | None:
        if not self.attention:
            return None

        def share(value: float | None) -> str:
            return "" if value is None else f"{100 * value:.1f} %"

        rows = [
            (
                each.module,
                str(each.head),
                f"{each.query_axis} to {each.key_axis}",
                f"{each.entropy:.3f}",
                share(each.relative_entropy),
                f"{each.sharpness:.3f}",
                share(each.covered),
                "" if each.coverage_error is None else f"{each.coverage_error:.3f}",
                "" if each.agreement is None else f"{each.agreement:.3f}",
                "" if each.distance is None else f"{each.distance:.3f}",
            )
            for each in self.attention
        ]
        header = (
            *("module", "head", "from", "entropy", "of its greatest", "largest weight"),
            *(f"source covered (≥ {COVERED:g})", "mean |Σ − 1|", "agreement", "distance"),
        )
        return ReportTable("attention while writing the references", header, rows)


def build_report(
    system: str,
    hypotheses: Sequence[str],
    references: Sequence[str],
    settings: ReportSettings,
    *,
    sources: Sequence[str] | None = None,
    against: str | None = None,
    against_hypotheses: Sequence[str] | None = None,
    alignment: AlignmentScore | None = None,
    attention: Sequence[HeadStatistics] = (),
) -> Report:
    """Measure the output of a system.

    Args:
        system: its name in the report.
        hypotheses: its outputs.
        references: the reference translations, one for each output.
        settings: what to measure.
        sources: the source texts; without them, faults and lengths are not measured.
        against: the name of the other system.
        against_hypotheses: the other system's sentences for the same sources.
        alignment: its alignment score, if links were scored.
        attention: the statistics of its heads, if they were measured.

    Raises:
        UserError: the numbers differ, or there is nothing to score.
    """
    check_parallel(hypotheses, references)
    # Reading the texts is the most expensive part, so every metric reads each output once.
    own = _Collected(hypotheses, references, settings)
    scores = [
        score_statistics(own[name], settings.bootstrap, settings.seed) for name in settings.metrics
    ]
    worst, best = _extremes(own, settings, sources)
    return Report(
        system=system,
        count=len(hypotheses),
        scores=scores,
        against=against if against_hypotheses is not None else None,
        comparisons=[] if against_hypotheses is None else own.against(against_hypotheses),
        faults=find_faults(sources, hypotheses, references) if sources is not None else None,
        by_length=own.by_length(sources) if settings.by_length and sources is not None else [],
        worst=worst,
        best=best,
        alignment=alignment,
        attention=list(attention),
    )


def _extremes(
    own: "_Collected", settings: ReportSettings, sources: Sequence[str] | None
) -> tuple[list[Example], list[Example]]:
    """The worst and the best sentences, without overlap in a small corpus."""
    if settings.sentences <= 0:
        return [], []
    ranked = rank_statistics(own.hypotheses, own.references, own["chrf"], own["bleu"])

    def example(one: SentenceScore) -> Example:
        index = one.index
        source = None if sources is None else sources[index]
        texts = source, own.hypotheses[index], own.references[index]
        return Example(index + 1, one.chrf, one.bleu, *texts)

    shown = min(settings.sentences, (len(ranked) + 1) // 2)
    best = reversed(ranked[shown:][-shown:]) if shown else []
    return [example(each) for each in ranked[:shown]], [example(each) for each in best]


class _Collected:
    """The statistics of one output; those of a metric are computed when they are first needed."""

    def __init__(
        self, hypotheses: Sequence[str], references: Sequence[str], settings: ReportSettings
    ) -> None:
        self.hypotheses, self.references = hypotheses, references
        self._settings = settings
        self._found: dict[str, SentenceStatistics] = {}

    def __getitem__(self, name: MetricName) -> SentenceStatistics:
        if name not in self._found:
            tokenise, lowercase = self._settings.tokenise, self._settings.lowercase
            texts = self.hypotheses, self.references
            self._found[name] = collect(name, *texts, tokenise=tokenise, lowercase=lowercase)
        return self._found[name]

    def against(self, hypotheses: Sequence[str]) -> list[Comparison]:
        """The significance tests of each metric against another system's output."""
        other = _Collected(hypotheses, self.references, self._settings)
        return [
            compare_statistics(self[name], other[name], seed=self._settings.seed)
            for name in self._settings.metrics
        ]

    def by_length(self, sources: Sequence[str]) -> list[LengthBucket]:
        """BLEU and chrF by source length."""
        return bucket_statistics(
            sources,
            [self["bleu"], self["chrf"]],
            bootstrap=self._settings.bootstrap,
            seed=self._settings.seed,
        )


def _example_table(title: str, examples: list[Example]) -> ReportTable:
    rows = []
    for example in examples:
        numbers = (str(example.line), f"{example.chrf:.1f}", f"{example.bleu:.1f}")
        texts = [("output", example.output), ("reference", example.reference)]
        if example.source is not None:
            texts.insert(0, ("source", example.source))
        for place, (name, text) in enumerate(texts):
            rows.append((*(numbers if place == 0 else ("", "", "")), name, text))
    return ReportTable(title, ("line", "chrF", "BLEU", "", "text"), rows)


def _interval(score: Score) -> str:
    if score.low is None or score.high is None:
        return ""
    return f"[{score.low:.1f}, {score.high:.1f}]"


def _made_of(score: Score) -> str:
    detail = score.detail
    if "precisions" in detail:
        precisions = "/".join(f"{precision:.1f}" for precision in detail["precisions"])
        return (
            f"{precisions} BP={detail['brevity_penalty']:.3f} "
            f"lengths={detail['hypothesis_length']}/{detail['reference_length']}"
        )
    if "edits" in detail:
        return f"{detail['edits']} edits, {detail['reference_length']:.0f} words"
    return ""


def _lines(indices: list[int], most: int = 5) -> str:
    shown = ", ".join(str(index + 1) for index in indices[:most])
    return f"{shown}, …" if len(indices) > most else shown
