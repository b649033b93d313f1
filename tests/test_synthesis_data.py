"""The data of speech synthesis: texts, recordings, recipes, the distortion of the evaluation."""

import runpy
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch

import heedful
from heedful.basics.errors import UserError
from heedful.data.readers.sounds import read_sound
from heedful.tasks.synthesis import Synthesis
from heedful.tasks.synthesis.distortion import mel_cepstral_distortion, warping_path
from heedful.tasks.synthesis.examples import Said, SpeechFeatures
from heedful.tasks.synthesis.recipe import SynthesisRecipe
from heedful.tasks.synthesis.speaking import source_of
from heedful.tasks.synthesis.texts import check_fits, sentences_of, tokens_of
from synthesis_help import RATE, RECIPE, TONE, spoken, write_clips


def test_what_cannot_be_trained_on_is_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(4)
    for name, text in {"fine": "abcd", "long": "abcd" * 4, "many": "ab", "silent": "a"}.items():
        soundfile.write(tmp_path / f"{name}.wav", spoken(rng, text), RATE)
    soundfile.write(tmp_path / "silent.wav", np.zeros(RATE // 2), RATE)
    rows = {"fine": "abcd", "long": "abcd" * 4, "many": "abcd" * 9, "silent": "a"}
    lines = [f"{name}.wav\t{text}" for name, text in rows.items()]
    (tmp_path / "t.tsv").write_text("path\ttext\n" + "\n".join(lines) + "\n", encoding="utf-8")
    data = {**RECIPE["data"], "train": "t.tsv", "validation": "t.tsv", "test": "t.tsv",
            "longest": 1.0}  # fmt: skip
    training = {**RECIPE["training"], "max_steps": 1}
    model = {**RECIPE["model"], "max_length": 20}
    recipe = {**RECIPE, "data": data, "model": model, "training": training}
    assert heedful.train(recipe, tmp_path / "r", data=tmp_path)
    printed = capsys.readouterr().err
    assert "1 of 4 training recordings are silent, such as" in printed
    assert "1 of 4 train examples left out: recordings of more than 1 seconds" in printed
    assert "1 of 4 train examples left out: texts of more than 19 characters" in printed


def test_frames_are_whole_numbers_of_samples() -> None:
    """A step of 0.0125 seconds is of 276 samples at 22,050 a second."""
    features = SpeechFeatures(rate=22_050)
    known = {"longest": 15.0, "features": features.model_dump(), "most_tokens": 9}
    assert check_fits(15 * 22_050 // 276 + 1, [5], known) == ""
    assert "more than 15 seconds" in check_fits(15 * 22_050 // 276 + 2, [5], known)


def test_sentences() -> None:
    known = {"language": "en", "most_tokens": 12, "longest_text": 30}
    assert sentences_of("Mr. X sat.  He\n\nslept.", known) == ["Mr. X sat.", "He", "slept."]
    assert sentences_of("one two, three four five", known) == ["one two,", "three four", "five"]
    assert sentences_of("a" * 30, known) == ["a" * 12, "a" * 12, "a" * 6]
    assert sentences_of(" \n ", known) == []


def test_spaces_between_unknown_characters_are_not_spoken() -> None:
    known = {"entries": [" ", "a", "b"], "lower_case": True}
    assert tokens_of("7 8 99", known) == []
    assert tokens_of("7 a 8 b 9", known) == tokens_of("a b", known)


def test_the_distortion_is_the_formula() -> None:
    generator = torch.Generator().manual_seed(1)
    first, second = (torch.randn(count, 20, generator=generator).double() for count in (6, 9))
    table = np.zeros((6, 9))
    for row, column in np.ndindex(6, 9):
        total = 0.0
        for m in range(1, 14):
            angles = np.cos(np.pi * m * (np.arange(20) + 0.5) / 20)
            one, other = (float(own.numpy() / 2 @ angles) / 20
                          for own in (first[row], second[column]))  # fmt: skip
            total += (one - other) ** 2
        table[row, column] = np.sqrt(2 * total)

    def paths(row: int, column: int) -> Any:
        if row == column == 0:
            yield [(0, 0)]
        for before in ((row - 1, column - 1), (row - 1, column), (row, column - 1)):
            if min(before) >= 0:
                for path in paths(*before):
                    yield [*path, (row, column)]

    small = table[:4, :5]
    best = min(sum(small[place] for place in path) for path in paths(3, 4))
    assert sum(small[place] for place in warping_path(small)) == pytest.approx(best)
    path = warping_path(table)
    mean = np.mean([table[place] for place in path])
    assert mel_cepstral_distortion(first, second) == pytest.approx(10 / np.log(10) * mean)
    assert mel_cepstral_distortion(first, first) == pytest.approx(0)
    slow = first.repeat_interleave(2, 0)
    assert mel_cepstral_distortion(first, slow) == pytest.approx(0)


def test_the_distortion_of_long_recordings_needs_little_memory() -> None:
    first, second = torch.zeros(600, 20), torch.ones(500, 20)
    tracemalloc.start()
    assert mel_cepstral_distortion(first, second) == pytest.approx(0)  # equal but for loudness
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 600 * 500 * 13 * 8  # the bytes of all differences of coefficients


def test_wrong_recipes() -> None:
    for change, reason in (
        ({"training": {"choose_by": "complete", "validation_texts": 0}}, "validation_texts"),
        ({"data": {**RECIPE["data"], "features": {"step": 0.03}}}, "at least two steps"),
        ({"data": {**RECIPE["data"], "features": {"kind": "mfcc"}}}, "log-mel"),
        ({"data": {**RECIPE["data"], "features": {"normalize": "utterance"}}}, "none"),
        ({"model": {"kind": "recurrent", "attention": "none"}}, "speech needs attention"),
    ):
        with pytest.raises(ValueError, match=reason):
            SynthesisRecipe.model_validate({**RECIPE, **change})


def test_a_recipe_is_chosen_from_a_table(tmp_path: Path) -> None:
    write_clips(tmp_path, train=3)
    tables = Synthesis().choose_recipe([str(tmp_path / "train.tsv")])
    recipe = SynthesisRecipe.model_validate(tables)
    assert recipe.data.features.rate == RATE
    (tmp_path / "empty.tsv").write_text("path\ttext\n", encoding="utf-8")
    with pytest.raises(UserError, match="no recordings to train on"):
        Synthesis().choose_recipe([str(tmp_path / "empty.tsv")])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": 3}', "text"),
        ('{"words": "a"}', "the input"),
        ('{"text": "a", "seed": 1}', "the input"),
        ('{"text": ', "the input"),
    ],
)
def test_wrong_inputs(line: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        Synthesis().read_input(line)
    assert "\n" not in str(caught.value)


def test_texts_and_objects_are_inputs() -> None:
    assert Synthesis().read_input("a {b}") == Said(text="a {b}")
    assert Synthesis().read_input('{"text": "a"}') == Said(text="a")
    source = source_of([[7, 8], [9]], torch.device("cpu"))
    assert source.tokens.tolist() == [[7, 8, 3], [9, 3, 0]]
    assert source.lengths.tolist() == [3, 2]


def test_made_speech_is_a_table_of_phrases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a program in place of eSpeak NG that always says the same."""
    script = Path(__file__).parents[1] / "benchmarks" / "made_speech.py"
    made = runpy.run_path(str(script))
    texts = ["1\tThe dog, they say, sees a cat.", "2\tThe dog!", "3\tRoom 7 is free; is it?"]
    (tmp_path / "texts.tsv").write_text("\n".join(texts) + "\n", encoding="utf-8")
    columns = [one.split("\t")[1] for one in texts]
    assert list(made["phrases"](columns)) == ["the dog", "they say", "sees a cat", "is it"]
    silence, tone = np.zeros(4000), spoken(np.random.default_rng(1), "ab")
    soundfile.write(tmp_path / "tone.wav", np.concatenate([silence, tone, silence]), RATE)
    program = tmp_path / "espeak-ng"
    program.write_text(f'#!/bin/sh\ncp {tmp_path / "tone.wav"} "$6"\n', encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    made["main"].__globals__["HELD_OUT"] |= {"validation": 1, "test": 1}
    out = tmp_path / "out"
    monkeypatch.setattr("sys.argv", ["made_speech.py", str(tmp_path / "texts.tsv"), str(out),
                                     "--column", "2"])  # fmt: skip
    made["main"]()
    rows = [(out / f"{part}.tsv").read_text().splitlines() for part in ("train", "test")]
    assert [len(own) for own in rows] == [3, 2]
    sound = read_sound(out / rows[0][1].split("\t")[0])
    assert sound.rate == 16_000
    assert 2 * TONE < sound.seconds < 2 * TONE + 0.15
