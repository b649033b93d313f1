"""Perceiver and Perceiver IO: against transformers, and against a plain loop."""

from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from heedful.attention import watch
from heedful.models import EncoderSettings, build_encoder
from heedful.models.encoders import sequences_of
from heedful.models.perceiver import Perceiver, PerceiverSettings

TEXTS = [[7, 9, 11, 8], [8, 30], [12]]
SMALL = {
    "hidden_size": 6,
    "latents": 5,
    "latent_size": 8,
    "layers": 2,
    "heads": 2,
    "ffn_size": 16,
    "max_length": 12,
    "dropout": 0.0,
}


def made(**given: Any) -> Perceiver:
    torch.manual_seed(4)
    settings = PerceiverSettings(**{**SMALL, **given})
    model = Perceiver(settings, 40).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return model


def copy_attention(ours: Any, theirs: Any) -> list[tuple[Tensor, Tensor]]:
    """Copy the weights of an attention with its norms; returns the pairs of parameters."""
    inner = theirs.attention.self
    parts = [
        (ours.query_projection, inner.query),
        (ours.key_projection, inner.key),
        (ours.value_projection, inner.value),
        (ours.output_projection, theirs.attention.output.dense),
    ]
    return [pair for one, other in parts for pair in copied(one, other)]


def copied(ours: Any, theirs: Any) -> list[tuple[Tensor, Tensor]]:
    with torch.no_grad():
        theirs.weight.copy_(ours.weight)
        theirs.bias.copy_(ours.bias)
    return [(ours.weight, theirs.weight), (ours.bias, theirs.bias)]


def copy_reading(ours: Any, theirs: Any) -> list[tuple[Tensor, Tensor]]:
    return [
        *copy_attention(ours.attention, theirs),
        *copied(ours.query_norm, theirs.attention.self.layernorm1),
        *copied(ours.input_norm, theirs.attention.self.layernorm2),
        *copied(ours.feed_forward_norm, theirs.layernorm),
        *copied(ours.feed_forward.expand, theirs.mlp.dense1),
        *copied(ours.feed_forward.contract, theirs.mlp.dense2),
    ]


def copy_layer(ours: Any, theirs: Any) -> list[tuple[Tensor, Tensor]]:
    return [
        *copy_attention(ours.self_attention, theirs),
        *copied(ours.around_self.norm, theirs.attention.self.layernorm1),
        *copied(ours.around_feed_forward.norm, theirs.layernorm),
        *copied(ours.feed_forward.expand, theirs.mlp.dense1),
        *copied(ours.feed_forward.contract, theirs.mlp.dense2),
    ]


def test_it_is_transformers_perceiver() -> None:
    """The encoder and the decoder of Perceiver IO for language: outputs and all gradients."""
    pytest.importorskip("transformers")
    from transformers import PerceiverConfig
    from transformers.models.perceiver.modeling_perceiver import (
        PerceiverBasicDecoder,
        PerceiverEncoder,
    )

    model = made(segments=1)
    config = PerceiverConfig(
        num_latents=5,
        d_latents=8,
        d_model=6,
        num_blocks=1,
        num_self_attends_per_block=2,
        num_self_attention_heads=2,
        num_cross_attention_heads=1,
        cross_attention_shape_for_attention="q",
        self_attention_widening_factor=2,
        cross_attention_widening_factor=2,
        hidden_act="gelu",
        attention_probs_dropout_prob=0.0,
    )
    encoder = PerceiverEncoder(config, kv_dim=6).double().eval()
    decoder = PerceiverBasicDecoder(
        config,
        output_num_channels=6,
        output_index_dims=12,
        num_channels=6,
        qk_channels=6,
        v_channels=6,
        num_heads=1,
        widening_factor=1,
        use_query_residual=False,
        final_project=False,
        position_encoding_type="trainable",
        trainable_position_encoding_kwargs={"num_channels": 6, "index_dims": 12},
    )
    reading = decoder.decoding_cross_attention
    reading.mlp.dense1, reading.mlp.dense2 = nn.Linear(6, 16), nn.Linear(16, 6)
    decoder.double().eval()
    pairs = copy_reading(model.array.reads[0], encoder.cross_attention)
    for ours, theirs in zip(model.array.layers, encoder.self_attends, strict=True):
        pairs += copy_layer(ours, theirs)
    pairs += copy_reading(model.outputs, reading)

    batch = sequences_of(TEXTS)
    mask = (torch.arange(batch.tokens.shape[1]) < batch.lengths[:, None]).double()
    embedded = model.embeddings(batch.tokens, batch.segments)
    latents = model.array.latents.expand(3, -1, -1)
    read = encoder(
        latents, inputs=embedded, inputs_mask=(1 - mask)[:, None, None] * torch.finfo().min
    )
    queries = model._queries(batch.tokens)
    expected = decoder(queries, read.last_hidden_state).logits
    found = model(batch)
    torch.testing.assert_close(found.states, expected)
    torch.testing.assert_close(found.pooled, read.last_hidden_state.mean(1))
    probe = torch.randn_like(expected)
    got = torch.autograd.grad(found.states, [one for one, _ in pairs], probe)
    wanted = torch.autograd.grad(expected, [one for _, one in pairs], probe)
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("reads", [1, 2, 4])
def test_reads_are_repeated_with_the_weights_of_the_second(reads: int) -> None:
    """As in the paper, every part after the first read shares its weights."""
    model = made(reads=reads)
    batch = sequences_of(TEXTS)
    inputs = model.embeddings(batch.tokens, batch.segments)
    expected = model.array.latents.expand(3, -1, -1)
    padding = torch.arange(inputs.shape[1]) < batch.lengths[:, None]
    for number in range(reads):
        part: Any = model.array.reads[0 if number == 0 else 1]
        expected = plain_reading(part, expected, inputs, padding)
        for layer in model.array.layers:
            expected = layer(expected, None)
    torch.testing.assert_close(model(batch).pooled, expected.mean(1))
    assert len(model.array.reads) == min(reads, 2)


def plain_reading(part: Any, latents: Tensor, inputs: Tensor, exists: Tensor) -> Tensor:
    """One head, by the equation."""
    own = part.attention
    queries = own.query_projection(part.query_norm(latents))
    keys = own.key_projection(part.input_norm(inputs))
    values = own.value_projection(part.input_norm(inputs))
    scores = queries @ keys.mT / keys.shape[-1] ** 0.5
    weights = scores.masked_fill(~exists[:, None], -torch.inf).softmax(-1)
    hidden = latents + own.output_projection(weights @ values)
    result: Tensor = hidden + part.feed_forward(part.feed_forward_norm(hidden))
    return result


@pytest.mark.parametrize("queries", ["positions", "tokens"])
def test_padding_and_neighbours_do_not_count(queries: str) -> None:
    model = made(reads=2, output_queries=queries)
    whole = model(sequences_of(TEXTS))
    for row, text in enumerate(TEXTS):
        alone = model(sequences_of([text]))
        torch.testing.assert_close(whole.states[row, : len(text) + 2], alone.states[0])
        torch.testing.assert_close(whole.pooled[row], alone.pooled[0])


def test_all_parameters_learn_and_have_a_depth() -> None:
    model = made(reads=3)
    found = model(sequences_of(TEXTS, [[5], [6], [4, 3]]))
    (found.states.square().mean() + found.pooled.square().mean()).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name
    depths = {name.partition(".")[0]: model.depth(name) for name, _ in model.named_parameters()}
    assert depths["embeddings"] == 0
    assert model.depth("array.latents") == model.depth("array.reads.1.query_norm.bias") == 1
    assert model.depth("array.layers.1.feed_forward.expand.weight") == 3
    assert depths["outputs"] == depths["output_positions"] == 4
    assert model.depths == 5


def test_its_weights_are_watched() -> None:
    model = made(reads=3)
    with watch(model, model.attention_axes()) as seen:
        model(sequences_of([[7, 9]]))
    shapes = {name: [tuple(one.shape) for one in calls] for name, calls in seen.items()}
    assert shapes["array.reads.0.attention"] == [(1, 1, 5, 4)]
    assert shapes["array.reads.1.attention"] == [(1, 1, 5, 4)] * 2
    assert shapes["array.layers.1.self_attention"] == [(1, 2, 5, 5)] * 3
    assert shapes["outputs.attention"] == [(1, 1, 4, 5)]


REFUSED = {
    "no positions": ({"positions": "none"}, "positions that are added"),
    "relative positions": ({"positions": "rotary"}, "positions that are added"),
    "positions of latents": ({"attention": {"positions": "alibi"}}, "latents have no order"),
    "a mask of latents": ({"attention": {"mask": "causal"}}, "latents have no order"),
    "linear reading": ({"attention": {"cross": {"kind": "linear"}}}, "is for self-attention"),
    "heads": ({"heads": 3}, "not a multiple"),
    "cross heads": ({"cross_heads": 4}, "not a multiple"),
    "a causal rule": ({"attention": {"kind": "delta"}}, "causal"),
}


@pytest.mark.parametrize(("given", "message"), REFUSED.values(), ids=REFUSED)
def test_what_does_not_fit_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        EncoderSettings.model_validate({"kind": "perceiver", **SMALL, **given})


def test_parts_of_its_attention_are_chosen() -> None:
    given = {"normalizer": "entmax15", "cross": {"score": "additive"}}
    settings = EncoderSettings.model_validate({"kind": "perceiver", **SMALL, "attention": given})
    model: Any = build_encoder(settings, 40)
    assert type(model.array.layers[0].self_attention.normalize).__name__ == "Entmax15"
    assert type(model.array.reads[0].attention.score).__name__ == "Additive"
    assert model(sequences_of(TEXTS)).pooled.isfinite().all()
