"""Training curves, and alignments as text."""

import json
from pathlib import Path

import pytest
import torch
from rich.cells import cell_len

from heedful.basics.errors import UserError
from heedful.viewing.curves import Series, curve_figure, read_records
from heedful.viewing.figures import save_figure
from heedful.viewing.terminal import render_alignment


def write(path: Path, records: list[dict[str, object]], tail: str = "") -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records) + tail)
    return path


RECORDS: list[dict[str, object]] = [
    *({"kind": "train", "step": step, "loss": 9.0 / step} for step in range(1, 200)),
    {"kind": "validation", "step": 50, "loss": 2.0, "bleu": 10.0},
    {"kind": "validation", "step": 100, "loss": 1.0, "bleu": 30.5},
    {"kind": "validation", "step": 150, "loss": 1.5, "bleu": 20.0},
    {"kind": "start", "step": 0},
]


def test_curves_show_losses_and_the_best_figure(tmp_path: Path) -> None:
    figure = curve_figure(read_records(write(tmp_path / "m.jsonl", RECORDS)), "a_run $x$")
    loss, metric = figure.axes
    assert list(loss.lines[0].get_xdata()) == list(range(1, 200))
    assert list(loss.lines[-1].get_ydata()) == [2.0, 1.0, 1.5]
    assert metric.get_ylabel() == "BLEU (validation)"
    assert metric.texts[0].get_text() == "best 30.50 at step 100"
    other = curve_figure(read_records(tmp_path / "m.jsonl"), chosen=150)
    assert other.axes[1].texts[0].get_text() == "chosen 20.00 at step 150"
    save_figure(figure, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").stat().st_size > 10_000


def test_without_a_metric_there_is_one_panel(tmp_path: Path) -> None:
    records = read_records(write(tmp_path / "m.jsonl", RECORDS[:100]))
    assert len(curve_figure(records).axes) == 1


def test_lower_perplexity_is_better(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"kind": "validation", "step": step, "perplexity": value}
        for step, value in ((1, 30.0), (2, 8.0), (3, 9.0))
    ]
    figure = curve_figure(read_records(write(tmp_path / "m.jsonl", rows)))
    assert "best 8.00 at step 2" in figure.axes[1].texts[0].get_text()


def test_a_last_line_cut_off_is_said_and_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = read_records(write(tmp_path / "m.jsonl", RECORDS, tail='{"kind": "tr'))
    assert len(records.training) == 199
    assert "skipped the last line" in capsys.readouterr().err


def test_what_is_not_finite_is_not_drawn() -> None:
    rows = [{"step": 1, "loss": float("nan")}, {"step": 2, "loss": 1.0}, {"step": 3, "loss": None}]
    assert Series.of(rows, "loss") == Series([2], [1.0])


@pytest.mark.parametrize(
    ("text", "says"),
    [("", "no records yet"), ("{}\nx\n{}\n", "line 2: not a JSON"), ("[]\n", "no records yet")],
)
def test_a_broken_file_is_one_clear_line(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "m.jsonl").write_text(text)
    with pytest.raises(UserError, match=says):
        read_records(tmp_path / "m.jsonl")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot read .*m\.jsonl"):
        read_records(tmp_path / "m.jsonl")


def test_text_alignment_has_a_flag_a_key_and_a_row_a_query() -> None:
    weights = torch.tensor([[1.0, 0.0, 0.0], [0.06, 0.5, 0.0]])
    drawn = render_alignment(weights, ["小", "狗"], ["▁the", "dog", "."])
    assert drawn.split("\n") == ["┌ the", "│ ┌ ·dog", "│ │ ┌ .", "█     小", "░ ▒   狗"]


def test_text_alignment_stays_within_the_terminal() -> None:
    keys = [f"key{place}" for place in range(40)]
    drawn = render_alignment(torch.eye(40), ["ё"] * 40, keys, width=50, plain=True)
    assert drawn.isascii() is False
    assert max(cell_len(line) for line in drawn.split("\n")) <= 50
    for key in keys:
        assert f" {key}" in drawn
    assert drawn.count("#") == 40


def test_text_alignment_refuses_other_shapes() -> None:
    with pytest.raises(UserError, match="do not belong"):
        render_alignment(torch.eye(2), ["a"], ["b", "c"])
