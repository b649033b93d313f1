"""[model.attention] of models with one head: convolutional, poolings, decomposable."""

from typing import Any

import pytest
import torch
from pydantic import ValidationError

from covering import pairwise
from heedful.attention import Attention, StructuredSelfAttention, watch
from heedful.attention.normalizers import Entmax, Sparsemax
from heedful.attention.scores import Additive, Dot
from heedful.models.convolutional import ConvolutionalEncoderDecoder, ConvolutionalSettings
from heedful.models.decomposable import DecomposableEncoder, DecomposableSettings
from heedful.models.encoders import sequences_of
from heedful.models.hierarchical import HierarchicalEncoder, HierarchicalSettings
from heedful.models.pairs import Source
from heedful.models.recurrent_encoder import RecurrentEncoderSettings, RecurrentTextEncoder
from stepping import assert_steps_are_teacher_forcing

FACTORS: dict[str, list[Any]] = {
    "score": [
        "scaled-dot", "dot", "general", {"name": "additive", "hidden_size": 3}, "concat",
        {"name": "cosine", "learned": True}, "gaussian", {"name": "location", "positions": 16},
    ],
    "normalizer": [
        "softmax", "softmax-off-by-one", "sink-softmax", "smoothed", "sparsemax", "entmax15",
        "entmax", {"name": "local-predictive", "window": 2},
    ],
}  # fmt: skip
CONVOLUTIONAL = {"embedding_size": 6, "hidden_size": 8, "max_length": 16, "decoder_layers": 2}
WORDS = {"embedding_size": 6, "max_length": 16, "dropout": 0.0}


def convolutional(**given: Any) -> ConvolutionalEncoderDecoder:
    torch.manual_seed(1)
    settings = ConvolutionalSettings.model_validate({**CONVOLUTIONAL, "dropout": 0.0, **given})
    return ConvolutionalEncoderDecoder(settings, 20, 20)


@pytest.mark.parametrize("attention", pairwise(FACTORS), ids=str)
def test_steps_of_a_convolutional_model_are_teacher_forcing(attention: dict[str, Any]) -> None:
    model = convolutional(attention=attention)
    source = Source(torch.randint(4, 20, (3, 6)), torch.tensor([6, 4, 2]))
    target = torch.randint(4, 20, (3, 5))
    model.teacher_force(source, target).square().sum().backward()
    for name, own in model.named_parameters():
        if ".attention." in name:
            assert own.grad is not None, name
            assert own.grad.isfinite().all(), name
    model.eval()

    assert_steps_are_teacher_forcing(model, model, source, target)


def test_layers_share_keys_that_are_not_projected() -> None:
    source = Source(torch.tensor([[4, 5, 6]]), torch.tensor([3]))
    plain = convolutional().start(source).source.memories
    assert plain[0].key is plain[1].key
    chosen = convolutional().start(source).select(torch.tensor([0, 0])).source.memories
    assert chosen[0].key is chosen[1].key
    assert chosen[0].key.shape[0] == 2
    general = convolutional(attention={"score": "general"}).start(source).source.memories
    assert general[0].key is not general[1].key
    assert general[0].value is general[1].value


def test_the_default_is_the_papers() -> None:
    own = convolutional().decoder[0].attention
    assert isinstance(own, Attention)
    assert isinstance(own.score, Dot)


@pytest.mark.parametrize("attention", pairwise(FACTORS), ids=str)
def test_texts_of_a_pair_are_compared(attention: dict[str, Any]) -> None:
    torch.manual_seed(1)
    sizes = {**WORDS, "hidden_size": 8, "ffn_size": 8, "intra_attention": True}
    settings = DecomposableSettings.model_validate({**sizes, "attention": attention})
    model = DecomposableEncoder(settings, 20)
    both = sequences_of([[7, 8, 9, 10], [5]], [[4, 6], [11]])
    pooled = model(both).pooled
    assert pooled is not None
    pooled.square().sum().backward()
    model.eval()
    with torch.no_grad():
        alone = model(sequences_of([[5]], [[11]])).pooled
        padded = model(both).pooled
    assert alone is not None
    assert padded is not None
    torch.testing.assert_close(padded[1:], alone)


@pytest.mark.parametrize(
    "name", ["softmax-off-by-one", "sink-softmax", "smoothed", "sparsemax", "entmax"]
)
@pytest.mark.parametrize("kind", ["structured", "apart", "hierarchical"])
def test_poolings_have_the_normalizer(kind: str, name: str) -> None:
    torch.manual_seed(1)
    table = {"normalizer": name}
    if kind == "hierarchical":
        own = HierarchicalSettings.model_validate({**WORDS, "attention": table})
        model: Any = HierarchicalEncoder(own, 20, [6])
    else:
        given = {**WORDS, "hidden_size": 8, "hops": 2, "attention_size": 5, "attention": table}
        pairs = "apart" if kind == "apart" else "joined"
        settings = RecurrentEncoderSettings.model_validate({**given, "pairs": pairs})
        model = RecurrentTextEncoder(settings, 20)
    second = [[4, 6], [11]] if kind == "apart" else None
    with watch(model, keep_gradients=True) as seen:
        pooled = model(sequences_of([[7, 8, 6, 10], [5]], second)).pooled
    pooled.square().sum().backward()
    for axis in model.attention_axes():
        sums = seen[axis][0].sum(-1)
        assert (sums <= 1 + 1e-5).all()
        if name in ("softmax-off-by-one", "sink-softmax"):
            assert (sums < 0.999).all()
    learned = [own for own in model.modules() if isinstance(own, Entmax)]
    assert bool(learned) == (name == "entmax")
    if name == "sparsemax":
        assert any(isinstance(own, Sparsemax) for own in model.modules())


def test_texts_of_a_pair_share_what_the_pooling_learns() -> None:
    given = {**WORDS, "hidden_size": 8, "pairs": "apart", "attention": {"normalizer": "entmax"}}
    model = RecurrentTextEncoder(RecurrentEncoderSettings.model_validate(given), 20)
    assert isinstance(model.pooling, StructuredSelfAttention)
    assert isinstance(model.second_pooling, StructuredSelfAttention)
    pairs = zip(model.pooling.parameters(), model.second_pooling.parameters(), strict=True)
    assert all(one is other for one, other in pairs)
    assert len(list(model.pooling.parameters())) == 3


def test_additive_scores_compare_words_of_two_texts() -> None:
    given = {**WORDS, "hidden_size": 8, "ffn_size": 8, "attention": {"score": "additive"}}
    model = DecomposableEncoder(DecomposableSettings.model_validate(given), 20)
    assert isinstance(model.first_to_second.score, Additive)


@pytest.mark.parametrize(
    ("settings", "attention", "message"),
    [
        (ConvolutionalSettings, {"heads": 2}, "has one head and no heads"),
        (ConvolutionalSettings, {"mask": "window"}, "has one head and no mask"),
        (ConvolutionalSettings, {"normalizer": "sampled-hard"}, "trained by reward"),
        (ConvolutionalSettings, {"normalizer": "local-monotonic"}, "for recurrent decoders"),
        (ConvolutionalSettings, {"normalizer": "windowed"}, "for recurrent decoders"),
        (DecomposableSettings, {"score": "exp-dot"}, "choose the normalizer plain-sum"),
        (RecurrentEncoderSettings, {"normalizer": "hard"}, "passes no gradient"),
        (RecurrentEncoderSettings, {"heads": 2}, "attention.heads is for pooling = 'latents'"),
        (HierarchicalSettings, {"normalizer": "plain-sum"}, "not negative"),
        (HierarchicalSettings, {"score": "dot"}, "Extra inputs"),
    ],
)
def test_what_has_no_meaning_is_refused(
    settings: Any, attention: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        settings.model_validate({"attention": attention})


@pytest.mark.parametrize(
    ("attention", "message"),
    [
        ({"positions": "alibi"}, "learned queries have no positions"),
        ({"mask": "window"}, "learned queries have no positions"),
        ({"score": {"name": "location", "positions": 4}}, "positions of the score to 512"),
        ({"heads": 3}, "hidden_size 16 is not a multiple of heads 3"),
        ({"normalizer": "plain-sum"}, "choose the score exp-dot"),
    ],
)
def test_what_learned_queries_cannot_have_is_refused(
    attention: dict[str, Any], message: str
) -> None:
    given = {"pooling": "latents", "hidden_size": 8, "attention": attention}
    with pytest.raises(ValidationError, match=message):
        RecurrentEncoderSettings.model_validate(given)


def test_learned_queries_have_every_part() -> None:
    attention = {"heads": 2, "score": "additive", "normalizer": "entmax15", "gate": "head"}
    given = {**WORDS, "hidden_size": 8, "pooling": "latents", "hops": 3, "attention": attention}
    model = RecurrentTextEncoder(RecurrentEncoderSettings.model_validate(given), 20)
    assert model.attention_axes() == {"pooling.attention": ("hops", "text")}
    with watch(model, keep_gradients=True) as seen:
        pooled = model(sequences_of([[7, 8, 6, 10], [5]])).pooled
    pooled.square().sum().backward()
    assert pooled.shape == (2, 3 * 16)
    weights = seen["pooling.attention"][0]
    assert weights.shape == (2, 2, 3, 6)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 2, 3))
    assert not weights[..., 0].any()  # BEGIN
    assert model.pooling.latents.grad.abs().sum() > 0
