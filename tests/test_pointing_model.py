"""Outputs that point at the source (Vinyals et al. 2015): equation 3, search, training, sorting."""

import importlib
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import heedful
from heedful.attention import watch
from heedful.basics.errors import UserError
from heedful.basics.symbols import BEGIN, END, PAD
from heedful.decoding import SearchOptions, search
from heedful.inference.fusing import searched
from heedful.interop.layouts.encoder_decoder import refuse_parts
from heedful.layers.int8_linear import Int8Linear
from heedful.layers.search_copy import search_copy
from heedful.models.pairs import Source
from heedful.models.pointing import PointingTransformer
from heedful.models.registry import build_model
from heedful.models.transformer import TransformerSettings
from heedful.runs.recipe import check_recipe, find_recipe, read_recipe
from stepping import assert_steps_are_teacher_forcing

SIZES = {"layers": 2, "hidden_size": 8, "ffn_size": 8, "heads": 2, "max_length": 32}
SOURCE = Source(torch.tensor([[7, 9, 7, 3], [5, 3, 0, 0], [8, 11, 3, 0]]), torch.tensor([4, 2, 3]))
TARGET = torch.tensor([[2, 9, 7], [2, 5, 5], [2, 11, 8]])
LABELS = torch.tensor([[9, 7, 3], [5, 5, 3], [11, 3, 0]])


def model_of(**given: Any) -> PointingTransformer:
    torch.manual_seed(1)
    settings = TransformerSettings.model_validate({**SIZES, "copy_source": "only", **given})
    model = build_model(settings, 20, 20)
    assert type(model) is PointingTransformer
    return model


def by_loops(model: PointingTransformer) -> list[list[dict[int, Tensor]]]:
    """P of each token of the source, for each state: equation 3, one number at a time."""
    encoded, mask = model.read_source(SOURCE)
    states = model.decode(encoded, mask, TARGET)
    score = model.pointing.score
    W1, W2 = score.key_projection.weight, score.query_projection.weight
    found = []
    for row, length in enumerate(SOURCE.lengths.tolist()):
        of_row = []
        for d in states[row]:
            u = [score.v @ torch.tanh(W1 @ e + W2 @ d) for e in encoded[row, :length]]
            total = sum(value.exp() for value in u)
            chances: dict[int, Tensor] = {}
            for value, token in zip(u, SOURCE.tokens[row].tolist(), strict=False):
                chances[token] = chances.get(token, torch.zeros(())) + value.exp() / total
            of_row.append(chances)
        found.append(of_row)
    return found


def test_probabilities_are_equation_3() -> None:
    model = model_of(dropout=0.0).double()
    logs = model.teacher_force(SOURCE, TARGET)
    for row, of_row in zip(logs, by_loops(model), strict=True):
        for own, chances in zip(row.exp(), of_row, strict=True):
            for token in range(20):
                expected = chances.get(token, torch.zeros((), dtype=torch.float64))
                torch.testing.assert_close(own[token], expected)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_losses_are_those_of_the_probabilities(smoothing: float) -> None:
    model = model_of(dropout=0.0).double()
    real = LABELS != PAD
    exact, smooth = [], torch.zeros((), dtype=torch.float64)
    for row, of_row in enumerate(by_loops(model)):
        for chances, label in zip(of_row, LABELS[row].tolist(), strict=True):
            if label != PAD:
                exact.append(-chances[label].log())
                spread = sum(-chance.log() for chance in chances.values()) / len(chances)
                smooth = smooth + (1 - smoothing) * exact[-1] + smoothing * spread
    total, each = model.losses(SOURCE, TARGET, LABELS, real, smoothing)
    torch.testing.assert_close(each, torch.stack(exact).detach())
    torch.testing.assert_close(total, smooth)
    parameters = list(model.parameters())
    own, wanted = (
        torch.autograd.grad(loss, parameters, allow_unused=True) for loss in (total, smooth)
    )
    for one, other in zip(own, wanted, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other)


def test_steps_are_teacher_forcing() -> None:
    model = model_of().eval()
    assert_steps_are_teacher_forcing(model, searched(model), SOURCE, TARGET)


@torch.no_grad()
@pytest.mark.parametrize("beam", [1, 4, 30])
def test_a_search_writes_tokens_of_the_source_only(beam: int) -> None:
    model = model_of().eval()
    options, lengths = SearchOptions(beam=beam, nbest=beam), torch.full((3,), 6)
    found = search(model, SOURCE, rows=3, options=options, max_lengths=lengths)
    for row, hypotheses in enumerate(found):
        for one in hypotheses:
            likely = one.score > -20  # a wide beam also holds what is practically impossible
            assert not likely or set(one.tokens) <= set(SOURCE.tokens[row].tolist())
        assert set(hypotheses[0].tokens) <= set(SOURCE.tokens[row].tolist())


def test_watchers_see_the_pointer() -> None:
    model = model_of().eval()
    with watch(model) as seen:
        logs = model.teacher_force(SOURCE, TARGET)
    weights = seen["pointing"][0]
    assert weights.shape == (3, 1, 3, 4)
    torch.testing.assert_close(weights[1, 0, :, 0], logs[1, :, 5].exp())
    assert not weights[1, :, :, 2:].any()
    assert model.attention_axes()["pointing"] == ("target", "source")
    assert model.alignment.module == "pointing"


@torch.no_grad()
def test_a_quantised_copy_points() -> None:
    model = model_of(hidden_size=32, ffn_size=32).eval()
    logs = search_copy(model, Int8Linear).teacher_force(SOURCE, TARGET)
    expected = model.teacher_force(SOURCE, TARGET).exp()
    torch.testing.assert_close(logs.exp(), expected, atol=0.05, rtol=0)


def test_what_cannot_point_is_refused() -> None:
    model = model_of()
    other = LABELS.masked_fill(LABELS == 5, 6)
    with pytest.raises(UserError, match="a target has another token"):
        model.losses(SOURCE, TARGET, other, other != PAD, 0.0)
    with pytest.raises(ValueError, match="no output matrix"):
        model_of(tied_embeddings="none")
    settings = TransformerSettings.model_validate(
        {**SIZES, "copy_source": "only", "tied_embeddings": "output"}
    )
    with pytest.raises(ValueError, match="one vocabulary for both sides"):
        build_model(settings, 20, 21)
    with pytest.raises(UserError, match=r"model\.copy_source = only: exports"):
        refuse_parts(settings)
    tables = {"data": {"train": ["a.tsv"], "max_tokens": 9}, "tokeniser": {"joint": False}}
    with pytest.raises(UserError, match=r"tokeniser\.joint"):
        check_recipe({**tables, "model": settings.model_dump()}, "the recipe")


def test_it_learns_to_sort() -> None:
    torch.manual_seed(3)
    model = model_of(layers=1, hidden_size=32, ffn_size=32, heads=4, dropout=0.0, pre_norm=True)
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)

    def batch(rows: int) -> tuple[Source, Tensor, Tensor]:
        numbers = torch.rand(rows, 15).argsort(1)[:, :5] + 4
        ends, begins = torch.full((rows, 1), END), torch.full((rows, 1), BEGIN)
        source = Source(torch.cat([numbers, ends], 1), torch.full((rows,), 6))
        ordered = numbers.sort(1).values
        return source, torch.cat([begins, ordered], 1), torch.cat([ordered, ends], 1)

    for _ in range(100):
        source, target_in, labels = batch(64)
        loss = model.losses(source, target_in, labels, labels != PAD, 0.0)[0] / labels.numel()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    model.eval()
    source, _, labels = batch(100)
    with torch.no_grad():
        options, lengths = SearchOptions(beam=1), torch.full((100,), 9)
        found = search(model, source, rows=100, options=options, max_lengths=lengths)
    right = [[*one[0].tokens] == row[:-1] for one, row in zip(found, labels.tolist(), strict=True)]
    assert sum(right) > 90


def test_the_recipe_sorts_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    sorting = importlib.import_module("sorting")
    files = ["--out", str(tmp_path / "data"), "--train", "600", "--held-out", "20"]
    assert sorting.main(files) == 0
    assert sorting.main(["--out", str(tmp_path / "no"), "--most", "1"]) == 1
    parts = {
        name: (tmp_path / "data" / f"{name}.tsv").read_text().splitlines()
        for name in ("train", "validation", "test", "long")
    }
    lines = [line for part in parts.values() for line in part]
    assert len(set(lines)) == len(lines) == 660
    for line in lines:
        numbers, ordered = (list(map(int, side.split())) for side in line.split("\t"))
        assert ordered == sorted(set(numbers))
    tables = read_recipe(find_recipe("sorting-pointer"))
    settings = {"max_steps": 4, "checkpoint_every": 2, "validate_every": 4, "device": "cpu",
                "precision": "float32", "threads": 1, "schedule": "constant"}  # fmt: skip
    whole = {**tables, "training": {**tables["training"], **settings}}
    half = {**tables, "training": {**whole["training"], "max_steps": 2, "validate_every": 2}}
    run = tmp_path / "run"
    heedful.train({**half}, run, data=tmp_path / "data")
    heedful.train(whole, run, data=tmp_path / "data")
    reader = heedful.load(run)
    inputs = [line.split("\t")[0] for line in parts["test"]]
    for one, output in zip(inputs, reader.predict(inputs), strict=True):
        assert set(output.text.split()) <= set(one.split())
    counts = [len(reader.tokenisers.source.encode(one)) for one in inputs]
    assert counts == [len(one.split()) for one in inputs]  # each number is one token
