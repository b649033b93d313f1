"""K² heads, each of which attends to one shift of the query's pixel, are a K × K convolution.

Cordonnier, Loukas, Jaggi 2020, "On the Relationship between Self-Attention and Convolutional
Layers", Theorem 1 with Lemmas 1 and 2, equation 9; explained in docs/convolution.md. Against
``torch.nn.functional.conv2d`` in float64: outputs and gradients.
"""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.attention import MultiHeadAttention, attend, attention_weights
from heedful.attention.normalizers import Hard, Normalizer, Softmax
from heedful.attention.positions import RelativePositions
from heedful.attention.scores import Gaussian

B, C_IN, C_OUT, HEIGHT, WIDTH = 2, 3, 5, 6, 7
ALPHA = 50.0
"""A neighbour of the wanted pixel weighs e^−50: nothing beside 1 in float64."""
ROUNDING = {"rtol": 1e-12, "atol": 1e-12}

KERNELS = pytest.mark.parametrize(("size", "dilation"), [(1, 1), (3, 1), (5, 1), (3, 2)])


def shifts(size: int, dilation: int = 1) -> Tensor:
    """Δ of each head, rows and columns ``[K², 2]``, in the order of a kernel's numbers."""
    reach = size // 2
    places = range(-reach, reach + 1)
    return dilation * torch.tensor(list(itertools.product(places, places)))


class Shifts(RelativePositions):
    """Scores −α (‖δ‖² − 2 Δ_h · δ) for keys that lie δ from the query's pixel (equation 9)."""

    def __init__(self, width: int, shifts: Tensor, alpha: float = ALPHA) -> None:
        super().__init__()
        self.width = width
        self.v = -alpha * torch.cat([torch.ones(len(shifts), 1), -2.0 * shifts], dim=1).double()

    def bias(self, query: Tensor, keys: int, positions: Tensor, scale: float) -> Tensor:
        pixels, here = torch.arange(keys), positions.unsqueeze(-1)
        down = pixels // self.width - here // self.width
        right = pixels % self.width - here % self.width
        r = torch.stack([down**2 + right**2, down, right]).double()  # [3, Q, K]
        return torch.einsum("hc,cqk->hqk", self.v, r)


def convolution(size: int, dilation: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """An image, a kernel, its bias, and what conv2d makes of them, of the image's size."""
    torch.manual_seed(1)
    image = torch.randn(B, C_IN, HEIGHT, WIDTH, dtype=torch.float64, requires_grad=True)
    kernel = torch.randn(C_OUT, C_IN, size, size, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(C_OUT, dtype=torch.float64, requires_grad=True)
    reach = dilation * (size // 2)
    return image, kernel, bias, F.conv2d(image, kernel, bias, padding=reach, dilation=dilation)


def as_matrix(kernel: Tensor) -> Tensor:
    """The kernel as the matrix over the joined heads, ``[C_OUT, K² · C_IN]``."""
    return kernel.permute(0, 2, 3, 1).flatten(1)


def with_kernel(heads: MultiHeadAttention, kernel: Tensor, bias: Tensor) -> MultiHeadAttention:
    """Queries and keys that say nothing (W_qry = W_key = 0), values as they are, W_out = kernel."""
    heads.double()
    with torch.no_grad():
        for part in (heads.query_projection, heads.key_projection):
            part.weight.zero_()
        heads.value_projection.weight.copy_(torch.eye(C_IN).repeat(heads.heads, 1))
        heads.output_projection.weight.copy_(as_matrix(kernel))
        heads.output_projection.bias.copy_(bias)
    return heads


def pixels(image: Tensor) -> Tensor:
    """``[B, C, height, width] -> [B, height · width, C]``."""
    return image.flatten(2).transpose(1, 2)


def check_gradients(
    found: Tensor, expected: Tensor, image: Tensor, ours: Tensor, kernel: Tensor
) -> None:
    """Of the image, and of the kernel: a convolution's ``kernel``, and the matrix that is ours."""
    loss = torch.linspace(-1, 1, found.numel(), dtype=torch.float64).view(found.shape)
    by_image, by_matrix = torch.autograd.grad((found * loss).sum(), [image, ours])
    expected_by_image, by_kernel = torch.autograd.grad((expected * loss).sum(), [image, kernel])
    torch.testing.assert_close(by_image, expected_by_image, **ROUNDING)
    torch.testing.assert_close(by_matrix, as_matrix(by_kernel), **ROUNDING)


@KERNELS
@pytest.mark.parametrize("normalize", [Softmax(), Hard()], ids=lambda part: type(part).__name__)
def test_heads_over_a_padded_image_are_a_convolution(
    size: int, dilation: int, normalize: Normalizer
) -> None:
    image, kernel, bias, expected = convolution(size, dilation)
    reach = dilation * (size // 2)
    padded = F.pad(image, [reach] * 4)
    heads = MultiHeadAttention(
        C_OUT,
        size**2,
        key_dim=C_IN,
        head_dim=C_IN,
        normalize=normalize,
        positions=Shifts(padded.shape[-1], shifts(size, dilation)),
    )
    with_kernel(heads, kernel, bias)
    keys = pixels(padded)
    found = heads(keys.new_zeros(*keys.shape[:2], C_OUT), keys)
    found = found.transpose(1, 2).unflatten(2, padded.shape[-2:])
    found = found[..., reach : HEIGHT + reach, reach : WIDTH + reach]
    torch.testing.assert_close(found, expected, **ROUNDING)
    check_gradients(found, expected, image, heads.output_projection.weight, kernel)


@KERNELS
def test_a_head_whose_pixel_lies_outside_gives_zeros(size: int, dilation: int) -> None:
    """No padding: such a query may attend to nothing, so its context is zero, as a border's."""
    image, kernel, bias, expected = convolution(size, dilation)
    delta = shifts(size, dilation)
    heads = MultiHeadAttention(
        C_OUT, size**2, key_dim=C_IN, head_dim=C_IN, positions=Shifts(WIDTH, delta)
    )
    with_kernel(heads, kernel, bias)
    wanted = coordinates() + delta.unsqueeze(1)  # [K², Q, 2]
    inside = ((wanted >= 0) & (wanted < torch.tensor([HEIGHT, WIDTH]))).all(-1)
    keys = pixels(image)
    mask = inside[None, ..., None]  # [1, K², Q, 1]
    found = heads(keys.new_zeros(B, HEIGHT * WIDTH, C_OUT), keys, mask=mask)
    found = found.transpose(1, 2).unflatten(2, (HEIGHT, WIDTH))
    torch.testing.assert_close(found, expected, **ROUNDING)
    check_gradients(found, expected, image, heads.output_projection.weight, kernel)


def coordinates(height: int = HEIGHT, width: int = WIDTH) -> Tensor:
    """Row and column of each pixel, ``[height · width, 2]``."""
    return torch.cartesian_prod(torch.arange(height), torch.arange(width))


@KERNELS
def test_sharp_gaussians_of_coordinates_are_a_convolution(size: int, dilation: int) -> None:
    """The same by a score: a query is the place it looks for, a key the place where it is."""
    image, kernel, bias, expected = convolution(size, dilation)
    reach = dilation * (size // 2)
    places = coordinates(HEIGHT + 2 * reach, WIDTH + 2 * reach).double()
    wanted = coordinates().double() + reach + shifts(size, dilation).unsqueeze(1)  # [K², Q, 2]
    values = pixels(F.pad(image, [reach] * 4)).unsqueeze(1)  # [B, 1, keys, C_IN]
    context = attend(wanted, places, values, score=Gaussian(width=(2 * ALPHA) ** -0.5))
    joined = context.transpose(1, 2).flatten(2)  # [B, Q, K² · C_IN]
    matrix = as_matrix(kernel).detach().requires_grad_()
    found = (joined @ matrix.T + bias).transpose(1, 2).unflatten(2, (HEIGHT, WIDTH))
    torch.testing.assert_close(found, expected, **ROUNDING)
    check_gradients(found, expected, image, matrix, kernel)


def test_each_head_reads_one_pixel() -> None:
    """Lemma 1's condition: weight 1 for the pixel at the head's shift, 0 for all others."""
    keys = torch.zeros(HEIGHT * WIDTH, C_IN, dtype=torch.float64)
    delta = shifts(3)
    queries = keys.expand(len(delta), -1, -1)
    weights = attention_weights(queries, keys, positions=Shifts(WIDTH, delta))
    here = 2 * WIDTH + 3  # an inner pixel
    for head, (down, right) in enumerate(delta.tolist()):
        row = weights[head, here]
        assert row[here + down * WIDTH + right] == 1
        assert row.sum() == pytest.approx(1, abs=1e-15)
