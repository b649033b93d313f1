"""Permutation language models: what is predicted and in which order, the loss as a loop, resuming,
fine-tuning, filling in, wrong settings."""

import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from heedful.basics.errors import UserError
from heedful.basics.symbols import BEGIN, END, PAD
from heedful.data.document_store import EncodedDocuments, write_documents
from heedful.data.masking import SentencePairs
from heedful.data.permutation import PermutedBatch, PermutedRows
from heedful.data.positions import Position, Rank
from heedful.data.vocabularies import SavedVocabulary, VocabularySettings, train_vocabulary
from heedful.inference.fill_mask import FillMask
from heedful.models.encoders import HeadedEncoder, Sequences
from heedful.models.xlnet import PermutationHead, Predicted, XLNet, XLNetSettings
from heedful.runs.opening import open_run
from heedful.tasks.permutation.recipe import PermutationRecipe
from heedful.tasks.permutation.training import PermutationTask
from heedful.tasks.texts.evaluation import score_text_run
from heedful.tasks.texts.loading import load_classifier, load_filler
from heedful.training.train import train
from text_help import (
    DOCUMENTS,
    LABELLED,
    LOOP,
    PERMUTATION,
    RECIPES,
    TAGGED,
    XLNET,
    encoder,
    write_data,
)

ROW = 31


@pytest.fixture(scope="module")
def documents() -> list[list[str]]:
    """Documents whose words say where they are: d3s0w2 is a word of sentence 0."""
    random = np.random.default_rng(1)
    return [
        [
            " ".join(f"d{document}s{sentence}w{word}" for word in range(random.integers(1, 14)))
            for sentence in range(int(random.integers(1, 12)))
        ]
        for document in range(80)
    ]


@pytest.fixture(scope="module")
def vocabulary(documents: list[list[str]]) -> SavedVocabulary:
    settings = {"kind": "words", "vocabulary_size": 20000, "mask": True, "split": "spaces"}
    texts = [line for lines in documents for line in lines]
    made = VocabularySettings.model_validate(settings)
    return train_vocabulary(lambda: texts, made, seed=1, where="the test")


@pytest.fixture(scope="module")
def corpus(
    documents: list[list[str]],
    vocabulary: SavedVocabulary,
    tmp_path_factory: pytest.TempPathFactory,
) -> EncodedDocuments:
    folder = tmp_path_factory.mktemp("corpus") / "it"
    write_documents(documents, vocabulary, folder, longest=14)
    return EncodedDocuments.open(folder)


def rows_of(
    corpus: EncodedDocuments, vocabulary: SavedVocabulary, *, pairs: bool = True, **given: int
) -> PermutedRows:
    own = SentencePairs(corpus, vocabulary, max_tokens=ROW, batch_tokens=600, next_sentence=pairs)
    return PermutedRows(own, **given)


def epoch(rows: PermutedRows, seed: int = 1) -> Iterator[PermutedBatch]:
    for after, batch in rows.batches(Position(seed)):
        yield batch
        if after.epoch:
            return


# Examples


@pytest.mark.parametrize(("one_in", "longest_span"), [(6, 5), (6, 1), (2, 3), (1, 4)])
@pytest.mark.parametrize("pairs", [True, False])
def test_one_of_k_tokens_is_predicted_in_a_random_order(
    corpus: EncodedDocuments,
    vocabulary: SavedVocabulary,
    pairs: bool,
    one_in: int,
    longest_span: int,
) -> None:
    rows = rows_of(corpus, vocabulary, pairs=pairs, one_in=one_in, longest_span=longest_span)
    predicted = tokens = later = compared = 0
    for batch in epoch(rows):
        order, read = batch.order, batch.sequences.tokens
        usual = read > END
        assert not (order >= 0)[~usual].any()
        assert bool((order >= 0).any(1).all())
        for row in range(len(read)):
            count = int((order[row] >= 0).sum())
            places = batch.places[row, :count]
            assert order[row, places].tolist() == list(range(count))
            assert batch.labels[row, :count].tolist() == read[row, places].tolist()
            assert not batch.labels[row, count:].any()
            steps = places.diff()
            later, compared = later + int((steps > 0).sum()), compared + len(steps)
        there = int((batch.labels != PAD).sum())
        assert batch.weight == there
        predicted, tokens = predicted + there, tokens + int(usual.sum())
    assert predicted == tokens if one_in == 1 else abs(predicted / tokens - 1 / one_in) < 0.02
    assert abs(later / compared - 0.5) < 0.06  # neither from left to right nor the other way


def test_predicted_tokens_are_drawn_in_spans(
    corpus: EncodedDocuments, vocabulary: SavedVocabulary
) -> None:
    """Runs of predicted tokens of 1 to 5, about equally often, apart from ends of rows."""
    lengths: Counter[int] = Counter()
    for batch in itertools.chain(*(epoch(rows_of(corpus, vocabulary), seed) for seed in range(4))):
        for row in (batch.order >= 0).int().tolist():
            lengths.update(len(list(run)) for real, run in itertools.groupby(row) if real)
    total = lengths.total()
    assert all(lengths[length] > total / 15 for length in range(1, 6))
    assert sum(lengths[length] for length in range(6, 20)) < total / 20  # neighbouring spans


def test_every_word_is_read_once_in_an_epoch(
    corpus: EncodedDocuments, vocabulary: SavedVocabulary
) -> None:
    rows = rows_of(corpus, vocabulary, pairs=False, memory=9)
    found: Counter[int] = Counter()
    for batch in epoch(rows):
        found.update(batch.sequences.tokens[batch.sequences.tokens > END].tolist())
    assert set(found.values()) == {1}
    assert len(found) == corpus.tokens


@pytest.mark.parametrize("memory", [1, 4, 9, 60])
def test_the_memory_is_what_stands_before_a_row_in_its_document(
    corpus: EncodedDocuments,
    vocabulary: SavedVocabulary,
    documents: list[list[str]],
    memory: int,
) -> None:
    pieces = [[word for line in lines for word in line.split()] for lines in documents]
    place = {word: (n, at) for n, own in enumerate(pieces) for at, word in enumerate(own)}
    longest, some = 0, 0
    for batch in epoch(rows_of(corpus, vocabulary, memory=memory)):
        for row, tokens in enumerate(batch.sequences.tokens):
            assert tokens[0] == BEGIN
            (first,) = vocabulary.decode([int(tokens[1])]).split()
            document, at = place[first]
            expected = pieces[document][max(0, at - memory) : at]
            earlier = [] if batch.earlier is None else batch.earlier[row].tolist()
            real = [token for token in earlier if token != PAD]
            assert vocabulary.decode(real).split() == expected
            assert earlier == [PAD] * (len(earlier) - len(real)) + real
            longest, some = max(longest, len(real)), some + bool(real)
        assert batch.earlier is None or bool((batch.earlier[:, 0] != PAD).any())
    assert some > 20
    assert longest == memory if memory < 60 else longest > 30


def test_batches_are_a_function_of_their_position(
    corpus: EncodedDocuments, vocabulary: SavedVocabulary
) -> None:
    """Also for several processes; another epoch has other orders."""
    rows = rows_of(corpus, vocabulary, memory=5)

    def numbers(batch: PermutedBatch) -> list[Any]:
        parts = (*batch.sequences, batch.order, batch.places, batch.labels)
        earlier = None if batch.earlier is None else batch.earlier.tolist()
        return [*(part.tolist() for part in parts), earlier, batch.weight]

    first = list(itertools.islice(rows.batches(Position(7)), 12))
    for number, (after, _) in enumerate(first[:-1]):
        following = next(rows.batches(after))[1]
        assert numbers(following) == numbers(first[number + 1][1])
    for index in range(2):
        own = list(itertools.islice(rows.batches(Position(7), Rank(index, 2)), 6))
        for (_, batch), (_, whole) in zip(own, first[index::2], strict=True):
            assert numbers(batch) == numbers(whole)
    other = next(rows.batches(Position(7, 1)))[1]
    assert numbers(other) != numbers(first[0][1])


def test_parts_of_a_batch_have_its_rows(
    corpus: EncodedDocuments, vocabulary: SavedVocabulary
) -> None:
    batch = next(rows_of(corpus, vocabulary, memory=5).batches(Position(1)))[1]
    parts = batch.split(3, fewest=1)
    assert len(parts) == 3
    assert sum(part.weight for part in parts) == batch.weight
    for name in ("order", "places", "labels", "earlier"):
        joined = torch.cat([getattr(part, name) for part in parts])
        assert torch.equal(joined, getattr(batch, name))


def test_from_left_to_right_every_token_is_predicted_in_turn() -> None:
    tokens = torch.tensor([[BEGIN, 7, 8, END, 9, END], [BEGIN, 5, END, PAD, PAD, PAD]])
    sequences = Sequences(tokens, torch.tensor([6, 3]), torch.zeros_like(tokens))
    nothing = torch.zeros(2, 1, dtype=torch.long)
    batch = PermutedBatch(sequences, tokens, nothing, nothing, None, 0).left_to_right()
    assert batch.places.tolist() == [[1, 2, 4], [1, 0, 0]]
    assert batch.labels.tolist() == [[7, 8, 9], [5, PAD, PAD]]
    assert batch.order.tolist() == [[-1, 0, 1, 2, 3, 4]] * 2
    assert batch.weight == 4


# Training


def task_of(corpus: EncodedDocuments, vocabulary: SavedVocabulary, **given: int) -> PermutationTask:
    torch.manual_seed(1)
    settings = XLNetSettings(layers=2, hidden_size=16, ffn_size=24, heads=2, max_length=ROW)
    own = XLNet(settings, vocabulary.size)
    model = HeadedEncoder(own, {"permutation": PermutationHead(own)}).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    rows = rows_of(corpus, vocabulary, **given)
    return PermutationTask(model, rows, rows, device=torch.device("cpu"))


@pytest.mark.parametrize("memory", [0, 6])
def test_the_loss_is_that_of_one_token_after_another(
    corpus: EncodedDocuments, vocabulary: SavedVocabulary, memory: int
) -> None:
    """Each predicted token in a text where it and all later ones do not exist: with gradients."""
    task = task_of(corpus, vocabulary, memory=memory)
    batch = next(task.batches(Position(3)))[1].split(20, fewest=1)[0]
    xlnet, head = task.model.encoder, task.model.heads["permutation"]
    assert isinstance(xlnet, XLNet)
    found = task.loss(batch)
    total = torch.zeros((), dtype=torch.float64)
    for row, tokens in enumerate(batch.sequences.tokens):
        earlier = None
        if batch.earlier is not None and bool((batch.earlier[row] != PAD).any()):
            real = batch.earlier[row][batch.earlier[row] != PAD][None]
            earlier = xlnet.remember(real, real != PAD)
        for turn in range(int((batch.order[row] >= 0).sum())):
            later = batch.order[row] > turn
            changed = tokens.masked_fill(later, 7)  # whatever is there
            changed[batch.places[row, turn]] = 8
            own = Sequences(*(part[row : row + 1] for part in batch.sequences))
            order = batch.order[row : row + 1].clamp(max=turn)
            order[0, later] = turn + 1
            asked = Predicted(order, batch.places[row : row + 1, turn : turn + 1])
            query = xlnet.streams(own._replace(tokens=changed[None]), asked, earlier).query
            assert query is not None
            total = total - head(query[0]).log_softmax(1)[0, batch.labels[row, turn]]
    # The logits of a task are in float32.
    torch.testing.assert_close(found.total.double(), total, rtol=1e-6, atol=1e-6)


def test_parts_have_the_loss_and_the_gradient_of_the_whole(
    corpus: EncodedDocuments, vocabulary: SavedVocabulary
) -> None:
    task = task_of(corpus, vocabulary, memory=6)
    batch = next(task.batches(Position(3)))[1]
    parameters = [one for _, one in task.model.named_parameters()]

    def gradients(total: Tensor) -> list[Tensor | None]:
        return list(torch.autograd.grad(total, parameters, allow_unused=True))

    whole = gradients(task.loss(batch).total)
    parts = sum((task.loss(part).total for part in batch.split(3, fewest=1)), torch.zeros(()))
    for one, other in zip(whole, gradients(parts), strict=True):
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_memory_gets_no_gradient(corpus: EncodedDocuments, vocabulary: SavedVocabulary) -> None:
    task = task_of(corpus, vocabulary, memory=6, pairs=False)
    batch = next(batch for _, batch in task.batches(Position(3)) if batch.earlier is not None)
    task.loss(batch).total.backward()
    assert batch.earlier is not None
    read = set(batch.sequences.tokens.unique().tolist())
    only_before = [one for one in batch.earlier.unique().tolist() if one not in read]
    assert len(only_before) > 5
    xlnet = task.model.encoder
    assert isinstance(xlnet, XLNet)
    xlnet.tokens.weight.grad = None
    logits = xlnet.streams(
        batch.sequences,
        Predicted(batch.order, batch.places),
        xlnet.remember(batch.earlier, batch.earlier != PAD),
        query_only=True,
    ).query
    assert logits is not None
    logits.sum().backward()
    assert xlnet.tokens.weight.grad is not None
    assert not xlnet.tokens.weight.grad[only_before].any()


def test_validation_figures(corpus: EncodedDocuments, vocabulary: SavedVocabulary) -> None:
    """Their sums batch by batch; the same again; losses of untrained models are near log V."""
    task = task_of(corpus, vocabulary, memory=3)
    task.model.float()
    figures = task.validate().figures
    assert figures == task.validate().figures
    loss = weight = in_order = all_tokens = 0.0
    with torch.no_grad():
        for batch in epoch(task.train, 0):
            loss, weight = loss + float(task.loss(batch).total), weight + batch.weight
            whole = batch.left_to_right()
            in_order, all_tokens = (
                in_order + float(task.loss(whole).total),
                all_tokens + whole.weight,
            )
    assert figures["loss"] == pytest.approx(loss / weight, rel=1e-5)
    assert figures["left_to_right_loss"] == pytest.approx(in_order / all_tokens, rel=1e-5)
    assert figures["left_to_right_perplexity"] == pytest.approx(
        np.exp(figures["left_to_right_loss"])
    )
    assert 0 < figures["majority"] < 1
    assert figures["accuracy"] < 0.2


# Runs


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("permutation")
    write_data(folder)
    return folder


@pytest.fixture(scope="module")
def trained(folder: Path) -> Path:
    """A run that has learnt which words follow which."""
    loop = {**LOOP, "max_steps": 150, "validate_every": 150, "checkpoint_every": 150}
    loop |= {"batch_tokens": 240, "learning_rate": 0.02, "log_every": 50}
    model = {**XLNET, "dropout": 0.0, "attention_dropout": 0.0}
    orders = {"memory": 7, "one_in": 3}
    recipe = {**PERMUTATION, "training": loop, "model": model, "permutation": orders}
    path = folder / "trained"
    assert train(recipe, path, data=folder)
    return path


def test_it_learns_and_fills_in(trained: Path) -> None:
    """A sentence is: the colour animal verb a animal."""
    filler = load_filler(trained, device="cpu")
    assert isinstance(filler, FillMask)
    found = filler.fill("the red dog [MASK] a [MASK]", 3)
    verbs, animals = ({one.word for one in candidates[:2]} for candidates in found.masks)
    assert verbs == {"sees", "eats"}
    assert animals < {"dog", "cat", "bird"}
    assert found.text.split()[:3] == ["the", "red", "dog"]
    # In a text that is longer than the model's limit, each mask is read in a window.
    long = " ".join(["the red dog sees a cat"] * 12 + ["the red dog [MASK] a cat"])
    assert filler.fill(long).masks[0][0].word in verbs


def test_a_trace_shows_both_streams(trained: Path) -> None:
    filler = load_filler(trained, device="cpu")
    trace = filler.trace("the red dog [MASK] a [MASK]")
    axes = {(one.query_axis, one.key_axis, one.kind) for one in trace.maps}
    assert {("text", "text", "weights"), ("predicted", "text", "weights")} <= axes
    assert ("predicted", "text", "rollout") in axes
    assert list(trace.axes["predicted"].labels) == ["[MASK] 1", "[MASK] 2"]
    (last,) = (one for one in trace.maps if one.name == "encoder.layers.1.attention.query")
    assert last.weights.shape == (2, 2, 8)
    # A masked token is attended to by nobody.
    assert not last.weights[:, :, [4, 6]].any()
    one = filler.trace("the red dog [MASK] a cat")
    assert any(each.name.startswith("decision × gradient") for each in one.maps) is False


def test_it_is_evaluated(trained: Path, folder: Path) -> None:
    run = open_run(trained)
    (score,) = score_text_run(run, [str(folder / DOCUMENTS["validation"])])  # type: ignore[arg-type]
    assert score.figures["loss"].value < 2.5
    assert not score.figures["loss"].rises
    assert score.figures["accuracy"].rises
    assert not score.figures["left_to_right_perplexity"].rises


@pytest.mark.parametrize(("task", "data"), [("classification", LABELLED), ("tagging", TAGGED)])
def test_a_pre_trained_xlnet_is_fine_tuned(
    trained: Path, folder: Path, task: str, data: dict[str, Any]
) -> None:
    path = folder / task
    recipe = {"task": task, "data": data, "max_tokens": 24, "training": LOOP}
    assert train(recipe, path, data=folder, start_from=trained)
    weights = open_run(trained).chosen().weights()
    taken = load_file(path / "start" / "model.safetensors")
    assert all(
        torch.equal(taken[key], value)
        for key, value in weights.items()
        if key.startswith("encoder.")
    )
    if task == "classification":
        (found,) = load_classifier(path, device="cpu").classify(["the red dog sees a cat"])
        assert found.label in ("red", "green", "blue")


def test_several_tasks_share_an_xlnet(trained: Path, folder: Path) -> None:
    tasks = {
        "colour": {"task": "classification", "data": LABELLED},
        "words": {"task": "tagging", "data": TAGGED},
    }
    recipe = {"task": "several", "tasks": tasks, "max_tokens": 24, "training": LOOP}
    assert train(recipe, folder / "several", data=folder, start_from=trained)


# Wrong settings


def refused(recipe: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        PermutationRecipe.model_validate(recipe)


@pytest.mark.parametrize("kind", ["gpt", "bert", "language", "perceiver"])
def test_a_model_with_one_stream_is_refused(kind: str, tmp_path: Path, folder: Path) -> None:
    recipe = {**PERMUTATION, "model": {"kind": kind}}
    refused(recipe, f"model.kind = '{kind}' cannot predict .* set model.kind = 'xlnet'")
    with pytest.raises(UserError, match=f"'{kind}' cannot predict") as told:
        train(recipe, tmp_path / "run", data=folder)
    assert "\n" not in str(told.value)


def test_a_run_of_a_causal_model_cannot_be_started_from(folder: Path, tmp_path: Path) -> None:
    gpt = tmp_path / "gpt"
    assert train({**RECIPES["gpt"], "training": {**LOOP, "max_steps": 2}}, gpt, data=folder)
    own = {key: value for key, value in PERMUTATION.items() if key not in ("model", "tokeniser")}
    with pytest.raises(UserError, match="'language' cannot predict"):
        train(own, tmp_path / "second", data=folder, start_from=gpt)


def test_settings_that_do_not_fit(folder: Path, tmp_path: Path) -> None:
    refused(
        {**PERMUTATION, "permutation": {"memory": 41}}, "memory 41 is more than model.max_length 40"
    )
    refused({**PERMUTATION, "tokeniser": {"kind": "words"}}, "tokeniser.mask = true")
    refused({**PERMUTATION, "permutation": {"one_in": 0}}, "one_in")
    smoothed = {**PERMUTATION, "training": {**LOOP, "label_smoothing": 0.1}}
    refused(smoothed, "label_smoothing is for labels")
    one = {**PERMUTATION, "data": {"train": "documents.txt", "documents": "whole"}}
    with pytest.raises(UserError, match="one document, but pairs of segments need several"):
        train(one, tmp_path / "run", data=folder)
    masked = encoder("masked", DOCUMENTS, model=XLNET, tokeniser=PERMUTATION["tokeniser"])
    with pytest.raises(UserError, match="masked tokens need"):
        train(masked, tmp_path / "masked", data=folder)


def test_weights_of_other_shapes_are_refused(trained: Path, folder: Path, tmp_path: Path) -> None:
    """The recipe names another size than that of the run that is started from."""
    recipe = {**PERMUTATION, "model": {**XLNET, "hidden_size": 32}}
    recipe.pop("tokeniser")
    with pytest.raises(UserError, match="hidden_size"):
        train(recipe, tmp_path / "run", data=folder, start_from=trained)
