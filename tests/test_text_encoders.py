"""Encoders with pooling, pairs, documents; recurrent language models: against plain PyTorch."""

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from heedful.attention import watch
from heedful.basics.symbols import BEGIN, END, PAD
from heedful.models.attentive import RecurrentEncoderSettings, RecurrentTextEncoder
from heedful.models.encoders import HeadedEncoder, Sequences, TextEncoder, sequences_of
from heedful.models.recurrent_language import RecurrentLanguageModel, RecurrentLanguageSettings

VOCABULARY = 40
FIRST, SECOND = [[7, 9, 11, 8], [8, 30], [12]], [[5, 39, 6], [6, 4], [21, 22, 23, 24, 25]]
TEXTS = torch.tensor([[3, 7, 9, 11, 8, 30, 3], [3, 21, 22, 5, 39, 39, 6]])


def blur(module: nn.Module) -> None:
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)


def same_gradients(ours: Tensor, theirs: Tensor, pairs: list[tuple[Tensor, Tensor]]) -> None:
    """The same numbers, and the same gradient of each of the pairs."""
    torch.testing.assert_close(ours, theirs)
    probe = torch.randn_like(ours)
    got = torch.autograd.grad(ours, [pair[0] for pair in pairs], probe)
    expected = torch.autograd.grad(theirs, [pair[1] for pair in pairs], probe)
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other)


# Recurrent language models


def language_model(**given: object) -> RecurrentLanguageModel:
    torch.manual_seed(2)
    settings = RecurrentLanguageSettings(**{"dim": 6, "dropout": 0.0, **given})
    model = RecurrentLanguageModel(settings, VOCABULARY).double().eval()
    blur(model)
    return model


LANGUAGE = {
    "lstm": {"cell": "lstm"},
    "gru": {"cell": "gru"},
    "one layer": {"layers": 1},
    "untied": {"cell": "gru", "tied": False, "embedding_dim": 5, "layers": 3},
}


@pytest.mark.parametrize("given", LANGUAGE.values(), ids=LANGUAGE)
def test_it_is_torchs_recurrent_language_model(given: dict[str, object]) -> None:
    """Embedding, nn.LSTM or nn.GRU, and a linear map: logits, and every gradient."""
    model = language_model(**given)
    own = model.settings
    kind = nn.LSTM if own.cell == "lstm" else nn.GRU
    embedding = nn.Embedding(VOCABULARY, own.embedding_dim)
    network = kind(own.embedding_dim, own.dim, own.layers, batch_first=True)
    output = nn.Linear(own.dim, VOCABULARY, bias=False)
    parts = nn.ModuleList([embedding, network, output]).double()
    pairs = [(model.tokens.weight, embedding.weight)]
    pairs += [(p, getattr(network, name)) for name, p in model.recurrent.network.named_parameters()]
    if own.tied:
        output.weight = embedding.weight
    else:
        pairs += [(model.output.weight, output.weight)]
    with torch.no_grad():
        for ours, theirs in pairs:
            theirs.copy_(ours)
    assert len(pairs) == len(list(model.parameters())) == len(list(parts.parameters()))
    ours = model.logits(model.states(TEXTS))
    same_gradients(ours, output(network(embedding(TEXTS))[0]), pairs)


@pytest.mark.parametrize("given", LANGUAGE.values(), ids=LANGUAGE)
@pytest.mark.parametrize("prompt", [1, 4])
def test_stepping_and_going_on_give_the_whole_text(given: dict[str, object], prompt: int) -> None:
    model = language_model(**given)
    whole = model.logits(model.states(TEXTS))
    state = model.start(TEXTS[:, :prompt])
    for place in range(prompt - 1, TEXTS.shape[1]):
        logits, state = model.step(TEXTS[:, place], state)
        torch.testing.assert_close(logits, whole[:, place])
    rows = torch.tensor([1, 0, 1])
    before = model.start(TEXTS[:, :prompt]).select(rows)
    logits, _ = model.step(TEXTS[rows, prompt - 1], before)
    torch.testing.assert_close(logits, whole[rows, prompt - 1])
    one, state = model.read(TEXTS[:, :3], model.fresh(2))
    other, _ = model.read(TEXTS[:, 3:], state.detach())
    torch.testing.assert_close(model.logits(torch.cat([one, other], 1)), whole)


def test_a_recurrent_language_model_keeps_to_its_contract() -> None:
    model = language_model(tied=False)
    assert model.attention_axes() == {}
    assert model.output_bias is None
    assert model.embedding is model.tokens
    depths = {name: model.depth(name) for name, _ in model.named_parameters()}
    assert depths["tokens.weight"] == 0
    assert depths["recurrent.network.weight_hh_l1"] == 2
    assert depths["output.weight"] == 3
    begun = TEXTS.masked_fill(TEXTS == END, BEGIN)
    torch.testing.assert_close(model.states(begun), model.states(TEXTS))
    with pytest.raises(ValueError, match="at least 1"):
        model.start(TEXTS[:, :0])
    assert RecurrentLanguageSettings(dim=8).embedding_dim == 8
    with pytest.raises(ValidationError, match="tied = false"):
        RecurrentLanguageSettings(dim=8, embedding_dim=4)


# Recurrent encoders with pooling

POOLINGS = ("structured", "mean", "max", "last")


def encoder_of(**given: object) -> RecurrentTextEncoder:
    torch.manual_seed(2)
    shape = {"dim": 3, "embedding_dim": 5, "hops": 2, "hidden_dim": 4, "dropout": 0.0}
    settings = RecurrentEncoderSettings(**{**shape, **given})
    encoder = RecurrentTextEncoder(settings, VOCABULARY).double().eval()
    blur(encoder)
    return encoder


def plain_pooling(encoder: RecurrentTextEncoder, states: Tensor, last: Tensor) -> Tensor:
    """One text's ``states [T, D]`` by the formulas, T at least 1."""
    kind = encoder.settings.pooling
    if kind == "structured":
        scores = encoder.pooling.W_s2 @ torch.tanh(encoder.pooling.W_s1 @ states.T)
        return (torch.softmax(scores, 1) @ states).flatten()
    return {"mean": states.mean(0), "max": states.max(0).values, "last": last}[kind]


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize(
    "given",
    [{}, {"cell": "gru", "layers": 2, "hidden_layer": 7}, {"bidirectional": False, "layers": 2}],
    ids=["lstm", "gru", "one way"],
)
def test_it_is_a_network_of_torchs_pooled_by_the_formula(
    pooling: str, paired: bool, given: dict[str, object]
) -> None:
    """Row by row without padding, against a batch with it; and every gradient."""
    encoder = encoder_of(pooling=pooling, **given)
    directions = 2 if encoder.settings.bidirectional else 1
    batch = sequences_of(FIRST, SECOND if paired else None)
    encoded = encoder(batch)
    expected = []
    for row, length in enumerate(batch.lengths.tolist()):
        tokens = batch.tokens[row, :length]
        states, final = encoder.recurrent.network(encoder.tokens(tokens).unsqueeze(0))
        top = (final[0] if isinstance(final, tuple) else final)[-directions:]
        torch.testing.assert_close(encoded.states[row, :length], states[0])
        assert not encoded.states[row, length:].any()
        words = states[0][(tokens != BEGIN) & (tokens != END)]
        pooled = plain_pooling(encoder, words, top.flatten())
        hidden = encoder.hidden
        expected.append(pooled if hidden is None else torch.relu(hidden(pooled)))
    assert encoded.pooled.shape == (3, encoder.pooled_dim)
    own = [(p, p) for _, p in encoder.named_parameters()]
    same_gradients(encoded.pooled, torch.stack(expected), own)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_pairs_read_apart_are_compared_number_by_number(pooling: str) -> None:
    encoder = encoder_of(pooling=pooling, pairs="apart")
    assert encoder.needs_pairs
    assert encoder.dim is None
    together = encoder(sequences_of(FIRST, SECOND))
    assert together.states is None
    expected = []
    for pair in zip(FIRST, SECOND, strict=True):
        vectors = []
        for text in pair:
            embedded = encoder.tokens(torch.tensor(text)).unsqueeze(0)
            states, (final, _) = encoder.recurrent.network(embedded)
            vectors.append(plain_pooling(encoder, states[0], final.flatten()))
        u, v = vectors
        expected.append(torch.cat([u, v, (u - v).abs(), u * v]))
    own = [(p, p) for p in encoder.parameters()]
    same_gradients(together.pooled, torch.stack(expected), own)


# What holds for every encoder

ENCODERS = {
    **{f"pooled by {kind}": lambda kind=kind: encoder_of(pooling=kind) for kind in POOLINGS},
    **{
        f"apart, {kind}": lambda kind=kind: encoder_of(pooling=kind, pairs="apart")
        for kind in POOLINGS
    },
    "two layers": lambda: encoder_of(layers=2, cell="gru", hidden_layer=3),
}


@pytest.mark.parametrize("make", ENCODERS.values(), ids=ENCODERS)
def test_padding_and_company_change_nothing(make: "type[TextEncoder]") -> None:
    encoder = make()
    batch = sequences_of(FIRST, SECOND)
    together = encoder(batch)
    for row, (one, two) in enumerate(zip(FIRST, SECOND, strict=True)):
        alone = encoder(sequences_of([one], [two]))
        torch.testing.assert_close(together.pooled[row], alone.pooled[0])
        if alone.states is not None:
            length = alone.states.shape[1]
            torch.testing.assert_close(together.states[row, :length], alone.states[0])
    noise = batch.tokens.masked_fill(batch.tokens == PAD, 17)
    wide = nn.functional.pad(noise, (0, 4), value=13)
    other = encoder(Sequences(wide, batch.lengths, nn.functional.pad(batch.segments, (0, 4))))
    torch.testing.assert_close(other.pooled, together.pooled)


@pytest.mark.parametrize("make", ENCODERS.values(), ids=ENCODERS)
def test_empty_texts_have_vectors(make: "type[TextEncoder]") -> None:
    encoder = make()
    pairs = sequences_of([[], [7], []], [[8], [], []])
    encoded = encoder(pairs)
    assert encoded.pooled.shape == (3, encoder.pooled_dim)
    assert encoded.pooled.isfinite().all()
    encoded.pooled.sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in encoder.parameters())


@pytest.mark.parametrize("make", ENCODERS.values(), ids=ENCODERS)
def test_weights_have_the_axes_they_say(make: "type[TextEncoder]") -> None:
    """Each map is as large as its axes, and its rows sum to 1 or, where nothing is, to 0."""
    encoder = make()
    batch = sequences_of(FIRST[:1], SECOND[:1])
    sizes = {"text": 10, "first": 4, "second": 3, "hops": 2}
    bare = encoder(batch)
    with watch(encoder, encoder.attention_axes()) as seen:
        watched = encoder(batch)
    torch.testing.assert_close(watched.pooled, bare.pooled)
    for name, axes in encoder.attention_axes().items():
        (weights,) = seen[name]
        assert weights.shape[2:] == tuple(sizes[axis] for axis in axes)
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
        if axes[1] == "text":
            assert not weights[..., batch.tokens[0] < 4].any()


@pytest.mark.parametrize("make", ENCODERS.values(), ids=ENCODERS)
def test_depths_leave_out_no_number(make: "type[TextEncoder]") -> None:
    encoder = make()
    model = HeadedEncoder(encoder, {"head": nn.Linear(2, 2)})
    depths = {name: model.depth(name) for name, _ in model.named_parameters()}
    assert set(depths.values()) == set(range(encoder.depths + 1))
    assert depths["heads.head.weight"] == encoder.depths
    assert encoder.embedding.weight.shape[0] == VOCABULARY
