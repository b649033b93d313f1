"""BERT: sizes by the formula, parity with transformers, no influence of padding."""

import copy
import math
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from heedful.attention import watch
from heedful.basics.symbols import PAD
from heedful.models.bert import Bert, BertSettings, MaskedHead, NextSentenceHead
from heedful.models.encoders import HeadedEncoder, Sequences, sequences_of

VOCABULARY = 40
FIRST, SECOND = [[7, 9, 11, 8], [8, 30], [12]], [[5, 39, 6], [6, 4], [21, 22, 23, 24, 25]]

ODD = {
    "two heads": {"layers": 2, "hidden_size": 16, "ffn_size": 24, "heads": 2},
    "odd width, one head": {"layers": 1, "hidden_size": 9, "ffn_size": 7, "heads": 1},
    "heads of width 1": {
        "layers": 2,
        "hidden_size": 6,
        "ffn_size": 10,
        "heads": 6,
        "activation": "relu",
    },
    "one segment": {"layers": 3, "hidden_size": 15, "ffn_size": 31, "heads": 5, "segments": 1},
    "three segments": {"layers": 1, "hidden_size": 8, "ffn_size": 8, "heads": 2, "segments": 3},
    "tanh": {"layers": 2, "hidden_size": 12, "ffn_size": 5, "heads": 3, "activation": "gelu-tanh"},
    "epsilon": {"layers": 1, "hidden_size": 10, "ffn_size": 20, "heads": 2, "norm_epsilon": 0.3},
}


def settings_of(**given: object) -> BertSettings:
    return BertSettings(**{"layers": 2, "hidden_size": 16, "ffn_size": 24, "heads": 2, **given})


def bert_of(**given: object) -> Bert:
    torch.manual_seed(3)
    bert = Bert(settings_of(**given), VOCABULARY).double().eval()
    blur(bert)
    return bert


def blur(module: nn.Module) -> None:
    """Weights that matter: at 0.02 attention is nearly even, and biases and norms do nothing."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.5)


# Against transformers


def peer_of(bert: Bert) -> nn.Module:
    """transformers' BertForPreTraining of the same shape, with weights of its own."""
    transformers = pytest.importorskip("transformers")
    own = bert.settings
    activation = {"gelu": "gelu", "gelu-tanh": "gelu_new", "relu": "relu"}[own.activation]
    config = transformers.BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=own.hidden_size,
        num_hidden_layers=own.layers,
        num_attention_heads=own.heads,
        intermediate_size=own.ffn_size,
        hidden_act=activation,
        max_position_embeddings=own.max_length,
        type_vocab_size=own.segments,
        layer_norm_eps=own.norm_epsilon,
        pad_token_id=PAD,
    )
    torch.manual_seed(4)
    peer = transformers.BertForPreTraining(config).double().eval()
    blur(peer)
    return peer


def pairs_of(
    bert: Bert, masked: MaskedHead, following: NextSentenceHead, peer: nn.Module
) -> list[tuple[nn.Parameter, nn.Parameter]]:
    """Each of our parameters beside theirs."""
    theirs = peer.bert
    modules: list[tuple[nn.Module, nn.Module]] = [
        (bert.embeddings.tokens, theirs.embeddings.word_embeddings),
        (bert.embeddings.positions.table, theirs.embeddings.position_embeddings),
        (bert.embeddings.segments, theirs.embeddings.token_type_embeddings),
        (bert.embeddings.norm, theirs.embeddings.LayerNorm),
        (bert.pooler, theirs.pooler.dense),
        (masked.dense, peer.cls.predictions.transform.dense),
        (masked.norm, peer.cls.predictions.transform.LayerNorm),
        (following.output, peer.cls.seq_relationship),
    ]
    for ours, other in zip(bert.layers, theirs.encoder.layer, strict=True):
        heads = ours.self_attention
        modules += [
            (heads.query_projection, other.attention.self.query),
            (heads.key_projection, other.attention.self.key),
            (heads.value_projection, other.attention.self.value),
            (heads.output_projection, other.attention.output.dense),
            (ours.around_self.norm, other.attention.output.LayerNorm),
            (ours.feed_forward.expand, other.intermediate.dense),
            (ours.feed_forward.contract, other.output.dense),
            (ours.around_feed_forward.norm, other.output.LayerNorm),
        ]
    pairs = [(masked.bias, peer.cls.predictions.decoder.bias)]
    for mine, other in modules:
        own, beside = dict(mine.named_parameters()), dict(other.named_parameters())
        assert own.keys() == beside.keys()
        pairs += [(own[name], beside[name]) for name in own]
    return pairs


@pytest.mark.parametrize("shape", ODD.values(), ids=ODD)
@pytest.mark.parametrize("paired", [False, True])
def test_it_computes_what_transformers_bert_computes(
    shape: dict[str, object], paired: bool
) -> None:
    """States, pooled vector, both heads of pre-training, and the gradient of every parameter."""
    bert = bert_of(**shape, max_length=16)
    masked, following = MaskedHead(bert).double(), NextSentenceHead(bert.dim).double()
    peer = peer_of(bert)
    pairs = pairs_of(bert, masked, following, peer)
    names = {id(p) for part in (bert, masked, following) for p in part.parameters()}
    assert {id(ours) for ours, _ in pairs} == names
    with torch.no_grad():
        for ours, theirs in pairs:
            ours.copy_(theirs)
    batch = sequences_of(FIRST, SECOND if paired else None)
    there = torch.arange(batch.tokens.shape[1]) < batch.lengths[:, None]
    places = there & (batch.tokens % 3 == 0)

    encoded = bert(batch)
    ours = [encoded.states[there], encoded.pooled]
    ours += [masked(encoded.states[places]), following(encoded)]
    segments = batch.segments if bert.settings.segments > 1 else torch.zeros_like(batch.segments)
    seen = peer(batch.tokens, there.long(), segments, output_hidden_states=True)
    base = peer.bert(batch.tokens, there.long(), segments)
    theirs = [base.last_hidden_state[there], base.pooler_output]
    theirs += [seen.prediction_logits[places], seen.seq_relationship_logits]
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other)

    probes = [torch.randn_like(part) for part in ours]
    got = torch.autograd.grad(ours, [pair[0] for pair in pairs], probes)
    expected = torch.autograd.grad(theirs, [pair[1] for pair in pairs], probes)
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_the_longest_row_is_read_and_one_longer_is_refused() -> None:
    bert = bert_of(max_length=512, layers=1)
    peer = peer_of(bert)
    pairs = pairs_of(bert, MaskedHead(bert), NextSentenceHead(bert.dim), peer)
    with torch.no_grad():
        for ours, theirs in pairs:
            ours.copy_(theirs)
    text = [(7 * place) % 36 + 4 for place in range(511)]
    batch = sequences_of([text[:510], text[:300]])
    there = (batch.tokens != PAD).long()
    torch.testing.assert_close(
        bert(batch).states[1, :302], peer.bert(batch.tokens, there).last_hidden_state[1, :302]
    )
    with pytest.raises(ValueError, match=r"513 .* 512"):
        bert(sequences_of([text]))


# Sizes


def count(*parts: nn.Module) -> int:
    return sum(p.numel() for part in parts for p in part.parameters())


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ("tiny", 4_385_920),
        ("mini", 11_170_560),
        ("base", 109_482_240),
        ("large", 335_141_888),
    ],
)
def test_sizes_have_exactly_the_formulas_parameters(size: str, expected: int) -> None:
    """With 30,522 tokens; the 4.4 and 11.3 M of Turc et al. 2019 have the masked head too."""
    settings = BertSettings(size=size)
    with torch.device("meta"):
        bert = Bert(settings, 30_522)
        heads = MaskedHead(bert), NextSentenceHead(bert.pooled_dim)
    dim, inner = settings.hidden_size, 4 * settings.hidden_size
    assert (settings.ffn_size, settings.heads) == (inner, dim // 64)
    table = (30_522 + 512 + 2) * dim + 2 * dim
    block = 4 * (dim * dim + dim) + dim * inner + inner + inner * dim + dim + 4 * dim
    assert count(bert) == table + settings.layers * block + dim * dim + dim == expected
    # Their bias comes to the shared table, a layer with a norm before it, and two classes.
    assert count(*heads) == dim * dim + dim + 2 * dim + 30_522 + 2 * dim + 2
    published = {"tiny": 4.4, "mini": 11.3, "base": 110.1, "large": 336.2}[size]
    assert count(bert, *heads) / 1e6 == pytest.approx(published, abs=0.05)
    if size == "large":
        assert count(bert, *heads) == 336_226_108


def test_a_width_of_ones_own_has_inner_and_heads_that_fit_it() -> None:
    assert BertSettings().size == "tiny"
    wider = BertSettings(size="tiny", hidden_size=192)
    assert (wider.size, wider.layers, wider.ffn_size, wider.heads) == (None, 2, 768, 3)
    assert BertSettings(layers=1, hidden_size=100).heads == 1
    assert BertSettings(layers=3, hidden_size=200).heads == 2  # three heads would not divide it
    again = BertSettings(**wider.as_tables())
    assert again == wider
    assert BertSettings(**BertSettings(size="mini").as_tables()) == BertSettings(size="mini")
    with pytest.raises(ValidationError, match="contradict each other"):
        BertSettings(size="tiny", layers=2, hidden_size=64, ffn_size=512, heads=2)
    with pytest.raises(ValidationError, match="multiple of heads"):
        BertSettings(layers=1, hidden_size=10, heads=3)
    with pytest.raises(ValidationError, match="layers"):
        BertSettings(layers=0, hidden_size=10)


# Properties


def test_padding_and_company_have_no_influence() -> None:
    bert = bert_of()
    for row, (one, two) in enumerate(zip(FIRST, SECOND, strict=True)):
        alone = bert(sequences_of([one], [two]))
        together = bert(sequences_of(FIRST, SECOND))
        length = alone.states.shape[1]
        torch.testing.assert_close(together.states[row, :length], alone.states[0])
        torch.testing.assert_close(together.pooled[row], alone.pooled[0])
    batch = sequences_of(FIRST, SECOND)
    noise = torch.where(batch.tokens == PAD, 17, batch.tokens)
    there = batch.tokens != PAD
    other = bert(Sequences(noise, batch.lengths, batch.segments))
    torch.testing.assert_close(other.states[there], bert(batch).states[there])


def test_maps_of_every_head_are_seen() -> None:
    bert = bert_of()
    batch = sequences_of(FIRST, SECOND)
    bare = bert(batch)
    with watch(bert, bert.attention_axes()) as seen:
        watched = bert(batch)
    torch.testing.assert_close(watched.states, bare.states)
    width = batch.tokens.shape[1]
    assert list(seen) == ["layers.0.self_attention", "layers.1.self_attention"]
    for (weights,) in seen.values():
        assert weights.shape == (3, 2, width, width)
        torch.testing.assert_close(weights.sum(-1), torch.ones(3, 2, width).double())
        assert not weights[0, ..., int(batch.lengths[0]) :].any()


def test_the_shared_table_is_one_and_stays_one() -> None:
    bert = bert_of()
    model = HeadedEncoder(bert, {"masked": MaskedHead(bert).double()})
    assert not [name for name in model.heads.state_dict() if "table" in name or "tokens" in name]
    for same in (model, copy.deepcopy(model), model.float()):
        head = same.heads["masked"]
        assert head.output_table is same.encoder.embedding.weight
        assert head.output_bias is head.bias
    with torch.device("meta"):
        bert = Bert(settings_of(), VOCABULARY)
        head = MaskedHead(bert)
    HeadedEncoder(bert, {"masked": head}).to_empty(device="cpu")
    assert head.output_table is bert.embedding.weight


def test_depths_rise_from_embeddings_to_heads() -> None:
    bert = bert_of()
    model = HeadedEncoder(bert, {"next": NextSentenceHead(bert.dim)})
    depths = {name: model.depth(name) for name, _ in model.named_parameters()}
    assert depths["encoder.embeddings.segments.weight"] == 0
    assert depths["encoder.layers.0.around_self.norm.bias"] == 1
    assert depths["encoder.layers.1.feed_forward.expand.weight"] == 2
    assert depths["encoder.pooler.weight"] == 3
    assert depths["heads.next.output.weight"] == bert.depths == 4
    assert set(depths.values()) == set(range(5))


def test_fresh_weights_predict_about_evenly() -> None:
    """So that training starts at ln V, from normal weights of deviation 0.02 (section A.2)."""
    torch.manual_seed(0)
    bert = Bert(BertSettings(size="tiny"), 1000).eval()
    head = MaskedHead(bert)
    assert bert.embedding.weight.std().item() == pytest.approx(0.02, rel=0.02)
    assert not bert.embedding.weight[PAD].any()
    states: Tensor = bert(sequences_of([list(range(4, 104))])).states[0]
    loss = nn.functional.cross_entropy(head(states), torch.arange(102) + 4)
    assert loss.item() == pytest.approx(math.log(1000), rel=0.02)


def test_dropout_is_in_training_alone() -> None:
    bert = bert_of()
    batch = sequences_of(FIRST)
    assert torch.equal(bert(batch).pooled, bert(batch).pooled)
    bert.train()
    assert not torch.equal(bert(batch).pooled, bert(batch).pooled)


# Options of BERT's relatives; tests/test_interop_encoders.py compares them with transformers


def relative(**own: Any) -> Bert:
    torch.manual_seed(3)
    sizes: dict[str, Any] = {"layers": 3, "hidden_size": 12, "heads": 3, "max_length": 20}
    return Bert(BertSettings(**sizes | own), 30).eval()


def test_shared_layers_are_one_layer_applied_several_times() -> None:
    shared, rows = relative(shared_layers=True), sequences_of([[7, 9, 11], [8]])
    assert len(shared.layers) == 1
    apart = relative()
    for layer in apart.layers:
        layer.load_state_dict(shared.layers[0].state_dict())
    rest = {key: one for key, one in shared.state_dict().items() if not key.startswith("layers.")}
    apart.load_state_dict(rest, strict=False)
    for one, other in zip(shared(rows), apart(rows), strict=True):
        torch.testing.assert_close(one, other, atol=0, rtol=0)
    shared(rows).pooled.sum().backward()
    apart(rows).pooled.sum().backward()
    for name, parameter in shared.layers[0].named_parameters():
        each = [dict(layer.named_parameters())[name].grad for layer in apart.layers]
        torch.testing.assert_close(parameter.grad, sum(each), atol=1e-6, rtol=1e-5)
    depths = {shared.depth(name) for name, _ in shared.named_parameters()}
    assert depths == {0, 1, 2}
    assert set(shared.attention_axes().values()) == {("text", "text", "layers")}


def test_a_shared_layer_is_traced_call_by_call() -> None:
    shared = relative(shared_layers=True)
    rows = sequences_of([[7, 9, 11]])
    [name] = shared.attention_axes()
    with watch(shared, [name]) as seen:
        shared(rows)
    assert len(seen[name]) == 3
    first, last = seen[name][0], seen[name][-1]
    assert not torch.equal(first, last)
    model = HeadedEncoder(shared, {"masked": MaskedHead(shared)})
    assert model.attention_axes() == {f"encoder.{name}": ("text", "text", "layers")}


def test_embeddings_of_another_width_are_projected() -> None:
    bert = relative(embedding_size=5)
    assert bert.embedding.weight.shape == (30, 5)
    rows = sequences_of([[7, 9, 11]])
    embedded = bert.embeddings(rows.tokens, rows.segments)
    assert embedded.shape == (1, 5, 5)
    hidden = bert.projection(embedded)
    for layer in bert.layers:
        hidden = layer(hidden, None)
    torch.testing.assert_close(bert(rows).states, hidden)
    head = MaskedHead(bert)
    assert head(hidden[0]).shape == (5, 30)
    assert head.output_table is bert.embedding.weight
    assert bert.depth("projection.weight") == 0


@pytest.mark.parametrize("pooler", ["tanh", "relu", "gelu", "none"])
def test_the_pooler_has_the_activation_that_is_chosen(pooler: str) -> None:
    bert, rows = relative(pooler=pooler, segments=0), sequences_of([[7, 9], [8]], [[5], [6, 4]])
    states, pooled = bert(rows)
    assert not any("segments" in name for name, _ in bert.named_parameters())
    if pooler == "none":
        assert torch.equal(pooled, states[:, 0])
        assert not any("pooler" in name for name, _ in bert.named_parameters())
        return
    function = {"tanh": torch.tanh, "relu": torch.relu, "gelu": torch.nn.functional.gelu}[pooler]
    torch.testing.assert_close(pooled, function(bert.pooler(states[:, 0])))


def test_shared_layers_have_the_same_attention() -> None:
    layers = {"layers": [{"numbers": [2], "score": "cosine"}]}
    with pytest.raises(ValueError, match="shared_layers: all layers have the same parameters"):
        BertSettings(layers=2, hidden_size=8, heads=2, shared_layers=True, attention=layers)  # type: ignore[arg-type]
