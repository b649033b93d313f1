"""A run's folder may come from a stranger, or from a failing disk: it is used as it was written, or
refused in one line."""

import functools
import json
import os
import random
import re
import shutil
import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomlkit
import torch
from safetensors.torch import load_file, save_file

import heedful
from command_help import run_command
from heedful.basics.errors import UserError
from heedful.basics.files import content_hash
from heedful.basics.memory import machine_memory
from heedful.basics.settings import check
from heedful.decoding import SearchOptions
from heedful.runs.manifest import seal, seal_files
from heedful.runs.opening import accept_changes, open_run
from heedful.runs.summary import describe_run, summarise_run
from heedful.tasks.texts.loading import load_classifier
from heedful.training.train import train
from text_help import RECIPES, write_data

TRANSLATOR: dict[str, Any] = {
    "data": {"train": "pairs-only.tsv", "validation": "pairs-only.tsv", "max_tokens": 19},
    "tokeniser": {"vocabulary_size": 350},
    "model": {"layers": 1, "hidden_size": 16, "ffn_size": 16, "heads": 2, "max_length": 20},
    "training": {"max_steps": 4, "checkpoint_every": 2, "batch_tokens": 200, "threads": 1},
    "evaluation": {"beam": 2},
}
ODD: list[Any] = [None, True, -1, 0, 2, 1.5, "x", "", [], {}, [1], {"0": "a"}, 10**18, -(10**30)]
ODD += [float("inf"), float("nan"), [[]], "../x", "/etc/passwd", [None], 10**6, "off"]


@functools.cache
def data_folder() -> Path:
    folder = Path(tempfile.mkdtemp())
    write_data(folder)
    lines = (folder / "pairs.tsv").read_text().splitlines()[1:]
    (folder / "pairs-only.tsv").write_text("".join(f"{x.rpartition(chr(9))[0]}\n" for x in lines))
    return folder


@functools.cache
def made(kind: str) -> Path:
    """A tiny run, made once."""
    run = Path(tempfile.mkdtemp()) / "run"
    train(TRANSLATOR if kind == "translator" else RECIPES[kind], run, data=data_folder())
    return run


def copied(kind: str, folder: Path) -> Path:
    return Path(shutil.copytree(made(kind), folder / "run"))


def use(kind: str, run: Path) -> None:
    if kind == "translator":
        heedful.load(run).translate(["the dog"])
    else:
        load_classifier(run).classify(["the red dog"])
    describe_run(summarise_run(run))


def said(act: Callable[[], object]) -> str:
    """The user's error, if there is one; any other is the test's."""
    try:
        act()
    except UserError as error:
        return str(error)
    return ""


def sealed(run: Path) -> None:
    """Write the hashes of whatever is there, as a stranger would."""
    for path in run.glob("checkpoints/*/state.json"):
        try:
            state = json.loads(path.read_text())
            if isinstance(state.get("hashes"), dict):
                state["hashes"] = {
                    name: content_hash(path.parent / name) for name in state["hashes"]
                }
            path.write_text(json.dumps(seal(state)))
        except (ValueError, AttributeError, OSError):
            continue
    if (run / "run.json").exists():
        try:
            seal_files(run)
        except UserError:
            return


def places(values: Any, before: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where values stand in JSON or TOML; of a list, the first three."""
    inner: list[Any] = []
    if isinstance(values, dict):
        inner = list(values)
    elif isinstance(values, list):
        inner = list(range(min(len(values), 3)))
    own = [(*before, key) for key in inner]
    return own + [place for key in own for place in places(values[key[-1]], key)]


def replaced(values: Any, rng: random.Random) -> Any:
    """``values`` with one of them of another type, or missing."""
    found = places(values)
    if not found or rng.random() < 0.1:
        return rng.choice(ODD)
    *way, last = rng.choice(found)
    inner = functools.reduce(lambda table, key: table[key], way, values)
    if isinstance(inner, dict) and rng.random() < 0.3:
        del inner[last]
    else:
        inner[last] = rng.choice(ODD)
    return values


def damage(path: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    how = rng.choice(["cut", "flip", "empty", "delete", "other", "other", "other"])
    if how == "delete":
        path.unlink()
        return
    if how == "cut":
        content = content[: rng.randrange(len(content) + 1)]
    elif how == "flip" and content:
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    elif how == "other" and path.suffix == ".json":
        content = bytearray(json.dumps(replaced(json.loads(content), rng)).encode())
    elif how == "other" and path.suffix == ".jsonl":
        content = bytearray(json.dumps(rng.choice(ODD)).encode() + b"\n")
    elif how == "other" and path.suffix == ".toml":
        tables = replaced(tomllib.loads(content.decode()), rng)
        try:
            content = bytearray(tomlkit.dumps(tables).encode())
        except (TypeError, ValueError, AttributeError):  # what TOML cannot say
            content = bytearray(b"[[")
    else:
        content = bytearray()
    path.write_bytes(bytes(content))


@pytest.mark.parametrize("kind", ["translator", "classification"])
@pytest.mark.parametrize("resealed", [False, True], ids=["damaged", "resealed"])
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3))]
)
def test_a_damaged_file_is_refused_or_without_effect(
    kind: str, resealed: bool, seed: int, tmp_path: Path
) -> None:
    rng = random.Random(seed)
    names = sorted(path.relative_to(made(kind)) for path in made(kind).rglob("*") if path.is_file())
    # The slow seeds damage every file in both ways, the first one every other file in each.
    for number, name in enumerate(names if seed else names[resealed::2]):
        run = copied(kind, tmp_path / str(number))
        damage(run / name, rng)
        if resealed:
            sealed(run)
        assert "\n" not in said(functools.partial(use, kind, run)), name
        shutil.rmtree(run)


@pytest.mark.parametrize("seed", range(3))
def test_training_on_is_refused_or_goes_well(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    recipe = open_run(made("translator")).recipe.as_tables()
    recipe["training"]["max_steps"] = 5
    names = [path.relative_to(made("translator")) for path in made("translator").rglob("*.*")]
    for number, name in enumerate(rng.sample(sorted(path for path in names if path.suffix), 6)):
        run = copied("translator", tmp_path / str(number))
        if not (run / name).is_file():
            continue
        damage(run / name, rng)
        sealed(run)
        assert "\n" not in said(functools.partial(train, recipe, run, data=data_folder())), name


def edit(path: Path, change: Callable[[Any], Any]) -> None:
    values = json.loads(path.read_text())
    changed = change(values)
    path.write_text(json.dumps(values if changed is None else changed))


def refused(run: Path, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        use("translator", run)
    assert "\n" not in str(caught.value)


def test_an_edited_recipe_is_refused_until_it_is_accepted(tmp_path: Path) -> None:
    run = copied("translator", tmp_path)
    before = heedful.load(run).translate(["the dog"])[0].text
    recipe = run / "recipe.toml"
    recipe.write_text(recipe.read_text().replace("heads = 2", "heads = 4"))
    refused(run, r"recipe\.toml has changed since .*heedful info .* --accept-changes")
    accept_changes(run)
    heedful.load(run)
    recipe.write_text(recipe.read_text().replace("heads = 4", "heads = 2"))
    accept_changes(run)
    assert heedful.load(run).translate(["the dog"])[0].text == before
    recipe.write_text(recipe.read_text().replace("\nheads", "\nextra = 1\nheads"))
    with pytest.raises(UserError, match=r"unknown key 'model\.extra'"):
        accept_changes(run)


def test_every_flipped_bit_of_the_training_data_is_found(tmp_path: Path) -> None:
    rng = random.Random(1)
    recipe = open_run(made("translator")).recipe.as_tables()
    recipe["training"]["max_steps"] = 5
    for path in sorted((made("translator") / "data" / "train").iterdir()):
        run = copied("translator", tmp_path / path.name)
        file = run / "data" / "train" / path.name
        content = bytearray(file.read_bytes())
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        file.write_bytes(content)
        with pytest.raises(UserError, match=rf"{path.name} has changed since"):
            train(recipe, run, data=data_folder())
        heedful.load(run)  # nothing of it is needed to translate


_SINCE = ("sha256", "threads", "precision", "parts")
"""What checkpoints have said since there were hashes."""


def test_a_run_of_a_version_without_hashes_is_used_with_a_notice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = copied("translator", tmp_path)
    (run / "manifest.json").unlink()
    refused(run, r"manifest\.json is missing")
    edit(run / "run.json", lambda facts: {k: v for k, v in facts.items() if k != "manifest"})
    recipe = (run / "recipe.toml").read_text()
    (run / "recipe.toml").write_text(recipe.partition("\n")[2])
    edit(run / "result.json", lambda result: {k: v for k, v in result.items() if k != "sha256"})
    for path in run.glob("checkpoints/*/state.json"):
        edit(path, lambda state: {k: state[k] for k in state if k not in _SINCE})
    capsys.readouterr()
    use("translator", run)
    use("translator", run)
    assert capsys.readouterr().err.count("has no hashes of its files") == 1
    accept_changes(run)
    use("translator", run)
    (run / "tokeniser" / "joint.json").write_text("{}")
    refused(run, r"joint\.json has changed")


@pytest.mark.parametrize(
    "chosen", ["/etc", "../../elsewhere", "step-00000004/../..", "", "step-4", "step-٤٤٤٤٤٤٤٤"]
)
def test_the_chosen_checkpoint_is_a_plain_name(chosen: str, tmp_path: Path) -> None:
    run = copied("translator", tmp_path)
    edit(run / "result.json", lambda result: seal({**result, "chosen": chosen}))
    refused(run, "is not a checkpoint")


def test_facts_that_are_missing_are_named(tmp_path: Path) -> None:
    run = copied("translator", tmp_path)
    edit(run / "result.json", lambda result: seal({"step": 4}))
    refused(run, r"result\.json: 'chosen', 'step' or 'validation' is missing")
    edit(run / "run.json", lambda facts: {k: v for k, v in facts.items() if k != "vocabulary"})
    seal_files(run)
    refused(run, r"run\.json: 'vocabulary': Field required; the file is damaged")


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(number: float, tmp_path: Path) -> None:
    run = copied("translator", tmp_path)
    for path in run.glob("checkpoints/*/model.safetensors"):
        tensors = load_file(path)
        name = sorted(tensors)[3]
        tensors[name].view(-1)[0] = number
        save_file(tensors, path)
    sealed(run)
    refused(run, rf"the tensor '{re.escape(name)}' has numbers that are not finite")


@pytest.mark.parametrize(
    ("key", "number", "message"),
    [
        ("model.layers", 10**9, "less than or equal to 1000"),
        ("model.hidden_size", 10**18, "less than or equal to 262144"),
        ("model.ffn_size", 10**9, "less than or equal to 262144"),
        ("model.max_length", 10**9, "less than or equal to 1048576"),
        ("model.layers", 20, "weights are of another kind of model"),
        ("model.ffn_size", 200_000, "has shape"),
        ("evaluation.beam", 10**9, "less than or equal to 1000"),
        ("training.batch_tokens", 10**9, "less than or equal to 16777216"),
        ("training.threads", 10**9, "less than or equal to 1024"),
        ("tokeniser.vocabulary_size", 10**9, "less than or equal to 1000000"),
    ],
)
def test_sizes_of_a_recipe_have_a_ceiling(
    key: str, number: int, message: str, tmp_path: Path
) -> None:
    run = copied("translator", tmp_path)
    recipe = tomllib.loads((run / "recipe.toml").read_text())
    table, name = key.split(".")
    recipe[table][name] = number
    (run / "recipe.toml").write_text(tomlkit.dumps(recipe))
    sealed(run)
    refused(run, message)


@pytest.mark.parametrize("options", [{"beam": 10**9}, {"sample": True, "nbest": 10**9}])
def test_a_search_has_a_largest_width(options: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r"--beam: .* less than or equal to 1000"):
        check(SearchOptions, options, "--beam")


def test_sizes_of_a_vocabulary_are_those_of_the_weights(tmp_path: Path) -> None:
    run = copied("translator", tmp_path)
    for size, message in ((10**12, "less than or equal to"), (900_000, "to different runs")):
        edit(run / "run.json", lambda facts, size=size: facts["vocabulary"].update(target=size))
        seal_files(run)
        refused(run, message)


def test_a_model_larger_than_the_memory_is_refused_before_data_are_read(tmp_path: Path) -> None:
    memory = machine_memory()
    assert memory is not None
    assert memory > 1 << 28
    model = {
        "layers": 1000,
        "hidden_size": 65_536,
        "ffn_size": 262_144,
        "heads": 64,
        "max_length": 20,
    }
    with pytest.raises(
        UserError, match=r"training it takes at least [\d,.]+ GiB, and this machine"
    ):
        train({**TRANSLATOR, "model": {**model, "layers": 40}}, tmp_path / "run", data=tmp_path)
    assert not (tmp_path / "run").exists()


NAMES = ["run.json", "recipe.toml", "manifest.json", "result.json", "tokeniser/joint.model"]
NAMES += [f"checkpoints/step-00000004/{name}" for name in ("state.json", "model.safetensors")]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs POSIX files")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("what", ["pipe", "device", "folder"])
def test_devices_and_pipes_are_not_read(name: str, what: str, tmp_path: Path) -> None:
    run = copied("translator", tmp_path)
    (run / name).unlink()
    if what == "pipe":
        os.mkfifo(run / name)
    elif what == "device":
        (run / name).symlink_to("/dev/zero")
    else:
        (run / name).mkdir()
    refused(run, "not a file")


def test_the_command_line_says_one_line(tmp_path: Path) -> None:
    run = copied("translator", tmp_path)
    (run / "tokeniser" / "joint.model").write_bytes(b"\x0a\xff")
    seal_files(run)
    done = run_command("translate", run, given="x\n")
    assert done.returncode == 2
    assert re.fullmatch(r"heedful: .*joint\.model: not .*\n", done.stderr), done.stderr


def test_a_run_is_private(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    run = copied("translator", tmp_path)
    assert made("translator").stat().st_mode & 0o777 == 0o700
    for path in run.rglob("*"):
        assert not path.stat().st_mode & 0o077, path


def test_outlines_draw_no_random_numbers() -> None:
    from heedful.tasks.pairs.building import outline_run_model

    before = torch.get_rng_state()
    run = open_run(made("translator"))
    model = outline_run_model(run)
    assert all(parameter.is_meta for parameter in model.parameters())
    assert torch.equal(torch.get_rng_state(), before)
