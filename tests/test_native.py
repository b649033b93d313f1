"""Native libraries that fail: their panics are ordinary errors, and no text is lost or changed."""

import string
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import sentencex
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, normalizers
from tokenizers.models import BPE

from heedful.basics.errors import UserError
from heedful.basics.native import NativeError, call_native
from heedful.data.byte_vocabulary import ByteSettings, ByteVocabulary
from heedful.data.encoding import encode_all, encode_one
from heedful.data.readers.plain import read_documents
from heedful.data.sentences import SentenceFailures, split_into_sentences
from heedful.data.subwords import prepare, restore
from heedful.inference.texts import split_into_parts
from serving_help import COUNTER, TOKENISERS, sentences

PANIC = "Plan B\u00a0."
"""sentencex panics at it."""
NASTY = st.text(
    st.sampled_from(
        [
            *"ABZab.!?… \n\r\t\"'”’»)](1-&,:;`“„‘«「」。！",
            *"\u00a0\u3000\u2028\u2029\u0085\u1680\u202f\u200b\u200d\ufeff\x00\x07\x1f\x7f",
            *"é\u0301\u0338ßİ\u0665\U0001f600\U00010400\U000e0041▁\u2581\u2585\ufffd",
        ]
    ),
    max_size=40,
)
SURROGATES = st.text(st.sampled_from([*"AB. \u00a0", "\ud800", "\udfff"]), max_size=12)
LANGUAGES = st.sampled_from(["en", "de", "fr", "ja", "hi", "ar", "xx", "", "zh-Hant"])
BYTES = ByteVocabulary.train(
    sentences(50), ByteSettings(), vocabulary=300, minimum_count=2, seed=1, where="the test"
)


def panics(text: str) -> list[str]:
    """The library as it is, at what it panics at."""
    found: list[str] = sentencex.segment("en", text)
    return found


def test_a_panic_is_an_ordinary_error_without_the_text() -> None:
    with pytest.raises(BaseException, match="byte index") as raised:
        panics(PANIC)
    assert not isinstance(raised.value, Exception)  # what makes it dangerous
    with pytest.raises(NativeError) as caught:
        call_native(panics, PANIC)
    assert "Plan" not in str(caught.value)
    assert call_native(panics, "a. B") == panics("a. B")


def test_an_expression_of_too_many_steps_is_an_ordinary_error() -> None:
    tokenizer = Tokenizer(BPE())
    tokenizer.normalizer = normalizers.Replace(Regex("(a+)+$"), "b")
    with pytest.raises(NativeError):
        call_native(tokenizer.encode, "a" * 30 + "b")


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit, ValueError])
def test_what_is_no_panic_passes(error: type[BaseException]) -> None:
    def fails() -> None:
        raise error

    with pytest.raises(error):
        call_native(fails)


def test_a_text_that_cannot_be_encoded_is_named_by_its_place() -> None:
    def together(texts: list[str]) -> list[list[str]]:
        return [panics(text) for text in texts]

    assert encode_all(together, panics, ["a.", "b."]) == [["a."], ["b."]]
    with pytest.raises(UserError, match=r"^text 2 cannot be encoded .* leave it out") as error:
        encode_all(together, panics, ["a.", PANIC])
    assert "Plan" not in str(error.value)
    with pytest.raises(UserError, match=r"^the text cannot be encoded"):
        encode_one(panics, PANIC)


@settings(max_examples=300, deadline=None)
@given(NASTY | SURROGATES, LANGUAGES)
def test_any_text_is_cut_into_sentences(text: str, language: str) -> None:
    assert "".join(split_into_sentences(text, language)) == text


@settings(max_examples=150, deadline=None)
@given(NASTY, LANGUAGES)
def test_any_text_is_cut_for_a_model(text: str, language: str) -> None:
    cut = split_into_parts(text, COUNTER(8), 8, language)
    assert "".join(before + own for before, own in cut.parts) + cut.after == text


@settings(max_examples=150, deadline=None)
@given(st.lists(NASTY, max_size=3))
def test_any_text_is_encoded_and_given_back(texts: list[str]) -> None:
    for vocabulary in (TOKENISERS.source, BYTES):
        encoded = vocabulary.encode_batch(texts)
        assert encoded == [vocabulary.encode(text) for text in texts]
        assert vocabulary.decode_batch(encoded) == texts
    assert [restore(prepare(text, "none")) for text in texts] == texts


@settings(max_examples=60, deadline=None)
@given(SURROGATES)
def test_half_of_a_pair_is_the_users_error(text: str) -> None:
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") == text
    for encode in (TOKENISERS.source.encode, BYTES.encode):
        if whole:
            encode(text)
        else:
            with pytest.raises(UserError, match="surrogate"):
                encode(text)


@pytest.mark.parametrize("space", ["\u00a0", "\u3000", "\u2028", "\u1680", " \u00a0 "])
def test_a_lone_capital_before_a_wide_space_and_a_full_stop(space: str, tmp_path: Path) -> None:
    text = f"We have Plan B{space}. It is better."
    spaced = split_into_sentences(text.replace(space, " " * len(space)), "en")
    assert [len(one) for one in split_into_sentences(text, "en")] == [len(one) for one in spaced]
    (tmp_path / "text").write_text(f"{text}\n{PANIC}\n\nAnother.\n", encoding="utf-8")
    documents = list(read_documents(tmp_path / "text", sentences="en"))
    assert " ".join(documents[0]) == f"{text} {PANIC}"


def test_what_the_library_fails_at_stays_whole_and_is_told_once(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Its known fault is worked around; so here it is given the text as it is."""
    import heedful.data.sentences as module

    class AsItIs:
        def sub(self, _: Callable[..., str], text: str) -> str:
            return text

    monkeypatch.setattr(module, "_BEFORE_FULL_STOP", AsItIs())
    failures = SentenceFailures()
    assert split_into_sentences(PANIC, "en", failures) == [PANIC]
    assert split_into_sentences("It is. So.", "en", failures) == ["It is. ", "So."]
    assert failures.count == 1
    (tmp_path / "text").write_text(f"{PANIC}\n\n{PANIC} No.\n\nYes. No.\n", encoding="utf-8")
    capfd.readouterr()
    assert len(list(read_documents(tmp_path / "text", sentences="en"))) == 3
    told = [line for line in capfd.readouterr().err.splitlines() if line.startswith("heedful:")]
    assert told == [
        "heedful: 2 lines could not be split into sentences (sentencex failed) and were left whole"
    ]


def test_long_lines_are_cut_as_short_ones() -> None:
    ends = zip(sentences(900), "..!?." * 180, strict=True)
    line = "".join(f"{text[:-1].capitalize()}{end} " for text, end in ends)
    assert len(line) > 5 * 4_000
    assert split_into_sentences(line, "en") == sentencex.segment("en", line)


@pytest.mark.parametrize("unit", ["“", "`", "„", "「", '"', "。「", "a", " ", "A. “", "A. b"])
def test_the_library_is_shown_short_pieces(unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """For some it takes the square of their length: a line's time is linear, if pieces are short
    and none is shown more than twice."""
    import heedful.data.sentences as module

    shown: list[int] = []

    def noted(language: str, text: str) -> list[str]:
        shown.append(len(text))
        return panics(text)

    monkeypatch.setattr(module, "segment", noted)
    line = (unit * 100_000)[:100_000]
    assert "".join(split_into_sentences(line, "en")) == line
    assert max(shown) <= 4_000
    assert sum(shown) <= 2.1 * len(line)


def test_a_panic_that_is_worked_around_prints_nothing() -> None:
    script = f"from heedful.data.sentences import *; split_into_sentences({PANIC!r}, 'en')"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr == ""


def test_every_ascii_letter_is_safe() -> None:
    for letter in string.ascii_letters:
        for space in "\u00a0\u3000\u2028":
            text = f"{letter}{space}."
            assert split_into_sentences(text, "en") == [text]
