"""Training on single texts: every task learns what it says, and goes on exactly."""

import copy
import json
import math
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import tomlkit
import torch
from safetensors.torch import load_file
from sklearn import metrics as sklearn_metrics
from torch import Tensor, nn

from command_help import DEVNULL, Started
from heedful.attention import MultiHeadAttention, scores
from heedful.basics.errors import UserError
from heedful.basics.symbols import BEGIN, END, PAD
from heedful.data.positions import Position
from heedful.models.encoders import HeadedEncoder, Sequences, sequences_of
from heedful.models.language import LanguageModel
from heedful.runs.opening import open_run
from heedful.runs.registry import kind_of
from heedful.tasks.masked.training import MaskedTask
from heedful.tasks.several.training import SeveralTasks
from heedful.tasks.spec import specs
from heedful.tasks.texts.building import build_text_model, load_text_start
from heedful.tasks.texts.loading import load_classifier, load_generator, load_tagger
from heedful.tasks.texts.preparation import prepare_text_run
from heedful.tasks.texts.recipe import ClassificationRecipe
from heedful.tasks.texts.rows import RowBatch
from heedful.tasks.texts.run import TextRun
from heedful.tasks.texts.training import LabelTask
from heedful.training import loop
from heedful.training.protocol import Task
from heedful.training.report import Report
from heedful.training.train import train
from text_help import LABELLED, LOOP, RECIPES, TAGS, encoder, write_data
from tolerance import assert_rounded, reference


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    write_data(folder)
    return folder


@pytest.fixture(scope="module")
def trained(folder: Path) -> Callable[[str], Path]:
    """The run of a recipe, trained without interruption, once."""

    def made(name: str) -> Path:
        path = folder / "runs" / name
        if not path.exists():
            assert train(RECIPES[name], path, data=folder)
        return path

    return made


def text_run(path: Path) -> TextRun:
    run = open_run(path)
    assert isinstance(run, TextRun)
    return run


def opened(path: Path, step: int | None = None) -> tuple[TextRun, Any, Task]:
    """A run with its model, at a step or as it began, and its task; dropout is off."""
    run = text_run(path)
    model = build_text_model(run)
    if step is None:
        load_text_start(run, model)
    else:
        model.load_state_dict(weights(path, step), strict=False)
    task = kind_of(run.recipe).build_task(
        run, model, run.recipe.training, torch.device("cpu"), "float32"
    )
    model.eval()
    return run, model, task


def weights(run: Path, step: int = 8) -> dict[str, Tensor]:
    return load_file(run / "checkpoints" / f"step-{step:08d}" / "model.safetensors")


def figures(run: Path) -> list[dict[str, Any]]:
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    timed = {"seconds", "tokens_per_second", "mfu", "memory"}
    return [{key: value for key, value in line.items() if key not in timed} for line in lines]


def first_batches(task: Task, count: int) -> list[Any]:
    return [batch for _, batch in islice(task.batches(Position(5)), count)]


# Going on


@pytest.mark.parametrize("name", RECIPES)
def test_an_interrupted_run_ends_as_one_that_never_was(
    folder: Path,
    trained: Callable[[str], Path],
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    whole, path = trained(name), folder / "stopped" / name
    moved = Report.step

    def step(self: Report, step: int, seconds: float) -> None:
        moved(self, step, seconds)
        if step == 2:
            os.kill(os.getpid(), signal.SIGINT)
        if step == 7:
            raise OSError("as if the machine had stopped")

    monkeypatch.setattr(Report, "step", step)
    assert not train(RECIPES[name], path, data=folder)
    assert "rerun the command to resume" in capsys.readouterr().err
    with pytest.raises(OSError, match="stopped"):
        train(RECIPES[name], path, data=folder)
    monkeypatch.undo()
    assert train(RECIPES[name], path, data=folder)
    assert "from step 6" in capsys.readouterr().err
    expected, found = weights(whole), weights(path)
    assert expected.keys() == found.keys()
    for key, tensor in expected.items():
        assert torch.equal(tensor, found[key]), key
    assert figures(path) == figures(whole)
    assert {line["step"] for line in figures(whole) if line["kind"] == "validation"} == {4, 8}
    train(RECIPES[name], path, data=folder)
    assert "is already trained: step-0000000" in capsys.readouterr().err
    assert figures(path) == figures(whole)


@pytest.mark.slow
def test_a_killed_run_of_several_tasks_goes_on_exactly(
    folder: Path, trained: Callable[[str], Path]
) -> None:
    path = folder / "killed"
    recipe = folder / "killed.toml"
    recipe.write_text(tomlkit.dumps(RECIPES["several"]), encoding="utf-8")
    process = Started("train", recipe, "--out", path, "--data", folder, stderr=DEVNULL)
    while process.poll() is None and not (path / "checkpoints" / "step-00000003").exists():
        time.sleep(0.002)
    process.kill()
    assert process.wait(100) in (0, -signal.SIGKILL)
    train(RECIPES["several"], path, data=folder)
    expected = weights(trained("several"))
    assert all(torch.equal(tensor, expected[name]) for name, tensor in weights(path).items())


def test_a_preparation_that_was_interrupted_is_made_anew(
    folder: Path, trained: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder / "half-prepared"
    with monkeypatch.context() as patched:
        patched.setattr("heedful.tasks.texts.preparation._sentence_ends", _interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(RECIPES["several"], path, data=folder)
    assert (path / "data").exists()
    assert not (path / "run.json").exists()
    (path / "data" / "colour" / "train" / "stray").touch()
    assert train(RECIPES["several"], path, data=folder)
    assert not (path / "data" / "colour" / "train" / "stray").exists()
    expected = weights(trained("several"))
    assert all(torch.equal(tensor, expected[name]) for name, tensor in weights(path).items())


def _interrupted(vocabulary: object) -> list[int]:
    raise KeyboardInterrupt


def test_the_loop_knows_no_task_by_name() -> None:
    text = Path(loop.__file__).read_text(encoding="utf-8")
    tasks = {spec.name for spec in specs()} - {"several"}  # which is a word like any other
    for name in (*tasks, "classif", "tagg", "mask", "language", "translat", "isinstance"):
        assert not re.search(name, text, re.IGNORECASE), name


ENCODERS = ["classification", "pairs", "compared", "hierarchical", "writer"]


# Losses, computed once more in the plainest way: row by row, without padding


def rows_of(rows: Sequences) -> Iterator[Sequences]:
    for row, length in enumerate(rows.lengths.tolist()):
        whole = (rows.tokens[row : row + 1, :length], rows.lengths[row : row + 1])
        yield Sequences(*whole, rows.segments[row : row + 1, :length])


def surprise(logits: Tensor, label: int, smoothing: float = 0.0) -> float:
    """``−Σ q log p`` where q is 1 − ε on the label and ε spread over all."""
    logs = logits.detach().double().log_softmax(-1)
    return float(-(1 - smoothing) * logs[label] - smoothing * logs.mean())


@pytest.mark.parametrize("name", [*ENCODERS, "paced"])
def test_the_loss_of_labels_is_their_surprise(trained: Callable[[str], Path], name: str) -> None:
    run, model, task = opened(trained(name))
    smoothing = run.recipe.training.label_smoothing
    for batch in first_batches(task, 3):
        expected = [
            surprise(model.heads["classification"](model.encoder(row))[0], label, smoothing)
            for row, label in zip(rows_of(batch.rows), batch.labels.tolist(), strict=True)
        ]
        total, parts, _ = task.loss(batch)
        assert total.item() == pytest.approx(sum(expected), rel=1e-5)
        assert batch.weight == len(expected)
        if not smoothing:
            assert float(parts["loss"]) == pytest.approx(sum(expected), rel=1e-5)


@pytest.mark.parametrize("name", ["classification", "pairs"])
def test_batches_hold_the_examples_with_their_labels(
    folder: Path, trained: Callable[[str], Path], name: str
) -> None:
    run, _, task = opened(trained(name))
    vocabulary, labels = run.vocabulary(), run.labels("classification")
    file = "labelled.tsv" if name == "classification" else "pairs.tsv"
    lines = (folder / file).read_text().splitlines()[1:]
    found = []
    for after, batch in task.batches(Position(5)):
        for row, label in zip(rows_of(batch.rows), batch.labels.tolist(), strict=True):
            tokens = row.tokens[0].tolist()
            assert tokens[0] == BEGIN
            assert tokens[-1] == END
            parts: list[list[int]] = [[]]
            for token, segment in zip(tokens[1:-1], row.segments[0].tolist()[1:], strict=False):
                parts[segment].append(token) if token != END else parts.append([])
            assert row.segments[0, -1] == len(parts) - 1
            found.append("\t".join([*map(vocabulary.decode, parts), labels[label]]))
        if after.epoch:
            break
    assert sorted(found) == sorted(lines)


def test_the_penalty_is_that_of_each_texts_own_hops(trained: Callable[[str], Path]) -> None:
    _, model, task = opened(trained("attentive"))
    pooling = model.encoder.pooling
    for batch in first_batches(task, 2):
        loss = penalty = 0.0
        for row, label in zip(rows_of(batch.rows), batch.labels.tolist(), strict=True):
            encoded = model.encoder(row)
            loss += surprise(model.heads["classification"](encoded)[0], label)
            states = encoded.states[0, 1:-1]  # BEGIN and END are not pooled
            hops = (pooling.W_s2 @ torch.tanh(pooling.W_s1 @ states.T)).softmax(1)
            penalty += float((hops @ hops.T - torch.eye(3)).square().sum().detach())
        total, parts, _ = task.loss(batch)
        assert total.item() == pytest.approx(loss + 0.1 * penalty, rel=1e-5)
        assert float(parts["overlap"]) == pytest.approx(penalty, rel=1e-5)


@pytest.mark.parametrize("name", ["tagging", "frozen"])
def test_the_loss_of_tags_is_that_of_each_words_first_token(
    trained: Callable[[str], Path], name: str
) -> None:
    run, model, task = opened(trained(name))
    vocabulary, tags = run.vocabulary(), run.labels("tagging")
    for batch in first_batches(task, 3):
        expected = []
        for row in rows_of(batch.rows):
            logits = model.heads["tagging"](model.encoder(row))[0]
            for place, token in enumerate(row.tokens[0].tolist()):
                if token not in (BEGIN, END):
                    tag = TAGS[vocabulary.decode([token])]
                    expected.append(surprise(logits[place], tags.index(tag)))
        total, parts, _ = task.loss(batch)
        assert total.item() == pytest.approx(sum(expected), rel=1e-5)
        assert float(parts["loss"]) == pytest.approx(sum(expected), rel=1e-5)
        assert batch.weight == len(expected)


@pytest.mark.parametrize("name", ["masked", "alone"])
def test_the_loss_of_hidden_tokens_and_next_sentences(
    trained: Callable[[str], Path], name: str
) -> None:
    _, model, task = opened(trained(name))
    for batch in first_batches(task, 3):
        hidden: list[float] = []
        follows: list[float] = []
        for number, row in enumerate(rows_of(batch.sequences)):
            encoded = model.encoder(row)
            for (at, column), label in zip(
                batch.places.tolist(), batch.labels.tolist(), strict=True
            ):
                if at == number:
                    logits = model.heads["masked"](encoded.states[0, column : column + 1])[0]
                    hidden.append(surprise(logits, label))
            if name == "masked":
                logits = model.heads["masked_next"](encoded)[0]
                follows.append(surprise(logits, int(batch.next_labels[number])))
        total, parts, counts = task.loss(batch)
        assert ("next_sentence" in parts) == bool(follows)
        means = sum(hidden) / len(hidden) + (sum(follows) / len(follows) if follows else 0)
        assert total.item() / batch.weight == pytest.approx(means, rel=1e-5)
        assert float(parts["masked"]) / counts["masked"] == pytest.approx(
            sum(hidden) / len(hidden), rel=1e-5
        )


@pytest.mark.parametrize("name", ["gpt", "lstm"])
def test_the_loss_of_a_language_model_is_each_next_tokens_surprise(
    trained: Callable[[str], Path], name: str
) -> None:
    _, model, task = opened(trained(name))
    for batch in first_batches(task, 3):
        expected = []
        for tokens, targets in zip(batch.tokens, batch.targets, strict=True):
            for place, target in enumerate(targets.tolist()):
                if target != PAD:
                    read = tokens[None, : place + 1]
                    expected.append(surprise(model.logits(model.states(read))[0, -1], target))
        total, parts, _ = task.loss(batch)
        assert total.item() == pytest.approx(sum(expected), rel=1e-5)
        assert float(parts["loss"]) == pytest.approx(sum(expected), rel=1e-5)
        assert batch.weight == len(expected)


def test_several_tasks_are_drawn_by_their_sizes_and_weighed(
    trained: Callable[[str], Path],
) -> None:
    run, _, task = opened(trained("several"))
    assert isinstance(task, SeveralTasks)
    sizes = {name: facts["train"] ** 0.5 for name, facts in run.facts["sets"].items()}
    drawn = [batch.name for batch in first_batches(task, 600)]
    for name, share in sizes.items():
        expected = share / sum(sizes.values())
        assert drawn.count(name) / 600 == pytest.approx(expected, abs=0.06)
    for batch in first_batches(task, 12):
        own = task.parts[batch.name].task.loss(batch.batch)
        weight = {"words": 0.5}.get(batch.name, 1.0)
        total = own.total.item() * weight / batch.batch.weight
        assert task.loss(batch).total.item() == pytest.approx(total)
        assert batch.weight == 1


# Validation, against scikit-learn and plain sums


def last_validation(run: Path) -> dict[str, float]:
    found = [line for line in figures(run) if line["kind"] == "validation"]
    return {key: value for key, value in found[-1].items() if key not in ("kind", "step")}


def sklearn_scores(gold: list[str], given: list[str]) -> dict[str, float]:
    return {
        "accuracy": float(sklearn_metrics.accuracy_score(gold, given)),
        "macro_f1": float(sklearn_metrics.f1_score(gold, given, average="macro", zero_division=0)),
        "matthews": float(sklearn_metrics.matthews_corrcoef(gold, given)),
    }


@pytest.mark.parametrize("name", ["classification", "pairs", "attentive", "several"])
def test_validation_of_labels_is_what_classifying_gives(
    trained: Callable[[str], Path], name: str
) -> None:
    path = trained(name)
    head = "colour" if name == "several" else "classification"
    examples = text_run(path).labelled(head, "validation")
    texts = [one.texts[0] if len(one.texts) == 1 else one.texts[:2] for one in examples]
    found = load_classifier(path, checkpoint="last").classify(texts)  # type: ignore[arg-type]
    gold = [example.label for example in examples]
    logs = [math.log(one.probabilities[label]) for one, label in zip(found, gold, strict=True)]
    expected = sklearn_scores(gold, [str(one.label) for one in found]) | {
        "loss": -sum(logs) / len(logs)
    }
    recorded = last_validation(path)
    begin = "colour." if name == "several" else ""
    assert {key: recorded[begin + key] for key in expected} == pytest.approx(expected)


@pytest.mark.parametrize("name", ["tagging", "several"])
def test_validation_of_tags_is_what_tagging_gives(
    trained: Callable[[str], Path], name: str
) -> None:
    path = trained(name)
    head = "words" if name == "several" else "tagging"
    examples = text_run(path).tagged(head, "validation")
    last = open_run(path).checkpoints()[-1].step  # a number, as the error message lists them
    found = load_tagger(path, checkpoint=last).tag([example.words for example in examples])
    expected = sklearn_scores(
        [tag for example in examples for tag in example.tags],
        [tag for tags in found for tag in tags],
    )
    _, model, _ = opened(path, step=8)
    vocabulary, tags = text_run(path).vocabulary(), text_run(path).labels(head)
    surprises = []
    for example in examples:
        row = sequences_of([[token for word in example.words for token in vocabulary.encode(word)]])
        logits = model.heads[head](model.encoder(row))[0, 1:-1]
        wanted = [tags.index(tag) for tag in example.tags]
        surprises += [surprise(own, tag) for own, tag in zip(logits, wanted, strict=True)]
    expected["loss"] = sum(surprises) / len(surprises)
    recorded = last_validation(path)
    begin = "words." if name == "several" else ""
    assert {key: recorded[begin + key] for key in expected} == pytest.approx(expected)
    if name == "several":
        means = [recorded[f"{part}accuracy"] for part in ("colour.", "words.", "hidden.masked_")]
        assert recorded["mean"] == pytest.approx(sum(means) / 3)


@pytest.mark.parametrize("name", ["gpt", "lstm"])
def test_validation_of_a_language_model_is_its_perplexity(
    folder: Path, trained: Callable[[str], Path], name: str
) -> None:
    path = trained(name)
    run, model, _ = opened(path, step=8)
    assert isinstance(model, LanguageModel)
    documents = (folder / "documents-held.txt").read_text().strip().split("\n\n")
    assert run.documents("language-model", "validation") == documents
    stream = [END]
    for document in documents:
        stream += [*run.vocabulary().encode(document), END]
    total = 0.0
    for start in range(0, len(stream) - 1, 12):
        window = torch.tensor([stream[start : start + 13]])
        logits = model.logits(model.states(window[:, :-1]))[0]
        total += sum(
            surprise(row, label) for row, label in zip(logits, window[0, 1:].tolist(), strict=True)
        )
    mean = total / (len(stream) - 1)
    size = sum(len(document.encode()) for document in documents)
    expected = {"loss": mean, "perplexity": math.exp(mean)}
    expected["bits_per_byte"] = total / math.log(2) / size
    assert last_validation(path) == pytest.approx(expected, rel=1e-5)
    generator = load_generator(path, checkpoint="last")
    again = generator.perplexity(documents, stride=12, joined=True)
    assert again.per_token == pytest.approx(expected["perplexity"], rel=1e-5)


def test_validation_of_hidden_tokens_is_over_one_epoch(trained: Callable[[str], Path]) -> None:
    _, model, task = opened(trained("masked"), step=8)
    assert isinstance(task, MaskedTask)
    assert task.validation is not None
    losses, right, follows = [], [], []
    labels: list[int] = []
    for after, batch in task.validation.batches(Position(0)):
        encoded = model.encoder(batch.sequences)
        logits = model.heads["masked"](encoded.states[batch.places[:, 0], batch.places[:, 1]])
        labels += batch.labels.tolist()
        losses += [
            surprise(row, label) for row, label in zip(logits, batch.labels.tolist(), strict=True)
        ]
        right += (logits.argmax(1) == batch.labels).tolist()
        next_logits = model.heads["masked_next"](encoded)
        follows += (next_logits.argmax(1) == batch.next_labels).tolist()
        if after.epoch:
            break
    recorded = last_validation(trained("masked"))
    assert recorded["masked_loss"] == pytest.approx(sum(losses) / len(losses), rel=1e-5)
    assert recorded["masked_accuracy"] == pytest.approx(sum(right) / len(right))
    assert recorded["next_accuracy"] == pytest.approx(sum(follows) / len(follows))
    most = max(labels.count(label) for label in set(labels))
    assert recorded["masked_majority"] == pytest.approx(most / len(labels))


# How it learns


def test_accumulated_batches_are_one_batch(folder: Path) -> None:
    training = {
        **LOOP,
        "optimiser": "sgd",
        "learning_rate": 0.5,
        "schedule": "constant",
        "warmup_steps": 0,
        "clip_norm": "off",
        "accumulation_steps": 2,
        "max_steps": 1,
    }
    model = {"layers": 1, "hidden_size": 16, "heads": 2, "dropout": 0.0, "attention_dropout": 0.0}
    recipe = encoder("classification", LABELLED, model=model, training=training, head_dropout=0.0)
    path = folder / "accumulated"
    train(recipe, path, data=folder)
    _, fresh, task = opened(path)
    assert isinstance(task, LabelTask)
    first, second = first_batches(task, 2)
    width = max(first.rows.tokens.shape[1], second.rows.tokens.shape[1])

    def wide(rows: Tensor) -> Tensor:
        return nn.functional.pad(rows, (0, width - rows.shape[1]))

    both = RowBatch(
        Sequences(
            torch.cat([wide(first.rows.tokens), wide(second.rows.tokens)]),
            torch.cat([first.rows.lengths, second.rows.lengths]),
            torch.cat([wide(first.rows.segments), wide(second.rows.segments)]),
        ),
        torch.cat([first.labels, second.labels]),
        first.weight + second.weight,
    )

    def moved(model: Any) -> list[Tensor]:
        """Every parameter after one step of SGD on both batches."""
        own = copy.copy(task)
        own.model = model
        parameters = list(model.parameters())
        gradients = torch.autograd.grad(own.loss(both).total / both.weight, parameters)
        return [part - 0.5 * by for part, by in zip(parameters, gradients, strict=True)]

    found = weights(path, 1)
    expected = reference(moved, fresh, terms=both.rows.tokens.numel())
    assert_rounded([found[name] for name, _ in fresh.named_parameters()], expected)


def test_layers_are_unfrozen_from_the_top(trained: Callable[[str], Path]) -> None:
    path = trained("paced")
    _, model, _ = opened(path)
    assert isinstance(model, HeadedEncoder)
    first = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    # Steps 1, 3, 5 and 7 begin with the head, the pooler, and the second and first layer.
    learning = {4: ("heads", "pooler"), 6: ("heads", "pooler", "layers.1")}
    learning[8] = ("heads", "pooler", "layers.1", "layers.0")
    for step, parts in learning.items():
        for name, tensor in weights(path, step).items():
            changed = not torch.equal(tensor, first[name])
            inside = name.startswith(parts) or name.removeprefix("encoder.").startswith(parts)
            # The softmax over keys does not see what is added to all keys alike.
            assert changed == inside or name.endswith("project_key.bias"), (step, name)


def test_word_vectors_are_begun_with_and_stay_where_they_are_frozen(
    folder: Path, trained: Callable[[str], Path]
) -> None:
    given = {
        line.split()[0]: torch.tensor([float(number) for number in line.split()[1:]])
        for line in (folder / "vectors.txt").read_text().splitlines()
    }
    for name, frozen in (("vectors", False), ("frozen", True)):
        run, model, _ = opened(trained(name))
        assert 0.5 < run.facts["vectors"]["file"]["found"] <= 1
        vocabulary = run.vocabulary()
        learnt = weights(trained(name))["encoder.tokens.weight"]
        for word, vector in given.items():
            (token,) = vocabulary.encode(word)
            assert torch.equal(model.encoder.tokens.weight[token], vector), word
            assert torch.equal(learnt[token], vector) == frozen, word


class Opposite(scores.ScaledDot):
    """A score of the user's own, which has no tensors."""

    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        return -super().compare(query, key)


def test_a_part_of_the_users_own_is_recorded_and_not_replaced(folder: Path) -> None:
    path = folder / "own-part"
    recipe = encoder("classification", LABELLED, training={**LOOP, "max_steps": 2})
    prepare_text_run(path, ClassificationRecipe.model_validate(recipe), folder)
    run = text_run(path)

    def own_loop() -> loop.Loop:
        model = build_text_model(run)
        attention = next(part for part in model.modules() if isinstance(part, MultiHeadAttention))
        attention.score = Opposite()
        training, device = run.recipe.training, torch.device("cpu")
        task = kind_of(run.recipe).build_task(run, model, training, device, "float32")
        return loop.Loop(
            task, training, path, seed=1, device=device, precision="float32", report=Report(2)
        )

    made = own_loop()
    with made.report:
        assert made.run()
    with pytest.raises(UserError, match=r"trained with test_text_runs.Opposite as .*score"):
        load_classifier(path)
    with pytest.raises(UserError, match=r"where the recipe's model has ScaledDot"):
        train(recipe, path, data=folder)
    assert own_loop().finished  # with the part it can be resumed
