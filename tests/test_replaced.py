"""Replaced-token detection (ELECTRA): the parts, the loss, the commands, and what comes after."""

import json
import math
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from typer.testing import CliRunner

import heedful
from heedful.basics.errors import UserError
from heedful.cli import main
from heedful.data.positions import Position
from heedful.inference.sliding_windows import spans
from heedful.inference.trace import Trace
from heedful.models.bert import Bert, BertSettings
from heedful.models.electra import Generator, ReplacedTokens, generator_settings, sample
from heedful.models.encoders import Sequences, sequences_of
from heedful.runs.opening import open_run
from heedful.serving import make_application
from heedful.serving.loading import load_all
from heedful.tasks.replaced import Replaced
from heedful.tasks.replaced.loading import load_detector
from heedful.tasks.replaced.predictor import DetectReplaced
from heedful.tasks.replaced.training import ReplacedTask
from heedful.tasks.spec import spec_named
from heedful.tasks.texts.building import build_text_model, load_text_model, load_text_start
from heedful.tasks.texts.loading import load_filler
from heedful.training import train
from serving_help import running
from text_help import LABELLED, RECIPES, TAGGED, encoder, write_data


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("replaced")
    write_data(made)
    return made


@pytest.fixture(scope="module")
def run(folder: Path) -> Path:
    path = folder / "run"
    assert train(RECIPES["replaced"], path, data=folder)
    return path


@pytest.fixture(scope="module")
def detector(run: Path) -> DetectReplaced:
    return load_detector(run, device="cpu")


def task_of(run: Path) -> tuple[Any, ReplacedTask]:
    opened: Any = open_run(run)
    model: Any = load_text_model(opened).eval()
    task = spec_named("replaced").build_task(
        opened, model, opened.recipe.training, torch.device("cpu"), "float32"
    )
    assert isinstance(task, ReplacedTask)
    return model, task


def rows_of(batch: Sequences) -> list[Sequences]:
    """Each row alone, without padding."""
    tokens, lengths, segments = batch
    return [
        Sequences(tokens[n : n + 1, :size], lengths[n : n + 1], segments[n : n + 1, :size])
        for n, size in enumerate(lengths.tolist())
    ]


def cumulated(probabilities: list[float], draw: float) -> int:
    """The first token up to which the probabilities are above the draw."""
    sums = list(accumulate(probabilities))
    last = max(token for token, one in enumerate(probabilities) if one)
    return next((token for token, below in enumerate(sums) if draw * sums[-1] < below), last)


def test_a_sampled_token_is_where_the_cumulative_probabilities_pass_the_draw() -> None:
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(200, 7, generator=generator)
    logits[::3, 2] = -torch.inf
    logits[1, 5:] = -torch.inf  # drawn at the upper end
    draws = torch.rand(200, generator=generator, dtype=torch.float64)
    draws[:2] = torch.tensor([0.0, 1 - 2.0**-53])
    found = sample(logits, draws).tolist()
    rows = logits.double().softmax(1).tolist()
    for row, draw, token in zip(rows, draws.tolist(), found, strict=True):
        assert token == cumulated(row, draw)
        assert row[token] > 0
    many = torch.linspace(0, 1, 100_001, dtype=torch.float64)[:-1]
    counts = sample(logits[:1].expand(len(many), -1), many).bincount(minlength=7) / len(many)
    torch.testing.assert_close(counts, logits[0].softmax(0), atol=1e-4, rtol=0)
    assert sample(logits[:0], draws[:0]).shape == (0,)


def test_the_sizes_of_the_papers_generators() -> None:
    """Clark et al. 2020, appendix A, table 6: small 1/4 of 256 with embeddings of 128, base 1/3."""
    small = BertSettings(layers=12, hidden_size=256, ffn_size=1024, heads=4, embedding_size=128)
    own = generator_settings(small, 0.25)
    assert (own.hidden_size, own.ffn_size, own.heads, own.embedding_size) == (64, 256, 1, 128)
    base = generator_settings(BertSettings(size="base"), 1 / 3)
    assert (base.hidden_size, base.ffn_size, base.heads, base.embedding_size) == (256, 1024, 4, 768)
    same = generator_settings(small, 0.5, layers=3)
    assert (same.layers, same.hidden_size, same.embedding_size) == (3, 128, None)
    with pytest.raises(ValueError, match="13 layers is larger than its discriminator of 12"):
        generator_settings(small, 0.5, layers=13)


@pytest.mark.parametrize("embedding_size", [None, 6])
def test_the_generator_has_the_discriminators_embeddings(embedding_size: int | None) -> None:
    torch.manual_seed(1)
    settings = BertSettings(
        layers=2, hidden_size=12, heads=2, embedding_size=embedding_size, dropout=0
    )
    encoder = Bert(settings, 30)
    head = ReplacedTokens(encoder, generator_settings(settings, 0.5))
    assert not any("embeddings" in name for name, _ in head.named_parameters())
    generator = head.generator
    assert isinstance(generator, Generator)
    rows = sequences_of([[7, 9, 11], [8]])
    states = generator(rows).states
    assert states is not None
    generator.head(states).sum().backward()
    table = encoder.embeddings.tokens.weight.grad
    assert table is not None
    assert bool(table[7].any())
    assert bool(table[29].any())
    before = generator.head(states).detach().clone()
    with torch.no_grad():
        encoder.embeddings.tokens.weight[29] += 1.0
    after = generator.head(states).detach()
    assert not torch.equal(before[..., 29], after[..., 29])
    assert torch.equal(before[..., :29], after[..., :29])


def test_the_loss_is_that_of_the_paper_row_by_row(run: Path) -> None:
    model, task = task_of(run)
    head = model.heads["replaced"]
    for batch in [one for _, one in islice(task.batches(Position(5)), 3)]:
        assert batch.tokens == int(batch.sequences.lengths.sum())
        masked: list[float] = []
        detected: list[float] = []
        chosen = batch.places.tolist()
        for number, row in enumerate(rows_of(batch.sequences)):
            own = [place for place, (at, _) in enumerate(chosen) if at == number]
            columns = [chosen[place][1] for place in own]
            vocabulary = open_run(run).vocabulary()  # type: ignore[attr-defined]
            assert {int(row.tokens[0, column]) for column in columns} == {vocabulary.mask}
            states = head.generator(row).states
            corrupt, replaced = row.tokens.clone(), torch.zeros(row.tokens.shape[1])
            for place, column in zip(own, columns, strict=True):
                scores = head.generator.head(states[0, column : column + 1]).log_softmax(1)[0]
                label = int(batch.labels[place])
                masked.append(-scores[label].item())
                drawn = int(sample(scores[None], batch.draws[place : place + 1]))
                corrupt[0, column] = drawn
                replaced[column] = drawn != label
            logits = head.detector(model.encoder(row._replace(tokens=corrupt)).states)[0]
            for logit, one in zip(logits.tolist(), replaced.tolist(), strict=True):
                p = 1 / (1 + math.exp(-logit))
                detected.append(-math.log(p if one else 1 - p))
        total, parts, counts = task.loss(batch)
        expected = sum(masked) / len(masked) + 50 * sum(detected) / len(detected)
        assert total.item() / batch.weight == pytest.approx(expected, rel=1e-5)
        assert float(parts["masked"]) == pytest.approx(sum(masked), rel=1e-5)
        assert counts["masked"] == len(masked)
        assert float(parts["replaced"]) == pytest.approx(sum(detected), rel=1e-5)
        assert counts["replaced"] == len(detected)


def test_no_gradient_passes_through_the_draw(run: Path) -> None:
    model, task = task_of(run)
    _, batch = next(task.batches(Position(5)))
    task.weight = 0.0
    task.loss(batch).total.backward()
    detector = model.heads["replaced"].detector
    assert not any(bool(one.grad.any()) for one in detector.parameters() if one.grad is not None)
    alone = model.heads["replaced"].generator.layers[0].feed_forward.expand.weight.grad.clone()
    model.zero_grad()
    task.weight = 50.0
    task.loss(batch).total.backward()
    both = model.heads["replaced"].generator.layers[0].feed_forward.expand.weight.grad
    torch.testing.assert_close(both, alone, atol=1e-6, rtol=1e-5)
    assert bool(detector.dense.weight.grad.any())


def test_figures_are_counted_from_the_texts(run: Path) -> None:
    model, task = task_of(run)
    figures = task.validate().figures
    again = task.validate().figures
    assert figures == again
    assert task.validation is not None
    right = replaced = called = both = tokens = hits = 0
    for after, batch in task.validation.batches(Position(0)):
        head = model.heads["replaced"]
        row, column = batch.places.T
        logits = head.generator.head(head.generator(batch.sequences).states[row, column])
        drawn = sample(logits, batch.draws)
        corrupt = batch.sequences.tokens.clone()
        corrupt[row, column] = drawn
        scores = head.detector(model.encoder(batch.sequences._replace(tokens=corrupt)).states)
        original = batch.sequences.tokens.clone()
        original[row, column] = batch.labels
        for number, size in enumerate(batch.sequences.lengths.tolist()):
            gold = (corrupt != original)[number, :size]
            said = scores[number, :size] > 0
            right += int((gold == said).sum())
            replaced, called = replaced + int(gold.sum()), called + int(said.sum())
            both, tokens = both + int((gold & said).sum()), tokens + size
        hits += int((logits.argmax(1) == batch.labels).sum())
        if after.epoch:
            break
    assert figures["replaced_accuracy"] == pytest.approx(right / tokens)
    assert figures["replaced_majority"] == pytest.approx(max(replaced, tokens - replaced) / tokens)
    expected = 2 * both / (replaced + called) if replaced + called else 0.0
    assert figures["replaced_f1"] == pytest.approx(expected)
    assert 0 < replaced < tokens
    assert set(Replaced.falling) <= set(figures)


def test_a_discriminator_learns_to_find_replaced_tokens(folder: Path) -> None:
    """Each word has its place in the texts, so that a token of the wrong kind can be found."""
    recipe = RECIPES["replaced"]
    longer = {**recipe["training"], "max_steps": 120, "validate_every": 60, "batch_tokens": 500}
    path = folder / "longer"
    assert train({**recipe, "training": longer}, path, data=folder)
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    last = [line for line in lines if "replaced_f1" in json.dumps(line)][-1]
    found = last.get("validation", last)
    assert found["replaced_accuracy"] > found["replaced_majority"] + 0.01
    assert found["replaced_f1"] > 0.3
    assert found["masked_accuracy"] > found["masked_majority"]


def test_a_text_alone_and_in_a_batch_or_in_windows(detector: DetectReplaced) -> None:
    texts = ["the red dog sees a cat", "", "a bird"]
    together = detector.detect(texts)
    alone = [detector.detect([text])[0] for text in texts]
    for one, other in zip(together, alone, strict=True):
        assert one.tokens == other.tokens
        assert one.probabilities == pytest.approx(other.probabilities, abs=1e-6)
    assert (together[1].tokens, together[1].text) == ((), "")
    said: list[str] = []
    detector.notify = said.append
    words = ("the red dog sees a cat a green bird eats " * 18).split()
    long = detector.detect([" ".join(words)])[0]
    assert len(long.tokens) == len(long.probabilities) == len(words)
    assert "windows" in said[0]
    parts = spans(len(words), detector.max_length - 2, (detector.max_length - 2) // 2)
    alone = detector.detect([" ".join(words[start:end]) for start, end in parts])
    for (start, end), one in zip(parts, alone, strict=True):
        middle = (start + end) // 2
        assert long.probabilities[middle] == pytest.approx(
            one.probabilities[middle - start], abs=1e-5
        )
    assert long.probabilities[0] == pytest.approx(alone[0].probabilities[0], abs=1e-5)
    assert long.probabilities[-1] == pytest.approx(alone[-1].probabilities[-1], abs=1e-5)
    with pytest.raises(UserError, match="give a list"):
        detector.detect("the red dog")


def test_the_command_the_server_and_the_trace(run: Path, folder: Path) -> None:
    if not main.app.registered_commands:
        main._register()
    done = CliRunner().invoke(main.app, ["detect", str(run), "the red dog", "--device", "cpu"])
    assert done.exit_code == 0, done.output
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    found = heedful.load(run, device="cpu").predict(["the red dog"])[0]
    assert [token for _, token in rows] == list(found.tokens)
    assert [float(value) for value, _ in rows] == pytest.approx(found.probabilities, abs=1e-4)
    given = "the red dog\n\na cat\n"
    lines = CliRunner().invoke(main.app, ["detect", str(run), "--json"], input=given).stdout
    objects = [json.loads(line) for line in lines.splitlines()]
    assert [one["source"] for one in objects] == ["the red dog", "", "a cat"]
    plain = CliRunner().invoke(main.app, ["predict", str(run)], input=given).stdout
    assert len(plain.splitlines()) == 3
    trace = Replaced().trace(heedful.load(run, device="cpu"), "the red dog")
    assert isinstance(trace, Trace)
    assert set(trace.decided) <= {"replaced", "original"}
    score = CliRunner().invoke(
        main.app, ["evaluate", str(run), "--data", str(folder / "documents-held.txt"), "--json"]
    )
    assert score.exit_code == 0, score.exception
    figures = json.loads(score.stdout)["scores"]["replaced"]
    task = task_of(run)[1]
    assert figures["replaced_f1"] == pytest.approx(task.validate().figures["replaced_f1"])
    models = load_all([run], [], several=True, device="cpu")
    with running(make_application(models)) as address:
        body = {"inputs": ["the red dog"]}
        answer = httpx.post(f"{address}/api/predict/{models[0].name}", json=body, timeout=60)
    assert answer.status_code == 200
    assert answer.json()["results"][0]["tokens"] == list(found.tokens)
    tagged = CliRunner().invoke(main.app, ["tag", str(run), "-"], input="the dog")
    assert "use it with heedful detect, heedful fill" in str(tagged.exception)


def test_the_generator_fills_masks(run: Path) -> None:
    filler = load_filler(run, device="cpu")
    assert filler.head == "generator"
    tokens = filler.tokens("the [MASK] dog")
    model, _ = task_of(run)
    generator = model.heads["replaced"].generator
    states = generator(sequences_of([tokens])).states
    expected = generator.head(states[0, [2]]).softmax(1)
    with torch.inference_mode():
        torch.testing.assert_close(filler.probabilities(tokens, [1]), expected, atol=1e-6, rtol=0)
    assert len(filler.fill("the [MASK] dog").masks[0]) == 5
    assert filler.trace("the [MASK] dog").maps[0].name == "encoder.layers.0.self_attention"
    if not main.app.registered_commands:
        main._register()
    done = CliRunner().invoke(main.app, ["fill", str(run), "the [MASK] dog", "--device", "cpu"])
    assert len(done.stdout.splitlines()) == 5


@pytest.mark.parametrize("after", ["classification", "tagging", "replaced", "masked"])
def test_the_discriminator_is_what_is_kept(after: str, run: Path, folder: Path) -> None:
    data = {"classification": LABELLED, "tagging": TAGGED}
    whole = encoder(after, data[after]) if after in data else RECIPES[after]
    tables = {key: own for key, own in whole.items() if key not in ("model", "tokeniser")}
    path = folder / f"after-{after}"
    short = {**tables, "training": {**tables["training"], "max_steps": 1}}
    assert train(short, path, data=folder, start_from=run)
    opened: Any = open_run(path)
    model: Any = build_text_model(opened)
    load_text_start(opened, model)
    before: Any = load_text_model(open_run(run))  # type: ignore[arg-type]
    for key, tensor in before.encoder.state_dict().items():
        assert torch.equal(tensor, model.encoder.state_dict()[key]), key
    heads = before.heads.state_dict()
    own = model.heads.state_dict()
    assert all(torch.equal(heads[key], one) for key, one in own.items() if key in heads)
    assert (set(heads) == set(own)) == (after == "replaced")


def mistake(changed: dict[str, Any], folder: Path) -> str:
    with pytest.raises(UserError) as found:
        train({**RECIPES["replaced"], **changed}, folder / "mistake", data=folder)
    assert "\n" not in str(found.value)
    return str(found.value)


def test_mistakes_are_one_line(folder: Path) -> None:
    causal = {"kind": "language", "language_model": {"kind": "gpt", "layers": 1, "hidden_size": 16}}
    assert "replaced tokens need model.kind = 'bert'" in mistake({"model": causal}, folder)
    assert "replaced tokens need model.kind = 'bert'" in mistake(
        {"model": {"kind": "perceiver", "max_length": 40}}, folder
    )
    words = {"kind": "words", "vocabulary_size": 60}
    assert "tokeniser.mask = true" in mistake({"tokeniser": words}, folder)
    for replacing, message in (
        ({"generator_size": 1.5}, "generator_size"),
        ({"generator_layers": 3}, "3 layers is larger than its discriminator of 2"),
        ({"weight": 0}, "weight"),
    ):
        assert message in mistake({"replacing": replacing}, folder)
    training = {**RECIPES["replaced"]["training"], "label_smoothing": 0.1}
    assert "label_smoothing is for labels" in mistake({"training": training}, folder)


def test_a_generator_beyond_the_memory_stops_before_the_data_are_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from heedful.runs import model_size

    sizes = {"layers": 2, "hidden_size": 64, "ffn_size": 64, "heads": 2, "max_length": 40}
    encoder_alone = Bert(BertSettings(**sizes), 5)  # type: ignore[arg-type]
    memory = 4 * sum(4 * one.numel() for one in encoder_alone.parameters()) + 1
    monkeypatch.setattr(model_size, "machine_memory", lambda: memory)
    found = mistake({"model": sizes, "replacing": {"generator_size": 1.0}}, folder)
    assert "the recipe's [model]: a model of" in found
    assert not (folder / "mistake").exists()
