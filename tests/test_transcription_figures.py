"""Transcription without a trained model: error rates, times of words, cuts, and a second model."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from heedful.basics.symbols import BEGIN, END
from heedful.data.listed_vocabularies import Characters, ListedSettings, Words
from heedful.data.readers.sounds import Sound, quiet_cuts
from heedful.decoding import ShallowFusion
from heedful.models import TensorState
from heedful.tasks.transcription.errors import edit_distance, error_figures
from heedful.tasks.transcription.subtitles import subtitles
from heedful.tasks.transcription.word_times import Word, words_at


def brute(first: tuple[Any, ...], second: tuple[Any, ...]) -> int:
    if not first or not second:
        return len(first) + len(second)
    if first[0] == second[0]:
        return brute(first[1:], second[1:])
    return 1 + min(brute(first[1:], second), brute(first, second[1:]), brute(first[1:], second[1:]))


def test_edit_distances_are_those_of_the_definition() -> None:
    rng = np.random.default_rng(3)
    for _ in range(60):
        first, second = (tuple(rng.integers(3, size=rng.integers(6)).tolist()) for _ in range(2))
        assert edit_distance(first, second) == brute(first, second)


def test_error_rates_are_of_all_words_together() -> None:
    figures = error_figures(["yes no", "no", ""], ["yes yes no", "no", "no yes"])
    assert figures["word error"].value == pytest.approx(100 * 3 / 6)
    assert not figures["word error"].rises
    assert figures["character error"].value == pytest.approx(100 * (4 + 6) / (10 + 2 + 6))
    assert figures["exact"].value == pytest.approx(100 / 3)


def test_words_of_characters_last_to_their_last_character() -> None:
    it = Characters([*"abc "], ListedSettings())
    tokens = it.encode("ab  c")
    found = words_at(it, tokens, [1, 3, 4, 5, 7], 0.1)
    assert [word.text for word in found] == ["ab", "c"]
    assert [(word.start, word.end) for word in found] == [
        pytest.approx((0.1, 0.4)),
        pytest.approx((0.7, 0.8)),
    ]
    words = Words(["yes", "no"], ListedSettings())
    assert words_at(words, words.encode("no yes"), [2, 2], 0.5) == [
        Word("no", 1.0, 1.5),
        Word("yes", 1.0, 1.5),
    ]


def test_cues_end_at_pauses_and_when_they_are_long() -> None:
    words = [Word("a" * 20, 0, 1), Word("b" * 20, 1, 2), Word("c", 2, 3), Word("d", 5, 5.01)]
    lines = subtitles(words, "srt")
    assert lines[1::4] == [
        "00:00:00,000 --> 00:00:02,000",
        "00:00:02,000 --> 00:00:03,000",
        "00:00:05,000 --> 00:00:05,300",
    ]
    assert subtitles([Word("x", 3599.9996, 3661)], "vtt")[3] == "01:00:00.000 --> 01:01:01.000"
    assert subtitles([], "vtt") == ["WEBVTT", ""]
    near = [Word("a", 0, 0.01), Word("b" * 42, 0.02, 1)]  # a cue ends before the next begins
    assert subtitles(near, "srt")[1::4] == [
        "00:00:00,000 --> 00:00:00,020",
        "00:00:00,020 --> 00:00:01,000",
    ]
    marks = [Word("a<b>&-->", 0, 1)]
    assert subtitles(marks, "vtt")[4] == "a&lt;b&gt;&amp;--&gt;"
    assert subtitles(marks, "srt")[2] == "a<b>&-->"


def test_cuts_are_where_it_is_quiet() -> None:
    rate, rng = 100, np.random.default_rng(1)
    samples = rng.standard_normal(1000).astype(np.float32)
    samples[270:290] = samples[520:540] = 0
    cuts = quiet_cuts(Sound(samples, rate), longest=3.0)
    assert 270 <= cuts[0] < 290
    assert 520 <= cuts[1] < 540
    edges = [0, *cuts, 1000]
    assert max(b - a for a, b in itertools.pairwise(edges)) <= 300
    assert quiet_cuts(Sound(samples, rate), longest=10.0) == []
    silent = quiet_cuts(Sound(np.zeros(1000, np.float32), rate), 0.01)
    assert len(silent) == 999


class Counting:
    """A language model of bigrams: after each token, only the next one in a cycle is likely."""

    def __init__(self, size: int) -> None:
        self.size = size

    def start(self, prompts: torch.Tensor) -> TensorState:
        return TensorState(seen=torch.zeros(len(prompts)))

    def step(self, tokens: torch.Tensor, state: TensorState) -> tuple[torch.Tensor, TensorState]:
        return F.one_hot((tokens + 1) % self.size, self.size).double(), state


def test_fused_probabilities_are_the_products() -> None:
    torch.manual_seed(1)
    logits = torch.randn(2, 6).double()

    class Fixed:
        def start(self, source: Any) -> TensorState:
            return TensorState(row=torch.arange(2))

        def step(self, tokens: torch.Tensor, state: TensorState) -> Any:
            return logits, state

    theirs = torch.tensor([0, 1, 2, 3, 5, 4])
    fused = ShallowFusion(Fixed(), Counting(6), theirs, 0.5)
    begin = torch.tensor([BEGIN, BEGIN])
    found, state = fused.step(begin, fused.start(None))
    language = F.one_hot(torch.tensor(END + 1), 6).double().log_softmax(0)
    expected = (logits.log_softmax(1) + 0.5 * language[[0, 1, END, 3, 5, 4]]).log_softmax(1)
    torch.testing.assert_close(found.double(), expected, atol=1e-6, rtol=1e-6)
    later, _ = fused.step(torch.tensor([4, 5]), state.select(torch.tensor([0, 1])))
    # Their tokens are 5 and 4; after 5 comes 0, after 4 comes 5, which is our 4.
    assert int((later.double() - logits.log_softmax(1))[0].argmax()) == 0
    assert int((later.double() - logits.log_softmax(1))[1].argmax()) == 4
    with pytest.raises(ValueError, match="at least 0"):
        ShallowFusion(Fixed(), Counting(6), theirs, -0.1)
