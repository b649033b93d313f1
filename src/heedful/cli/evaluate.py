"""``heedful evaluate``: how good a run's translations are, or those of any system in files."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from heedful.basics.errors import UserError
from heedful.cli.attention_scores import (
    score_links,
)
from heedful.cli.drawing import draw
from heedful.cli.evaluate_texts import evaluate_texts, given_options
from heedful.cli.evaluated import ScoredTexts, open_pairs, texts_of_files, texts_of_runs
from heedful.cli.options import (
    Beam,
    Checkpoint,
    Device,
    Engine,
    Quantization,
    SearchPrecision,
    Threads,
    use_threads,
)

if TYPE_CHECKING:
    from heedful.evaluation.report import Report, ReportSettings
    from heedful.tasks.texts.run import TextRun


def evaluate(
    run: Annotated[
        Path | None, typer.Argument(help="The run whose translations are scored.")
    ] = None,
    against: Annotated[
        Path | None, typer.Option("--against", help="Another run, compared on the same sentences.")
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data",
            help="What to translate and compare with: TSV, TMX, PO or XLIFF, or twice for two "
            "aligned text files. Default: the run's own test set.",
        ),
    ] = None,
    source: Annotated[str | None, typer.Option("--from", help="Source language of --data.")] = None,
    target: Annotated[str | None, typer.Option("--to", help="Target language of --data.")] = None,
    hypotheses: Annotated[
        str | None, typer.Option(help="Score this file of outputs instead of a run's.")
    ] = None,
    references: Annotated[str | None, typer.Option(help="Their references, line by line.")] = None,
    sources: Annotated[
        str | None, typer.Option(help="Their sources: adds faults and, asked for, lengths.")
    ] = None,
    against_hypotheses: Annotated[
        str | None, typer.Option(help="Another system's outputs, compared.")
    ] = None,
    gold: Annotated[
        str | None,
        typer.Option(help="Gold word links (i-j sure, ipj possible) of the test set, for the AER."),
    ] = None,
    links: Annotated[
        str | None, typer.Option(help="With --gold and no run: score these links (i-j, from 0).")
    ] = None,
    indexing: Annotated[
        str, typer.Option(help="Whether the gold's first word is 0 or 1; auto looks.")
    ] = "auto",
    beam: Beam = None,
    by_length: Annotated[
        bool, typer.Option("--by-length", help="Scores by source length.")
    ] = False,
    attention: Annotated[
        bool,
        typer.Option(
            "--attention", help="Entropy, sharpness and coverage of every attention head."
        ),
    ] = False,
    metrics: Annotated[str, typer.Option(help="Of bleu, chrf, ter.")] = "bleu,chrf,ter",
    tokenise: Annotated[
        str | None, typer.Option(help="sacreBLEU's tokeniser; default: the recipe's, or 13a.")
    ] = None,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Compare in lower case.")] = False,
    bootstrap: Annotated[int, typer.Option(help="Resamples for intervals; 0 for none.")] = 1000,
    seed: Annotated[int, typer.Option(help="Of the resampling.")] = 12345,
    sentences: Annotated[int, typer.Option(help="How many worst and best sentences.")] = 3,
    output: Annotated[
        Path | None, typer.Option("--output", help="Write the run's translations to this file.")
    ] = None,
    head: Annotated[
        str | None,
        typer.Option(
            "--head", help="Of a run that learnt several things about texts, one of them."
        ),
    ] = None,
    encoding: Annotated[
        str | None,
        typer.Option(
            "--encoding", help="Of --data of a run for single texts, if not the recipe's."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="All of it as one JSON object.")] = False,
    checkpoint: Checkpoint = None,
    device: Device = "auto",
    threads: Threads = None,
    precision: SearchPrecision = "float32",
    engine: Engine = "torch",
    quantization: Quantization = None,
) -> None:
    """Score translations: BLEU, chrF and TER with intervals, faults, worst and best sentences.

    Give a run, or files of any system's output. A second run or file is compared with paired
    significance tests. A run that classifies or tags is scored by accuracy, macro F1 and Matthews'
    correlation, with the worst mistakes; a language model by its perplexity.

    Examples:

        heedful evaluate runs/en-de

        heedful evaluate runs/en-de --against runs/old --by-length --json

        heedful evaluate runs/teams --data new.csv

        heedful evaluate --hypotheses out.de --references test.de --sources test.en
    """
    from heedful.inference.files import check_output

    files = {
        "--hypotheses": hypotheses,
        "--references": references,
        "--sources": sources,
        "--against-hypotheses": against_hypotheses,
        "--links": links,
    }
    _check_choice(run, files, gold)
    if run is not None and (texts_run := _text_run(run)) is not None:
        refused: dict[str, Any] = {
            "--against": against,
            "--from": source,
            "--to": target,
            "--gold": gold,
        }
        refused |= {"--beam": beam, "--by-length": by_length}
        refused |= {
            "--attention": attention,
            "--tokenise": tokenise,
            "--lowercase": lowercase,
            "--output": output,
            "--engine": engine if engine != "torch" else None,
            "--quantization": quantization,
        }
        use_threads(threads)
        evaluate_texts(
            texts_run,
            data=data,
            head=head,
            encoding=encoding,
            mistakes=max(sentences, 0),
            as_json=as_json,
            chosen={"device": device, "precision": precision, "checkpoint": checkpoint},
            refused=given_options(refused),
        )
        return
    if head is not None or encoding is not None:
        raise UserError("--head and --encoding are for runs that classify, tag, fill in or write")
    if attention and run is None:
        raise UserError("--attention needs a run: files of outputs have no attention")
    if output is not None and run is None:
        raise UserError("--output is for a run's translations; these stand in a file already")
    check_output(output)
    if indexing not in ("auto", "0", "1"):
        raise UserError(f"--indexing {indexing}: use auto, 0 or 1")
    if gold is not None and links is not None and hypotheses is None:
        _show_links(gold, links, indexing, as_json)
        return
    settings = _settings(run, metrics, tokenise, lowercase, bootstrap, seed, by_length, sentences)
    if run is None:
        texts = texts_of_files(files, gold, indexing)
    else:
        chosen = {
            "engine": engine,
            "quantization": quantization,
            "device": device,
            "precision": precision,
            "checkpoint": checkpoint,
        }
        use_threads(threads)
        texts = texts_of_runs(
            run, against, (data, source, target), beam, gold, indexing, attention, chosen
        )
    if output is not None:
        _write_outputs(output, texts.outputs)
    report = _show(texts, settings, as_json)
    if run is not None and data is None:
        from heedful.runs.summary import record_scores

        made = {key: texts.facts[key] for key in ("checkpoint", "beam", "precision")}
        if engine != "torch":
            made["engine"] = engine
        record_scores(run, report.scores, made)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(no_args_is_help=True)(evaluate)


def _check_choice(run: Path | None, files: dict[str, str | None], gold: str | None) -> None:
    given = [name for name, file in files.items() if file is not None]
    if run is not None and given:
        raise UserError(
            f"{given[0]} is for scoring files; leave it out, or leave out the run {run}"
        )
    if run is not None:
        return
    if files["--links"] is not None and gold is None:
        raise UserError("--links needs --gold FILE to be scored against")
    if files["--hypotheses"] is None and files["--links"] is None:
        raise UserError("nothing to evaluate: give a run, or --hypotheses FILE --references FILE")
    if files["--hypotheses"] is not None and files["--references"] is None:
        raise UserError("--hypotheses needs --references FILE to be compared with")
    if gold is not None and files["--links"] is None:
        raise UserError("--gold without a run needs --links FILE, the links to score")


def _settings(
    run: Path | None,
    metrics: str,
    tokenise: str | None,
    lowercase: bool,
    bootstrap: int,
    seed: int,
    by_length: bool,
    sentences: int,
) -> "ReportSettings":
    from heedful.evaluation.report import ReportSettings
    from heedful.evaluation.statistics import METRICS, check_tokeniser

    names = [name.strip().lower() for name in metrics.split(",") if name.strip()]
    unknown = [name for name in names if name not in METRICS]
    if unknown or not names:
        raise UserError(f"--metrics {metrics}: use some of {','.join(METRICS)}")
    if run is not None and tokenise is None:
        tokenise = open_pairs(run).recipe.evaluation.tokenise
    if "bleu" in names or by_length or sentences:
        check_tokeniser(tokenise or "13a")  # now, and not after all is translated
    return ReportSettings(
        metrics=tuple(name for name in METRICS if name in names),
        tokenise=tokenise or "13a",
        lowercase=lowercase,
        bootstrap=bootstrap,
        seed=seed,
        by_length=by_length,
        sentences=sentences,
    )


def _text_run(run: Path) -> "TextRun | None":
    """The run, if it is one for single texts."""
    from heedful.tasks.spec import spec_of_run

    found, spec = spec_of_run(run)
    return None if spec.has_languages else cast("TextRun", found)


def _show_links(gold: str, links: str, indexing: str, as_json: bool) -> None:
    from heedful.evaluation.report import Report

    score = score_links(gold, links, indexing)
    if as_json:
        print(json.dumps(asdict(score), indent=1))
        return
    report = Report(system=links, count=0, alignment=score)
    draw(report.tables())


def _show(texts: ScoredTexts, settings: "ReportSettings", as_json: bool) -> "Report":
    from heedful import __version__
    from heedful.basics.notices import notice
    from heedful.evaluation.report import build_report

    if settings.by_length and texts.sources is None:
        notice("--by-length is left out: it needs the sources (--sources FILE)")
    report: Report = build_report(
        texts.system,
        texts.outputs,
        texts.references,
        settings,
        sources=texts.sources,
        against=texts.against,
        against_hypotheses=texts.against_outputs,
        alignment=texts.alignment,
        attention=texts.attention,
    )
    if as_json:
        facts = {"version": __version__, "settings": asdict(settings), **texts.facts}
        print(json.dumps({**facts, **report.as_json()}, indent=1, ensure_ascii=False))
    else:
        draw(report.tables())
    return report


def _write_outputs(path: Path, outputs: list[str]) -> None:
    from heedful.basics.files import write_text
    from heedful.basics.notices import notice

    broken = sum("\n" in text or "\r" in text for text in outputs)
    if broken:
        notice(f"{path}: {broken} outputs have line ends, written as spaces (one line a sentence)")
    write_text(path, "".join(" ".join(text.splitlines()) + "\n" for text in outputs))
