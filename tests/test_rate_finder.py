"""The learning-rate range test: its steps, its suggestion, and that no run changes."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import tomlkit
import torch
import typer
from tests.text_help import LANGUAGE, LOOP, write_data

import heedful.cli.learning_rate
from heedful.basics.errors import UserError
from heedful.training import rate_finder
from heedful.training.rate_finder import RangeTest, find_learning_rate

RECIPE: dict[str, Any] = {
    **LANGUAGE,
    "training": {**LOOP, "schedule": "constant", "threads": 1, "clip_norm": "off"},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rates")
    write_data(folder)
    (folder / "recipe.toml").write_text(tomlkit.dumps(RECIPE))
    return folder


@pytest.fixture(scope="module")
def found(folder: Path) -> RangeTest:
    before = sorted(path.name for path in folder.iterdir())
    found = find_learning_rate(RECIPE, "here", data=folder, highest=10.0, steps=50)
    assert sorted(path.name for path in folder.iterdir()) == before
    return found


def test_rates_grow_by_the_same_factor_until_the_loss_diverges(found: RangeTest) -> None:
    assert found.diverged
    assert len(found.rates) < 50
    assert found.rates[0] == pytest.approx(1e-6)
    factor = 10.0 ** (7 / 49)
    for first, second in zip(found.rates, found.rates[1:], strict=False):
        assert second / first == pytest.approx(factor)
    # At first the rate is too low to learn: the losses are those of the initial weights.
    assert found.losses[0] == pytest.approx(found.losses[1], rel=0.1)
    assert found.smoothed[0] == pytest.approx(found.losses[0])
    expected = 0.0
    for number, loss in enumerate(found.losses, start=1):
        expected = 0.9 * expected + 0.1 * loss
        assert found.smoothed[number - 1] == pytest.approx(expected / (1 - 0.9**number))


def test_the_suggestion_is_where_the_loss_falls(found: RangeTest) -> None:
    assert found.suggestion is not None
    assert 1e-4 < found.suggestion < 0.1
    assert found.suggestion < found.rates[found.lowest]
    place = found.rates.index(found.suggestion)
    assert found.smoothed[place + 1] < found.smoothed[place - 1]


def test_it_repeats_exactly_and_random_numbers_are_those_of_the_recipe(
    folder: Path, found: RangeTest
) -> None:
    torch.manual_seed(77)
    again = find_learning_rate(RECIPE, "here", data=folder, highest=10.0, steps=50)
    assert again == found


def test_a_loss_that_never_falls_gives_no_suggestion() -> None:
    rates = [1e-4, 1e-3, 1e-2, 1e-1]
    rising = [1.0, 2.0, 3.0, 4.0]
    assert RangeTest(rates, rising, rising, diverged=True).suggestion is None
    falling = [4.0, 3.9, 1.0, 0.9]
    assert RangeTest(rates, falling, falling, diverged=False).suggestion == 1e-3


def test_a_loss_that_is_not_finite_ends_the_test(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = iter([3.0, 2.0, math.nan])
    monkeypatch.setattr(rate_finder._Steps, "__call__", lambda self, number, rate: next(losses))
    found = find_learning_rate(RECIPE, "here", data=folder, steps=20)
    assert found.diverged
    assert found.losses == [3.0, 2.0]


def test_ranges_that_make_no_sense_are_refused() -> None:
    for lowest, highest in ((0.0, 1.0), (1.0, 0.1), (0.1, math.inf)):
        with pytest.raises(UserError, match="must be above 0 and below --highest"):
            find_learning_rate(RECIPE, "here", lowest=lowest, highest=highest)
    with pytest.raises(UserError, match="--steps 5: give at least 20"):
        find_learning_rate(RECIPE, "here", steps=5)


def test_the_command_prints_json_and_draws(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    app = typer.Typer()
    heedful.cli.learning_rate.register(app)
    app.command(name="other")(lambda: None)  # with one command, typer takes no name
    command = typer.main.get_command(app)
    how = ["learning-rate", str(folder / "recipe.toml"), "--data", str(folder), "--steps", "30"]
    picture = tmp_path / "rates.svg"
    command.main([*how, "--json", "--plot", str(picture)], standalone_mode=False)
    printed = json.loads(capsys.readouterr().out)
    assert printed["suggestion"] in printed["rates"]
    assert "learning rate" in picture.read_text()
    with pytest.raises(UserError, match=r"must end in \.png, \.svg or \.pdf"):
        command.main([*how, "--plot", "rates.txt"], standalone_mode=False)
