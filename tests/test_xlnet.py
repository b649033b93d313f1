"""XLNet: parity with transformers, the equation as a loop, no influence of padding or of what is
predicted later, memory."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from heedful.attention import watch
from heedful.layers.two_streams import Relation, TwoStreamAttention, distances
from heedful.models.encoders import Classifier, Sequences, sequences_of
from heedful.models.xlnet import (
    PermutationHead,
    Predicted,
    Remembered,
    Streams,
    XLNet,
    XLNetSettings,
)

VOCABULARY = 40
FIRST, SECOND = [[7, 9, 11, 8], [8, 30], [12]], [[5, 39, 6], [6, 4], [21, 22, 23, 24, 25]]
ODD: dict[str, dict[str, Any]] = {
    "two heads": {"layers": 2, "hidden_size": 16, "ffn_size": 24, "heads": 2},
    "heads of odd width": {"layers": 2, "hidden_size": 6, "ffn_size": 7, "heads": 2},
    "one head": {"layers": 1, "hidden_size": 10, "ffn_size": 5, "heads": 1},
    "heads of width 1": {
        "layers": 3,
        "hidden_size": 6,
        "ffn_size": 10,
        "heads": 6,
        "activation": "relu",
    },
    "tanh": {"layers": 1, "hidden_size": 12, "ffn_size": 5, "heads": 3, "activation": "gelu-tanh"},
    "epsilon": {"layers": 2, "hidden_size": 14, "ffn_size": 20, "heads": 7, "norm_epsilon": 0.3},
}


def blur(module: nn.Module) -> None:
    """Weights that matter: at 0.02 attention is nearly even, and biases and norms do nothing."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.4)


def xlnet_of(**given: Any) -> XLNet:
    torch.manual_seed(3)
    settings = {"layers": 2, "hidden_size": 16, "ffn_size": 24, "heads": 2, **given}
    xlnet = XLNet(XLNetSettings(**settings), VOCABULARY).double().eval()
    blur(xlnet)
    return xlnet


def predicted_of(batch: Sequences, count: int, seed: int = 5) -> Predicted:
    """Some tokens of each row in a random order; BEGIN and ENDs are not among them."""
    drawn = torch.Generator().manual_seed(seed)
    order = torch.full_like(batch.tokens, -1)
    places = torch.zeros(len(order), count, dtype=torch.long)
    for row, tokens in enumerate(batch.tokens):
        usual = (tokens > 3).nonzero().flatten()
        chosen = usual[torch.randperm(len(usual), generator=drawn)][: min(count, len(usual) - 1)]
        order[row, chosen] = torch.arange(len(chosen))
        places[row, : len(chosen)] = chosen
    return Predicted(order, places)


# Against transformers


def peer_of(xlnet: XLNet, kind: str, **given: Any) -> Any:
    """A model of transformers of the same shape, with weights of its own."""
    transformers = pytest.importorskip("transformers")
    own = xlnet.settings
    activation = {"gelu": "gelu", "gelu-tanh": "gelu_new", "relu": "relu"}[own.activation]
    config = transformers.XLNetConfig(
        vocab_size=VOCABULARY,
        d_model=own.hidden_size,
        n_layer=own.layers,
        n_head=own.heads,
        d_inner=own.ffn_size,
        ff_activation=activation,
        layer_norm_eps=own.norm_epsilon,
        num_labels=3,
        **given,
    )
    torch.manual_seed(4)
    peer = getattr(transformers, kind)(config).double().eval()
    blur(peer)
    base = getattr(peer, "transformer", peer)
    base.relative_positional_encoding = in_float64(base)
    return peer


def in_float64(base: Any) -> Callable[..., Tensor]:
    """Their sinusoids, of distances K … 1 − Q, in float64, which they compute in float32 only."""

    def sinusoids(qlen: int, klen: int, bsz: int, device: Any = None) -> Tensor:
        rows = []
        for distance in range(klen, -qlen, -1):
            angles = [distance / 10000 ** (2 * n / base.d_model) for n in range(base.d_model // 2)]
            rows.append([*map(math.sin, angles), *map(math.cos, angles)])
        return torch.tensor(rows, dtype=torch.float64)[:, None].expand(-1, bsz, -1)

    return sinusoids


def pairs_of(xlnet: XLNet, base: Any) -> list[tuple[Tensor, Tensor]]:
    """Each of our parameters, but those of the pooler, beside theirs in our layout."""
    pairs = [
        (xlnet.tokens.weight, base.word_embedding.weight),
        (xlnet.query_start, base.mask_emb[0, 0]),
    ]
    for ours, theirs in zip(xlnet.layers, base.layer, strict=True):
        mine, other = ours.attention, theirs.rel_attn
        pairs += [
            (mine.query_projection.weight, other.q.flatten(1).T),
            (mine.key_projection.weight, other.k.flatten(1).T),
            (mine.value_projection.weight, other.v.flatten(1).T),
            (mine.output_projection.weight, other.o.flatten(1)),
            (mine.positions.projection, other.r.permute(1, 2, 0)),
            (mine.positions.content_bias, other.r_w_bias),
            (mine.positions.position_bias, other.r_r_bias),
            (mine.segment_bias, other.r_s_bias),
            (mine.segments, other.seg_embed),
        ]
        for module, beside in (
            (ours.around_attention.norm, other.layer_norm),
            (ours.around_feed_forward.norm, theirs.ff.layer_norm),
            (ours.feed_forward.expand, theirs.ff.layer_1),
            (ours.feed_forward.contract, theirs.ff.layer_2),
        ):
            pairs += [(module.weight, beside.weight), (module.bias, beside.bias)]
    return pairs


def take(pairs: list[tuple[Tensor, Tensor]]) -> None:
    with torch.no_grad():
        for ours, theirs in pairs:
            ours.copy_(theirs)


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def rows_of(xlnet: XLNet, batch: Sequences, row: int) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens, segments and columns of one row in their order; a BEGIN that is last has its own."""
    columns = torch.arange(int(batch.lengths[row]))
    segments = batch.segments[row].clone()
    if xlnet.settings.begin == "last":
        columns, segments[0] = columns.roll(-1), 2
    return batch.tokens[row, columns][None], segments[columns][None], columns


@pytest.mark.parametrize("shape", ODD.values(), ids=ODD)
@pytest.mark.parametrize("paired", [False, True])
def test_it_classifies_as_transformers_xlnet_does(shape: dict[str, Any], paired: bool) -> None:
    """States, logits of a label, and the gradient of every parameter, row by row."""
    xlnet = xlnet_of(**shape, begin="last")
    peer = peer_of(xlnet, "XLNetForSequenceClassification")
    head = Classifier(xlnet.dim, 3, 0.0).double()
    summary = peer.sequence_summary.summary
    pairs = [
        *pairs_of(xlnet, peer.transformer),
        (xlnet.pooler.weight, summary.weight),
        (xlnet.pooler.bias, summary.bias),
        (head.output.weight, peer.logits_proj.weight),
        (head.output.bias, peer.logits_proj.bias),
    ]
    take(pairs)
    assert {id(one) for one, _ in pairs} == {
        id(one) for part in (xlnet, head) for one in part.parameters()
    }
    batch = sequences_of(FIRST, SECOND if paired else None)
    encoded = xlnet(batch)
    logits, ours, theirs = head(encoded), 0.0, 0.0
    for row in range(len(batch.tokens)):
        tokens, segments, columns = rows_of(xlnet, batch, row)
        found = peer(tokens, token_type_ids=segments, use_mems=False)
        states = peer.transformer(tokens, token_type_ids=segments, use_mems=False)[0]
        close(encoded.states[row, columns], states[0])
        close(logits[row], found.logits[0])
        ours = ours + (logits[row] ** 2).sum() + (encoded.states[row, columns] ** 3).sum()
        theirs = theirs + (found.logits**2).sum() + (states**3).sum()
    check_gradients(ours, theirs, pairs, [xlnet, head], peer)


def check_gradients(
    ours: Any, theirs: Any, pairs: list[tuple[Tensor, Tensor]], mine: list[nn.Module], peer: Any
) -> None:
    """Compare the gradients: a step along theirs, copied to us, is a step along ours."""
    for part in mine:
        part.zero_grad()
    peer.zero_grad()
    ours.backward()
    theirs.backward()
    grads = {id(one): one.grad for part in mine for one in part.parameters()}
    with torch.no_grad():
        for parameter in peer.parameters():
            if parameter.grad is not None:
                parameter.copy_(parameter.grad)
            else:
                parameter.zero_()
    # The pairs are views of their parameters, which are now the gradients.
    for place, (one, theirs_now) in enumerate(pairs):
        found = grads[id(one)]
        expected = theirs_now.detach()
        if place == 0:  # their padding token learns like any other
            found, expected = found[1:], expected[1:]
        close(torch.zeros_like(expected) if found is None else found, expected)


@pytest.mark.parametrize("shape", ODD.values(), ids=ODD)
@pytest.mark.parametrize(("memory", "paired"), [(0, True), (3, False), (5, True)])
@pytest.mark.parametrize("begin", ["first", "last"])
def test_both_streams_are_those_of_transformers(
    shape: dict[str, Any], memory: int, paired: bool, begin: str
) -> None:
    """perm_mask, target_mapping, mems, logits, and the gradient of every parameter."""
    xlnet = xlnet_of(**shape, begin=begin)
    peer = peer_of(xlnet, "XLNetLMHeadModel", mem_len=memory or None)
    head = PermutationHead(xlnet).double()
    pairs = [*pairs_of(xlnet, peer.transformer), (head.bias, peer.lm_loss.bias)]
    take(pairs)
    batch = sequences_of(FIRST, SECOND if paired else None)
    earlier = None
    if memory:
        drawn = torch.randn(shape["layers"], 3, memory, shape["hidden_size"]).double()
        earlier = Remembered(tuple(drawn), torch.ones(3, memory, dtype=torch.bool))
    predicted = predicted_of(batch, 3)
    streams = xlnet.streams(batch, predicted, earlier, keep=memory)
    assert streams.query is not None
    ours, theirs = torch.zeros(()).double(), torch.zeros(()).double()
    for row in range(len(batch.tokens)):
        tokens, segments, columns = rows_of(xlnet, batch, row)
        order = predicted.order[row, columns]
        count = int((order >= 0).sum())
        unseen = (order[None] > order[:, None]) | ((order[None] == order[:, None]) & (order >= 0))
        mapping = torch.zeros(1, count, len(columns)).double()
        for number in range(count):
            mapping[0, number, (order == number).nonzero()] = 1
        given: dict[str, Any] = {
            "token_type_ids": segments,
            "perm_mask": unseen[None].double(),
            "target_mapping": mapping,
        }
        if earlier is not None:
            given["mems"] = [one[row][:, None] for one in earlier.states]
        found = peer(tokens, use_mems=True, **given)
        logits = head(streams.query[row, :count])
        close(logits, found.logits[0])
        plain = peer.transformer(tokens, output_hidden_states=True, use_mems=False, **given)
        content = plain.hidden_states[-2]  # the content stream, before the query stream
        close(streams.content[row, columns], content[0])
        ours = ours + (logits**2).sum() + (streams.content[row, columns] ** 3).sum()
        theirs = theirs + (found.logits**2).sum() + (content**3).sum()
    check_gradients(ours, theirs, pairs, [xlnet, head], peer)


@pytest.mark.parametrize("keep", [2, 5, 20])
def test_it_remembers_what_transformers_remembers(keep: int) -> None:
    """The inputs of each layer, the last M of two windows; what the next window computes."""
    xlnet = xlnet_of()
    peer = peer_of(xlnet, "XLNetModel", mem_len=keep)
    take(pairs_of(xlnet, peer))
    windows = [sequences_of([[7, 9, 11], [8, 30, 5]]), sequences_of([[21, 22], [4, 5]])]
    windows.append(sequences_of([[12, 6, 6], [7, 7, 7]]))
    old, mems = None, None
    for window in windows:
        streams = xlnet.streams(window, None, old, keep=keep)
        found = peer(window.tokens, mems=mems, use_mems=True)
        close(streams.content, found.last_hidden_state)
        assert streams.remembered is not None
        for ours, theirs in zip(streams.remembered.states, found.mems, strict=True):
            close(ours, theirs.transpose(0, 1))
            assert not ours.requires_grad
        old, mems = streams.remembered, found.mems
    tokens = windows[0].tokens
    alone = xlnet.remember(tokens, torch.ones_like(tokens, dtype=torch.bool))
    whole = xlnet.streams(windows[0], keep=99).remembered
    assert whole is not None
    for ours, other in zip(alone.states, whole.states, strict=True):
        close(ours, other)


def test_float32_and_their_own_sinusoids() -> None:
    xlnet = xlnet_of(begin="last")
    peer = peer_of(xlnet, "XLNetModel")
    take(pairs_of(xlnet, peer))
    del peer.relative_positional_encoding
    xlnet, peer = xlnet.float(), peer.float()
    batch = sequences_of(FIRST[:1])
    tokens, segments, columns = rows_of(xlnet, batch, 0)
    found = peer(tokens, token_type_ids=segments).last_hidden_state[0]
    torch.testing.assert_close(xlnet(batch).states[0, columns], found, rtol=1e-4, atol=1e-4)


# Properties


def streams_of(xlnet: XLNet, batch: Sequences, predicted: Predicted, *rest: Any) -> Streams:
    found = xlnet.streams(batch, predicted, *rest)
    assert found.query is not None
    return found


@pytest.mark.parametrize("begin", ["first", "last"])
def test_what_comes_later_in_the_order_has_no_influence(begin: str) -> None:
    """A predicted token changes only what is predicted after it, and never its own state."""
    xlnet = xlnet_of(begin=begin)
    batch = sequences_of([[7, 9, 11, 8, 30, 12, 5]])
    order = torch.tensor([[-1, 1, -1, 0, 2, -1, 3, -1, -1]])
    places = torch.tensor([[3, 1, 4, 6]])  # in the order
    before = streams_of(xlnet, batch, Predicted(order, places)).query
    for number, place in enumerate(places[0].tolist()):
        tokens = batch.tokens.clone()
        tokens[0, place] = 20
        after = streams_of(xlnet, batch._replace(tokens=tokens), Predicted(order, places)).query
        assert torch.equal(after[:, : number + 1], before[:, : number + 1])
        changed = (after - before)[:, number + 1 :].abs().amax(-1)
        assert bool((changed > 1e-6).all())


@pytest.mark.parametrize("begin", ["first", "last"])
@pytest.mark.parametrize("paired", [False, True])
def test_a_text_alone_and_in_a_batch_is_the_same(begin: str, paired: bool) -> None:
    """Both streams, with earlier text of different lengths."""
    xlnet = xlnet_of(begin=begin)
    batch = sequences_of(FIRST, SECOND if paired else None)
    predicted = predicted_of(batch, 2)
    earlier_tokens = torch.tensor([[0, 5, 6, 7], [9, 8, 7, 6], [0, 0, 0, 0]])
    there = torch.tensor([[0, 1, 1, 1], [1, 1, 1, 1], [0, 0, 0, 0]], dtype=torch.bool)
    whole = streams_of(xlnet, batch, predicted, xlnet.remember(earlier_tokens, there))
    pooled = xlnet(batch).pooled
    for row, length in enumerate(batch.lengths.tolist()):
        own = Sequences(
            batch.tokens[row : row + 1, :length],
            batch.lengths[row : row + 1],
            batch.segments[row : row + 1, :length],
        )
        asked = Predicted(predicted.order[row : row + 1, :length], predicted.places[row : row + 1])
        some = there[row]
        own_earlier = earlier_tokens[row, some][None], some[some][None]
        earlier = xlnet.remember(*own_earlier) if bool(some.any()) else None
        alone = streams_of(xlnet, own, asked, earlier)
        close(whole.content[row, :length], alone.content[0])
        count = int((asked.order >= 0).sum())
        close(whole.query[row, :count], alone.query[0, :count])
        close(pooled[row], xlnet(own).pooled[0])


def test_a_row_that_sees_nothing_gets_no_context_and_no_nan() -> None:
    xlnet = xlnet_of()
    batch = sequences_of([[7, 8]])
    order = torch.tensor([[2, 0, 1, 3]])
    streams = streams_of(xlnet, batch, Predicted(order, torch.tensor([[1, 2]])))
    nothing = xlnet.layers[0].attention.output_projection(torch.zeros(1, 1, 16).double())
    assert not nothing.any()
    streams.query.sum().backward()
    for name, parameter in xlnet.named_parameters():
        assert parameter.grad is None or bool(parameter.grad.isfinite().all()), name
    tokens = batch.tokens.clone()
    tokens[:] = 9
    other = streams_of(
        xlnet, batch._replace(tokens=tokens), Predicted(order, torch.tensor([[1, 2]]))
    )
    assert torch.equal(other.query[:, 0], streams.query[:, 0])  # transformers' sees all tokens


def test_the_term_of_positions_is_transformer_xls() -> None:
    """In both forms: places in order, and any places."""
    torch.manual_seed(1)
    attention = TwoStreamAttention(12, 3, 0.0).double()
    blur(attention)
    xl, query = attention.positions, torch.randn(2, 3, 4, 4).double()
    at, keys = torch.arange(4), torch.arange(-3, 4)
    for bounds in (None, (-9, 9)):
        relation = distances(at, keys, 12, torch.float64, bounds)
        found = attention._bias(query * 4**-0.5, Relation(relation, None, None))
        asked = query + xl.content_bias.unsqueeze(-2)
        close(found, xl.bias(asked, 7, at + 3, 4**-0.5))


def test_watched_streams_compute_the_same_and_show_their_weights() -> None:
    xlnet = xlnet_of()
    batch = sequences_of(FIRST, SECOND)
    predicted = predicted_of(batch, 2)
    plain = streams_of(xlnet, batch, predicted)
    with watch(xlnet, xlnet.attention_axes()) as seen:
        watched = streams_of(xlnet, batch, predicted)
    there = torch.arange(batch.tokens.shape[1]) < batch.lengths[:, None]
    close(watched.content[there], plain.content[there])
    close(watched.query, plain.query)
    for name, axes in xlnet.attention_axes().items():
        (weights,) = seen[name]
        rows = 2 if axes[0] == "predicted" else batch.tokens.shape[1]
        assert weights.shape == (3, 2, rows, batch.tokens.shape[1])
        assert not weights.masked_select(~there[:, None, None]).any()
        real = weights.sum(-1)[0]
        close(real, torch.ones_like(real))


def test_masked_tokens_are_filled_in_apart_from_each_other() -> None:
    """As if each were the first predicted token; what stands at a masked place does not matter."""
    xlnet = xlnet_of()
    batch = sequences_of(FIRST)
    places = torch.tensor([[0, 1], [0, 3], [2, 1]])
    found = xlnet.states_to_fill(batch, places)
    tokens = batch.tokens.clone()
    tokens[places[:, 0], places[:, 1]] = 33
    close(xlnet.states_to_fill(batch._replace(tokens=tokens), places), found)
    order = torch.full_like(batch.tokens, -1)
    order[0, 1], order[0, 3] = 0, 1
    one = streams_of(xlnet, batch, Predicted(order, torch.tensor([[1], [1], [1]]))).query
    with_other = order.clone()
    with_other[0, 1], with_other[0, 3] = 1, 0
    two = streams_of(xlnet, batch, Predicted(with_other, torch.tensor([[3], [1], [1]]))).query
    hidden = order.clone()
    hidden[0, 3] = 0
    close(
        found[0], streams_of(xlnet, batch, Predicted(hidden, torch.tensor([[1]] * 3))).query[0, 0]
    )
    close(found[0], one[0, 0])
    close(found[1], two[0, 0])


def test_states_of_another_model_are_refused() -> None:
    xlnet, batch = xlnet_of(), sequences_of(FIRST)
    there = torch.ones(3, 2, dtype=torch.bool)
    for states in (
        [torch.zeros(3, 2, 16)],
        [torch.zeros(2, 2, 16)] * 2,
        [torch.zeros(3, 2, 8)] * 2,
    ):
        with pytest.raises(ValueError, match="expected 2 of"):
            xlnet.streams(batch, None, Remembered(tuple(states), there))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"hidden_size": 10, "heads": 4}, "not a multiple of heads"),
        ({"hidden_size": 9, "heads": 3}, "multiple of 2"),
        ({"begin": "middle"}, "'first' or 'last'"),
    ],
)
def test_settings_that_do_not_fit_are_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        XLNetSettings.model_validate({"layers": 1, **given})


def test_depths_and_axes() -> None:
    xlnet = xlnet_of()
    depths = {name: xlnet.depth(name) for name, _ in xlnet.named_parameters()}
    assert depths["tokens.weight"] == depths["query_start"] == 0
    assert depths["layers.1.attention.segments"] == 2
    assert depths["pooler.weight"] == 3


@pytest.mark.parametrize("begin", ["first", "last"])
def test_everything_is_computed_on_the_device_of_the_tokens(begin: str) -> None:
    """The device meta refuses tensors of the CPU, and numbers that would have to be read back."""
    with torch.device("meta"):
        xlnet = XLNet(XLNetSettings(layers=2, hidden_size=16, heads=2, begin=begin), VOCABULARY)
        head = PermutationHead(xlnet)
        tokens = torch.zeros(3, 9, dtype=torch.long)
        batch = Sequences(tokens, torch.zeros(3, dtype=torch.long), tokens)
        there = torch.ones(3, 4, dtype=torch.bool)
    earlier = xlnet.remember(tokens[:, :4], there)
    streams = xlnet.streams(batch, Predicted(tokens, tokens[:, :2]), earlier, keep=6)
    assert streams.query is not None
    logits = head(streams.query.flatten(0, 1))
    assert logits.shape == (6, VOCABULARY)
    logits.sum().backward()
    assert {one.device.type for one in (logits, xlnet(batch).states)} == {"meta"}
