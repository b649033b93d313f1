"""Links as bands in files: every link is drawn or counted, and nothing is cut off."""

from pathlib import Path

import pytest
import torch
from matplotlib.patches import PathPatch

from heedful.basics.errors import UserError
from heedful.viewing.figures import save_figure
from heedful.viewing.links_figure import links_figure
from heedful.viewing.trace_view import trace_figure
from page_help import one_axis_trace, pair_trace
from test_viewing_heatmap import (
    ENGLISH,
    GERMAN,
    assert_nothing_is_cut_off,
    some_weights,
    svg_texts,
)


@pytest.mark.parametrize(
    ("queries", "keys", "own"),
    [(1, 1, False), (8, 9, False), (9, 9, True), (60, 50, False), (50, 50, True)],
)
def test_every_link_is_drawn_or_counted(queries: int, keys: int, own: bool, tmp_path: Path) -> None:
    weights = some_weights(queries, keys)
    words = [f"{word}{i}" for i, word in enumerate(["ein"] * 60)]
    rows, columns = words[:queries], words[:keys]
    figure = links_figure(weights, rows, columns, "a title", own=own)
    assert_nothing_is_cut_off(figure)
    shown = int((weights >= 0.01).sum())
    bands = [patch for patch in figure.axes[0].patches if isinstance(patch, PathPatch)]
    assert len(bands) == shown
    widths = [band.get_linewidth() for band in bands]
    assert widths == sorted(widths)
    texts = svg_texts(figure, tmp_path)
    assert set(texts) >= {"a title", *rows, *columns}
    note = f"{queries * keys - shown:,} of {queries * keys:,} links below 0.01 are hidden"
    assert (note in texts) == (shown < queries * keys)


def test_a_band_joins_its_two_tokens() -> None:
    weights = torch.zeros(len(GERMAN), len(ENGLISH))
    weights[2, 5] = 1.0
    figure = links_figure(weights, GERMAN, ENGLISH)
    (axes,) = figure.axes
    (band,) = axes.patches
    assert isinstance(band, PathPatch)
    ends = band.get_path().vertices[[0, -1]]
    places = {text.get_text(): text.get_position() for text in axes.texts}
    assert ends[0][0] == pytest.approx(places["red"][0])
    assert ends[1][0] == pytest.approx(places[GERMAN[2]][0])
    assert places["red"][1] > ends[0][1] > ends[1][1] > places[GERMAN[2]][1]


def test_arcs_of_a_causal_map_are_above_the_line() -> None:
    weights = some_weights(6, 6)
    both = links_figure(weights, ENGLISH[:6], ENGLISH[:6], own=True)
    causal = links_figure(weights.tril(), ENGLISH[:6], ENGLISH[:6], own=True)
    line = causal.axes[0].texts[0].get_position()[1]
    for band in causal.axes[0].patches:
        assert isinstance(band, PathPatch)
        assert (band.get_path().vertices[:, 1] > line).all()
    assert causal.get_size_inches()[1] < both.get_size_inches()[1]
    assert len(causal.axes[0].texts) == 6  # each token once


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_the_same_links_are_the_same_file(tmp_path: Path, kind: str) -> None:
    files = [tmp_path / f"{number}.{kind}" for number in (1, 2)]
    for file in files:
        save_figure(trace_figure(pair_trace(), "cross.1", links=True), file)
    assert files[0].read_bytes() == files[1].read_bytes()


def test_what_has_no_links_is_refused() -> None:
    with pytest.raises(UserError, match="do not belong to 2 queries and 3 keys"):
        links_figure(torch.ones(2, 2), ["a", "b"], ["c", "d", "e"])
    with pytest.raises(UserError, match="links are drawn between tokens, for the mean"):
        trace_figure(pair_trace(), "cross.1", links=True, apart=True)
    own = one_axis_trace(5)
    assert trace_figure(own, own.maps[0].name, links=True).axes
