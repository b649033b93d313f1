"""Learning a batch in parts, one for each thread: the same gradients, exactly repeatable."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tests.test_batching import encoded
from torch import Tensor, nn

from heedful.data.batching import TokenBatches, even_rows
from heedful.data.positions import Position
from heedful.data.streams import WindowBatch
from heedful.decoding import SearchOptions
from heedful.models import build_model
from heedful.models.encoders import Sequences
from heedful.models.recurrent_settings import RecurrentSettings
from heedful.models.transformer import TransformerSettings
from heedful.runs.checkpoints import model_tensors
from heedful.tasks.pairs.recipe import TrainingSettings
from heedful.tasks.texts.rows import RowBatch
from heedful.tasks.translation.training import TranslationTask
from heedful.training.loop import Loop
from heedful.training.protocol import Loss, TaskDefaults
from heedful.training.report import Report
from heedful.training.strategies import BatchLoss
from heedful.training.threads import Threads

SMALL = {"layers": 1, "hidden_size": 16, "ffn_size": 32, "heads": 2}
TRANSFORMER = TransformerSettings.model_validate({**SMALL, "dropout": 0.2, "max_length": 64})
DROPPING_WEIGHTS = TRANSFORMER.model_copy(update={"attention_dropout": 0.2})
RECURRENT = RecurrentSettings(embedding_size=16, hidden_size=16, dropout=0.2, max_length=64)


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def task(folder: Path, settings: Any, batch_tokens: int = 2500) -> TranslationTask:
    torch.manual_seed(3)
    lengths = np.random.default_rng(1).integers(2, 20, (400, 2))
    corpus = encoded(folder / "corpus", lengths)
    return TranslationTask(
        build_model(settings, 2000, 2000),
        TokenBatches(corpus, batch_tokens),
        [],
        None,  # type: ignore[arg-type]  # nothing is validated
        options=SearchOptions(),
        device=torch.device("cpu"),
        label_smoothing=0.1,
        precision="float32",
        tokenise="13a",
        validation_pairs=1,
        samples=0,
    )


def threads_of(one: Any) -> Threads:
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    return Threads(one, list(one.model.parameters()), torch.device("cpu"), scaler)


def learn(threads: Threads, batch: Any, weight: float) -> list[BatchLoss]:
    return threads.forward_backward(batch, weight, last=True)


def gradients(model: nn.Module) -> list[Tensor]:
    found = [parameter.grad for parameter in model.parameters()]
    model.zero_grad()
    assert all(gradient is not None for gradient in found)
    return [gradient for gradient in found if gradient is not None]


class TwoBiases(TaskDefaults):
    """Two parameters that are added, for which ``torch.autograd.grad`` returns the same tensor."""

    def __init__(self) -> None:
        self.model = nn.ParameterDict({name: torch.zeros(3) for name in ("one", "other")})

    def split(self, batch: Any, count: int, fewest: int = 0) -> list[Any]:
        return [SimpleNamespace(rows=rows, weight=len(rows)) for rows in batch.rows.chunk(count)]

    def loss(self, batch: Any) -> Loss:
        total = (batch.rows + (self.model["one"] + self.model["other"])).square().sum()
        return Loss(total, {"loss": total.detach()})


def test_parameters_that_are_added_have_gradients_of_their_own() -> None:
    one: Any = TwoBiases()
    batch = SimpleNamespace(rows=torch.arange(12.0).view(4, 3), weight=4)
    learn(threads_of(one), batch, 4)
    assert torch.equal(one.model["one"].grad, one.model["other"].grad)
    assert torch.equal(one.model["one"].grad, 2 * batch.rows.sum(0) / 4)


@pytest.mark.parametrize("settings", [TRANSFORMER, RECURRENT], ids=["transformer", "recurrent"])
def test_gradients_and_losses_are_those_of_the_whole_batch(tmp_path: Path, settings: Any) -> None:
    one = task(tmp_path, settings.model_copy(update={"dropout": 0.0}))
    _, batch = next(one.batches(Position(1)))
    whole = one.loss(batch)
    torch.autograd.backward(whole.total / batch.weight)
    expected = gradients(one.model)
    threads = threads_of(one)
    learnt = learn(threads, batch, batch.weight)
    assert len(learnt) == 2
    assert sum(part.weight for part in learnt) == batch.weight
    total = sum(part.loss.total.item() for part in learnt)
    assert total == pytest.approx(whole.total.item(), rel=1e-5)
    for ours, theirs in zip(gradients(one.model), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


def test_gradients_are_added_to_those_that_are_there(tmp_path: Path) -> None:
    one = task(tmp_path, TRANSFORMER.model_copy(update={"dropout": 0.0}))
    threads = threads_of(one)
    (_, first), (_, second) = islice(one.batches(Position(1)), 2)
    for batch in (first, second):
        torch.autograd.backward(one.loss(batch).total / 1000)
    expected = gradients(one.model)
    for batch in (first, second):
        learn(threads, batch, 1000)
    for ours, theirs in zip(gradients(one.model), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("settings", [TRANSFORMER, RECURRENT], ids=["transformer", "recurrent"])
def test_dropout_is_drawn_anew_and_the_same_for_the_same_seed(
    tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = task(tmp_path, settings)
    _, batch = next(one.batches(Position(1)))
    threads = threads_of(one)
    found = []
    for seed in (5, 5, 6):
        torch.manual_seed(seed)
        learn(threads, batch, batch.weight)
        found.append(gradients(one.model))
    assert all(map(torch.equal, found[0], found[1]))
    assert not any(map(torch.equal, found[0][:1], found[2][:1]))
    # Two parts of one batch do not drop the same places.
    half = threads.parts(batch)[0]
    monkeypatch.setattr(one, "split", lambda *_: [half, half])
    torch.manual_seed(5)
    first, second = (part.loss.total for part in learn(threads, batch, 1))
    assert first.item() != second.item()


def trained(folder: Path, one: TranslationTask, steps: int) -> dict[str, Tensor]:
    settings = TrainingSettings(max_steps=steps, validate_every=100, warmup_steps=2, log_every=2)
    with Report(steps) as report:
        loop = Loop(
            one,
            settings,
            folder,
            seed=1,
            device=torch.device("cpu"),
            precision="float32",
            report=report,
        )
        assert loop.run()
    assert isinstance(loop.strategy, Threads)
    assert loop.strategy._possible  # batches were learnt in parts
    return model_tensors(one.model)


def test_a_run_that_went_on_ends_with_the_very_weights(tmp_path: Path) -> None:
    results = []
    for name, stops in {"whole": [6], "again": [6], "in two": [3, 6]}.items():
        torch.manual_seed(7)
        for stop in stops:
            (tmp_path / name / str(stop)).mkdir(parents=True)
            one = task(tmp_path / name / str(stop), TRANSFORMER)
            weights = trained(tmp_path / name, one, stop)
        results.append(weights)
    for other in results[1:]:
        assert all(torch.equal(results[0][key], other[key]) for key in results[0])


def test_what_draws_from_the_common_generator_is_learnt_whole(tmp_path: Path) -> None:
    one = task(tmp_path, DROPPING_WEIGHTS)
    one.model.train()
    _, batch = next(one.batches(Position(1)))
    before = torch.get_rng_state()
    assert threads_of(one).parts(batch) == [batch]
    assert torch.equal(torch.get_rng_state(), before)


def test_few_tokens_and_one_thread_are_learnt_whole(tmp_path: Path) -> None:
    one = task(tmp_path, TRANSFORMER, batch_tokens=400)
    _, batch = next(one.batches(Position(1)))
    assert threads_of(one).parts(batch) == [batch]
    (tmp_path / "more").mkdir()
    one = task(tmp_path / "more", TRANSFORMER)
    _, batch = next(one.batches(Position(1)))
    assert len(threads_of(one).parts(batch)) == 2
    torch.set_num_threads(1)
    assert threads_of(one).parts(batch) == [batch]


def test_divided_batches_hold_every_row_once_and_no_more_padding(tmp_path: Path) -> None:
    one = task(tmp_path, TRANSFORMER)
    _, batch = next(one.batches(Position(1)))
    parts = batch.split(2)
    assert len(parts) == 2
    tokens = [int((part.source_lengths + part.target_lengths).sum()) for part in parts]
    assert max(tokens) - min(tokens) < 2 * 40  # no row has more
    first = 0
    for part in parts:
        rows = slice(first, first + len(part.source))
        first = rows.stop
        for name in ("source", "target_in", "target_out"):
            whole, some = getattr(batch, name)[rows], getattr(part, name)
            assert torch.equal(whole[:, : some.shape[1]], some)
            assert not whole[:, some.shape[1] :].any()
        assert part.source.shape[1] == int(part.source_lengths.max())
        assert part.target_in.shape[1] == int(part.target_lengths.max())
    assert first == len(batch.source)
    assert sum(part.weight for part in parts) == batch.weight


def test_windows_and_labelled_rows_are_divided_too() -> None:
    tokens = torch.arange(80 * 64).view(80, 64) + 5
    targets = tokens + 1
    targets[-1, 10:] = 0
    windows = WindowBatch(tokens, targets, int((targets != 0).sum()))
    parts = windows.split(2)
    assert torch.equal(torch.cat([part.tokens for part in parts]), tokens)
    assert torch.equal(torch.cat([part.targets for part in parts]), targets)
    assert [part.weight for part in parts] == [int((part.targets != 0).sum()) for part in parts]
    lengths = torch.arange(25, 65).repeat_interleave(2)
    labels = (tokens % 3) * (torch.arange(64) < lengths[:, None])
    rows = RowBatch(Sequences(tokens, lengths, tokens % 2), labels, int((labels > 0).sum()))
    first, second = rows.split(2)
    assert first.rows.tokens.shape[1] == int(first.rows.lengths.max()) < 64
    assert first.weight + second.weight == rows.weight
    assert torch.equal(second.rows.tokens, tokens[len(first.labels) :])
    classes = RowBatch(rows.rows, labels[:, 0], 80)
    assert [part.weight for part in classes.split(2)] == [len(first.labels), len(second.labels)]


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_runs_of_rows_are_whole_and_none_is_empty(count: int) -> None:
    for tokens in ([5], [1, 1, 98], [98, 1, 1], [7] * 30):
        runs = even_rows(torch.tensor(tokens), count, fewest=1)
        places = [place for run in runs for place in range(run.start, run.stop)]
        assert places == list(range(len(tokens)))
        assert len(runs) <= count
        assert all(run.stop > run.start for run in runs)
