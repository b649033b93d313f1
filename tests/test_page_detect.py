"""The page for replaced tokens, and for words predicted in both directions."""

import math
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import torch

from heedful.data.vocabularies import separators_of
from heedful.models.bert import Bert, BertSettings
from heedful.models.electra import ReplacedTokens, generator_settings
from heedful.models.elmo import Elmo, ElmoSettings
from heedful.models.encoders import HeadedEncoder
from heedful.serving import Served, make_application
from heedful.tasks.bidirectional.head import UNKNOWN_WORD
from heedful.tasks.bidirectional.predictor import WordPredictor
from heedful.tasks.bidirectional.training import WordOutput
from heedful.tasks.replaced.predictor import DetectReplaced
from page_help import needs_browser, opened
from serving_help import running
from test_reading import vocabulary

TEXT = "it was very long and good"


def detector() -> DetectReplaced:
    """A discriminator of random weights, and a context of 12 tokens."""
    settings = BertSettings(layers=1, hidden_size=16, ffn_size=16, heads=2, max_length=12)
    encoder = Bert(settings, vocabulary().size)
    head = ReplacedTokens(encoder, generator_settings(settings, 0.5, None))
    model = HeadedEncoder(encoder, {"replaced": head}).eval()
    torch.manual_seed(3)  # probabilities on both sides of a half
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    return DetectReplaced(model, vocabulary(), notify=lambda text: None)


def words() -> WordPredictor:
    """An ELMo of random weights that knows three words."""
    settings = ElmoSettings(
        character_size=4, filters=((1, 4), (2, 4)), layers=1, hidden_size=8, projection_size=8
    )
    own = vocabulary("characters")
    torch.manual_seed(1)
    encoder = Elmo(settings, own.size, separators_of(own))
    head = WordOutput(encoder.direction_dim, UNKNOWN_WORD + 1 + 3, 0.0)
    model = HeadedEncoder(encoder, {"bidirectional": head}).eval()
    return WordPredictor(model, own, ["it", "was", "long"], notify=lambda text: None)


DETECTOR = detector()
WORDS = words()


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with running(make_application([Served("spotted", DETECTOR), Served("elmo", WORDS)])) as one:
        yield one


def test_the_panel_is_declared(address: str) -> None:
    found = httpx.get(f"{address}/api/models").json()
    assert found["panels"] == [
        {"name": "words", "title": "Words", "models": ["elmo"]},
        {"name": "detect", "title": "Detect", "models": ["spotted"]},
    ]


@needs_browser()
def test_tokens_with_the_probability_that_they_were_replaced(chromium: Any, address: str) -> None:
    [expected] = DETECTOR.detect([TEXT])
    marked = [
        token
        for token, probability in zip(expected.tokens, expected.probabilities, strict=True)
        if probability > 0.5
    ]
    assert 0 < len(marked) < len(expected.tokens)
    with opened(chromium, f"{address}#panel=detect&text={TEXT.replace(' ', '+')}") as it:
        it.page.wait_for_selector(".heed-tagged button")
        assert it.page.locator(".heed-tagged [dir]").all_text_contents() == list(expected.tokens)
        assert it.page.locator(".heed-marked [dir]").all_text_contents() == marked
        percents = [f"{probability * 100:.0f} %" for probability in expected.probabilities]
        assert it.page.locator(".heed-tagged small").all_text_contents() == percents
        it.page.hover(".heed-tagged button >> nth=1")
        said = it.page.inner_text(".heed-detect .heed-readout")
        assert said == f"{expected.tokens[1]}: replaced with probability {percents[1]}"
        it.tab("heads")
        it.page.wait_for_selector(".heed-legend li")


@needs_browser()
def test_a_long_text_is_read_and_has_no_attention(chromium: Any, address: str) -> None:
    text = " ".join([TEXT] * 3)
    with opened(chromium, f"{address}#panel=detect") as it:
        it.page.fill(".heed-detect textarea", text)
        it.page.wait_for_selector(".heed-tagged button")
        count = len(DETECTOR.detect([text])[0].tokens)
        assert it.page.locator(".heed-tagged button").count() == count
        it.tab("heads")
        it.page.wait_for_selector("text=longer than the model’s context")
        it.tab("detect")
        it.page.fill(".heed-detect textarea", "")
        it.page.wait_for_selector(".heed-tagged button", state="detached")


@needs_browser()
def test_words_with_their_probabilities_in_both_directions(chromium: Any, address: str) -> None:
    [expected] = WORDS.predict([TEXT])
    labels = [
        f"{percent(math.exp(before))} · {percent(math.exp(after))}"
        for before, after in zip(expected.forward, expected.backward, strict=True)
    ]
    unknown = [
        word for word, known in zip(expected.words, expected.known, strict=True) if not known
    ]
    assert unknown == ["very", "and", "good"]
    with opened(chromium, f"{address}#panel=words&text={TEXT.replace(' ', '+')}") as it:
        it.page.wait_for_selector(".heed-words .heed-tagged button")
        assert it.page.locator(".heed-words .heed-tagged [dir]").all_text_contents() == TEXT.split()
        assert it.page.locator(".heed-words .heed-tagged small").all_text_contents() == labels
        assert it.page.locator(".heed-words .heed-marked [dir]").all_text_contents() == unknown
        it.page.hover(".heed-words .heed-tagged button >> nth=2")
        said = it.page.inner_text(".heed-words .heed-readout")
        before, _, after = labels[2].partition(" · ")
        assert said.startswith(
            f"very: {before} given the words before it, {after} given those after"
        )
        it.tab("heads")
        it.page.wait_for_selector("text=this model has no attention")


def percent(share: float) -> str:
    """As the page writes it."""
    return f"{share * 100:.0f} %"
