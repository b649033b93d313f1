"""The Transformer: sizes by the formula, steps against teacher forcing, no influence of padding."""

from typing import Any

import pytest
import torch
import transformers

from heedful.attention import Memory
from heedful.basics.symbols import BEGIN, PAD
from heedful.inference.fusing import searched
from heedful.interop.layouts import t5
from heedful.layers.caches import KeyValueCache
from heedful.models.pairs import Source
from heedful.models.transformer import Transformer, TransformerSettings


def small(**options: object) -> Transformer:
    torch.manual_seed(1)
    settings = TransformerSettings(
        layers=2, hidden_size=16, ffn_size=24, heads=2, dropout=0.0, **options
    )
    return Transformer(settings, 30, 30).double().eval()


def source_of(rows: list[list[int]]) -> Source:
    width = max(map(len, rows))
    tokens = torch.tensor([row + [PAD] * (width - len(row)) for row in rows])
    return Source(tokens, torch.tensor([len(row) for row in rows]))


def test_base_has_exactly_the_formulas_parameters() -> None:
    settings = TransformerSettings(size="base")
    with torch.device("meta"):
        model = Transformer(settings, 37_000, 37_000)
    dim, inner, layers = 512, 2048, 6
    attention = 4 * (dim * dim + dim)
    feed_forward = dim * inner + inner + inner * dim + dim
    norm = 2 * dim
    encoder = layers * (attention + feed_forward + 2 * norm)
    decoder = layers * (2 * attention + feed_forward + 3 * norm)
    expected = 37_000 * dim + encoder + decoder
    assert sum(p.numel() for p in model.parameters()) == expected == 63_082_496


@pytest.mark.parametrize("pre_norm", [False, True])
@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
@pytest.mark.parametrize("tied", ["all", "output", "none"])
def test_stepping_gives_the_logits_of_teacher_forcing(
    pre_norm: bool, positions: str, tied: str
) -> None:
    model = small(pre_norm=pre_norm, positions=positions, tied_embeddings=tied)
    source = source_of([[5, 6, 7, 3], [8, 3]])
    target_in = torch.tensor([[BEGIN, 4, 9, 11], [BEGIN, 12, 13, 14]])
    whole = model.teacher_force(source, target_in)
    state = model.start(source)
    for t in range(target_in.shape[1]):
        logits, state = model.step(target_in[:, t], state)
        torch.testing.assert_close(logits, whole[:, t])


def test_a_selected_state_goes_on_as_its_rows_would() -> None:
    model = small()
    source = source_of([[5, 6, 7, 3], [8, 3]])
    rows = torch.tensor([1, 0, 0])
    state = model.start(source)
    _, state = model.step(torch.tensor([BEGIN, BEGIN]), state)
    _, state = model.step(torch.tensor([9, 10]), state)
    state = state.select(rows)
    logits, _ = model.step(torch.tensor([4, 5, 6]), state)
    target_in = torch.tensor([[BEGIN, 10, 4], [BEGIN, 9, 5], [BEGIN, 9, 6]])
    expected = model.teacher_force(Source(source.tokens[rows], source.lengths[rows]), target_in)[
        :, -1
    ]
    torch.testing.assert_close(logits, expected)


@pytest.mark.parametrize("gradient", [False, True])
def test_a_selected_cache_has_its_rows_and_room_and_leaves_the_other_alone(gradient: bool) -> None:
    steps = [Memory(torch.randn(2, 2, 1, 4), torch.randn(2, 2, 1, 3)) for _ in range(20)]
    for step in steps:
        step.key.requires_grad_(gradient)
    cache, rows = KeyValueCache(), torch.tensor([1, 0, 1])
    for step in steps[:3]:
        before = cache.append(step)
    chosen = cache.select(rows)
    for step in steps[3:]:  # beyond the first buffer
        after = chosen.append(Memory(step.key[rows], step.value[rows]))
    for number in range(2):
        whole = torch.cat([step[number] for step in steps], dim=2)
        assert torch.equal(after[number], whole[rows])
        assert torch.equal(before[number], whole[:, :, :3])
    if gradient:
        after.key.sum().backward()
        assert torch.equal(
            steps[0].key.grad, torch.tensor([1.0, 2.0]).view(2, 1, 1, 1).expand(2, 2, 1, 4)
        )
    assert KeyValueCache().select(rows).length == 0


def test_padding_has_no_influence() -> None:
    model = small()
    target_in = torch.tensor([[BEGIN, 4, 9]])
    bare = model.teacher_force(source_of([[5, 6, 3]]), target_in)
    padded = Source(torch.tensor([[5, 6, 3, 17, 21]]), torch.tensor([3]))
    torch.testing.assert_close(model.teacher_force(padded, target_in), bare)


def test_a_target_token_has_no_influence_on_those_before_it() -> None:
    model = small()
    source = source_of([[5, 6, 3]])
    one = model.teacher_force(source, torch.tensor([[BEGIN, 4, 9]]))
    other = model.teacher_force(source, torch.tensor([[BEGIN, 4, 20]]))
    torch.testing.assert_close(one[:, :2], other[:, :2])
    assert not torch.allclose(one[:, 2], other[:, 2])


def test_it_computes_what_torchs_transformer_computes() -> None:
    """Post-norm blocks with the same weights: the same outputs and gradients."""
    model = small()
    peer = torch.nn.Transformer(16, 2, 2, 2, 24, dropout=0.0, batch_first=True, dtype=torch.float64)
    peer.encoder.norm = peer.decoder.norm = torch.nn.Identity()
    for ours, theirs in [
        *zip(model.encoder, peer.encoder.layers, strict=True),
        *zip(model.decoder, peer.decoder.layers, strict=True),
    ]:
        _copy_layer(ours, theirs)
    source = source_of([[5, 6, 7, 3], [8, 9, 3]])
    target_in = torch.tensor([[BEGIN, 4, 9], [BEGIN, 12, 13]])
    padding_mask = source.tokens == PAD
    theirs = peer(
        model._embed_source(source.tokens),
        model._embed_target(target_in),
        tgt_mask=torch.nn.Transformer.generate_square_subsequent_mask(3).isinf(),
        src_key_padding_mask=padding_mask,
        memory_key_padding_mask=padding_mask,
    )
    ours = model.states(source, target_in)
    torch.testing.assert_close(ours, theirs)
    model.zero_grad()
    ours.square().mul(torch.arange(16)).sum().backward()
    gradient = model.target_embedding.weight.grad.clone()
    model.zero_grad()
    theirs.square().mul(torch.arange(16)).sum().backward()
    torch.testing.assert_close(gradient, model.target_embedding.weight.grad)


def _copy_layer(ours: torch.nn.Module, theirs: torch.nn.Module) -> None:
    pairs = [(ours.self_attention, theirs.self_attn)]
    norms = [(ours.around_self.norm, theirs.norm1)]
    if hasattr(ours, "cross_attention"):
        pairs.append((ours.cross_attention, theirs.multihead_attn))
        norms += [
            (ours.around_cross.norm, theirs.norm2),
            (ours.around_feed_forward.norm, theirs.norm3),
        ]
    else:
        norms.append((ours.around_feed_forward.norm, theirs.norm2))
    with torch.no_grad():
        for mine, other in pairs:
            parts = (mine.query_projection, mine.key_projection, mine.value_projection)
            other.in_proj_weight.copy_(torch.cat([part.weight for part in parts]))
            other.in_proj_bias.copy_(torch.cat([part.bias for part in parts]))
            other.out_proj.load_state_dict(mine.output_projection.state_dict())
    theirs.linear1.load_state_dict(ours.feed_forward.expand.state_dict())
    theirs.linear2.load_state_dict(ours.feed_forward.contract.state_dict())
    for mine, other in norms:
        other.load_state_dict(mine.state_dict())


WRONG = [
    ({"share_positions": True}, "share_positions is for relative positions"),
    ({"attention": {"head_size": 3, "mixing": "talking-heads"}}, "head_size needs mixing = 'none'"),
    ({"attention": {"head_size": 3, "gate": "head"}}, "head_size needs gate = 'none'"),
    ({"attention": {"head_size": 3, "latent_size": 4}}, "latent_size has no head_size"),
    ({"norm": "batch"}, "'layer' or 'rms'"),
]


@pytest.mark.parametrize(("given", "message"), WRONG)
def test_options_that_do_not_fit_together_are_refused(given: dict[str, Any], message: str) -> None:
    sizes = {"layers": 1, "hidden_size": 8, "heads": 2, "ffn_size": 6}
    with pytest.raises(ValueError, match=message):
        TransformerSettings.model_validate({**sizes, **given})


def test_layers_share_the_parameters_of_their_positions() -> None:
    """One table for the encoder and one for the decoder, in a file once; heads of any width."""
    sizes = {"layers": 3, "hidden_size": 8, "heads": 3, "ffn_size": 6, "positions": "t5"}
    settings = TransformerSettings.model_validate(
        {**sizes, "share_positions": True, "attention": {"head_size": 5}}
    )
    model = Transformer(settings, 20, 20)
    names = [name for name, _ in model.named_parameters() if ".positions." in name]
    assert names == [f"{side}.0.self_attention.positions.table.weight" for side in SIDES]
    assert model.decoder_layers()[2].cross_attention.query_projection.weight.shape == (15, 8)


SIDES = ("encoder", "decoder")


def test_initial_weights_of_t5_are_those_of_transformers() -> None:
    """By their standard deviations; both libraries draw from normal distributions."""
    config = transformers.T5Config(
        vocab_size=400, d_model=96, d_kv=20, d_ff=150, num_layers=2, num_heads=8
    )
    theirs = transformers.T5ForConditionalGeneration(config)
    settings = t5.settings_of(config.to_dict(), "here", tied=True)
    settings = settings.model_copy(update={"initialisation": "t5"})
    model = Transformer(settings, 400, 400)
    ours = t5.export_tensors(dict(model.state_dict()), settings, range(400))
    for name, expected in theirs.state_dict().items():
        if name in ours and expected.dim() == 2:
            few = 0.3 if expected.numel() < 1000 else 0.05
            assert ours[name].std().item() == pytest.approx(expected.std().item(), rel=few), name


@pytest.mark.parametrize(
    "given",
    [
        {"embedding_norm": True, "positions": "learned"},
        {"norm": "rms", "bias": False, "gated": True, "pre_norm": True, "scale_output": True},
        {"positions": "t5", "share_positions": True, "tied_embeddings": "inputs"},
        {"attention": {"head_size": 5}, "heads": 3},
    ],
)
@torch.inference_mode()
def test_steps_of_t5_and_bart_are_teacher_forcing(given: dict[str, Any]) -> None:
    """Also in the form of the model that searches."""
    torch.manual_seed(2)
    sizes = {"layers": 2, "hidden_size": 8, "heads": 2, "ffn_size": 6, "max_length": 20}
    settings = TransformerSettings.model_validate({**sizes, **given})
    model = Transformer(settings, 20, 20).eval()
    for parameter in model.parameters():
        parameter.add_(torch.randn_like(parameter) * 0.3)
    source = Source(torch.tensor([[5, 6, 7, 3], [8, 9, 3, 0]]), torch.tensor([4, 3]))
    target = torch.tensor([[2, 5, 6, 7], [2, 8, 8, 4]])
    expected = model.teacher_force(source, target)
    for one in (model, searched(model)):
        state = one.start(source)
        for place in range(4):
            logits, state = one.step(target[:, place], state)
            torch.testing.assert_close(logits, expected[:, place], atol=1e-5, rtol=1e-5)
