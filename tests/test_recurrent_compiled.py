"""Recurrent models in C against the plain reference in float64: outputs and gradients."""

import copy
import functools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from heedful.attention import Attention, Memory, normalizers, scores, use_kernel, watch
from heedful.decoding import SearchOptions, search
from heedful.kernels import recurrent_cell as cells
from heedful.kernels import source_attention as reading
from heedful.kernels.recurrent_cell import Cell, cell_step
from heedful.kernels.source_attention import Sources, attend_to_sources
from heedful.layers import recurrent_packed
from heedful.layers.recurrent import recurrent_network
from heedful.layers.recurrent_packed import by_directions, packed_network
from heedful.models.pairs import Source
from heedful.models.recurrent import RecurrentEncoderDecoder, RecurrentSettings
from heedful.models.recurrent_attention import known_reading, read_rows
from heedful.models.recurrent_rows import SourceRows
from tolerance import Reference, assert_near, assert_rounded, reference

if cells.library() is None or reading.library() is None:
    pytest.skip("there is no C compiler here", allow_module_level=True)

CELLS: tuple[Cell, ...] = ("rnn", "gru", "lstm")
WIDTHS = (5, 16, 21)
"""Of less than a vector, of whole ones, of both."""


def close(found: list[Tensor], expected: list[Tensor], terms: int = 100) -> None:
    """Compare float32 with float64, relative to the tensor's largest value or to 1."""
    for one, other in zip(found, expected, strict=True):
        assert_near(one, other, terms=terms, size=max(1.0, float(other.abs().max())))


def weighted(parts: list[Tensor]) -> Tensor:
    """A weighted sum with a different weight for each element."""
    sums = [
        (part * torch.linspace(-1, 2, part.numel(), dtype=part.dtype).view_as(part)).sum()
        for part in parts
    ]
    return torch.stack(sums).sum()


def leaves(*shapes: tuple[int, ...], spread: float = 1.0) -> list[Tensor]:
    return [(torch.randn(shape) * spread).requires_grad_() for shape in shapes]


def doubled(parts: list[Tensor]) -> list[Tensor]:
    return [part.detach().double().requires_grad_() for part in parts]


@pytest.mark.parametrize("spread", [1.0, 100.0])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", CELLS)
def test_cells_and_their_gradients(kind: Cell, width: int, spread: float) -> None:
    torch.manual_seed(1)
    gates = {"rnn": 1, "gru": 3, "lstm": 4}[kind] * width
    parts = 2 if kind == "lstm" else 1
    given = leaves((7, gates), (7, gates), *[(7, width)] * parts, spread=spread)
    by_after = [torch.randn(7, width) for _ in range(parts)]
    wide = doubled(given)
    after = cell_step(kind, wide[0], wide[1], tuple(wide[2:]))
    total = torch.stack([(a * b).sum() for a, b in zip(after, by_after, strict=True)]).sum()
    expected = torch.autograd.grad(total, wide, materialize_grads=True)

    share, recurrent, *before = (part.detach() for part in given)
    apart = torch.cat([recurrent, torch.full((7, 3), torch.nan)], 1)[:, :gates]
    opened, made = torch.empty_like(share), [torch.empty(7, width) for _ in range(parts)]
    cell = cells.CompiledCell(kind, width)
    cell.step(share, opened, apart, before, made)
    close(made, [part.detach() for part in after])
    by_state = [torch.zeros(7, width), *by_after[1:]]
    by_share, by_recurrent = torch.empty_like(share), torch.empty(7, gates + 3)[:, :gates]
    both = before, made
    cell.step_backward(opened, apart, *both, by_after[0], by_state, by_share, by_recurrent)
    close([by_share, by_recurrent, *by_state], list(expected))
    with torch.inference_mode():
        found = cells.next_state(kind, share, recurrent, tuple(before))
    assert found is not None
    close(list(found), [part.detach() for part in after])
    assert cells.next_state(kind, *given[:2], tuple(given[2:])) is None  # gradients are on


SCORES: dict[str, Callable[[int], scores.Score]] = {
    "additive": lambda width: scores.Additive(width, 6, width),
    "concat": lambda width: scores.Concat(width, 6, width),
    "general": lambda width: scores.General(width, 6),
}


@pytest.mark.parametrize("spread", [1.0, 30.0])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", SCORES)
def test_source_attention_and_its_gradients(name: str, width: int, spread: float) -> None:
    torch.manual_seed(2)
    attention = Attention(SCORES[name](width), normalizers.Softmax(0.5))
    rows = torch.tensor([2, 0, 3, 1])
    query, annotations = leaves((4, width), (4, 9, 6), spread=spread)
    allowed = torch.arange(9) < torch.tensor([9, 4, 1, 0]).view(4, 1, 1)
    by_context = torch.randn(4, 6)

    wide = copy.deepcopy(attention).double()
    asked, key = doubled(
        [wide.score.project_query(query.double()), wide.score.project_key(annotations.double())]
    )
    value, vector = annotations.detach().double(), wide.score.tanh_vector()
    plain = copy.deepcopy(wide)
    plain.score.project_query = lambda x: x  # type: ignore[method-assign]
    with use_kernel("plain"):
        context = plain.read(asked.unsqueeze(1), Memory(key[rows], value[rows]), allowed[rows])
    wanted = [asked, key, *([] if vector is None else [plain.score.v])]
    expected = torch.autograd.grad((context.squeeze(1) * by_context).sum(), wanted)

    known = known_reading(attention, width)
    assert known is not None
    now = None if known.vector is None else known.vector.detach()
    key, asked = key.detach().float(), asked.detach().float()
    sources = Sources(key, annotations.detach(), allowed, rows, now, known.scale)
    contexts, weights = torch.empty(4, 6), torch.empty(4, 9)
    sources.read(asked, contexts, weights)
    close([contexts], [context.detach().squeeze(1)])
    assert not contexts[2].isnan().any()
    assert not contexts[rows == 3].any()  # which may read nothing
    assert not weights[~allowed[rows].squeeze(1)].any()
    by_query, by_key = torch.empty_like(asked), torch.zeros_like(key)
    by_vector = torch.zeros(4, width)
    sources.read_backward(asked, weights, by_context, by_query, by_key, by_vector)
    close([by_query, by_key, *([] if now is None else [by_vector.sum(0)])], list(expected))


def test_only_supported_attention_runs_in_c() -> None:
    query, source = torch.randn(2, 5), torch.randn(2, 3, 6)
    key, allowed = torch.randn(2, 3, 4), torch.ones(2, 1, 3, dtype=torch.bool)

    def taken(attention: Attention, query: Tensor = query) -> bool:
        known = known_reading(attention, 5)
        if known is None:
            return False
        asked = functools.partial(attention.score.project_query, query)
        given = key.to(query.dtype), source, allowed, torch.arange(2), *known
        return attend_to_sources(asked, *given) is not None

    attention = Attention(scores.Additive(5, 6, 4))
    assert not taken(attention)
    with torch.no_grad():
        assert taken(attention)
        with watch(attention):
            assert not taken(attention)
        with watch(attention, rows=[0]):
            assert not taken(attention)
        with use_kernel("plain"):
            assert not taken(attention)
        with torch.autocast("cpu", torch.bfloat16):
            assert not taken(attention)
        assert not taken(copy.deepcopy(attention).double(), query.double())
        assert not taken(Attention(attention.score, dropout=0.1))
        hard = Attention(attention.score, normalizers.GumbelStraightThrough(1.0))
        assert not taken(hard)


LENGTHS = torch.tensor([3, 7, 1, 5])


def packed(data: Tensor) -> PackedSequence:
    return pack_padded_sequence(data, LENGTHS, batch_first=True, enforce_sorted=False)


@pytest.fixture
def uses_operators(monkeypatch: pytest.MonkeyPatch) -> Callable[[nn.RNNBase, PackedSequence], bool]:
    """Whether a network uses the operators of directions."""
    calls: list[nn.RNNBase] = []

    def noted(network: nn.RNNBase, given: PackedSequence) -> object:
        calls.append(network)
        return by_directions(network, given)

    monkeypatch.setattr(recurrent_packed, "by_directions", noted)

    def used(network: nn.RNNBase, given: PackedSequence) -> bool:
        calls.clear()
        packed_network(network, given)
        return bool(calls)

    return used


def network_results(network: nn.RNNBase, data: Tensor, in_c: bool) -> list[Tensor]:
    """Outputs, final states, and the gradients of input and weights."""
    leaf = data.clone().requires_grad_()
    outputs, final = (by_directions if in_c else type(network).__call__)(network, packed(leaf))
    parts = [outputs.data, *(final if isinstance(final, tuple) else (final,))]
    gradients = torch.autograd.grad(weighted(parts), [leaf, *network.parameters()])
    assert torch.equal(outputs.batch_sizes, packed(leaf).batch_sizes)
    return [*(part.detach() for part in parts), *gradients]


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("kind", CELLS)
def test_packed_networks_match_pytorch(
    kind: Cell,
    both: bool,
    monkeypatch: pytest.MonkeyPatch,
    uses_operators: Callable[[nn.RNNBase, PackedSequence], bool],
) -> None:
    torch.manual_seed(3)
    network = recurrent_network(kind, 6, 5, 2, bidirectional=both, dropout=0.4)
    data = torch.randn(4, 7, 6)
    assert uses_operators(network, packed(data))
    wide = copy.deepcopy(network).double().eval()
    expected = network_results(wide, data.double(), in_c=False)
    close(network_results(network.eval(), data, in_c=True), expected)
    network.train()
    monkeypatch.setattr(recurrent_packed, "dropout", torch.nn.functional.dropout)
    found = []
    for in_c in (False, True):  # the same numbers are dropped
        torch.manual_seed(4)
        found.append(network_results(network, data, in_c))
    close(found[1], [part.double() for part in found[0]])


@pytest.mark.parametrize("both", [False, True])
def test_packed_lstms_with_a_projection_match_pytorch(both: bool) -> None:
    torch.manual_seed(5)
    network = nn.LSTM(6, 21, 2, bidirectional=both, proj_size=4)
    data = torch.randn(4, 7, 6)
    expected = network_results(copy.deepcopy(network).double(), data.double(), in_c=False)
    close(network_results(network, data, in_c=True), expected)


def test_only_networks_in_training_run_in_c(
    uses_operators: Callable[[nn.RNNBase, PackedSequence], bool],
) -> None:
    network = recurrent_network("gru", 6, 5, 1, bidirectional=False, dropout=0.0)
    data = packed(torch.randn(4, 7, 6))
    assert uses_operators(network, data)
    with torch.no_grad():
        assert not uses_operators(network, data)
    with torch.autocast("cpu", torch.bfloat16):
        assert not uses_operators(network, data)
    assert not uses_operators(nn.RNN(6, 5, nonlinearity="relu"), data)
    assert uses_operators(nn.LSTM(6, 5, proj_size=2), data)
    assert not uses_operators(nn.LSTM(6, 5, bias=False), data)
    assert not uses_operators(
        copy.deepcopy(network).double(), packed(torch.randn(4, 7, 6).double())
    )
    network.register_forward_hook(lambda *_: None)
    assert not uses_operators(network, data)


ATTENTIONS = ("bahdanau", "luong-dot", "luong-general", "luong-concat")


def small(cell: Cell, attention: str = "bahdanau", **more: object) -> RecurrentEncoderDecoder:
    torch.manual_seed(5)
    sizes = {"embedding_size": 11, "hidden_size": 13, "dropout": 0.0}
    given = {"cell": cell, "attention": attention, "bidirectional": attention != "luong-dot"}
    settings = RecurrentSettings.model_validate(sizes | given | more)
    model = RecurrentEncoderDecoder(settings, 40, 40)
    with torch.no_grad():
        for part in model.parameters():  # so that attention is no mean
            part.add_(torch.randn_like(part), alpha=0.3)
    return model


SOURCE = Source(torch.randint(4, 40, (4, 7), generator=torch.manual_seed(6)), LENGTHS)
TARGET = torch.randint(4, 40, (4, 6), generator=torch.manual_seed(7))


def taken(model: RecurrentEncoderDecoder) -> bool:
    """Whether the target is unrolled in one operator."""
    state, embedded = model._begin(SOURCE), model.target_embedding(TARGET)
    if state.feed is None:
        return model.decoder._in_one(embedded.transpose(0, 1), state) is not None
    return model.decoder._in_one(embedded, state, state.feed) is not None


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("cell", CELLS)
def test_a_target_is_unrolled_in_one_operator(cell: Cell, attention: str) -> None:
    model = small(cell, attention)

    def run(model: RecurrentEncoderDecoder) -> list[Tensor]:
        states = model.states(SOURCE, TARGET)
        learnt = [part for part in model.parameters() if part is not model.output_table]
        return [states.detach(), *torch.autograd.grad(weighted([states]), learnt)]

    assert taken(model)
    expected = reference(run, model, terms=TARGET.numel() * 13)
    assert_rounded(run(model), expected)
    with use_kernel("plain"):
        assert not taken(model)
        assert_rounded(run(model), expected)
    with torch.no_grad():
        states = Reference(expected.exact[:1], expected.allowed[:1])
        assert_rounded([model.states(SOURCE, TARGET)], states)


@pytest.mark.parametrize("attention", ["bahdanau", "luong-concat"])
def test_gradients_of_subsets_and_repeated_backward(attention: str) -> None:
    model = small("gru", attention)
    total = weighted([model.states(SOURCE, TARGET)])
    own = "decoder.stack.network.weight_hh_l0"
    names = [own, "source_embedding.weight", "decoder.attention.score.v"]
    wanted = [model.get_parameter(name) for name in names]
    whole = torch.autograd.grad(total, wanted, retain_graph=True)
    for one, expected in zip(wanted, whole, strict=True):
        (alone,) = torch.autograd.grad(total, one, retain_graph=True)
        assert torch.equal(alone, expected)


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_which_models_are_unrolled_in_one_operator(attention: str) -> None:
    model = small("gru", attention)
    assert taken(model)
    with watch(model):
        assert not taken(model)
    assert not taken(copy.deepcopy(model).double())
    assert not taken(small("gru", attention, decoder_layers=2))
    with torch.autocast("cpu", torch.bfloat16):
        assert not taken(model)


def test_a_hooked_query_is_not_unrolled_in_one_operator() -> None:
    model = small("gru")
    model.decoder.attention.score.query_projection.register_forward_hook(lambda *_: None)
    assert not taken(model)


@pytest.mark.parametrize("attention", ["none", *ATTENTIONS])
@pytest.mark.parametrize("cell", CELLS)
def test_search_matches_float64(cell: Cell, attention: str) -> None:
    model = small(cell, attention).eval()
    options, limits = SearchOptions(beam=3, nbest=2), torch.tensor([8, 3, 5, 9])
    found = []
    for one in (model, copy.deepcopy(model).double()):
        with torch.inference_mode():
            outcome = search(one, SOURCE, rows=4, options=options, max_lengths=limits)
        found.append([hypothesis for each in outcome for hypothesis in each])
    for quick, exact in zip(*found, strict=True):
        assert quick.tokens == exact.tokens
        assert quick.score == pytest.approx(exact.score, abs=1e-5)


def test_rows_in_c_do_not_depend_on_the_batch() -> None:
    model = small("gru").eval()
    rows = SourceRows.of(torch.tensor([3, 0, 3, 1]), 4)
    attention = model.decoder.attention
    query, memory = torch.randn(4, 13), model._begin(SOURCE).memory
    with torch.no_grad():
        found = read_rows(attention, query, rows, memory)
        with use_kernel("plain"):
            expected = read_rows(attention, query, rows, memory)
    close([found], [expected.double()])


@pytest.mark.parametrize("attention", ["bahdanau", "luong-concat"])
def test_threads_share_the_rows(attention: str) -> None:
    model = small("gru", attention, hidden_size=128, embedding_size=8)
    tokens = torch.randint(4, 40, (300, 5), generator=torch.manual_seed(8))
    source = Source(tokens, torch.arange(300) % 5 + 1)
    found, before = [], torch.get_num_threads()
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            states = model.states(source, tokens)
            learnt = [part for part in model.parameters() if part is not model.output_table]
            found.append([states.detach(), *torch.autograd.grad(weighted([states]), learnt)])
    finally:
        torch.set_num_threads(before)
    close(found[1], [part.double() for part in found[0]])


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_second_derivatives_of_loop_operators(attention: str) -> None:
    """Compared with finite differences of float64 gradients along one direction."""
    model = small("gru", attention)
    assert taken(model)
    wide, tangent = copy.deepcopy(model).double(), torch.randn(40, 11, dtype=torch.float64)

    def slope(model: RecurrentEncoderDecoder, again: bool) -> Tensor:
        learnt = [model.source_embedding.weight, model.target_embedding.weight]
        total = weighted([model.states(SOURCE, TARGET)])
        by = torch.autograd.grad(total, learnt, create_graph=again)
        return weighted([one.square() for one in by])

    weight = model.source_embedding.weight
    (found,) = torch.autograd.grad(slope(model, again=True), weight)
    ends = []
    for step in (1e-6, -2e-6):
        with torch.no_grad():
            wide.source_embedding.weight.add_(tangent, alpha=step)
        ends.append(slope(wide, again=False))
    expected = float(ends[0] - ends[1]) / 2e-6
    assert float((found * tangent).sum()) == pytest.approx(expected, rel=1e-3)


def test_second_derivatives_of_stepwise_loops_raise() -> None:
    """They would be wrong."""
    model = small("gru").double()
    total = weighted([model.states(SOURCE, TARGET)])
    learnt = [model.source_embedding.weight, model.target_embedding.weight]
    with pytest.raises(RuntimeError, match="cannot be differentiated again"):
        torch.autograd.grad(total, learnt, create_graph=True)


def test_forward_mode_gradients_use_stepwise_loops() -> None:
    model = small("gru")
    weight = model.target_embedding.weight
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(weight.detach(), torch.ones_like(weight))
        embedded = torch.nn.functional.embedding(TARGET, dual).transpose(0, 1)
        assert model.decoder._in_one(embedded, model._begin(SOURCE)) is None
