"""Packed documents: each is read as if it were alone, and each token is predicted once."""

from collections import Counter
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from tests.test_gpt import VOCABULARY, gpt_of
from tests.test_masking import epoch as epoch_of
from tests.test_masking import restored, words_of
from tests.text_help import LANGUAGE, LOOP, MASKED, write_data
from torch import Tensor

from heedful.basics.errors import UserError
from heedful.basics.symbols import END, PAD
from heedful.data.document_store import EncodedDocuments, write_documents
from heedful.data.masking import MaskedBatch, SentencePairs
from heedful.data.packed_texts import PackedTexts
from heedful.data.packing import PackedBatches, pack
from heedful.data.positions import Position, Rank
from heedful.data.store import Store
from heedful.data.streams import WindowBatch
from heedful.models import build_language_model
from heedful.models.bert import Bert, BertSettings, MaskedHead
from heedful.models.encoders import HeadedEncoder, Sequences, TextEncoder
from heedful.models.gpt import Gpt
from heedful.models.packing import places_in_documents
from heedful.runs.checkpoints import open_checkpoint
from heedful.runs.opening import open_run
from heedful.tasks.language_model.training import next_token_loss
from heedful.tasks.masked.training import MaskedTask
from heedful.tasks.texts.recipe import LanguageRecipe, MaskedRecipe
from heedful.training.train import train
from stream_help import write_stream

LLAMA: dict[str, Any] = {
    "positions": "rotary",
    "norm": "rms",
    "gated": True,
    "bias": False,
    "activation": "silu",
    "attention": {"key_value_heads": 1},
}
MODELS: dict[str, dict[str, Any]] = {
    "gpt-2": {},
    "gpt-1": {"pre_norm": False, "positions": "sinusoidal"},
    "llama": LLAMA,
    "relative": {"positions": "t5", "attention": {"normalizer": "entmax15"}},
    "shaw, windows": {"positions": "shaw", "attention": {"mask": {"name": "window", "before": 3}}},
    "alibi, additive": {"positions": "alibi", "attention": {"score": "cosine"}},
    "transformer-xl": {"positions": "transformer-xl"},
    "no positions": {"positions": "none"},
}


def stored(folder: Path, lengths: list[int], shard_size: int = 1 << 25) -> Store:
    """Documents of random tokens, each ``length - 1`` tokens long and ended by END."""
    draw = np.random.default_rng(1)
    documents = [draw.integers(END + 1, VOCABULARY, length - 1).tolist() for length in lengths]
    write_stream(documents, folder, VOCABULARY, shard_size)
    return Store.open(folder)


def documents_of(batch: WindowBatch) -> list[tuple[Tensor, Tensor]]:
    """Tokens and targets of each document alone, row by row."""
    assert batch.documents is not None
    found = []
    for tokens, targets, numbers in zip(batch.tokens, batch.targets, batch.documents, strict=True):
        for number in range(1, int(numbers.max()) + 1):
            own = numbers == number
            found.append((tokens[own], targets[own]))
    return found


def loss_of(gpt: Gpt, states: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    real = targets != PAD
    return gpt.logits(states[real]), next_token_loss(gpt, states[real], targets[real], 0.1)[0]


@pytest.mark.parametrize("settings", MODELS.values(), ids=MODELS.keys())
def test_outputs_losses_and_gradients_are_those_of_each_document_alone(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    gpt = gpt_of(**settings)
    gpt.settings.check_packing()
    batches = PackedBatches(stored(tmp_path / "s", [1, 2, 3, 5, 7, 4, 12, 30, 2]), 12, 4)
    _, batch = next(batches.batches(Position(1)))
    assert batch.documents is not None
    assert batch.documents.max() > 2
    logits, loss = loss_of(gpt, gpt.packed_states(batch.tokens, batch.documents), batch.targets)
    packed = torch.autograd.grad(loss, list(gpt.parameters()), allow_unused=True)
    alone = [
        loss_of(gpt, gpt.states(tokens[None]), targets[None])
        for tokens, targets in documents_of(batch)
    ]
    close = {"rtol": 1e-9, "atol": 1e-9}
    torch.testing.assert_close(logits, torch.cat([one for one, _ in alone]), **close)
    total = torch.stack([one for _, one in alone]).sum()
    torch.testing.assert_close(loss, total, **close)
    expected = torch.autograd.grad(total, list(gpt.parameters()), allow_unused=True)
    for ours, theirs in zip(packed, expected, strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            torch.testing.assert_close(ours, theirs, **close)


def test_without_the_mask_documents_would_see_one_another(tmp_path: Path) -> None:
    gpt = gpt_of()
    _, batch = next(PackedBatches(stored(tmp_path / "s", [3, 4, 5]), 12, 4).batches(Position(1)))
    assert batch.documents is not None
    apart = gpt.packed_states(batch.tokens, batch.documents)
    assert not torch.allclose(apart, gpt.states(batch.tokens), atol=1e-3)


@pytest.mark.parametrize(("shard_size", "window"), [(1 << 25, None), (60, None), (60, 150)])
def test_an_epoch_predicts_each_token_of_each_document_once(
    tmp_path: Path, shard_size: int, window: int | None
) -> None:
    store = stored(tmp_path / "s", [*range(1, 30), 100, 12, 13], shard_size)
    batches = PackedBatches(store, 12, 4, pool=10, window=window)
    texts = [row["tokens"] for row in store][1:]
    expected = Counter(
        (int(before), int(token))
        for text in texts
        for before, token in zip([END, *text], text)  # noqa: B905
    )
    for epoch in (0, 1):
        found: Counter[tuple[int, int]] = Counter()
        for after, batch in batches.batches(Position(3, epoch)):
            assert batch.tokens.shape[1] <= 12
            assert len(batch.tokens) <= 4
            real = batch.targets != PAD
            assert batch.weight == int(real.sum())
            assert torch.equal(real, batch.documents != 0)
            found.update(
                zip(batch.tokens[real].tolist(), batch.targets[real].tolist(), strict=True)
            )
            if after.epoch != epoch:
                assert after == Position(3, epoch + 1, 0)
                break
        assert found == expected


def test_batches_are_a_function_of_the_position_and_the_rank(tmp_path: Path) -> None:
    batches = PackedBatches(stored(tmp_path / "s", [5, 30, 7] * 9), 12, 2, pool=8)
    whole = list(islice(batches.batches(Position(3)), 40))
    assert whole[-1][0].epoch > 0
    for place in (0, 3, 17):
        resumed = islice(batches.batches(whole[place][0]), 5)
        for (after, batch), (known, expected) in zip(
            resumed, whole[place + 1 : place + 6], strict=True
        ):
            assert after == known
            assert torch.equal(batch.tokens, expected.tokens)
    second = list(islice(batches.batches(Position(3), Rank(1, 2)), 5))
    for (_, batch), (_, expected) in zip(second, whole[1:10:2], strict=True):
        assert torch.equal(batch.targets, expected.targets)
    for index in (-1, 1 << 30, 1 << 50):
        with pytest.raises(UserError, match="there is no batch at"):
            next(batches.batches(Position(3, 0, index)))


def test_halves_of_a_batch_keep_their_documents(tmp_path: Path) -> None:
    _, batch = next(PackedBatches(stored(tmp_path / "s", [5, 7] * 9), 12, 4).batches(Position(1)))
    parts = batch.split(2, fewest=1)
    assert len(parts) == 2
    assert sum(part.weight for part in parts) == batch.weight
    assert batch.documents is not None
    joined = [part.documents for part in parts if part.documents is not None]
    assert torch.equal(torch.cat(joined), batch.documents)


def test_rows_are_nearly_full() -> None:
    lengths = sorted(np.random.default_rng(2).integers(1, 60, 3000).tolist(), reverse=True)
    rows = pack(lengths, 128)
    assert sorted(piece for row in rows for piece in row) == list(range(3000))
    filled = [sum(lengths[piece] for piece in row) for row in rows]
    assert max(filled) <= 128
    assert len(rows) <= 1.01 * sum(lengths) / 128 + 1
    assert pack([128, 128], 128) == [[0], [1]]
    assert pack([], 128) == []


def test_places_begin_anew_in_each_document() -> None:
    documents = torch.tensor([[1, 1, 2, 2, 2, 0], [1, 2, 3, 3, 3, 3]])
    assert places_in_documents(documents).tolist() == [[0, 1, 0, 1, 2, 0], [0, 0, 0, 1, 2, 3]]


def test_a_run_reports_padding_and_resumes_exactly(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_data(tmp_path)
    recipe = {**LANGUAGE, "windows": "packed", "context": 40}
    recipe["training"] = {**LOOP, "schedule": "constant", "validate_every": 3}
    assert train(recipe, tmp_path / "whole", data=tmp_path)
    written = capsys.readouterr().err
    assert "of the rows is padding; " in written
    first = {**recipe, "training": {**recipe["training"], "max_steps": 3}}
    assert train(first, tmp_path / "parts", data=tmp_path)
    assert train(recipe, tmp_path / "parts", data=tmp_path)
    whole, parts = (
        open_checkpoint(tmp_path / name / "checkpoints" / "step-00000008").weights()
        for name in ("whole", "parts")
    )
    assert all(torch.equal(parts[name], tensor) for name, tensor in whole.items())
    # The loss is that of documents alone.
    point = open_run(tmp_path / "whole").chosen()
    assert point.state["validation"]["loss"] > 0


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"kind": "recurrent-language-model", "hidden_size": 8}, "reads a row as one text"),
        ({"attention": {"kind": "linear"}}, "attention.kind = 'linear' sums over all documents"),
        ({"attention": {"mask": {"name": "block", "size": 4}}}, "attention.mask = 'block' depends"),
        ({"attention": {"mask": {"name": "window", "sinks": 2}}}, "packed windows need sinks = 0"),
        (
            {"attention": {"score": {"name": "soft-capped", "score": "location"}}},
            "attention.score = 'location' depends",
        ),
        (
            {"positions": "rotary", "attention": {"score": "general"}},
            "attention.score = 'general' with rotary positions depends on the position in a row",
        ),
        (
            {"attention": {"positions": "rotary", "score": "additive"}},
            "attention.score = 'additive' with rotary positions",
        ),
        (
            {
                "positions": "rotary",
                "attention": {"score": {"name": "soft-capped", "score": "concat"}},
            },
            "attention.score = 'concat' with rotary positions",
        ),
    ],
)
def test_models_that_read_across_documents_are_refused(model: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=f"windows = 'packed': .*{message}"):
        LanguageRecipe.model_validate({**LANGUAGE, "windows": "packed", "model": model})


@pytest.mark.parametrize(
    "score", ["cosine", "dot", "gaussian", "scaled-dot", {"name": "soft-capped", "score": "dot"}]
)
@pytest.mark.parametrize("positions", ["rotary", "alibi"])
def test_scores_of_rotated_vectors_can_be_packed(score: Any, positions: str) -> None:
    model = {"positions": positions, "attention": {"score": score}}
    LanguageRecipe.model_validate({**LANGUAGE, "windows": "packed", "model": model})


def test_other_language_models_say_that_they_cannot_read_packed_rows() -> None:
    recipe = LanguageRecipe.model_validate(
        {**LANGUAGE, "model": {"kind": "recurrent-language-model", "hidden_size": 8}}
    )
    model = build_language_model(recipe.model, 20)
    with pytest.raises(UserError, match="with windows = 'packed', the model and its teacher"):
        model.packed_states(torch.tensor([[3, 4]]), torch.tensor([[1, 1]]))


ENCODERS: dict[str, dict[str, Any]] = {
    "bert": {},
    "albert": {"embedding_size": 6, "shared_layers": True},
    "without segments": {"segments": 0, "pooler": "none"},
    "sinusoidal": {"positions": "sinusoidal"},
    "rotary": {"positions": "rotary", "attention": {"normalizer": "entmax15"}},
    "t5, additive": {"positions": "t5", "attention": {"score": "additive"}},
    "transformer-xl": {"positions": "transformer-xl"},
    "shaw, windows": {
        "positions": "shaw",
        "attention": {"mask": {"name": "window", "before": 3, "after": 1}},
    },
}
ROW = 24


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> tuple[PackedTexts, SentencePairs, int]:
    """Short documents, packed and one in each row, and the size of their vocabulary."""
    draw = np.random.default_rng(1)
    documents = [
        [
            " ".join(f"w{word}" for word in draw.integers(0, 30, draw.integers(1, 8)))
            for _ in range(draw.integers(1, 3))
        ]
        for _ in range(60)
    ]
    vocabulary = words_of(documents)
    folder = tmp_path_factory.mktemp("texts") / "it"
    write_documents(documents, vocabulary, folder, longest=ROW - 2)
    given: dict[str, Any] = {"max_tokens": ROW, "batch_tokens": 4 * ROW, "next_sentence": False}
    corpus = EncodedDocuments.open(folder)
    packed, alone = (kind(corpus, vocabulary, **given) for kind in (PackedTexts, SentencePairs))
    assert isinstance(packed, PackedTexts)
    return packed, alone, vocabulary.size


def encoder_task(settings: dict[str, Any], vocabulary: int, source: SentencePairs) -> MaskedTask:
    """A small model in float64 whose tokens attend to others with different weights."""
    sizes = {"layers": 2, "hidden_size": 8, "ffn_size": 12, "heads": 2, "max_length": ROW}
    off = {"dropout": 0.0, "attention_dropout": 0.0}
    given = BertSettings.model_validate({**sizes, **off, **settings})
    given.check_packing()
    torch.manual_seed(1)
    bert = Bert(given, vocabulary)
    model = HeadedEncoder(bert, {"masked": MaskedHead(bert)}).double()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return MaskedTask(model, source, None, device=torch.device("cpu"))


def one_by_one(batch: MaskedBatch) -> list[MaskedBatch]:
    """Each row of a batch alone, without padding."""
    found = []
    for row, (tokens, length, segments) in enumerate(zip(*batch.sequences, strict=True)):
        own = batch.places[:, 0] == row
        places = torch.stack([torch.zeros_like(batch.labels[own]), batch.places[own, 1]], 1)
        sequences = Sequences(tokens[None, :length], length[None], segments[None, :length])
        found.append(MaskedBatch(sequences, places, batch.labels[own], None, 1))
    return found


@pytest.mark.parametrize("settings", ENCODERS.values(), ids=ENCODERS.keys())
def test_masked_tokens_of_packed_texts_are_predicted_as_in_each_text_alone(
    texts: tuple[PackedTexts, SentencePairs, int], settings: dict[str, Any]
) -> None:
    source, separate, vocabulary = texts
    task = encoder_task(settings, vocabulary, source)
    _, (rows, key) = next(source.order(Position(1)))
    packed, batch = source._batch(rows, key), separate._batch(rows, key)
    assert packed.documents is not None
    assert packed.weight == packed.documents.max() > 2 * len(packed.sequences.tokens)
    parameters = list(task.model.parameters())

    logits = task.predict(task.model, packed).logits
    loss = task.loss(packed).total
    found = torch.autograd.grad(loss, parameters, allow_unused=True)
    apart = [task.predict(task.model, one).logits for one in one_by_one(batch)]
    close = {"rtol": 1e-9, "atol": 1e-9}
    torch.testing.assert_close(logits, torch.cat(apart), **close)
    sums = torch.nn.functional.cross_entropy(torch.cat(apart), batch.labels, reduction="sum")
    total = sums * batch.weight / len(batch.labels)
    torch.testing.assert_close(loss, total, **close)
    torch.testing.assert_close(task.loss(batch).total, total, **close)
    expected = torch.autograd.grad(total, parameters, allow_unused=True)
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            torch.testing.assert_close(ours, theirs, **close)

    joined = task.predict(task.model, replace(packed, documents=None)).logits
    assert not torch.allclose(joined, logits, atol=1e-3)


def test_an_epoch_of_packed_rows_has_the_texts_of_an_epoch_of_separate_rows(
    texts: tuple[PackedTexts, SentencePairs, int],
) -> None:
    source, separate, _ = texts
    expected = Counter(
        tuple(row[:length].tolist())
        for _, batch in epoch_of(separate)
        for row, length in zip(restored(batch), batch.sequences.lengths.tolist(), strict=True)
    )
    found: Counter[tuple[int, ...]] = Counter()
    batches = list(epoch_of(source))
    for _, batch in batches:
        assert batch.documents is not None
        tokens, lengths, _ = batch.sequences
        assert tokens.shape[1] <= ROW
        assert tokens.numel() <= 4 * ROW
        assert torch.equal(batch.documents > 0, torch.arange(tokens.shape[1]) < lengths[:, None])
        for number in range(1, batch.weight + 1):
            found[tuple(restored(batch)[batch.documents == number].tolist())] += 1
    assert found == expected
    assert sum(len(batch.sequences.tokens) for _, batch in batches) < 0.7 * sum(found.values())
    for place, (_, batch) in enumerate(islice(source.batches(batches[1][0]), 3), 2):
        assert torch.equal(batch.sequences.tokens, batches[place][1].sequences.tokens)


def test_a_run_of_packed_masked_texts_resumes_exactly(tmp_path: Path) -> None:
    write_data(tmp_path)
    training = {**LOOP, "schedule": "constant", "validate_every": 3}
    recipe = {**MASKED, "windows": "packed", "masking": {"next_sentence": False}}
    recipe["training"] = training
    assert train(recipe, tmp_path / "whole", data=tmp_path)
    first = {**recipe, "training": {**training, "max_steps": 3}}
    assert train(first, tmp_path / "parts", data=tmp_path)
    assert train(recipe, tmp_path / "parts", data=tmp_path)
    whole, parts = (
        open_checkpoint(tmp_path / name / "checkpoints" / "step-00000008").weights()
        for name in ("whole", "parts")
    )
    assert all(torch.equal(parts[name], tensor) for name, tensor in whole.items())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "is for rows without pairs; set masking.next_sentence"),
        ({"model": {"kind": "perceiver"}}, "'perceiver' reads a row as one text"),
        ({"model": {"attention": {"kind": "linear"}}}, "'linear' sums over all documents"),
    ],
)
def test_masked_texts_that_cannot_be_packed_are_refused(
    changes: dict[str, Any], message: str
) -> None:
    given = {**MASKED, "masking": {"next_sentence": not changes}, "windows": "packed", **changes}
    with pytest.raises(ValidationError, match=f"windows = 'packed'.*{message}"):
        MaskedRecipe.model_validate(given)
    with pytest.raises(UserError, match="the model and its teacher must be BERTs"):
        TextEncoder().packed_states(torch.tensor([[3, 4]]), torch.tensor([[1, 1]]))
