"""Heat-maps and their files: what is drawn, nothing cut off, nothing interpreted."""

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib import image
from matplotlib.figure import Figure

from heedful.basics.errors import UserError
from heedful.viewing.figures import save_figure
from heedful.viewing.fonts import font_families
from heedful.viewing.heatmap import alignment_figure, head_figure
from heedful.viewing.labels import token_labels

GERMAN = ["Der", "kleine", "Hund", "sieht", "das", "rote", "Haus", "."]
ENGLISH = ["the", "small", "dog", "sees", "the", "red", "house", "today", "."]


def some_weights(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1)).softmax(-1)


def svg_texts(figure: Figure, folder: Path) -> list[str]:
    save_figure(figure, folder / "a.svg")
    root = ElementTree.parse(folder / "a.svg").getroot()
    return [element.text or "" for element in root.iter() if element.tag.endswith("text")]


def assert_nothing_is_cut_off(figure: Figure) -> None:
    figure.draw_without_rendering()
    width, height = figure.get_size_inches() * figure.dpi
    for axes in figure.axes:
        # Beyond the labels' own advance widths, glyphs may lean over by a dot or two.
        box = axes.get_tightbbox()
        assert box is not None
        assert box.x0 > -2
        assert box.y0 > -2
        assert box.x1 < width + 2
        assert box.y1 < height + 2
    for text in figure.texts:
        box = text.get_window_extent()
        assert box.x1 < width + 2


@pytest.mark.parametrize(
    ("queries", "keys", "heads"),
    [(1, 1, 1), (1, 30, 1), (30, 2, 1), (8, 9, 8), (60, 60, 3), (150, 80, 1)],
)
@pytest.mark.parametrize("word", ["a", "Rindfleischetikettierung"])
def test_every_size_fits_its_figure(queries: int, keys: int, heads: int, word: str) -> None:
    figure = head_figure(
        some_weights(heads, queries, keys), [word] * queries, [word] * keys, "a title " * 5
    )
    assert_nothing_is_cut_off(figure)
    width, height = figure.get_size_inches()
    assert max(width, height) < 20
    panels = [axes for axes in figure.axes if axes.get_label().startswith("panel")]
    assert len(panels) == heads
    boxes = [axes.get_window_extent() for axes in figure.axes]
    for place, one in enumerate(boxes):
        for other in boxes[place + 1 :]:
            assert not one.overlaps(other)


def test_cells_are_square_and_hold_the_weights() -> None:
    weights = some_weights(8, 9)
    figure = alignment_figure(weights, GERMAN, ENGLISH)
    panel = figure.axes[0]
    box = panel.get_window_extent()
    assert box.width / 9 == pytest.approx(box.height / 8, rel=1e-6)
    drawn = panel.collections[0].get_array()
    assert np.allclose(np.asarray(drawn).reshape(8, 9), weights.numpy())
    # The first query stands at the top.
    assert panel.get_ylim()[0] > panel.get_ylim()[1]
    assert [label.get_text() for label in panel.get_yticklabels()] == GERMAN
    assert [label.get_text() for label in panel.get_xticklabels()] == ENGLISH


def test_heads_share_one_scale() -> None:
    weights = torch.stack([some_weights(3, 3), torch.eye(3)])
    figure = head_figure(weights, list("abc"), list("xyz"))
    scales = {axes.collections[0].get_clim() for axes in figure.axes[:2]}
    assert scales == {(0.0, 1.0)}


def test_nothing_in_a_token_or_title_is_interpreted(tmp_path: Path) -> None:
    tokens = ["$x^2$", "a_b", r"\alpha", "%", "{x}", "<&>", "$", "'"]
    figure = alignment_figure(some_weights(8, 8), tokens, tokens, r"$\frac{1}{$ & _")
    texts = svg_texts(figure, tmp_path)
    for token in tokens:
        assert texts.count(token) == 2
    assert r"$\frac{1}{$ & _" in texts


def test_scripts_stay_text_in_svg(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tokens = ["собака", "الكلب", "小狗", "कुत्ता"]
    texts = svg_texts(alignment_figure(some_weights(4, 4), tokens, tokens), tmp_path)
    assert [token for token in texts if token in tokens] == tokens * 2
    assert capsys.readouterr().err == ""


def test_characters_without_a_glyph_are_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # The fonts of this machine decide whether there is anything to say.
    strange = "\U00013000\U00013001"
    _, missing = font_families([strange, "小"])
    figure = alignment_figure(some_weights(1, 2), ["小"], [strange, "b"])
    save_figure(figure, tmp_path / "a.png")
    said = capsys.readouterr().err
    assert said.count("\n") == (1 if missing else 0)
    if missing:
        assert "no glyph" in said


def test_long_input_labels_some_tokens_and_says_so(tmp_path: Path) -> None:
    words = [f"w{place}" for place in range(200)]
    texts = svg_texts(alignment_figure(some_weights(200, 200), words, words), tmp_path)
    assert any("rows is labelled" in text for text in texts)
    assert "w0" in texts
    assert "w1" not in texts


def test_all_labels_of_a_short_axis_are_drawn(tmp_path: Path) -> None:
    heads, places = [f"h{number}" for number in range(144)], [f"p{number}" for number in range(6)]
    texts = svg_texts(alignment_figure(some_weights(144, 6), heads, places), tmp_path)
    assert set(places) < set(texts)
    assert "h1" not in texts
    assert any("rows is labelled" in text for text in texts)


def test_cells_without_a_weight_are_grey() -> None:
    blank = np.zeros((1, 2, 3), np.bool_)
    blank[0, 1] = True
    figure = head_figure(some_weights(1, 2, 3), ["a", "b"], ["x", "y", "z"], blank=blank)
    colours = figure.axes[0].collections[0]
    colours.update_scalarmappable()
    rows = colours.get_facecolor().reshape(2, 3, 4)
    assert np.allclose(rows[1, :, :3], 0xD8 / 255)
    assert not np.allclose(rows[0, :, :3], 0xD8 / 255)


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_the_same_picture_is_the_same_file(tmp_path: Path, kind: str) -> None:
    files = [tmp_path / f"{place}.{kind}" for place in range(2)]
    for file in files:
        save_figure(head_figure(some_weights(2, 8, 9), GERMAN, ENGLISH, "heads"), file)
    assert files[0].read_bytes() == files[1].read_bytes()
    assert sorted(tmp_path.iterdir()) == files


def test_a_png_is_mostly_white_where_weights_are_zero(tmp_path: Path) -> None:
    save_figure(alignment_figure(torch.eye(8), GERMAN, GERMAN), tmp_path / "a.png")
    pixels = image.imread(tmp_path / "a.png")[..., :3]
    assert (pixels > 0.99).all(-1).mean() > 0.7
    blue = pixels[(pixels[..., 2] > pixels[..., 0] + 0.2)]
    assert len(blue) > 1000


@pytest.mark.parametrize("name", ["a.jpg", "a", "a.txt"])
def test_other_endings_are_refused_and_leave_nothing(tmp_path: Path, name: str) -> None:
    figure = alignment_figure(torch.eye(2), ["a", "b"], ["a", "b"])
    with pytest.raises(UserError, match=r"\.png, \.svg or \.pdf"):
        save_figure(figure, tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_a_users_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    figure = alignment_figure(torch.eye(2), ["a", "b"], ["a", "b"])
    with pytest.raises(UserError, match="cannot write"):
        save_figure(figure, tmp_path / "file" / "a.png")


@pytest.mark.parametrize(
    "weights",
    [torch.zeros(2, 3), torch.zeros(3, 2, 1), torch.full((3, 2), float("nan")), torch.zeros(0, 2)],
)
def test_weights_that_do_not_fit_are_refused(weights: torch.Tensor) -> None:
    with pytest.raises(UserError):
        alignment_figure(weights, ["a", "b", "c"], ["x", "y"])


def test_zero_weights_draw() -> None:
    assert_nothing_is_cut_off(alignment_figure(torch.zeros(1, 1), [""], [""]))


def test_labels_of_pieces() -> None:
    pieces = ["▁Don", "'", "t", "▁play", "ing", "▁", "x", "</s>"]
    assert token_labels(pieces) == ["Don", "'", "·t", "play", "·ing", "␣", "x", "</s>"]
    assert token_labels(["▁小", "狗", "。"]) == ["小", "狗", "。"]
    assert token_labels(["words", "alone"]) == ["words", "alone"]
    assert token_labels(["\n", "", " ", "a\tb", "\u202e"]) == ["\\n", "∅", "␣", "a\\tb", "\\u202e"]
    assert token_labels(["x" * 30], longest=9) == ["xxxx…xxxx"]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(st.characters(codec=None), max_size=40), min_size=1, max_size=5))
def test_every_token_gets_a_label_that_can_be_seen_and_written(tokens: list[str]) -> None:
    labels = token_labels(tokens)
    assert len(labels) == len(tokens)
    for label in labels:
        assert label.strip()
        assert len(label) <= 24
        label.encode("utf-8")
        assert not any(ord(character) < 32 for character in label)


def test_a_byte_is_the_character_that_it_is() -> None:
    assert token_labels(["▁Man", "<0x54>", "<0x0A>", "<0xD7>", "<0x20>"]) == [
        "Man",
        "T",
        "\\n",
        "<0xD7>",
        "␣",
    ]
