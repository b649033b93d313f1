"""Training through the command line: interrupted equals uninterrupted, and nothing half-written."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

WORDS = {"one": "eins", "two": "zwei", "red": "rot", "dog": "Hund", "sees": "sieht", "cat": "Katze"}


def write_corpus(path: Path, pairs: int, seed: int) -> None:
    rng = random.Random(seed)
    lines = []
    for _ in range(pairs):
        words = [rng.choice(list(WORDS)) for _ in range(rng.randint(2, 6))]
        lines.append(" ".join(words) + "\t" + " ".join(WORDS[word] for word in words))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("training")
    write_corpus(folder / "train.tsv", 400, 1)
    write_corpus(folder / "validation.tsv", 12, 2)
    (folder / "recipe.toml").write_text(
        """
seed = 3
[data]
train = "train.tsv"
validation = "validation.tsv"
source = "en"
target = "de"
[data.filters]
duplicates = false
[tokeniser]
vocabulary = 360
[model]
kind = "transformer"
layers = 1
dim = 16
inner = 16
heads = 2
[training]
max_steps = 24
batch_tokens = 200
warmup_steps = 5
log_every = 4
validate_every = 8
checkpoint_every = 3
average = 2
threads = 1
[evaluation]
beam = 2
validation_pairs = 4
samples = 1
"""
    )
    return folder


def heedful(*arguments: object, **options: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "heedful", *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, **{**pipes, **options})


def finish(process: subprocess.Popen[str], code: int = 0) -> str:
    out, err = process.communicate(timeout=120)
    assert process.returncode == code, err
    return out + err


def start(folder: Path, out: str, *more: str) -> subprocess.Popen[str]:
    arguments = [folder / "recipe.toml", "--data", folder, "--out", folder / out, *more]
    return heedful("train", *arguments)


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "checkpoints" / "step-00000024" / "model.safetensors")


@pytest.fixture(scope="module")
def whole(folder: Path) -> Path:
    """A run that was never interrupted."""
    finish(start(folder, "whole"))
    return folder / "whole"


def metrics(run: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_a_run_holds_what_it_promises(whole: Path) -> None:
    for name in ("recipe.toml", "run.json", "result.json", "samples.jsonl", "tokeniser"):
        assert (whole / name).exists(), name
    steps = [(record["kind"], record["step"]) for record in metrics(whole)]
    assert steps == [
        *[("train", 4), ("train", 8), ("validation", 8), ("train", 12), ("train", 16)],
        *[("validation", 16), ("train", 20), ("train", 24), ("validation", 24)],
    ]
    first, last = metrics(whole)[0], metrics(whole)[-1]
    assert {"loss", "bleu", "chrf", "perplexity"} <= last.keys()
    assert first["operations"] > 0


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_an_interrupted_run_ends_with_identical_weights(
    folder: Path, whole: Path, how: signal.Signals
) -> None:
    out = f"stopped-{how.name}"
    process = start(folder, out)
    checkpoints = folder / out / "checkpoints"
    while process.poll() is None and not (checkpoints / "step-00000006").exists():
        time.sleep(0.01)
    process.send_signal(how)
    text = finish(process, -9 if how == signal.SIGKILL else 130)
    if how != signal.SIGKILL:
        assert "the same command goes on from there" in text
    finish(start(folder, out))
    expected, found = weights(whole), weights(folder / out)
    assert expected.keys() == found.keys()
    for name, tensor in expected.items():
        assert torch.equal(tensor, found[name]), name

    def comparable(run: Path) -> list[dict[str, object]]:
        timed = {"seconds", "tokens_per_second"}
        return [{k: v for k, v in record.items() if k not in timed} for record in metrics(run)]

    assert comparable(folder / out) == comparable(whole)


def test_a_damaged_checkpoint_is_named_and_the_one_before_used(folder: Path, whole: Path) -> None:
    finish(start(folder, "damaged", "--set", "training.max_steps=12"))
    model = folder / "damaged" / "checkpoints" / "step-00000012" / "model.safetensors"
    content = bytearray(model.read_bytes())
    content[-1] ^= 1
    model.write_bytes(content)
    text = finish(start(folder, "damaged"))
    assert "step-00000012 is damaged" in text
    assert "on from step 9" in text
    for name, tensor in weights(whole).items():
        assert torch.equal(tensor, weights(folder / "damaged")[name]), name


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("training.learning_rate=0.5", "was begun with training.learning_rate = 0.001, now it is"),
        ("model.dim=32", "was begun with model.dim = 16"),
        ("data.train=validation.tsv", "data.train is not what"),
    ],
)
def test_a_run_refuses_what_would_change_its_weights(
    folder: Path, whole: Path, change: str, message: str
) -> None:
    text = finish(start(folder, "whole", "--set", change), 2)
    assert message in text
    assert "Traceback" not in text
    assert len(text.strip().splitlines()) == 1


def test_a_run_beyond_max_steps_says_so_and_keeps_its_recipe(folder: Path, whole: Path) -> None:
    before = (whole / "recipe.toml").read_text()
    text = finish(start(folder, "whole", "--set", "training.max_steps=10"), 2)
    assert "has reached step 24" in text
    assert (whole / "recipe.toml").read_text() == before


def test_a_finished_run_says_so_and_data_are_known_by_content(folder: Path, whole: Path) -> None:
    before = metrics(whole)
    (folder / "moved.tsv").write_bytes((folder / "train.tsv").read_bytes())
    assert "is trained" in finish(start(folder, "whole", "--set", "data.train=moved.tsv"))
    assert metrics(whole) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "training.learnnig_rte=1"], "did you mean 'learning_rate'"),
        (["--set", "data.train=absent.tsv"], "does not exist"),
        (["--set", "data.train=empty.tsv"], "is empty"),
        (["--set", "tokeniser.vocabulary=9000"], "tokeniser.vocabulary"),
        (["--device", "cuda"], "no cuda device"),
        (["--set", "training.precision=half"], "training.precision"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(
    folder: Path, arguments: list[str], message: str
) -> None:
    if "cuda" in arguments and torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    (folder / "empty.tsv").write_text("")
    out = f"wrong-{abs(hash(tuple(arguments)))}"
    text = finish(start(folder, out, *arguments), 2)
    assert message in text
    assert len(text.strip().splitlines()) == 1, text
    assert not (folder / out / "run.json").exists()


def test_a_folder_without_permission_is_one_line(folder: Path) -> None:
    if os.geteuid() == 0:
        place = Path("/proc/heedful-run")  # where even the superuser cannot write
    else:
        place = folder / "locked" / "run"
        place.parent.mkdir()
        place.parent.chmod(0o500)
    text = finish(start(folder, str(place)), 2)
    assert "cannot write" in text
    assert len(text.strip().splitlines()) == 1


def test_a_loss_that_is_not_finite_stops_with_what_to_try(folder: Path) -> None:
    wild = ["training.learning_rate=1e30", "training.warmup_steps=0", "training.optimiser=sgd"]
    options = [
        part for setting in [*wild, "training.clip_norm=1e30"] for part in ("--set", setting)
    ]
    text = finish(start(folder, "wild", *options), 2)
    assert "try a lower training.learning_rate" in text
    for file in (folder / "wild" / "checkpoints").rglob("model.safetensors"):
        assert all(tensor.isfinite().all() for tensor in load_file(file).values())


def test_without_a_recipe_one_is_chosen_and_another_run_starts_from_it(folder: Path) -> None:
    common = ["--from", "en", "--to", "de", "--set", "training.max_steps=4", "--threads", "1"]
    data = ["--data", folder / "train.tsv"]
    common += ["--set", "training.tensorboard=true"]
    text = finish(heedful("train", *data, *common, "--out", folder / "chosen"))
    assert list((folder / "chosen" / "tensorboard").glob("events*"))
    assert "recipe chosen from the corpus" in text
    facts = json.loads((folder / "chosen" / "run.json").read_text())["data"]
    assert facts["validation_pairs"] > 0
    finish(heedful("train", *data, *common, "--out", folder / "chosen"))
    adapted = ["--out", folder / "adapted", "--start-from", folder / "chosen"]
    finish(heedful("train", "--data", folder / "validation.tsv", *common, *adapted))
    fingerprints = {
        json.loads((folder / run / "run.json").read_text())["vocabulary"]["fingerprint"]
        for run in ("chosen", "adapted")
    }
    assert len(fingerprints) == 1
