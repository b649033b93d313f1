"""The engine: whole texts, order, fairness, failures, cancelled requests, a full queue."""

import re
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import wait
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.basics.errors import UserError
from heedful.data.tokeniser import Tokenisers
from heedful.decoding import SearchOptions
from heedful.inference import Translation, Translator, WordAlignment
from heedful.inference.texts import join_translations, split_into_parts
from heedful.serving.engine import Engine, QueueFullError
from serving_help import COUNTER, Held, Shown, sentences, translator


class Watched(Translator):
    """Notes which texts went together, and what steps there were when; waits at a gate; fails at a
    word."""

    def __init__(self, models: Any, tokenisers: Tokenisers, **given: Any) -> None:
        super().__init__(models, tokenisers, **given)
        self.slices: list[list[str]] = []
        self.gate = threading.Event()
        self.gate.set()

    def translate(self, texts: Iterable[str], *args: Any, **given: Any) -> list[Translation]:
        texts = list(texts)
        self.note(texts)
        return super().translate(texts, *args, **given)

    def translate_running(self, texts: Any, **given: Any) -> Any:
        return super().translate_running(Shown(texts, self.note), **given)

    def note(self, texts: list[str]) -> None:
        self.slices.append(texts)
        self.gate.wait(10)
        if any("poison" in text for text in texts):
            raise RuntimeError("cannot")


def watched(**given: Any) -> Watched:
    found = translator(Watched, **given)
    assert isinstance(found, Watched)
    return found


def texts_of(found: Sequence[Translation]) -> list[str]:
    return [one.text for one in found]


@settings(max_examples=60, deadline=None)
@given(
    st.text(alphabet="abA .,!。\n\r\t\u2028é", max_size=80),
    st.integers(8, 16),
    st.sampled_from([None, "en", "zh", "xx"]),
)
def test_a_cut_text_is_the_text(text: str, limit: int, language: str | None) -> None:
    cut = split_into_parts(text, COUNTER(limit), limit, language)
    assert "".join(before + own for before, own in cut.parts) + cut.after == text
    assert all(length <= limit for length in cut.lengths)
    assert all(part.text and not re.search("[\r\n]", part.text) for part in cut.parts)
    same = [Translation(part.text, part.text) for part in cut.parts]
    joined = join_translations(cut, same, exponent=1.0).text
    # Between sentences without white space there may be a space now.
    assert joined == text or (language and joined.replace(" ", "") == text.replace(" ", ""))


@pytest.mark.parametrize(
    ("text", "language", "written", "joined"),
    [
        ("AAAAAAA.\u2028", None, None, None),
        ("AAAAAAA.AAAAAAA", None, None, None),
        ("你好！再见。", "zh", ["Hello!", "Goodbye."], "Hello! Goodbye."),
        ("你好!再见!", "zh", ["Hello!", "Goodbye!"], "Hello! Goodbye!"),
    ],
)
def test_a_space_is_added_only_where_a_script_has_none(
    text: str, language: str | None, written: list[str] | None, joined: str | None
) -> None:
    cut = split_into_parts(text, COUNTER(8), 8, language)
    assert len(cut.parts) > 1
    own = written or [part.text for part in cut.parts]
    if written and len(written) != len(cut.parts):
        cut = split_into_parts(text, COUNTER(99), 99, language)
    same = [Translation(part.text, one) for part, one in zip(cut.parts, own, strict=True)]
    assert join_translations(cut, same, exponent=1.0).text == (joined or text)


def test_no_text_takes_the_square_of_its_length_to_cut() -> None:
    began = time.perf_counter()
    texts = (" " * 39_999 + "a", "a" * 40_000, ". " * 20_000, "\n" * 40_000, "a\n" * 20_000)
    for text, language in product(texts, (None, "en")):
        cut = split_into_parts(text, COUNTER(511), 511, language)
        assert "".join(before + own for before, own in cut.parts) + cut.after == text
    assert time.perf_counter() - began < 12


@pytest.mark.parametrize(
    ("language", "text", "parts"),
    [
        ("en", "Dr. Smith slept.  He was tired, e.g. at 5 p.m. here!", [16, 34]),
        ("de", " Am 5. Mai kam Dr. Müller. Er ging. ", [26, 9]),
        ("zh", "你好。再见！", [3, 3]),
        ("en", "one sentence", [12]),
        ("en", "Two.\nlines. Here.", [4, 6, 5]),
    ],
)
def test_sentences_end_as_the_language_has_it(language: str, text: str, parts: list[int]) -> None:
    cut = split_into_parts(text, COUNTER(400), 400, language)
    assert [len(part.text) for part in cut.parts] == parts
    assert "".join(before + own for before, own in cut.parts) + cut.after == text


def test_sentences_without_spaces_get_one_where_they_need_it() -> None:
    cut = split_into_parts("你好。再见！", COUNTER(400), 400, "zh")
    soft = [WordAlignment(torch.ones(1, 1)), WordAlignment(torch.ones(1, 1))]
    made = [Translation("", t, alignment=a) for t, a in zip(("Hello.", "Bye!"), soft, strict=True)]
    joined = join_translations(cut, made, exponent=1.0)
    assert joined.text == "Hello. Bye!"
    assert joined.alignment is not None
    assert joined.alignment.soft.shape == (2, 1)
    other = [Translation("", "ごはん。"), Translation("", "さようなら！")]
    assert join_translations(cut, other, exponent=1.0).text == "ごはん。さようなら！"


def test_a_long_line_in_parts_is_what_the_translator_makes_of_it() -> None:
    model = translator(max_length=24)
    text = " ".join(sentences(12))
    options = SearchOptions(beam=3, nbest=2)
    [whole] = model.translate([text], options=options, alignments=True)
    assert whole.parts > 1
    cut = split_into_parts(
        text, model.protection.counter(model.max_length - 1), model.max_length - 1
    )
    found = model.translate([part.text for part in cut.parts], options=options, alignments=True)
    joined = join_translations(cut, found, exponent=options.length_penalty)
    assert joined.text == whole.text
    assert joined.score == pytest.approx(whole.score, abs=1e-5)
    assert joined.tokens == whole.tokens
    assert [one.text for one in joined.alternatives] == [one.text for one in whole.alternatives]
    assert joined.alignment is not None
    assert whole.alignment is not None
    torch.testing.assert_close(joined.alignment.soft, whole.alignment.soft)


def test_lines_and_empty_ones_stay() -> None:
    model = translator()
    one, two = texts_of(model.translate(["the cat.", "a dog."]))
    engine = Engine()
    try:
        texts = ["the cat.\r\n\n a dog.\n ", "", "\n", "the cat."]
        found = engine.translate(model, texts).result(20)
        assert texts_of(found)[1:] == ["", "\n", one]
        [led] = texts_of(model.translate([" a dog."]))
        assert found[0].text == f"{one}\r\n\n{led}\n "
        assert two
    finally:
        engine.close()


def test_no_answer_is_lost_or_crossed_among_many_threads() -> None:
    model, other = translator(), translator(seed=2)
    texts = sentences(60, seed=9)
    right = {id(one): texts_of(one.translate(texts)) for one in (model, other)}
    engine = Engine()
    try:
        futures = [
            (one, i, engine.translate(one, [texts[i], texts[(i + 7) % 60]]))
            for i in range(60)
            for one in (model, other)
        ]
        for one, i, future in futures:
            expected = [right[id(one)][i], right[id(one)][(i + 7) % 60]]
            assert texts_of(future.result(60)) == expected
    finally:
        engine.close()


def test_requests_go_together_and_a_huge_one_does_not_starve_a_small_one() -> None:
    model = watched(batch_tokens=300)
    engine = Engine()
    try:
        model.gate.clear()
        huge = engine.translate(model, sentences(80))
        time.sleep(0.05)
        small = engine.translate(model, ["the small dog."])
        model.gate.set()
        small.result(20)
        assert not huge.done()
        assert any("the small dog." in texts for texts in model.slices[:3])
        assert len(huge.result(60)) == 80
    finally:
        engine.close()


def test_a_request_that_is_cancelled_leaves_the_search() -> None:
    model = translator(max_length=400)
    steps, engine = Held(model), Engine()
    try:
        long = engine.translate(model, sentences(6), options=SearchOptions(forced_length=150))
        assert steps.began.wait(20)
        other = SearchOptions(beam=1, forced_length=10)
        short = engine.translate(model, ["a red cat."], options=other)
        assert long.cancel()
        steps.more.set()
        assert short.result(60)
        assert steps.count < 20
    finally:
        engine.close()


def test_a_short_request_enters_a_search_that_runs() -> None:
    """It is answered while what was there before it is still under way: counted in steps."""
    model = translator(max_length=400)
    texts, options = sentences(6), SearchOptions(beam=2, forced_length=150)
    expected = texts_of(model.translate(["the small dog."], options=options))
    expected += texts_of(model.translate(texts, options=options))
    steps, engine = Held(model), Engine()
    try:
        long = engine.translate(model, texts, options=options)
        assert steps.began.wait(20)
        short = engine.translate(model, ["the small dog."], options=options)
        gone = engine.translate(model, ["a red cat."], options=options)
        other = engine.translate(model, ["a red cat."], options=SearchOptions(beam=1))
        assert gone.cancel()
        steps.more.set()
        found, late = short.result(60), long.result(60)
        assert steps.count < 250  # one after the other they would be 300
        assert other.result(60)
        assert texts_of(found) == expected[:1]
        assert texts_of(late) == expected[1:]
    finally:
        engine.close()


def test_only_the_guilty_request_fails() -> None:
    model = watched()
    engine = Engine(gather=0.1)
    try:
        good = [engine.translate(model, [text]) for text in sentences(5)]
        bad = engine.translate(model, ["the cat.", "poison"])
        more = [engine.translate(model, [text]) for text in sentences(5)]
        with pytest.raises(RuntimeError, match="cannot"):
            bad.result(20)
        expected = texts_of(translator().translate(sentences(5)))
        assert [future.result(20)[0].text for future in good] == expected
        assert [future.result(20)[0].text for future in more] == expected
        with pytest.raises(UserError, match="Unicode"):
            engine.translate(model, ["\ud800"]).result(20)
        assert engine.waiting == 0
    finally:
        engine.close()


def test_a_full_queue_refuses_and_a_cancelled_request_makes_room() -> None:
    model = watched()
    engine = Engine(queue=3, gather=0.0)
    try:
        model.gate.clear()
        futures = [engine.translate(model, ["the cat."]) for _ in range(3)]
        with pytest.raises(QueueFullError) as refused:
            engine.translate(model, ["a dog."])
        assert 1 <= refused.value.retry_after <= 60
        assert futures[2].cancel()
        last = engine.translate(model, ["a red dog."])
        model.gate.set()
        assert last.result(20)
        wait(futures[:2], 20)
        assert engine.waiting == 0
        done = [text for texts in model.slices for text in texts]
        assert done.count("the cat.") == 2
    finally:
        engine.close()


def test_other_work_goes_through_the_same_thread() -> None:
    engine = Engine()
    try:
        assert engine.run(threading.current_thread).result(5).name == "heedful-model"
        failing = engine.run(lambda: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            failing.result(5)
        assert engine.run(lambda: 5).result(5) == 5
    finally:
        engine.close()
    assert not engine.alive
    with pytest.raises(QueueFullError):
        engine.run(lambda: 5)
