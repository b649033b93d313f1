"""FSDP2 on two and four processes: results of one process, memory in parts, any number resumes."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file

import fsdp_help
import heedful
from fsdp_help import JOBS, ROUNDED, steps, trained_parts, work_of_two
from heedful.basics.errors import UserError
from heedful.layers.max_norm import MaxNormLinear
from heedful.runs.checkpoints import open_checkpoint, whole_checkpoints
from heedful.runs.recipe import check_recipe
from heedful.training.fsdp import shard
from heedful.training.train import prepare
from processes_help import in_processes
from test_training import write_corpus

RECIPE: dict[str, Any] = {
    "seed": 3,
    "data": {
        "train": "train.tsv",
        "validation": "validation.tsv",
        "source": "en",
        "target": "de",
        "filters": {"duplicates": False},
    },
    "tokeniser": {"vocabulary_size": 360},
    "model": {"layers": 2, "hidden_size": 12, "ffn_size": 16, "heads": 2, "dropout": 0.2},
    "training": {
        "precision": "float32",
        "max_steps": 6,
        "batch_tokens": 60,
        "virtual_shards": 4,
        "learning_rate": 0.01,
        "warmup_steps": 2,
        "clip_norm": 0.5,
        "log_every": 2,
        "validate_every": 6,
        "checkpoint_every": 2,
    },
    "evaluation": {"beam": 2, "validation_pairs": 2, "samples": 0},
}
FSDP = {"strategy": "fsdp"}
BFLOAT16 = {**FSDP, "precision": "bfloat16"}
ROUNDING = {**BFLOAT16, "gather_precision": "bfloat16"}
FIRST = ["tied"]
OTHERS = [name for name in [*JOBS, *ROUNDED] if name not in FIRST]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prepared run, trained without interruption by one process."""
    folder = tmp_path_factory.mktemp("fsdp")
    write_corpus(folder / "train.tsv", 200, 1)
    write_corpus(folder / "validation.tsv", 9, 2)
    prepare(check_recipe(RECIPE, "recipe"), folder / "run", data=folder)
    jobs = [
        (folder / "run", folder / "expected", {}, None),
        (folder / "run", folder / "from-ddp", {}, 2),
    ]
    assert trained_parts(jobs) == [True, False]
    return folder


@pytest.fixture(scope="module")
def by_four(folder: Path) -> list[Any]:
    """A run that four processes began and left after step 2."""
    return in_processes(4, trained_parts, [(folder / "run", folder / "chain", FSDP, 2)])


@pytest.fixture(scope="module")
def by_two(folder: Path, by_four: list[Any]) -> list[Any]:
    """Steps with two models; the runs that four processes and one process began."""
    shutil.copytree(folder / "chain", folder / "to-ddp")
    jobs = [
        (folder / "run", folder / "chain", FSDP, 4),
        (folder / "run", folder / "from-ddp", FSDP, None),
        (folder / "run", folder / "to-ddp", {}, None),
    ]
    return in_processes(2, work_of_two, FIRST, jobs)


@pytest.fixture(scope="module")
def others_by_two(folder: Path) -> list[Any]:
    """Steps with the other models; runs in bfloat16; a whole run."""
    jobs = [
        (folder / "run", folder / "gathered", BFLOAT16, None),
        (folder / "run", folder / "rounded", {**ROUNDING, "cpu_offload": True}, 2),
        (folder / "run", folder / "rounded", ROUNDING, None),
    ]
    training = {**RECIPE["training"], **FSDP, "average_checkpoints": 2}
    whole = {**RECIPE, "training": {**training, "activation_checkpointing": True}}
    return in_processes(2, work_of_two, OTHERS, jobs, (whole, folder / "whole", folder))


@pytest.fixture
def group_of_one() -> Iterator[None]:
    """Close the group that one process makes for itself."""
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


def weights(run: Path) -> dict[str, Any]:
    """The weights of the last step."""
    point = whole_checkpoints(run / "checkpoints")[-1]
    assert point.step == RECIPE["training"]["max_steps"]
    return {name: one.numpy() for name, one in point.weights().items()}


def assert_same_weights(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for name, one in expected.items():
        # Scores that grow by the same number have the same softmax: the gradient of this bias is
        # rounding, which Adam scales to the size of any other gradient.
        if not name.endswith("key_projection.bias"):
            np.testing.assert_allclose(found[name], one, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("name", FIRST)
def test_steps_are_those_of_one_process(name: str, by_two: list[Any]) -> None:
    """Weights, norms, losses, validation and counted operations, in float64."""
    assert_same_steps(name, by_two)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in JOBS if name not in FIRST])
def test_steps_of_other_models_are_those_of_one_process(
    name: str, others_by_two: list[Any]
) -> None:
    assert_same_steps(name, others_by_two)


def assert_same_steps(name: str, ranks: list[Any]) -> None:
    model, options = JOBS[name]
    expected = steps(model, False, **options)
    for rank, (found, _, _) in enumerate(ranks):
        one = found[name]
        assert isinstance(one, dict), one
        for key, value in expected["weights"].items():
            np.testing.assert_allclose(one["weights"][key], value, rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(one["norms"], expected["norms"], rtol=1e-6)
        assert one["figures"]["loss"] == pytest.approx(expected["figures"]["loss"], rel=1e-9)
        if rank == 0:
            assert one["operations"] == expected["operations"]


@pytest.mark.parametrize("name", FIRST)
def test_each_process_holds_half(name: str, by_two: list[Any]) -> None:
    model, options = JOBS[name]
    expected = steps(model, False, **options)
    for key in ("parameters", "held"):
        parts = [found[name][key] for found, _, _ in by_two]
        assert sum(parts) >= expected[key]
        assert max(parts) < 0.52 * expected[key]


@pytest.mark.slow
@pytest.mark.parametrize("model", ["tied", "shared"])
def test_weights_that_products_round_are_sent_in_half_of_the_bytes(
    model: str, others_by_two: list[Any]
) -> None:
    """All results are identical. The rest of the model is sent in float32."""
    for found, _, _ in others_by_two:
        plain, rounded = (found[f"{model}, {gather}"] for gather in ("float32", "bfloat16"))
        assert isinstance(plain, dict), plain
        assert isinstance(rounded, dict), rounded
        for key, value in plain["weights"].items():
            np.testing.assert_array_equal(rounded["weights"][key], value)
        assert rounded["norms"] == plain["norms"]
        assert rounded["figures"] == plain["figures"]
        layers = plain["sent"]["torch.float32"] - rounded["sent"]["torch.float32"]
        assert plain["sent"].keys() == {"torch.float32"}
        assert 0.5 < rounded["sent"]["torch.uint8"] / layers < 0.54


@pytest.mark.slow
def test_a_training_with_rounded_weights_or_offloaded_parts_resumes_exactly(
    folder: Path, others_by_two: list[Any]
) -> None:
    assert [done for _, done, _ in others_by_two] == [[True, False, True]] * 2
    expected, found = weights(folder / "gathered"), weights(folder / "rounded")
    assert found.keys() == expected.keys()
    for name, one in expected.items():
        np.testing.assert_array_equal(found[name], one)


def test_only_matrices_are_rounded_and_another_order_is_an_error(group_of_one: None) -> None:
    task = fsdp_help.Copying(fsdp_help.model_of("tied").float())
    module = shard(task, fsdp_help.CPU, "bfloat16", gather_precision="bfloat16")
    gather = module.gathers[0]
    own = [part.parameter.to_local().detach() for part in gather.parts]
    sent = torch.cat([one.flatten() for one in own])
    with pytest.raises(UserError, match="gather_precision = 'bfloat16' does not work with PyTorch"):
        gather(torch.empty_like(sent), sent.flip(0), dist.group.WORLD)
    found = torch.empty_like(sent)
    gather(found, sent, dist.group.WORLD)
    matrices = 0
    for part, one in zip(found.split([one.numel() for one in own]), own, strict=True):
        is_matrix = one.dim() == 2
        expected = one.bfloat16().float() if is_matrix else one
        assert torch.equal(part.view_as(one), expected)
        matrices += is_matrix and not torch.equal(expected, one)
    assert matrices > 2
    gather.is_exact = True
    gather(found, sent, dist.group.WORLD)
    assert torch.equal(found, sent)


def test_other_numbers_of_processes_and_ddp_resume(
    folder: Path, by_four: list[Any], by_two: list[Any], group_of_one: None
) -> None:
    """Processes 4 → 2 → 1; from DDP with one to FSDP2 with two; from FSDP2 with four to DDP."""
    assert by_four == [[False]] * 4
    assert [done for _, done, _ in by_two] == [[False, True, True]] * 2
    expected = weights(folder / "expected")
    shutil.copytree(folder / "chain", folder / "chain-ddp")
    jobs = [
        (folder / "run", folder / "chain", FSDP, None),
        (folder / "run", folder / "chain-ddp", {}, None),
    ]
    assert trained_parts(jobs) == [True, True]
    for name in ("from-ddp", "to-ddp", "chain", "chain-ddp"):
        assert_same_weights(weights(folder / name), expected)


def test_parts_are_files_of_every_process_without_pickles(folder: Path, by_two: list[Any]) -> None:
    point = open_checkpoint(folder / "chain" / "checkpoints" / "step-00000002")
    parts = point.parts()
    assert parts is not None
    assert [path.name for path in sorted(parts.iterdir())] == [
        f"shard-0000{rank}-model-00001-of-00001.safetensors" for rank in (1, 2, 3, 4)
    ]
    sizes = [sum(one.numel() for one in load_file(path).values()) for path in parts.iterdir()]
    assert max(sizes) < 0.3 * sum(sizes)
    trained = sum(one.numel() for one in point.weights().values())
    assert sum(sizes) == 2 * trained
    assert not any("exp_avg" in name for name in point.training())
    suffixes = {path.suffix for path in (folder / "chain").rglob("*") if path.is_file()}
    assert suffixes <= {".safetensors", ".json", ".jsonl", ".md", ".txt"}
    assert not list((folder / "chain" / "checkpoints").glob(".*"))


@pytest.mark.slow
def test_a_run_of_two_processes_is_used_like_any_other(
    folder: Path, others_by_two: list[Any]
) -> None:
    assert [done for _, _, done in others_by_two] == [True, True]
    translator = heedful.load(folder / "whole")
    assert len(list(translator.predict(["the red dog"]))) == 1
    point = whole_checkpoints(folder / "whole" / "checkpoints")[-1]
    assert point.shapes() == whole_checkpoints(folder / "expected" / "checkpoints")[-1].shapes()
    assert open_checkpoint(folder / "whole" / "checkpoints" / "average").parts() is None


@pytest.mark.parametrize("damage", ["changed", "missing", "another", "other names"])
def test_damage_is_found(
    damage: str,
    folder: Path,
    by_four: list[Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(folder / "chain", tmp_path / "run")
    point = tmp_path / "run" / "checkpoints" / "step-00000002"
    part = point / "optimiser" / "shard-00002-model-00001-of-00001.safetensors"
    if damage == "changed":
        part.write_bytes(part.read_bytes()[:-1] + b"?")
    elif damage == "missing":
        part.unlink()
    elif damage == "another":
        save_file({"optimiser.0.exp_avg": torch.ones(1)}, part.with_name("more.safetensors"))
    else:
        state = point / "state.json"
        state.write_text(state.read_text().replace("optimiser/shard-00002", "../shard-00002"))
    if damage == "another":
        with pytest.raises(UserError, match=r"more.safetensors does not belong to it"):
            open_checkpoint(point).parts()
        return
    with pytest.raises(UserError, match="is damaged") as failed:
        open_checkpoint(point)
    assert "\n" not in str(failed.value)
    assert point not in [one.path for one in whole_checkpoints(point.parent)]
    assert "the checkpoint before it is used instead" in capsys.readouterr().err


def test_parts_of_another_model_do_not_fit(
    folder: Path, by_four: list[Any], tmp_path: Path
) -> None:
    """The sizes of parts are compared before anything is read."""
    shutil.copytree(folder / "chain", tmp_path / "run")
    model = {**RECIPE["model"], "ffn_size": 17}
    prepare(check_recipe({**RECIPE, "model": model}, "recipe"), tmp_path / "other", data=folder)
    (message,) = trained_parts([(tmp_path / "other", tmp_path / "run", {}, None)])
    assert "has shape [12, 16], the recipe's model [12, 17]" in message


def test_what_fsdp_cannot_train_is_refused() -> None:
    task = fsdp_help.Copying(fsdp_help.model_of("tied"))
    with pytest.raises(UserError, match="loss scaling, which float16 needs"):
        shard(task, fsdp_help.CPU, "float16")
    task.model.head = MaxNormLinear(2, 2, 1.0)
    with pytest.raises(UserError, match="head_max_norm"):
        shard(task, fsdp_help.CPU, "float32")
