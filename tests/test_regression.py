"""Regression: a number for each text."""

import json
import math
import shutil
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from scipy import stats
from torch import nn
from typer.testing import CliRunner

import heedful
from heedful.basics.errors import UserError
from heedful.cli import main
from heedful.data.examples import Rated
from heedful.evaluation.significance import compare_statistics
from heedful.evaluation.statistics import measure, resample
from heedful.models.encoders import sequences_of
from heedful.runs.opening import open_run
from heedful.serving import make_application
from heedful.serving.loading import load_all
from heedful.tasks.regression.evaluation import score_numbers
from heedful.tasks.regression.predictor import Regressor
from heedful.tasks.spec import spec_of_run
from heedful.tasks.texts.data import RatedData
from heedful.tasks.texts.run import TextRun
from page_help import needs_browser, opened
from serving_help import running
from text_help import LOOP, RATED, WORDS, encoder, write_data


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("regression")
    write_data(folder)
    loop = {**LOOP, "max_steps": 120, "validate_every": 40, "checkpoint_every": 40}
    data = {**RATED, "test": RATED["validation"]}
    assert heedful.train(encoder("regression", data, training=loop), folder / "run", data=folder)
    return folder / "run"


def kept(run: Path) -> list[Any]:
    opened = open_run(run)
    assert isinstance(opened, TextRun)
    return opened.rated("regression", "test")


def test_numbers_are_learned_and_scored_as_scipy_scores_them(run: Path) -> None:
    examples = kept(run)
    gold = [one.value for one in examples]
    found = heedful.load(run, device="cpu").predict([one.texts[0] for one in examples])
    values = [one.value for one in found]
    command(["--help"])
    scores = json.loads(command(["evaluate", str(run), "--json", "--device", "cpu"]))
    own = scores["scores"]["regression"]
    assert own["pearson"] == pytest.approx(stats.pearsonr(gold, values)[0], abs=1e-9)
    assert own["spearman"] == pytest.approx(stats.spearmanr(gold, values)[0], abs=1e-9)
    error = sum((one - other) ** 2 for one, other in zip(gold, values, strict=True)) / len(gold)
    assert own["mean_squared_error"] == pytest.approx(error)
    assert own["pearson"] > 0.9
    assert error < 0.5 * stats.tvar(gold)


def command(arguments: list[str], lines: str | None = None) -> str:
    if not main.app.registered_commands:
        main._register()
    done = CliRunner().invoke(main.app, arguments, input=lines)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_loss_is_the_squared_error_in_units_of_the_variance(run: Path) -> None:
    opened = open_run(run)
    spec = spec_of_run(run)[1]
    model: Any = spec.build_model(opened)
    settings = opened.recipe.training  # type: ignore[attr-defined]
    task: Any = spec.build_task(opened, model, settings, torch.device("cpu"), "float32")
    batch = next(iter(task.batches(heedful_position())))[1]
    model.eval()
    found = task.loss(batch)
    outputs = model.heads["regression"](model.encoder(batch.rows))[:, 0]
    expected = nn.functional.mse_loss(outputs, batch.labels, reduction="sum")
    torch.testing.assert_close(found.total, expected)
    facts = opened.facts["sets"]["regression"]
    with open_lines(run) as numbers:
        values = [float(line.split("\t")[1]) for line in numbers]
    assert facts["mean"] == pytest.approx(sum(values) / len(values))
    assert facts["deviation"] == pytest.approx(torch.tensor(values).std(correction=0).item())
    assert set((batch.labels * facts["deviation"] + facts["mean"]).round().int().tolist()) <= {
        round(value) for value in values
    }


def heedful_position() -> Any:
    from heedful.data.positions import Position

    return Position(0)


def open_lines(run: Path) -> Any:
    file = (run.parent / "rated.tsv").open(encoding="utf-8")
    next(file)
    return file


def test_windows_are_averaged_and_empty_texts_have_no_number(run: Path) -> None:
    notices: list[str] = []
    reader = heedful.load(run, device="cpu")
    assert isinstance(reader, Regressor)
    reader.notify = notices.append
    long = "the red dog sees a cat " * 20
    whole, empty, alone = reader.predict([long, " ", "the red dog sees a cat"])
    assert whole.windows > 1
    assert (empty.value, empty.windows) == (None, 0)
    rows = [sequences_of([row.first]) for row in reader.rows(long)]
    with torch.no_grad():
        outputs = [reader.model.heads["regression"](reader.model.encoder(row)) for row in rows]
    mean = reader.mean + reader.deviation * float(torch.cat(outputs).mean())
    assert whole.value == pytest.approx(mean, rel=1e-5)
    assert alone.value == pytest.approx(reader.predict(["the red dog sees a cat"])[0].value)
    assert len(notices) == 2


def test_the_command_writes_a_number_for_each_line(run: Path) -> None:
    lines = command(["predict", str(run), "--device", "cpu"], "the red dog sees a cat\n\na dog\n")
    first, second, third = lines.splitlines()
    assert math.isfinite(float(first))
    assert second == ""
    assert math.isfinite(float(third))


def test_pairs_are_lines_with_one_tab(tmp_path: Path) -> None:
    rows = "".join(f"the dog {n}\tthe cat {n}\t{n % 5}e-200\n" for n in range(20))
    (tmp_path / "pairs.tsv").write_text(f"first\tsecond\tnumber\n{rows}", encoding="utf-8")
    data = {"train": "pairs.tsv", "validation": "pairs.tsv", "text": ["first", "second"]}
    recipe = encoder("regression", {**data, "label": "number"}, training={**LOOP, "max_steps": 2})
    assert heedful.train(recipe, tmp_path / "run", data=tmp_path)
    arguments = ["predict", str(tmp_path / "run"), "--device", "cpu"]
    first, second, third = command(arguments, "a dog\ta cat\n\na\tb\n").splitlines()
    assert second == ""
    assert math.isfinite(float(first))
    assert math.isfinite(float(third))
    for line in ("a dog", "a\tb\tc"):
        done = CliRunner().invoke(main.app, arguments, input=f"a\tb\n{line}\n")
        assert isinstance(done.exception, UserError)
        tabs = line.count("\t")
        assert f"line 2: {tabs} TABs; this model needs one TAB" in str(done.exception)


def test_a_trace_has_the_number(run: Path) -> None:
    reader = heedful.load(run, device="cpu")
    trace = reader.trace("the red dog sees a cat")
    assert float(trace.decided[0]) == pytest.approx(
        reader.predict(["the red dog sees a cat"])[0].value, rel=1e-2
    )
    assert any("rollout" in one.name for one in trace.maps)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a dog\tmany", "'many' is not a number"),
        ("a dog\tnan", "'nan' is not a number"),
        ("a dog\tinf", "'inf' is not a number"),
        ("a dog\t1e200", r"'1e200' is not between ±1e\+100"),
    ],
)
def test_a_label_that_is_no_number_is_one_line(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "rated.tsv").write_text(f"text\tnumber\nthe cat\t1\n{line}\n", encoding="utf-8")
    recipe = encoder("regression", {"train": "rated.tsv", "label": "number"})
    with pytest.raises(UserError, match=message) as error:
        heedful.train(recipe, tmp_path / "run", data=tmp_path)
    assert "example 2" in str(error.value)
    assert "another column than 'number'" in str(error.value)


def test_numbers_of_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "rated.jsonl"
    path.write_text('{"text": "a", "label": 4.5}\n{"text": "b", "label": "1e-3"}\n')
    found = list(RatedData(train=[str(path)]).read([str(path)]))
    assert found == [Rated(("a",), 4.5), Rated(("b",), 0.001)]
    path.write_text('{"text": "a", "label": NaN}\n')
    with pytest.raises(UserError, match="'nan' is not a number"):
        list(RatedData(train=[str(path)]).read([str(path)]))


@pytest.mark.parametrize("number", [1.5, 0.1])  # the mean of three times 0.1 is not 0.1
def test_equal_numbers_are_refused(tmp_path: Path, number: float) -> None:
    rows = [(text, number) for text in ("the cat", "a dog", "it")]
    with pytest.raises(UserError, match="give examples with different numbers"):
        heedful.train(
            {"task": "regression", "training": LOOP, "tokeniser": WORDS},
            tmp_path / "run",
            data={"train": rows},
        )


def test_python_rows_have_numbers(tmp_path: Path) -> None:
    rows = [{"text": f"the dog {number}", "label": number / 3} for number in range(12)]
    recipe = {"task": "regression", "training": LOOP, "tokeniser": WORDS}
    assert heedful.train(recipe, tmp_path / "run", data={"train": rows})
    with pytest.raises(UserError, match="not a number"):
        heedful.train(recipe, tmp_path / "large", data={"train": [("a", 10**400), ("b", 1)]})
    with pytest.raises(UserError, match="'label' is 'many', not a number"):
        heedful.train(recipe, tmp_path / "other", data={"train": [("a", "many"), ("b", 1)]})


def test_label_smoothing_is_for_labels() -> None:
    recipe = encoder("regression", RATED, training={**LOOP, "label_smoothing": 0.1})
    with pytest.raises(UserError, match="label_smoothing is for labels"):
        heedful.train(recipe, "nowhere")


def test_pearsons_correlation_of_resamples_is_scipys() -> None:
    draw = torch.Generator().manual_seed(1)
    gold, given = torch.randn(2, 40, generator=draw, dtype=torch.float64)
    given = 0.5 * given + gold + 1e5
    texts = [[repr(float(one)) for one in side] for side in (given, gold)]
    found = measure("pearson", {"kind": "pearson"}, *texts)
    total = found.values.sum(axis=0)
    assert found.value_of_sum(total) == pytest.approx(stats.pearsonr(given, gold)[0], abs=1e-9)
    assert len(resample(found, 20, 1)) == 20
    constant = measure("pearson", {"kind": "pearson"}, ["2", "2"], ["1", "3"])
    assert constant.value_of_sum(constant.values.sum(axis=0)) == 0
    nearly = ["1000000.0000000001", "1000000", "1000000"]
    for one, other in ((nearly, ["1", "2", "4"]), (["0.1"] * 3, ["1", "2", "4"])):
        found = measure("pearson", {"kind": "pearson"}, one, other)
        assert found.value_of_sum(found.values.sum(axis=0)) == 0


@pytest.mark.parametrize(("offset", "scale"), [(3.0, 1.0), (0.0, 5.0), (0.0, 0.2), (0.0, 1e-200)])
def test_significance_of_a_correlation_is_the_same_on_every_scale(
    offset: float, scale: float
) -> None:
    draw = torch.Generator().manual_seed(1)
    gold, *systems = torch.randn(3, 80, generator=draw, dtype=torch.float64).tolist()
    first = [one + other for one, other in zip(gold, systems[0], strict=True)]
    second = [one + 1.3 * other for one, other in zip(gold, systems[1], strict=True)]

    def p_of(numbers: list[float]) -> tuple[float, float]:
        kept = {"kind": "pearson"}
        texts = [list(map(repr, side)) for side in (first, numbers, gold)]
        one, two = (measure("pearson", kept, side, texts[2]) for side in texts[:2])
        found = compare_statistics(one, two, resamples=200, trials=400)
        return found.bootstrap_p, found.randomisation_p

    assert p_of([offset + scale * one for one in second]) == p_of(second)


@pytest.mark.parametrize(("offset", "scale"), [(1e6, 0.1), (0.0, 1e-9)])
def test_correlations_of_small_and_distant_numbers(offset: float, scale: float) -> None:
    gold, given = [1.0, 2.0, 4.0, 3.0], [1.5, 1.0, 3.0, 3.5]
    examples = [Rated(("a text",), offset + scale * one) for one in gold]
    regressor: Any = Mock(predict=lambda texts: [Mock(value=offset + scale * one) for one in given])
    found = score_numbers("regression", regressor, examples).one_by_one
    assert found is not None
    statistics = measure("pearson", found.measures["pearson"], found.outputs, found.references)
    total = statistics.values.sum(axis=0)
    expected = stats.pearsonr(gold, given)[0]
    assert statistics.value_of_sum(total) == pytest.approx(expected, abs=1e-6)


def test_a_recipe_is_chosen_from_a_table(tmp_path: Path) -> None:
    words = sorted(set(Path(__file__).read_text(encoding="utf-8").split()))
    lines = [f"{' '.join(words[place::40])}\t{place}" for place in range(40)]
    (tmp_path / "rated.tsv").write_text("\n".join(["text\tscore", *lines]), encoding="utf-8")
    out = tmp_path / "run"
    arguments = ["--task", "regression", "--data", str(tmp_path / "rated.tsv"), "--label", "score"]
    command(["train", "--out", str(out), *arguments, "--set", "training.max_steps=3"])
    assert spec_of_run(out)[1].name == "regression"


@needs_browser()
def test_the_page_has_one_field_and_compares_numbers(
    chromium: Any, run: Path, tmp_path: Path
) -> None:
    shutil.copytree(run, tmp_path / "other")
    models = load_all([run, tmp_path / "other"], [], several=True, device="cpu", examples=True)
    with running(make_application(models)) as address, opened(chromium, address) as it:
        fields = it.page.locator(".heed-predict textarea")
        assert fields.count() == 1
        fields.fill("the red dog sees a cat")
        it.page.wait_for_selector(".heed-result dd")
        it.tab("heads")
        it.page.click(".heed-removal button")
        it.page.wait_for_selector(".heed-removal-result p")
        assert "probable" not in it.page.inner_text(".heed-removal-result")
        it.tab("compare")
        it.page.wait_for_selector(".heed-side >> nth=1 >> .heed-detail:not(:empty)")
        shown = it.page.locator(".heed-side .heed-detail").all_inner_texts()
        assert "log-probability" not in " ".join(shown)
        assert len(set(shown)) == 1
        assert float(shown[0].split()[-1].replace("−", "-"))
