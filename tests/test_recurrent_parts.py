"""Recurrent layers against torch's own cells, decoders against the papers' equations, settings."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from heedful.basics.errors import UserError
from heedful.basics.settings import check
from heedful.layers.recurrent import (
    Bridge,
    Hidden,
    Maxout,
    RecurrentEncoder,
    RecurrentStack,
    recurrent_network,
)
from heedful.layers.stepwise import Stepwise
from heedful.models.pairs import Source
from heedful.models.recurrent import RecurrentEncoderDecoder, RecurrentSettings

CELLS = ("rnn", "gru", "lstm")


def zero_state(cell: str, rows: int, width: int, layers: int) -> Hidden:
    parts = 2 if cell == "lstm" else 1
    return tuple(
        tuple(torch.randn(rows, width, dtype=torch.float64) for _ in range(parts))
        for _ in range(layers)
    )


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("cell", CELLS)
def test_a_step_at_a_time_equals_torchs_network(cell: str, layers: int) -> None:
    torch.manual_seed(1)
    stack = RecurrentStack(cell, 6, 5, layers, dropout=0.0).double()
    inputs = torch.randn(3, 7, 6, dtype=torch.float64, requires_grad=True)
    hidden = zero_state(cell, 3, 5, layers)
    weights = torch.randn(3, 7, 5, dtype=torch.float64)
    wanted = [inputs, *stack.parameters()]

    fused, final = stack(inputs, hidden)
    fused_gradients = torch.autograd.grad((fused * weights).sum(), wanted)
    # The input comes in two parts, the second of them a step at a time.
    steps, tops = stack.steps(inputs[..., :4]), []
    for late in inputs[..., 4:].unbind(1):
        hidden = steps(late, hidden)
        tops.append(hidden[-1][0])
    torch.testing.assert_close(hidden, final, rtol=1e-10, atol=1e-12)
    stepped = torch.stack(tops, 1)
    torch.testing.assert_close(stepped, fused, rtol=1e-10, atol=1e-12)
    gradients = torch.autograd.grad((stepped * weights).sum(), wanted)
    torch.testing.assert_close(gradients, fused_gradients, rtol=1e-9, atol=1e-12)


def test_a_stepwise_map_learns_what_a_linear_one_does() -> None:
    weight = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    base = torch.randn(5, 2, 4, dtype=torch.float64, requires_grad=True)
    first = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    leaves = [weight, base, first]

    def run(map_of_step: Callable[[int, Tensor], Tensor], steps: int) -> Tensor:
        x, total = first, first.new_zeros(())
        for step in range(steps):
            y = map_of_step(step, x)
            x, total = torch.tanh(y[:, 1:]), total + y.square().sum()
        return total

    for steps in (5, 3):  # all steps, and fewer than there are
        stepwise = Stepwise(weight, base)
        found = run(lambda step, x, stepwise=stepwise: stepwise(x), steps)
        expected = run(lambda step, x: base[step] + x @ weight.T, steps)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(
            torch.autograd.grad(found, leaves), torch.autograd.grad(expected, leaves)
        )
    with torch.no_grad():
        assert not Stepwise(weight, base)(first).requires_grad


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("cell", CELLS)
def test_the_encoder_reads_each_row_as_if_alone(cell: str, both: bool) -> None:
    torch.manual_seed(2)
    encoder = RecurrentEncoder(cell, 4, 3, 2, bidirectional=both, dropout=0.0).double()
    embedded = torch.randn(3, 6, 4, dtype=torch.float64)
    lengths = torch.tensor([2, 6, 1])
    annotations, final = encoder(embedded, lengths)
    assert annotations.shape == (3, 6, encoder.output_dim)
    assert len(final) == 2
    for row, length in enumerate(lengths.tolist()):
        outputs, last = encoder.network(embedded[row : row + 1, :length])
        torch.testing.assert_close(annotations[row, :length], outputs[0])
        assert annotations[row, length:].eq(0).all()
        hidden = last[0] if cell == "lstm" else last
        directions = 2 if both else 1
        for layer in range(2):
            ends = hidden[layer * directions : (layer + 1) * directions, 0].flatten()
            torch.testing.assert_close(final[layer][0][row], ends)
    forwards = encoder.output_dim // (2 if both else 1)
    torch.testing.assert_close(final[-1][0][1, :forwards], annotations[1, -1, :forwards])


def test_gates_start_as_documented() -> None:
    network = recurrent_network("lstm", 6, 5, 2, bidirectional=True, dropout=0.0)
    for name, parameter in network.named_parameters():
        if name.startswith("bias_ih"):
            assert parameter[5:10].eq(1).all()
            assert parameter[:5].eq(0).all()
            assert parameter[10:].eq(0).all()
        elif name.startswith("bias_hh"):
            assert parameter.eq(0).all()
        elif name.startswith("weight_hh"):
            for gate in parameter.split(5):
                torch.testing.assert_close(gate @ gate.T, torch.eye(5), atol=1e-5, rtol=0)


def test_the_bridge_hands_over_or_projects() -> None:
    same = zero_state("lstm", 3, 5, 2)
    assert Bridge("lstm", 5, 2, 5, 2)(same) is same
    assert not list(Bridge("lstm", 5, 2, 5, 2).parameters())
    wide = zero_state("lstm", 3, 10, 2)
    for layers in (1, 2, 3):
        bridge = Bridge("lstm", 10, 2, 5, layers).double()
        narrow = bridge(wide)
        assert [[part.shape for part in layer] for layer in narrow] == [[(3, 5)] * 2] * layers
        top = wide[layers - 1] if layers == 2 else wide[-1]
        cell_projection = bridge.projections[-1]
        torch.testing.assert_close(narrow[-1][1], torch.tanh(cell_projection(top[1])))


def test_maxout_is_the_larger_of_each_pair() -> None:
    maxout = Maxout([3, 4], 5).double()
    one, other = (
        torch.randn(2, 6, 3, dtype=torch.float64),
        torch.randn(2, 1, 4, dtype=torch.float64),
    )
    total = maxout.maps[0](one) + other @ maxout.maps[1].weight.T
    expected = torch.maximum(total[..., 0::2], total[..., 1::2])
    torch.testing.assert_close(maxout(one, other), expected)
    assert len(list(maxout.parameters())) == 3


class Papers:
    """One sentence through a GRU model, token by token, as the papers write it.

    ``s`` is the list of all decoder layers' states, so ``s[-1]`` is the papers' s.
    """

    def __init__(self, model: RecurrentEncoderDecoder, source: Tensor) -> None:
        self.model, self.part = model, model.decoder
        embedded = model.source_embedding(source)
        outputs, last = model.encoder.network(embedded.unsqueeze(0))
        self.h = outputs[0]  # [S, 2·H]
        self.c = last[:, 0].flatten()  # [2·H]
        self.s0 = [torch.tanh(projection(self.c)) for projection in model.bridge.projections]
        stack, self.cells = self.part.stack.network, []
        for layer in range(stack.num_layers):
            width = stack.hidden_size if layer else stack.input_size
            cell = nn.GRUCell(width, stack.hidden_size).double()
            for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                getattr(cell, kind).data.copy_(getattr(stack, f"{kind}_l{layer}").data)
            self.cells.append(cell)

    def f(self, *parts: Tensor, s: list[Tensor]) -> list[Tensor]:
        x, after = torch.cat(parts), []
        for cell, before in zip(self.cells, s, strict=True):
            x = cell(x.unsqueeze(0), before.unsqueeze(0))[0]
            after.append(x)
        return after

    def g(self, s: Tensor, y: Tensor, c: Tensor) -> Tensor:
        U, V, C = (linear.weight for linear in self.part.readout.maps)
        t = U @ s + V @ y + C @ c + self.part.readout.maps[0].bias
        return self.model.output_table @ t.view(-1, 2).max(1).values

    def fixed_vector(self, target: Tensor) -> Tensor:
        s, logits = self.s0, []
        for y in self.model.target_embedding(target):
            s = self.f(y, self.c, s=s)
            logits.append(self.g(s[-1], y, self.c))
        return torch.stack(logits)

    def bahdanau(self, target: Tensor, hard: bool = False) -> Tensor:
        score = self.part.attention.score
        s, logits = self.s0, []
        for y in self.model.target_embedding(target):
            energies = [
                score.v @ torch.tanh(score.query_projection.weight @ s[-1] + U_h)
                for U_h in self.h @ score.key_projection.weight.T
            ]
            alpha = torch.softmax(torch.stack(energies), 0)
            if hard:
                alpha = (alpha == alpha.max()).to(alpha)
            c = sum(weight * annotation for weight, annotation in zip(alpha, self.h, strict=True))
            s = self.f(y, c, s=s)
            logits.append(self.g(s[-1], y, c))
        return torch.stack(logits)

    def luong(self, target: Tensor, feeding: bool, D: int | None = None) -> Tensor:
        W_a, W_c = self.part.attention.score.weight, self.part.combine.weight
        s, vector, logits = self.s0, torch.zeros_like(self.s0[-1]), []
        for y in self.model.target_embedding(target):
            s = self.f(y, vector, s=s) if feeding else self.f(y, s=s)
            e = torch.stack([s[-1] @ W_a @ h for h in self.h])
            a = torch.softmax(e, 0) if D is None else self.local(e, s[-1], D)
            vector = torch.tanh(W_c @ torch.cat([a @ self.h, s[-1]]))
            logits.append(self.model.output_table @ vector)
        return torch.stack(logits)

    def local(self, e: Tensor, s: Tensor, D: int) -> Tensor:
        normalize = self.part.attention.normalize
        v, W = normalize.position_projection.weight[0], normalize.query_projection.weight
        p = len(e) * torch.sigmoid(v @ torch.tanh(W @ s))
        there = [i for i in range(len(e)) if abs(i - p) <= D]
        share = torch.exp(e) / sum(torch.exp(e[i]) for i in there)
        a = [share[i] * torch.exp(-((i - p) ** 2) / (2 * (D / 2) ** 2)) for i in range(len(e))]
        return torch.stack([x if i in there else x * 0 for i, x in enumerate(a)])


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize(
    ("attention", "feeding"),
    [
        ("none", None),
        ("bahdanau", None),
        ("luong-general", True),
        ("luong-general", False),
        ("luong-local-p", True),
        ("luong-local-p", False),
        ("hard-reinforce", None),
        ("hard-gumbel", None),
    ],
)
def test_the_decoders_are_the_papers_equations(
    attention: str, feeding: bool | None, layers: int
) -> None:
    torch.manual_seed(3)
    settings = RecurrentSettings(
        embedding_size=4,
        hidden_size=6,
        decoder_layers=layers,
        attention=attention,
        input_feeding=feeding,
        window=2 if attention == "luong-local-p" else None,
        dropout=0.0,
    )
    model = RecurrentEncoderDecoder(settings, 12, 15).double().eval()
    source, target = torch.tensor([5, 9, 4, 11, 3]), torch.tensor([2, 7, 14, 5])
    found = model.teacher_force(Source(source[None], torch.tensor([5])), target[None])[0]
    papers = Papers(model, source)
    expected = {
        "none": papers.fixed_vector,
        "bahdanau": papers.bahdanau,
        "luong-general": lambda tokens: papers.luong(tokens, feeding),
        "luong-local-p": lambda tokens: papers.luong(tokens, feeding, 2),
        "hard-reinforce": lambda tokens: papers.bahdanau(tokens, hard=True),
        "hard-gumbel": lambda tokens: papers.bahdanau(tokens, hard=True),
    }[attention](target)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


def test_tied_matrices_are_one() -> None:
    def build(tied: str) -> RecurrentEncoderDecoder:
        settings = RecurrentSettings(embedding_size=6, hidden_size=6, tied_embeddings=tied)
        return RecurrentEncoderDecoder(settings, 20, 20)

    none, output, every = (build(tied) for tied in ("none", "output", "all"))
    assert none.output_table is not none.target_embedding.weight
    assert output.output_table is output.target_embedding.weight
    assert output.source_embedding.weight is not output.output_table
    assert every.source_embedding.weight is every.output_table

    def count(model: nn.Module) -> int:
        return sum(parameter.numel() for parameter in model.parameters())

    assert count(none) - count(output) == count(output) - count(every) == 20 * 6


def test_the_number_of_parameters_is_the_formulas() -> None:
    E, H, V = 7, 5, 20
    settings = RecurrentSettings(embedding_size=E, hidden_size=H, attention="bahdanau")
    model = RecurrentEncoderDecoder(settings, V, V)
    encoder = 2 * (3 * H * (E + H) + 6 * H)
    bridge = 2 * H * H + H
    attention = H * H + H * 2 * H + H
    decoder = 3 * H * (E + 2 * H + H) + 6 * H
    maxout = 2 * H * (H + E + 2 * H) + 2 * H
    expected = 2 * V * E + encoder + bridge + attention + decoder + maxout + V * H
    assert sum(parameter.numel() for parameter in model.parameters()) == expected


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"attention": "luong-dot"}, r"model: luong-dot needs"),
        (
            {"input_feeding": False},
            r"model: 'input_feeding' = False: input_feeding is only valid for Luong's",
        ),
        (
            {"input_feeding": True},
            r"model: 'input_feeding' = True: input_feeding is only valid for Luong's",
        ),
        (
            {"window": 5},
            r"model: 'window' = 5: window is only valid with attention = 'luong-local-p'",
        ),
        ({"temperature": 0.5}, r"model: 'temperature' = 0.5: temperature is only valid with"),
        ({"expected": 0.5}, r"model: 'expected' = 0.5: expected is only valid with"),
        ({"attention": "luong-local-p", "window": 0}, r"model: 'window' = 0"),
        (
            {"attention": {"name": "hard-gumbel", "normalizer": "gumbel"}, "temperature": 0.5},
            r"temperature has no effect beside attention.normalizer; .* if 'gumbel' has it",
        ),
        (
            {"attention": {"name": "hard-reinforce", "normalizer": "softmax"}, "expected": 0.5},
            r"expected has no effect beside attention.normalizer",
        ),
        (
            {"embedding_size": 8, "tied_embeddings": "output"},
            r"model: 'tied_embeddings' = 'output': .* not 8 and 256",
        ),
        ({"cell": "gruu"}, r"model: 'cell' = 'gruu'"),
        ({"hiden": 8}, r"unknown key 'hiden'; did you mean 'hidden_size'\?"),
        ({"hidden_size": 0}, r"model: 'hidden_size' = 0"),
        ({"dropout": 1.0}, r"model: 'dropout' = 1.0"),
    ],
)
def test_settings_without_meaning_are_refused(given: dict[str, object], said: str) -> None:
    with pytest.raises(UserError, match=said) as caught:
        check(RecurrentSettings, given, "model")
    assert "\n" not in str(caught.value)


def test_one_table_needs_one_vocabulary() -> None:
    settings = RecurrentSettings(tied_embeddings="all")
    with pytest.raises(ValueError, match="one vocabulary for both sides"):
        RecurrentEncoderDecoder(settings, 20, 30)
