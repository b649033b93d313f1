"""Virtual shards: the same weights to the bit for 1, 2 and 4 processes, and for any threads."""

import json
from itertools import islice
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

from heedful.basics.errors import UserError
from heedful.basics.thread_contention import with_threads
from heedful.data.positions import Position
from heedful.runs.recipe import check_recipe
from heedful.training.optimisers import learning_rate
from heedful.training.shards import random_numbers, require_shards, seed_of
from heedful.training.train import prepare
from heedful.training.virtual_shards import VirtualShards
from processes_help import in_processes
from shards_help import all_trained, loop_of, trained
from test_training import write_corpus
from text_help import LOOP, RECIPES, write_data

SHARDS = 4
TRAINING = {
    "precision": "float32",
    "max_steps": 4,
    "batch_tokens": 60,
    "accumulation_steps": 2,
    "virtual_shards": SHARDS,
    "learning_rate": 0.01,
    "warmup_steps": 2,
    "clip_norm": 0.5,
    "log_every": 2,
    "validate_every": 2,
    "checkpoint_every": 2,
}
PAIRS: dict[str, Any] = {
    "seed": 3,
    "data": {
        "train": "train.tsv",
        "validation": "validation.tsv",
        "source": "en",
        "target": "de",
        "filters": {"duplicates": False},
    },
    "tokeniser": {"vocabulary_size": 360},
    "training": TRAINING,
    "evaluation": {"beam": 1, "validation_pairs": 5, "samples": 1},
}
MODELS = {
    "transformer": {
        "kind": "transformer",
        "layers": 1,
        "hidden_size": 16,
        "ffn_size": 16,
        "heads": 2,
        "dropout": 0.2,
    },
    "recurrent": {
        "kind": "recurrent",
        "hidden_size": 8,
        "embedding_size": 8,
        "attention": "hard-reinforce",
        "dropout": 0.2,
    },
}
CLASSIFICATION = {**RECIPES["classification"], "training": {**LOOP, **TRAINING}}
KINDS = [*MODELS, "classification"]
ONLY_BY_TWO = ["transformer", "classification"]
"""Four processes train them in slow tests; the others have all that these have, or are wrapped."""
FASTER: dict[str, Any] = {"exact_reduction": False, "learning_rate": 1e-3}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prepared run of each kind."""
    folder = tmp_path_factory.mktemp("shards")
    write_corpus(folder / "train.tsv", 200, 1)
    write_corpus(folder / "validation.tsv", 9, 2)
    write_data(folder)
    recipes = {name: {**PAIRS, "model": model} for name, model in MODELS.items()}
    recipes["classification"] = CLASSIFICATION
    for name, tables in recipes.items():
        prepare(check_recipe(tables, name), folder / name, data=folder)
    return folder


def jobs_of(folder: Path, processes: int) -> dict[str, tuple[Any, ...]]:
    """The arguments of :func:`trained`, by name."""
    whole = {kind: (folder / kind, folder / f"{kind}-{processes}", {}) for kind in KINDS}
    last = folder / "classification"
    return {
        **whole,
        "partly": (last, folder / f"partly-{processes}", {"wrapped": "partly"}),
        "faster": (last, folder / f"faster-{processes}", {**FASTER, "wrapped": "partly"}),
        "counted": (last, folder / f"counted-{processes}", {"wrapped": "counted"}),
        # Four processes stop after step 1, two after step 3, and one trains to the end.
        "resumed": (folder / "recurrent", folder / "resumed", {}, {4: 1, 2: 3}.get(processes)),
    }


Found = dict[tuple[str, int], Any]
"""What a job has returned with a number of processes."""


@pytest.fixture(scope="module")
def found(folder: Path) -> Found:
    found: Found = {}
    by_four = [name for name in jobs_of(folder, 4) if name not in ONLY_BY_TWO]
    found |= found_by(4, folder, by_four) | found_by(2, folder, list(jobs_of(folder, 2)))
    for name, job in jobs_of(folder, 1).items():
        with with_threads(1):
            found[name, 1] = "" if name == "counted" else trained(*job)
    return found


def found_by(count: int, folder: Path, names: list[str]) -> Found:
    jobs = jobs_of(folder, count)
    ranks = in_processes(count, all_trained, [jobs[name] for name in names])
    for rank in ranks:
        assert isinstance(rank, list), rank
        for own, first in zip(rank, ranks[0], strict=True):  # all ranks end alike
            assert_same(own, first)
    return {(name, count): own for name, own in zip([*names, "average"], ranks[0], strict=True)}


@pytest.fixture(scope="module")
def by_four(folder: Path) -> Found:
    """What four processes find with the kinds that the other tests train with two only."""
    return found_by(4, folder, ONLY_BY_TWO)


def assert_same(one: Any, other: Any) -> None:
    if not isinstance(one, dict):
        assert one == other
        return
    for part in ("weights", "state"):
        assert one[part].keys() == other[part].keys()
        for name, weight in one[part].items():
            assert np.array_equal(np.asarray(weight), np.asarray(other[part][name])), name
    assert np.array_equal(np.asarray(one["random"]), np.asarray(other["random"]))
    assert (one["position"], one["tokens"]) == (other["position"], other["tokens"])


def counts_of(kind: str) -> tuple[int, ...]:
    return (2,) if kind in ONLY_BY_TWO else (2, 4)


@pytest.mark.parametrize("kind", [*KINDS, "partly"])
def test_processes_end_with_identical_weights(found: Found, kind: str) -> None:
    """With dropout, sampled attention and its baseline, and parameters that few batches use."""
    for count in counts_of(kind):
        assert_same(found[kind, count], found[kind, 1])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ONLY_BY_TWO)
def test_four_processes_end_with_them_and_with_the_same_figures(
    folder: Path, found: Found, by_four: Found, kind: str
) -> None:
    assert_same(by_four[kind, 4], found[kind, 1])
    assert record_of(folder / f"{kind}-4") == record_of(folder / f"{kind}-1")


def test_buffers_and_moving_averages_are_combined(found: Found) -> None:
    assert found["recurrent", 1]["state"]["0.average"][0] < 0
    weights = found["partly", 1]["weights"]
    assert weights["norm.num_batches_tracked"] == 4 * 2
    assert (weights["norm.running_mean"] != 0).all()


def test_whole_numbers_that_differ_between_shards_are_refused(found: Found) -> None:
    for count in (2, 4):
        assert found["counted", count] == (
            "the state count differs between virtual shards and cannot be averaged; use "
            "training.virtual_shards = 1 and one process"
        )


def test_a_faster_sum_agrees_within_rounding(found: Found) -> None:
    for count in (1, 2, 4):
        for name, weight in found["faster", count]["weights"].items():
            expected = np.asarray(found["faster", 1]["weights"][name])
            np.testing.assert_allclose(np.asarray(weight), expected, rtol=0, atol=2e-5)
    # Gradients are exchanged once a step, in one bucket.
    assert [found["faster", count]["sums"] for count in (1, 2, 4)] == [0, 4, 4]
    unused = [np.asarray(found["faster", count]["weights"]["unused"]) for count in (1, 4)]
    assert np.array_equal(*unused)


def test_gloo_averages(found: Found) -> None:
    """ReduceOp.AVG has been reported to sum."""
    assert [found["average", count] for count in (2, 4)] == [1.5, 4.5]


def record_of(folder: Path) -> list[dict[str, Any]]:
    """The figures of a run without the times."""
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    times = ("seconds", "tokens_per_second", "time", "mfu", "memory")
    return [
        {key: own for key, own in json.loads(line).items() if key not in times} for line in lines
    ]


@pytest.mark.parametrize("kind", [*KINDS, "partly"])
def test_losses_and_validation_figures_are_those_of_one_process(
    folder: Path, found: Found, kind: str
) -> None:
    single = record_of(folder / f"{kind}-1")
    assert len(single) == 4
    for count in counts_of(kind):
        assert record_of(folder / f"{kind}-{count}") == single


def test_a_run_resumes_with_fewer_processes(folder: Path, found: Found) -> None:
    assert [found["resumed", count]["ended"] for count in (4, 2, 1)] == [False, False, True]
    assert_same(found["resumed", 1], found["recurrent", 1])
    assert record_of(folder / "resumed") == record_of(folder / "recurrent-1")


def plain_weights(folder: Path, kind: str) -> dict[str, torch.Tensor]:
    """Train with one shard after another; gradients are added as the documentation says."""
    loop = loop_of(folder / kind, folder / "plain")
    task, settings, parameters = loop.task, loop.settings, loop.parameters
    batches = task.batches(Position(loop.progress.position.seed))
    for step in range(1, settings.max_steps + 1):
        task.model.train()
        group = [[next(batches)[1] for _ in range(SHARDS)] for _ in range(2)]
        weight = sum(batch.weight for part in group for batch in part)

        def gradient(shard: int, step: int = step, group: Any = group, weight: int = weight) -> Any:
            task.model.zero_grad()
            for place in range(2):
                with random_numbers(seed_of(loop.progress.position.seed, step, shard, place)):
                    (task.loss(group[place][shard]).total / weight).backward()
            return [each.grad for each in parameters]

        def tree(first: int, count: int, gradient: Any = gradient) -> Any:
            if count == 1:
                return gradient(first)
            half = count // 2
            pairs = zip(tree(first, half), tree(first + half, half), strict=True)
            return [
                one if other is None else other if one is None else one + other
                for one, other in pairs
            ]

        for each, own in zip(parameters, tree(0, SHARDS), strict=True):
            each.grad = own
        torch.nn.utils.clip_grad_norm_(parameters, cast(float, settings.clip_norm))
        for own in loop.optimiser.param_groups:
            own["lr"] = learning_rate(step, settings)
        loop.optimiser.step()
    return task.model.state_dict()


@pytest.mark.parametrize("kind", ["transformer", "classification"])
def test_shards_are_added_in_the_documented_order(folder: Path, found: Found, kind: str) -> None:
    with with_threads(1):
        weights = plain_weights(folder, kind)
    for name, weight in found[kind, 2]["weights"].items():
        assert np.array_equal(weight, weights[name].numpy()), name


@pytest.mark.parametrize("kind", ["transformer", "recurrent"])
def test_threads_change_nothing(folder: Path, found: Found, kind: str) -> None:
    """Shards are computed at the same time, unless attention is watched or has other dropout."""
    with with_threads(3):
        loop = loop_of(folder / kind, folder / f"{kind}-threads")
        batches = [batch for _, batch in islice(loop.task.batches(Position(1)), 8)]
        assert isinstance(loop.strategy, VirtualShards)
        assert loop.strategy._threads(batches) == (2 if kind == "transformer" else 1)
        own = trained(folder / kind, folder / f"{kind}-threads", {})
    assert_same(own, found[kind, 1])


def test_exact_sums_need_a_power_of_two() -> None:
    tables = {**CLASSIFICATION, "training": {**TRAINING, "virtual_shards": 6}}
    with pytest.raises(
        UserError, match="set virtual_shards to 4 or 8, or exact_reduction to false"
    ):
        check_recipe(tables, "recipe.toml")
    tables["training"] = {**tables["training"], "exact_reduction": False}
    assert check_recipe(tables, "recipe.toml").training.virtual_shards == 6


def test_processes_must_share_the_shards_evenly() -> None:
    require_shards(4, 2)
    with pytest.raises(UserError, match="= 8 evenly; start 2 processes, or set"):
        require_shards(8, 3)
