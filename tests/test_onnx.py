"""ONNX exports: what onnxruntime computes is what the model computes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import heedful
from heedful.basics.errors import UserError
from heedful.basics.symbols import BEGIN, END
from heedful.cli import main
from heedful.data.saved_vocabularies import load_tokenisers, load_vocabulary
from heedful.decoding import SearchOptions
from heedful.interop.onnx_folders import export_onnx
from heedful.models.encoders import sequences_of
from text_help import LOOP, RECIPES, write_data

onnxruntime = pytest.importorskip("onnxruntime", reason="heedful[onnx] is not installed")
pytest.importorskip("onnxscript", reason="heedful[onnx] is not installed")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("onnx")
    write_data(folder)
    lines = ["the red dog sees a cat", "a blue bird eats", "the cat sees the green bird", "a dog"]
    (folder / "source.txt").write_text("\n".join(lines * 4), encoding="utf-8")
    turned = [" ".join(reversed(line.split())) for line in lines]
    (folder / "target.txt").write_text("\n".join(turned * 4), encoding="utf-8")
    return folder


def session(path: Path) -> Any:
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def run_of(folder: Path, name: str, **more: Any) -> Path:
    tables = {**RECIPES[name], **more}
    out = folder / f"{name}-{len(list(folder.iterdir()))}"
    tables["training"] = {**LOOP, "max_steps": 4, "validate_every": 4, "checkpoint_every": 4}
    assert heedful.train(tables, out, data=folder)
    return out


def slow(*values: Any) -> Any:
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    "name", ["classification", *map(slow, ("pairs", "rated", "tagging", "masked"))]
)
def test_an_encoder_is_the_model_for_any_size(folder: Path, name: str) -> None:
    run = run_of(folder, name)
    out = export_onnx(run, folder / f"{run.name}-onnx")
    about = json.loads((out / "onnx.json").read_text(encoding="utf-8"))
    assert about["files"] == ["model.onnx"]
    reader: Any = heedful.load(run, device="cpu")
    graph = session(out / "model.onnx")
    known = {one.name for one in graph.get_inputs()}
    for texts in ([[5, 6, 7, 8, 9, 10, 11], [5], [9, 6]], [[7]]):
        batch = sequences_of(texts, [[6, 5]] * len(texts) if name == "pairs" else None)
        given = dict(zip(("tokens", "lengths", "segments"), batch, strict=True))
        (found,) = graph.run(None, {key: one.numpy() for key, one in given.items() if key in known})
        with torch.no_grad():
            encoded = reader.model.encoder(batch)
            head = reader.model.heads[about["head"]]
            wanted = head(encoded.states if name == "masked" else encoded)
        assert found.shape == tuple(wanted.shape)
        real = torch.arange(batch.tokens.shape[1]) < batch.lengths[:, None]
        chosen = real.numpy() if wanted.dim() == 3 else slice(None)
        np.testing.assert_allclose(found[chosen], wanted.numpy()[chosen], atol=1e-5)
    assert load_vocabulary(out / "tokeniser").size == reader.vocabulary.size
    assert about["labels"] == list(getattr(reader, "labels", getattr(reader, "tags", ())))
    if name == "rated":
        assert about["deviation"] == reader.deviation


def translator(folder: Path, **model: Any) -> Path:
    out = folder / f"translator-{len(list(folder.iterdir()))}"
    recipe = {
        "data": {"train": ["source.txt", "target.txt"], "max_tokens": 30},
        "tokeniser": {"vocabulary_size": 340},
        "model": {
            "layers": 2,
            "hidden_size": 16,
            "heads": 2,
            "ffn_size": 16,
            "dropout": 0.0,
            **model,
        },
        "training": {**LOOP, "max_steps": 80, "validate_every": 80, "checkpoint_every": 80},
    }
    assert heedful.train(recipe, out, data=folder)
    return out


@pytest.mark.parametrize(
    "model",
    [
        slow({"max_length": 40, "pre_norm": False, "positions": "rotary"}),
        {"max_length": 40, "positions": "learned", "decoder_layers": 1},
    ],
)
def test_a_loop_over_the_step_translates_as_heedful(folder: Path, model: dict[str, Any]) -> None:
    run = translator(folder, **model)
    out = export_onnx(run, folder / f"{run.name}-onnx")
    about = json.loads((out / "onnx.json").read_text(encoding="utf-8"))
    encoder, step = (session(out / name) for name in about["files"])
    tokenisers = load_tokenisers(out / "tokeniser")
    texts = ["the red dog sees a cat", "a dog", "the cat sees the green bird"]
    rows = [[*tokenisers.source.encode(text), END] for text in texts]
    longest = max(map(len, rows))
    tokens = np.array([row + [0] * (longest - len(row)) for row in rows])
    lengths = np.array([len(row) for row in rows])
    memories = encoder.run(None, {"tokens": tokens, "lengths": lengths})
    inputs = [one.name for one in step.get_inputs()]
    width = memories[0].shape[-1]
    past = [np.zeros((len(rows), about["heads"], 0, width), np.float32)] * (2 * about["layers"])
    last, made = np.full(len(rows), BEGIN), [[] for _ in rows]  # type: ignore[var-annotated]
    ended = np.zeros(len(rows), bool)
    while not ended.all() and past[0].shape[2] < about["max_length"] - 1:
        logits, *past = step.run(
            None, dict(zip(inputs, [last, lengths, *memories, *past], strict=True))
        )
        logits[:, :END] = -np.inf  # padding, unknown and BEGIN are never generated
        last = logits.argmax(1)
        ended |= last == END
        for row, token, stopped in zip(made, last.tolist(), ended, strict=True):
            row += [] if stopped else [token]
    found = [tokenisers.target.decode(row) for row in made]
    wanted = heedful.load(run, device="cpu").translate(texts, options=SearchOptions(beam=1))
    assert found == [one.text for one in wanted]


def test_what_cannot_be_exported_is_one_line(folder: Path) -> None:
    attentive = run_of(folder, "attentive")
    with pytest.raises(UserError, match="'recurrent-encoder' cannot be exported"):
        export_onnx(attentive, folder / "no-onnx")
    language = run_of(folder, "gpt")
    with pytest.raises(UserError, match="has no model for this task"):
        export_onnx(language, folder / "no-onnx")
    several = run_of(folder, "several")
    with pytest.raises(UserError, match="several heads: choose one"):
        export_onnx(several, folder / "no-onnx")
    assert not (folder / "no-onnx").exists()


def test_the_command_says_what_it_wrote(folder: Path) -> None:
    if not main.app.registered_commands:
        main._register()
    run = run_of(folder, "several")
    out = folder / "by-command"
    given = ["export", "onnx", str(run), "--out", str(out), "--head", "words"]
    done = CliRunner().invoke(main.app, given)
    assert done.exit_code == 0, done.output
    assert "onnx.json" in done.stdout
    assert {one.name for one in out.iterdir()} == {"model.onnx", "onnx.json", "tokeniser"}
    assert json.loads((out / "onnx.json").read_text(encoding="utf-8"))["head"] == "words"
    with pytest.raises(UserError, match="exists; choose another place"):
        export_onnx(run, out, head="words")
