"""Virtual shards: the same weights to the bit for 1, 2 and 4 processes, and for any threads."""

import json
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

from heedful.basics.thread_contention import with_threads
from heedful.data.positions import Position
from heedful.runs.recipe import check_recipe
from heedful.training.optimisers import learning_rate
from heedful.training.shards import random_numbers, seed_of
from heedful.training.train import prepare
from processes_help import in_processes
from shards_help import all_trained, averages, loop_of, trained
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
    "evaluation": {"beam": 2, "validation_pairs": 5, "samples": 1},
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
        "dropout": 0.2,
    },
}
CLASSIFICATION = {**RECIPES["classification"], "training": {**LOOP, **TRAINING}}
KINDS = [*MODELS, "classification"]


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


def jobs_of(folder: Path, processes: int) -> list[tuple[Any, ...]]:
    """Each kind, and one run that is stopped after step 2 of 4 by four processes, then by two."""
    jobs: list[tuple[Any, ...]] = [
        (folder / kind, folder / f"{kind}-{processes}", {}) for kind in KINDS
    ]
    stop = {4: 1, 2: 3}[processes]
    return [*jobs, (folder / "recurrent", folder / "resumed", {}, stop)]


Found = dict[tuple[str, int], Any]
"""What a run of a kind has found with a number of processes."""


@pytest.fixture(scope="module")
def found(folder: Path) -> Found:
    found: Found = {}
    for count in (4, 2):
        ranks = in_processes(count, all_trained, jobs_of(folder, count))
        for rank in ranks:
            assert isinstance(rank, list), rank
            for own, first in zip(rank, ranks[0], strict=True):  # all ranks have the same weights
                assert_same(own, first)
        found |= {
            (kind, count): own for kind, own in zip([*KINDS, "resumed"], ranks[0], strict=True)
        }
    for kind in KINDS:
        with with_threads(1):
            found[kind, 1] = trained(folder / kind, folder / f"{kind}-1", {})
    found["resumed", 1] = trained(folder / "recurrent", folder / "resumed", {})
    return found


def assert_same(one: Any, other: Any) -> None:
    assert one["weights"].keys() == other["weights"].keys()
    for name, weight in one["weights"].items():
        assert np.array_equal(np.asarray(weight), np.asarray(other["weights"][name])), name
    assert np.array_equal(np.asarray(one["random"]), np.asarray(other["random"]))
    assert (one["position"], one["tokens"]) == (other["position"], other["tokens"])


@pytest.mark.parametrize("kind", KINDS)
def test_processes_end_with_identical_weights(found: Found, kind: str) -> None:
    assert_same(found[kind, 2], found[kind, 1])
    assert_same(found[kind, 4], found[kind, 1])


def record_of(folder: Path) -> list[dict[str, Any]]:
    """The figures of a run without the times."""
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    times = ("seconds", "tokens_per_second", "time", "mfu", "memory")
    return [
        {key: own for key, own in json.loads(line).items() if key not in times} for line in lines
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_losses_and_validation_figures_are_those_of_one_process(
    folder: Path, found: Found, kind: str
) -> None:
    single = record_of(folder / f"{kind}-1")
    assert len(single) == 4
    for count in (2, 4):
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


@pytest.mark.parametrize("kind", KINDS)
def test_shards_are_added_in_the_documented_order(folder: Path, found: Found, kind: str) -> None:
    with with_threads(1):
        weights = plain_weights(folder, kind)
    for name, weight in found[kind, 4]["weights"].items():
        assert np.array_equal(weight, weights[name].numpy()), name


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("threads", [2, 3])
def test_threads_change_nothing(folder: Path, found: Found, kind: str, threads: int) -> None:
    with with_threads(threads):
        own = trained(folder / kind, folder / f"{kind}-threads-{threads}", {})
    assert_same(own, found[kind, 1])


def test_gloo_averages() -> None:
    assert in_processes(2, averages, 3.0) == [1.5, 1.5]
