"""BERT's layout: transformers' own models and ours, with the same numbers."""

from typing import Any

import pytest
import torch
import transformers

from heedful.basics.errors import UserError
from heedful.basics.symbols import BEGIN, END, PAD
from heedful.data.imported_vocabulary import places_of
from heedful.interop.layouts.bert import BERT
from heedful.interop.layouts.encoder import EncoderShape
from heedful.models.bert import Bert, BertSettings, MaskedHead, NextSentenceHead
from heedful.models.encoders import Classifier, HeadedEncoder, Sequences, Tagger, sequences_of
from interop_help import randomise

SPECIAL = [3, 1, 4, 2, 5]  # [PAD], [UNK], [CLS], [SEP], [MASK] in their table
ODD: dict[str, dict[str, Any]] = {
    "plain": {},
    "one-segment": {"type_vocab_size": 1, "hidden_act": "relu"},
    "odd-heads": {"hidden_size": 15, "num_attention_heads": 5, "hidden_act": "gelu_new"},
    "one-head": {"num_attention_heads": 1, "layer_norm_eps": 1e-5, "num_hidden_layers": 1},
}
KINDS = {
    "BertModel": [],
    "BertForMaskedLM": ["masked"],
    "BertForPreTraining": ["masked", "next_sentence"],
    "BertForNextSentencePrediction": ["next_sentence"],
    "BertForSequenceClassification": ["classification"],
    "BertForTokenClassification": ["tagging"],
}


def config_of(name: str) -> transformers.BertConfig:
    given = {
        "vocab_size": 40,
        "hidden_size": 12,
        "num_hidden_layers": 3,
        "num_attention_heads": 3,
        "intermediate_size": 7,
        "max_position_embeddings": 300,
        "pad_token_id": 3,
        "num_labels": 4,
    }
    return transformers.BertConfig(**given | ODD[name])


def made(kind: str, name: str) -> tuple[Any, HeadedEncoder, EncoderShape]:
    config = config_of(name)
    theirs = randomise(getattr(transformers, kind)(config))
    theirs.config.architectures = [kind]
    settings = BERT.settings_of(theirs.config.to_dict(), "here")
    shape = BERT.shape_of(saved(theirs), theirs.config.to_dict())
    places = places_of(SPECIAL, 40)
    encoder = Bert(settings, len(places))
    heads = {
        "masked": lambda: MaskedHead(encoder),
        "next_sentence": lambda: NextSentenceHead(settings.hidden_size),
        "classification": lambda: Classifier(settings.hidden_size, 4, 0.0),
        "tagging": lambda: Tagger(settings.hidden_size, 4, 0.0),
    }
    ours = HeadedEncoder(encoder, {head: heads[head]() for head in KINDS[kind]})
    tensors = BERT.import_tensors(saved(theirs), settings, places, shape, "here")
    ours.load_state_dict(tensors, strict=True)
    return theirs, ours.eval(), shape


def saved(model: Any) -> dict[str, torch.Tensor]:
    """What save_pretrained would write."""
    seen: set[int] = set()
    tensors = {}
    for name, tensor in model.state_dict().items():
        if name.endswith(("position_ids", "token_type_ids")) or tensor.data_ptr() in seen:
            continue
        seen.add(tensor.data_ptr())
        tensors[name] = tensor
    return tensors


def batches(segments: int) -> tuple[Sequences, dict[str, torch.Tensor]]:
    """Pairs, one of them long, in our numbers and in theirs."""
    generator = torch.Generator().manual_seed(2)

    def words(count: int) -> list[int]:
        return torch.randint(4, 40, (count,), generator=generator).tolist()

    first, second = [words(3), words(280), words(1)], [words(5), words(9), words(0)]
    ours = sequences_of(first, second if segments > 1 else None)
    table = torch.tensor(places_of(SPECIAL, 40))
    real = torch.arange(ours.tokens.shape[1]) < ours.lengths[:, None]
    inputs = {
        "input_ids": table[ours.tokens],
        "attention_mask": real.long(),
        "token_type_ids": ours.segments,
    }
    assert {PAD, BEGIN, END} <= set(ours.tokens.flatten().tolist())
    return ours, inputs


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("kind", KINDS)
@torch.inference_mode()
def test_outputs_are_the_same(kind: str, name: str) -> None:
    theirs, ours, _ = made(kind, name)
    sequences, inputs = batches(theirs.config.type_vocab_size)
    expected = theirs(**inputs)
    encoded = ours.encoder(sequences)
    real = inputs["attention_mask"].bool()
    states = encoded.states[real]
    places = places_of(SPECIAL, 40)

    def close(one: torch.Tensor, other: torch.Tensor) -> None:
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)

    if kind == "BertModel":
        close(states, expected.last_hidden_state[real])
        close(encoded.pooled, expected.pooler_output)
    if "masked" in KINDS[kind]:
        logits = expected.logits if kind == "BertForMaskedLM" else expected.prediction_logits
        close(ours.heads["masked"](states), logits[real][:, places])
    if kind == "BertForPreTraining":
        close(ours.heads["next_sentence"](encoded), expected.seq_relationship_logits)
    elif "next_sentence" in KINDS[kind] or "classification" in KINDS[kind]:
        close(ours.heads[KINDS[kind][0]](encoded), expected.logits)
    if "tagging" in KINDS[kind]:
        close(ours.heads["tagging"](encoded)[real], expected.logits[real])


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("kind", KINDS)
def test_tensors_and_fields_come_back(kind: str, name: str) -> None:
    theirs, ours, shape = made(kind, name)
    settings = ours.encoder.settings
    assert isinstance(settings, BertSettings)
    shape = BERT.shape_for(shape.heads)
    tensors = dict(ours.state_dict())
    back = BERT.export_tensors(tensors, settings, places_of(SPECIAL, 40), shape)
    expected = saved(theirs)
    assert set(back) == set(expected)
    for key, tensor in expected.items():
        assert torch.equal(back[key], tensor), key
    written = theirs.config.to_dict()
    for key, value in BERT.config_of(settings, shape, places_of(SPECIAL, 40)).items():
        assert value == written[key], key


def test_old_names_and_ties_written_out_are_read() -> None:
    theirs, ours, shape = made("BertForPreTraining", "plain")
    older = {
        key.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): tensor
        for key, tensor in theirs.state_dict().items()
    }
    older["bert.embeddings.position_ids"] = torch.arange(300)[None]
    settings = BERT.settings_of(theirs.config.to_dict(), "here")
    again = BERT.import_tensors(older, settings, places_of(SPECIAL, 40), shape, "here")
    for key, tensor in ours.state_dict().items():
        assert torch.equal(again[key], tensor), key


WRONG = [
    ({"position_embedding_type": "relative_key"}, 'position_embedding_type = "relative_key"'),
    ({"is_decoder": True}, "is_decoder = true"),
    ({"add_cross_attention": True}, "add_cross_attention = true"),
    ({"hidden_act": "quick_gelu"}, 'hidden_act = "quick_gelu"'),
    ({"num_attention_heads": 5}, "num_attention_heads = 5"),
    ({"tie_word_embeddings": False}, "tie_word_embeddings = false"),
    ({"problem_type": "ranking"}, 'problem_type = "ranking"'),
    ({"classifier_dropout": 1.4}, r"classifier_dropout = 1\.4"),
    ({"layer_norm_eps": 0}, "layer_norm_eps = 0"),
    ({"embedding_size": 8}, "embedding_size = 8: heedful does not know this field"),
]


@pytest.mark.parametrize(("changed", "message"), WRONG)
def test_a_field_without_counterpart_stops_with_its_name(
    changed: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        BERT.settings_of(config_of("plain").to_dict() | changed, "here/config.json")


def test_shapes_that_do_not_fit_are_one_line() -> None:
    theirs, _, shape = made("BertModel", "plain")
    given = saved(theirs)
    settings = BERT.settings_of(theirs.config.to_dict() | {"vocab_size": 41}, "here")
    with pytest.raises(UserError, match=r"word_embeddings.*\[40, 12\], but config.json gives \[41"):
        BERT.import_tensors(given, settings, places_of(SPECIAL, 41), shape, "here")
    both = EncoderShape({"classification": 2, "tagging": 3}, pooler=True)
    with pytest.raises(UserError, match="heads classification, tagging"):
        BERT.config_of(settings, both, places_of(SPECIAL, 41))
