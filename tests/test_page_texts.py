"""The page for models of single texts: classifying, tagging, filling in, writing."""

import csv
import io
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
import typer
from starlette.testclient import TestClient
from typer.testing import CliRunner

import heedful
import heedful.serving.server
from heedful.basics.errors import UserError
from heedful.cli import view
from heedful.inference.classifier import Classifier
from heedful.inference.explaining import explain
from heedful.inference.generator import Generator
from heedful.inference.tagger import Tagger
from heedful.inference.trace import Trace
from heedful.serving import Limits, Served, make_application
from language_help import ByteVocabulary
from page_help import needs_browser, opened, pair_trace
from serving_help import running, translator
from test_reading import TAGS, classifier, headed, learnt, other, vocabulary
from test_serving_readers import FILLER, PAIRS, RECITED, SLOW, WRITER
from text_help import RECIPES, write_data

TEXT = "the film was very good and long"
TAGGER = Tagger(headed(), vocabulary(), TAGS, notify=lambda text: None)
FLAT = classifier(other("pooled", hidden_size=8, pooling="mean"))
TREE = classifier(other("hierarchical", word_hidden_size=4, sentence_hidden_size=4))
for parameter in TREE.model.parameters():  # so that sentences differ
    torch.nn.init.normal_(parameter)
MEETING = classifier(other("compared", hidden_size=8, ffn_size=8), pairs=True)
MARKUP = ["<b>bold</b>", "<img src=x onerror='document.title=1'>"]
HOSTILE = Classifier(headed(), vocabulary(), MARKUP, notify=lambda text: None)


def readers() -> list[Served]:
    named: dict[str, Any] = {
        "mood": learnt(),
        "pairs": PAIRS,
        "flat": FLAT,
        "tree": TREE,
        "meeting": MEETING,
        "hostile": HOSTILE,
        "tags": TAGGER,
        "bert": FILLER,
        "gpt": WRITER,
        "recited": RECITED,
        "slow": Generator(SLOW, ByteVocabulary()),
    }
    return [Served(name, one) for name, one in named.items()]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    limits = Limits(characters=2000)
    with running(make_application(readers(), limits=limits)) as one:
        yield one


def classified(it: Any, text: str = TEXT, model: str = "mood") -> None:
    """Types, and waits for the words."""
    it.page.select_option(".heed-classify select", model)
    it.page.fill(".heed-classify textarea >> nth=0", text)
    last = text.split()[-1]
    it.page.wait_for_selector(f".heed-importance-text button:last-child >> text='{last}'")


def measure(it: Any, name: str) -> list[float]:
    """A measure's numbers, as they are saved."""
    it.page.click(f"[role=radio]:text-is('{name}') >> visible=true")
    rows = list(csv.reader(io.StringIO(it.saved("csv").decode())))
    assert rows[1][0] == name
    return [float(cell) for cell in rows[1][1:]]


def bars(it: Any, inside: str) -> dict[str, str]:
    rows = it.page.locator(f"{inside} .heed-bars li")
    names = rows.locator(".heed-bar-label").all_text_contents()
    return dict(zip(names, rows.locator(".heed-number").all_text_contents(), strict=True))


def map_of(trace: Trace, kind: str, query: str, key: str) -> np.ndarray[Any, Any]:
    found = [
        one.weights
        for one in trace.maps
        if (one.kind, one.query_axis, one.key_axis) == (kind, query, key)
    ]
    return np.asarray(found[-1])


def by_words(trace: Trace, row: np.ndarray[Any, Any], axis: str = "text") -> np.ndarray[Any, Any]:
    words = np.array(trace.words[axis])
    return np.bincount(words[words >= 0], row[words >= 0])


@needs_browser()
def test_a_label_and_the_words_that_it_rests_on(chromium: Any, address: str) -> None:
    mood = learnt()
    expected = explain(mood, TEXT)
    with opened(chromium, address) as it:
        classified(it)
        assert it.page.inner_text(".heed-prediction") == "good" == expected.classification.label
        shown = bars(it, ".heed-classify")
        assert list(shown) == list(mood.labels)
        for label, probability in expected.classification.probabilities.items():
            number = re.sub("[^0-9.]", "", shown[label])
            assert float(number) == pytest.approx(probability * 100, abs=0.6)
        words = it.page.locator(".heed-importance-text button")
        assert words.all_text_contents() == TEXT.split()
        assert measure(it, "Effect of removal") == pytest.approx(
            [one.fall for one in expected.words], abs=1e-5
        )
        strength = it.page.eval_on_selector_all(
            ".heed-importance-text button",
            "all => all.map(one => +one.style.getPropertyValue('--strength'))",
        )
        assert int(np.argmax(strength)) == TEXT.split().index("good")
        assert max(strength) == 1
        it.page.wait_for_selector("[role=radio]:text-is('Rollout')")
        assert measure(it, "Attention × gradient") == pytest.approx(
            [one.share or 0 for one in expected.words], abs=1e-5
        )
        trace = mood.trace(TEXT)
        followed = map_of(trace, "rollout", "decision", "text")[-1, 0]
        rolled = by_words(trace, followed)
        assert measure(it, "Rollout") == pytest.approx(rolled.tolist(), abs=0.004)
        read = map_of(trace, "weights", "text", "text").mean(0)[0]
        expected_read = by_words(trace, read).tolist()
        assert measure(it, "Attention") == pytest.approx(expected_read, abs=0.004)
        it.page.hover(".heed-importance-text button >> nth=4")
        said = it.page.inner_text(".heed-importance .heed-readout")
        assert said.startswith("good: without it the probability falls by")
        it.page.click(".heed-bar-button:text-is('bad')")
        it.page.wait_for_selector(".heed-importance h2:has-text('bad')")
        against = explain(mood, TEXT, label="bad")
        assert measure(it, "Effect of removal") == pytest.approx(
            [one.fall for one in against.words], abs=1e-5
        )
        rises = it.page.locator(".heed-importance-text .heed-negative").all_text_contents()
        assert rises == [one.word for one in against.words if one.fall < 0]
        it.page.fill(".heed-classify textarea >> nth=0", " ")
        it.page.wait_for_selector(".heed-importance", state="hidden")
        assert it.page.inner_text(".heed-prediction") == ""


@needs_browser()
def test_heads_of_a_classifier_are_the_model_s(chromium: Any, address: str) -> None:
    with opened(chromium, address) as it:
        classified(it)
        it.tab("heads")
        it.page.wait_for_selector(".heed-legend li")
        trace = learnt().trace(TEXT, relevance=False)
        rows = list(csv.reader(io.StringIO(it.saved("csv").decode())))
        shown = np.array([[float(cell) for cell in row[1:]] for row in rows[1:]])
        weights = trace.maps[-1].weights[0].numpy()
        assert np.abs(shown - weights).max() <= weights.max() / 255 / 2 + 1e-5
        it.page.check("text=Include attention × gradient and rollout")
        option = "option:has-text('Attention × gradient: decision over text')"
        it.page.wait_for_selector(option, state="attached")


@needs_browser()
def test_pairs_have_two_texts(chromium: Any, address: str) -> None:
    with opened(chromium, address) as it:
        for name, model in (("pairs", PAIRS), ("meeting", MEETING)):
            it.page.select_option(".heed-classify select", name)
            it.page.fill("[aria-label='Text to classify']", "the film was long")
            it.page.fill("[aria-label='Second text']", "")
            it.page.wait_for_selector(".heed-importance", state="hidden")
            it.page.wait_for_timeout(500)
            assert it.page.inner_text(".heed-prediction") == ""
            it.page.fill("[aria-label='Second text']", "we saw it")
            it.page.wait_for_selector("[role=radio]:text-is('Attention')")
            expected = explain(model, ("the film was long", "we saw it"))
            assert it.page.inner_text(".heed-prediction") == expected.classification.label
            texts = it.page.locator(".heed-importance-text").all_inner_texts()
            assert texts == ["the film was long", "we saw it"]
            falls = [one.fall for one in expected.words]
            assert measure(it, "Effect of removal") == pytest.approx(falls, abs=1e-5)
            if name == "meeting":  # what each text is read with, by the other
                trace = expected.trace
                first = map_of(trace, "weights", "second", "first").mean(0).mean(0)
                second = map_of(trace, "weights", "first", "second").mean(0).mean(0)
                both = [*by_words(trace, first, "first"), *by_words(trace, second, "second")]
                assert measure(it, "Attention") == pytest.approx(both, abs=0.004)


@needs_browser()
def test_attention_to_words_goes_through_that_to_sentences(chromium: Any, address: str) -> None:
    text = "the film was long and we saw it and very loud"
    with opened(chromium, address) as it:
        classified(it, text, "tree")
        it.page.wait_for_selector("[role=radio]:text-is('Attention')")
        trace = TREE.trace(text, relevance=False)
        words = map_of(trace, "weights", "sentences", "text")[0]
        sentences = map_of(trace, "weights", "hops", "sentences")[0, 0]
        assert max(sentences) > 1.5 / len(sentences)
        expected = by_words(trace, sentences @ words).tolist()
        assert measure(it, "Attention") == pytest.approx(expected, abs=0.006)


@needs_browser()
def test_a_long_text_is_read_in_windows_and_says_so(chromium: Any, address: str) -> None:
    with opened(chromium, address) as it:
        it.page.fill(".heed-classify textarea >> nth=0", "the film was long " * 30)
        it.page.select_option(".heed-classify select", "pairs")
        it.page.select_option(".heed-classify select", "hostile")
        it.page.wait_for_selector("text=longer than the model’s context")
        assert it.page.locator(".heed-importance").is_hidden()
        it.tab("heads")
        assert "windows" in it.page.inner_text(".heed-notice >> visible=true")


@needs_browser()
def test_of_a_text_of_many_words_they_are_left_out_when_asked_for(chromium: Any) -> None:
    roomy = classifier(headed(max_length=100))
    text = "the film was long and we saw it " * 9
    served = make_application([Served("roomy", roomy)])
    with running(served) as address, opened(chromium, address) as it:
        it.page.fill(".heed-classify textarea >> nth=0", text)
        it.page.wait_for_selector("text=Compute the importance of 72 words")
        assert it.page.locator(".heed-importance").is_hidden()
        it.page.click("text=Compute the importance of 72 words")
        it.page.wait_for_selector("[role=radio]:text-is('Rollout')")
        falls = [one.fall for one in explain(roomy, text).words]
        assert measure(it, "Effect of removal") == pytest.approx(falls, abs=1e-5)


@needs_browser()
def test_a_model_without_attention_says_so(chromium: Any, address: str) -> None:
    with opened(chromium, address) as it:
        classified(it, TEXT, "flat")
        assert "without attention" in it.page.inner_text(".heed-detail >> visible=true >> nth=0")
        assert it.page.locator(".heed-importance [role=radio]").count() == 0
        falls = [
            float(one.get_attribute("data-value"))
            for one in it.page.query_selector_all(".heed-importance-text button")
        ]
        assert falls == pytest.approx([one.fall for one in explain(FLAT, TEXT).words], abs=1e-6)
        for panel in ("heads", "alignment", "steps"):
            it.tab(panel)
            it.page.wait_for_selector(".heed-notice:has-text('no attention') >> visible=true")
        assert it.page.locator(".heed-thumbnail").count() == 0


@needs_browser()
def test_words_with_their_tags(chromium: Any, address: str) -> None:
    with opened(chromium, f"{address}#panel=tag&text=it+was+very+long+and+loud") as it:
        it.page.wait_for_selector(".heed-tagged button")
        [expected] = TAGGER.taggings([["it", "was", "very", "long", "and", "loud"]])
        assert len(set(expected.tags)) > 1
        assert it.page.locator(".heed-tagged [dir]").all_text_contents() == list(expected.words)
        assert it.page.locator(".heed-tagged small").all_text_contents() == list(expected.tags)
        it.page.hover(".heed-tagged button >> nth=1")
        said = it.page.inner_text(".heed-tag .heed-readout")
        assert said.startswith(f"was: {expected.tags[1]}, {expected.probabilities[1] * 100:.0f} %")
        it.tab("heads")
        it.page.wait_for_selector(".heed-legend li")


@needs_browser()
def test_hidden_places_and_their_candidates(chromium: Any, address: str) -> None:
    text = "the [MASK] was very [MASK]"
    with opened(chromium, f"{address}#panel=fill") as it:
        it.page.fill(".heed-fill textarea", text)
        it.page.wait_for_selector(".heed-masks [role=group] >> nth=1")
        expected = FILLER.fill(text, 6)
        shown = it.page.locator(".heed-masks .heed-bar-label").all_text_contents()
        assert shown == [one.word.strip() for place in expected.masks for one in place]
        assert it.page.inner_text(".heed-fill .heed-text") == expected.text
        it.page.click("[aria-label='Mask 2'] button >> nth=2")
        taken = expected.masks[1][2].word.strip()
        half = f"the [MASK] was very {taken}"
        assert it.page.input_value(".heed-fill textarea") == half
        it.page.wait_for_selector("[aria-label='Mask']")
        again = FILLER.fill(half, 6)
        assert it.page.inner_text(".heed-fill .heed-text") == again.text
        it.page.click("text=Undo")
        it.page.wait_for_selector("[aria-label='Mask 2']")
        assert it.page.input_value(".heed-fill textarea") == text
        it.page.fill(".heed-fill textarea", "the film was long")
        it.page.wait_for_selector("text=The text has no mask")
        it.page.eval_on_selector(".heed-fill textarea", "one => one.setSelectionRange(6, 6)")
        it.page.click("text=Mask the word at the cursor")
        assert it.page.input_value(".heed-fill textarea") == "the [MASK] was long"
        it.page.wait_for_selector(".heed-masks button")
        it.tab("heads")
        it.page.wait_for_selector(".heed-legend li")


@needs_browser()
def test_writing_is_shown_while_it_is_written(chromium: Any, address: str) -> None:
    with opened(chromium, f"{address}#panel=write") as it:
        it.page.select_option(".heed-write select >> nth=0", "recited")
        it.page.select_option("label:has-text('Decoding') select", "greedy")
        it.page.fill("label:has-text('Stop at') input", "d")
        it.page.fill("[aria-label=Prompt]", "x")
        it.page.press("[aria-label=Prompt]", "Control+Enter")
        it.page.wait_for_selector("text=stopped at the string")
        assert it.page.text_content(".heed-continuation") == "ab ☃ c"
        assert it.page.text_content(".heed-prompt") == "x"
        it.page.select_option(".heed-write select >> nth=0", "slow")
        it.page.fill("label:has-text('Stop at') input", "")
        it.page.fill("label:has-text('Token limit') input", "600")
        it.page.click(".heed-submit")
        it.page.wait_for_function(
            "() => document.querySelector('.heed-continuation').textContent.length > 5"
        )
        assert it.page.inner_text(".heed-submit") == "Stop"
        it.page.click(".heed-submit")
        it.page.wait_for_selector("text=Stopped")
        ended = time.monotonic() + 10
        while (steps := SLOW.steps) < 400 and time.monotonic() < ended:
            time.sleep(0.15)
            if SLOW.steps == steps:  # the server has noticed that nobody waits
                break
        assert SLOW.steps == steps < 400
        assert 5 < len(it.page.text_content(".heed-continuation")) < 400
        it.page.fill("label:has-text('Token limit') input", "0")
        it.page.click(".heed-submit")
        it.page.wait_for_selector(".heed-notice:has-text('Token limit')")


@needs_browser()
def test_what_was_written_has_causal_heads(chromium: Any, address: str) -> None:
    with opened(chromium, f"{address}#panel=write") as it:
        asked: list[dict[str, Any]] = []
        it.page.on(
            "request",
            lambda one: asked.append(one.post_data_json) if "generate" in one.url else None,
        )
        it.page.select_option(".heed-write select >> nth=0", "gpt")
        for name, value in {
            "Temperature": "0.8",
            "Top k": "9",
            "Top p": "0.9",
            "Seed": "5",
        }.items():
            it.page.fill(f"label:has-text('{name}') input", value)
        it.page.fill("label:has-text('Token limit') input", "12")
        it.page.fill("[aria-label=Prompt]", "ab")
        it.page.click(".heed-submit")
        it.page.wait_for_selector(".heed-write >> text=log-probability")
        drawing = {"temperature": 0.8, "top_k": 9, "top_p": 0.9, "seed": 5}
        whole = {"model": "gpt", "prompt": "ab", "begins": False, "max_tokens": 12, **drawing}
        assert asked == [whole]
        written = str(it.page.text_content(".heed-continuation"))
        assert "seed 5" in it.page.inner_text(".heed-output >> visible=true")
        it.page.click("text=Show attention")
        it.page.wait_for_selector(".heed-legend li")
        trace = Served("gpt", WRITER).trace("ab", written, relevance=False)
        rows = list(csv.reader(io.StringIO(it.saved("csv").decode())))
        shown = np.array([[float(cell) for cell in row[1:]] for row in rows[1:]])
        assert np.abs(shown - trace.maps[-1].weights[0].numpy()).max() <= 0.003
        assert np.triu(shown, 1).max() == 0


def test_the_end_of_a_text_longer_than_the_context_is_looked_at() -> None:
    one = Served("gpt", WRITER)
    prompt, written = "a ☃ b" * 8, "écrit " * 9
    with pytest.raises(UserError, match="more than the model"):
        one.trace(prompt, written)
    trace = one.trace(prompt, written, relevance=False, latest=True)
    assert 56 <= len(trace.axes["text"]) <= WRITER.max_length
    assert (prompt + written).endswith(trace.title)
    assert trace.axes["text"].labels[0] != "<s>"
    both = [one.trace("ab", "cd", latest=latest).axes for latest in (True, False)]
    assert both[0] == both[1]
    begun = one.trace("ab", "cd", begins=True, latest=True, relevance=False)
    assert begun.axes["text"].labels == ["<s>", "a", "b", "c", "d"]
    with pytest.raises(UserError, match="leave latest out"):
        Served("tags", TAGGER).trace("the film", latest=True)


def test_what_the_api_tells_beside(address: str) -> None:
    facts = {one["name"]: one for one in httpx.get(f"{address}/api/models").json()["readers"]}
    assert facts["bert"]["masks"][0] == "[MASK]"
    given = {"model": "pairs", "text": "the film", "second": "it was", "explain": True}
    first = httpx.post(f"{address}/api/classify", json=given).json()["results"][0]
    assert (first["first_words"], len(first["words"])) == (2, 4)
    given = {"model": "mood", "text": TEXT, "explain": True, "label": "bad"}
    found = httpx.post(f"{address}/api/classify", json=given).json()["results"][0]
    expected = explain(learnt(), TEXT, label="bad").to_json()["words"]
    assert found["words"] == json.loads(json.dumps(expected))
    for more, said in (
        ({"label": "none such"}, "unknown label"),
        ({"explain": False}, "set explain"),
    ):
        answer = httpx.post(f"{address}/api/classify", json={**given, **more})
        assert answer.status_code == 400
        assert said in answer.json()["error"]
    for more in ({"begins": True}, {"latest": True}):
        answer = httpx.post(f"{address}/api/trace", json={"model": "tags", "source": "it", **more})
        assert (answer.status_code, f"leave {next(iter(more))} out" in answer.text) == (400, True)


@needs_browser()
def test_markup_stays_text(chromium: Any, address: str) -> None:
    with opened(chromium, address) as it:
        text = "<b>it</b> <img src=x> film"
        it.page.select_option(".heed-classify select", "hostile")
        it.page.fill(".heed-classify textarea >> nth=0", text)
        it.page.wait_for_selector(".heed-importance-text button")
        assert it.page.inner_text(".heed-prediction") in HOSTILE.labels
        assert list(bars(it, ".heed-classify")) == list(HOSTILE.labels)
        it.tab("tag")
        it.page.fill(".heed-tag textarea", text)
        it.page.wait_for_selector(".heed-tagged button")
        assert it.page.locator(".heed-tagged [dir]").all_text_contents() == text.split()
        it.tab("fill")
        it.page.fill(".heed-fill textarea", f"{text} [MASK]")
        it.page.wait_for_selector(".heed-masks button")
        it.tab("write")
        it.page.fill("[aria-label=Prompt]", text)
        it.page.fill("label:has-text('Token limit') input", "3")
        it.page.click(".heed-submit")
        it.page.wait_for_selector(".heed-write >> text=log-probability")
        assert it.page.text_content(".heed-prompt") == text
        assert it.page.locator("main img, main b").count() == 0
        assert it.page.title() == "heedful"


@needs_browser()
def test_by_keyboard_alone(chromium: Any, address: str) -> None:
    with opened(chromium, address) as it:
        keys = it.page.keyboard

        def until(selector: str) -> None:
            for _ in range(40):
                if it.page.evaluate("one => document.activeElement.matches(one)", selector):
                    return
                keys.press("Tab")
            pytest.fail(f"Tab does not reach {selector}")

        until("textarea")
        keys.type(TEXT)
        it.page.wait_for_selector("[role=radio]:text-is('Rollout')")
        until(".heed-bar-button[aria-pressed=true]")
        keys.press("ArrowDown")
        keys.press("Enter")
        it.page.wait_for_selector(".heed-importance h2:has-text('bad')")
        assert it.page.evaluate("document.activeElement.textContent") == "bad"
        until(".heed-importance [role=radio]")
        keys.press("ArrowRight")
        it.page.wait_for_selector(".heed-importance-text[aria-label*='gradient']")
        until(".heed-importance-text button")
        keys.press("ArrowRight")
        assert it.page.inner_text(".heed-importance .heed-readout").startswith("film: ")
        label = it.page.evaluate("document.activeElement.getAttribute('aria-label')")
        assert label.startswith("film: attention × gradient 0.")


@needs_browser()
def test_back_brings_what_was_typed(chromium: Any, address: str) -> None:
    models = [Served("one", translator(seed=1), "en", "de")]
    both = make_application([*models, *readers()[:1]])
    with running(both) as address, opened(chromium, f"{address}#text=the+cat") as it:
        it.page.wait_for_selector(".heed-target .heed-word")
        it.page.fill(".heed-translate textarea", "the red dog")
        it.tab("classify")
        classified(it)
        it.page.wait_for_timeout(500)
        assert "the+cat" in it.page.url
        it.page.goto("about:blank")
        it.page.go_back()
        it.page.wait_for_selector(".heed-importance-text button")
        assert it.page.get_attribute("[data-panel=classify]", "aria-selected") == "true"
        assert it.page.input_value(".heed-classify textarea >> nth=0") == TEXT
        it.page.reload()
        it.tab("translate")
        assert it.page.input_value(".heed-translate textarea") == "the red dog"
        it.page.wait_for_selector(".heed-target .heed-word")


@needs_browser()
def test_what_was_written_comes_back_too(chromium: Any, address: str) -> None:
    with opened(chromium, f"{address}#panel=write&text=x") as it:  # is written on at once
        it.page.wait_for_selector(".heed-write >> text=log-probability")
        written = it.page.text_content(".heed-continuation")
        assert written
        it.page.fill("label:has-text('Seed') input", "77")
        it.page.fill("[aria-label=Prompt]", "another")
        it.page.wait_for_timeout(500)
        it.page.goto("about:blank")
        it.page.go_back()
        it.page.wait_for_selector(".heed-continuation")
        assert it.page.text_content(".heed-prompt") == "x"
        assert it.page.text_content(".heed-continuation") == written
        assert it.page.input_value("[aria-label=Prompt]") == "another"
        assert it.page.input_value("label:has-text('Seed') input") == "77"
        it.tab("heads")
        it.page.wait_for_selector(".heed-legend li")
    with opened(chromium, f"{address}#panel=write&text=ab&second=cd") as it:
        assert it.page.text_content(".heed-generated") == "abcd"
        it.tab("steps")
        it.page.wait_for_selector(".heed-readout:has-text('Step 1 of 4')")


@needs_browser()
def test_comparing_begins_with_what_fits(chromium: Any) -> None:
    models = [
        Served("en-de", translator(seed=1), "en", "de"),
        Served("fr-de", translator(seed=2), "fr", "de"),
        Served("en-fr", translator(seed=6), "en", "fr"),
    ]
    own = {"mood": learnt(), "flat": FLAT, "gpt": WRITER}
    made = make_application(
        [*models, *(Served(name, one) for name, one in own.items())],
        traces={"kept": pair_trace()},
    )

    def sides() -> list[str]:
        values = it.page.eval_on_selector_all(
            ".heed-side", "all => all.map(one => one.querySelector('select').value)"
        )
        return [str(value) for value in values]

    with running(made) as address, opened(chromium, address) as it:
        it.page.fill(".heed-translate textarea", "the cat")
        it.page.wait_for_selector(".heed-target .heed-word")
        it.tab("compare")
        assert sides() == ["model:en-de", "model:en-fr"]
        it.tab("classify")
        classified(it)
        it.tab("compare")
        assert sides() == ["model:mood", "model:flat"]
        it.page.wait_for_selector(".heed-side:nth-child(1) .heed-sentence:text-is('good')")
        it.page.wait_for_selector(".heed-side:nth-child(2) .heed-notice:has-text('no attention')")
        it.page.select_option(".heed-side:nth-child(2) select >> nth=0", "trace:kept")
        it.page.wait_for_selector(".heed-side:nth-child(2) >> text=Der kleine Hund schläft.")
        it.tab("classify")
        it.tab("compare")
        assert sides() == ["model:mood", "trace:kept"]


def test_a_run_of_single_texts_is_viewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the page is served with, and which address is opened."""
    write_data(tmp_path)
    assert heedful.train(RECIPES["pairs"], tmp_path / "run", data=tmp_path)
    pair_trace().save(tmp_path / "kept.safetensors")
    served: list[Any] = []
    monkeypatch.setattr(heedful.serving, "run_server", lambda app, **how: served.append((app, how)))
    # It would end the process, since nothing has ended the engine.
    monkeypatch.setattr(heedful.serving.server, "end_command", lambda app: None)
    app = typer.Typer()
    app.callback()(lambda: None)
    view.register(app)

    def call(*more: str) -> Any:
        command = ["view", str(tmp_path / "run"), "--no-browser", *more]
        return CliRunner().invoke(app, command).exception

    assert call("--with", str(tmp_path / "kept.safetensors")) is None
    [(application, how)] = served
    assert how["what"] == "run, kept"
    with TestClient(application, base_url="http://127.0.0.1") as client:
        found = client.get("/api/models").json()
        assert [one["name"] for one in found["readers"]] == ["run"]
        assert found["traces"] == ["kept"]
        given = {"text": "the red dog", "second": "a cat sees"}
        assert client.post("/api/classify", json=given).json()["results"][0]["label"]
    assert call("the red dog", "--target", "a cat") is None
    assert "needs TEXT" in str(call("--target", "a cat"))
    assert "needs a text" in str(call("--output", str(tmp_path / "x.html")))
