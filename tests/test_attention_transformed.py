"""Attention modules under PyTorch's transformations: compile, export, vmap, double backward, …

The cases cover each score, normalizer and kind of positions at least once. CUDA graphs are not
tested.
"""

import copy
import itertools
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils import parametrizations

from heedful.attention import MultiHeadAttention, masks, normalizers, positions, scores, watch

SCORES: dict[str, Any] = {
    "scaled dot": scores.ScaledDot,
    "dot": scores.Dot,
    "general": lambda: scores.General(4, 4),
    "trilinear": lambda: scores.Trilinear(4),
    "additive": lambda: scores.Additive(4, 4, 6),
    "concat": lambda: scores.Concat(4, 4, 6),
    "cosine": lambda: scores.Cosine(3.0),
    "gaussian": scores.Gaussian,
    "location": lambda: scores.Location(4, 8),
    "soft-capped": lambda: scores.SoftCapped(cap=3.0),
    "energy": lambda: scores.Energy(4, 4, 6),
}
NORMALIZERS: dict[str, Any] = {
    "softmax": normalizers.Softmax,
    "sparsemax": normalizers.Sparsemax,
    "entmax 1.5": normalizers.Entmax15,
    "entmax": lambda: normalizers.Entmax(1.3, learned=True),
    "off by one": normalizers.SoftmaxOffByOne,
    "sink": lambda: normalizers.SinkSoftmax(2),
    "smoothed": normalizers.Smoothed,
    "local-m": lambda: normalizers.LocalMonotonic(3),
    "local-p": lambda: normalizers.LocalPredictive(4, 5, 4),
}
POSITIONS: dict[str, Any] = {
    "none": lambda: None,
    "rotary": lambda: positions.Rotary(4),
    "alibi": lambda: positions.ALiBi(2),
    "t5": lambda: positions.T5Buckets(2),
    "shaw": lambda: positions.Shaw(4, 2),
    "transformer-xl": lambda: positions.TransformerXL(4, 2),
}


def covering() -> Iterator[tuple[str, str, str]]:
    """Each score with softmax, each normalizer and each kind of positions; and some mixed."""
    yield from ((score, "softmax", "none") for score in SCORES)
    yield from (("scaled dot", name, "none") for name in NORMALIZERS if name != "softmax")
    yield from (("scaled dot", "softmax", place) for place in POSITIONS if place != "none")
    yield from [("additive", "sparsemax", "rotary"), ("general", "entmax 1.5", "alibi")]
    yield from [("cosine", "off by one", "t5"), ("scaled dot", "sink", "rotary")]


CASES = list(covering())
cases = pytest.mark.parametrize("case", CASES, ids=", ".join)
# The 50 bisections of α-entmax are unrolled, which takes five seconds and more.
traced = pytest.mark.parametrize(
    "case", [one for one in CASES if one[1] != "entmax"], ids=", ".join
)
FEW = [CASES[0], ("additive", "softmax", "none"), ("scaled dot", "entmax 1.5", "none")]
FEW += [("scaled dot", "softmax", "rotary"), ("scaled dot", "sink", "none")]
exported = pytest.mark.parametrize(
    "case",
    [
        pytest.param(one, marks=[pytest.mark.slow] * (one not in FEW))
        for one in CASES
        if one[1] != "entmax"
    ],
    ids=", ".join,
)
few = pytest.mark.parametrize("case", FEW, ids=", ".join)


def layer(case: tuple[str, str, str], **more: Any) -> MultiHeadAttention:
    torch.manual_seed(0)
    score, normalize, place = case
    parts = {
        "score": SCORES[score](),
        "normalize": NORMALIZERS[normalize](),
        "positions": POSITIONS[place](),
    }
    return MultiHeadAttention(8, heads=2, **parts, **more).double()


def states(*shape: int) -> Tensor:
    torch.manual_seed(1)
    return torch.randn(*shape, dtype=torch.float64)


CAUSAL = masks.causal()


@traced
def test_compiled_as_one_graph(case: tuple[str, str, str]) -> None:
    module, x = layer(case), states(2, 5, 8)
    torch.compiler.reset()
    fast = torch.compile(module, fullgraph=True, backend="eager")
    found, expected = fast(x, x, mask=CAUSAL), module(x, x, mask=CAUSAL)
    torch.testing.assert_close(found, expected)
    parameters = [part for part in module.parameters() if part.requires_grad]
    pairs = (
        torch.autograd.grad(result.square().sum(), parameters, allow_unused=True)
        for result in (found, expected)
    )
    for one, other in zip(*pairs, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other)


@exported
def test_exported(case: tuple[str, str, str]) -> None:
    class Causal(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = layer(case)

        def forward(self, x: Tensor) -> Tensor:
            found: Tensor = self.attention(x, x, mask=CAUSAL)
            return found

    model = Causal().eval()
    batch = {0: torch.export.Dim("batch", min=2, max=64)}
    program = torch.export.export(model, (states(3, 5, 8),), dynamic_shapes=(batch,))
    other = states(4, 5, 8)
    torch.testing.assert_close(program.module()(other), model(other))


@cases
@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_mapped_over_inputs_and_parameters(case: tuple[str, str, str]) -> None:
    module, x = layer(case).eval(), states(3, 5, 8)
    expected = module(x, x, mask=CAUSAL)
    found = torch.func.vmap(lambda one: module(one[None], one[None], mask=CAUSAL)[0])(x)
    torch.testing.assert_close(found, expected)
    names = dict(module.named_parameters())

    def one_loss(parameters: dict[str, Tensor], one: Tensor) -> Tensor:
        given = one[None], one[None]
        result: Tensor = torch.func.functional_call(module, parameters, given, {"mask": CAUSAL})
        return result.square().sum()

    gradients = torch.func.vmap(torch.func.grad(one_loss), (None, 0))(names, x)
    loss = module(x[1:2], x[1:2], mask=CAUSAL).square().sum()
    alone = torch.autograd.grad(loss, [*names.values()], allow_unused=True)
    for found, one in zip(gradients.values(), alone, strict=True):
        torch.testing.assert_close(found[1], torch.zeros_like(found[1]) if one is None else one)


@cases
def test_double_backward(case: tuple[str, str, str]) -> None:
    module = layer(case)
    x = states(1, 3, 8).requires_grad_()
    aim = states(1, 3, 8).flip(1).requires_grad_()

    def result(given: Tensor) -> Tensor:
        found: Tensor = module(given, given, mask=CAUSAL)
        return found

    # PyTorch's fused kernels have no second derivatives, here as in nn.MultiheadAttention.
    with sdpa_kernel(SDPBackend.MATH):
        assert torch.autograd.gradgradcheck(result, (x,), (aim,), atol=1e-4, fast_mode=True)


@cases
def test_autocast_meta_copies_and_state(case: tuple[str, str, str]) -> None:
    module, x = layer(case).float(), states(2, 5, 8).float()
    expected = module(x, x, mask=CAUSAL)
    with torch.autocast("cpu", torch.bfloat16):
        half = module(x, x, mask=CAUSAL)
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), expected, atol=0.1, rtol=0.1)
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(other(x, x, mask=CAUSAL), expected)
    with torch.device("meta"):
        empty = layer(case).bfloat16()
        like = torch.empty(2, 5, 8, dtype=torch.bfloat16)
    assert all(part.is_meta for part in empty.parameters())
    assert empty(like, like, mask=CAUSAL).shape == expected.shape
    fresh = layer(case).float()
    with torch.no_grad():
        for part in fresh.parameters():
            part.add_(1.0)
    fresh.load_state_dict(module.state_dict())
    assert torch.equal(fresh(x, x, mask=CAUSAL), expected)


@few
def test_parametrized(case: tuple[str, str, str]) -> None:
    module, x = layer(case), states(2, 5, 8)
    expected = module(x, x)
    parametrizations.weight_norm(module.query_projection)
    parametrizations.weight_norm(module.output_projection)
    torch.testing.assert_close(module(x, x), expected)
    module(x, x).sum().backward()
    scale = module.query_projection.parametrizations.weight.original0
    assert scale.grad is not None
    assert scale.grad.any()


@few
def test_no_state_remains_after_a_call(case: tuple[str, str, str]) -> None:
    """As FSDP and DDP need it: parameters and buffers are all that a module has."""
    module, x = layer(case), states(2, 5, 8)
    before = {key: value for key, value in vars(module).items() if not key.startswith("_")}
    keys = set(module.state_dict())
    with watch(module):
        module(x, x, mask=CAUSAL)
    module(x, x, mask=CAUSAL).sum().backward()
    after = {key: value for key, value in vars(module).items() if not key.startswith("_")}
    assert before == after
    assert set(module.state_dict()) == keys
    unused = [name for name, part in module.named_parameters() if part.grad is None]
    assert not unused, "DDP would wait for these"


def test_the_cases_cover_all_parts() -> None:
    for index, kinds in enumerate((SCORES, NORMALIZERS, POSITIONS)):
        assert {case[index] for case in CASES} == set(kinds)
    assert len(set(CASES)) == len(CASES)
    assert set(itertools.chain(FEW)) <= set(CASES)
