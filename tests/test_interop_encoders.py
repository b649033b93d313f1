"""The layouts of BERT's relatives: transformers' models and ours, outputs and every gradient."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers
from torch import nn

from heedful.basics.errors import UserError
from heedful.data.imported_vocabulary import places_of
from heedful.interop.layouts.albert import ALBERT
from heedful.interop.layouts.distilbert import DISTILBERT
from heedful.interop.layouts.electra import ELECTRA
from heedful.interop.layouts.encoder import SPANS, EncoderLayout, EncoderShape
from heedful.interop.layouts.roberta import ROBERTA, XLM_ROBERTA
from heedful.models.bert import Bert, MaskedHead, NextSentenceHead
from heedful.models.electra import ReplacedTokens, generator_settings
from heedful.models.encoders import Classifier, HeadedEncoder, Sequences, Tagger, sequences_of
from interop_help import randomise

ROWS = 40
SPECIAL = [3, 1, 4, 2, 5]  # PAD, UNKNOWN, BEGIN, END and the mask in their table
PLACES = places_of(SPECIAL, ROWS)
_BERT_LIKE = {
    "vocab_size": ROWS,
    "hidden_size": 15,
    "num_hidden_layers": 3,
    "num_attention_heads": 5,
    "intermediate_size": 7,
    "max_position_embeddings": 300,
    "pad_token_id": SPECIAL[0],
    "num_labels": 4,
}
_WIDE = {"hidden_size": 12, "num_attention_heads": 3}
LAYOUTS: dict[str, tuple[EncoderLayout, str, list[dict[str, Any]]]] = {
    "roberta": (
        ROBERTA,
        "Roberta",
        [_BERT_LIKE | {"type_vocab_size": 1}, _BERT_LIKE | _WIDE | {"hidden_act": "relu"}],
    ),
    "xlm-roberta": (XLM_ROBERTA, "XLMRoberta", [_BERT_LIKE | {"type_vocab_size": 1}]),
    "electra": (
        ELECTRA,
        "Electra",
        [_BERT_LIKE | {"embedding_size": 9}, _BERT_LIKE | _WIDE | {"embedding_size": 12}],
    ),
    "albert": (
        ALBERT,
        "Albert",
        [
            _BERT_LIKE | {"embedding_size": 9},
            _BERT_LIKE | _WIDE | {"embedding_size": 12, "hidden_act": "gelu"},
        ],
    ),
    "distilbert": (
        DISTILBERT,
        "DistilBert",
        [
            {
                "vocab_size": ROWS,
                "dim": 15,
                "n_layers": 3,
                "n_heads": 5,
                "hidden_dim": 7,
                "max_position_embeddings": 300,
                "pad_token_id": SPECIAL[0],
                "num_labels": 4,
                "activation": activation,
            }
            for activation in ("gelu", "relu")
        ],
    ),
}
CASES = [
    (name, number, architecture)
    for name, (layout, _, configs) in LAYOUTS.items()
    for number, config in enumerate(configs)
    for heads, architecture in layout.architectures.items()
    # Span heads are tested with whole folders.
    if "answer-spans" not in heads
    and not ("masked" in heads and layout.masked_is_gelu and config.get("hidden_act") == "relu")
]


def saved(model: nn.Module) -> dict[str, torch.Tensor]:
    """What save_pretrained would write: each tied tensor once."""
    tied: Any = getattr(model, "_tied_weights_keys", None) or {}
    return {
        name: tensor
        for name, tensor in model.state_dict().items()
        if not name.endswith(("position_ids", "token_type_ids")) and name not in tied
    }


def saved_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    parameters = dict(model.named_parameters(remove_duplicate=False))
    return {key: parameters[key] for key in saved(model) if key in parameters}


def made(name: str, number: int, architecture: str) -> tuple[Any, HeadedEncoder, EncoderShape]:
    layout, begin, configs = LAYOUTS[name]
    config = getattr(transformers, f"{begin}Config")(**configs[number])
    if architecture == "AlbertForPreTraining":
        config.num_labels = 2
    theirs = randomise(getattr(transformers, architecture)(config))
    theirs.config.architectures = [architecture]
    given = theirs.config.to_dict()
    settings = layout.settings_of(given, "here")
    shape = layout.shape_of(saved(theirs), given)
    assert layout.architecture(shape) == architecture
    tensors = layout.import_tensors(saved(theirs), settings, PLACES, shape, "here")
    encoder = Bert(settings, len(PLACES))
    heads: dict[str, Callable[[], nn.Module]] = {
        "masked": lambda: MaskedHead(encoder),
        "sentence_order": lambda: NextSentenceHead(settings.hidden_size),
        "replaced": lambda: ReplacedTokens(encoder, generator_settings(settings, 0.5)),
        "classification": lambda: Classifier(settings.hidden_size, 4, 0.0),
        "tagging": lambda: Tagger(settings.hidden_size, 4, 0.0),
    }
    ours = HeadedEncoder(encoder, {head: heads[head]() for head in shape.heads})
    missing, unexpected = ours.load_state_dict(tensors, strict=False)
    assert not unexpected
    assert all(key.startswith("heads.replaced.generator.") for key in missing)
    return theirs.double(), ours.double().eval(), shape


def batch(segments: int) -> tuple[Sequences, dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(2)

    def words(count: int) -> list[int]:
        return torch.randint(5, ROWS, (count,), generator=generator).tolist()

    first, second = [words(3), words(250), words(1)], [words(5), words(9), words(0)]
    ours = sequences_of(first, second if segments > 1 else None)
    real = torch.arange(ours.tokens.shape[1]) < ours.lengths[:, None]
    inputs = {"input_ids": torch.tensor(PLACES)[ours.tokens], "attention_mask": real.long()}
    return ours, inputs | ({"token_type_ids": ours.segments} if segments else {})


def outputs_of_theirs(theirs: Any, inputs: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    found, real = theirs(**inputs), inputs["attention_mask"].bool()
    kind = type(theirs).__name__
    if kind.endswith("Model"):
        pooled = getattr(found, "pooler_output", None)
        return [found.last_hidden_state[real], *([] if pooled is None else [pooled])]
    if kind == "AlbertForPreTraining":
        return [found.prediction_logits[real][:, PLACES], found.sop_logits]
    if kind.endswith("ForMaskedLM"):
        return [found.logits[real][:, PLACES]]
    return [found.logits if kind.endswith("SequenceClassification") else found.logits[real]]


def outputs_of_ours(ours: HeadedEncoder, sequences: Sequences, pooled: bool) -> list[torch.Tensor]:
    real = torch.arange(sequences.tokens.shape[1]) < sequences.lengths[:, None]
    encoded = ours.encoder(sequences)
    assert encoded.states is not None
    if not ours.heads:
        return [encoded.states[real], *([encoded.pooled] if pooled else [])]
    found = []
    for name, head in ours.heads.items():
        if name == "masked":
            found.append(head(encoded.states[real]))
        elif name == "replaced":
            found.append(head.detector(encoded.states[real]))
        else:
            logits = head(encoded)
            found.append(logits[real] if name == "tagging" else logits)
    return found


@pytest.mark.parametrize(("name", "number", "architecture"), CASES)
def test_outputs_and_gradients_are_the_same(name: str, number: int, architecture: str) -> None:
    layout = LAYOUTS[name][0]
    theirs, ours, shape = made(name, number, architecture)
    settings = ours.encoder.settings
    sequences, inputs = batch(settings.segments)
    expected = outputs_of_theirs(theirs, inputs)
    found = outputs_of_ours(ours, sequences, shape.pooler)
    assert len(found) == len(expected)
    generator = torch.Generator().manual_seed(3)
    total: list[torch.Tensor] = []
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-10, rtol=1e-10)
        weights = torch.randn(one.shape, generator=generator, dtype=one.dtype)
        total.append(torch.stack([(one * weights).sum(), (other * weights).sum()]))
    torch.stack(total).sum().backward()
    own = {
        key: torch.zeros_like(one) if one.grad is None else one.grad
        for key, one in ours.named_parameters()
    }
    gradients = layout.export_tensors(own, settings, PLACES, shape)
    compared = 0
    for key, parameter in saved_parameters(theirs).items():
        if parameter.grad is not None:
            close = {"atol": 1e-9, "rtol": 1e-9}
            torch.testing.assert_close(gradients[key], parameter.grad, **close, msg=key)
            compared += 1
    assert compared > 15


@pytest.mark.parametrize(("name", "number", "architecture"), CASES)
def test_tensors_and_fields_come_back(name: str, number: int, architecture: str) -> None:
    layout = LAYOUTS[name][0]
    theirs, ours, shape = made(name, number, architecture)
    settings = ours.encoder.settings
    assert layout.shape_for(shape.heads) == shape
    back = layout.export_tensors(dict(ours.state_dict()), settings, PLACES, shape)
    expected = saved(theirs)
    assert set(back) == set(expected)
    for key, tensor in expected.items():
        if key.endswith("position_embeddings.weight") and "roberta" in name:
            unused = SPECIAL[0] + 1
            assert not back[key][:unused].any()
            back[key][:unused] = tensor[:unused]
        assert torch.equal(back[key], tensor), key
    written = theirs.config.to_dict()
    for key, value in layout.config_of(settings, shape, PLACES).items():
        assert value == written[key], key


def config_of(name: str, **changed: Any) -> dict[str, Any]:
    _, begin, configs = LAYOUTS[name]
    config: dict[str, Any] = getattr(transformers, f"{begin}Config")(**configs[0]).to_dict()
    return config | changed


WRONG = [
    ("roberta", {"is_decoder": True}, "is_decoder = true"),
    ("roberta", {"max_position_embeddings": 5}, "max_position_embeddings = 5: no room"),
    ("electra", {"position_embedding_type": "relative_key"}, "position_embedding_type"),
    ("electra", {"num_attention_heads": 4}, "num_attention_heads = 4: does not divide"),
    ("electra", {"strange": 1}, "strange = 1: heedful does not know this field"),
    ("albert", {"num_hidden_groups": 2}, "num_hidden_groups = 2: not supported; only 1 is"),
    ("distilbert", {"n_heads": 4}, "n_heads = 4: does not divide"),
    ("distilbert", {"tie_word_embeddings": False}, "tie_word_embeddings = false"),
    ("distilbert", {"qa_dropout": "x"}, 'qa_dropout = "x": expected a number from 0'),
]


@pytest.mark.parametrize(("name", "changed", "message"), WRONG)
def test_a_field_without_counterpart_stops_with_its_name(
    name: str, changed: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        LAYOUTS[name][0].settings_of(config_of(name, **changed), "here/config.json")


DROPOUTS = [
    ("albert", "classification", "classifier_dropout_prob", 0.1),
    ("distilbert", "classification", "seq_classif_dropout", 0.2),
    ("distilbert", SPANS, "qa_dropout", 0.1),
    ("electra", "classification", "classifier_dropout", 0.1),
]


@pytest.mark.parametrize(("name", "head", "field", "usual"), DROPOUTS)
def test_a_dropout_that_is_null_is_the_usual_one(
    name: str, head: str, field: str, usual: float
) -> None:
    layout, shape = LAYOUTS[name][0], EncoderShape({head: 2}, pooler=False)
    config = config_of(name, **{field: None})
    layout.settings_of(config, "here/config.json")
    assert layout.head_dropout(config, shape) == usual
    assert layout.head_dropout(config | {field: 0.0}, shape) == 0.0


@pytest.mark.parametrize("name", LAYOUTS)
def test_shapes_that_do_not_fit_are_one_line(name: str) -> None:
    layout = LAYOUTS[name][0]
    theirs, ours, shape = made(name, 0, next(iter(layout.architectures.values())))
    more = places_of(SPECIAL, ROWS + 1)
    with pytest.raises(UserError, match=r"word_embeddings.*but config.json gives \[41") as found:
        layout.import_tensors(saved(theirs), ours.encoder.settings, more, shape, "here")
    assert "\n" not in str(found.value)


def test_a_head_whose_activation_differs_from_the_layers_stops() -> None:
    with pytest.raises(UserError, match=r"here: the activation 'relu'.*only gelu is supported"):
        made("roberta", 1, "RobertaForMaskedLM")
    settings = made("roberta", 1, "RobertaModel")[1].encoder.settings
    with pytest.raises(UserError, match=r"model\.activation = 'relu'.*has gelu"):
        ROBERTA.config_of(settings, EncoderShape({"masked": 0}, pooler=False), PLACES)


def test_settings_that_a_layout_lacks_are_named() -> None:
    settings = made("electra", 0, "ElectraModel")[1].encoder.settings
    shape = EncoderShape({"masked": 0}, pooler=False)
    for layout in (ROBERTA, DISTILBERT):
        with pytest.raises(UserError, match=r"model\.embedding_size: the layout of"):
            layout.config_of(settings, shape, PLACES)
    with pytest.raises(UserError, match=r"model\.shared_layers: the layout of ALBERT"):
        ALBERT.config_of(settings, shape, PLACES)
    with pytest.raises(UserError, match="no pad_token"):
        ROBERTA.config_of(made("roberta", 0, "RobertaModel")[1].encoder.settings, shape, [None, 1])
