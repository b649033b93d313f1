"""Figures and text of weights over a picture and along time."""

from pathlib import Path

import numpy as np
import pytest
import torch
from rich.cells import cell_len

from heedful.inference import Axis, Media, Trace
from heedful.viewing.figures import save_figure
from heedful.viewing.terminal import render_rows
from heedful.viewing.trace_view import trace_figure
from page_help import kinds_trace

KINDS = kinds_trace()


def test_a_figure_has_a_panel_a_query_over_the_picture(tmp_path: Path) -> None:
    figure = trace_figure(KINDS, "caption")
    assert [axes.get_title() for axes in figure.axes] == ["", "a", "red", "disc", "</s>"]
    assert len(figure.axes[0].get_images()) == 1  # the picture alone
    picture, over = (np.asarray(image.get_array()) for image in figure.axes[2].get_images())
    assert picture.shape == (140, 140, 3)
    mean = KINDS["caption"].weights.mean(0)[1]
    hidden = 0.85 * (1 - (mean / mean.max()) ** 0.75)
    np.testing.assert_allclose(over[..., 3].ravel(), hidden, atol=1e-6)
    apart = trace_figure(KINDS, "caption", apart=True)
    assert [axes.get_title() for axes in apart.axes][2:4] == ["red, head 1", "red, head 2"]
    some = trace_figure(KINDS, "patches")
    assert len(some.axes) == 49
    assert some.texts[0].get_text() == "patches (the first 48 of 49)"
    for kind in ("png", "svg"):
        save_figure(figure, tmp_path / f"a.{kind}")


@pytest.mark.parametrize("name", ["speech", "listener"])
def test_a_figure_has_the_sound_or_its_features_above(name: str) -> None:
    heads = len(KINDS[name].weights)
    figure = trace_figure(KINDS, name, apart=True)
    assert figure.axes[0].get_label() == "media"
    assert len(figure.axes) == 1 + heads
    drawn = np.asarray(figure.axes[-1].get_images()[0].get_array())
    np.testing.assert_allclose(drawn, KINDS[name].weights[-1], atol=1e-6)
    assert figure.axes[-1].get_xlabel() == "seconds"
    assert tuple(figure.axes[0].get_xlim()) == (0.0, 1.5)


def test_a_path_outlines_where_each_step_read() -> None:
    weights = torch.zeros(1, 3, 20)  # 4 rows of 5 cells
    weights[0, 0, [6, 7, 11, 12]] = 0.24
    weights[0, 0, 19] = 0.04  # less than half of the largest weight
    weights[0, 1, [2]] = 1.0
    weights[0, 2, [13, 14, 18, 19]] = 0.25
    axes = {
        "glimpses": Axis("labels", ["1", "2", "3"], steps=True),
        "image": Axis("image", extent=(4, 5)),
    }
    maps = {"sensor": ("glimpses", "image", weights)}
    figure = trace_figure(Trace.of(axes, maps, title="3"), "sensor")
    boxes = [patch.get_bbox().bounds for patch in figure.axes[2].patches]
    assert boxes == [(1, 1, 2, 2), (2, 0, 1, 1), (3, 2, 2, 2)]
    assert [len(panel.patches) for panel in figure.axes] == [1, 2, 3]
    line = np.asarray(figure.axes[2].lines[0].get_xydata())
    np.testing.assert_array_equal(line, [(2, 2), (2.5, 0.5), (4, 3)])
    axes["glimpses"] = Axis("labels", ["1", "2", "3"])
    figure = trace_figure(Trace.of(axes, maps, title="3"), "sensor")
    assert not any(panel.patches for panel in figure.axes)


def test_the_frames_of_a_clip_are_in_rows() -> None:
    frames, side = 10, 6
    levels = [torch.full((side, side), 20 * n, dtype=torch.uint8) for n in range(frames)]
    strip = torch.cat(levels, 1)
    axes = {
        "target": Axis("tokens", ["up"]),
        "frames": Axis("frames", extent=(frames,), media=Media.picture(strip)),
    }
    weights = torch.arange(1.0, 11).view(1, 1, frames)
    maps = {"attention": ("target", "frames", weights / weights.sum())}
    figure = trace_figure(Trace.of(axes, maps, title="up"), "attention")
    alone, panel = figure.axes
    [shown] = (np.asarray(image.get_array()) for image in alone.get_images())
    assert shown.shape == (2 * side, 8 * side)
    np.testing.assert_allclose(shown[side, ::side][:3], [160 / 255, 180 / 255, 1], atol=1e-3)
    over = np.asarray(panel.get_images()[1].get_array())
    assert over.shape[:2] == (2, 8)
    assert over[1, 1, 3] == 0  # the largest weight
    assert over[0, 0, 3] > over[0, 7, 3] > 0


def test_a_film_strip_that_frames_do_not_divide_is_one_row() -> None:
    strip = torch.zeros(6, 31, dtype=torch.uint8)
    axes = {
        "target": Axis("tokens", ["up"]),
        "frames": Axis("frames", extent=(10,), media=Media.picture(strip)),
    }
    maps = {"attention": ("target", "frames", torch.full((1, 1, 10), 0.1))}
    alone, panel = trace_figure(Trace.of(axes, maps, title="up"), "attention").axes
    assert np.asarray(alone.get_images()[0].get_array()).shape == (6, 31)
    assert np.asarray(panel.get_images()[1].get_array()).shape[:2] == (1, 10)


def test_a_terminal_shows_a_pictures_cells() -> None:
    weights = torch.tensor([[0.5, 0.0, 0.25, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0, 0.0, 0.0]])
    drawn = render_rows(weights, ["a", "b"], Axis("image", extent=(2, 3)))
    assert drawn.split("\n") == [
        "a", "  │██  ▒▒│", "  │      │", "b", "  │      │", "  │      │",
    ]  # fmt: skip


def test_a_terminal_shows_time_as_a_line() -> None:
    weights = torch.zeros(2, 400)
    weights[0, 399] = weights[1, 0] = 0.7
    drawn = render_rows(weights, ["one", "小"], Axis("time", extent=(400, 8)), 60, plain=True)
    first, second, scale = drawn.split("\n")
    assert first.endswith("# one")
    assert second.startswith("# ")
    assert scale.endswith("8.00 s")
    assert all(cell_len(line) <= 60 for line in (first, second, scale))


def test_a_terminal_shows_slots_as_columns() -> None:
    drawn = render_rows(torch.eye(2), ["hop 1", "hop 2"], Axis("slots", ["here", "there"]))
    assert drawn.split("\n") == ["┌ here", "│ ┌ there", "█   hop 1", "  █ hop 2"]
