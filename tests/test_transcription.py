"""Transcription of recordings: reading, training, the command, times of words, bad input."""

import io
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import soundfile
import torch
import torch.nn.functional as F
import typer
from typer.testing import CliRunner

import heedful
from heedful.basics.errors import UserError
from heedful.basics.symbols import BEGIN, END
from heedful.cli import evaluate, plot, predict, task_commands, view
from heedful.cli import train as train_command
from heedful.data.column_batch import ColumnBatch
from heedful.data.readers.sounds import (
    Sound,
    as_uri,
    heard_span,
    quiet_cuts,
    read_clips,
    read_sound,
)
from heedful.data.sound_features import SoundFeatures
from heedful.decoding.ctc import log_probability, prefix_search
from heedful.inference import Trace
from heedful.models import Sounds
from heedful.models.speech import BLANK
from heedful.runs.summary import describe_run, summarise_run
from heedful.serving import make_application
from heedful.serving.loading import load_all
from heedful.tasks.sound_input import Heard, heard_in
from heedful.tasks.spec import spec_of_run
from heedful.tasks.transcription import Transcription
from heedful.tasks.transcription.errors import edit_distance
from heedful.tasks.transcription.recipe import TranscriptionRecipe
from heedful.tasks.transcription.texts import check_fits
from heedful.tasks.transcription.training import Texts
from page_help import SPY, needs_browser, opened
from serving_help import running

RATE, TONE = 8000, 0.24
TONES = {"low": 300.0, "mid": 900.0, "high": 2400.0}
FEATURES = {"rate": RATE, "bands": 16, "step": 0.03, "window": 0.06}
RECIPE: dict[str, Any] = {
    "task": "transcription",
    "data": {
        "train": "train.tsv",
        "validation": "test.tsv",
        "test": "test.tsv",
        "units": "words",
        "longest": 1.8,
        "features": FEATURES,
    },
    "model": {
        "kind": "recurrent",
        "outputs": "both",
        "attention": {"score": "location-aware"},
        "encoder_size": 24,
        "encoder_layers": 2,
        "pyramid_layers": 1,
        "embedding_size": 8,
        "hidden_size": 32,
        "dropout": 0.0,
    },
    "training": {
        "learning_rate": 0.01,
        "warmup_steps": 10,
        "schedule": "linear",
        "max_steps": 140,
        "validate_every": 70,
        "checkpoint_every": 70,
        "batch_tokens": 700,
        "choose_by": "word_error",
        "precision": "float32",
        "device": "cpu",
        "threads": 1,
    },
}


def spoken(rng: np.random.Generator, words: list[str]) -> tuple[Any, list[float]]:
    """Tones with pauses in noise, and when each begins."""
    pieces, starts = [np.zeros(int(RATE * rng.uniform(0.05, 0.35)))], []
    for word in words:
        starts.append(sum(map(len, pieces)) / RATE)
        time = np.arange(int(RATE * TONE)) / RATE
        pause = np.zeros(int(RATE * rng.uniform(0.08, 0.16)))
        pieces += [0.5 * np.sin(2 * np.pi * TONES[word] * time), pause]
    clean = np.concatenate(pieces)
    return clean + 0.01 * rng.standard_normal(len(clean)), starts


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place, rng = tmp_path_factory.mktemp("spoken"), np.random.default_rng(1)
    for part, count in (("train", 90), ("test", 12)):
        lines = ["path\ttext"]
        for number in range(count):
            words = [str(rng.choice([*TONES])) for _ in range(int(rng.integers(1, 4)))]
            soundfile.write(place / f"{part}{number}.wav", spoken(rng, words)[0], RATE)
            lines.append(f"{part}{number}.wav\t{' '.join(words)}")
        (place / f"{part}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (place / "few.tsv").write_text("\n".join(lines[:4]) + "\n", encoding="utf-8")
    assert heedful.train(RECIPE, place / "run", data=place)
    return place


def invoke(*arguments: str, **how: Any) -> Any:
    app = typer.Typer()
    for one in (task_commands, evaluate, plot, predict, train_command, view):
        one.register(app)
    return CliRunner().invoke(app, list(arguments), **how)


# Using a run


def test_it_learns_and_knows_when_words_are_spoken(folder: Path) -> None:
    reader = heedful.load(folder / "run")
    rng = np.random.default_rng(5)
    errors, late = 0, []
    for _ in range(10):
        words = [str(rng.choice([*TONES])) for _ in range(3)]
        samples, starts = spoken(rng, words)
        soundfile.write(folder / "new.wav", samples, RATE)
        [found] = reader.predict([heard_in(str(folder / "new.wav"))])
        errors += edit_distance(found.text.split(), words)
        assert [word.text for word in found.words] == found.text.split()
        if found.text == " ".join(words):
            for word, start in zip(found.words, starts, strict=True):
                late.append((word.start + word.end) / 2 - start - TONE / 2)
    assert errors <= 4  # of 30
    assert np.abs(late).mean() < 0.12


def test_evaluation_counts_errors(folder: Path) -> None:
    result = invoke("evaluate", str(folder / "run"), "--json")
    assert result.exit_code == 0, result.output
    figures = json.loads(result.stdout)["figures"]
    again = invoke("evaluate", str(folder / "run"), "--json")  # the scores of the run are read
    assert again.stdout == result.stdout
    assert figures["word error"]["value"] <= 15
    assert figures["exact"]["value"] >= 60


def test_the_command_writes_a_line_for_each_file(folder: Path) -> None:
    names = [str(folder / f"test{number}.wav") for number in (3, 1, 2)]
    plain = invoke("transcribe", str(folder / "run"), *names)
    assert plain.exit_code == 0, plain.output
    assert len(plain.stdout.splitlines()) == 3
    piped = invoke("transcribe", str(folder / "run"), input=f"{names[0]}\n\n{names[1]}\n")
    lines = plain.stdout.splitlines()
    assert piped.stdout.splitlines() == [lines[0], "", lines[1]]
    as_json = invoke(
        "transcribe", str(folder / "run"), names[0], "--json", "--nbest", "2", "--beam", "3"
    )
    found = json.loads(as_json.stdout)
    assert found["sound"] == names[0]
    assert len(found["others"]) == 1
    assert all(0 <= word["start"] < word["end"] for word in found["words"])
    given = heard_in(names[0]).model_dump_json()
    predicted = invoke("predict", str(folder / "run"), input=given + "\n")
    assert predicted.stdout.splitlines() == [lines[0]]
    refused = invoke("predict", str(folder / "run"), names[0])
    assert isinstance(refused.exception, UserError)
    assert f"use 'heedful transcribe {folder / 'run'} {names[0]}'" in str(refused.exception)


def test_bad_files_are_found_before_good_ones_are_read(folder: Path, tmp_path: Path) -> None:
    bad, good = tmp_path / "bad.wav", str(folder / "test1.wav")
    bad.write_bytes(b"no sound")
    run = str(folder / "run")
    for arguments in (("transcribe", run, good, str(bad)), ("view", run, str(bad))):
        refused = invoke(*arguments)
        assert isinstance(refused.exception, UserError)
        assert str(refused.exception).startswith(f"{bad}: not a sound")
        assert not refused.stdout


def test_subtitles_of_one_file(folder: Path) -> None:
    run, name = str(folder / "run"), str(folder / "test0.wav")
    found = invoke("transcribe", run, name, "--subtitles", "vtt")
    assert found.stdout.startswith("WEBVTT\n\n1\n00:00:00.")
    two = invoke("transcribe", run, name, name, "--subtitles", "srt")
    assert two.exit_code != 0
    assert "needs one recording; 2 are given" in str(two.exception)
    both = invoke("transcribe", run, name, "--subtitles", "srt", "--json")
    assert "exclude each other" in str(both.exception)


def test_words_end_with_the_recording(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, recording = heedful.load(folder / "run"), heard_in(str(folder / "test0.wav"))
    [part] = recording.parts(reader.features, 9.0)
    last = reader.model.positions(len(part.features)) - 1
    assert (last + 1) * reader.seconds > part.sound.seconds  # the last position ends after it
    monkeypatch.setattr(
        "heedful.tasks.transcription.predictor.token_positions",
        lambda model, heard, tokens: [[last] * len(own) for own in tokens],
    )
    [found] = reader.predict([recording])
    assert found.words[-1].end == part.sound.seconds
    assert all(word.start <= word.end for word in found.words)


def test_frames_are_whole_numbers_of_samples(folder: Path) -> None:
    """A step of 0.01 seconds is of 110 samples at 11,025 a second: more than 100 frames."""
    features = SoundFeatures(rate=11_025, bands=16)
    frames = len(features.of(Sound(np.zeros(30 * 11_025, np.float32), 11_025)))
    assert (frames - 1) * features.seconds == pytest.approx(30, abs=features.seconds)
    known = {"longest": 30.0, "features": features.model_dump(), "most_tokens": 9}
    assert check_fits(frames, [5], known | {"ctc_reduction": None}) is None
    reader = heedful.load(folder / "run")
    reader.features = features
    assert reader.seconds == reader.model.reduction * 110 / 11_025


def test_long_recordings_are_transcribed_in_parts(folder: Path) -> None:
    """Each part is at most data.longest, and like a recording of its own; words keep their times
    in the whole."""
    rng, reader = np.random.default_rng(9), heedful.load(folder / "run")
    samples = np.concatenate([spoken(rng, ["low", "high", "mid"])[0] for _ in range(5)])
    soundfile.write(folder / "long.wav", samples, RATE)
    [found] = reader.predict([heard_in(str(folder / "long.wav"))])
    read = read_sound(folder / "long.wav")
    edges = [0, *quiet_cuts(read, 1.8), len(samples)]
    assert len(edges) >= 5
    words = []
    for number, (first, end) in enumerate(itertools.pairwise(edges)):
        assert end - first <= 1.8 * RATE
        own = folder / f"part{number}.flac"
        soundfile.write(own, read.samples[first:end], RATE)
        [part] = reader.predict([heard_in(str(own))])
        words += [
            (one.text, one.start + first / RATE, one.end + first / RATE) for one in part.words
        ]
    assert len(words) > 8
    assert found.text.split() == [word for word, *_ in words]
    expected = [value for _, *times in words for value in times]
    assert [value for one in found.words for value in one[1:]] == pytest.approx(expected)


def test_silence_at_the_ends_is_cut_off(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A recording with silence around it is read as without it, and words keep their times."""
    training = {**RECIPE["training"], "max_steps": 1}
    data = {**RECIPE["data"], "longest": 30.0, "trim": 0.1}
    assert heedful.train({**RECIPE, "data": data, "training": training}, tmp_path, data=folder)
    seconds = [soundfile.info(folder / f"train{n}.wav").duration for n in range(90)]
    reader = heedful.load(folder / "run")
    known = heedful.load(tmp_path).known
    assert known["trim"] == 0.1
    assert 1.2 * max(seconds) < known["longest_part"] <= 1.5 * max(seconds)

    reader.known = {**reader.known, "trim": 0.1}
    around = np.zeros(RATE)
    samples = np.pad(spoken(np.random.default_rng(3), ["low", "mid"])[0], RATE // 10)
    soundfile.write(folder / "plain.wav", samples, RATE)
    soundfile.write(folder / "wide.wav", np.concatenate([around, samples, around]), RATE)
    soundfile.write(folder / "silent.wav", around, RATE)
    names = ("plain", "wide", "silent")
    examples = [heard_in(str(folder / f"{name}.wav")) for name in names]
    features = SoundFeatures(**FEATURES)
    first, second, _ = (one.frames(features, 0.1) for one in examples)
    torch.testing.assert_close(first, second)
    assert len(examples[1].frames(features)) > len(second) + 40
    capsys.readouterr()
    plain, wide, silent = reader.predict(examples)
    assert plain.text == wide.text != ""
    for a, b in zip(plain.words, wide.words, strict=True):
        assert (b.start, b.end) == pytest.approx((a.start + 1, a.end + 1))
    assert (silent.text, silent.words) == ("", ())
    assert "1 recording is silent; its text is empty" in capsys.readouterr().err


@pytest.mark.parametrize("kept", [0.0, 0.05, 3.0])
def test_only_silence_is_cut_off(kept: float) -> None:
    """What is at least 40 dB less loud than the loudest part, as the definition says."""
    rng = np.random.default_rng(2)
    samples = (0.001 * rng.standard_normal(10_000)).astype(np.float32)
    samples[3010:3900] += np.sin(np.arange(890)).astype(np.float32)
    samples[5000:5200] += 0.05 * np.sin(np.arange(200)).astype(np.float32)  # −26 dB
    samples[9000:9100] += 0.002 * np.sin(np.arange(100)).astype(np.float32)  # −54 dB
    first, end = heard_span(Sound(samples, 1000), kept)
    assert first == max(0, 3000 - 1000 * kept)
    assert end == min(10_000, 5200 + 1000 * kept)


def test_the_trace_is_over_time(folder: Path, tmp_path: Path) -> None:
    name = str(folder / "test0.wav")
    out = tmp_path / "a.safetensors"
    made = invoke("transcribe", str(folder / "run"), name, "--trace", str(out))
    assert made.exit_code == 0, made.output
    found = heedful.load(folder / "run").trace(heard_in(name))
    time = found.axes["time"]
    sound = time.media
    assert time.kind == "time"
    assert sound is not None
    assert sound.seconds == pytest.approx(time.extent[1], abs=1e-3)  # silence at the end
    assert 0 < sound.seconds - soundfile.info(name).duration < 0.1
    [own] = [one for one in found.maps if one.name == "decoder.attention"]
    assert own.weights.shape[-1] == len(time)
    torch.testing.assert_close(own.weights.sum(-1), torch.ones(own.weights.shape[:-1]))
    wrong = invoke("transcribe", str(folder / "run"), name, name, "--trace", str(out))
    assert "--trace needs one recording" in str(wrong.exception)


def test_the_trace_of_a_recording_in_parts_says_so(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    predictor, rng = heedful.load(folder / "run"), np.random.default_rng(12)
    long = np.concatenate([spoken(rng, ["low", "mid", "high"])[0] for _ in range(3)])
    soundfile.write(tmp_path / "long.wav", long, RATE)
    heard = heard_in(str(tmp_path / "long.wav"))
    parts = heard.parts(predictor.features, predictor.known["longest"])
    trace = predictor.trace(heard)
    assert f"Only the first {parts[1].start:.1f} of {len(long) / RATE:.1f} seconds" in trace.part
    assert trace.part.endswith(f"1.8 seconds and is transcribed in {len(parts)} parts.")
    assert "only the first part" in capsys.readouterr().err
    trace.save(tmp_path / "a.safetensors")
    assert Trace.load(tmp_path / "a.safetensors").part == trace.part
    assert predictor.trace(heard_in(str(folder / "test0.wav"))).part == ""
    assert "only the first part" not in capsys.readouterr().err


def test_the_trace_of_a_very_long_recording_has_no_sound(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("heedful.inference.media.MOST_BYTES", 5000)
    monkeypatch.setattr("heedful.tasks.transcription.predictor.MOST_SAMPLES", 2478)
    found = heedful.load(folder / "run").trace(heard_in(str(folder / "test0.wav")))
    assert found.axes["time"].media is None
    assert "the trace has no sound: 1 seconds are too long" in capsys.readouterr().err


def test_the_trace_says_where_ctc_places_each_word(folder: Path, tmp_path: Path) -> None:
    """Beside attention: the occupations given the text, and END after it."""
    reader, rng = heedful.load(folder / "run"), np.random.default_rng(12)
    words = ["low", "high", "mid"]
    samples, starts = spoken(rng, words)
    soundfile.write(tmp_path / "new.wav", samples, RATE)
    recording = heard_in(str(tmp_path / "new.wav"))
    trace = reader.trace(recording)
    found = trace["ctc"]
    assert (found.kind, found.query_axis, found.key_axis) == ("posterior", "target", "time")
    assert trace.decided == [*words, "</s>"]
    assert found.weights.shape == trace["decoder.attention"].weights.shape
    middles = found.weights[0, :3].argmax(1) * reader.seconds + reader.seconds / 2
    for middle, start in zip(middles.tolist(), starts, strict=True):
        assert start - 0.1 < middle < start + TONE + 0.1
    assert float(found.weights.sum(1).max()) <= 1 + 1e-6  # blanks have the rest
    assert found.weights[0, :3].sum(1).min() >= 1 - 1e-6  # each word has a position
    assert float(found.weights[0, 3, -1]) + float(found.weights[0, 2, -1]) == pytest.approx(1)
    trace.save(tmp_path / "t.safetensors")
    assert Trace.load(tmp_path / "t.safetensors")["ctc"].kind == "posterior"
    drawn = invoke("view", str(folder / "run"), str(tmp_path / "new.wav"), "-o",
                   str(tmp_path / "view.html"))  # fmt: skip
    assert drawn.exit_code == 0, drawn.output
    plotted = invoke("plot", str(folder / "run"), str(tmp_path / "new.wav"), "--map", "?")
    assert plotted.stdout.split()[-1] == "ctc", plotted.output


def test_probabilities_of_ctc_alone(folder: Path, tmp_path: Path) -> None:
    """Decisions are the tokens; their log-probabilities are those of the text, with gradients."""
    training = {**RECIPE["training"], "max_steps": 30, "validate_every": 30}
    for kind in ("recurrent", "transformer"):
        own = {"kind": kind, "outputs": "ctc", "hidden_size": 16, "dropout": 0.0}
        if kind == "recurrent":
            own |= {"encoder_size": 16, "encoder_layers": 1, "pyramid_layers": 0}
        else:
            own |= {"layers": 1, "ffn_size": 16, "heads": 2, "convolutions": 1}
        recipe = {**RECIPE, "model": own, "training": {**training, "choose_by": "loss"}}
        assert heedful.train(recipe, tmp_path / kind, data=folder)
        reader = heedful.load(tmp_path / kind)
        recording = heard_in(str(folder / "test0.wav"))
        trace = reader.trace(recording)
        [part] = recording.parts(reader.features, 1.8)
        with torch.inference_mode():
            sounds = Sounds(part.features[None], torch.tensor([len(part.features)]))
            emissions = reader.model.emissions(reader.model.listen(sounds))[0]
        tokens = reader.vocabulary.encode(trace.title)
        assert trace.decided == [*reader.vocabulary.pieces(tokens), "</s>"]
        expected = log_probability(emissions, tokens, BLANK)
        assert sum(trace.log_probabilities) == pytest.approx(expected, rel=1e-4)
        names = [one.name for one in trace.maps]
        assert "ctc" in names
        gradients = [name for name in names if "×" in name]
        assert bool(gradients) == (kind == "transformer")
        assert all(float(trace[name].weights.abs().sum()) > 0 for name in gradients)
    weighed = invoke("transcribe", str(tmp_path / "recurrent"), str(folder / "test0.wav"),
                     "--ctc-weight", "0.3")  # fmt: skip
    assert "--ctc-weight needs CTC beside a decoder: model.outputs = 'both'" in str(
        weighed.exception
    )


@pytest.mark.parametrize(
    "model",
    [{"kind": "recurrent", "outputs": "ctc"}, {"kind": "transformer", "outputs": "both"},
     {"kind": "recurrent", "attention": "none"}, {"kind": "transformer", "outputs": "ctc"},
     {"kind": "transformer", "encoder": "conformer", "kernel_size": 5, "outputs": "both"}],
)  # fmt: skip
def test_other_models_train_resume_and_transcribe(
    folder: Path, tmp_path: Path, model: dict[str, Any]
) -> None:
    # Models that are hardly trained write texts of the greatest length.
    small = {"dropout": 0.1, "hidden_size": 8, "max_length": 64}
    if model["kind"] == "recurrent":
        small |= {"encoder_size": 8, "embedding_size": 4, "pyramid_layers": 0, "encoder_layers": 1}
    else:
        small |= {"layers": 1, "decoder_layers": 1, "ffn_size": 8, "heads": 2, "convolutions": 1}
    training = {**RECIPE["training"], "max_steps": 4, "checkpoint_every": 2, "validate_every": 2,
                "schedule": "constant",
                "masks": {"widest": 3, "longest": 5}, "warp": {}}  # fmt: skip
    data = {**RECIPE["data"], "validation": "few.tsv"}
    recipe = {**RECIPE, "data": data, "model": {**model, **small}, "training": training}
    assert heedful.train(recipe, tmp_path / "whole", data=folder)
    short = {**recipe, "training": {**training, "max_steps": 2}}
    assert heedful.train(short, tmp_path / "parts", data=folder)
    assert heedful.train(recipe, tmp_path / "parts", data=folder)
    weights = [
        torch.cat([own.flatten() for own in heedful.load(tmp_path / name).model.parameters()])
        for name in ("whole", "parts")
    ]
    assert torch.equal(*weights)
    reader = heedful.load(tmp_path / "whole")
    for beam in (1, 3):
        reader.options = reader.options.model_copy(update={"beam": beam})
        [found] = reader.predict([heard_in(str(folder / "test0.wav"))])
        has_times = model.get("attention") != "none"
        assert bool(found.words) == (has_times and bool(found.text))
    assert reader.trace(heard_in(str(folder / "test0.wav"))).axes["time"].extent[0] > 5


# Losses


def test_the_loss_is_a_weighted_sum(folder: Path) -> None:
    """Kim et al. 2017, equation 12, with both losses computed here, sound by sound."""
    run, spec = spec_of_run(folder / "run")
    made: Any = spec
    model = made.build_model(run).eval()
    task = made.build_task(run, model, run.recipe.training, torch.device("cpu"), "float32")
    batch = next(task.held_out.once())
    loss = task.batch_loss(batch)
    texts, attention, ctc = Texts.of(batch), 0.0, 0.0
    for row in range(len(texts.tokens)):
        one = ColumnBatch(
            {name: own.rows(slice(row, row + 1)) for name, own in batch.columns.items()}, 1
        )
        heard = model.listen(made_sounds(one))
        tokens = texts.tokens[row, : texts.lengths[row]].tolist()
        logits = model.logits(model.spell(heard, torch.tensor([[2, *tokens]])))
        labels = torch.tensor([*tokens, 3])
        attention += F.cross_entropy(logits[0], labels, reduction="sum").item()
        ctc -= log_probability(model.emissions(heard)[0], tokens, BLANK)
    assert float(loss.parts["loss"]) == pytest.approx(attention, rel=1e-4)
    assert float(loss.parts["ctc"]) == pytest.approx(ctc, rel=1e-4)
    assert float(loss.total) == pytest.approx(0.7 * attention + 0.3 * ctc, rel=1e-4)


def made_sounds(batch: ColumnBatch) -> Sounds:
    return Sounds(batch["frames"].padded(), batch["frames"].lengths)


def test_masks_change_training_only(folder: Path) -> None:
    run, spec = spec_of_run(folder / "run")
    made: Any = spec
    model = made.build_model(run)
    training = run.recipe.training.model_copy(
        update={"masks": TranscriptionRecipe.model_validate(
            {**RECIPE, "training": {"masks": {"widest": 8, "longest": 9}}}).training.masks}
    )  # fmt: skip
    task = made.build_task(run, model, training, torch.device("cpu"), "float32")
    sounds = made_sounds(next(task.held_out.once()))
    assert not torch.equal(task._varied(sounds).frames, sounds.frames)
    model.eval()
    assert task._varied(sounds) is sounds


# Data


def test_features_can_be_given(folder: Path, tmp_path: Path) -> None:
    """Files of NumPy instead of sounds: training, evaluation, and what does not fit."""
    rng = np.random.default_rng(2)
    lines = ["path\ttext"]
    for number in range(12):
        np.save(tmp_path / f"{number}.npy", rng.standard_normal((20 + number, 5)))
        lines.append(f"{number}.npy\t{'ab' if number % 2 else 'ba'}")
    (tmp_path / "t.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    data = {"train": "t.tsv", "validation": "t.tsv", "test": "t.tsv", "longest": 0.25,
            "features": {"kind": "given", "bands": 5, "deltas": 1}}  # fmt: skip
    model = {**RECIPE["model"], "outputs": "attention"}
    training = {**RECIPE["training"], "max_steps": 2, "choose_by": "loss"}
    recipe = {**RECIPE, "data": data, "model": model, "training": training}
    assert heedful.train(recipe, tmp_path / "run", data=tmp_path)
    reader = heedful.load(tmp_path / "run")
    assert reader.model.features == 10
    # 0.25 seconds are 26 frames: five of twelve are longer.
    assert spec_of_run(tmp_path / "run")[0].facts["data"]["train"] == 7
    assert len(reader.predict([heard_in(str(tmp_path / "11.npy"))])) == 1
    with pytest.raises(UserError, match=r"a sound, but data.features.kind = 'given'"):
        reader.predict([heard_in(str(folder / "test0.wav"))])
    with pytest.raises(UserError, match=r"a file of features, but data.features.kind = 'log-mel'"):
        heedful.load(folder / "run").predict([heard_in(str(tmp_path / "0.npy"))])
    np.save(tmp_path / "wide.npy", np.zeros((4, 6)))
    np.save(tmp_path / "nan.npy", np.full((4, 5), np.nan))
    np.save(tmp_path / "names.npy", np.array([["a"] * 5]))
    (tmp_path / "bad.npy").write_bytes(b"\x93NUMPY")
    for name, reason in (
        ("wide", "4 frames of 6 features"),
        ("nan", "not a finite number"),
        ("names", "an array of numbers"),
        ("bad", "not a file of features"),
    ):
        with pytest.raises(UserError, match=reason):
            reader.predict([heard_in(str(tmp_path / f"{name}.npy"))])


def test_what_cannot_be_trained_on_is_counted(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(4)
    rows = {"fine": "low high", "long": "low " * 8, "loud": "mid", "silent": "low"}
    for name, text in rows.items():
        samples = spoken(rng, text.split())[0]
        soundfile.write(tmp_path / f"{name}.wav", samples, RATE)
    soundfile.write(tmp_path / "loud.wav", np.sign(spoken(rng, ["mid"])[0]), RATE)
    soundfile.write(tmp_path / "silent.wav", np.zeros(RATE), RATE)
    soundfile.write(tmp_path / "short.wav", spoken(rng, ["low"])[0][:900], RATE)
    rows["short"] = "low high low high"
    lines = [f"{name}.wav\t{text.strip()}" for name, text in rows.items()]
    (tmp_path / "t.tsv").write_text("path\ttext\n" + "\n".join(lines) + "\n", encoding="utf-8")
    data = {**RECIPE["data"], "train": "t.tsv", "validation": "t.tsv", "test": "t.tsv"}
    training = {**RECIPE["training"], "max_steps": 1}
    assert heedful.train({**RECIPE, "data": data, "training": training}, tmp_path / "r",
                         data=tmp_path)  # fmt: skip
    printed = capsys.readouterr().err
    assert "1 of 5 training sounds are silent, such as" in printed
    assert "1 of 5 training sounds are clipped" in printed
    assert "1 of 5 train examples left out: recordings of more than 1.8 seconds" in printed
    assert "1 of 5 train examples left out: recordings with fewer positions than" in printed
    assert "training" in printed
    longer = {**RECIPE, "data": {**data, "longest": 0.01}}
    with pytest.raises(UserError, match="all training examples are left out: recordings of more"):
        heedful.train(longer, tmp_path / "none", data=tmp_path)
    assert not (tmp_path / "none" / "run.json").exists()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("none.wav\tyes", r"\.tsv: cannot read the sound"),
        ("test0.wav\t ", "'text' is empty; fill it in, or remove the row$"),
        ("test.tsv\tyes", "not a sound that can be read"),
        ("empty.wav\tyes", "no samples"),
        ("data:audio/wav;base64,!\tyes", "damaged"),
        ("data:text/plain;base64,aa\tyes", "not a data URI"),
    ],
)
def test_tables_that_cannot_be_used_are_named(folder: Path, row: str, message: str) -> None:
    soundfile.write(folder / "empty.wav", np.zeros(0), RATE)
    table = folder / "bad.tsv"
    table.write_text(f"path\ttext\n{row}\n", encoding="utf-8")
    features = SoundFeatures.model_validate(FEATURES)

    def read() -> None:
        for clip in read_clips(str(table), sound="path", text="text"):
            Heard(sound=clip.uri).named(clip.where).frames(features)

    with pytest.raises(UserError, match=message):
        read()
    with pytest.raises(UserError, match="no such folder"):
        list(read_clips(str(table), sound="path", text="text", folder="elsewhere"))


def test_kept_examples_need_no_files(folder: Path) -> None:
    kept = [
        json.loads(line) for line in (folder / "run" / "data" / "test.jsonl").open(encoding="utf-8")
    ]
    assert len(kept) == 12
    assert kept[0]["sound"].startswith("data:audio/flac;base64,")
    features = SoundFeatures.model_validate(FEATURES)
    found = Heard(sound=kept[0]["sound"]).frames(features)
    again = heard_in(str(folder / "test0.wav")).frames(features)
    torch.testing.assert_close(found, again, atol=0.02, rtol=0.02)


def test_stereo_and_other_rates_are_converted(folder: Path) -> None:
    samples, _ = soundfile.read(folder / "test0.wav")
    features = SoundFeatures.model_validate(FEATURES)
    expected = heard_in(str(folder / "test0.wav")).frames(features)
    file = io.BytesIO()
    soundfile.write(file, np.stack([samples, samples], 1), RATE, format="FLAC")
    (folder / "two.flac").write_bytes(file.getvalue())
    torch.testing.assert_close(heard_in(str(folder / "two.flac")).frames(features), expected,
                               atol=0.02, rtol=0.02)  # fmt: skip
    soundfile.write(folder / "high.wav", np.repeat(samples, 12), 12 * RATE)
    found = heard_in(str(folder / "high.wav")).frames(features)
    assert abs(len(found) - len(expected)) <= 1


def test_a_recipe_is_chosen_from_a_table(folder: Path) -> None:
    tables = Transcription().choose_recipe([str(folder / "train.tsv")])
    recipe = TranscriptionRecipe.model_validate(tables)
    assert recipe.data.features.rate == RATE
    assert recipe.model.has_ctc
    assert (recipe.data.trim, recipe.training.batch_tokens) == (0.0, 3000)
    empty = folder / "empty.tsv"
    empty.write_text("path\ttext\n", encoding="utf-8")
    with pytest.raises(UserError, match="no recordings to train on"):
        Transcription().choose_recipe([str(empty)])


def test_wrong_recipes() -> None:
    for change, reason in (
        ({"training": {"choose_by": "word_error", "validation_sounds": 0}}, "validation_sounds"),
        ({"model": {"kind": "recurrent", "outputs": "ctc"}, "decoding": {"sample": True}},
         "needs a decoder"),
        ({"model": {"kind": "recurrent", "outputs": "ctc"}, "decoding": {"ctc_weight": 0.3}},
         "decoding.ctc_weight needs CTC beside a decoder: model.outputs = 'both', not 'ctc'"),
        ({"data": {**RECIPE["data"], "features": {"kind": "mfcc", "coefficients": 90}}}, "exceeds"),
        ({"data": {**RECIPE["data"], "features": {"kind": "mfcc"}}, "training": {"warp": {}}},
         "needs bands"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=reason):
            TranscriptionRecipe.model_validate({**RECIPE, **change})


def test_the_server_reads_no_paths(folder: Path) -> None:
    with pytest.raises(UserError, match=r"the input"):
        Transcription().read_input(str(folder / "test0.wav"))
    uri = as_uri(folder / "test0.wav")
    assert Transcription().read_input(json.dumps({"sound": uri})).sound == uri


# Serving


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    served = load_all([folder / "run"], [], several=True, device="cpu")
    with running(make_application(served)) as one:
        yield one


def test_the_server_transcribes_long_recordings_and_opens_no_files(
    folder: Path, address: str
) -> None:
    """A recording has more characters than a request may have of text."""
    rng = np.random.default_rng(8)
    samples = np.concatenate([spoken(rng, ["low", "mid", "high"])[0] for _ in range(10)])
    soundfile.write(folder / "minute.wav", samples, RATE)
    uri = as_uri(folder / "minute.wav")
    assert len(uri) > 200_000
    found = httpx.post(f"{address}/api/predict/run", json={"inputs": [{"sound": uri}]})
    assert found.status_code == 200, found.text
    [result] = found.json()["results"]
    assert result == heedful.load(folder / "run").predict([{"sound": uri}])[0].to_json()
    refused = {
        "a path": {"sound": str(folder / "test0.wav")},
        "text": {"sound": "data:text/plain;base64,aGVsbG8="},
        "no sound": {"sound": "data:audio/wav;base64,aGVsbG8="},
        "features": {"sound": "data:application/x-npy;base64,aGVsbG8="},
        "a long text": {"sound": uri, "text": "a" * 200_000},
    }
    for name, given in refused.items():
        answer = httpx.post(f"{address}/api/predict/run", json={"inputs": [given]})
        assert answer.status_code == 400, (name, answer.text)
        assert "Traceback" not in answer.text
    trace = httpx.post(f"{address}/api/trace", json={"model": "run", "input": {"sound": uri}})
    assert trace.status_code == 200, trace.text[:300]


@needs_browser()
def test_the_page_transcribes_a_recording_that_is_chosen(
    chromium: Any, folder: Path, address: str
) -> None:
    with opened(chromium, address) as it:
        it.page.set_input_files("input[type=file]", folder / "test0.wav")
        [found] = heedful.load(folder / "run").predict([heard_in(str(folder / "test0.wav"))])
        text = found.text
        it.page.wait_for_selector(f".heed-result dd >> text={text}")
        words = it.page.locator(".heed-word-button")
        assert words.locator("span:first-child").all_inner_texts() == text.split()
        it.page.evaluate(SPY)
        words.first.click()
        [[_, offset, seconds]] = it.page.evaluate("window.played")
        start, end = found.words[0].start, found.words[0].end
        assert offset == pytest.approx(max(0, (start + end - max(0.15, end - start)) / 2), abs=0.02)
        assert seconds == pytest.approx(max(0.15, end - start), abs=0.02)
        it.page.click("text=Steps")
        it.page.locator(".heed-token-strip button").first.wait_for()


# CTC in the search


def test_ctc_is_weighed_in_the_search(folder: Path) -> None:
    run, names = str(folder / "run"), [str(folder / f"test{number}.wav") for number in range(4)]
    alone = invoke("transcribe", run, *names, "--ctc-weight", "0")
    assert alone.exit_code == 0, alone.exception
    given = invoke("transcribe", run, *names, "--ctc-weight", "0.3", "--json")
    plain = invoke("transcribe", run, *names, "--json")
    assert given.stdout == plain.stdout  # the weight of the training
    scored = invoke("evaluate", run, "--ctc-weight", "1", "--output", str(folder / "by-ctc.txt"))
    assert scored.exit_code == 0, scored.exception
    assert ", ctc_weight 1.0, float32)" in describe_run(summarise_run(folder / "run"))
    reader = heedful.load(folder / "run")
    recordings = [heard_in(name) for name in names]
    assert reader.options.ctc_weight == 0.3
    reader.options = reader.options.model_copy(update={"ctc_weight": 0.0})
    by_decoder = reader.predict(recordings)
    found = {}
    for weight in (0.3, 1.0):
        options = {"ctc_weight": weight, "length_penalty": 0.0, "beam": 8}
        reader.options = reader.options.model_copy(update=options)
        found[weight] = reader.predict(recordings)
    # Each text of the joint search is as probable by both, weighed, as that of the decoder alone.
    own, model = reader.vocabulary, reader.model
    for recording, joint, one, by_ctc in zip(recordings, found[0.3], by_decoder, found[1.0],
                                             strict=True):  # fmt: skip
        [part] = recording.parts(reader.features, 1.8)
        with torch.inference_mode():
            heard = model.listen(Sounds(part.features[None], torch.tensor([len(part.features)])))
            emissions = model.emissions(heard)[0]

            def scored(text: str, heard: Any = heard, emissions: Any = emissions) -> float:
                tokens = own.encode(text)
                likely = model.logits(model.spell(heard, torch.tensor([[BEGIN, *tokens]])))
                chosen = likely[0].log_softmax(1)[range(len(tokens) + 1), [*tokens, END]].sum()
                return 0.3 * log_probability(emissions, tokens, BLANK) + 0.7 * float(chosen)

            assert joint.log_probability == pytest.approx(scored(joint.text), abs=1e-4)
            assert joint.log_probability >= scored(one.text) - 1e-4
            expected = prefix_search(emissions, BLANK, beam=20)[0]
        assert by_ctc.text == own.decode(expected.tokens)
        exact = log_probability(emissions, expected.tokens, BLANK)
        assert by_ctc.log_probability == pytest.approx(exact, abs=1e-4)
    assert alone.stdout.splitlines() == [one.text for one in by_decoder]
    reader.options = reader.options.model_copy(update={"length_penalty": 1.0, "beam": 5})
    written = (folder / "by-ctc.txt").read_text(encoding="utf-8").splitlines()[:4]
    assert written == [one.text for one in reader.predict(recordings)]


# A language model


def test_a_language_model_changes_the_search(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("high mid low\nhigh mid\n" * 30, encoding="utf-8")
    recipe = {
        "task": "language-model",
        "data": {"train": ["texts.txt"], "validation": ["texts.txt"], "documents": "lines"},
        "tokeniser": {"kind": "words"},
        "model": {"kind": "gpt", "layers": 1, "hidden_size": 16, "heads": 2},
        "training": {"max_steps": 30, "learning_rate": 0.02, "warmup_steps": 5, "threads": 1,
                     "batch_tokens": 256, "precision": "float32", "device": "cpu"},
    }  # fmt: skip
    assert heedful.train(recipe, tmp_path / "lm", data=tmp_path)
    run, name = str(folder / "run"), str(folder / "test2.wav")
    alone = invoke("transcribe", run, name)
    same = invoke("transcribe", run, name, "--language-model", str(tmp_path / "lm"),
                  "--language-weight", "0")  # fmt: skip
    assert same.exit_code == 0, same.exception
    assert same.stdout == alone.stdout
    language = ["--language-model", str(tmp_path / "lm"), "--language-weight", "30"]
    led = invoke("transcribe", run, name, *language)
    assert led.stdout.startswith("high mid")
    scored = invoke("evaluate", run, "--data", str(folder / "test.tsv"), "--json", *language,
                    "--output", str(tmp_path / "led.txt"))  # fmt: skip
    assert scored.exit_code == 0, scored.exception
    assert (tmp_path / "led.txt").read_text(encoding="utf-8").splitlines()[2] == led.stdout.strip()
    alone = invoke("transcribe", run, name, "--language-weight", "1")
    assert "--language-weight needs --language-model" in str(alone.exception)
    wrong = invoke("transcribe", run, name, "--language-model", run)
    assert "no language model" in str(wrong.exception)
