"""Denoising pre-training: the examples, and runs from plain text to fine-tuning."""

import itertools
import math
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import heedful
from heedful.basics.errors import UserError
from heedful.data.columns import Column
from heedful.data.denoising import Noise, corrupted, hide_spans, infill
from heedful.data.positions import Position
from heedful.interop.importing import import_hf
from heedful.runs.opening import open_run
from heedful.runs.registry import kind_of
from heedful.tasks.denoising.preparation import noise_of, noisy_batches
from heedful.training import train
from test_interop_pair_models import bart_folder, t5_folder

SENTINELS = list(range(1000, 1064))


def restored(source: list[int], target: list[int]) -> list[int]:
    """The text, from a source with sentinels and the list of what was there."""
    spans: dict[int, list[int]] = {}
    for token in target:
        if token in SENTINELS:
            spans[token] = []
            last = token
        else:
            spans[last].append(token)
    assert not spans.pop(target[-1]), "the last sentinel ends the list"
    found: list[int] = []
    for token in source:
        found += spans.pop(token) if token in SENTINELS else [token]
    assert not spans
    return found


@pytest.mark.parametrize("length", [1, 2, 3, 7, 20, 64, 257])
@pytest.mark.parametrize(("share", "mean"), [(0.15, 3.0), (0.5, 1.0), (0.9, 5.0)])
def test_spans_can_be_put_back(length: int, share: float, mean: float) -> None:
    tokens = list(range(length))
    for seed in range(20):
        source, target = hide_spans(tokens, share, mean, SENTINELS * 9, random.Random(seed))
        if sum(token >= 1000 for token in source) < 64:
            assert restored(source, target) == tokens
        hidden = length - sum(token < 1000 for token in source)
        assert hidden == (1 if length == 1 else min(max(round(length * share), 1), length - 1))
        assert len(source) <= length
        assert len(target) <= length + 2


def test_spans_are_those_of_the_paper() -> None:
    """15 % of the tokens, spans of 3 on average, every division equally probable."""
    draws, lengths, first = random.Random(1), list[int](), Counter[int]()
    for _ in range(3000):
        source, target = hide_spans(list(range(40)), 0.15, 3.0, SENTINELS, draws)
        assert target[-1] == 1002  # 6 tokens in 2 spans
        cut = target.index(1001)
        lengths += [cut - 1, len(target) - cut - 2]
        first[cut - 1] += 1
        assert source[0] < 1000
    assert sum(lengths) / len(lengths) == pytest.approx(3.0)
    # 6 = 1 + 5 = … = 5 + 1: five divisions
    assert sorted(first) == [1, 2, 3, 4, 5]
    assert max(abs(count - 600) for count in first.values()) < 100


@pytest.mark.parametrize("length", [1, 2, 5, 50, 300])
@pytest.mark.parametrize(("share", "mean"), [(0.3, 3.0), (0.5, 1.0), (0.9, 8.0)])
def test_infilling_keeps_the_other_tokens_in_order(length: int, share: float, mean: float) -> None:
    tokens = list(range(length))
    for seed in range(20):
        source = infill(tokens, share, mean, 1000, random.Random(seed))
        kept = [token for token in source if token != 1000]
        assert kept == sorted(set(kept))
        assert len(kept) == length - max(round(length * share), 1)
        assert kept.count(1000) < len(source) <= length


def test_lengths_of_infilled_spans_have_a_poisson_distribution() -> None:
    draws, found, empty = random.Random(3), Counter[int](), 0
    for _ in range(400):
        source = infill(list(range(600)), 0.3, 3.0, 1000, draws)
        places = [place for place, token in enumerate(source) if token == 1000]
        for place in places:
            before = source[place - 1] if place else -1
            after = source[place + 1] if place + 1 < len(source) else 600
            if 1000 in (before, after):
                continue  # two masks beside each other
            found[after - before - 1] += 1
            empty += after - before == 1
    total = sum(found.values())
    for length in range(7):
        wanted = math.exp(-3) * 3**length / math.factorial(length)
        assert found[length] / total == pytest.approx(wanted, abs=0.012), length
    assert empty


def test_sentences_are_permuted_and_the_target_is_the_text() -> None:
    noise = Noise("infilling", 0.1, 3.0, True, SENTINELS)
    tokens, begins = list(range(12)), [0, 4, 7]
    orders = set()
    for seed in range(60):
        source, target = noise.example(tokens, begins, str(seed))
        assert target == tokens
        kept = [token for token in source if token < 1000]
        parts = [0 if token < 4 else 1 if token < 7 else 2 for token in kept]
        orders.add(tuple(dict.fromkeys(parts)))
        assert len([1 for one, two in itertools.pairwise(parts) if one != two]) == 2
    assert len(orders) == 6


def test_noise_is_a_function_of_seed_epoch_and_row() -> None:
    noise = Noise("spans", 0.15, 3.0, False, SENTINELS)
    rows = [list(range(40)), list(range(100, 160))]
    columns = {
        "tokens": Column(np.array(rows[0] + rows[1]), np.array([40, 60])),
        "begins": Column(np.array([0, 0]), np.array([1, 1])),
    }
    both = corrupted(columns, np.array([5, 9]), "1 0", noise)
    one = {
        "tokens": Column(np.array(rows[1]), np.array([60])),
        "begins": Column(np.array([0]), np.array([1])),
    }
    alone = corrupted(one, np.array([9]), "1 0", noise)
    assert both["source"].values[-alone["source"].lengths[0] :].tolist() == list(
        alone["source"].values
    )
    later = corrupted(one, np.array([9]), "1 1", noise)
    assert later["source"].values.tolist() != alone["source"].values.tolist()


WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "dog", "ran", "to", "its", "old", "house"]


def write_texts(folder: Path) -> Path:
    draws = random.Random(4)
    lines = [
        "\n".join(" ".join(draws.choices(WORDS, k=draws.randint(3, 9))) for _ in range(4))
        for _ in range(60)
    ]
    path = folder / "texts.txt"
    path.write_text("\n\n".join(lines) + "\n", encoding="utf-8")
    return path


def tables(texts: Path, kind: str = "spans", **training: Any) -> dict[str, Any]:
    return {
        "task": "denoising",
        "data": {
            "train": str(texts),
            "max_tokens": 40,
            "validation_share": 0.1,
            "test_share": 0.1,
        },
        "noise": {"kind": kind},
        "tokeniser": {"vocabulary_size": 360},
        "model": {"layers": 1, "hidden_size": 16, "ffn_size": 24, "heads": 2, "pre_norm": True},
        "training": {
            "max_steps": 6,
            "batch_tokens": 400,
            "validate_every": 3,
            "checkpoint_every": 3,
            "threads": 1,
            **training,
        },
    }


@pytest.mark.parametrize("kind", ["spans", "infilling"])
def test_a_run_from_plain_text(kind: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(tables(write_texts(tmp_path), kind), run)
    opened: Any = open_run(run)
    pairs = opened.pairs("validation")
    assert pairs
    tokenisers = opened.tokenisers()
    for source, target in pairs:
        assert "⟦0⟧" in source
        if kind == "spans":
            assert target.startswith("⟦0⟧")
            tokens = tokenisers.target.encode(target)
            assert tokenisers.target.decode(tokens) == target
        else:
            assert not set(target) & set("⟦⟧")
    predictor = heedful.load(run, device="cpu")
    assert len(predictor.translate(["the cat⟦0⟧ on a mat⟦1⟧."])) == 1


def test_examples_as_tokens_are_those_as_texts(tmp_path: Path) -> None:
    """What is trained on is what the tokeniser makes of the same example as a text."""
    run = tmp_path / "run"
    train(tables(write_texts(tmp_path)), run)
    opened: Any = open_run(run)
    tokeniser = opened.tokenisers().source
    _, batch = next(noisy_batches(opened, 400).batches(Position(1)))
    same = total = 0
    for row in range(len(batch.source)):
        for side, lengths in ((batch.source, batch.source_lengths), (batch.target_out, None)):
            size = int((batch.target_lengths if lengths is None else lengths)[row]) - 1
            tokens = side[row, :size].tolist()
            same += tokeniser.encode(tokeniser.decode(tokens)) == tokens
            total += 1
    assert same > 0.9 * total  # words that were cut in two may be segmented otherwise


def test_an_interrupted_training_ends_the_same(tmp_path: Path) -> None:
    texts = write_texts(tmp_path)
    train(tables(texts), tmp_path / "whole")
    train(tables(texts, max_steps=3), tmp_path / "parts")
    train(tables(texts), tmp_path / "parts")
    ends = [open_run(tmp_path / name).chosen("last").weights() for name in ("whole", "parts")]
    assert ends[0].keys() == ends[1].keys()
    assert all(torch.equal(ends[0][key], ends[1][key]) for key in ends[0])


def test_epochs_have_different_noise(tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(tables(write_texts(tmp_path), max_steps=1), run)
    batches = noisy_batches(open_run(run), 10**6).batches(Position(1))  # type: ignore[arg-type]
    first, second = (next(batches)[1] for _ in range(2))
    assert first.weight == second.weight
    assert sorted(map(tuple, first.source.tolist())) != sorted(map(tuple, second.source.tolist()))


def test_a_student_has_the_vocabulary_of_its_teacher_and_learns_from_it(tmp_path: Path) -> None:
    texts, teacher = write_texts(tmp_path), tmp_path / "teacher"
    train(tables(texts), teacher)
    # The student has the teacher's weights, and nothing to learn from it, whatever the noise. It
    # has other texts, whose own vocabulary would be another one.
    (tmp_path / "other").mkdir()
    other = tmp_path / "other" / "texts.txt"
    other.write_text(texts.read_text(encoding="utf-8").upper() + "\n\nzebra\n", encoding="utf-8")
    settings = {"run": str(teacher), "initialise": True, "weight": 1.0}
    path = tmp_path / "student"
    train(tables(other, teacher=settings, max_steps=1, validate_every=1), path)
    first, run = open_run(teacher), open_run(path)
    assert run.facts["vocabulary"] == first.facts["vocabulary"]
    kind = kind_of(run.recipe)
    model = kind.build_model(run)
    kind.load_start(run, model)
    training: Any = run.recipe.training
    task: Any = kind.build_task(run, model.eval(), training, torch.device("cpu"), "float32")
    _, batch = next(iter(task.batches(Position(1))))
    loss = task.loss(batch)
    assert abs(loss.total.item()) / batch.weight < 1e-5
    assert float(loss.parts["loss"]) > 0


def test_texts_can_be_given_in_python(tmp_path: Path) -> None:
    recipe = tables(tmp_path)
    recipe["data"] = {"max_tokens": 40}
    draws = random.Random(2)
    texts = ["\n".join(" ".join(draws.choices(WORDS, k=6)) for _ in range(3)) for _ in range(40)]
    rows = {"train": texts, "validation": [{"text": text} for text in texts[:5]]}
    assert heedful.train(recipe, tmp_path / "run", data=rows)
    opened: Any = open_run(tmp_path / "run")
    assert len(opened.pairs("validation")) >= 5


def test_fine_tuning_starts_from_it(tmp_path: Path) -> None:
    run, tuned = tmp_path / "run", tmp_path / "tuned"
    train(tables(write_texts(tmp_path)), run)
    pairs = tmp_path / "pairs.tsv"
    draws = random.Random(1)
    texts = [" ".join(draws.choices(WORDS, k=5)) for _ in range(60)]
    pairs.write_text("".join(f"{text}\t{text.upper()}\n" for text in texts))
    recipe = tables(pairs) | {"task": "text-to-text"}
    del recipe["noise"]
    train(recipe, tuned, start_from=run)
    assert open_run(tuned).facts["started_from"] is not None


@pytest.mark.parametrize("kind", ["t5", "bart"])
def test_imported_models_are_trained_on_with_their_own_sentinels(kind: str, tmp_path: Path) -> None:
    folder, imported, run = tmp_path / "hf", tmp_path / "imported", tmp_path / "run"
    (t5_folder if kind == "t5" else bart_folder)(folder)
    import_hf(folder, imported)
    recipe = tables(write_texts(tmp_path), "spans" if kind == "t5" else "infilling")
    del recipe["model"], recipe["tokeniser"]
    recipe["data"]["max_tokens"] = 24
    train(recipe, run, start_from=imported)
    opened: Any = open_run(run)
    source, _ = opened.pairs("validation")[0]
    assert ("<extra_id_0>" if kind == "t5" else "<mask>") in source
    if kind == "bart":  # the symbol before each text is there once
        noise = noise_of(opened.recipe, opened.tokenisers())
        tokens = noise.example([20, 21, 22, 23], [0], "x").target
        assert tokens == [*opened.tokenisers().source.before, 20, 21, 22, 23]
        assert len(opened.tokenisers().source.before) == 1


def test_what_cannot_be_is_one_line(tmp_path: Path) -> None:
    texts = write_texts(tmp_path)

    def refused(message: str, **changed: Any) -> None:
        recipe = tables(texts)
        for table, values in changed.items():
            recipe[table] = recipe.get(table, {}) | values
        with pytest.raises(UserError, match=message) as caught:
            train(recipe, tmp_path / "run")
        assert "\n" not in str(caught.value)

    refused(
        "need 67 sentinels with this noise, and the vocabulary has 64",
        data={"max_tokens": 440},
        noise={"share": 0.15, "mean_length": 1.0},
    )
    refused(r"data\.links is for pairs of texts", data={"links": "links"})
    refused(
        "one language: set tokeniser.joint = true",
        tokeniser={"joint": False},
        model={"tied_embeddings": "output"},
    )
    refused("must be at most model.max_length", data={"max_tokens": 511})
    refused("subword_dropout is for pairs", training={"subword_dropout": 0.1})
    refused("nothere.txt", data={"train": "nothere.txt"})
    (tmp_path / "empty.txt").write_text("\n\n")
    refused("the file has no text", data={"train": str(tmp_path / "empty.txt")})
