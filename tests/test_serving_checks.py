"""Findings of the checks and matches of the memory, in responses and on the page."""

import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from heedful.data.memory import Entry, Memory
from heedful.data.protected.pairs import Rules
from heedful.data.protected.spans import find_spans
from heedful.decoding import SearchOptions
from heedful.evaluation.finding_spans import concerned
from heedful.serving import Served, make_application
from heedful.tasks.pairs.findings import findings
from page_help import needs_browser, opened
from serving_help import running, translator

RULES = Rules(("tags", "printf", "number", "markdown"), "en", "de")
SOURCE = "the cat sat on 12 mats."
MATCH = "die Katze saß auf 12 Matten."
OTHER = "12 Matten, darauf die Katze."


def model() -> Any:
    one = translator(options=SearchOptions(beam=5))
    entries = [Entry(SOURCE, MATCH, times=2), Entry(SOURCE, OTHER), Entry("a dog", "<b>Hund</b>")]
    one.memory = Memory(entries)
    return one


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with running(make_application([Served("one", model(), "en", "de")])) as address:
        yield address


@pytest.mark.parametrize(
    ("check", "source", "target", "parts"),
    [
        ("placeholders", "Open %s or %s", "Öffne %s, %d", (["%s", "%s"], ["%d"])),
        ("placeholders", "<b>a</b> 5", "a 6", (["<b>", "</b>"], [])),
        ("markup", "**a** %s", "a", (["**", "**"], [])),
        ("numbers", "1 of %2$s 3", "3 of %2$s 4", (["1"], ["4"])),
        ("numbers", "1,000 of 20,000", "1000 von 2000", (["20,000"], ["2000"])),
        ("tags", "<b>a</b>", "</b>a<b>", (["<b>", "</b>"], ["</b>", "<b>"])),
        ("doubled-words", "the cat", "die die Katze", ([], ["die die"])),
        ("punctuation", "a cat. ", "eine Katze", (["."], [])),
        ("length", "a", "b" * 30, ([], [])),
    ],
)
def test_the_parts_that_a_finding_is_about(
    check: str, source: str, target: str, parts: tuple[list[str], list[str]]
) -> None:
    found = concerned(check, source, target, RULES)
    assert [source[slice(*one)] for one in found.source] == parts[0]
    assert [target[slice(*one)] for one in found.target] == parts[1]


def test_findings_in_responses(address: str) -> None:
    text = f"{SOURCE[:-1]} 𝟚!"  # outside of the basic plane
    fields = {"text": [text, SOURCE], "nbest": 3, "checks": True, "matches": True}
    answer = httpx.post(f"{address}/api/translate", json=fields).json()["translations"]
    for one, source in zip(answer, (text, SOURCE), strict=True):
        for each in (one, *one["alternatives"]):
            assert each["findings"] == findings(model(), source, each["text"])
    missing = next(one for one in answer[1]["findings"] if one["check"] == "numbers")
    assert missing["serious"]
    assert [SOURCE[slice(*part)] for part in missing["source"]] == ["12"]
    assert answer[0]["match"] is None
    match = {"text": MATCH, "kind": "exact", "others": [OTHER], "findings": []}
    assert answer[1]["match"] == match
    plain = httpx.post(f"{address}/api/translate", json={"text": text}).json()["translations"][0]
    assert not {"findings", "match"} & set(plain)


def test_streams_have_none(address: str) -> None:
    for name in ("checks", "matches"):
        fields = {"text": SOURCE, name: True}
        answer = httpx.post(f"{address}/api/translate/stream", json=fields)
        assert answer.status_code == 400
        assert "/api/translate" in answer.json()["error"]


@pytest.mark.parametrize("text", ["<a>" * 16_000 + "</b>" * 9_000, "%s " * 30_000, "1 " * 50_000])
def test_long_texts_are_checked_in_little_time(text: str) -> None:
    began = time.process_time()
    assert find_spans(text, RULES.names)
    findings(translator(), text, text[::-1])
    assert time.process_time() - began < 5


@needs_browser()
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_page_shows_both(chromium: Any, address: str, theme: str) -> None:
    with opened(chromium, address, color_scheme=theme) as it:
        it.page.fill("textarea", SOURCE)
        it.page.wait_for_selector(".heed-findings li.heed-serious >> text=12")
        assert it.page.inner_text(".heed-source .heed-flagged >> nth=0") == "12"
        buttons = it.page.locator(".heed-memory button")
        assert buttons.all_inner_texts() == [
            f"{MATCH}\nexact match", f"{OTHER}\nother translation"
        ]  # fmt: skip
        it.page.wait_for_selector("[aria-live] >> text=exact match", state="attached")
        # By keyboard: the match becomes the translation that is shown, with its own findings.
        buttons.first.focus()
        it.page.keyboard.press("Enter")
        assert it.page.inner_text(".heed-target") == MATCH
        assert it.page.inner_text(".heed-score") == "From the translation memory"
        assert buttons.first.get_attribute("aria-pressed") == "true"
        assert it.page.locator("[aria-pressed=true]").count() == 1
        it.page.wait_for_selector("text=The checks found nothing.")
        assert it.page.locator(".heed-flagged").count() == 0
        it.page.keyboard.press("Tab")
        it.page.keyboard.press("Enter")
        assert it.page.inner_text(".heed-target") == OTHER


@needs_browser()
def test_matches_are_texts_and_go_with_their_source(chromium: Any, address: str) -> None:
    with opened(chromium, address) as it:
        it.page.fill("textarea", "a dog")
        it.page.wait_for_selector(".heed-memory >> text=<b>Hund</b>")
        it.page.click(".heed-memory button")
        it.page.wait_for_selector(".heed-findings code >> text=</b>")
        assert it.page.locator("main b").count() == 0
        it.page.fill("textarea", "a dog and a cat")
        it.page.wait_for_selector(".heed-memory", state="hidden")
