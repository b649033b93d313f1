"""Pegasus, BART, mBART, M2M-100 and T5: transformers' own models and ours, with the same numbers.

Logits and gradients in float64, and outputs of search, for random weights of odd sizes.
"""

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
import transformers
from transformers.models.t5.modeling_t5 import T5LayerNorm

from heedful.basics.errors import UserError
from heedful.basics.symbols import BEGIN, END, PAD
from heedful.data.imported_vocabulary import places_of
from heedful.decoding import SearchOptions, search
from heedful.decoding.forced_first import ForcedFirst
from heedful.inference.fusing import searched
from heedful.interop.layouts import bart, m2m100, pegasus, t5
from heedful.models.pairs import Source
from heedful.models.transformer import Transformer, TransformerSettings
from interop_help import randomise

SIZES = {
    "vocab_size": 40,
    "d_model": 12,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 3,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 7,
    "decoder_ffn_dim": 9,
    "max_position_embeddings": 300,
}
BART_SYMBOLS = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
T5_SIZES = {
    "vocab_size": 40,
    "d_model": 14,
    "d_kv": 5,
    "d_ff": 9,
    "num_layers": 2,
    "num_heads": 3,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 20,
    "decoder_start_token_id": 0,
}

MODELS: dict[str, dict[str, Any]] = {
    "pegasus": {"scale_embedding": True, "decoder_start_token_id": 0},
    "pegasus-relu": {"activation_function": "relu", "decoder_start_token_id": 5},
    "bart": {"decoder_start_token_id": 2, "forced_eos_token_id": None},
    "bart-scaled": {
        "decoder_start_token_id": 7,
        "scale_embedding": True,
        "activation_function": "relu",
        "forced_eos_token_id": None,
    },
    "mbart": {"decoder_start_token_id": 2, "forced_eos_token_id": None},
    "m2m": {},
    "m2m-other": {
        "pad_token_id": 4,
        "decoder_start_token_id": 7,
        "scale_embedding": False,
        "activation_function": "gelu",
        "encoder_layerdrop": 0.0,
    },
    "t5": {"num_decoder_layers": 1},
    "t5-one-head": {"num_heads": 1, "d_kv": 14, "feed_forward_proj": "gelu"},
    "t5-1.1": {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
}


def theirs_of(name: str) -> Any:
    kind, own = name.split("-")[0], MODELS[name]
    torch.manual_seed(3)
    if kind == "t5":
        config = transformers.T5Config(**T5_SIZES | own)
        model = transformers.T5ForConditionalGeneration(config)
        if own.get("tie_word_embeddings") is False:
            model.lm_head.weight = torch.nn.Parameter(torch.zeros(40, 14))
        _exact_norms(model)
        return randomise(model)
    made = {
        "pegasus": (transformers.PegasusConfig, transformers.PegasusForConditionalGeneration),
        "bart": (transformers.BartConfig, transformers.BartForConditionalGeneration),
        "mbart": (transformers.MBartConfig, transformers.MBartForConditionalGeneration),
        "m2m": (transformers.M2M100Config, transformers.M2M100ForConditionalGeneration),
    }
    symbols = {} if kind == "pegasus" else BART_SYMBOLS
    model = made[kind][1](made[kind][0](**SIZES | symbols | own))
    found = randomise(model)
    for part in found.modules():
        if kind == "m2m" and hasattr(part, "make_weights"):
            part.weights = exact_sinusoids(part.weights, model.config.pad_token_id)
        elif kind != "pegasus" and "PositionalEmbedding" in type(part).__name__:
            torch.nn.init.normal_(part.weight, std=0.3)
    return found


def exact_sinusoids(given: torch.Tensor, pad: int) -> torch.Tensor:
    """M2M-100's positions, computed in float64; the library computes them in float32."""
    rows, dim = given.shape
    found = torch.zeros(rows, dim, dtype=torch.double)
    for row in range(rows):
        for pair in range(dim // 2):
            angle = row * 10000.0 ** (-pair / (dim // 2 - 1))
            found[row, pair], found[row, dim // 2 + pair] = math.sin(angle), math.cos(angle)
    found[pad] = 0.0
    assert torch.allclose(given.double(), found, atol=1e-4)
    return found.float()


def _exact_norms(model: torch.nn.Module) -> None:
    """Norms in the type of their inputs, because T5LayerNorm computes them in float32 only."""
    for part in list(model.modules()):
        for child, norm in list(part.named_children()):
            if isinstance(norm, T5LayerNorm):
                made = torch.nn.RMSNorm(len(norm.weight), eps=norm.variance_epsilon)
                setattr(part, child, made)


def saved(model: Any) -> dict[str, torch.Tensor]:
    """What save_pretrained would write: a shared tensor once."""
    seen: set[int] = set()
    tensors = {}
    for name, tensor in model.state_dict().items():
        if tensor.data_ptr() not in seen:
            seen.add(tensor.data_ptr())
            tensors[name] = tensor
    return tensors


def special_of(config: Any) -> list[int | None]:
    """The rows of PAD, UNKNOWN, BEGIN and END; row 3 is the unknown symbol."""
    pad, start, end = config.pad_token_id, config.decoder_start_token_id, config.eos_token_id
    return [None if pad == start else pad, 3, None if start == end else start, end]


def ours_of(name: str, theirs: Any) -> tuple[Transformer, Sequence[int | None]]:
    config, tensors = theirs.config, saved(theirs)
    places = places_of(special_of(config), config.vocab_size)
    kind = name.split("-")[0]
    fields = config.to_dict()
    if kind == "t5":
        settings = t5.settings_of(fields, "here", tied=t5.is_tied(tensors))
        found = t5.import_tensors(tensors, settings, places, "here")
    else:
        layout: Any = {"pegasus": pegasus, "m2m": m2m100}.get(kind, bart)
        settings = layout.settings_of(fields, "here")
        found = layout.import_tensors(tensors, settings, places, "here")
    ours = Transformer(settings, len(places), len(places))
    missing = ours.load_state_dict(found, strict=False).missing_keys
    shared = [key for key in missing if "source_embedding" in key or ".positions." in key]
    assert missing == shared
    return ours.eval(), places


def batch(
    lengths: list[int], places: Sequence[int | None], config: Any
) -> tuple[Source, dict[str, torch.Tensor]]:
    """Sources in our numbers, and in theirs."""
    generator = torch.Generator().manual_seed(5)
    width = max(lengths)
    ours = torch.full((len(lengths), width), PAD)
    for row, length in enumerate(lengths):
        ours[row, :length] = torch.randint(4, 30, (length,), generator=generator)
        ours[row, length - 1] = END
    real = torch.arange(width) < torch.tensor(lengths)[:, None]
    ids = table_of(places, config)[ours].masked_fill(~real, config.pad_token_id)
    return Source(ours, torch.tensor(lengths)), {"input_ids": ids, "attention_mask": real.long()}


def table_of(places: Sequence[int | None], config: Any) -> torch.Tensor:
    """Our symbols in their numbers."""
    table = [0 if place is None else place for place in places]
    table[BEGIN] = config.decoder_start_token_id
    return torch.tensor(table)


@pytest.mark.parametrize("name", MODELS)
def test_logits_and_gradients_are_the_same(name: str) -> None:
    theirs = theirs_of(name)
    ours, places = ours_of(name, theirs)
    theirs, ours = theirs.double(), ours.double()
    sinusoidal = name.startswith(("pegasus", "m2m"))
    near = 1e-6 if sinusoidal else 1e-9  # sinusoids are in float32
    source, inputs = batch([5, 9, 280], places, theirs.config)
    target = torch.cat([torch.full((3, 1), BEGIN), torch.randint(4, 30, (3, 33))], 1)
    table = table_of(places, theirs.config)
    logits = ours.teacher_force(source, target)
    expected = theirs(**inputs, decoder_input_ids=table[target]).logits
    known = [symbol for symbol, place in enumerate(places) if place is not None]
    torch.testing.assert_close(logits[..., known], expected[..., table[known]], atol=near, rtol=0)
    others = [symbol for symbol, place in enumerate(places) if place is None]
    assert (logits[..., others] < -9e3).all()
    weight = torch.randn(expected.shape, dtype=torch.double)
    (expected * weight).sum().backward()
    (logits[..., known] * weight[..., table[known]]).sum().backward()
    found = {key: part.grad for key, part in ours.named_parameters()}
    if places[BEGIN] is None and not name.startswith("t5"):  # one row of their table
        table_gradient = found["target_embedding.weight"]
        assert table_gradient is not None
        table_gradient[END] += table_gradient[BEGIN]
        table_gradient[BEGIN] = table_gradient[END]
    gradients = {
        key: torch.zeros_like(part) if part.grad is None else part.grad
        for key, part in theirs.named_parameters()
        if part.requires_grad
    }
    for key, gradient in exported(name, ours, places, found).items():
        if key in gradients:
            real = torch.ones(len(gradient), dtype=torch.bool)
            if "embed_positions" in key:
                real[:2] = False  # not used
            if key == "model.shared.weight":
                # Their tables give padding no gradient, even where targets begin with it.
                real[theirs.config.pad_token_id] = False
            size = gradients[key].abs().max().item() + 1
            torch.testing.assert_close(
                gradient[real],
                gradients[key][real],
                atol=near * size,
                rtol=0,
                msg=lambda text, key=key: f"{key}: {text}",
            )


def exported(
    name: str, ours: Transformer, places: Sequence[int | None], tensors: dict[str, Any]
) -> dict[str, torch.Tensor]:
    """Tensors of our model, or their gradients, in the layout."""
    whole = {key: tensors[key] for key in tensors}
    whole.setdefault("bias", torch.zeros(len(places)))
    if name.startswith("t5"):
        return t5.export_tensors(whole, ours.settings, places)
    if name.startswith("m2m"):
        whole.pop("bias")  # the layout has none
        return m2m100.export_tensors(whole, ours.settings, places)[0]
    if name.startswith("pegasus"):
        return pegasus.export_tensors(whole, ours.settings, places)
    return bart.export_tensors(whole, ours.settings, places)[0]


@pytest.mark.parametrize("name", MODELS)
def test_tensors_and_fields_come_back(name: str) -> None:
    theirs = theirs_of(name)
    ours, places = ours_of(name, theirs)
    back, expected = exported(name, ours, places, dict(ours.state_dict())), saved(theirs)
    assert set(back) == set(expected)
    for key, tensor in expected.items():
        rows = slice(2, None) if "embed_positions" in key and "pegasus" not in name else slice(None)
        assert torch.allclose(back[key][rows], tensor[rows], atol=1e-7), key
    layout: Any = {"t5": t5, "pegasus": pegasus, "m2m": m2m100}.get(name.split("-")[0], bart)
    fields, written = layout.config_of(ours.settings), theirs.config.to_dict()
    for key, value in fields.items():
        if key not in ("architectures", "tie_word_embeddings") and "layerdrop" not in key:
            assert value == written[key], key


@pytest.mark.parametrize("name", MODELS)
@torch.inference_mode()
def test_greedy_outputs_are_those_of_generate(name: str) -> None:
    """By our caches, and by the form of the model that searches."""
    theirs = theirs_of(name)
    ours, places = ours_of(name, theirs)
    source, inputs = batch([5, 9, 3, 12], places, theirs.config)
    table, config = table_of(places, theirs.config), theirs.config
    never = {row for row in special_of(config)[:END] if row is not None}
    never |= {config.decoder_start_token_id} - {config.eos_token_id}
    generated = theirs.generate(
        **inputs, num_beams=1, max_new_tokens=12, bad_words_ids=[[row] for row in never]
    ).tolist()
    options = SearchOptions(beam=1, length_penalty=0.0)
    limits = torch.tensor([12] * 4)
    for model in (ours, searched(ours)):
        found = search(model, source, rows=4, options=options, max_lengths=limits)
        for row, whole in zip(found, generated, strict=True):
            written = whole[1:]
            ended = config.eos_token_id in written
            end = written.index(config.eos_token_id) if ended else 11  # our twelfth is END
            assert [int(table[token]) for token in row[0].tokens] == written[:end]


@pytest.mark.parametrize(
    ("name", "language"),
    [
        *((name, None) for name in ("pegasus", "bart", "mbart", "m2m", "t5", "t5-1.1")),
        ("m2m", 17),
        ("mbart", 9),
    ],
)
@torch.inference_mode()
def test_beams_are_those_of_generate(name: str, language: int | None) -> None:
    """All outputs equally long, so that both searches stop at the same step.

    With a language, all outputs begin with its token.
    """
    theirs = theirs_of(name)
    ours, places = ours_of(name, theirs)
    source, inputs = batch([5, 9, 3], places, theirs.config)
    table, config, length, beam = table_of(places, theirs.config), theirs.config, 7, 4
    never = {row for row in special_of(config)[:END] if row is not None}
    never |= {config.decoder_start_token_id} - {config.eos_token_id}
    generated = theirs.generate(
        **inputs,
        num_beams=beam,
        num_return_sequences=beam,
        length_penalty=0.0,
        min_new_tokens=length,
        max_new_tokens=length,
        forced_eos_token_id=None,
        forced_bos_token_id=language,
        bad_words_ids=[[row] for row in never],
        return_dict_in_generate=True,
        output_scores=True,
    )
    options = SearchOptions(beam=beam, nbest=beam, length_penalty=0.0, forced_length=length)
    model: Any = ours if language is None else ForcedFirst(ours, places.index(language))
    found = search(model, source, rows=3, options=options, max_lengths=torch.tensor([length] * 3))
    tokens = [[int(table[token]) for token in one.tokens] for row in found for one in row]
    assert tokens == generated.sequences[:, 1:].tolist()
    scores = torch.tensor([one.score for row in found for one in row])
    torch.testing.assert_close(scores, generated.sequences_scores, atol=1e-4, rtol=1e-5)


def test_a_trained_start_of_targets_gets_a_row_of_its_own() -> None:
    """BART's targets begin with END; once training has changed one of the two, both are written."""
    ours, places = ours_of("bart", theirs_of("bart"))
    tensors = dict(ours.state_dict())
    tensors["target_embedding.weight"][BEGIN] += 1.0
    back, start = bart.export_tensors(tensors, ours.settings, places)
    assert start == 40
    assert back["model.shared.weight"].shape == (41, 12)
    assert back["final_logits_bias"][0, 40] < -9e3
    config = transformers.BartConfig(**SIZES | BART_SYMBOLS | {"vocab_size": 41})
    again = transformers.BartForConditionalGeneration(config).eval()
    again.load_state_dict(back, strict=False)
    again.tie_weights()
    source, inputs = batch([5, 4], places, config)
    target = torch.tensor([[BEGIN, 7, 9], [BEGIN, 8, 5]])
    table = table_of(places, config)
    table[BEGIN] = 40
    logits = ours.teacher_force(source, target)
    expected = again(**inputs, decoder_input_ids=table[target]).logits
    known = [symbol for symbol, place in enumerate(places) if place is not None]
    torch.testing.assert_close(
        logits[..., known], expected[..., table[known]], atol=1e-5, rtol=1e-5
    )


@pytest.mark.parametrize("name", ["bart", "m2m", "pegasus"])
def test_a_bare_model_has_the_same_tensors_without_a_prefix(name: str) -> None:
    theirs = theirs_of(name)
    ours, places = ours_of(name, theirs)
    layout: Any = {"bart": bart, "m2m": m2m100, "pegasus": pegasus}[name]
    bare = {key: tensor for key, tensor in saved(theirs.model).items() if "logits" not in key}
    assert "shared.weight" in bare
    found = layout.import_tensors(bare, ours.settings, places, "here")
    for key, tensor in ours.state_dict().items():
        if key in found and key != "bias":
            assert torch.equal(found[key], tensor), key


WRONG: list[tuple[Any, str, dict[str, Any], str]] = [
    (pegasus, "pegasus", {"d_model": 11}, "d_model = 11"),
    (pegasus, "pegasus", {"normalize_before": False}, "normalize_before = false"),
    (pegasus, "pegasus", {"encoder_layerdrop": 0.1}, r"encoder_layerdrop = 0\.1"),
    (pegasus, "pegasus", {"wings": 2}, "wings = 2: heedful does not know this field"),
    (bart, "bart", {"normalize_before": True}, "normalize_before = true"),
    (bart, "bart", {"tie_word_embeddings": False}, "tie_word_embeddings = false"),
    (bart, "bart", {"static_position_embeddings": True}, "static_position_embeddings = true"),
    (bart, "mbart", {"add_final_layer_norm": False}, "add_final_layer_norm = false"),
    (m2m100, "m2m", {"d_model": 11}, "d_model = 11"),
    (m2m100, "m2m", {"d_model": 2}, "d_model = 2"),
    (m2m100, "m2m", {"pad_token_id": None}, "pad_token_id = null"),
    (m2m100, "m2m", {"tie_word_embeddings": False}, "tie_word_embeddings = false"),
    (m2m100, "m2m", {"normalize_before": False}, "normalize_before = false"),
    (m2m100, "m2m", {"wings": 2}, "wings = 2: heedful does not know this field"),
    (t5, "t5", {"feed_forward_proj": "gated-mish"}, 'feed_forward_proj = "gated-mish"'),
    (t5, "t5", {"feed_forward_proj": []}, r"feed_forward_proj = \[\]"),
    (t5, "t5", {"relative_attention_num_buckets": 9}, "relative_attention_num_buckets = 9"),
    (t5, "t5", {"is_decoder": True}, "is_decoder = true"),
    (t5, "t5", {"wings": 2}, "wings = 2: heedful does not know this field"),
]


@pytest.mark.parametrize(("layout", "name", "changed", "message"), WRONG)
def test_a_field_without_counterpart_stops_with_its_name(
    layout: Any, name: str, changed: dict[str, Any], message: str
) -> None:
    config = theirs_of(name).config.to_dict()
    more = {"tied": True} if layout is t5 else {}
    layout.settings_of(config, "here", **more)
    with pytest.raises(UserError, match=message):
        layout.settings_of(config | changed, "here", **more)


OTHER_POSITIONS: list[tuple[dict[str, Any], str]] = [
    ({"positions": "alibi"}, "encoder.positions = 'alibi'"),
    ({"encoder": {"positions": "none"}}, "encoder.positions = 'none'"),
    ({"encoder": {"positions": {"name": "t5", "max_distance": 20}}}, "max_distance"),
    ({"decoder": {"positions": {"name": "t5", "buckets": 16}}}, "decoder.positions"),
]


@pytest.mark.parametrize(("attention", "message"), OTHER_POSITIONS)
def test_a_t5_whose_attention_has_other_positions_is_refused(
    attention: dict[str, Any], message: str
) -> None:
    settings = ours_of("t5", theirs_of("t5"))[0].settings
    given = settings.model_dump() | {"attention": {"score": "dot", "head_size": 5, **attention}}
    with pytest.raises(UserError, match=message):
        t5.config_of(TransformerSettings.model_validate(given))
