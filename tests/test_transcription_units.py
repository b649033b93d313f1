"""Subwords as units of transcriptions, and runs that start from others."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch

import heedful
from heedful.basics.errors import UserError
from heedful.data.listed_vocabularies import Characters, ListedSettings
from heedful.tasks.sound_input import heard_in
from heedful.tasks.spec import Opening, spec_of_run
from heedful.tasks.transcription.predictor import Word, words_at
from heedful.tasks.transcription.recipe import TranscriptionRecipe
from heedful.tasks.transcription.subwords import Subwords, SubwordSettings
from heedful.tasks.transcription.texts import vocabulary_of
from test_transcription import RATE, RECIPE, TONES, invoke, spoken

MODELS: dict[str, dict[str, Any]] = {
    "both": {"kind": "recurrent", "outputs": "both", "encoder_size": 8, "encoder_layers": 1,
             "pyramid_layers": 0, "embedding_size": 8, "hidden_size": 8, "max_length": 24},
    "ctc": {"kind": "transformer", "outputs": "ctc", "layers": 1, "ffn_size": 8, "heads": 2,
            "convolutions": 1, "hidden_size": 8},
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place, rng = tmp_path_factory.mktemp("units"), np.random.default_rng(1)
    lines = ["path\ttext"]
    for number in range(16):
        words = [str(rng.choice([*TONES])) for _ in range(int(rng.integers(1, 4)))]
        soundfile.write(place / f"{number}.wav", spoken(rng, words)[0], RATE)
        lines.append(f"{number}.wav\t{' '.join(words).upper()}")
    (place / "t.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return place


def recipe_of(name: str, kind: str = "bpe", steps: int = 2, **more: Any) -> dict[str, Any]:
    data = {"train": "t.tsv", "validation": "t.tsv", "test": "t.tsv",
            "features": RECIPE["data"]["features"]}  # fmt: skip
    training = {**RECIPE["training"], "max_steps": steps, "validate_every": 2,
                "checkpoint_every": 2, "choose_by": "loss", "schedule": "constant"}  # fmt: skip
    tokeniser = {"kind": kind, "vocabulary_size": 336}
    return {"task": "transcription", "data": data, "model": MODELS[name], "training": training,
            "tokeniser": tokeniser, **more}  # fmt: skip


@pytest.mark.parametrize(("name", "kind"), [("both", "bpe"), ("ctc", "unigram")])
def test_subwords_are_trained_searched_and_timed(
    folder: Path, tmp_path: Path, name: str, kind: str
) -> None:
    recipe = recipe_of(name, kind, steps=4)
    assert heedful.train(recipe, tmp_path / "whole", data=folder)
    assert heedful.train(recipe_of(name, kind), tmp_path / "parts", data=folder)
    assert heedful.train(recipe, tmp_path / "parts", data=folder)
    whole, parts = (heedful.load(tmp_path / one) for one in ("whole", "parts"))
    for one, other in zip(whole.model.parameters(), parts.model.parameters(), strict=True):
        assert torch.equal(one, other)
    own = whole.vocabulary
    assert (own.kind, own.size) == (kind, 336)
    assert own.decode(own.encode("High  LOW")) == "high  low"
    assert own.decode(own.encode("zoë ☃")) == "zoë ☃"  # as bytes
    assert len(own.encode("low low high mid")) < len("low low high mid")
    for beam in (1, 3):
        whole.options = whole.options.model_copy(update={"beam": beam})
        for found in whole.predict([heard_in(str(folder / f"{number}.wav")) for number in (1, 2)]):
            assert [word.text for word in found.words] == found.text.split()
    if name == "both":
        options = {"ctc_weight": 1.0, "beam": 8, "length_penalty": 0.0}
        whole.options = whole.options.model_copy(update=options)
        assert whole.predict([heard_in(str(folder / "1.wav"))])[0].log_probability < 0
    trace = whole.trace(heard_in(str(folder / "1.wav")))
    assert trace["ctc"].weights.shape[1] == len(trace.decided)
    run, spec = spec_of_run(tmp_path / "whole")
    kept: Any = run.facts["known"]
    assert "entries" not in kept
    assert vocabulary_of(kept) is own
    assert spec.evaluate(run, None, spec.comparison_options(), Opening()).figures["word error"]


def test_texts_are_learnt_as_they_are_encoded(folder: Path, tmp_path: Path) -> None:
    assert heedful.train(recipe_of("both"), tmp_path / "run", data=folder)
    run, spec = spec_of_run(tmp_path / "run")
    made: Any = spec
    task = made.build_task(run, made.build_model(run), run.recipe.training, torch.device("cpu"),
                           "float32")  # fmt: skip
    texts = [row.split("\t")[1].lower() for row in (folder / "t.tsv").read_text().split("\n")[1:-1]]
    found = []
    for batch in task.held_out.once():
        column = batch["text"]
        rows = zip(column.padded(0).tolist(), column.lengths.tolist(), strict=True)
        found += [task.write(row[:length]) for row, length in rows]
    assert sorted(found) == sorted(texts)


def test_times_of_words_of_subwords() -> None:
    """A space alone is no part of a word; a word lasts to the end of its last token."""
    settings = SubwordSettings(kind="unigram", vocabulary_size=330)
    texts = ["ab abc b", "abc ab", "c b ab"] * 4
    own = Subwords.train(texts, settings, lower_case=True, seed=1, where="the test")
    named = {piece: token for token, piece in enumerate(own.pieces(range(own.size)))}
    space, *letters = [named[piece] for piece in "▁abc"]
    tokens = [space, *letters[:2], space, letters[2]]
    assert own.decode(tokens) == "ab c"
    assert words_at(own, tokens, [1, 3, 4, 5, 7], 0.5) == [Word("ab", 1.5, 2.5), Word("c", 3.5, 4)]
    # Characters have the same times, with the position of their space.
    listed = Characters([*"abc "], ListedSettings())
    assert words_at(listed, listed.encode("ab c"), [3, 4, 5, 7], 0.5) == words_at(
        own, tokens, [1, 3, 4, 5, 7], 0.5
    )


def test_subwords_are_chosen_on_the_command_line(folder: Path, tmp_path: Path) -> None:
    """The vocabulary has the largest size that the texts support."""
    found = invoke(
        "train", "--task", "transcribe", "--data", str(folder / "t.tsv"), "--out",
        str(tmp_path / "run"), "--set", "tokeniser.kind=unigram", "--set", "training.max_steps=1",
        "--set", "training.precision=float32", "--set", "training.threads=1",
    )  # fmt: skip
    assert found.exit_code == 0, (found.output, found.exception)
    assert "using a vocabulary of" in found.stderr
    own = heedful.load(tmp_path / "run").vocabulary
    assert own.kind == "unigram"
    assert 325 <= own.size < 1000


def test_what_excludes_subwords_is_refused(folder: Path, tmp_path: Path) -> None:
    for change, reason in (
        ({"data": {**recipe_of("both")["data"], "units": "words"}}, "data.units is for characters"),
        ({"data": {**recipe_of("both")["data"], "minimum_count": 2}}, "data.minimum_count is for"),
        ({"tokeniser": {"kind": "imported"}}, "'bpe' or 'unigram'"),
        ({"tokeniser": {"vocabulary_size": 300}}, "greater than or equal to 325"),
    ):
        with pytest.raises(ValueError, match=reason):
            TranscriptionRecipe.model_validate({**recipe_of("both"), **change})
    large = recipe_of("both", tokeniser={"vocabulary_size": 900})
    with pytest.raises(UserError, match="too little text for a vocabulary of 900 symbols; the max"):
        heedful.train(large, tmp_path / "run", data=folder)
    assert not (tmp_path / "run" / "run.json").exists()


def test_a_language_model_must_have_the_same_subwords(folder: Path, tmp_path: Path) -> None:
    assert heedful.train(recipe_of("both", "unigram"), tmp_path / "run", data=folder)
    rows = (folder / "t.tsv").read_text(encoding="utf-8").split("\n")[1:-1]
    texts = [row.split("\t")[1].lower() for row in rows]
    name, run = str(folder / "1.wav"), str(tmp_path / "run")
    for own, size, fits in ((texts, 336, True), (texts, 335, False), (texts[:8], 336, False)):
        (tmp_path / "texts.txt").write_text("\n".join(own) + "\n", encoding="utf-8")
        recipe = {
            "task": "language-model",
            "data": {"train": ["texts.txt"], "validation": ["texts.txt"], "documents": "lines"},
            "tokeniser": {"kind": "unigram", "vocabulary_size": size},
            "context": 16,
            "model": {"kind": "gpt", "layers": 1, "hidden_size": 8, "heads": 2,
                      "max_length": 16},
            "training": {"max_steps": 1, "batch_tokens": 256, "threads": 1, "device": "cpu",
                         "precision": "float32"},
        }  # fmt: skip
        shutil.rmtree(tmp_path / "lm", ignore_errors=True)
        assert heedful.train(recipe, tmp_path / "lm", data=tmp_path)
        found = invoke("transcribe", run, name, "--language-model", str(tmp_path / "lm"))
        assert (found.exit_code == 0) == fits, (size, found.exception)
        assert fits or "must have the same subwords" in str(found.exception)
        # Untrained models repeat themselves.
        assert (
            not fits or "ended after 15 tokens (the language model reads no more)" in found.stderr
        )


# Runs that start from others


def test_a_run_continues_another_on_other_recordings(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Weights, vocabulary and features are those of the other run; lengths are its own."""
    first = {**recipe_of("both"), "tokeniser": None}
    del first["tokeniser"]
    assert heedful.train(first, tmp_path / "first", data=folder)
    (folder / "new.tsv").write_text("path\ttext\n1.wav\tzig low\n2.wav\tmid\n", encoding="utf-8")
    data = {**first["data"], "train": "new.tsv", "longest": 2.5}
    model = {**first["model"], "dropout": 0.3}
    next_one = {**first, "data": data, "model": model}
    frozen = {**first["training"], "learning_rate": 1e-9}
    assert heedful.train({**next_one, "training": frozen}, tmp_path / "next", data=folder,
                         start_from=tmp_path / "first")  # fmt: skip
    printed = capsys.readouterr().err
    assert "1 of 10 characters (10.00%) are not in the vocabulary of the run" in printed
    one, other = (heedful.load(tmp_path / name) for name in ("first", "next"))
    assert one.vocabulary is other.vocabulary
    assert other.known["longest"] == 2.5
    for before, after in zip(one.model.parameters(), other.model.parameters(), strict=True):
        torch.testing.assert_close(before, after, atol=1e-6, rtol=0)
    for change, reason in (
        ({"data": {**data, "units": "words"}}, "data.units differs from that of the run"),
        ({"data": {**data, "features": {**data["features"], "bands": 12}}},
         "data.features differs"),
        ({"model": {**model, "hidden_size": 12}}, "model.hidden_size"),
        ({"tokeniser": {"vocabulary_size": 336}}, r"recipe's \[tokeniser\] differs"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=reason):
            heedful.train({**next_one, **change}, tmp_path / "no", data=folder,
                          start_from=tmp_path / "first")  # fmt: skip


def test_a_run_continues_another_from_the_command_line(folder: Path, tmp_path: Path) -> None:
    """Without a recipe: features and units of the other run, subwords included."""
    assert heedful.train(recipe_of("both"), tmp_path / "first", data=folder)
    found = invoke(
        "train", "--task", "transcribe", "--data", str(folder / "t.tsv"), "--start-from",
        str(tmp_path / "first"), "--out", str(tmp_path / "next"), "--set", "training.max_steps=1",
        "--set", "training.precision=float32", "--set", "training.threads=1",
    )  # fmt: skip
    assert found.exit_code == 0, (found.output, found.exception)
    one, other = (heedful.load(tmp_path / name) for name in ("first", "next"))
    assert one.vocabulary is other.vocabulary
    assert one.features == other.features
    assert one.recipe.model == other.recipe.model
    facts = json.loads((tmp_path / "next" / "run.json").read_text(encoding="utf-8"))
    assert facts["started_from"]["run"] == str(tmp_path / "first")
