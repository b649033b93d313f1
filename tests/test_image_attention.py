"""Attention in models of images, against equations written as loops and against transformers."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.attention import MultiHeadAttention, watch
from heedful.attention.positions import Quadratic
from heedful.attention.scores import Additive, ScaledDot
from heedful.layers.channel_attention import (
    ConvolutionalBlockAttention,
    EfficientChannelAttention,
    SqueezeExcitation,
    channel_attention,
)
from heedful.layers.residual import ResidualNetwork, ResidualOptions
from heedful.models import ImageModel, ImageSettings, ImageShape, build_image_model

C, ROWS, COLUMNS = 6, 4, 5
KINDS = pytest.mark.parametrize("kind", ["se", "cbam", "eca"])


def sigmoid(x: Tensor) -> Tensor:
    return 1 / (1 + (-x).exp())


def perceptron(layer: Any, x: Tensor) -> Tensor:
    hidden = (layer.squeeze.weight @ x + layer.squeeze.bias).clamp(min=0)
    result: Tensor = layer.excite.weight @ hidden + layer.excite.bias
    return result


def by_equations(layer: Any, image: Tensor) -> Tensor:
    """One image ``[C, H, W]``; each equation channel by channel, place by place."""
    means = torch.stack([one.sum() / one.numel() for one in image])
    if isinstance(layer, SqueezeExcitation):
        return sigmoid(perceptron(layer, means))[:, None, None] * image
    if isinstance(layer, EfficientChannelAttention):
        weight = layer.neighbours.weight.flatten()
        reach = len(weight) // 2
        gates = []
        for channel in range(C):
            near = [
                weight[reach + shift] * means[channel + shift]
                for shift in range(-reach, reach + 1)
                if 0 <= channel + shift < C
            ]
            gates.append(sigmoid(torch.stack(near).sum()))
        return torch.stack(gates)[:, None, None] * image
    largest = torch.stack([one.flatten().sort().values[-1] for one in image])
    gates = sigmoid(perceptron(layer.channel, means) + perceptron(layer.channel, largest))
    image = gates[:, None, None] * image
    mean, most = image.sum(0) / C, image.sort(0).values[-1]
    kernel, bias = layer.spatial.around.weight[0], layer.spatial.around.bias
    rows = []
    for row in range(ROWS):
        for column in range(COLUMNS):
            total = bias[0]
            for down in range(-3, 4):
                for right in range(-3, 4):
                    y, x = row + down, column + right
                    if 0 <= y < ROWS and 0 <= x < COLUMNS:
                        total = total + kernel[0, down + 3, right + 3] * mean[y, x]
                        total = total + kernel[1, down + 3, right + 3] * most[y, x]
            rows.append(sigmoid(total) * image[:, row, column])
    return torch.stack(rows, 1).view(C, ROWS, COLUMNS)


@KINDS
def test_gates_are_those_of_the_papers_equations(kind: Any) -> None:
    torch.manual_seed(1)
    layer = channel_attention(kind, C, 3)
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    layer = layer.double()
    maps = torch.randn(2, C, ROWS, COLUMNS, dtype=torch.double, requires_grad=True)
    ours, theirs = layer(maps), torch.stack([by_equations(layer, one) for one in maps])
    torch.testing.assert_close(ours, theirs)
    probe, leaves = torch.randn_like(ours), [maps, *layer.parameters()]
    got, expected = (torch.autograd.grad((one * probe).sum(), leaves) for one in (ours, theirs))
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(("channels", "size"), [(16, 3), (64, 3), (128, 5), (256, 5), (512, 5)])
def test_the_number_of_neighbours_is_the_papers(channels: int, size: int) -> None:
    """Wang et al. 2020, equation 12: the odd number nearest to (log₂ C + 1) / 2."""
    assert EfficientChannelAttention(channels).neighbours.kernel_size == (size,)


def test_gates_can_be_watched() -> None:
    torch.manual_seed(2)
    layer = ConvolutionalBlockAttention(C, 2)
    maps = torch.rand(1, C, ROWS, COLUMNS)
    with watch(layer) as seen:
        found = layer(maps)
    assert seen["channel"][0].shape == (1, 1, 1, C)
    spatial = seen["spatial"][0].view(1, 1, ROWS, COLUMNS)
    expected = maps * seen["channel"][0].view(1, C, 1, 1) * spatial
    torch.testing.assert_close(found, expected)
    with watch(layer, rows=[0]) as some:
        layer(maps)
    with watch(layer, top_k=2) as most:
        layer(maps)
    for name in ("channel", "spatial"):
        torch.testing.assert_close(some[name], seen[name])
        torch.testing.assert_close(most.top[name][0].weights, seen[name][0].topk(2).values)


@pytest.mark.parametrize("bottleneck", [False, True])
def test_blocks_are_those_of_the_paper(bottleneck: bool) -> None:
    """He et al. 2016, figures 2 and 5, with group normalization."""
    torch.manual_seed(3)
    options = ResidualOptions(widths=(8, 16), blocks=(1, 1), bottleneck=bottleneck)
    network: Any = ResidualNetwork(3, options).double()
    image = torch.randn(2, 3, 9, 8, dtype=torch.double)
    hidden = network.stem_norm(F.conv2d(image, network.stem.weight, padding=1)).relu()
    for block, stride in zip(network.blocks, (1, 2), strict=True):
        weights = [one.weight for one in block.convolutions]
        strides = (1, stride, 1) if bottleneck else (stride, 1)
        x = hidden
        for number, (weight, own) in enumerate(zip(weights, strides, strict=True)):
            if number:
                x = x.relu()
            x = block.norms[number](F.conv2d(x, weight, stride=own, padding=weight.shape[-1] // 2))
        if isinstance(block.shortcut, nn.Sequential):
            conv, norm = block.shortcut
            hidden = norm(F.conv2d(hidden, conv.weight, stride=stride))
        hidden = (hidden + x).relu()
    torch.testing.assert_close(network(image), hidden)
    assert network.grid(9, 8) == tuple(hidden.shape[2:])
    alone = network(image[:1])
    torch.testing.assert_close(alone, hidden[:1])  # no statistics over the batch


def test_a_network_of_32_layers_has_the_papers_size() -> None:
    """He et al. 2016, table 6: 0.46 M parameters with 5 blocks a stage."""
    network = ResidualNetwork(3, ResidualOptions(blocks=(5, 5, 5)))
    count = sum(one.numel() for one in network.parameters()) + 10 * 65
    assert count == pytest.approx(0.46e6, rel=0.02)


SHAPE = ImageShape(8, 12, 3)


def made(**given: Any) -> ImageModel:
    torch.manual_seed(5)
    return build_image_model(ImageSettings.model_validate(given), SHAPE, 5).double().eval()


def images(count: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(6)
    return torch.randint(256, (count, *SHAPE[:3]), generator=generator, dtype=torch.uint8)


@KINDS
def test_a_residual_network_names_its_gates(kind: str) -> None:
    model: Any = made(kind="residual", widths=(4, 8), blocks=2, channel_attention=kind)
    axes = model.attention_axes()
    assert len(axes) == (8 if kind == "cbam" else 4)
    assert model.grids == {"image, 8 × 12": (8, 12), "image, 4 × 6": (4, 6)}
    with torch.no_grad(), watch(model, axes) as seen:
        model(images(1))
    widths = {"image, 8 × 12": 96, "image, 4 × 6": 24}
    for name, (_, keys) in axes.items():
        expected = widths.get(keys) or (4 if ".0." in name or ".1." in name else 8)
        assert seen[name][0].shape == (1, 1, 1, expected)


def test_a_vision_transformer_is_that_of_transformers() -> None:
    """ViTForImageClassification in float64: logits and gradients."""
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=24,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, image_size=(8, 12),
        patch_size=4, num_channels=3, num_labels=5, layer_norm_eps=1e-6,
    )  # fmt: skip
    torch.manual_seed(4)
    theirs: Any = transformers.ViTForImageClassification(config).double().eval()
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.3)
    ours: Any = made(
        kind="transformer", patch_size=4, layers=2, hidden_size=16, ffn_size=24, heads=4,
        pooling="class", dropout=0.0,
    )  # fmt: skip
    copied(theirs, ours)
    pixels = (images().double() / 127.5 - 1).permute(0, 3, 1, 2)
    expected, found = theirs(pixel_values=pixels).logits, ours(images())
    torch.testing.assert_close(found, expected)
    probe = torch.randn_like(expected)
    (expected * probe).sum().backward()
    (found * probe).sum().backward()
    layer, other = (
        ours.encoder.layers[0],
        theirs.vit.layers[0] if hasattr(theirs.vit, "layers") else theirs.vit.encoder.layer[0],
    )
    norm = other.layernorm_before.weight.grad
    torch.testing.assert_close(layer.around_self.norm.weight.grad, norm)
    embedded = theirs.vit.embeddings
    conv = embedded.patch_embeddings.projection.weight.grad
    patches = ours.encoder.patches.weight.grad.view(16, 4, 4, 3).permute(0, 3, 1, 2)
    torch.testing.assert_close(patches, conv)
    torch.testing.assert_close(ours.encoder.vector.grad, embedded.cls_token.grad[0, 0])


def copied(theirs: Any, ours: Any) -> None:
    """Copy the weights of transformers' model."""
    own = dict(theirs.named_parameters())
    state = {}

    def take(name: str, *found: Tensor) -> None:
        state[name] = torch.cat(found).detach()

    def at(*ends: str) -> Tensor:
        [name] = [name for name in own if any(name.endswith(end) for end in ends)]
        return own[name]

    conv = at("patch_embeddings.projection.weight")
    take("encoder.patches.weight", conv.permute(0, 2, 3, 1).reshape(16, -1))
    take("encoder.patches.bias", at("patch_embeddings.projection.bias"))
    take("encoder.vector", at("cls_token")[0, 0])
    places = at("position_embeddings")[0]
    take("encoder.positions.table.weight", places[1:], places[:1])
    for number in range(2):
        for kind in ("weight", "bias"):
            for mine, other in NAMES.items():
                ends = [f".{number}.{one}.{kind}" for one in other]
                take(f"encoder.layers.{number}.{mine}.{kind}", at(*ends))
    for kind in ("weight", "bias"):
        take(f"encoder.norm.{kind}", at(f"vit.layernorm.{kind}"))
        take(f"output.{kind}", at(f"classifier.{kind}"))
    ours.load_state_dict(state)


NAMES = {
    "self_attention.query_projection": ("attention.attention.query", "attention.q_proj"),
    "self_attention.key_projection": ("attention.attention.key", "attention.k_proj"),
    "self_attention.value_projection": ("attention.attention.value", "attention.v_proj"),
    "self_attention.output_projection": ("attention.output.dense", "attention.o_proj"),
    "feed_forward.expand": ("intermediate.dense", "mlp.fc1"),
    "feed_forward.contract": ("output.dense", "mlp.fc2"),
    "around_self.norm": ("layernorm_before",),
    "around_feed_forward.norm": ("layernorm_after",),
}


def test_quadratic_positions_are_the_papers() -> None:
    """Cordonnier et al. 2020, equation 9, for each pair of places."""
    torch.manual_seed(7)
    own = Quadratic(3, (4, 5)).double()
    nn.init.normal_(own.sharpness)
    found = own.bias(torch.zeros(2, 3, 20, 4).double(), 20, torch.arange(20), 1.0)
    for head in range(3):
        centre, alpha = own.centres[head], own.sharpness[head]
        v = -alpha * torch.cat([torch.ones(1).double(), -2 * centre])
        for query in range(20):
            for key in range(20):
                down, right = key // 5 - query // 5, key % 5 - query % 5
                r = torch.tensor([down**2 + right**2, down, right]).double()
                expected = v @ r - alpha * (centre**2).sum()
                torch.testing.assert_close(found[head, query, key], expected)


def test_without_content_only_positions_matter() -> None:
    torch.manual_seed(8)
    positions = Quadratic(2, (3, 4), content=False)
    heads = MultiHeadAttention(8, 2, positions=positions).double()
    x = torch.randn(2, 12, 8, dtype=torch.double)
    with watch(heads) as seen:
        heads(x, x)
    expected = positions.bias(x, 12, torch.arange(12), 1.0).softmax(-1)  # type: ignore[arg-type]
    torch.testing.assert_close(seen[""][0], expected.expand(2, -1, -1, -1))
    heads(x, x).sum().backward()
    assert positions.centres.grad is not None
    assert positions.centres.grad.abs().sum() > 0


def test_without_content_a_score_must_be_0() -> None:
    with pytest.raises(ValueError, match="content = false"):
        MultiHeadAttention(
            8, 2, score=Additive(4, 4, 3), positions=Quadratic(2, (3, 4), content=False)
        )
    MultiHeadAttention(8, 2, score=ScaledDot(), positions=Quadratic(2, (3, 4), content=False))


def test_sharp_heads_are_a_convolution_that_a_recipe_can_choose() -> None:
    """The network of section 4, with the centres of a 3 × 3 kernel."""
    model: Any = made(
        kind="transformer", patch_size=2, layers=1, hidden_size=27, ffn_size=8, heads=9,
        attention={"positions": {"name": "quadratic", "shape": (4, 6), "content": False}},
    )  # fmt: skip
    assert model.encoder.positions(torch.zeros(1)) == 0  # nothing is added to embeddings
    heads = model.encoder.layers[0].self_attention
    shifts = torch.cartesian_prod(torch.arange(-1.0, 2), torch.arange(-1.0, 2)).double()
    with torch.no_grad():
        heads.positions.centres.copy_(shifts)
        heads.positions.sharpness.fill_(60)
    x = torch.randn(1, 24, 27, dtype=torch.double)
    values = heads.value_projection(x).view(1, 4, 6, 9, 3)
    inside = x.new_zeros(1, 4, 6, 27)
    for head, (down, right) in enumerate(shifts.int().tolist()):
        for row in range(1, 3):
            for column in range(1, 5):
                own = values[0, row + down, column + right, head]
                inside[0, row, column, 3 * head : 3 * head + 3] = own
    found = heads(x, x).view(1, 4, 6, 27)[:, 1:3, 1:5]
    torch.testing.assert_close(found, heads.output_projection(inside)[:, 1:3, 1:5])
