"""Operations that are counted, against formulas worked out by hand."""

import pytest
import torch
from torch import Tensor, nn

from heedful.attention import attend
from heedful.layers.recurrent import RecurrentEncoder, RecurrentStack
from heedful.models import Source, build_model
from heedful.models.recurrent import RecurrentSettings
from heedful.training.operations import operation_counter

GATES = {"rnn": 1, "gru": 3, "lstm": 4}
B, T, E, H, V = 3, 4, 6, 8, 20


@pytest.mark.parametrize("lengths", [[5, 5, 5], [5, 3, 2]])
@pytest.mark.parametrize("cell", GATES)
def test_an_encoder(cell: str, lengths: list[int]) -> None:
    encoder = RecurrentEncoder(cell, E, H, 1, bidirectional=True, dropout=0.0)
    embedded = torch.randn(B, 5, E, requires_grad=True)
    with operation_counter() as counter:
        annotations, _ = encoder(embedded, torch.tensor(lengths))
    forward = 2 * 2 * sum(lengths) * GATES[cell] * H * (E + H)
    assert counter.get_total_flops() == forward
    with operation_counter() as counter:
        annotations.sum().backward()
    # Backward is twice forward, but that the states before the first token need no gradient: in
    # each direction, a product for each row; the library's own LSTM makes it all the same.
    first = 2 * 2 * B * GATES[cell] * H * H
    assert 2 * forward - first <= counter.get_total_flops() <= 2 * forward


@pytest.mark.parametrize("cell", GATES)
def test_a_decoder_fused_and_in_steps(cell: str) -> None:
    stack = RecurrentStack(cell, E, H, 1, dropout=0.0)
    inputs = torch.randn(B, T, E, requires_grad=True)
    parts = 2 if cell == "lstm" else 1
    hidden = (tuple(torch.zeros(B, H, requires_grad=True) for _ in range(parts)),)
    with operation_counter() as fused:
        stack(inputs, hidden)[0].sum().backward()

    def stepped() -> Tensor:
        steps, state, tops = stack.steps(inputs[..., :2]), hidden, []
        for late in inputs[..., 2:].unbind(1):
            state = steps(late, state)
            tops.append(state[-1][0])
        return torch.stack(tops, 1)

    with operation_counter() as in_steps:
        stepped().sum().backward()
    expected = 3 * 2 * B * T * GATES[cell] * H * (E + H)
    assert fused.get_total_flops() == expected
    assert in_steps.get_total_flops() == expected


@pytest.mark.parametrize("cell", GATES)
def test_bahdanaus_model_forward(cell: str) -> None:
    settings = RecurrentSettings(cell=cell, embedding_size=E, hidden_size=H, attention="bahdanau")
    model, S = build_model(settings, V, V), 5
    source = Source(torch.randint(4, V, (B, S)), torch.full((B,), S))
    with operation_counter() as counter:
        model.teacher_force(source, torch.randint(4, V, (B, T)))
    gates, A = GATES[cell], 2 * H
    encoder = 2 * S * gates * H * (E + H)
    bridge = (2 if cell == "lstm" else 1) * A * H
    keys = S * A * H
    attention = H * H + S * H + S * A  # the query, the weights, the context
    recurrence = gates * H * (E + A + H)
    readout = 2 * H * (H + E + A) + H * V
    products = encoder + bridge + keys + T * (attention + recurrence + readout)
    assert counter.get_total_flops() == 2 * B * products


def test_flash_attention_on_the_processor() -> None:
    heads, K = 2, 16
    query = torch.randn(B, heads, K, H, requires_grad=True)
    with operation_counter() as counter:
        context = attend(query, query, query)
    products = B * heads * K * K * H
    assert counter.get_total_flops() == 2 * 2 * products
    with operation_counter() as counter:
        context.sum().backward()
    # Four gradients of products, and the scores once more.
    assert counter.get_total_flops() == 5 * 2 * products


@pytest.mark.parametrize("groups", [1, 2, 6])
@pytest.mark.parametrize("transposed", [False, True])
def test_convolutions_with_groups(groups: int, transposed: bool) -> None:
    kind = nn.ConvTranspose1d if transposed else nn.Conv1d
    convolution = kind(E, 12, 5, stride=2, padding=1, groups=groups)
    inputs = torch.randn(B, E, 11, requires_grad=True)
    with operation_counter() as counter:
        found = convolution(inputs)
        forward = counter.get_total_flops()
        found.sum().backward()
    # Each number of the shorter side meets the kernel of all channels of its group.
    places = inputs.shape[2] if transposed else found.shape[2]
    assert forward == 2 * B * places * E * 12 // groups * 5
    assert counter.get_total_flops() == 3 * forward
    with operation_counter() as counter:
        convolution(inputs.detach()).sum().backward()
    assert counter.get_total_flops() == 2 * forward
