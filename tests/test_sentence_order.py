"""Pairs of segments for the order of sentences (ALBERT): the rows, the loss and the recipe."""

from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from heedful.basics.errors import UserError
from heedful.basics.symbols import BEGIN, END, PAD
from heedful.data.document_store import EncodedDocuments, write_documents
from heedful.data.masking import MaskedBatch, SentencePairs
from heedful.data.positions import Position
from heedful.data.vocabularies import SavedVocabulary, VocabularySettings, train_vocabulary
from heedful.runs.opening import open_run
from heedful.tasks.spec import spec_named
from heedful.tasks.texts.building import load_text_model
from heedful.tasks.texts.loading import load_filler
from heedful.tasks.texts.masking_settings import MaskingSettings
from heedful.training import train
from text_help import RECIPES, write_data

SIZES = [1, 2, 3, 7, 40, 300]


@pytest.fixture(scope="module")
def vocabulary() -> SavedVocabulary:
    words = " ".join(f"w{number}" for number in range(400))
    settings = VocabularySettings(kind="words", vocabulary_size=500, mask=True)
    return train_vocabulary(lambda: [words], settings, seed=1, where="words")


def corpus_in(folder: Path, vocabulary: SavedVocabulary) -> EncodedDocuments:
    """Documents whose sentences are numbered: "w17 w17 …" is the sentence 17."""
    first, documents = 0, []
    for size in SIZES:
        own = range(first, first + size)
        documents.append([" ".join([f"w{one}"] * (1 + one % 4)) for one in own])
        first += size
    write_documents(iter(documents), vocabulary, folder, longest=8)
    return EncodedDocuments.open(folder)


def segments_of(batch: MaskedBatch, vocabulary: SavedVocabulary) -> list[list[list[int]]]:
    """The numbers of the sentences of both segments of each row, without repetitions."""
    tokens = batch.sequences.tokens.clone()
    tokens[batch.places[:, 0], batch.places[:, 1]] = batch.labels
    found = []
    for row, segments in zip(tokens, batch.sequences.segments, strict=True):
        own = []
        for part in (0, 1):
            kept = [
                int(token)
                for token, segment in zip(row.tolist(), segments.tolist(), strict=True)
                if segment == part and token not in (PAD, BEGIN, END)
            ]
            pieces = [int(piece.removeprefix("w")) for piece in vocabulary.decode(kept).split()]
            own.append(list(dict.fromkeys(pieces)))
        found.append(own)
    return found


def test_segments_follow_each_other_and_half_are_exchanged(
    tmp_path: Path, vocabulary: SavedVocabulary
) -> None:
    corpus = corpus_in(tmp_path, vocabulary)
    pairs = SentencePairs(
        corpus,
        vocabulary,
        max_tokens=40,
        batch_tokens=400,
        next_sentence=False,
        sentence_order=True,
    )
    labels: Counter[int] = Counter()
    for seed in range(6):
        seen: Counter[int] = Counter()
        for after, batch in pairs.batches(Position(seed)):
            assert batch.next_labels is not None
            rows = segments_of(batch, vocabulary)
            for (first, second), label in zip(rows, batch.next_labels.tolist(), strict=True):
                labels[label] += 1
                seen.update(first + second)
                one, other = (second, first) if label == 1 else (first, second)
                assert (label == -1) == (not second)
                assert second or len(first) == 1
                assert one == list(range(one[0], one[-1] + 1))
                assert not other or other == list(range(one[-1] + 1, other[-1] + 1))
            if after.epoch:
                break
        assert seen == Counter(range(sum(SIZES)))
    # The document of one sentence has no second segment, and few other rows have none.
    assert 6 <= labels[-1] <= 0.05 * labels.total()
    assert 0.4 < labels[1] / (labels[0] + labels[1]) < 0.6


def test_a_document_alone_is_enough_and_both_at_once_are_refused(
    tmp_path: Path, vocabulary: SavedVocabulary
) -> None:
    write_documents(iter([["w1", "w2", "w3"]]), vocabulary, tmp_path, longest=8)
    corpus = EncodedDocuments.open(tmp_path)
    given: dict[str, Any] = {"max_tokens": 20, "batch_tokens": 100, "sentence_order": True}
    pairs = SentencePairs(corpus, vocabulary, next_sentence=False, **given)
    assert next(pairs.batches(Position(1)))[1].weight == 1
    with pytest.raises(ValueError, match="not for both"):
        SentencePairs(corpus, vocabulary, next_sentence=True, **given)


def test_the_settings_choose_one_of_both() -> None:
    assert MaskingSettings().of_pairs == "next"
    assert MaskingSettings(next_sentence=False).of_pairs is None
    order = MaskingSettings(sentence_order=True)
    assert (order.of_pairs, order.next_sentence) == ("order", False)
    with pytest.raises(ValueError, match="set one to false"):
        MaskingSettings(sentence_order=True, next_sentence=True)


def test_the_loss_and_the_figures_leave_out_rows_of_one_segment(tmp_path: Path) -> None:
    write_data(tmp_path)
    with (tmp_path / "documents-held.txt").open("a") as file:
        file.write("\nthe red dog\n")
    path = tmp_path / "run"
    recipe = {**RECIPES["ordered"], "training": {"max_steps": 2, "batch_tokens": 120}}
    assert train(recipe, path, data=tmp_path)
    opened: Any = open_run(path)
    model: Any = load_text_model(opened).eval()
    task: Any = spec_named("masked").build_task(
        opened, model, opened.recipe.training, torch.device("cpu"), "float32"
    )
    total = right = count = alone = 0.0
    for after, batch in task.validation.batches(Position(0)):
        logits = model.heads["masked_next"](model.encoder(batch.sequences))
        for row, label in zip(logits, batch.next_labels.tolist(), strict=True):
            if label < 0:
                alone += 1
                continue
            total += float(F.cross_entropy(row[None], torch.tensor([label])).detach())
            right, count = right + (int(row.argmax()) == label), count + 1
        if after.epoch:
            break
    trace = load_filler(path, device="cpu").trace("the [MASK] dog")
    assert trace.maps[0].step_axis == "layers"  # the layers have the same parameters
    figures = task.validate().figures
    assert alone == 1
    assert figures["order_loss"] == pytest.approx(total / count, rel=1e-5)
    assert figures["order_accuracy"] == pytest.approx(right / count)
    assert 0.5 <= figures["order_majority"] < 1
    assert "next_accuracy" not in figures
    _, batch = next(iter(islice(task.validation.batches(Position(0)), 1)))
    loss = task.loss(batch)
    decided = int((batch.next_labels >= 0).sum())
    parts = float(loss.parts["masked"]) / len(batch.labels)
    parts += float(loss.parts["sentence_order"]) / decided
    assert float(loss.total.detach()) / batch.weight == pytest.approx(parts, rel=1e-5)


def test_the_figure_of_another_relation_cannot_choose(tmp_path: Path) -> None:
    write_data(tmp_path)
    for name, by in (("ordered", "next_accuracy"), ("masked", "order_accuracy")):
        training = {**RECIPES[name]["training"], "choose_by": by}
        with pytest.raises(UserError, match=rf"choose_by = '{by}' needs masking"):
            train({**RECIPES[name], "training": training}, tmp_path / "run", data=tmp_path)


def test_a_head_for_another_relation_is_new(tmp_path: Path) -> None:
    write_data(tmp_path)
    short = {"max_steps": 1, "batch_tokens": 120}
    first, second = tmp_path / "first", tmp_path / "second"
    assert train({**RECIPES["masked"], "training": short, "seed": 9}, first, data=tmp_path)
    tables = {**RECIPES["ordered"], "training": {**short, "learning_rate": 1e-9}}
    for key in ("model", "tokeniser"):
        del tables[key]
    assert train(tables, second, data=tmp_path, start_from=first)
    runs: list[Any] = [open_run(path) for path in (first, second)]
    one, other = (load_text_model(run).state_dict() for run in runs)
    kept, new = "heads.masked.dense.weight", "heads.masked_next.output.weight"
    assert torch.allclose(one[kept], other[kept], atol=1e-6)
    assert not torch.allclose(one[new], other[new], atol=1e-6)
