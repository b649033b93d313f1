"""Synthesis of speech: a tone for each character is learned and heard; the command, the losses."""

import base64
import io
import json
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
import torch.nn.functional as F
import typer
from safetensors.torch import load_file
from typer.testing import CliRunner

import heedful
from heedful.basics.errors import UserError
from heedful.cli import evaluate, predict, task_commands, view
from heedful.cli import train as train_command
from heedful.data.column_batch import ColumnBatch
from heedful.data.readers.sounds import read_sound
from heedful.inference.trace import Trace
from heedful.runs.opening import open_run
from heedful.serving import make_application
from heedful.serving.loading import load_all
from heedful.tasks.sound_input import heard_in
from heedful.tasks.spec import spec_of_run
from heedful.tasks.synthesis.examples import Recording, Said, SpeechFeatures
from heedful.tasks.synthesis.guided_attention import guided_losses
from heedful.tasks.synthesis.speaking import Utterance
from heedful.tasks.synthesis.texts import Scale
from heedful.tasks.synthesis.training import texts_of
from page_help import SPY, needs_browser, opened
from serving_help import running
from synthesis_help import RATE, RECIPE, TONE, TONES, write_clips


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("said")
    write_clips(place, train=96, test=10)
    assert heedful.train(RECIPE, place / "run", data=place)
    return place


def invoke(*arguments: str, **how: Any) -> Any:
    app = typer.Typer()
    for one in (task_commands, evaluate, predict, train_command, view):
        one.register(app)
    return CliRunner().invoke(app, list(arguments), **how)


def tones_in(samples: Any, count: int) -> list[str]:
    """The tone that is nearest to the loudest frequency of each part."""
    found = []
    for number in range(count):
        first, end = ((number + own) * RATE * TONE for own in (0.25, 0.75))
        part = samples[int(first) : int(end)]
        loudest = np.abs(np.fft.rfft(part * np.hanning(len(part)), RATE)).argmax()
        found.append(min(TONES, key=lambda one: abs(np.log(TONES[one] / max(1, loudest)))))
    return found


# Another voice


def test_a_voice_starts_from_another_one(folder: Path, tmp_path: Path) -> None:
    """It has the weights and characters of the other one, and then its own characters."""
    higher = {name: 1.1 * hertz for name, hertz in TONES.items()} | {"e": 900.0}
    write_clips(tmp_path, higher, train=20, test=2)
    training = {**RECIPE["training"], "max_steps": 1, "validation_texts": 0}
    recipe = {key: own for key, own in RECIPE.items() if key != "model"} | {"training": training}
    assert heedful.train(recipe, tmp_path / "run", data=tmp_path, start_from=folder / "run")
    [said, new] = heedful.load(tmp_path / "run").predict([{"text": "dbca"}, {"text": "e"}])
    assert said.complete
    assert new.sound.seconds > 0
    first, second = open_run(folder / "run"), open_run(tmp_path / "run")
    mine, theirs = second.facts["known"], first.facts["known"]
    assert mine["entries"] == [*theirs["entries"], "e"]
    assert mine["mean"] != theirs["mean"]
    before = first.chosen().weights()
    after = load_file(second.start_folder / "model.safetensors")
    table, given = after.pop("embedding.weight"), before.pop("embedding.weight")
    torch.testing.assert_close(after, before, rtol=0, atol=0)
    assert torch.equal(table[:-1], given)
    assert 0.3 < table[-1].std() / given.std() < 3


def test_a_start_keeps_how_recordings_are_read(folder: Path, tmp_path: Path) -> None:
    other = {**RECIPE, "data": {**RECIPE["data"], "lower_case": False}}
    with pytest.raises(UserError, match=r"data\.lower_case differs from that of the run that"):
        heedful.train(other, tmp_path / "no", data=folder, start_from=folder / "run")
    found = invoke("train", "--task", "speak", "--data", str(folder / "train.tsv"), "--start-from",
                   str(folder / "run"), "--out", str(tmp_path / "run"), "--set",
                   "training.max_steps=1", "--set", "training.validation_texts=0",
                   "--set", "training.threads=1")  # fmt: skip
    assert found.exit_code == 0, found.exception
    [own, theirs] = (open_run(one / "run").recipe for one in (tmp_path, folder))
    assert own.model.hidden_size == theirs.model.hidden_size
    assert own.data.features == theirs.data.features


# Using a run


def test_it_speaks(folder: Path) -> None:
    """Free-running, the tone of each character is heard at its time, and nothing after the last."""
    reader, wrong, late = heedful.load(folder / "run"), 0, []
    texts = ["abcd", "ddab", "cab", "ba", "acdb", "dcba", "bd", "cdca"]
    for text, found in zip(texts, reader.predict([{"text": one} for one in texts]), strict=True):
        assert found.complete
        assert abs(found.sound.seconds - TONE * len(text)) < 0.08
        wrong += sum(a != b for a, b in zip(tones_in(found.sound.samples, len(text)), text,
                                            strict=True))  # fmt: skip
        [word] = found.words
        assert word.text == text
        late += [word.start, word.end - TONE * len(text)]
    assert wrong <= 3  # of 27
    assert np.abs(late).mean() < 0.1


def test_it_says_the_same_alone_and_beside_others(folder: Path) -> None:
    reader = heedful.load(folder / "run")
    together = reader.predict([{"text": one} for one in ("abcd", "ba", "")])
    [alone] = reader.predict([Said(text="ba")])
    # Griffin and Lim's iterations amplify the rounding of frames, on each processor in its own way.
    expected = alone.sound.samples
    difference = np.linalg.norm(together[1].sound.samples - expected)
    assert difference < 0.02 * np.linalg.norm(expected)
    assert together[2].alignments == []
    assert together[2].sound.seconds == pytest.approx(0.2)


def test_the_command_writes_a_sound(folder: Path, tmp_path: Path) -> None:
    run = str(folder / "run")
    files = [tmp_path / f"{number}{end}" for number, end in enumerate((".wav", ".flac", ".ogg"))]
    for file in files:
        made = invoke("speak", run, "abcd", "-o", str(file))
        assert made.exit_code == 0, made.output
        sound = read_sound(file)
        assert sound.rate == RATE
        assert abs(sound.seconds - 4 * TONE) < 0.08
    piped = invoke("speak", run, "-o", str(tmp_path / "piped.wav"), input="abcd\n")
    assert piped.exit_code == 0, piped.output
    assert (tmp_path / "piped.wav").read_bytes() == files[0].read_bytes()
    seeded = invoke("speak", run, "abcd", "-o", str(tmp_path / "seed.wav"), "--seed", "9")
    assert seeded.exit_code == 0, seeded.output
    assert (tmp_path / "seed.wav").read_bytes() != files[0].read_bytes()
    predicted = invoke("predict", run, input="abcd\n\n")
    first, second = map(json.loads, predicted.stdout.splitlines())
    assert first["text"] == "abcd"
    assert first["complete"]
    assert first["words"][0]["text"] == "abcd"
    assert first["sound"].startswith("data:audio/wav;base64,")
    assert second["words"] == []
    assert json.loads(invoke("predict", run, "--json", input="abcd\n").stdout) == first


def test_the_server_speaks(folder: Path) -> None:
    models = load_all([folder / "run"], [], several=False, device="cpu")
    with running(make_application(models)) as address:
        name = models[0].name
        body = {"inputs": [{"text": "abcd"}]}
        [found] = httpx.post(f"{address}/api/predict/{name}", json=body, timeout=60).json()[
            "results"
        ]
        refused = httpx.post(f"{address}/api/predict/{name}", json={"inputs": [{"text": 3}]})
    data = base64.b64decode(found["sound"].partition(",")[2])
    assert abs(read_sound(data).seconds - 4 * TONE) < 0.08
    assert refused.status_code == 400


def test_long_texts_are_spoken_by_sentences(folder: Path) -> None:
    """With a pause between two, and each as it is alone."""
    reader = heedful.load(folder / "run")
    sentences = ["abcd", "dacbb", "ba"]
    [found] = reader.predict([{"text": "\n".join(sentences)}])
    assert len(found.alignments) == 3
    alone = [one.sound for one in reader.predict([{"text": one} for one in sentences])]
    assert found.sound.seconds == pytest.approx(sum(one.seconds for one in alone) + 2 * 0.2)
    assert [word.text for word in found.words] == sentences
    starts = [one.start for one in found.alignments]
    assert starts[1] == pytest.approx(alone[0].seconds + 0.2)
    # No word is longer than the longest text of the training: it is cut.
    [long] = reader.predict([{"text": "abcdabcdabcd"}])
    assert [len(one.tokens) for one in long.alignments] == [6, 6, 3]
    assert "".join(word.text for word in long.words) == "abcdabcdabcd"


def test_nothing_is_left_out_in_silence(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reader = heedful.load(folder / "run")
    found = reader.predict([{"text": "Ab~c~"}, {"text": "d7"}])
    assert [len(one.alignments[0].tokens) for one in found] == [4, 2]
    assert not reader.predict([{"text": "7"}])[0].complete
    printed = capsys.readouterr().err
    assert "3 characters that the training texts lack were left out: '~', '7'" in printed
    with torch.no_grad():
        reader.model.decoder.stop.bias.fill_(-1e4)
    [one] = reader.predict([{"text": "ab"}])
    assert not one.complete
    assert "1 of 1 sentences reached the time limit" in capsys.readouterr().err


def test_evaluation(folder: Path) -> None:
    result = invoke("evaluate", str(folder / "run"), "--json")
    assert result.exit_code == 0, result.output
    figures = json.loads(result.stdout)["figures"]
    assert figures["complete"]["value"] >= 90
    assert figures["duration"]["value"] <= 20
    assert figures["distortion"]["value"] <= 6


def test_the_trace_shows_the_alignment(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.safetensors"
    made = invoke("speak", str(folder / "run"), "abcd", "-o", str(tmp_path / "a.wav"),
                  "--trace", str(out))  # fmt: skip
    assert made.exit_code == 0, made.output
    found = Trace.load(out)
    time, source = found.axes["time"], found.axes["source"]
    assert source.labels == ["a", "b", "c", "d", "</s>"]
    assert time.kind == "time"
    assert time.media is not None
    sound = read_sound(io.BytesIO(time.media.data).getvalue())
    assert sound.seconds == pytest.approx(read_sound(tmp_path / "a.wav").seconds)
    [own] = found.maps
    assert (own.query_axis, own.key_axis) == ("time", "source")
    assert own.weights.shape == (1, len(time), 5)
    reader = heedful.load(folder / "run")
    [said] = reader.predict([{"text": "abcd"}])
    torch.testing.assert_close(own.weights[0], said.alignments[0].weights, atol=1e-4, rtol=1e-3)
    assert found.decided[1:3] == ["0.06 s", "0.12 s"]
    assert found.decided[-1] == "stop"
    with pytest.raises(UserError, match="no character that the training texts have"):
        reader.trace(Said(text="777"))


def test_a_single_frame_is_a_step_of_silence(folder: Path) -> None:
    reader = heedful.load(folder / "run")
    frames = torch.zeros(1, reader.model.bands)
    sound = reader.sound_of(Utterance(frames, frames, torch.ones(1, 2), True))
    assert sound.seconds == pytest.approx(0.03)
    assert not sound.samples.any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["abcd", "-o", "a.mp3"], "must end in .wav, .flac, .ogg"),
        (["  ", "-o", "a.wav"], "the text is empty"),
        (["777", "-o", "a.wav"], "no character that the training texts have"),
        (["ab", "-o", "a.wav", "--trace", "a.json"], "must end in .safetensors"),
        (["ab", "-o", "a.wav", "--seed", "-1"], "seed"),
        (["ab", "-o", "a.wav", "--threads", "0"], "the minimum is 1"),
    ],
)
def test_wrong_commands(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str],
    message: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    done = invoke("speak", str(folder / "run"), *arguments)
    assert done.exit_code != 0
    assert message in str(done.exception)
    assert "\n" not in str(done.exception)
    assert not list(tmp_path.iterdir())


# Training


def test_the_loss_is_its_parts(folder: Path) -> None:
    """Each part, recording by recording."""
    run, spec = spec_of_run(folder / "run")
    made: Any = spec
    model = made.build_model(run).eval()
    training = run.recipe.training.model_copy(update={"error": "l1", "guided_attention": 0.7})
    task = made.build_task(run, model, training, torch.device("cpu"), "float32")
    batch = next(task.held_out.once())
    loss = task.batch_loss(batch)
    sums = dict.fromkeys(("before", "after", "stop", "guided"), 0.0)
    source = texts_of(batch)
    for row in range(len(source.lengths)):
        one = ColumnBatch(
            {name: own.rows(slice(row, row + 1)) for name, own in batch.columns.items()}, 1
        )
        frames = one["frames"].padded()
        count = frames.shape[1]
        own = texts_of(one)
        with torch.no_grad(), heedful.watch(model) as seen:
            found = model.teacher_force(own, frames, torch.tensor([count]))
        steps = -(-count // 2)
        sums["before"] += float((found.coarse[0, :count] - frames[0]).abs().mean(1).sum())
        sums["after"] += float((found.fine[0, :count] - frames[0]).abs().mean(1).sum())
        logits = found.stops[0]
        stops = -F.logsigmoid(-logits[:-1]).sum() - 5 * F.logsigmoid(logits[-1])
        sums["stop"] += float(stops) / steps * count
        weights = torch.cat(seen["decoder.attention"], 2)[:, 0]
        guided = guided_losses(weights, torch.tensor([steps]), own.lengths - 1, 0.2)
        sums["guided"] += float(guided) * count
    for name, value in sums.items():
        assert float(loss.parts[name]) == pytest.approx(value, rel=1e-4), name
    total = sums["before"] + sums["after"] + sums["stop"] + 0.7 * sums["guided"]
    assert float(loss.total.detach()) == pytest.approx(total, rel=1e-4)
    assert set(loss.weights.values()) == {int(batch["frames"].lengths.sum())}
    parts = [task.batch_loss(part).total.detach() for part in task.split(batch, 3, 20)]
    assert len(parts) > 1
    assert float(sum(parts)) == pytest.approx(total, rel=1e-4)
    none = training.model_copy(update={"guided_attention": 0.0})
    task = made.build_task(run, model, none, torch.device("cpu"), "float32")
    assert "guided" not in task.batch_loss(batch).parts


SHARED = {"prenet_size": 8, "postnet_layers": 2, "postnet_channels": 8, "dropout": 0.1}
MODELS: list[dict[str, Any]] = [
    {"kind": "recurrent", "embedding_size": 8, "encoder_size": 4, "hidden_size": 8},
    {"kind": "recurrent", "embedding_size": 8, "encoder_size": 4, "hidden_size": 8,
     "attention": {"score": "energy", "normalizer": "monotonic"}, "frames_per_step": 4},
    {"kind": "transformer", "hidden_size": 8, "heads": 2, "ffn_size": 8, "layers": 1,
     "decoder_layers": 1},
]  # fmt: skip


@pytest.mark.parametrize("model", MODELS)
def test_models_train_resume_exactly_and_speak(
    folder: Path, tmp_path: Path, model: dict[str, Any]
) -> None:
    training = {**RECIPE["training"], "max_steps": 4, "checkpoint_every": 2, "validate_every": 2,
                "schedule": "constant"}  # fmt: skip
    recipe = {**RECIPE, "model": {**SHARED, **model}, "training": training}
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
    [found] = reader.predict([{"text": "ab"}])
    axes = reader.trace(Said(text="ab")).axes
    assert axes["time"].extent[0] == len(found.alignments[0].weights)
    assert axes["source"].labels == ["a", "b", "</s>"]


def test_targets_have_mean_0_and_variance_1(folder: Path) -> None:
    run, spec = spec_of_run(folder / "run")
    made: Any = spec
    known = run.facts["known"]
    clips = [line.split("\t") for line in (folder / "train.tsv").read_text().splitlines()[1:]]
    rows = []
    for path, text in clips:
        one = Recording(sound=heard_in(str(folder / path)).sound, text=text)
        rows.append(torch.from_numpy(made.encode(one, known)["frames"]))
    frames = torch.cat(rows).double()
    torch.testing.assert_close(frames.mean(0), torch.zeros(24).double(), atol=1e-4, rtol=0)
    torch.testing.assert_close(frames.square().mean(0), torch.ones(24).double(), atol=1e-3, rtol=0)
    features = SpeechFeatures.model_validate(known["features"])
    restored = Scale.of(known).restored(rows[0])
    direct = features.of(read_sound(folder / clips[0][0])).clamp(min=np.log(1e-4))
    torch.testing.assert_close(restored, direct, atol=1e-3, rtol=1e-3)


@needs_browser()
def test_the_page_plays_what_is_spoken(chromium: Any, folder: Path) -> None:
    served = load_all([folder / "run"], [], several=True, device="cpu")
    [found] = heedful.load(folder / "run").predict([{"text": "abcd"}])
    with running(make_application(served)) as address, opened(chromium, address) as it:
        it.page.fill("textarea", "abcd")
        play = it.page.locator(".heed-result button >> text=Play")
        play.wait_for()
        it.page.evaluate(SPY)
        play.click()
        it.page.wait_for_function("window.played.length")
        [[_, offset, seconds]] = it.page.evaluate("window.played")
        assert offset == 0
        assert seconds == pytest.approx(found.sound.seconds, abs=0.01)
        it.page.locator(".heed-word-button").click()
        [_, [_, offset, seconds]] = it.page.evaluate("window.played")
        [word] = found.words
        assert offset == pytest.approx(word.start, abs=0.01)
        assert seconds == pytest.approx(word.end - word.start, abs=0.01)
        with it.page.expect_download() as saved:
            it.page.click(".heed-result button >> text=Save")
        assert saved.value.suggested_filename == "sound.wav"
        again = read_sound(Path(saved.value.path()))
        assert again.rate == found.sound.rate
        assert len(again.samples) == len(found.sound.samples)
