"""Models of images: the hyper-network against its equations, Fourier features, patches."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from heedful.layers.hyper_kernel import HyperKernel
from heedful.layers.latents import fourier_features
from heedful.models import ImageModel, ImageSettings, ImageShape, build_image_model
from heedful.models.images import centred, in_patches

SHAPE = ImageShape(8, 12, 3)


def made(**given: Any) -> ImageModel:
    torch.manual_seed(5)
    settings = ImageSettings.model_validate(given)
    return build_image_model(settings, SHAPE, 5).double().eval()


def images(count: int = 3) -> torch.Tensor:
    generator = torch.Generator().manual_seed(6)
    return torch.randint(256, (count, *SHAPE[:3]), generator=generator, dtype=torch.uint8)


def test_a_hyper_network_computes_the_kernel_of_the_papers_equations() -> None:
    torch.manual_seed(7)
    own = HyperKernel(3, 4, 5, embedding=2, hidden=6).double()
    for parameter in own.parameters():
        torch.nn.init.normal_(parameter)
    expected = torch.empty(4, 3, 5, 5, dtype=torch.float64)
    for i in range(3):
        hidden = own.expand[i] @ own.embedding + own.expand_bias[i]  # equation 2
        expected[:, i] = (own.output @ hidden + own.output_bias).reshape(4, 5, 5)  # 3 and 4
    torch.testing.assert_close(own(), expected)
    probe = torch.randn_like(expected)
    got = torch.autograd.grad(own(), list(own.parameters()), probe)
    wanted = torch.autograd.grad(expected, list(own.parameters()), probe)
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, other)


def test_it_has_the_papers_number_of_weights() -> None:
    """Section 4.1: 4,244 instead of 12,544."""
    assert sum(one.numel() for one in HyperKernel(16, 16, 7).parameters()) == 4244
    assert 16 * 16 * 7 * 7 == 12544


def test_its_kernel_begins_with_the_spread_of_an_ordinary_one() -> None:
    torch.manual_seed(8)
    spreads = [HyperKernel(16, 16, 7, embedding=64, hidden=64)().std().item() for _ in range(5)]
    assert sum(spreads) / 5 == pytest.approx((2 / (16 * 49)) ** 0.5, rel=0.15)


def test_a_convolutional_network_uses_the_kernel() -> None:
    model: Any = made(kind="convolutional", channels=4, kernel_size=3, hyper_size=2)
    values = centred(images(), torch.float64).permute(0, 3, 1, 2)
    hidden = F.max_pool2d(model.first(values).relu(), 2)
    convolved = F.conv2d(hidden, model.hyper(), model.bias, padding=1)
    expected = model.output(F.max_pool2d(convolved.relu(), 2).flatten(1))
    torch.testing.assert_close(model(images()), expected)
    expected.sum().backward()
    assert all(one.grad is not None and one.grad.abs().sum() > 0 for one in model.parameters())
    plain: Any = made(kind="convolutional", channels=4, kernel_size=3)
    assert plain.hyper is None
    assert plain.second.weight.shape == model.hyper().shape


@pytest.mark.parametrize(("rows", "columns", "bands"), [(4, 6, 3), (1, 5, 2), (7, 1, 1)])
def test_fourier_features_are_the_papers(rows: int, columns: int, bands: int) -> None:
    found = fourier_features(rows, columns, bands)
    width = 2 * bands + 1
    assert found.shape == (rows * columns, 2 * width)
    for row in range(rows):
        for column in range(columns):
            expected = []
            for place, size in ((row, rows), (column, columns)):
                x = 2 * place / (size - 1) - 1 if size > 1 else 0.0
                top = max(1.0, size / 2)
                steps = [1 + k * (top - 1) / (bands - 1) if bands > 1 else 1.0
                         for k in range(bands)]  # fmt: skip
                expected += [math.sin(math.pi * f * x) for f in steps]
                expected += [math.cos(math.pi * f * x) for f in steps]
                expected.append(x)
            torch.testing.assert_close(found[row * columns + column], torch.tensor(expected))


def test_patches_are_cells_of_the_grid() -> None:
    own = images(2)
    found = in_patches(own, 4)
    assert found.shape == (2, 6, 48)
    torch.testing.assert_close(found[1, 4], own[1, 4:8, 4:8].flatten())  # row 2, column 2


def test_a_perceiver_reads_values_and_places() -> None:
    model: Any = made(
        kind="perceiver", patch_size=4, bands=2, latents=3, latent_size=8, layers=1, heads=2
    )
    assert model.grids == {"image": (2, 3)}
    values = in_patches(centred(images(), torch.float64), 4)
    inputs = torch.cat([values, fourier_features(2, 3, 2).double().expand(3, -1, -1)], 2)
    expected = model.output(model.array(inputs).mean(1))
    torch.testing.assert_close(model(images()), expected)
    swapped = images().roll(4, 2)  # the same patches at other places
    assert not torch.allclose(model(swapped), expected)
    assert model.attention_axes()["array.reads.0.attention"] == ("latents", "image")
