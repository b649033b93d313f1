"""The page with a recogniser whose decoder attends to the sound only."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import soundfile

import heedful
from heedful.serving import make_application
from heedful.serving.limits import MEDIA_BODY
from heedful.serving.loading import load_all
from heedful.serving.served import ServedModels
from heedful.tasks.sound_input import heard_in
from heedful.tasks.transcription.predictor import Word
from heedful.tasks.transcription.subtitles import subtitles
from heedful.viewing.page import export_html
from page_help import needs_browser, opened
from serving_help import running
from test_transcription import RATE, RECIPE, spoken

pytestmark = needs_browser()
INSIDE = ["Alignment", "Heads", "Steps", "How it works"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, and recordings: one of three words, and one that is cut into parts."""
    place, rng = tmp_path_factory.mktemp("heard"), np.random.default_rng(3)
    lines = ["path\ttext"]
    for number in range(60):
        words = [str(rng.choice(["low", "mid", "high"])) for _ in range(int(rng.integers(1, 4)))]
        soundfile.write(place / f"{number}.wav", spoken(rng, words)[0], RATE)
        lines.append(f"{number}.wav\t{' '.join(words)}")
    (place / "table.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    one = spoken(rng, ["low", "mid", "high"])[0]
    soundfile.write(place / "one.wav", one, RATE)
    soundfile.write(place / "long.wav", np.concatenate([one] * 3), RATE)
    data = {**RECIPE["data"], "train": "table.tsv", "validation": "table.tsv", "test": "table.tsv"}
    assert heedful.train({**RECIPE, "data": data}, place / "run", data=place)
    return place


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    served = load_all([folder / "run"], [], several=True, device="cpu")
    with running(make_application(served)) as one:
        yield one


def heard(it: Any, path: Path) -> None:
    """Choose a recording, and wait for its text."""
    with it.page.expect_response("**/api/predict/run"):
        it.page.set_input_files(".heed-sound-field input[type=file]", path)
    it.page.wait_for_selector(".heed-output[aria-busy=false] .heed-result dd")


def tabs(it: Any) -> list[str]:
    return list(it.page.locator("[role=tab]").all_inner_texts())


def test_the_panel_has_the_name_of_the_task(chromium: Any, folder: Path, address: str) -> None:
    with opened(chromium, address) as it:
        it.page.wait_for_selector("[role=tab]")
        assert tabs(it) == ["Transcribe", *INSIDE]
    recogniser = load_all([folder / "run"], [], several=True, device="cpu")[0]
    speaker = replace(recogniser, name="other", task="synthesis")
    [panel] = ServedModels([recogniser, speaker]).panels()
    assert (panel["title"], panel["models"]) == ("Predict", ["run", "other"])


def test_how_it_works_has_the_equation(chromium: Any, folder: Path, address: str) -> None:
    """No request fails: a failed one is an error of the console, which ``opened`` finds."""
    with opened(chromium, address) as it:
        heard(it, folder / "one.wav")
        it.tab("how")
        it.page.wait_for_selector(".heed-equation tbody tr")
        it.page.select_option("label:has-text('Query') select", "1")
        it.page.wait_for_selector(".heed-equation th >> text=+ earlier weights")
        about = it.page.inner_text(".heed-how > .heed-hint")
        assert "The scores also depend on the weights of the steps before" in about
        assert it.page.inner_text(".heed-how > .heed-notice") == ""
        asked = {url.rpartition("/")[2] for url in it.requests if "/api/" in url}
        assert {"architecture", "equation"} <= asked
        assert "lens" not in asked


def test_links_are_not_offered(chromium: Any, folder: Path, address: str, tmp_path: Path) -> None:
    """Neither by a server nor in a saved file; and there is nothing to present."""
    predictor = heedful.load(folder / "run")
    trace = predictor.trace(heard_in(str(folder / "one.wav")))
    export_html(trace, tmp_path / "view.html")
    for opens in (f"{address}/#panel=links", (tmp_path / "view.html").as_uri()):
        with opened(chromium, opens) as it:
            it.page.wait_for_selector("[role=tab]")
            assert [one for one in tabs(it) if one in ("Links", *INSIDE)] == INSIDE
            it.page.keyboard.press("p")
            assert it.page.locator(".heed-present, .heed-present-button").count() == 0


def test_the_page_uses_what_the_server_accepts(chromium: Any, address: str) -> None:
    assert httpx.get(f"{address}/api/models").json()["max_body"] == MEDIA_BODY
    with opened(chromium, address) as it:
        said = it.page.inner_text(".heed-sound-field .heed-hint")
    assert "up to 18.0 MiB" in said
    assert "up to 9 min 49 s" in said
    size = (44 + (9 * 60 + 49) * 32000) * 4 // 3
    for more, status in ((0, 400), (MEDIA_BODY - size, 413)):  # 400: it is no sound
        uri = "data:audio/wav;base64," + "a" * (size + more)
        given = {"inputs": [{"sound": uri}]}
        answer = httpx.post(f"{address}/api/predict/run", json=given, timeout=60)
        assert answer.status_code == status, answer.text


def test_words_have_their_times_and_are_saved_as_subtitles(
    chromium: Any, folder: Path, address: str
) -> None:
    [found] = heedful.load(folder / "run").predict([heard_in(str(folder / "one.wav"))])
    with opened(chromium, address) as it:
        heard(it, folder / "one.wav")
        shown = it.page.locator(".heed-word-button").all_inner_texts()
        expected = [f"{one.text} {one.start:.2f}–{one.end:.2f}" for one in found.words]
        assert [" ".join(one.split()) for one in shown] == expected
        for form in ("srt", "vtt"):
            with it.page.expect_download() as waiting:
                it.page.click(f"text={form.upper()} >> visible=true")
            assert waiting.value.suggested_filename == f"subtitles.{form}"
            words = [Word(one.text, round(one.start, 3), round(one.end, 3)) for one in found.words]
            lines = Path(waiting.value.path()).read_text(encoding="utf-8").splitlines()
            assert lines == subtitles(words, form)


def test_times_of_long_recordings_have_minutes(chromium: Any, address: str) -> None:
    with opened(chromium, address) as it:
        found = it.page.evaluate(
            """async () => {
              const { resultRows } = await import("/page/result_view.js");
              const words = [[59.99, 59.996], [61.5, 3599.99]].map(
                ([start, end]) => ({ text: "a", start, end }));
              return resultRows({ words }, () => {})[0][2].map((one) => one.textContent);
            }"""
        )
    assert found == ["a 59.99–1:00.00", "a 1:01.50–59:59.99"]


def test_subtitles_over_http(address: str) -> None:
    words = [{"text": "one \n two", "start": 0, "end": 1.5}, {"text": " ", "start": 1, "end": 2}]
    words += [{"text": "<three>", "start": 3.25, "end": 3.5, "more": 1}]
    body = {"model": "run", "result": {"words": words, "text": "one two three"}, "form": "srt"}
    answer = httpx.post(f"{address}/api/subtitles", json=body)
    lines = ["1", "00:00:00,000 --> 00:00:01,500", "one two", "", "2"]
    lines += ["00:00:03,250 --> 00:00:03,550", "<three>", "", ""]
    assert answer.json() == {"model": "run", "subtitles": "\n".join(lines)}
    many = {"words": [{"text": "a", "start": one, "end": one} for one in range(5000)]}
    assert httpx.post(f"{address}/api/subtitles", json={**body, "result": many}).status_code == 200
    empty = httpx.post(f"{address}/api/subtitles", json={**body, "result": {"words": []}})
    assert empty.json()["subtitles"] == ""
    for change, said in (
        ({"form": "ass"}, "form"),
        ({"result": {}}, "words: Field required"),
        ({"result": {"words": [words[0], {"text": "a", "start": -1, "end": 2}]}}, "words.1.start"),
        ({"result": {"words": [{"text": "a", "start": 0, "end": "nan"}]}}, "words.0.end"),
        ({"result": {"words": [{"text": "a" * 200_000, "start": 0, "end": 1}]}}, "100,000"),
        ({"result": 3}, "result"),
    ):
        answer = httpx.post(f"{address}/api/subtitles", json={**body, **change})
        assert (answer.status_code, said in answer.text) == (400, True), answer.text


def test_a_recording_in_parts_shows_the_first_and_says_so(
    chromium: Any, folder: Path, address: str, tmp_path: Path
) -> None:
    trace = heedful.load(folder / "run").trace(heard_in(str(folder / "long.wav")))
    export_html(trace, tmp_path / "view.html")
    note = ".heed-trace-note"
    with opened(chromium, (tmp_path / "view.html").as_uri()) as it:
        it.page.wait_for_selector(f"{note} >> text=Only the first")
        assert it.page.inner_text(note) == trace.part
    with opened(chromium, address) as it:
        heard(it, folder / "long.wav")
        assert not it.page.is_visible(note)
        it.tab("heads")
        it.page.wait_for_selector(f"{note} >> text={trace.part}")
        it.tab("predict")
        it.page.wait_for_selector(note, state="hidden")
        heard(it, folder / "one.wav")
        it.tab("steps")
        it.page.wait_for_selector(".heed-token-strip button >> visible=true")
        assert not it.page.is_visible(note)
