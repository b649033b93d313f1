"""Modules built on the meta device and filled by a state dict compute as those built on the CPU."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn

from heedful.attention import (
    Attention,
    MultiHeadAttention,
    Pointer,
    RecurrentAttention,
    disagreement,
    linear_attend,
    linear_read,
    linear_state,
    linear_weights,
    normalizers,
    positions,
    scores,
)
from heedful.models.encoders import Sequences
from heedful.models.hierarchical import HierarchicalEncoder, HierarchicalSettings

SCORES: dict[str, Callable[[], scores.Score]] = {
    "ScaledDot": scores.ScaledDot,
    "Dot": scores.Dot,
    "ExpDot": scores.ExpDot,
    "General": lambda: scores.General(4, 4),
    "Trilinear": lambda: scores.Trilinear(4),
    "Additive": lambda: scores.Additive(4, 4, 6),
    "Additive, summed": lambda: scores.Additive(4, 4, 6, vector=False),
    "Concat": lambda: scores.Concat(4, 4, 6),
    "Cosine": lambda: scores.Cosine(2.0),
    "Cosine, learned": lambda: scores.Cosine(2.0, learned=True),
    "Gaussian": scores.Gaussian,
    "Location": lambda: scores.Location(4, 7),
    "SoftCapped": lambda: scores.SoftCapped(cap=2.0),
}
NORMALIZERS: dict[str, Callable[[], normalizers.Normalizer]] = {
    "Softmax": lambda: normalizers.Softmax(2.0),
    "SoftmaxOffByOne": normalizers.SoftmaxOffByOne,
    "SinkSoftmax": lambda: normalizers.SinkSoftmax(2),
    "Smoothed": normalizers.Smoothed,
    "PlainSum": normalizers.PlainSum,
    "Sparsemax": normalizers.Sparsemax,
    "Entmax15": normalizers.Entmax15,
    "Entmax": lambda: normalizers.Entmax(1.3),
    "Entmax, learned": lambda: normalizers.Entmax(1.3, learned=True),
    "Entmax, a tensor": lambda: normalizers.Entmax(
        torch.tensor([1.2, 1.7], device="cpu").view(2, 1, 1)
    ),
    "Hard": normalizers.Hard,
    "LocalMonotonic": lambda: normalizers.LocalMonotonic(2),
    "LocalPredictive": lambda: normalizers.LocalPredictive(4, 4, 2),
}
POSITIONS: dict[str, Callable[[], positions.RelativePositions]] = {
    "Rotary": lambda: positions.Rotary(4),
    "Shaw": lambda: positions.Shaw(4, 3),
    "ALiBi": lambda: positions.ALiBi(2),
    "T5Buckets": lambda: positions.T5Buckets(2),
    "TransformerXL": lambda: positions.TransformerXL(4, 2),
    "GridRotary": lambda: positions.GridRotary(4, (2, 4)),
}
MODULES: dict[str, Callable[[], nn.Module]] = {
    **{f"score {name}": lambda made=made: heads(score=made()) for name, made in SCORES.items()},
    **{
        f"normalizer {name}": lambda made=made: heads(normalize=made())
        for name, made in NORMALIZERS.items()
    },
    **{
        f"positions {name}": lambda made=made: heads(positions=made())
        for name, made in POSITIONS.items()
    },
    "positions Sinusoidal": lambda: Embedded(positions.Sinusoidal(8)),
    "positions Learned": lambda: Embedded(positions.Learned(8, 10)),
}


class Embedded(nn.Module):
    def __init__(self, places: nn.Module) -> None:
        super().__init__()
        self.places, self.attention = places, Attention()

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        result: Tensor = self.attention(self.places(query), self.places(key))
        return result


def heads(**parts: nn.Module) -> MultiHeadAttention:
    return MultiHeadAttention(8, heads=2, **parts)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def fill_what_is_empty() -> Iterator[None]:
    """Memory that nobody has filled holds NaN, or the largest integer."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def by_way_of_meta(build: Callable[[], nn.Module], usual: nn.Module) -> nn.Module:
    with torch.device("meta"):
        made = build()
    made.to_empty(device="cpu").load_state_dict(usual.state_dict())
    return made.eval()


@pytest.mark.parametrize("name", MODULES)
def test_the_same_outputs(name: str) -> None:
    torch.manual_seed(1)
    usual = MODULES[name]().eval()
    for parameter in usual.parameters():
        parameter.data.uniform_(-0.5, 0.5)
    query, key = torch.rand(2, 5, 8), torch.rand(2, 6, 8)
    made = by_way_of_meta(MODULES[name], usual)
    assert made(query, key).equal(usual(query, key))
    assert list(made.state_dict()) == list(usual.state_dict())
    exact = made.double()(query.double(), key.double())
    torch.testing.assert_close(exact, usual.double()(query.double(), key.double()))
    usual.to_empty(device="cpu").load_state_dict(made.state_dict())
    assert usual(query.double(), key.double()).equal(exact)


def test_a_model_that_reads_sentence_by_sentence() -> None:
    torch.manual_seed(2)
    settings = HierarchicalSettings.model_validate({})
    usual = HierarchicalEncoder(settings, 20, [7, 9]).eval()
    made = by_way_of_meta(lambda: HierarchicalEncoder(settings, 20, [9, 7]), usual)
    assert isinstance(made, HierarchicalEncoder)
    assert made.sentence_ends.tolist() == [7, 9]
    tokens = torch.tensor([[3, 5, 7, 6, 9, 2]])
    batch = Sequences(tokens, torch.tensor([6]), torch.zeros_like(tokens))
    assert made.encode(batch).states.equal(usual.encode(batch).states)


def test_an_alpha_without_values_is_refused() -> None:
    with pytest.raises(ValueError, match="meta device and has no values; create it on the CPU"):
        normalizers.Entmax(torch.full((2, 1, 1), 1.5, device="meta"))
    learned = normalizers.Entmax(torch.full((2, 1, 1), 1.5, device="meta"), learned=True)
    assert learned.raw_alpha.is_meta


def test_parts_without_autocast_on_meta() -> None:
    """Autocast does not exist on this device, so that it cannot be disabled there."""
    x = torch.rand(2, 5, 4, device="meta")
    half = x.half()
    assert linear_attend(x, x, x).shape == linear_attend(half, half, half).shape == (2, 5, 4)
    assert linear_weights(x, x).shape == (2, 5, 5)
    assert disagreement(x).shape == (2,)
    assert linear_read(x, linear_state(x, x)).is_meta
    assert Pointer()(half, half).is_meta
    assert RecurrentAttention(scores.ScaledDot())(half, half).is_meta
