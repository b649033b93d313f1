"""Sentence embeddings: the loss, the data, training, retrieval and the command."""

import json
import math
import random
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from scipy.stats import pearsonr, spearmanr
from sklearn import metrics
from typer.testing import CliRunner

import heedful
from heedful.basics.errors import UserError
from heedful.cli import main
from heedful.data.examples import Similar
from heedful.data.positions import Position
from heedful.evaluation.retrieval import ranks, retrieval_figures
from heedful.layers.contrastive import comparable, contrastive_losses
from heedful.models.encoders import Encoded
from heedful.models.text_pooling import TextPooling
from heedful.runs.opening import open_run
from heedful.serving import make_application
from heedful.serving.loading import load_all
from heedful.tasks.embedding.batches import SimilarBatches
from heedful.tasks.embedding.measures import measure
from heedful.tasks.embedding.search import nearest
from heedful.tasks.spec import spec_named, spec_of_run
from heedful.tasks.texts.run import TextRun
from page_help import needs_browser, opened
from serving_help import running
from text_help import ANIMALS, BERT, LOOP, encoder, sentence

PAIRS = {"train": "similar.tsv", "validation": "similar-held.tsv", "texts": ["first", "second"]}
RATED = {"train": "rated.jsonl", "validation": "rated-held.jsonl", "texts": ["first", "second"]}
RATED_DATA = {**RATED, "test": "rated-held.jsonl", "rating": "score"}
SYNONYMS = {"dog": "hound", "cat": "kitten", "bird": "sparrow"}


def similar(words: list[str]) -> str:
    """The same sentence in other words."""
    return " ".join(["one", *(SYNONYMS.get(word, word) for word in words[1:])])


def write(folder: Path) -> None:
    """Pairs that have the same colours and animals; triples; rated pairs; single texts."""
    rng = random.Random(4)
    for name, count in (("", 60), ("-held", 12)):
        texts = [sentence(rng) for _ in range(count)]
        pairs = [(" ".join(words), similar(words)) for words in texts]
        others = [similar([*words[:2], ANIMALS[len(words[2]) % 2], *words[3:]]) for words in texts]
        rows = [f"{one}\t{two}" for one, two in pairs]
        triples = [f"{row}\tnot {other}" for row, other in zip(rows, others, strict=True)]
        rated = []
        for one, two in zip(texts, texts[1:] + texts[:1], strict=True):
            score = sum(a == b for a, b in zip(one[1:4], two[1:4], strict=True)) * 5 / 3
            rated.append({"first": " ".join(one), "second": " ".join(two), "score": score})
        for file, lines in (
            (f"similar{name}.tsv", ["first\tsecond", *rows]),
            (f"triples{name}.tsv", ["first\tsecond\tthird", *triples]),
            (f"rated{name}.jsonl", list(map(json.dumps, rated))),
            (f"single{name}.txt", ["\n\n".join(one for one, _ in pairs)]),
        ):
            (folder / file).write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("similar")
    write(folder)
    return folder


@pytest.fixture(scope="module")
def run(folder: Path) -> Path:
    """A run on pairs."""
    loop = {**LOOP, "max_steps": 60, "validate_every": 30, "checkpoint_every": 30}
    recipe = encoder("embedding", {**PAIRS, "test": "similar-held.tsv"}, training=loop)
    assert heedful.train(recipe, folder / "run", data=folder)
    return folder / "run"


@pytest.fixture(scope="module")
def rated(folder: Path) -> Path:
    """A run on rated pairs."""
    loop = {**LOOP, "max_steps": 60, "validate_every": 30, "choose_by": "spearman"}
    assert heedful.train(
        encoder("embedding", RATED_DATA, training=loop), folder / "rated", data=folder
    )
    return folder / "rated"


def command(arguments: list[str], lines: str | None = None, code: int = 0) -> str:
    if not main.app.registered_commands:
        main._register()
    done = CliRunner().invoke(main.app, arguments, input=lines)
    assert done.exit_code == code, done.output
    return done.stdout


def plain_loss(vectors: list[torch.Tensor], texts: list[list[str]], tau: float) -> torch.Tensor:
    """Equation 5 of Gao et al. 2021, as loops over texts."""
    anchors, positives, *negatives = texts
    count = len(anchors)

    def cos(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return (one * other).sum() / (one.square().sum().sqrt() * other.square().sum().sqrt())

    total = torch.zeros((), dtype=torch.float64)
    for i in range(count):
        own = torch.exp(cos(vectors[0][i], vectors[1][i]) / tau)
        below = own
        for j in range(count):
            distinct = positives[j] not in (anchors[i], positives[i]) and anchors[j] != anchors[i]
            if j != i and distinct:
                below = below + torch.exp(cos(vectors[0][i], vectors[1][j]) / tau)
            if negatives and negatives[0][j] not in (anchors[i], positives[i]):
                below = below + torch.exp(cos(vectors[0][i], vectors[2][j]) / tau)
        total = total - torch.log(own / below)
    return total


@pytest.mark.parametrize(
    "texts",
    [
        ["abcd", "efgh"],
        ["abcd", "efgh", "ijkl"],
        ["abcd", "abcd"],
        ["aabcb", "edefa", "bgaed"],
    ],
)
def test_the_loss_and_its_gradients_are_those_of_the_equation(texts: list[str]) -> None:
    letters = [list(side) for side in texts]
    numbers = torch.tensor([[ord(letter) for letter in side] for side in letters])
    generator = torch.Generator().manual_seed(1)
    vectors = torch.randn(
        len(texts), len(texts[0]), 6, generator=generator, dtype=torch.float64
    ).requires_grad_()
    own = contrastive_losses(vectors[0], vectors[1:].flatten(0, 1), comparable(numbers), 0.3).sum()
    expected = plain_loss(list(vectors), letters, 0.3)
    torch.testing.assert_close(own, expected, atol=1e-9, rtol=1e-9)
    (gradient,) = torch.autograd.grad(own, vectors)
    (other,) = torch.autograd.grad(expected, vectors)
    torch.testing.assert_close(gradient, other, atol=1e-9, rtol=1e-9)


def test_equal_texts_are_not_negatives_of_each_other() -> None:
    """Two copies of one pair: neither is pushed away from the other."""
    texts = torch.tensor([[1, 1, 5], [2, 2, 6]])
    assert comparable(texts).tolist() == [[True, False, True], [False, True, True], [True] * 3]
    assert torch.equal(comparable(texts, 1, 3), comparable(texts)[1:])


@pytest.mark.parametrize("kind", ["mean", "max", "cls"])
def test_pooling_reads_the_tokens_of_a_row_only(kind: Any) -> None:
    states = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(2))
    states[1, 3:] = math.nan  # undefined beyond the row
    found = TextPooling(kind)(Encoded(states, None), torch.tensor([5, 3]))
    for row, length in enumerate((5, 3)):
        own = states[row, :length]
        expected = {"mean": own.mean(0), "max": own.max(0).values, "cls": own[0]}[kind]
        torch.testing.assert_close(found[row], expected)
    last = TextPooling("cls", -1)(Encoded(states, None), torch.tensor([5, 3]))
    torch.testing.assert_close(last[1], states[1, 2])


def test_the_mean_is_that_of_sentence_transformers_formula() -> None:
    """Summed masked states over the summed mask (Reimers and Gurevych 2019), with gradients."""
    states = torch.randn(3, 6, 4, dtype=torch.float64).requires_grad_()
    lengths = torch.tensor([6, 2, 4])
    mask = (torch.arange(6) < lengths[:, None]).double().unsqueeze(-1)
    expected = (states * mask).sum(1) / mask.sum(1).clamp(min=1e-9)
    own = TextPooling("mean")(Encoded(states, None), lengths)
    torch.testing.assert_close(own, expected)
    weights = torch.randn_like(own)
    (one,) = torch.autograd.grad((own * weights).sum(), states)
    (two,) = torch.autograd.grad((expected * weights).sum(), states)
    torch.testing.assert_close(one, two)


def test_ranks_are_those_of_scikit_learn() -> None:
    rng = np.random.default_rng(5)
    queries, candidates = (torch.tensor(rng.normal(size=(30, 4))) for _ in range(2))
    found = ranks(queries, candidates, torch.arange(60).view(2, 30))
    cosines = metrics.pairwise.cosine_similarity(queries, candidates)
    figures = retrieval_figures(found)
    for k in (1, 5, 10):
        expected = metrics.top_k_accuracy_score(np.arange(30), cosines, k=k)
        assert figures[f"recall_at_{k}"] == pytest.approx(expected)
    reciprocal = metrics.label_ranking_average_precision_score(np.eye(30), cosines)
    assert figures["mean_reciprocal_rank"] == pytest.approx(reciprocal)
    same = torch.ones(4, 3)
    assert ranks(same, same, torch.arange(8).view(2, 4)) == [4] * 4


def test_pairs_are_learned_and_scored(run: Path) -> None:
    scores = json.loads(command(["evaluate", str(run), "--json"]))["scores"]["embedding"]
    embedder, opened = heedful.load(run, device="cpu"), open_run(run)
    held = opened.similar("embedding", "test")  # type: ignore[attr-defined]
    one, two = (embedder.embed([pair.texts[side] for pair in held]) for side in (0, 1))
    cosines = one.astype(float) @ two.astype(float).T
    places = []
    for row, example in enumerate(held):
        rivals = [
            cosines[row, column]
            for column, other in enumerate(held)
            if other.texts[0] != example.texts[0] and other.texts[1] != example.texts[1]
        ]
        places.append(1 + sum(rival >= cosines[row, row] for rival in rivals))
    assert scores["recall_at_1"] == pytest.approx(np.mean([place == 1 for place in places]))
    reciprocal = np.mean([1 / place for place in places])
    assert scores["mean_reciprocal_rank"] == pytest.approx(reciprocal)
    assert reciprocal > 0.5  # by chance: 0.26


def test_texts_with_equal_tokens_are_one_candidate(run: Path) -> None:
    embedder, opened = heedful.load(run, device="cpu"), open_run(run)
    assert isinstance(opened, TextRun)
    held = opened.similar("embedding", "test")
    # Spaces are no tokens.
    spaced = [Similar(tuple(f" {text}  " for text in one.texts)) for one in held]
    wanted = measure(embedder, [*held, *held], 0.05, (0.0, 5.0))
    found = measure(embedder, [*held, *spaced], 0.05, (0.0, 5.0))
    assert found == wanted


def test_rated_pairs_are_scored_as_scipy_scores_them(rated: Path) -> None:
    scores = json.loads(command(["evaluate", str(rated), "--json"]))["scores"]["embedding"]
    embedder, opened = heedful.load(rated, device="cpu"), open_run(rated)
    held = opened.similar("embedding", "test")  # type: ignore[attr-defined]
    one, two = (embedder.embed([pair.texts[side] for pair in held]) for side in (0, 1))
    cosines = (one.astype(float) * two).sum(1)
    gold = [pair.rating for pair in held]
    assert scores["spearman"] == pytest.approx(spearmanr(gold, cosines).statistic)
    assert scores["pearson"] == pytest.approx(pearsonr(gold, cosines).statistic, rel=1e-5)
    assert scores["loss"] == pytest.approx(
        metrics.mean_squared_error(np.divide(gold, 5), cosines), rel=1e-4
    )
    assert scores["pearson"] > 0.6


def task_of(run: Path) -> Any:
    opened, spec = open_run(run), spec_of_run(run)[1]
    model: Any = spec.load(run, device="cpu").model
    settings = opened.recipe.training  # type: ignore[attr-defined]
    return spec.build_task(opened, model, settings, torch.device("cpu"), "float32")


def test_a_training_step_has_the_loss_of_the_equation(run: Path, rated: Path) -> None:
    task = task_of(run)
    batch = next(iter(task.batches(Position(0))))[1]
    task.model.eval()
    found = task.loss(batch)
    encoded = task.model.encoder(batch.rows)
    vectors = task.model.heads["embedding"](encoded, batch.rows.lengths).double()
    sides = [[str(number) for number in side] for side in batch.texts.tolist()]
    expected = plain_loss(list(vectors.view(2, batch.weight, -1)), sides, 0.05)
    torch.testing.assert_close(found.total.double(), expected, atol=1e-5, rtol=1e-5)
    assert task.split(batch, 3, 1) == [batch]
    task = task_of(rated)
    task.model.eval()
    batch = next(iter(task.batches(Position(0))))[1]
    encoded = task.model.encoder(batch.rows)
    vectors = task.model.heads["embedding"](encoded, batch.rows.lengths)
    one, two = vectors.view(2, batch.weight, -1)
    cosine = torch.nn.functional.cosine_similarity(one, two)
    expected = torch.nn.functional.mse_loss(cosine, batch.ratings, reduction="sum")
    torch.testing.assert_close(task.loss(batch).total, expected)


def test_two_passes_of_one_text_differ_by_dropout(folder: Path, tmp_path: Path) -> None:
    data = {
        "train": "single.txt",
        "plain_text": "lines",
        "validation": "rated-held.jsonl",
        "rated": ["first", "second", "score"],
    }
    loop = {**LOOP, "max_steps": 3, "choose_by": "spearman"}
    recipe = encoder("embedding", data, training=loop, model={**BERT, "dropout": 0.3})
    assert heedful.train(recipe, tmp_path / "run", data=folder)
    task = task_of(tmp_path / "run")
    batch = next(iter(task.batches(Position(0))))[1]
    assert torch.equal(batch.texts[0], batch.texts[1])
    count = batch.weight
    assert torch.equal(batch.rows.tokens[:count], batch.rows.tokens[count:])
    task.model.train()
    encoded = task.model.encoder(batch.rows)
    passes = task.model.heads["embedding"](encoded, batch.rows.lengths).view(2, count, -1)
    assert not torch.allclose(passes[0], passes[1])
    assert set(task.validate().figures) == {"loss", "pearson", "spearman"}
    still = {**recipe, "model": {**BERT, "dropout": 0.0}}
    with pytest.raises(UserError, match="dropout above 0"):
        heedful.train(still, tmp_path / "still", data=folder)


def test_batches_depend_on_the_position_only(run: Path) -> None:
    batches = SimilarBatches(run / "data" / "embedding" / "train", 120)
    stream = batches.batches(Position(3))
    first, _ = next(stream)
    expected = next(stream)[1]
    again = next(iter(SimilarBatches(run / "data" / "embedding" / "train", 120).batches(first)))[1]
    assert torch.equal(again.rows.tokens, expected.rows.tokens)
    assert torch.equal(again.texts, expected.texts)


def test_an_interrupted_run_goes_on_as_if_it_had_not_stopped(folder: Path, tmp_path: Path) -> None:
    data = {"train": "triples.tsv", "texts": ["first", "second", "third"]}
    weights = []
    for name, stops in (("whole", [8]), ("parts", [5, 8])):
        for steps in stops:
            loop = {**LOOP, "schedule": "constant", "max_steps": steps}
            recipe = encoder("embedding", data, training=loop, pooling="cls")
            heedful.train(recipe, tmp_path / name, data=folder)
        model = heedful.load(tmp_path / name, device="cpu", checkpoint="last").model
        weights.append(model.state_dict())
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])


def test_long_and_empty_texts(run: Path) -> None:
    embedder = heedful.load(run, device="cpu")
    notices: list[str] = []
    embedder.notify = notices.append
    long = "the red dog sees a cat " * 20
    whole, empty, short = embedder.predict([long, " ", "a blue bird"])
    assert (whole.windows > 1, empty.windows, short.windows) == (True, 0, 1)
    assert set(empty.vector) == {0.0}
    assert len(notices) == 2
    rows = embedder.rows(long)
    with torch.no_grad():
        pooled = torch.cat([embedder.logits(embedder.encode([row])) for row in rows])
    mean = pooled.double().mean(0)
    np.testing.assert_allclose(whole.vector, mean / mean.norm(), atol=1e-5)
    alone = embedder.embed(["a blue bird"])[0]
    np.testing.assert_allclose(short.vector, alone, atol=1e-6)
    assert np.linalg.norm(alone) == pytest.approx(1)


LINES = "the red dog sees a cat\n\nthe green bird eats a dog\nthe red dog eats a cat\n"


def test_the_command_writes_a_vector_for_each_line(run: Path, tmp_path: Path) -> None:
    embedder = heedful.load(run, device="cpu")
    expected = embedder.embed(LINES.split("\n")[:4])
    found = [json.loads(line) for line in command(["embed", str(run)], LINES).splitlines()]
    np.testing.assert_allclose([one["vector"] for one in found], expected, atol=1e-6)
    assert [one["windows"] for one in found] == [1, 0, 1, 1]
    output = tmp_path / "lines.npy"
    command(["embed", str(run), "--output", str(output)], LINES)
    array = np.load(output)
    assert array.dtype == np.float32
    np.testing.assert_allclose(array, expected, atol=1e-6)
    command(["embed", str(run), "--output", str(output)], "")
    assert np.load(output).shape == (0, 16)


def test_the_command_finds_similar_lines(run: Path) -> None:
    embedder = heedful.load(run, device="cpu")
    vectors = embedder.embed(LINES.split("\n")[:4]).astype(float)
    query = embedder.embed(["a red dog"])[0].astype(float)
    cosines = vectors @ query
    order = sorted((0, 2, 3), key=lambda place: -cosines[place])
    arguments = ["embed", str(run), "--similar", "a red dog"]
    rows = [
        line.split("\t") for line in command([*arguments, "--nearest", "2"], LINES).splitlines()
    ]
    assert [int(number) - 1 for _, number, _ in rows] == order[:2]
    assert float(rows[0][0]) == pytest.approx(cosines[order[0]], abs=1e-3)
    assert len(command(arguments, LINES).splitlines()) == 3
    each = command(["embed", str(run), "--nearest", "1", "--json"], LINES).splitlines()
    found = [json.loads(line)["nearest"] for line in each]
    assert found[1] == []
    own = vectors @ vectors.T - 9 * np.eye(4)
    own[:, 1] = -9
    assert [found[row][0]["line"] - 1 for row in (0, 2, 3)] == own.argmax(1)[[0, 2, 3]].tolist()


@needs_browser()
def test_the_server_and_the_page_compare_texts(run: Path, chromium: Any) -> None:
    models = load_all([run], [], several=True, device="cpu")
    texts = ["the red dog", "a blue cat", "the red hound"]
    with running(make_application(models)) as address:
        answer = httpx.post(f"{address}/api/predict/run", json={"inputs": texts}).json()
        vectors = np.array([one["vector"] for one in answer["results"]])
        with opened(chromium, f"{address}#panel=embed") as it:
            it.page.fill(".heed-embed textarea", "\n\n".join(texts))
            it.page.wait_for_selector(".heed-pairs li >> nth=2")
            shown = it.page.locator(".heed-pairs .heed-number").all_text_contents()
            it.page.focus(".heed-embed .heed-matrix")
            it.page.keyboard.press("ArrowDown")
            it.page.keyboard.press("Enter")
            it.page.wait_for_selector("text=The other panels show text 2")
            it.tab("links")
            bar = it.page.locator(".heed-sentence-field")
            assert bar.input_value() == texts[1]
            bar.fill("a red cat")
            bar.press("Enter")  # only this text is replaced, and it stays selected
            it.tab("embed")
            it.page.wait_for_selector(".heed-pairs >> text=a red cat")
            it.page.wait_for_selector("text=The other panels show text 2")
            typed = it.page.input_value(".heed-embed textarea").split("\n")
            assert typed == [texts[0], "a red cat", texts[2]]
    cosines = (vectors @ vectors.T)[np.triu_indices(3, 1)]
    assert [float(one.replace("−", "-")) for one in shown] == pytest.approx(
        sorted(cosines)[::-1], abs=1e-3
    )


def test_the_search_is_that_of_a_loop() -> None:
    rng = np.random.default_rng(8)
    vectors = rng.normal(size=(9, 3)).astype(np.float32)
    vectors[4] = 0
    vectors[6] = vectors[2]
    for row, found in enumerate(nearest(vectors, vectors, 3, first=0)):
        cosines = []
        for column in range(9):
            norm = np.linalg.norm(vectors[row]) * np.linalg.norm(vectors[column])
            if norm and column != row:
                cosines.append((-float(vectors[row] @ vectors[column] / norm), column))
        expected = [column for _, column in sorted(cosines)[:3]]
        assert sorted(one.place for one in found) == sorted(expected)
        assert [one.cosine for one in found] == sorted((o.cosine for o in found), reverse=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": {**PAIRS, "rating": "score", "texts": ["a"]}}, "rating is that of two texts"),
        ({"data": {**PAIRS, "rated": ["a", "b"]}}, "three columns"),
        ({"data": {**PAIRS, "range": [5, 0]}}, "not below"),
        ({"training": {**LOOP, "choose_by": "spearman"}}, "needs rated pairs"),
        # Validation pairs are held out of training pairs, which have no ratings.
        (
            {
                "data": {
                    **{key: own for key, own in PAIRS.items() if key != "validation"},
                    "validation_share": 0.2,
                    "test": "rated-held.jsonl",
                    "rated": ["first", "second", "score"],
                },
                "training": {**LOOP, "choose_by": "spearman"},
            },
            "needs rated pairs",
        ),
        ({"training": {**LOOP, "batch_tokens": 30}}, "less than two texts"),
        ({"training": {**LOOP, "unfreeze_every": 2}}, "has none"),
        ({"model": {"kind": "decomposable"}}, "reads pairs of texts only"),
        ({"model": {"kind": "convolutional-encoder"}}, "set pooling = 'encoder'"),
        ({"head_dropout": 0.3}, "no output layer"),
    ],
)
def test_wrong_settings_are_refused(
    changes: dict[str, Any], message: str, folder: Path, tmp_path: Path
) -> None:
    recipe = {**encoder("embedding", PAIRS), **changes}
    with pytest.raises(UserError, match=message):
        heedful.train(recipe, tmp_path / "run", data=folder)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"first": "a", "second": " ", "score": 1}', "'second' is empty"),
        ('{"first": "a", "second": "b", "score": "x"}', "'x' is not a number"),
        ('{"first": "a", "second": "b", "score": null}', "is not a number"),
        ('{"first": "a", "second": "b", "score": 1' + "0" * 400 + "}", "is not a number"),
        ('{"first": "a", "second": "b", "score": 7}', "outside the range 0 to 5"),
        ('{"first": "a", "second": "b"}', "there is no field 'score'"),
    ],
)
def test_wrong_examples_are_refused(line: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(
        f'{{"first": "a", "second": "b", "score": 1.5}}\n{line}\n', encoding="utf-8"
    )
    data = {"train": "rows.jsonl", "texts": ["first", "second"], "rating": "score"}
    with pytest.raises(UserError, match=message):
        heedful.train(encoder("embedding", data), tmp_path / "run", data=tmp_path)


@pytest.mark.parametrize(
    ("file", "settings", "figure"),
    [
        ("similar.tsv", {"texts": ["first", "second"]}, "mean_reciprocal_rank"),
        ("rated.jsonl", {"texts": ["first", "second"], "rating": "score"}, "spearman"),
        ("single.txt", {}, "loss"),
    ],
)
def test_a_recipe_is_chosen(
    file: str, settings: dict[str, Any], figure: str, folder: Path, tmp_path: Path
) -> None:
    if file == "single.txt":
        with pytest.raises(UserError, match="is plain text, which has no ratings"):
            spec_named("embedding").choose_recipe([str(folder / file)], rating="score")
    tables = spec_named("embedding").choose_recipe([str(folder / file)], **settings)
    assert tables["training"]["choose_by"] == figure
    short = {"max_steps": 2, "warmup_steps": 1}
    recipe = {**tables, "training": {**tables["training"], **short}}
    assert heedful.train(recipe, tmp_path / "run")
    embedder = heedful.load(tmp_path / "run", device="cpu")
    assert embedder.embed(["the red dog"]).shape == (1, 256)
    assert next(iter(embedder.trace("the red dog").decided)).startswith("length ")


def test_python_rows_and_another_run_to_start_from(folder: Path, tmp_path: Path) -> None:
    rows = [(f"the {animal}", f"the {SYNONYMS[animal]}") for animal in ANIMALS] * 4
    held = [("the dog", "the hound", 5.0), ("the dog", "the cat", 0.0), ("a cat", "a bird", 1.0)]
    data = {"train": "rows", "validation": "rows", "texts": ["a", "b"], "rated": ["a", "b", "c"]}
    loop = {**LOOP, "max_steps": 4}
    first = encoder("masked", {"train": "single.txt"}, tokeniser={"kind": "words", "mask": True})
    heedful.train({**first, "training": loop}, tmp_path / "first", data=folder)
    recipe = {"task": "embedding", "seed": 5, "data": data, "max_tokens": 24, "training": loop}
    out = tmp_path / "run"
    found = {"train": rows, "validation": held}
    assert heedful.train(recipe, out, data=found, start_from=tmp_path / "first")
    assert len(open_run(out).similar("embedding", "validation")) == 3  # type: ignore[attr-defined]
