"""The report of a comparison against numbers computed by hand and by other libraries."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import pytest
import sacrebleu
from scipy import stats

from heedful.evaluation.significance import compare_statistics, compare_systems
from heedful.evaluation.statistics import MeanStatistics, collect, measure
from heedful.evaluation.student import paired_p, t_interval, two_sided_p
from heedful.runs.opening import open_run
from heedful.training.cost import Point, cost_to, loss_curve
from heedful.viewing.comparison.html import to_html
from heedful.viewing.comparison.latex import escape
from heedful.viewing.comparison.markdown import to_markdown
from heedful.viewing.comparison.sections import number, sections_of
from page_help import browser, needs_browser, opened, pixels
from test_compare import data, whole  # noqa: F401 - fixtures


@pytest.fixture(scope="module")
def report(whole: Path) -> dict[str, Any]:  # noqa: F811
    values: dict[str, Any] = json.loads((whole / "report.json").read_text())
    return values


def outputs(run: Path) -> tuple[list[str], list[str]]:
    """The outputs and references of a run on the test set."""
    examples = json.loads((run / "test.json").read_text())["examples"]
    return examples["outputs"], examples["references"]


def test_means_and_intervals_are_those_over_seeds(report: dict[str, Any], whole: Path) -> None:  # noqa: F811
    variant = report["variants"][1]
    runs = [whole / "dropout-0.2" / f"seed-{seed}" for seed in (3, 4)]
    scores = []
    for run in runs:
        texts, references = outputs(run)
        assert references == [pair.target for pair in open_run(run).pairs("test")]
        scores.append(sacrebleu.corpus_chrf(texts, [references]).score)
    found = variant["test"]["chrF2"]
    assert found["values"] == pytest.approx(scores)
    assert found["value"] == pytest.approx(mean(scores))
    ends = stats.t.interval(0.95, 1, mean(scores), stdev(scores) / 2**0.5)
    assert (found["low"], found["high"]) == pytest.approx(ends)
    losses = [open_run(run).result["validation"]["loss"] for run in runs]
    assert variant["validation"]["loss"]["value"] == pytest.approx(mean(losses))
    assert variant["cost"]["steps"] == 8
    model = report["variants"][0]["parameters"]
    assert model == variant["parameters"] > 1000


def test_paired_tests_are_over_seeds_and_over_examples_of_all_seeds(
    report: dict[str, Any],
    whole: Path,  # noqa: F811
) -> None:
    assert report["variants"][0]["against_baseline"] == []
    found = {each["figure"]: each for each in report["variants"][1]["against_baseline"]}["chrF2"]
    values = [variant["test"]["chrF2"]["values"] for variant in report["variants"]]
    assert found["difference"] == pytest.approx(mean(values[1]) - mean(values[0]))
    assert found["seeds_p"] == pytest.approx(stats.ttest_rel(*values).pvalue)
    summed = []
    for name in ("dropout-0.0", "dropout-0.2"):
        each = [collect("chrf", *outputs(whole / name / f"seed-{seed}")) for seed in (3, 4)]
        rows = each[0].values + each[1].values
        summed.append(type(each[0])(each[0].metric, rows))
    tested = compare_statistics(*summed, resamples=1000, trials=2000)
    assert found["bootstrap_p"] == tested.bootstrap_p
    assert found["randomisation_p"] == tested.randomisation_p


def test_lengths_are_those_of_the_inputs(report: dict[str, Any], whole: Path) -> None:  # noqa: F811
    run = whole / "dropout-0.0" / "seed-3"
    sources = [pair.source for pair in open_run(run).pairs("test")]
    short = [place for place, source in enumerate(sources) if len(source.split()) <= 5]
    first, *_ = report["variants"][0]["by_length"]
    assert (first["longest"], first["count"]) == (5, len(short))
    both = [collect("chrf", *outputs(run.with_name(f"seed-{seed}"))).values for seed in (3, 4)]
    value = collect("chrf", *outputs(run)).value_of_sum((both[0] + both[1])[short].sum(0))
    assert first["figures"]["chrF2"] == pytest.approx(value)
    low, high = first["intervals"]["chrF2"]
    drawn = np.random.default_rng(1).integers(len(short), size=(300, len(short)))
    summed = (both[0] + both[1])[short]
    values = [collect("chrf", *outputs(run)).value_of_sum(summed[one].sum(0)) for one in drawn]
    assert [low, high] == pytest.approx(np.percentile(values, [2.5, 97.5]), rel=0.15)


def test_outputs_side_by_side_are_those_of_the_runs(report: dict[str, Any], whole: Path) -> None:  # noqa: F811
    assert 1 <= len(report["sentences"]) <= 6
    pairs = {
        pair.source: pair.target for pair in open_run(whole / "dropout-0.0/seed-3").pairs("test")
    }
    for one in report["sentences"]:
        assert one["reference"] == pairs[one["input"]]
        place = list(pairs).index(one["input"])
        texts = outputs(whole / "dropout-0.2" / "seed-3")[0]
        assert one["outputs"]["dropout=0.2"] == texts[place][:400]


def test_attention_is_measured_for_every_module(report: dict[str, Any]) -> None:
    found = report["variants"][0]["attention"]
    assert [one["module"] for one in found] == [
        *("encoder.0.self_attention", "decoder.0.self_attention", "decoder.0.cross_attention")
    ]
    assert all(0 < one["entropy"] < 4 for one in found)
    assert found[0]["covered"] is None
    assert 0 <= found[2]["covered"] <= 1


def test_the_cost_to_the_final_loss_of_the_baseline(report: dict[str, Any]) -> None:
    baseline, other = report["variants"]
    level = baseline["curve"][-1]["loss"]
    assert baseline["cost_to_baseline_loss"]["loss"] == level
    assert baseline["cost_to_baseline_loss"]["spent"]["steps"] == pytest.approx(8)
    spent = other["cost_to_baseline_loss"]["spent"]
    below = [point["step"] for point in other["curve"] if point["loss"] <= level]
    if below:
        assert below[0] - 1 <= spent["steps"] <= below[0]
    else:
        assert spent is None


def test_what_was_spent_is_linear_between_validations() -> None:
    records = [
        {"kind": "train", "step": 10, "operations": 100.0, "seconds": 60.0},
        {"kind": "validation", "step": 15, "loss": 4.0},
        {"kind": "train", "step": 20, "operations": 200.0, "seconds": 180.0},
        {"kind": "validation", "step": 20, "loss": 2.0, "bleu": 30.0},
        {"kind": "validation", "step": 30, "loss": 3.0},
        {"kind": "train", "step": 30, "operations": 300.0, "seconds": 240.0},
    ]
    curve = loss_curve(records, "bleu")
    assert curve == [
        Point(4.0, 150.0, 2.0, 15, None),
        Point(2.0, 200.0, 3.0, 20, 30.0),
        Point(3.0, 300.0, 4.0, 30, None),
    ]
    assert cost_to(3.0, curve) == pytest.approx((175.0, 2.5, 17.5, False))
    assert cost_to(4.5, curve) == (150.0, 2.0, 15, True)
    assert cost_to(4.0, curve) == (150.0, 2.0, 15, False)
    assert cost_to(1.9, curve) is None


@pytest.mark.parametrize("freedom", range(1, 12))
def test_students_distribution(freedom: int) -> None:
    for t in (-2.0, 0.0, 0.3, 1.0, 2.5, 40.0):
        assert two_sided_p(t, freedom) == pytest.approx(2 * stats.t.sf(abs(t), freedom), abs=1e-12)


def test_intervals_and_tests_of_few_seeds() -> None:
    assert t_interval([3.0]) is None
    assert t_interval([3.0, 3.0]) == (3.0, 3.0)
    assert paired_p([1.0], [2.0]) is None
    assert paired_p([1.0, 2.0], [2.0, 3.0]) == 0.0  # the same difference twice
    assert paired_p([1.0, 2.0], [1.0, 2.0]) == 1.0
    first, second = [0.3, 0.1, 0.7, 0.4], [0.5, 0.2, 0.6, 0.9]
    assert paired_p(first, second) == pytest.approx(stats.ttest_rel(first, second).pvalue)


def test_means_are_tested_like_corpus_scores() -> None:
    right = np.array([[1.0, 1.0], [0.0, 1.0], [1.0, 2.0]] * 10)
    one = MeanStatistics("accuracy", right, scale=100.0)
    assert one.value_of_sum(right.sum(0)) == pytest.approx(50.0)
    same = compare_statistics(one, one, resamples=50, trials=50)
    assert (same.difference, same.better, same.randomisation_p) == (0.0, None, 1.0)
    better = MeanStatistics("accuracy", np.array([[1.0, 1.0]] * 30), scale=100.0)
    assert compare_statistics(one, better, resamples=200, trials=200).better == "second"
    errors = [MeanStatistics("errors", each.values, rises=False) for each in (one, better)]
    assert compare_statistics(*errors, resamples=200, trials=200).better == "first"
    how = {"kind": "mean", "values": right.tolist(), "scale": 100.0}
    assert measure("accuracy", how, [], []).value_of_sum(right.sum(0)) == pytest.approx(50.0)


def test_a_lower_ter_is_better() -> None:
    references = ["a b c d e f"] * 20
    [found] = compare_systems(["a b c x y z"] * 20, references, references, metrics=["ter"])
    assert found.better == "second"


def test_tables_hold_all_variants_and_markdown_escapes(report: dict[str, Any]) -> None:
    for section in sections_of(report):
        assert all(len(row) == len(section.header) for row in section.rows), section.title
    titles = [section.title for section in sections_of(report)]
    assert titles == [
        *("Results", "Validation", "Paired tests", "By length"),
        *("Cost to an equal loss", "Attention", "Side by side"),
    ]
    changed = json.loads(json.dumps(report).replace("dropout=0.0", "a|b `c` *d* <script>"))
    text = to_markdown(changed, {})
    assert "<script>" not in text.replace("\\<script\\>", "")
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        bars = [len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()]
        assert len(set(bars)) == 1, table


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.000"),
        (31.249, "31.25"),
        (-0.5, "-0.5000"),
        (12345.6, "12,346"),
        (1e-7, "1.000e-07"),
    ],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert number(value) == text


# HTML, LaTeX and pictures


def test_the_page_is_one_file_that_asks_nobody(whole: Path) -> None:  # noqa: F811
    text = (whole / "report.html").read_text()
    assert "Content-Security-Policy" in text
    assert not re.search(r"""(?:src|href)=["'](?!data:)""", text)
    assert text.count("data:image/svg+xml;base64,") == 2
    for name in ("curves.svg", "lengths.svg"):
        assert f"]({name})" in (whole / "report.md").read_text()
        assert (whole / name).read_text().startswith("<?xml")


@needs_browser()
def test_the_page_shows_tables_and_pictures(whole: Path) -> None:  # noqa: F811
    text = json.dumps(json.loads((whole / "report.json").read_text()))
    changed = json.loads(text.replace("dropout=0.2", "<b>bold</b> & co"))
    drawn = {name: (whole / f"{name}.svg").read_bytes() for name in ("curves", "lengths")}
    page_file = whole / "changed.html"
    page_file.write_text(to_html(changed, drawn))
    try:
        with browser() as one, opened(one, page_file.as_uri()) as it:
            rows = it.page.locator("section:first-of-type tbody tr")
            assert rows.nth(1).locator("td").first.inner_text() == "<b>bold</b> & co"
            sizes = it.page.evaluate(
                "[...document.images].map(one => [one.naturalWidth, one.complete])"
            )
            assert len(sizes) == 2
            assert all(width > 300 and complete for width, complete in sizes)
            # Every curve has its colour in the picture.
            image = it.page.locator("img").first
            seen = pixels(image.screenshot())
            for colour in ((0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00)):
                assert (abs(seen - colour).max(-1) < 12).sum() > 40
            assert it.page.evaluate("document.documentElement.scrollWidth") <= 1280
    finally:
        page_file.unlink()


def test_latex_has_a_table_for_each_table_of_numbers(
    report: dict[str, Any],
    whole: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    text = (whole / "report.tex").read_text()
    tables = text.split(r"\begin{table}")[1:]
    assert len(tables) == sum(not section.is_text for section in sections_of(report))
    for table in tables:
        columns = len(re.search(r"\\begin\{tabular\}\{(\w+)\}", table)[1])  # type: ignore[index]
        rows = [line for line in table.splitlines() if line.endswith(r"\\")]
        assert len(rows) > 1
        for row in rows:
            assert len(re.findall(r"(?<!\\)&", row)) == columns - 1, row
        for rule in (r"\toprule", r"\midrule", r"\bottomrule", r"\end{tabular}", r"\end{table}"):
            assert table.count(rule) == 1
    plain = re.sub(r"\\[{}]", "", text)
    assert plain.count("{") == plain.count("}")
    assert len(re.findall(r"(?<!\\)\$", text)) % 2 == 0
    assert all(ord(character) < 256 for character in text), "no character without a glyph"
    compiler = shutil.which("tectonic") or shutil.which("pdflatex")
    if compiler is not None:
        head = "\\documentclass{article}\\usepackage{booktabs}\\begin{document}\n"
        (tmp_path / "whole.tex").write_text(f"{head}{text}\n\\end{{document}}\n")
        subprocess.run([compiler, "whole.tex"], cwd=tmp_path, check=True, timeout=120)


def test_latex_escapes_what_names_may_contain() -> None:
    assert escape("a_b{c}") == r"a\_b\{c\}"
    assert escape("\\x ^ ~ # $ %") == (
        r"\textbackslash{}x \textasciicircum{} \textasciitilde{} \# \$ \%"
    )


def test_images_are_named_and_have_no_length() -> None:
    from heedful.data.readers.data_uris import uri_of
    from heedful.viewing.comparison.paired import lengths_of
    from heedful.viewing.comparison.results import _sentences

    def run(outputs: list[str]) -> dict[str, Any]:
        inputs = [f'{{"image":"{uri_of("image/png", bytes(size))}"}}' for size in (1000, 2000)]
        measure = {"kind": "mean", "values": [[1.0, 1.0], [0.0, 1.0]]}
        examples = {
            "inputs": inputs,
            "references": ["dog", "cat"],
            "outputs": outputs,
            "measures": {"accuracy": measure},
        }
        return {"test": True, "_test": {"examples": examples}}

    runs = {"a": [run(["dog", "dog"])], "b": [run(["dog", "cat"])]}
    assert lengths_of(runs["a"]) == []
    [shown] = _sentences(runs)
    assert shown["input"] == 'example 2: {"image":"data:image/png, 2,000 bytes"}'
    assert shown["outputs"] == {"a": "dog", "b": "cat"}
