"""Evaluation of translations: those of a run, or those of any system in files."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from typing import Any

from heedful.basics.errors import UserError
from heedful.basics.notices import notice
from heedful.basics.progress import progress
from heedful.data.examples import Pair
from heedful.data.readers import read_lines, read_pairs
from heedful.evaluation.alignment_error import (
    AlignmentScore,
    GoldLinks,
    alignment_error_rate,
    read_gold,
    read_links,
)
from heedful.evaluation.attention_statistics import HeadStatistics, attention_statistics
from heedful.evaluation.forced_alignment import align_translations
from heedful.evaluation.outcome import Evaluation, Examples, Figure
from heedful.evaluation.report import Report, ReportSettings, build_report
from heedful.evaluation.statistics import METRICS, check_tokeniser
from heedful.tasks.pairs.aligners import report_rule
from heedful.tasks.pairs.alignment_rules import describe_rule
from heedful.tasks.pairs.evaluation_options import PairEvaluation
from heedful.tasks.pairs.run import PairRun, open_pair_run, search_of
from heedful.tasks.spec import Opening


@dataclass
class _Found:
    """The outputs of a run, and their measurements."""

    outputs: list[str]
    used: dict[str, Any]
    """Checkpoint, beam, engine, device and precision."""
    alignment: AlignmentScore | None = None
    attention: list[HeadStatistics] = field(default_factory=list)


def evaluate_pairs(
    run: PairRun, data: Sequence[str] | None, options: PairEvaluation, opening: Opening
) -> Evaluation:
    """Translate a test set with a run, and with the one it is compared with, and score it.

    Args:
        run: the run.
        data: files of pairs; the run's own test set if None.
        options: what to measure.
        opening: loads the runs.

    Raises:
        UserError: the test set is empty, options exclude each other, or a file or run cannot be
            used.
    """
    given = [name for name, file in options.files.items() if file is not None]
    if given:
        raise UserError(
            f"{given[0]} is for scoring files; leave out the option or the run {run.path}"
        )
    _check_indexing(options)
    settings = _settings(options, options.tokenise or run.recipe.evaluation.tokenise)
    pairs = _test_pairs(run, data, options)
    # Read the gold links first, so that an error in them is found before translating.
    gold = None if options.gold is None else _gold_of(options, pairs)
    own = _translated(run, pairs, options, opening, gold, attention=options.attention)
    other = None
    if options.against is not None:
        other = _translated(open_pair_run(options.against), pairs, options, opening)
    facts = {"data": list(data) if data else "test set of the run", **own.used}
    report = build_report(
        str(run.path),
        own.outputs,
        [pair.target for pair in pairs],
        settings,
        sources=[pair.source for pair in pairs],
        against=None if other is None else str(options.against),
        against_hypotheses=None if other is None else other.outputs,
        alignment=own.alignment,
        attention=own.attention,
    )
    how = {key: own.used[key] for key in ("checkpoint", "beam", "precision")}
    if options.engine != "torch":
        how["engine"] = options.engine
    used = {} if other is None else {"against_used": other.used}
    found = _evaluation(report, settings, facts | used, own.outputs, how)
    measures = {
        score.name: {
            "kind": name,
            "tokenise": settings.tokenise,
            "lowercase": settings.lowercase,
        }
        for name, score in zip(settings.metrics, report.scores, strict=True)
    }
    sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    return replace(
        found,
        examples=Examples(sources, references, own.outputs, measures),
        attention=[asdict(each) for each in own.attention],
    )


def evaluate_files(options: PairEvaluation) -> Evaluation:
    """Score files with the outputs, or the word links, of any system.

    Raises:
        UserError: a file is missing, or options exclude each other.
    """
    _check_files(options)
    _check_indexing(options)
    links = None
    if options.gold is not None and options.links is not None:
        given = read_links(list(read_lines(options.links)), where=options.links)
        right = read_gold(
            list(read_lines(options.gold)),
            where=options.gold,
            indexing=options.indexing,
            sentences=len(given),
        )
        links = alignment_error_rate(right, given)
        if options.hypotheses is None:
            report = Report(system=options.links, count=0, alignment=links)
            return Evaluation(report.system, {}, tables=report.tables(), details=asdict(links))
    settings = _settings(options, options.tokenise or "13a")
    texts = {
        name: None if file is None else list(read_lines(file))
        for name, file in options.files.items()
        if name != "--links"
    }
    if options.by_length and texts["--sources"] is None:
        notice("--by-length is ignored: it needs the sources (--sources FILE)")
    report = build_report(
        str(options.hypotheses),
        texts["--hypotheses"] or [],
        texts["--references"] or [],
        settings,
        sources=texts["--sources"],
        against=options.against_hypotheses,
        against_hypotheses=texts["--against-hypotheses"],
        alignment=links,
    )
    return _evaluation(report, settings, {}, texts["--hypotheses"] or [], {})


def _evaluation(
    report: Report,
    settings: ReportSettings,
    facts: dict[str, Any],
    outputs: list[str],
    how: dict[str, Any],
) -> Evaluation:
    figures = {
        score.name: Figure(
            score.value,
            rises=score.name != "TER",
            low=score.low,
            high=score.high,
            signature=score.signature,
        )
        for score in report.scores
    }
    details = {
        "version": version("heedful"),
        "settings": asdict(settings),
        **facts,
        **report.as_json(),
    }
    return Evaluation(
        report.system, figures, outputs, tables=report.tables(), details=details, settings=how
    )


def _check_indexing(options: PairEvaluation) -> None:
    if options.indexing not in ("auto", "0", "1"):
        raise UserError(f"--indexing {options.indexing}: use auto, 0 or 1")


def _check_files(options: PairEvaluation) -> None:
    if options.against is not None:
        raise UserError("--against needs a run; use --against-hypotheses FILE with --hypotheses")
    if options.attention:
        raise UserError("--attention needs a run, because files contain no attention weights")
    for name, given in options.of_a_run.items():
        if given is not None:
            raise UserError(f"{name} needs a run; files are scored as they are, so leave it out")
    if options.links is not None and options.gold is None:
        raise UserError("--links needs --gold FILE with the gold links")
    if options.hypotheses is None and options.links is None:
        raise UserError("nothing to evaluate: give a run, or --hypotheses FILE --references FILE")
    if options.hypotheses is not None and options.references is None:
        raise UserError("--hypotheses needs --references FILE")
    if options.gold is not None and options.links is None:
        raise UserError("--gold without a run needs --links FILE, the links to score")


def _settings(options: PairEvaluation, tokenise: str) -> ReportSettings:
    names = [name.strip().lower() for name in options.metrics.split(",") if name.strip()]
    unknown = [name for name in names if name not in METRICS]
    if unknown or not names:
        raise UserError(f"--metrics {options.metrics}: use some of {','.join(METRICS)}")
    if "bleu" in names or options.by_length or options.sentences:
        check_tokeniser(tokenise)  # fails before translating
    return ReportSettings(
        metrics=tuple(name for name in METRICS if name in names),
        tokenise=tokenise,
        lowercase=options.lowercase,
        bootstrap=options.bootstrap,
        seed=options.seed,
        by_length=options.by_length,
        sentences=options.sentences,
    )


def _test_pairs(run: PairRun, data: Sequence[str] | None, options: PairEvaluation) -> list[Pair]:
    if data:
        known = run.recipe.data
        source, target = options.source or known.source, options.target or known.target
        pairs = list(read_pairs(list(data), source=source, target=target))
        if not pairs:
            raise UserError(f"{' and '.join(data)} has no pairs to evaluate on")
        return pairs
    pairs = run.pairs("test")
    if not pairs:
        raise UserError(f"{run.path} has no test set; give one: --data FILE --from … --to …")
    return pairs


def _gold_of(options: PairEvaluation, pairs: list[Pair]) -> list[GoldLinks]:
    """Gold links of a test set, checked against its words."""
    where = str(options.gold)
    lengths = [(len(pair.source.split()), len(pair.target.split())) for pair in pairs]
    lines = list(read_lines(where))
    return read_gold(lines, where=where, indexing=options.indexing, lengths=lengths)


def _translated(
    run: PairRun,
    pairs: list[Pair],
    options: PairEvaluation,
    opening: Opening,
    gold: list[GoldLinks] | None = None,
    *,
    attention: bool = False,
) -> _Found:
    """Translate with a run; measure alignments and attention on the references if requested."""
    search = search_of(run.path, options.beam, "heedful evaluate")
    point = run.chosen(opening.checkpoint).path.name
    engine: dict[str, Any] = {}
    if options.engine != "torch" or options.quantization is not None:
        engine = {"engine": options.engine, "quantization": options.quantization}
        engine["model"] = attention or gold is not None
    translator = opening.load(run.path, **engine)
    sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    with progress(f"translating with {run.path}", len(sources), "sentences") as advance:
        translations = translator.translate(sources, options=search, advance=advance)
    used = {
        "checkpoint": point,
        "beam": search.beam,
        "length_penalty": search.length_penalty,
        "engine": options.engine,
        **translator.computing,
    }
    found = _Found([translation.text for translation in translations], used)
    if gold is not None:
        report_rule(run, translator)
        used["alignment_rule"] = describe_rule(translator.rules[0])
        with progress("aligning references", len(sources), "sentences") as advance:
            links = align_translations(translator, sources, references, advance=advance)
        found.alignment = alignment_error_rate(gold, [one.links for one in links])
    if attention:
        with progress("measuring attention", len(sources), "sentences") as advance:
            found.attention = attention_statistics(translator, sources, references, advance=advance)
    return found
