"""Encoders with pooling, pairs, documents; recurrent language models: against plain PyTorch."""

from collections.abc import Callable

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from heedful.attention import MultiHeadAttention, watch
from heedful.basics.symbols import BEGIN, END, PAD
from heedful.models import (
    EncoderSettings,
    LanguageSettings,
    build_encoder,
    build_language_model,
)
from heedful.models.bert import BertSettings
from heedful.models.decomposable import DecomposableEncoder, DecomposableSettings, TwoLayers
from heedful.models.encoders import HeadedEncoder, Sequences, TextEncoder, sequences_of
from heedful.models.gpt import Gpt, GptSettings
from heedful.models.hierarchical import (
    AttentionOverParts,
    HierarchicalEncoder,
    HierarchicalSettings,
)
from heedful.models.recurrent_encoder import RecurrentEncoderSettings, RecurrentTextEncoder
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
    settings = RecurrentLanguageSettings(**{"hidden_size": 6, "dropout": 0.0, **given})
    model = RecurrentLanguageModel(settings, VOCABULARY).double().eval()
    blur(model)
    return model


LANGUAGE = {
    "lstm": {"cell": "lstm"},
    "gru": {"cell": "gru"},
    "one layer": {"layers": 1},
    "untied": {"cell": "gru", "tied_embeddings": False, "embedding_size": 5, "layers": 3},
}


@pytest.mark.parametrize("given", LANGUAGE.values(), ids=LANGUAGE)
def test_it_is_torchs_recurrent_language_model(given: dict[str, object]) -> None:
    """Embedding, nn.LSTM or nn.GRU, and a linear map: logits, and every gradient."""
    model = language_model(**given)
    own = model.settings
    kind = nn.LSTM if own.cell == "lstm" else nn.GRU
    embedding = nn.Embedding(VOCABULARY, own.embedding_size)
    network = kind(own.embedding_size, own.hidden_size, own.layers, batch_first=True)
    output = nn.Linear(own.hidden_size, VOCABULARY, bias=False)
    parts = nn.ModuleList([embedding, network, output]).double()
    pairs = [(model.tokens.weight, embedding.weight)]
    pairs += [(p, getattr(network, name)) for name, p in model.recurrent.network.named_parameters()]
    if own.tied_embeddings:
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
    model = language_model(tied_embeddings=False)
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
    assert RecurrentLanguageSettings(hidden_size=8).embedding_size == 8
    with pytest.raises(ValidationError, match="tied_embeddings = false"):
        RecurrentLanguageSettings(hidden_size=8, embedding_size=4)


# Recurrent encoders with pooling

POOLINGS = ("structured", "latents", "mean", "max", "last")


def encoder_of(**given: object) -> RecurrentTextEncoder:
    torch.manual_seed(2)
    shape = {"hidden_size": 3, "embedding_size": 5, "hops": 2, "attention_size": 4, "dropout": 0.0}
    if given.get("pooling") == "latents":
        shape["attention"] = {"heads": 3}
    settings = RecurrentEncoderSettings.model_validate({**shape, **given})
    encoder = RecurrentTextEncoder(settings, VOCABULARY).double().eval()
    blur(encoder)
    return encoder


def plain_pooling(encoder: RecurrentTextEncoder, states: Tensor, last: Tensor) -> Tensor:
    """One text's ``states [T, D]`` by the formulas, T at least 1."""
    kind = encoder.settings.pooling
    if kind == "structured":
        scores = encoder.pooling.W_s2 @ torch.tanh(encoder.pooling.W_s1 @ states.T)
        return (torch.softmax(scores, 1) @ states).flatten()
    if kind == "latents":
        return attention_of_latents(encoder.pooling.attention, encoder.pooling.latents, states)
    return {"mean": states.mean(0), "max": states.max(0).values, "last": last}[kind]


def attention_of_latents(layer: MultiHeadAttention, latents: Tensor, states: Tensor) -> Tensor:
    """Three heads of every latent over ``states [T, D]``, one number at a time."""
    rows, width = [], states.shape[1] // 3
    for latent in latents:
        contexts = []
        for head in range(3):
            own = slice(head * width, (head + 1) * width)
            query = layer.query_projection(latent)[own]
            scores = [query @ layer.key_projection(state)[own] / width**0.5 for state in states]
            weights = torch.stack(scores).softmax(0)
            values = [layer.value_projection(state)[own] for state in states]
            contexts.append(sum(a * value for a, value in zip(weights, values, strict=True)))
        rows.append(layer.output_projection(torch.cat(contexts)))
    return torch.cat(rows)


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"cell": "gru", "layers": 2, "pooled_layer_size": 7},
        {"bidirectional": False, "layers": 2},
    ],
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


# Pairs, word by word


def decomposable_of(**given: object) -> DecomposableEncoder:
    torch.manual_seed(2)
    shape = {"hidden_size": 4, "embedding_size": 5, "ffn_size": 6, "dropout": 0.0}
    encoder = DecomposableEncoder(DecomposableSettings(**{**shape, **given}), VOCABULARY)
    blur(encoder.double().eval())
    return encoder


@pytest.mark.parametrize("intra", [False, True])
def test_decomposable_attention_is_the_papers_equations(intra: bool) -> None:
    """A pair at a time, a word at a time, against a padded batch; and every gradient."""
    encoder = decomposable_of(intra_attention=intra)
    longer = [*SECOND[:2], list(range(4, 28))]  # words that are farther apart than ten

    def layers(part: TwoLayers, x: Tensor) -> Tensor:
        return part.second(part.first(x).relu()).relu()

    def within(words: Tensor) -> Tensor:
        f, rows = layers(encoder.intra.attend, words), []
        for i in range(len(words)):
            far = [21 if abs(i - j) > 10 else i - j + 10 for j in range(len(words))]
            scores = torch.stack([f[i] @ f[j] for j in range(len(words))])
            weights = (scores + encoder.intra.distance[far]).softmax(0)
            rows.append(torch.cat([words[i], weights @ words]))
        return torch.stack(rows)

    expected = []
    for pair in zip(FIRST, longer, strict=True):
        a, b = (encoder.tokens(torch.tensor(text)) @ encoder.project.weight.T for text in pair)
        if intra:
            a, b = within(a), within(b)
        scores = layers(encoder.attend, a) @ layers(encoder.attend, b).T
        beta, alpha = scores.softmax(1) @ b, scores.softmax(0).T @ a
        sums = [(a, beta), (b, alpha)]
        compared = [layers(encoder.compare, torch.cat(both, 1)).sum(0) for both in sums]
        expected.append(layers(encoder.aggregate, torch.cat(compared)))
    encoded = encoder(sequences_of(FIRST, longer))
    assert encoded.states is None
    own = [(p, p) for p in encoder.parameters()]
    same_gradients(encoded.pooled, torch.stack(expected), own)


# Sentences

ENDS = (8, 6)


def hierarchical_of(**given: object) -> HierarchicalEncoder:
    torch.manual_seed(2)
    shape = {
        "embedding_size": 5,
        "word_hidden_size": 3,
        "sentence_hidden_size": 2,
        "attention_size": 4,
    }
    settings = HierarchicalSettings(**{**shape, "dropout": 0.0, **given})
    encoder = HierarchicalEncoder(settings, VOCABULARY, ENDS)
    blur(encoder.double().eval())
    return encoder


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_hierarchical_attention_is_the_papers_equations(cell: str) -> None:
    """A text at a time, its sentences in a list, against a padded batch; and every gradient."""
    encoder = hierarchical_of(cell=cell)
    texts = {
        (7, 9, 8, 10, 11, 12, 6, 13): [[7, 9, 8], [10, 11, 12, 6], [13]],
        (8, 6, 8, 7, 8): [[8, 6, 8], [7, 8]],  # ends in a row end one sentence
        (20,): [[20]],
        (6,): [[6]],
        (5, 5, 5, 5, 5, 5, 5, 5, 5): [[5] * 9],
    }

    def attended(part: AttentionOverParts, states: Tensor) -> Tensor:
        u = torch.tanh(states @ part.hidden.weight.T + part.hidden.bias)
        return (u @ part.context).softmax(0) @ states

    expected = []
    for sentences in texts.values():
        read = [
            encoder.words.network(encoder.tokens(torch.tensor(words)).unsqueeze(0))[0][0]
            for words in sentences
        ]
        vectors = torch.stack([attended(encoder.word_attention, states) for states in read])
        states = encoder.sentences.network(vectors.unsqueeze(0))[0][0]
        expected.append(attended(encoder.sentence_attention, states))
    batch = sequences_of([list(text) for text in texts])
    encoded = encoder(batch)
    own = [(p, p) for p in encoder.parameters()]
    same_gradients(encoded.pooled, torch.stack(expected), own)
    numbers = encoder.sentence_numbers(batch)
    assert numbers[0].tolist() == [-1, 0, 0, 0, 1, 1, 1, 1, 2, -1, -1]
    assert numbers[1].tolist() == [-1, 0, 0, 0, 1, 1, -1, -1, -1, -1, -1]
    assert encoded.states[numbers >= 0].any(-1).all()
    assert not encoded.states[numbers < 0].any()


def test_a_second_text_begins_a_sentence() -> None:
    encoder = hierarchical_of()
    numbers = encoder.sentence_numbers(sequences_of([[7, 9], []], [[10, 8, 11], [12]]))
    assert numbers.tolist() == [[-1, 0, 0, -1, 1, 1, 2, -1], [-1, -1, 0, -1, -1, -1, -1, -1]]


# What holds for every encoder

ENCODERS = {
    **{f"pooled by {kind}": lambda kind=kind: encoder_of(pooling=kind) for kind in POOLINGS},
    **{
        f"apart, {kind}": lambda kind=kind: encoder_of(pooling=kind, pairs="apart")
        for kind in POOLINGS
    },
    "two layers": lambda: encoder_of(layers=2, cell="gru", pooled_layer_size=12),
    "decomposable": decomposable_of,
    "decomposable, within": lambda: decomposable_of(intra_attention=True),
    "hierarchical": hierarchical_of,
    "bert": lambda: (
        build_encoder(BertSettings(layers=1, hidden_size=6, heads=2, dropout=0), VOCABULARY)
        .double()
        .eval()
    ),
}


@pytest.mark.parametrize("make", ENCODERS.values(), ids=ENCODERS)
def test_padding_and_company_change_nothing(make: Callable[[], TextEncoder]) -> None:
    encoder = make()
    batch = sequences_of(FIRST, SECOND)
    together = encoder(batch)
    for row, (one, two) in enumerate(zip(FIRST, SECOND, strict=True)):
        alone = encoder(sequences_of([one], [two]))
        torch.testing.assert_close(together.pooled[row], alone.pooled[0])
        if alone.states is not None:
            length = alone.states.shape[1]
            torch.testing.assert_close(together.states[row, :length], alone.states[0])
    noise = batch.tokens.masked_fill(batch.tokens == PAD, 6)
    wide = nn.functional.pad(noise, (0, 4), value=8)
    other = encoder(Sequences(wide, batch.lengths, nn.functional.pad(batch.segments, (0, 4))))
    torch.testing.assert_close(other.pooled, together.pooled)


@pytest.mark.parametrize("make", ENCODERS.values(), ids=ENCODERS)
def test_empty_texts_have_vectors(make: Callable[[], TextEncoder]) -> None:
    encoder = make()
    pairs = sequences_of([[], [7], []], [[8], [], []])
    encoded = encoder(pairs)
    assert encoded.pooled.shape == (3, encoder.pooled_dim)
    assert encoded.pooled.isfinite().all()
    encoded.pooled.sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in encoder.parameters())


@pytest.mark.parametrize("make", ENCODERS.values(), ids=ENCODERS)
def test_weights_have_the_axes_they_say(make: Callable[[], TextEncoder]) -> None:
    """Each map is as large as its axes, and its rows sum to 1 or, where nothing is, to 0."""
    encoder = make()
    batch = sequences_of(FIRST[:1], SECOND[:1])
    sizes = {"text": 10, "first": 4, "second": 3, "hops": 2, "sentences": 2}
    bare = encoder(batch)
    with watch(encoder, encoder.attention_axes(), keep_gradients=True) as seen:
        watched = encoder(batch)
    torch.testing.assert_close(watched.pooled, bare.pooled)
    for name, axes in encoder.attention_axes().items():
        (weights,) = seen[name]
        (gradient,) = torch.autograd.grad(watched.pooled.sum(), weights, retain_graph=True)
        assert gradient.any()  # so that a view can ask what rests on them
        if axes == ("hops", "sentences"):
            sizes["hops"] = 1
        assert weights.shape[2:] == tuple(sizes[axis] for axis in axes)
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
        if axes[1] == "text" and axes[0] != "text":
            assert not weights[..., batch.tokens[0] < 4].any()


@pytest.mark.parametrize("make", ENCODERS.values(), ids=ENCODERS)
def test_depths_leave_out_no_number(make: Callable[[], TextEncoder]) -> None:
    encoder = make()
    model = HeadedEncoder(encoder, {"head": nn.Linear(2, 2)})
    depths = {name: model.depth(name) for name, _ in model.named_parameters()}
    assert set(depths.values()) == set(range(encoder.depths + 1))
    assert depths["heads.head.weight"] == encoder.depths
    assert encoder.embedding.weight.shape[0] == VOCABULARY


def test_settings_build_what_they_say() -> None:
    kinds = {
        "recurrent-encoder": RecurrentTextEncoder,
        "decomposable": DecomposableEncoder,
        "hierarchical": HierarchicalEncoder,
    }
    for kind, model in kinds.items():
        settings = EncoderSettings.model_validate({"kind": kind, "embedding_size": 3})
        assert EncoderSettings.model_validate(settings.as_tables()) == settings
        built = build_encoder(settings, 9, sentence_ends=[4])
        assert type(built) is model
        assert built.embedding.weight.shape == (9, 3)
        assert built.max_length == settings.max_length
    assert isinstance(EncoderSettings.model_validate({"kind": "bert"}), BertSettings)
    gpt = LanguageSettings.model_validate({"kind": "gpt", "hidden_size": 8})
    assert isinstance(gpt, GptSettings)
    assert type(build_language_model(gpt, 9)) is Gpt
    recurrent = LanguageSettings.model_validate(
        {"kind": "recurrent-language-model", "hidden_size": 8}
    )
    assert type(build_language_model(recurrent, 9)) is RecurrentLanguageModel
    assert LanguageSettings.model_validate(recurrent.as_tables()) == recurrent
