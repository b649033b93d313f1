"""Multiplicative LSTM, HyperLSTM and switched matrices against the equations of their papers.

The equations are written as loops.
"""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from pydantic import ValidationError
from torch import Tensor, nn

from heedful.layers.multiplicative import (
    HyperLayer,
    HyperSizes,
    MultiplicativeStack,
    switched_embedding,
)
from heedful.models import LanguageSettings, build_language_model

INPUTS, WIDTH, SMALL, EMBEDDING = 3, 5, 4, 2
CELLS: dict[str, dict[str, Any]] = {
    "mlstm": {"cell": "mlstm"},
    "hyper-lstm": {"cell": "hyper-lstm", "hyper": HyperSizes(SMALL, EMBEDDING)},
    "hyper-lstm, not normalized": {
        "cell": "hyper-lstm", "hyper": HyperSizes(SMALL, EMBEDDING, layer_norm=False),
    },
}  # fmt: skip
cells = pytest.mark.parametrize("name", CELLS)


def made(name: str, layers: int = 1) -> MultiplicativeStack:
    torch.manual_seed(3)
    table = dict(CELLS[name])
    stack = MultiplicativeStack(table.pop("cell"), INPUTS, WIDTH, layers, dropout=0.0, **table)
    for parameter in stack.parameters():
        nn.init.normal_(parameter, std=0.8)
    return stack.double()


def inputs(rows: int = 2, steps: int = 6) -> Tensor:
    return torch.randn(rows, steps, INPUTS, dtype=torch.double)


def sigmoid(x: Tensor) -> Tensor:
    return 1 / (1 + (-x).exp())


def multiplicative(layer: Any, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """Krause et al. 2017, section 3, one gate at a time."""
    m = (layer.factor_input.weight @ x) * (layer.factor_state.weight @ h)
    gates = []
    for place in range(4):
        own = slice(place * WIDTH, (place + 1) * WIDTH)
        from_input = layer.from_input.weight[own] @ x + layer.from_input.bias[own]
        gates.append(from_input + layer.from_factor.weight[own] @ m)
    i, f, g, o = gates
    c = sigmoid(f) * c + sigmoid(i) * g.tanh()
    return sigmoid(o) * c.tanh(), c


def normed(layer: HyperLayer, place: int, x: Tensor) -> Tensor:
    if not len(layer.norms):
        return x
    norm: Any = layer.norms[place]
    centred = x - x.mean()
    return centred / ((centred**2).mean() + norm.eps).sqrt() * norm.weight + norm.bias


def hyper(layer: Any, x: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
    """Ha et al. 2016, appendix A.2.2, one gate and one component at a time."""
    h, c, small_h, small_c = state
    read = layer.small_input.weight @ x + layer.small_input.bias
    read = read + layer.small_state.weight @ torch.cat([h, small_h])
    i, f, g, o = read.split(SMALL)
    small_c = sigmoid(f) * small_c + sigmoid(i) * g.tanh()
    small_h = sigmoid(o) * small_c.tanh()
    z = layer.embed.weight @ small_h + layer.embed.bias
    gates = []
    for gate in range(4):
        own = slice(gate * WIDTH, (gate + 1) * WIDTH)
        scales = []
        for kind in range(3):
            first = (kind * 4 + gate) * EMBEDDING
            vector = z[first : first + EMBEDDING]
            scales.append(vector @ layer.scale[kind, gate])
        by_state = scales[0] * (layer.from_state.weight[own] @ h)
        by_input = scales[1] * (layer.from_input.weight[own] @ x)
        total = by_state + by_input + scales[2] + layer.bias[own]
        gates.append(normed(layer, gate, total))
    i, f, g, o = gates
    c = sigmoid(f) * c + sigmoid(i) * g.tanh()
    return sigmoid(o) * normed(layer, 4, c).tanh(), c, small_h, small_c


def by_equations(stack: MultiplicativeStack, name: str, given: Tensor) -> Tensor:
    step: Any = multiplicative if name == "mlstm" else hyper
    rows = []
    for sequence in given:
        layer: Any = stack.layers[0]
        state = tuple(given.new_zeros(width) for width in layer.widths)
        found = []
        for x in sequence:
            state = step(layer, x, *state)
            found.append(state[0])
        rows.append(torch.stack(found))
    return torch.stack(rows)


@cells
def test_outputs_and_gradients_are_those_of_the_equations(name: str) -> None:
    stack, given = made(name), inputs().requires_grad_()
    ours = stack(given, stack.fresh(given))[0]
    theirs = by_equations(stack, name, given)
    torch.testing.assert_close(ours, theirs)
    probe, leaves = torch.randn_like(ours), [given, *stack.parameters()]
    got, expected = (torch.autograd.grad((one * probe).sum(), leaves) for one in (ours, theirs))
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other)


@cells
def test_single_steps_are_the_whole_sequence(name: str) -> None:
    stack, given = made(name, layers=2), inputs()
    whole, last = stack(given, stack.fresh(given))
    state, steps = stack.fresh(given), []
    for x in given.split(1, 1):
        own, state = stack(x, state)
        steps.append(own)
    torch.testing.assert_close(torch.cat(steps, 1), whole)
    for one, other in zip(sum(last, ()), sum(state, ()), strict=True):
        torch.testing.assert_close(one, other)


def test_a_hyper_lstm_with_constant_scales_is_an_lstm() -> None:
    stack, given = made("hyper-lstm, not normalized"), inputs()
    layer: Any = stack.layers[0]
    with torch.no_grad():
        layer.embed.weight.zero_()
        layer.embed.bias.fill_(1)
        layer.scale[:2] = 1 / EMBEDDING
        layer.scale[2] = 0
    lstm = nn.LSTM(INPUTS, WIDTH, batch_first=True).double()
    with torch.no_grad():
        lstm.weight_ih_l0.copy_(layer.from_input.weight)
        lstm.weight_hh_l0.copy_(layer.from_state.weight)
        lstm.bias_ih_l0.copy_(layer.bias)
        lstm.bias_hh_l0.zero_()
    torch.testing.assert_close(stack(given, stack.fresh(given))[0], lstm(given)[0])


def test_new_scales_are_a_tenth() -> None:
    """Ha et al. 2016, appendix A.2.3."""
    layer = HyperLayer(INPUTS, WIDTH, HyperSizes(SMALL, EMBEDDING))
    z = layer.embed(torch.randn(7, SMALL)).view(7, 3, 4, EMBEDDING)
    scales = torch.einsum("bkgz,kgzh->bkgh", z, layer.scale)
    torch.testing.assert_close(scales[:, :2], torch.full((7, 2, 4, WIDTH), 0.1))
    torch.testing.assert_close(scales[:, 2], torch.zeros(7, 4, WIDTH))


def test_symbols_switch_matrices() -> None:
    """Foerster et al. 2017, equation 1, one symbol at a time; outputs and gradients."""
    torch.manual_seed(2)
    table = switched_embedding(7, WIDTH).double()
    matrices = table.weight.detach()[:, : WIDTH**2].view(7, WIDTH, WIDTH)
    identity = torch.eye(WIDTH).double().expand(7, -1, -1)
    torch.testing.assert_close(matrices @ matrices.mT, identity, rtol=0, atol=1e-5)
    stack = MultiplicativeStack("switched", WIDTH * (WIDTH + 1), WIDTH, 1, dropout=0.0)
    tokens = torch.tensor([[3, 1, 6, 3, 0], [2, 2, 5, 4, 1]])
    given = table(tokens)
    ours = stack(given, stack.fresh(given))[0]
    rows = []
    for sequence in tokens:
        h = torch.zeros(WIDTH).double()
        found = []
        for token in sequence:
            own = table.weight[token]
            h = own[: WIDTH**2].view(WIDTH, WIDTH) @ h + own[WIDTH**2 :]
            found.append(h)
        rows.append(torch.stack(found))
    theirs = torch.stack(rows)
    torch.testing.assert_close(ours, theirs)
    probe = torch.randn_like(ours)
    got, expected = (
        torch.autograd.grad((one * probe).sum(), table.weight) for one in (ours, theirs)
    )
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ({"layers": 2, "tied_embeddings": False}, "set layers = 1"),
        ({"layers": 1}, "set tied_embeddings = false"),
        ({"layers": 1, "embedding_size": 8, "tied_embeddings": False}, "remove embedding_size"),
    ],
)
def test_settings_that_a_switched_cell_refuses(own: dict[str, Any], said: str) -> None:
    table = {"kind": "recurrent-language-model", "cell": "switched", "hidden_size": 8, **own}
    with pytest.raises(ValidationError, match=said):
        LanguageSettings.model_validate(table)


@pytest.mark.parametrize("cell", ["mlstm", "hyper-lstm", "switched"])
def test_a_language_model_learns_with_these_cells(cell: str) -> None:
    torch.manual_seed(1)
    layers = 1 if cell == "switched" else 2
    table = {
        "kind": "recurrent-language-model", "cell": cell, "layers": layers, "hidden_size": 24,
        "hyper_size": 8, "hyper_embedding_size": 4, "dropout": 0.0,
        "tied_embeddings": cell != "switched",
    }  # fmt: skip
    model: Any = build_language_model(LanguageSettings.model_validate(table), 12)
    tokens = torch.tensor([[3, 5, 4, 7, 6, 9, 8, 3, 5, 4, 7, 6, 9]])
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for _ in range(60):
        logits = model.logits(model.states(tokens[:, :-1]))
        loss = F.cross_entropy(logits.transpose(1, 2), tokens[:, 1:])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[0] > 0.8 * math.log(12)
    assert losses[-1] < 0.2
    state = model.start(tokens[:, :4])
    logits, state = model.step(tokens[:, 3], state)
    torch.testing.assert_close(logits, model.logits(model.states(tokens[:, :4]))[:, -1])
    two = state.select(torch.tensor([0, 0])).detach()
    assert all(len(part) == 2 for layer in two.hidden for part in layer)
    depths = {name: model.depth(name) for name, _ in model.named_parameters()}
    assert {depth for name, depth in depths.items() if name.startswith("recurrent")} == {
        *range(1, layers + 1)
    } - ({1} if cell == "switched" else set())
