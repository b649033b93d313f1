"""The recurrent pointer-generator with coverage (See et al. 2017), and the extended vocabulary."""

from typing import Any

import pytest
import torch
from torch import Tensor

from heedful.attention import watch
from heedful.basics.symbols import PAD, UNKNOWN
from heedful.decoding import SearchOptions, search
from heedful.models.copy_mixture import CopyingModel, extension_of, listed
from heedful.models.pairs import PairModel, Source
from heedful.models.pointer_generator import (
    AttentiveNetwork,
    PointerGenerator,
    PointerGeneratorSettings,
)
from heedful.models.registry import build_model
from heedful.models.transformer import TransformerSettings

VOCABULARY = 20
SOURCE = Source(
    torch.tensor([[7, 20, 7, 22, 3], [5, 3, 0, 0, 0], [8, 21, 3, 0, 0]]), torch.tensor([5, 2, 3])
)
"""20, 21 and 22 extend the vocabulary."""
TARGET = torch.tensor([[2, 22, 7, 9], [2, 5, 5, 8], [2, 12, 21, 4]])
LABELS = torch.tensor([[22, 20, 9, 3], [5, 5, 3, 0], [12, 21, 3, 0]])


def model_of(**given: Any) -> AttentiveNetwork:
    torch.manual_seed(1)
    sizes = {"embedding_size": 5, "hidden_size": 7, "dropout": 0.0, "max_length": 32}
    settings = PointerGeneratorSettings.model_validate({**sizes, **given})
    model = build_model(settings, VOCABULARY, VOCABULARY)
    assert isinstance(model, AttentiveNetwork)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.3)  # biases are not zero
    return model


def copying_models() -> list[CopyingModel]:
    torch.manual_seed(1)
    transformer = TransformerSettings.model_validate(
        {"layers": 1, "hidden_size": 8, "ffn_size": 8, "heads": 2, "max_length": 32,
         "copy_source": True, "dropout": 0.0}
    )  # fmt: skip
    made = [
        model_of(),
        model_of(coverage=True, tied_embeddings="all"),
        build_model(transformer, VOCABULARY, VOCABULARY),
    ]
    assert all(isinstance(one, CopyingModel) for one in made)
    return [one for one in made if isinstance(one, CopyingModel)]


NAMES = ("plain", "coverage", "transformer")


def lstm(gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    i, f, g, o = gates.chunk(4)
    cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(cell), cell


def encoded(model: AttentiveNetwork, vectors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The states of both directions, and the last state and cell of each."""
    network, width = model.encoder.network, model.settings.hidden_size
    ends, rows = [], []
    for suffix, order in (("", range(len(vectors))), ("_reverse", range(len(vectors))[::-1])):
        hidden = cell = vectors.new_zeros(width)
        found: dict[int, Tensor] = {}
        for place in order:
            gates = (
                getattr(network, f"weight_ih_l0{suffix}") @ vectors[place]
                + getattr(network, f"bias_ih_l0{suffix}")
                + getattr(network, f"weight_hh_l0{suffix}") @ hidden
                + getattr(network, f"bias_hh_l0{suffix}")
            )
            hidden, cell = lstm(gates, cell)
            found[place] = hidden
        rows.append(torch.stack([found[place] for place in range(len(vectors))]))
        ends.append((hidden, cell))
    last = [torch.cat([ends[0][part], ends[1][part]]) for part in (0, 1)]
    return torch.cat(rows, 1), *last


def by_loops(model: AttentiveNetwork, source: list[int], target: list[int], size: int) -> Tensor:
    """Equations 1 to 11 of the paper, for one example without padding: ``log P [T, size]``."""
    known = torch.tensor([token if token < VOCABULARY else UNKNOWN for token in source])
    annotations, hidden, cell = encoded(model, model.source_embedding.weight[known])
    hidden, cell = (
        torch.tanh(part.weight @ value + part.bias)
        for part, value in zip(model.bridge.projections, (hidden, cell), strict=True)
    )
    score, rows = model.attention.score, []
    covered = annotations.new_zeros(len(source))
    network = model.decoder.network
    for token in target:
        x = model.target_embedding.weight[token if token < VOCABULARY else UNKNOWN]
        gates = (
            network.weight_ih_l0 @ x
            + network.bias_ih_l0
            + network.weight_hh_l0 @ hidden
            + network.bias_hh_l0
        )
        hidden, cell = lstm(gates, cell)
        scores = []
        for place, h in enumerate(annotations):
            inner = score.key_projection.weight @ h + score.key_projection.bias
            inner = inner + score.query_projection.weight @ hidden
            if model.settings.coverage:
                inner = inner + score.w_c * covered[place]
            scores.append(score.v @ torch.tanh(inner))
        e = torch.stack(scores).exp()
        a = e / e.sum()
        covered = covered + a
        context = sum(weight * h for weight, h in zip(a, annotations, strict=True))
        readout = model.combine.weight @ torch.cat([hidden, context]) + model.combine.bias
        logits = (model.output_table @ readout + model.bias).exp()
        chances = logits / logits.sum()
        if isinstance(model, PointerGenerator):
            p = torch.sigmoid(model.gate @ torch.cat([context, hidden, x]) + model.gate_bias)
            found = []
            for word in range(size):
                copied = sum((a[i] for i, one in enumerate(source) if one == word), a.new_zeros(()))
                own = chances[word] if word < VOCABULARY else 0.0
                found.append(p[0] * own + (1 - p[0]) * copied)
            chances = torch.stack(found)
        rows.append(chances)
    return torch.stack(rows)


@pytest.mark.parametrize("copy_source", [True, False])
@pytest.mark.parametrize("coverage", [True, False])
@pytest.mark.parametrize("tied", ["all", "inputs", "none"])
def test_probabilities_are_the_papers_with_their_gradients(
    copy_source: bool, coverage: bool, tied: str
) -> None:
    model = model_of(copy_source=copy_source, coverage=coverage, tied_embeddings=tied).double()
    size = VOCABULARY + 3 if copy_source else VOCABULARY
    source = SOURCE if copy_source else SOURCE._replace(tokens=listed(SOURCE.tokens, VOCABULARY))
    ours = model.teacher_force(source, TARGET).softmax(-1)
    theirs = torch.stack(
        [
            by_loops(model, tokens[:length], target, size)
            for tokens, length, target in zip(
                source.tokens.tolist(), source.lengths.tolist(), TARGET.tolist(), strict=True
            )
        ]
    )
    torch.testing.assert_close(ours, theirs, atol=1e-10, rtol=1e-9)
    by = torch.randn_like(theirs)
    parameters = [one for one in model.parameters() if one.requires_grad]
    wanted = torch.autograd.grad(theirs, parameters, by, allow_unused=True)
    for found, other in zip(
        torch.autograd.grad(ours, parameters, by, allow_unused=True), wanted, strict=True
    ):
        assert (found is None) == (other is None)
        if found is not None:
            torch.testing.assert_close(found, other, atol=1e-10, rtol=1e-8)


@pytest.mark.parametrize("number", range(3), ids=NAMES)
def test_losses_are_those_of_the_probabilities(number: int) -> None:
    model = copying_models()[number].double()
    real = LABELS != PAD
    logs = model.teacher_force(SOURCE, TARGET)[real]
    exact = -logs.gather(1, LABELS[real].unsqueeze(1)).squeeze(1)
    # Smoothing is spread over the vocabulary without its extension.
    smooth = (0.9 * exact - 0.1 * logs[:, :VOCABULARY].mean(1)).sum()
    total, each = model.losses(SOURCE, TARGET, LABELS, real, 0.1)
    torch.testing.assert_close(total, smooth)
    torch.testing.assert_close(each, exact.detach())
    parameters = list(model.parameters())
    wanted = torch.autograd.grad(smooth, parameters, allow_unused=True)
    found = torch.autograd.grad(total, parameters, allow_unused=True)
    for one, other in zip(found, wanted, strict=True):
        if other is not None:
            torch.testing.assert_close(one, other)
            assert one.isfinite().all()


@pytest.mark.parametrize("number", range(3), ids=NAMES)
def test_the_coverage_loss_is_equation_12(number: int) -> None:
    model = copying_models()[number].double()
    real = LABELS != PAD
    found = model.covered_losses(SOURCE, TARGET, LABELS, real, 0.0)
    _, copied = model.read(SOURCE, TARGET)
    wanted = 0.0
    for weights, counts in zip(copied.weights.tolist(), real.tolist(), strict=True):
        covered = [0.0] * len(weights[0])
        for row, counted in zip(weights, counts, strict=True):
            wanted += counted * sum(map(min, row, covered))
            covered = [c + a for c, a in zip(covered, row, strict=True)]
    assert float(found.coverage.detach()) == pytest.approx(wanted, abs=1e-12)
    plain = model.losses(SOURCE, TARGET, LABELS, real, 0.0)
    torch.testing.assert_close((found.total, found.exact), plain)
    [gradient] = torch.autograd.grad(found.coverage, [model.target_embedding.weight])
    assert gradient.abs().sum() > 0


def test_the_network_without_pointer_has_the_same_coverage_loss() -> None:
    model = model_of(copy_source=False, coverage=True).double()
    source = SOURCE._replace(tokens=listed(SOURCE.tokens, VOCABULARY))
    labels = listed(LABELS, VOCABULARY)
    found = model.covered_losses(source, TARGET, labels, labels != PAD, 0.1)
    wanted = PairModel.losses(model, source, TARGET, labels, labels != PAD, 0.1)
    torch.testing.assert_close((found.total, found.exact), wanted)
    assert 0 < float(found.coverage.detach()) < int((labels != PAD).sum())


@pytest.mark.parametrize("number", range(3), ids=NAMES)
@torch.no_grad()
def test_steps_are_teacher_forcing(number: int) -> None:
    model = copying_models()[number].double().eval()
    state, steps, wanted = model.start(SOURCE), [], model.teacher_force(SOURCE, TARGET)
    rows = torch.tensor([2, 0, 1, 1])
    for place, tokens in enumerate(TARGET.T):
        if place == 2:  # the rows in another order, one of them twice
            state, steps, wanted = state.select(rows), [one[rows] for one in steps], wanted[rows]
        logits, state = model.step(tokens[rows] if place >= 2 else tokens, state)
        steps.append(logits)
    torch.testing.assert_close(torch.stack(steps, 1).exp(), wanted.exp())


@pytest.mark.parametrize("number", range(3), ids=NAMES)
@torch.no_grad()
def test_a_source_alone_has_the_same_probabilities(number: int) -> None:
    model = copying_models()[number].double().eval()
    together = model.teacher_force(SOURCE, TARGET)
    for row, length in enumerate(SOURCE.lengths.tolist()):
        tokens = SOURCE.tokens[row : row + 1, :length]
        alone = model.teacher_force(Source(tokens, torch.tensor([length])), TARGET[row : row + 1])
        width = VOCABULARY + extension_of(tokens, VOCABULARY)
        assert alone.shape[2] == width
        torch.testing.assert_close(alone[0], together[row, :, :width])


@pytest.mark.parametrize("number", range(3), ids=NAMES)
@torch.no_grad()
def test_search_writes_words_that_are_not_in_the_vocabulary(number: int) -> None:
    model = copying_models()[number].eval()
    bias = model.get_parameter("gate_bias")
    bias.fill_(-40.0)  # copies only
    for beam in (1, 3):
        found = search(
            model, SOURCE, rows=3, options=SearchOptions(beam=beam), max_lengths=torch.full((3,), 5)
        )
        for row, [best, *_] in enumerate(found):
            assert set(best.tokens) <= set(SOURCE.tokens[row].tolist())
    tokens = torch.tensor([[23, 23, 23, 3]])
    [[best, *_]] = search(
        model,
        Source(tokens, torch.tensor([4])),
        rows=1,
        options=SearchOptions(beam=2, forced_length=3),
        max_lengths=torch.tensor([5]),
    )
    assert 23 in best.tokens


@torch.no_grad()
def test_watchers_see_the_weights_that_copy() -> None:
    model = copying_models()[1].eval()
    with watch(model) as seen:
        _, copied = model.read(SOURCE, TARGET)
    [weights] = seen["attention"]
    torch.testing.assert_close(weights.squeeze(1), copied.weights)
    torch.testing.assert_close(copied.weights.sum(-1), torch.ones(3, 4))
    assert not copied.weights[1, :, 2:].any()


def test_what_does_not_fit_is_refused() -> None:
    for given in ({}, {"tied_embeddings": "all", "copy_source": False}):
        settings = PointerGeneratorSettings.model_validate(given)
        assert settings.needs_one_vocabulary
        with pytest.raises(ValueError, match="one vocabulary for both sides"):
            build_model(settings, 20, 21)
    free = {"copy_source": False, "tied_embeddings": "none"}
    settings = PointerGeneratorSettings.model_validate({**free, "hidden_size": 8})
    assert not settings.needs_one_vocabulary
    assert isinstance(build_model(settings, 20, 21), AttentiveNetwork)
