"""The Chat panel: a conversation in a browser."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dialogue_help import trained
from heedful.serving import make_application
from heedful.serving.loading import load_all
from page_help import needs_browser, opened
from serving_help import running

pytestmark = needs_browser()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    run = trained(tmp_path_factory.mktemp("dialogue"))
    models = load_all([run], [], several=False, device="cpu", examples=True)
    with running(make_application(models)) as found:
        yield found


def say(page: Any, text: str) -> str:
    """Say something; returns the answer."""
    before = page.locator(".heed-turn").count()
    box = page.get_by_role("textbox", name="Your turn")
    box.fill(text)
    box.press("Enter")
    page.locator(f".heed-turn >> nth={before + 1}").wait_for()
    page.locator(".heed-conversation[aria-busy=false]").wait_for()
    found: str = page.locator(".heed-answer .heed-said").last.inner_text()
    return found


def test_an_answer_is_kept_by_a_reload_right_after_it(chromium: Any, address: str) -> None:
    with opened(chromium, address) as watched:
        page = watched.page
        for turn in range(1, 4):
            say(page, "I am Eve.")
            page.reload()
            page.locator(f".heed-turn >> nth={2 * turn - 1}").wait_for()
            assert page.locator(".heed-turn").count() == 2 * turn
        for _ in range(4):
            say(page, "I am Dan.")
        page.reload()
        page.locator(".heed-turn >> nth=13").wait_for()
        place = "list => [list.scrollTop + list.clientHeight, list.scrollHeight]"
        seen, height = page.locator(".heed-turns").evaluate(place)
        assert height > page.locator(".heed-turns").bounding_box()["height"] + 20
        assert seen >= height - 2, "the last turn is displayed after a reload"


def test_a_conversation(chromium: Any, address: str) -> None:
    phone = {"width": 360, "height": 740}
    with opened(chromium, address, viewport=phone, color_scheme="dark") as watched:
        page = watched.page
        page.get_by_role("button", name="I am").first.wait_for()  # an example to try
        say(page, "I am Eve.")
        say(page, "A milk, please.")
        assert say(page, "Who am I?") == "Eve."
        words = page.locator(".heed-answer").last.locator(".heed-word")
        words.last.focus()
        page.keyboard.press("Enter")
        page.get_by_text("“Eve.” attended to “").wait_for()
        assert words.last.get_attribute("aria-pressed") == "true"
        shares = page.locator(".heed-share").all_inner_texts()
        assert any(share.endswith("%") for share in shares)
        assert not shares[-1], "an answer does not attend to itself"
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        watched.tab("heads")
        maps = page.locator(".heed-panel:has(.heed-heads) select >> nth=0")
        maps.select_option("Cross")
        page.locator(".heed-all-heads canvas").last.click()  # the copying, which has no projection
        page.locator(".heed-removal").wait_for(state="hidden")
        maps.select_option("Encoder")
        page.get_by_role("button", name="Remove this head").focus()
        with page.expect_request("**/api/removal") as asked:
            page.keyboard.press("Enter")
        assert asked.value.post_data_json["search"] is True, "the answer is written again"
        page.locator(".heed-removal-result p").first.wait_for()
        button = page.locator(".heed-removal button")
        assert button.evaluate("one => one.matches(':focus')"), "the focus stays on the button"
        watched.tab("chat")
        page.reload()  # the conversation is kept, and words can still be selected
        page.locator(".heed-answer .heed-word").last.click()
        page.get_by_text("“Eve.” attended to “").wait_for()
        watched.tab("alignment")
        page.get_by_text("⏎").first.wait_for()
        watched.tab("chat")
        page.get_by_role("button", name="Undo").click()
        assert page.locator(".heed-turn").count() == 4
        assert page.get_by_role("textbox", name="Your turn").input_value() == "Who am I?"
        for _ in range(4):
            say(page, "I am Dan.")
        page.get_by_text("left out for the last answer").wait_for()
        gone = page.locator(".heed-dropped").count()
        assert f"oldest {gone} turns were" in page.locator(".heed-dropped-note").inner_text()
        page.get_by_role("button", name="New conversation").click()
        assert page.locator(".heed-turn").count() == 0
        page.get_by_role("textbox", name="Your turn").fill("word " * 90)
        page.get_by_role("button", name="Send").click()
        page.get_by_text("more than the 60 that the model reads").wait_for()
        assert page.locator(".heed-turn").count() == 0


def test_each_model_writes_its_own_answer_to_an_edited_text(chromium: Any, tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    run = trained(tmp_path / "first")
    shutil.copytree(run, tmp_path / "second")
    models = load_all([run, tmp_path / "second"], [], several=True, device="cpu", examples=True)
    with running(make_application(models)) as address, opened(chromium, address) as watched:
        page = watched.page
        say(page, "I am Eve.")
        say(page, "Who am I?")
        watched.tab("compare")
        edited = "user: I am Dan. ⏎ bot: Hello! ⏎ user: Who am I? ⏎ bot:"
        page.get_by_role("textbox", name="Text of B").fill(edited)
        page.locator(".heed-side >> nth=1").get_by_text("Dan.", exact=True).wait_for()
        page.locator(".heed-side >> nth=0").get_by_text("Eve.", exact=True).wait_for()
