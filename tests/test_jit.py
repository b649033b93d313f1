"""Modules traced by the deprecated ``torch.jit.trace`` can be saved and loaded."""

import io

import pytest
import torch
from torch import Tensor, nn

from heedful.attention import Attention, MultiHeadAttention, masks, positions
from test_meta import SCORES

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")


class Padded(nn.Module):
    """Attention to the texts of a batch."""

    def __init__(self, attention: nn.Module, mask: masks.Mask | None) -> None:
        super().__init__()
        self.attention, self.mask = attention, mask

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.attention(x, x, mask=self.mask)
        return result


def saved_and_loaded(module: nn.Module, x: Tensor) -> nn.Module:
    file = io.BytesIO()
    torch.jit.save(torch.jit.trace(module, (x,)), file)
    file.seek(0)
    loaded: nn.Module = torch.jit.load(file)
    return loaded


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("length", [6, 70])
@pytest.mark.parametrize("mask", [None, "padding"])
@pytest.mark.parametrize("name", [*SCORES, "rotary", "buckets", "one head"])
def test_a_traced_module_is_saved_and_computes_the_same(
    name: str, mask: str | None, length: int
) -> None:
    torch.manual_seed(1)
    if name == "Location":
        length = 6
    modules = {
        "rotary": lambda: MultiHeadAttention(8, heads=2, positions=positions.Rotary(4)),
        "buckets": lambda: MultiHeadAttention(8, heads=2, positions=positions.T5Buckets(2)),
        "one head": Attention,
    }
    if name in SCORES:
        modules[name] = lambda: MultiHeadAttention(8, heads=2, score=SCORES[name]())
    padding = masks.padding(torch.tensor([length, length - 2])) if mask else None
    module = Padded(modules[name](), padding)
    x, other = torch.rand(2, length, 8), torch.rand(2, length, 8)
    loaded = saved_and_loaded(module, x)
    torch.testing.assert_close(loaded(other), module(other), rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(loaded(other), module(other), rtol=1e-4, atol=1e-5)
