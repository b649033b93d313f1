"""Training through the command line: interrupted equals uninterrupted, and nothing half-written."""

import json
import os
import random
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch._dynamo.utils import counters

from command_help import PIPE, Started
from heedful.basics.errors import UserError
from heedful.basics.locking import locked
from heedful.kernels import short_attention_operators
from heedful.runs.opening import open_run
from heedful.runs.summary import describe_run, summarise_run
from heedful.tasks.commands import train_from_command
from heedful.tasks.pairs.building import build_run_model
from heedful.tasks.translation.building import build_task
from heedful.training.building import compile_method
from heedful.training.loop import Loop
from heedful.training.report import Report

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
vocabulary_size = 360
[model]
kind = "transformer"
layers = 1
hidden_size = 16
ffn_size = 16
heads = 2
[training]
max_steps = 24
batch_tokens = 200
warmup_steps = 5
log_every = 4
validate_every = 8
checkpoint_every = 3
average_checkpoints = 2
threads = 1
[evaluation]
beam = 2
validation_pairs = 4
samples = 1
"""
    )
    return folder


def heedful(*arguments: object) -> Started:
    return Started(*arguments, stdout=PIPE, stderr=PIPE)


def finish(process: Started, code: int = 0) -> str:
    out, err = process.communicate(timeout=120)
    assert process.returncode == code, err
    return out + err


def start(folder: Path, out: str, *more: str) -> Started:
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


@pytest.mark.parametrize(
    "how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda how: how.name
)
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
        assert "rerun the command to resume" in text
        assert "interrupted: saving after this step" in text
    finish(start(folder, out))
    expected, found = weights(whole), weights(folder / out)
    assert expected.keys() == found.keys()
    for name, tensor in expected.items():
        assert torch.equal(tensor, found[name]), name

    def comparable(run: Path) -> list[dict[str, object]]:
        timed = {"seconds", "tokens_per_second", "mfu", "memory"}
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
    assert "from step 9" in text
    for name, tensor in weights(whole).items():
        assert torch.equal(tensor, weights(folder / "damaged")[name]), name


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            "training.learning_rate=0.5",
            "was started with training.learning_rate = 0.001, now it is",
        ),
        ("model.hidden_size=32", "was started with model.hidden_size = 16"),
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
    assert "is already trained" in finish(start(folder, "whole", "--set", "data.train=moved.tsv"))
    assert metrics(whole) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "training.learnnig_rte=1"], "did you mean 'learning_rate'"),
        (["--set", "data.train=absent.tsv"], "does not exist"),
        (["--set", "data.train=empty.tsv"], "is empty"),
        (["--set", "tokeniser.vocabulary_size=9000"], "tokeniser.vocabulary_size"),
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
    saved = any((folder / "wild" / "checkpoints").glob("step-*"))
    assert ("there is no checkpoint yet" in text) != saved
    assert "sound" not in text
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


def here(folder: Path, out: str, *overrides: str, **options: object) -> bool:
    """As `start`, in this process."""
    given = {"given": {}, "start_from": None, **options}
    data = [str(folder)]
    recipe = str(folder / "recipe.toml")
    return train_from_command(recipe, folder / out, data, overrides=list(overrides), **given)


SHORT = ("training.max_steps=3", "training.log_every=50", "training.validate_every=2")


def test_a_run_keeps_what_it_was_started_from(
    folder: Path, whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(whole, folder / "first")
    first = folder / "first"
    assert here(folder, "second", *SHORT, start_from=first)
    second = folder / "second"
    chosen = open_run(first).chosen()
    known = json.loads((second / "run.json").read_text())["started_from"]
    assert (known["run"], known["checkpoint"]) == (str(first), chosen.path.name)
    assert f"started from  {first}, {chosen.path.name}" in describe_run(summarise_run(second))
    begun, expected = load_file(second / "start" / "model.safetensors"), chosen.weights()
    assert all(torch.equal(begun[name], expected[name]) for name in expected)
    ended = load_file(second / "checkpoints" / "step-00000003" / "model.safetensors")

    # The same command goes on, also where that run has moved; another start is refused.
    capsys.readouterr()
    first.rename(folder / "moved")
    assert here(folder, "second", *SHORT, start_from=first)
    assert here(folder, "second", *SHORT, start_from=folder / "moved")
    assert capsys.readouterr().err.count("is already trained") == 2
    with pytest.raises(UserError, match=r"was started with --start-from .*first, not .*second"):
        here(folder, "second", *SHORT, start_from=second)
    with pytest.raises(UserError, match="was started without --start-from"):
        here(folder, "whole", start_from=folder / "moved")

    # Without a checkpoint of its own it begins with those weights again, even where not told to.
    shutil.rmtree(second / "checkpoints")
    (second / "result.json").unlink()
    assert here(folder, "second", *SHORT)
    again = load_file(second / "checkpoints" / "step-00000003" / "model.safetensors")
    assert all(torch.equal(again[name], ended[name]) for name in ended)


def test_a_folder_is_for_one_training_at_a_time(folder: Path, whole: Path) -> None:
    assert not (whole / ".lock").exists()
    with locked(whole, doing="trained"):
        text = finish(start(folder, "whole"), 2)
        assert f"{whole} is being trained by process {os.getpid()} on " in text
        assert len(text.strip().splitlines()) == 1
        with pytest.raises(UserError, match="is being trained"), locked(whole, doing="trained"):
            pass
    with locked(whole, doing="trained"):
        pass
    (whole / ".lock").write_text("what a process that was killed has left")
    assert here(folder, "whole")


def test_a_run_that_ends_before_a_line_is_due_has_one(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert here(folder, "short", *SHORT)
    assert "step 3/3 · epoch" in capsys.readouterr().err
    steps = [(record["kind"], record["step"]) for record in metrics(folder / "short")]
    assert steps == [("validation", 2), ("train", 3), ("validation", 3)]
    early = ["training.patience=1", "training.max_steps=40", "training.learning_rate=1e-9"]
    assert here(folder, "early", *SHORT[1:], *early)
    one, two = metrics(folder / "early")[-2:]
    assert (one["kind"], two["kind"]) == ("validation", "train")
    assert one["step"] == two["step"] < 40


def test_what_needs_validation_data_says_so_without_them(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert here(folder, "blind", *SHORT, "data.validation=[]", "training.patience=3")
    said = capsys.readouterr().err
    for name in ("training.average_checkpoints", "training.patience"):
        assert said.count(f"{name} has no effect without validation data") == 1
    assert here(folder, "blind", *SHORT, "data.validation=[]", "training.patience=3")
    assert "has no effect" not in capsys.readouterr().err


def test_a_tokeniser_for_scores_is_looked_for_before_training(folder: Path) -> None:
    with pytest.raises(UserError, match=r"evaluation.tokenise: .* did you mean 'intl'"):
        here(folder, "scored", *SHORT, "evaluation.tokenise=intll")
    try:
        import MeCab  # noqa: F401
    except ImportError:
        with pytest.raises(UserError, match=r"evaluation.tokenise: .*pip install") as caught:
            here(folder, "scored", *SHORT, "evaluation.tokenise=ja-mecab")
        assert "\n" not in str(caught.value)
    assert not (folder / "scored").exists()


def test_another_checkpoint_is_chosen_if_that_of_a_finished_run_is_damaged(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # With this learning rate, each step is worse than the one before.
    bad = [*SHORT, "training.validate_every=1", "training.learning_rate=3.0"]
    bad += ["training.choose_by=loss"]
    assert here(folder, "worse", *bad)
    run = folder / "worse"
    assert json.loads((run / "result.json").read_text())["chosen"] == "step-00000001"
    capsys.readouterr()
    (run / "checkpoints" / "step-00000001" / "model.safetensors").write_bytes(b"")
    assert here(folder, "worse", *bad)
    said = capsys.readouterr().err
    assert "step-00000001 is damaged" in said
    assert "trained: step-00000002 chosen" in said
    assert json.loads((run / "result.json").read_text())["chosen"] == "step-00000002"
    assert here(folder, "worse", *bad)
    assert "is already trained: step-00000002" in capsys.readouterr().err


def test_a_run_goes_on_without_its_recipe(
    folder: Path, whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {"given": {}, "overrides": [], "start_from": None}
    assert train_from_command(None, whole, [str(folder)], **given)
    assert "is already trained" in capsys.readouterr().err
    (folder / "empty").mkdir()
    with pytest.raises(UserError, match=r"empty has no file with one of the endings \.po, "):
        train_from_command(
            None,
            folder / "new",
            [str(folder / "empty")],
            **given | {"given": {"source": "en", "target": "de"}},
        )


def test_the_average_is_the_mean_of_the_last_checkpoints(whole: Path) -> None:
    result = json.loads((whole / "result.json").read_text())
    assert result["average"]["of"] == [21, 24]
    folders = [whole / "checkpoints" / name for name in ("step-00000021", "step-00000024")]
    one, two = (load_file(path / "model.safetensors") for path in folders)
    mean = load_file(whole / "checkpoints" / "average" / "model.safetensors")
    assert mean.keys() == one.keys()
    for name, tensor in mean.items():
        expected = (one[name].double() + two[name].double()) / 2
        assert torch.equal(tensor, expected.to(tensor.dtype)), name
        assert tensor.dtype == one[name].dtype
    assert not torch.equal(one["target_embedding.weight"], two["target_embedding.weight"])
    better = [result["average"]["validation"]["bleu"], -result["average"]["validation"]["loss"]]
    best = open_run(whole).chosen("best").state["validation"]
    assert (result["chosen"] == "average") == (better > [best["bleu"], -best["loss"]])


def test_compiling_changes_nothing_and_is_done_once_for_all_shapes(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Traced by the compiler's front end; the code that its back end would make takes minutes."""
    # Attention in C is not traced: PyTorch's takes its place, whose rounding is another.
    monkeypatch.setattr(short_attention_operators, "is_supported", lambda *_: False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "elsewhere")  # and put back afterwards
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    run = open_run(whole)
    # Compiled dropout draws other numbers.
    model = run.recipe.model.model_copy(update={"dropout": 0.0})
    run = replace(run, recipe=run.recipe.model_copy(update={"model": model}))
    settings = run.recipe.training.model_copy(update={"max_steps": 6, "average_checkpoints": 0})
    trained = []
    for compiled in (False, True):
        counters.clear()
        model = build_run_model(run)
        if compiled:
            compile_method(model, "states", backend="eager")
            made = os.environ["TORCHINDUCTOR_CACHE_DIR"]
            assert made.startswith(str(tmp_path / "cache"))
        task = build_task(run, model, settings, torch.device("cpu"), "float32")
        options = {"seed": 3, "device": torch.device("cpu"), "precision": "float32"}
        folder = tmp_path / str(compiled)
        folder.mkdir()
        with Report(6) as report:
            assert Loop(task, settings, folder, report=report, **options).run()
        trained.append(load_file(folder / "checkpoints" / "step-00000006" / "model.safetensors"))
    assert counters["stats"]["unique_graphs"] == 2  # with gradients, and for validation without
    for name, tensor in trained[0].items():
        assert torch.equal(tensor, trained[1][name]), name
