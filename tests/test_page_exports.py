"""What the page saves besides PNG, SVG and CSV: animated GIFs, LaTeX, and PDF by printing."""

import io
import itertools
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from heedful.serving import Served, make_application
from heedful.viewing.page import export_html
from page_help import needs_browser, opened, pair_trace
from serving_help import running, translator

pytestmark = needs_browser()
MATRIX = "[data-panel=heads]"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    served = [Served("one", translator(), "en", "de")]
    with running(make_application(served)) as one:
        yield one


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("exported") / "view.html"
    export_html(pair_trace(), path)
    return path.as_uri()


ENCODE = """async ([width, height, seed, colours]) => {
  const { GifWriter, Palette } = await import("./page/gif.js");
  let state = seed;
  const random = () => (state = (state * 1103515245 + 12345) % 2147483648) / 2147483648;
  const level = (i, by) => (Math.floor(i / by) % 8) * 36;
  const table = Array.from({ length: colours }, (_, i) => [level(i, 1), level(i, 8), level(i, 64)]);
  const noise = () => table[Math.floor(random() * colours)];
  const frames = [0, 1, 2, 3].map(() => new Uint8ClampedArray(4 * width * height).fill(255));
  for (let i = 0; i < width * height; i++) frames[0].set(noise(), 4 * i);
  frames[1].set(frames[0]);
  for (let i = 0; i < 40; i++) {
    const x = Math.floor((width * (1 + random())) / 4);
    frames[1].set(noise(), 4 * (Math.floor(height / 2 + random() * 3) * width + x));
  }
  frames[2].set(frames[1]);
  frames[3].fill(0);
  for (let i = 0; i < width * height; i++) frames[3].set([...table[i % 2], 255], 4 * i);
  const writer = new GifWriter(width, height, new Palette(frames[0]));
  for (const frame of frames) writer.add(frame, 7);
  const bytes = new Uint8Array(await writer.finish().arrayBuffer());
  return [Array.from(bytes), frames.map((one) => Array.from(one))];
}"""


@pytest.mark.parametrize(("width", "height", "colours"), [(96, 64, 256), (33, 7, 2), (150, 100, 9)])
def test_gifs_are_read_by_another_decoder(
    chromium: Any, address: str, width: int, height: int, colours: int
) -> None:
    """Noise fills and clears the table of codes; equal frames are joined."""
    with opened(chromium, address) as it:
        data, frames = it.page.evaluate(ENCODE, [width, height, 5, colours])
    image = Image.open(io.BytesIO(bytes(data)))
    assert image.n_frames == 3  # the third frame is the second one
    durations = []
    for number, right in enumerate((frames[0], frames[1], frames[3])):
        image.seek(number)
        durations.append(image.info["duration"])
        found = np.asarray(image.convert("RGB"))
        assert (found == np.array(right).reshape(height, width, 4)[..., :3]).all(), number
    assert durations == [70, 140, 70]
    assert image.info["loop"] == 0


def test_play_is_saved_as_gif(chromium: Any, exported: str) -> None:
    with opened(chromium, exported) as it:
        it.tab("links")
        it.page.wait_for_selector(".heed-links-frame button")
        with it.page.expect_download() as waiting:
            it.page.click("text=Save GIF")
        assert waiting.value.suggested_filename == "attention.gif"
        image = Image.open(waiting.value.path())
        tokens = it.page.locator(".heed-links-tokens[data-side=query] button").count()
        assert image.n_frames > tokens
        ink = []
        for number in range(image.n_frames):
            image.seek(number)
            ink.append(int((np.asarray(image.convert("L")) < 200).sum()))
        assert ink[-1] > 1.5 * ink[0]
        assert sum(b >= a for a, b in itertools.pairwise(ink)) > 0.9 * len(ink) - 2
        assert it.page.inner_text(".heed-player .heed-button:last-child") == "Save GIF"
        assert it.errors == []


def test_a_gif_can_be_cancelled(chromium: Any, exported: str) -> None:
    with opened(chromium, exported) as it:
        it.tab("links")
        it.page.wait_for_selector(".heed-links-frame button")
        button = it.page.locator(".heed-player .heed-button:last-child")
        button.evaluate("(one) => { one.click(); one.click(); }")
        it.page.wait_for_function(
            "() => document.querySelector('.heed-player .heed-button:last-child').textContent"
            " === 'Save GIF'"
        )
        said = it.page.locator(".heed-visually-hidden").all_inner_texts()
        assert any("the GIF is not saved" in one for one in said)


def test_a_small_matrix_is_saved_as_tikz(chromium: Any, exported: str) -> None:
    with opened(chromium, exported) as it:
        it.tab("heads")
        it.page.wait_for_selector(".heed-legend li")
        text = it.saved("tex").decode()
        cells = re.findall(r"\\fill\[heedful!(\d+)\] \((\d+),(\d+)\)", text)
        csv = it.saved("csv").decode().splitlines()
    rows = [[float(one) for one in line.split(",")[1:]] for line in csv[1:] if '"' not in line]
    peak = max(map(max, rows))
    full = [
        (column, row)
        for row, line in enumerate(rows)
        for column, one in enumerate(line)
        if one == peak
    ]
    assert ("100", str(full[0][0]), str(full[0][1])) in cells
    assert text.count("\\begin{tikzpicture}") == text.count("\\end{tikzpicture}") == 1
    assert r"{\textless{}/s\textgreater{}}" in text
    assert text.count(r"\node[anchor=east]") == len(csv) - 1


def test_latex_characters_are_escaped(chromium: Any, address: str) -> None:
    with opened(chromium, address) as it:
        escaped = it.page.evaluate(
            "async (text) => (await import('./page/latex.js')).escapeLatex(text)",
            "50% & $x_1 {a}\\b~^#",
        )
        refused = it.page.evaluate(
            """async () => {
              const { toTikz } = await import("./page/latex.js");
              const labels = Array.from({ length: 31 }, String);
              try { toTikz({ title: "", rows: labels, columns: ["a"], layers: [], bars: [] }); }
              catch (error) { return error.message; }
            }"""
        )
    assert escaped == (
        r"50\% \& \$x\_1 \{a\}\textbackslash{}b\textasciitilde{}\textasciicircum{}\#"
    )
    assert refused.startswith("LaTeX is for matrices of at most 30 × 30, and this one is 31 × 1;")


def test_a_picture_is_printed_alone_on_a_page_of_its_size(chromium: Any, exported: str) -> None:
    with opened(chromium, exported) as it:
        it.page.evaluate("() => { window.asked = 0; window.print = () => { window.asked += 1; }; }")
        it.tab("links")
        it.page.wait_for_selector(".heed-links-frame button")
        it.page.click("main > :not([hidden]) button[aria-label='Save as PDF']")
        it.page.wait_for_function("() => window.asked === 1")
        width, height = it.page.eval_on_selector(
            ".heed-printed", "(one) => [one.naturalWidth, one.naturalHeight]"
        )
        assert not it.page.is_visible(".heed-printed")
        it.page.emulate_media(media="print")
        assert it.page.is_visible(".heed-printed")
        assert not it.page.is_visible(".heedful")
        data = it.page.pdf(prefer_css_page_size=True)
        it.page.evaluate("() => { window.dispatchEvent(new Event('afterprint')); }")
        assert it.page.locator(".heed-printed").count() == 0
        assert it.page.is_visible(".heedful")
        assert it.errors == []
    (box,) = re.findall(rb"/MediaBox \[0 0 ([\d.]+) ([\d.]+)\]", data)  # one page, in points
    assert [float(one) for one in box] == pytest.approx([0.75 * width, 0.75 * height], abs=1)


def test_the_pieces_of_a_word_are_joined(chromium: Any, tmp_path: Path) -> None:
    """In the alignment and in the heads, by lines beside the labels of the pieces."""
    words = {"source": [0, 1, 2, 3, 3, -1], "target": [-1, 0, 1, 1, 2, 3, 3]}
    path = tmp_path / "view.html"
    export_html(replace(pair_trace(), words=words), path)
    with opened(chromium, path.as_uri()) as it:
        it.tab("alignment")
        it.page.wait_for_selector("main > :not([hidden]) canvas")
        aligned = joined(it.saved("svg"))
        it.tab("heads")
        it.page.wait_for_selector(".heed-legend li")
        heads = joined(it.saved("svg"))
        it.page.select_option(
            "main > :not([hidden]) label:has-text('Attention') select", label="Encoder"
        )
        it.page.wait_for_selector("main > :not([hidden]) .heed-picture-title:has-text('Encoder')")
        own = joined(it.saved("svg"))
    # Rows are named after the token that they write, one place before it is fed.
    assert aligned == heads == {("row", 1, 2), ("row", 4, 5), ("column", 3, 4)}
    assert own == {("row", 3, 4), ("column", 3, 4)}


def joined(data: bytes) -> set[tuple[str, int, int]]:
    """The first and last row or column of each line."""
    drawing = ElementTree.fromstring(data)
    svg = "{http://www.w3.org/2000/svg}"
    frame = next(one for one in drawing.iter(f"{svg}rect") if one.get("class") == "frame")
    cell = next(one for one in drawing.iter(f"{svg}rect") if one.get("data-row"))
    found = set()
    for line in drawing.iter(f"{svg}line"):
        if line.get("class") != "word":
            continue
        kind, axis, size = ("row", "y", "height") if line.get("x1") == line.get("x2") else (
            "column", "x", "width"
        )  # fmt: skip
        start, step = float(frame.get(axis) or 0), float(cell.get(size) or 1)
        ends = [(float(line.get(f"{axis}{end}") or 0) - start) / step for end in (1, 2)]
        found.add((kind, int(ends[0]), int(ends[1])))
    return found


def test_a_translation_is_saved_as_html(chromium: Any, address: str, tmp_path: Path) -> None:
    with opened(chromium, address) as it:
        it.page.fill("textarea", 'the small <b>cat</b> & "dog" sat')
        it.page.wait_for_selector(".heed-target .heed-word")
        target = it.page.inner_text(".heed-target").strip()
        with it.page.expect_download() as waiting:
            it.page.click("text=Save HTML")
        assert waiting.value.suggested_filename == "translation.html"
        waiting.value.save_as(tmp_path / "translation.html")
        titles = it.page.eval_on_selector_all(
            ".heed-target .heed-word", "all => all.map((one) => one.title)"
        )
    saved = (tmp_path / "translation.html").read_text(encoding="utf-8")
    assert "<script" not in saved
    assert "http" not in saved
    with opened(chromium, (tmp_path / "translation.html").as_uri()) as it:
        assert it.page.inner_text(".translation") == target
        assert it.page.inner_text(".source") == 'the small <b>cat</b> & "dog" sat'
        about = it.page.eval_on_selector_all(
            ".translation span", "all => all.map((one) => one.title)"
        )
        assert all(one.startswith(title) for one, title in zip(about, titles, strict=True))
        assert any("; from " in one for one in about)
        shades = it.page.eval_on_selector_all(
            ".source span", "all => all.map((one) => one.style.backgroundColor)"
        )
        assert len(set(shades)) > 1
        assert it.page.locator(".source b, .translation b").count() == 0
