"""Errors that name the recording, and settings of the search that exclude each other."""

import base64
import json
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import soundfile

import heedful
from heedful.basics.errors import UserError
from heedful.data.readers.sounds import read_sound
from heedful.decoding import Hypothesis
from heedful.serving import make_application
from heedful.serving.loading import load_all
from heedful.tasks.sound_input import heard_in
from heedful.tasks.transcription import predictor
from heedful.tasks.transcription.recipe import TranscriptionRecipe
from serving_help import running
from test_transcription import RATE, RECIPE, invoke, spoken

BROKEN = "data:audio/wav;base64," + base64.b64encode(b"no sound").decode()
MODEL = {"kind": "recurrent", "outputs": "both", "encoder_size": 8, "encoder_layers": 1,
         "pyramid_layers": 0, "embedding_size": 8, "hidden_size": 8}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place, rng = tmp_path_factory.mktemp("speech"), np.random.default_rng(1)
    lines = ["path\ttext"]
    for number, word in enumerate(("low", "mid", "high")):
        soundfile.write(place / f"{number}.wav", spoken(rng, [word, "low"])[0], RATE)
        lines.append(f"{number}.wav\t{word} low")
    soundfile.write(place / "empty.wav", np.zeros(0), RATE)
    soundfile.write(place / "one.wav", np.zeros(1), RATE)
    (place / "t.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert heedful.train(recipe_of(), place / "run", data=place)
    return place


def recipe_of(**decoding: Any) -> dict[str, Any]:
    data = {"train": "t.tsv", "features": RECIPE["data"]["features"]}
    training = {**RECIPE["training"], "max_steps": 1, "choose_by": "loss"}
    return {"task": "transcription", "data": data, "model": MODEL, "training": training,
            "decoding": {"beam": 5, **decoding}}  # fmt: skip


def test_the_recording_that_cannot_be_read_is_named(folder: Path) -> None:
    (folder / "e.tsv").write_text("path\ttext\n0.wav\tlow\nempty.wav\tlow\n", encoding="utf-8")
    found = invoke("evaluate", str(folder / "run"), "--data", str(folder / "e.tsv"))
    assert str(found.exception).startswith(f"{folder / 'empty.wav'}: no samples")
    first = heard_in(str(folder / "0.wav")).model_dump_json()
    lines = f"{first}\n{json.dumps({'sound': BROKEN})}\n"
    found = invoke("predict", str(folder / "run"), input=lines)
    assert str(found.exception).startswith("line 2: not a sound that can be read")
    with pytest.raises(UserError, match=r"^input 2: not a sound that can be read"):
        heedful.load(folder / "run").predict([json.loads(first), {"sound": BROKEN}])


def test_a_server_names_the_recording_that_cannot_be_read(folder: Path) -> None:
    served = load_all([folder / "run"], [], several=True, device="cpu")
    body = {"inputs": [heard_in(str(folder / "0.wav")).model_dump(), {"sound": BROKEN}]}
    with running(make_application(served)) as address:
        found = httpx.post(f"{address}/api/predict/{served[0].name}", json=body, timeout=60)
    assert found.status_code == 400
    assert "inputs.1: not a sound that can be read" in found.text


def test_a_missing_column_names_the_settings(folder: Path) -> None:
    (folder / "c.tsv").write_text("file\ttext\n0.wav\tlow\n", encoding="utf-8")
    found = invoke("evaluate", str(folder / "run"), "--data", str(folder / "c.tsv"))
    assert "there is no column 'path'" in str(found.exception)
    assert "data.sound and data.text choose columns" in str(found.exception)
    assert "--label" not in str(found.exception)


def test_further_texts_are_different(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text with another space is the same text."""
    reader = heedful.load(folder / "run")
    own = reader.vocabulary
    [low], [space] = own.encode("l"), own.encode(" ")
    texts = [(low,), (low, space), (space,), ()]
    made = [Hypothesis(one, -place, -place, ()) for place, one in enumerate(texts, 1)]
    monkeypatch.setattr(predictor, "find_texts", lambda *given: [made])
    [found] = reader.predict([heard_in(str(folder / "0.wav"))])
    assert (found.text, found.log_probability) == ("l", -1)
    assert found.others == [("", -3)]


def test_texts_of_a_forced_length_are_those_of_the_decoder(folder: Path) -> None:
    """CTC may have no path with so many tokens."""
    assert heedful.train(recipe_of(forced_length=4), folder / "forced", data=folder)
    reader = heedful.load(folder / "forced")
    assert reader.options.ctc_weight == 0
    [found] = reader.predict([heard_in(str(folder / "one.wav"))])
    assert np.isfinite(found.log_probability)
    with pytest.raises(ValueError, match="forced_length and ctc_weight exclude each other"):
        TranscriptionRecipe.model_validate(recipe_of(forced_length=4, ctc_weight=0.5))
    with pytest.raises(ValueError, match="forced_length needs a decoder"):
        TranscriptionRecipe.model_validate(
            {**recipe_of(forced_length=4), "model": {**MODEL, "outputs": "ctc"}}
        )


def test_an_infinite_weight_of_a_language_model_is_refused(folder: Path) -> None:
    found = invoke("transcribe", str(folder / "run"), str(folder / "0.wav"), "--language-model",
                   str(folder / "run"), "--language-weight", "inf")  # fmt: skip
    assert found.exit_code == 2
    assert "Invalid value for '--language-weight'" in found.output


def test_no_recipe_is_chosen_for_files_of_features(folder: Path) -> None:
    np.save(folder / "f.npy", np.zeros((4, 13)))
    (folder / "f.tsv").write_text("path\ttext\nf.npy\tlow\n", encoding="utf-8")
    found = invoke("train", "--task", "transcribe", "--data", str(folder / "f.tsv"), "--out",
                   str(folder / "features"))  # fmt: skip
    assert "f.npy: a file of features, but a recipe is chosen for sounds only" in str(
        found.exception
    )
    assert not (folder / "features").exists()


def test_an_mp3_that_is_cut_off_is_damaged(tmp_path: Path) -> None:
    """Its header says how many samples it has."""
    path, samples = tmp_path / "a.mp3", np.random.default_rng(1).normal(0, 0.1, 40_000)
    soundfile.write(path, samples, 44_100)
    assert len(read_sound(path).samples) == 40_000
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match=r"damaged \([\d,]+ of 40,000 samples are there\)"):
        read_sound(path)


def test_no_recording_is_replaced_by_its_text(folder: Path) -> None:
    path = str(folder / "0.wav")
    before = (folder / "0.wav").read_bytes()
    for files, text in (([path], None), ([], f"{path}\n")):
        arguments = ["transcribe", str(folder / "run"), *files, "--output", path]
        found = invoke(*arguments, input=text)
        assert "is a recording to transcribe; give another file" in str(found.exception)
    assert (folder / "0.wav").read_bytes() == before
