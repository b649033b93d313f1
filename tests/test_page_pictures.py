"""Screenshots of the panels, compared with kept ones, with a tolerance.

After a change that is wanted, HEEDFUL_KEEP_PICTURES=1 keeps the new ones: look at them first.
"""

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from heedful.viewing.page import export_html
from page_help import needs_browser, opened, pair_trace

pytestmark = needs_browser()
Image = pytest.importorskip("PIL.Image")
KEPT = Path(__file__).parent / "pictures"
WIDTH = 400
"""Pictures are compared at this width, so that the smoothing of letters does not count."""
DIFFERENT = 32
"""A point differs if one of its colours does by more than this, of 255."""
SHARE = 0.005
"""How many of the points may differ."""
WIDTHS = """["serif", "system-ui"].map((family) => {
    const context = document.createElement("canvas").getContext("2d");
    context.font = `40px ${family}`;
    return Math.round(context.measureText("The quick brown fox jumps").width);
})"""
"""Of the same text in the fonts of the page: they tell which fonts these are."""
PANELS = ("links", "alignment", "heads", "steps", "how")


def small(png: bytes) -> Any:
    whole = Image.open(io.BytesIO(png)).convert("RGB")
    return whole.resize((WIDTH, round(whole.height * WIDTH / whole.width)), Image.Resampling.BOX)


def share_of_differences(first: Any, second: Any) -> float:
    """The share of points that differ; all of them if the sizes do."""
    if first.size != second.size:
        return 1.0
    one, other = (np.asarray(each.convert("RGB"), dtype=np.int16) for each in (first, second))
    return float((abs(one - other).max(-1) > DIFFERENT).mean())


@pytest.mark.skipif(
    "HEEDFUL_TEST_SEED" in os.environ, reason="with other seeds, the pictures are others"
)
@pytest.mark.parametrize("colours", ["light", "dark"])
def test_panels_look_as_before(chromium: Any, tmp_path: Path, colours: Any) -> None:
    path = tmp_path / "view.html"
    export_html(pair_trace(), path)
    window = {"width": 1000, "height": 900}
    with opened(
        chromium, path.as_uri(), viewport=window, color_scheme=colours, reduced_motion="reduce"
    ) as it:
        if it.page.evaluate(WIDTHS) != [524, 506]:
            pytest.skip("other fonts than those of the kept pictures (Debian's fonts-noto-core)")
        found = {}
        for panel in PANELS:
            it.tab(panel)
            it.page.mouse.move(1, 1)
            it.page.wait_for_timeout(250)
            it.page.evaluate("() => document.activeElement.blur()")
            found[panel] = small(it.page.screenshot())
    wrong = []
    for panel, picture in found.items():
        kept = KEPT / f"{panel}-{colours}.png"
        if os.environ.get("HEEDFUL_KEEP_PICTURES"):
            KEPT.mkdir(exist_ok=True)
            picture.quantize(64, dither=Image.Dither.NONE).save(kept, optimize=True)
        share = share_of_differences(picture, Image.open(kept))
        if share > SHARE:
            wrong.append(f"{panel}: {share:.1%} of the points differ")
            picture.save(tmp_path / kept.name)
    assert not wrong, f"{'; '.join(wrong)} (now: {tmp_path}; before: {KEPT})"


def test_the_comparison_sees_what_changed() -> None:
    """A band less than a two-hundredth of the picture passes, a larger one does not."""
    white = Image.new("RGB", (WIDTH, 200), "white")
    small_change, change = white.copy(), white.copy()
    small_change.paste("black", (0, 0, WIDTH, 1))
    change.paste("black", (0, 0, WIDTH, 2))
    assert share_of_differences(white, small_change) <= SHARE < share_of_differences(white, change)
    assert share_of_differences(white, white.resize((WIDTH, 190))) == 1
