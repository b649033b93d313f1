"""The Conformer's block, against transformers and against the paper's equations."""

from typing import Any, cast

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import Wav2Vec2ConformerConfig
from transformers.models.wav2vec2_conformer import modeling_wav2vec2_conformer as theirs

from heedful.attention.positions import PositionSettings
from heedful.attention.settings import AttentionSettings
from heedful.layers.conformer import ConformerLayer, ConvolutionModule
from heedful.layers.transformer import BlockOptions
from heedful.models import SpeechSettings

WIDTH, HEADS, INNER, KERNEL, LENGTH = 12, 3, 20, 5, 9


def our_layer() -> ConformerLayer:
    torch.manual_seed(1)
    relative = PositionSettings.model_validate("transformer-xl")
    attention = AttentionSettings(heads=HEADS, positions=relative)
    layer = ConformerLayer(
        BlockOptions(WIDTH, INNER, activation="silu"), attention, kernel=KERNEL
    ).double()
    for own in layer.parameters():
        own.data = 0.4 * torch.randn_like(own)
    return layer


def their_layer(ours: ConformerLayer) -> Any:
    """The layer of transformers with the same weights, without batch normalization."""
    config = cast(Any, Wav2Vec2ConformerConfig)(
        hidden_size=WIDTH, num_attention_heads=HEADS, intermediate_size=INNER, hidden_act="swish",
        conv_depthwise_kernel_size=KERNEL, position_embeddings_type="relative",
        attention_dropout=0.0, hidden_dropout=0.0, activation_dropout=0.0,
        conformer_conv_dropout=0.0, attn_implementation="eager",
    )  # fmt: skip
    layer = cast(Any, theirs).Wav2Vec2ConformerEncoderLayer(config).double()
    layer.conv_module.batch_norm = nn.Identity()
    heads: Any = ours.self_attention
    pairs = [
        (layer.ffn1_layer_norm, ours.around_before.norm), (layer.ffn2_layer_norm,
                                                           ours.around_after.norm),
        (layer.ffn1.intermediate_dense, ours.before.expand),
        (layer.ffn1.output_dense, ours.before.contract),
        (layer.ffn2.intermediate_dense, ours.after.expand),
        (layer.ffn2.output_dense, ours.after.contract),
        (layer.self_attn_layer_norm, ours.around_self.norm),
        (layer.conv_module.layer_norm, ours.around_convolution.norm),
        (layer.conv_module.depthwise_conv, ours.convolution.depthwise),
        (layer.final_layer_norm, ours.norm),
        (layer.self_attn.linear_out, heads.output_projection),
    ]  # fmt: skip
    for one, own in pairs:
        one.load_state_dict(own.state_dict())
    for name in ("query", "key", "value"):
        own = getattr(heads, f"{name}_projection")
        getattr(layer.self_attn, f"linear_{name[0]}").load_state_dict(own.state_dict())
    layer.conv_module.pointwise_conv1.weight.data = ours.convolution.expand.weight.data[..., None]
    layer.conv_module.pointwise_conv2.weight.data = ours.convolution.contract.weight.data[..., None]
    positions = heads.positions
    layer.self_attn.pos_bias_u.data = positions.content_bias.data
    layer.self_attn.pos_bias_v.data = positions.position_bias.data
    # Ours: all sines, then all cosines. Theirs: in turn.
    sines, cosines = positions.projection.data.reshape(WIDTH, WIDTH).chunk(2, 1)
    layer.self_attn.linear_pos.weight.data = torch.stack([sines, cosines], 2).flatten(1)
    return layer


def distances(length: int) -> Tensor:
    """Their embeddings of the distances from length − 1 to −(length − 1), in float64."""
    places = torch.arange(length - 1, -length, -1, dtype=torch.float64)
    rates = 10_000 ** (-torch.arange(0, WIDTH, 2, dtype=torch.float64) / WIDTH)
    angles = places[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], 2).flatten(1)[None]


def test_the_block_is_that_of_transformers() -> None:
    """Outputs and gradients of the input and all weights; the norm in the convolution apart."""
    ours = our_layer()
    other = their_layer(ours)
    ours.convolution.norm = nn.Identity()  # type: ignore[assignment]
    given = torch.randn(2, LENGTH, WIDTH, dtype=torch.float64, requires_grad=True)
    again = given.detach().clone().requires_grad_()
    found = ours(given, None)
    expected = other(again, relative_position_embeddings=distances(LENGTH))
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    upstream = torch.randn_like(found)
    found.backward(upstream)
    expected.backward(upstream)
    torch.testing.assert_close(given.grad, again.grad, rtol=1e-9, atol=1e-9)
    named, positions = dict(other.named_parameters()), cast(Any, ours.self_attention).positions
    for name, own in (
        ("ffn1.intermediate_dense.weight", ours.before.expand.weight),
        ("ffn2.output_dense.bias", ours.after.contract.bias),
        ("conv_module.depthwise_conv.weight", ours.convolution.depthwise.weight),
        ("conv_module.layer_norm.weight", ours.around_convolution.norm.weight),
        ("self_attn.pos_bias_u", positions.content_bias),
        ("self_attn.pos_bias_v", positions.position_bias),
        ("final_layer_norm.bias", ours.norm.bias),
    ):
        torch.testing.assert_close(own.grad, named[name].grad, rtol=1e-9, atol=1e-9)


def test_the_convolution_is_the_papers() -> None:
    """Figure 2 as a loop, and positions after the end of a sound do not count."""
    torch.manual_seed(2)
    module = ConvolutionModule(6, kernel=3).double()
    module.norm.weight.data.normal_()
    given = torch.randn(2, 5, 6, dtype=torch.float64)
    lengths = [5, 3]
    there = torch.arange(5) < torch.tensor(lengths)[:, None]
    found = module(given, there)
    for row, length in enumerate(lengths):
        wide = given[row, :length] @ module.expand.weight.T
        gated = wide[:, :6] * torch.sigmoid(wide[:, 6:])
        for place in range(length):
            mixed = sum(
                (module.depthwise.weight[:, 0, tap] * gated[place + tap - 1]
                 for tap in range(3) if 0 <= place + tap - 1 < length),
                torch.zeros(6, dtype=torch.float64),
            )  # fmt: skip
            normed = F.layer_norm(mixed, (6,), module.norm.weight, module.norm.bias)
            own = module.contract.weight @ (normed * torch.sigmoid(normed))
            torch.testing.assert_close(found[row, place], own)
    with pytest.raises(ValueError, match="must be odd, not 4"):
        ConvolutionModule(6, kernel=4)


def test_settings() -> None:
    conformer = {"kind": "transformer", "encoder": "conformer"}
    made: Any = SpeechSettings.model_validate(conformer)
    assert made.activation == "silu"
    assert SpeechSettings.model_validate(made.model_dump()) == made
    own: Any = SpeechSettings.model_validate({**conformer, "activation": "relu"})
    assert own.activation == "relu"
    for change, reason in (({"kernel_size": 4}, "odd, not 4"), ({"pre_norm": False}, "pre_norm")):
        with pytest.raises(ValueError, match=reason):
            SpeechSettings.model_validate({**conformer, **change})
