"""Llama's, Mistral's and Qwen 2's layouts: transformers' models and ours, with the same numbers."""

import contextlib
import functools
import json
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
import transformers
from tokenizers import Regex, Tokenizer, decoders, normalizers, pre_tokenizers, trainers
from tokenizers.models import BPE

from heedful.attention.settings import AttentionSettings
from heedful.basics.errors import UserError
from heedful.basics.symbols import BEGIN, END, PAD
from heedful.data.imported_vocabulary import ImportedVocabulary, places_of
from heedful.data.tokeniser_files import find_special, read_files
from heedful.data.tokenizer_json import LLAMA3, QWEN2
from heedful.decoding import SearchOptions, search
from heedful.inference.fusing import searched
from heedful.interop.exporting import export_hf
from heedful.interop.importing import import_hf
from heedful.interop.layouts import llama
from heedful.models.gpt import Gpt, GptSettings
from heedful.runs.checkpoints import load_model_tensors
from heedful.runs.opening import open_run
from heedful.tasks.texts.building import build_text_model
from heedful.tasks.texts.loading import load_generator
from heedful.tasks.texts.run import TextRun
from heedful.training import train
from interop_help import TEXTS, randomise

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 3.0,
    "original_max_position_embeddings": 16,
}
LINEAR_ROPE = {"rope_type": "linear", "factor": 3.0, "rope_theta": 700.0}
WINDOWS = {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 2}
SIZES: dict[str, Any] = {
    "vocab_size": 41,
    "hidden_size": 36,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "intermediate_size": 29,
    "max_position_embeddings": 90,
    "bos_token_id": 40,
    "eos_token_id": 39,
    "pad_token_id": None,
}
ODD: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {"rms_norm_eps": 1e-3}),
    "llama-tied": ("llama", {"tie_word_embeddings": True, "num_key_value_heads": 6}),
    "llama-one-key": ("llama", {"num_key_value_heads": 1, "hidden_act": "gelu"}),
    "llama-biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama-attention-biases": ("llama", {"attention_bias": True}),
    "llama-3": ("llama", {"rope_parameters": LLAMA3_ROPE}),
    "llama-linear": ("llama", {"rope_parameters": LINEAR_ROPE}),
    "mistral": ("mistral", {"sliding_window": 4}),
    "mistral-whole": ("mistral", {"sliding_window": None, "hidden_act": "gelu_new"}),
    "qwen2": ("qwen2", {"tie_word_embeddings": True}),
    "qwen2-windows": ("qwen2", WINDOWS),
}  # fmt: skip
PLACES = [None, None, 40, 39]
"""The rows of PAD, UNKNOWN, BEGIN and END."""


@contextlib.contextmanager
def in_double(patch: pytest.MonkeyPatch) -> Iterator[None]:
    """transformers computes norms, angles and weights in float32; here, in float64."""
    with patch.context() as inside:
        inside.setattr(torch, "float32", torch.float64)
        inside.setattr(torch, "float", torch.float64)
        inside.setattr(torch.Tensor, "float", torch.Tensor.double)
        yield


def config_of(name: str) -> Any:
    kind, given = ODD[name]
    classes = {"llama": "LlamaConfig", "mistral": "MistralConfig", "qwen2": "Qwen2Config"}
    return getattr(transformers, classes[kind])(**SIZES | given)


def made(name: str) -> tuple[Any, Gpt, list[int | None]]:
    config = config_of(name)
    theirs: Any = randomise(getattr(transformers, llama.CLASSES[config.model_type])(config))
    settings = llama.settings_of(config.to_dict(), "here", begin=True)
    places = places_of(PLACES, 41)
    ours = Gpt(settings, len(places))
    tensors = llama.import_tensors(saved(theirs), settings, places, "here")
    ours.load_state_dict(tensors, strict=True)
    return theirs, ours.eval(), places


def saved(model: Any) -> dict[str, torch.Tensor]:
    """What save_pretrained would write."""
    tied = {"lm_head.weight"} if model.config.tie_word_embeddings else set()
    return {name: one for name, one in model.state_dict().items() if name not in tied}


def tokens_of(length: int, rows: int = 2) -> torch.Tensor:
    """Texts in heedful's symbols, which begin a document."""
    generator = torch.Generator().manual_seed(length)
    tokens = torch.randint(4, 43, (rows, length), generator=generator)
    tokens[:, 0] = END
    return tokens


def in_theirs(tokens: torch.Tensor, places: list[int | None]) -> torch.Tensor:
    """Their rows; where a document begins, that of BEGIN."""
    table = torch.tensor([0 if place is None else place for place in places])
    return table[torch.where(tokens == END, BEGIN, tokens)]


@pytest.mark.parametrize("name", ODD)
def test_logits_and_gradients_are_the_same_in_double(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs, ours, places = made(name)
    known = [symbol for symbol, place in enumerate(places) if place is not None]
    rows = [places[symbol] for symbol in known]
    texts = [tokens_of(length) for length in (1, 5, 90)]
    factors = torch.randn(2, 90, len(rows), dtype=torch.double)
    with in_double(monkeypatch):
        twin = type(theirs)(theirs.config).double()
        twin.load_state_dict(theirs.state_dict())
        expected = [twin(input_ids=in_theirs(text, places)).logits[..., rows] for text in texts]
        (expected[-1] * factors).sum().backward()
    ours.double()
    for text, wanted in zip(texts, expected, strict=True):
        logits = ours.logits(ours.states(text))
        torch.testing.assert_close(logits[..., known], wanted, atol=1e-9, rtol=1e-9)
        assert (logits[..., [0, 1]] < -9e3).all()
    (logits[..., known] * factors).sum().backward()
    own = {key: one.grad for key, one in ours.named_parameters() if one.grad is not None}
    found = llama.export_tensors(own, ours.settings, places)
    gradients = {key: one.grad for key, one in twin.named_parameters()}
    assert set(found) == set(gradients)
    for key, gradient in gradients.items():
        torch.testing.assert_close(found[key], gradient, atol=1e-8, rtol=1e-8)


@pytest.mark.parametrize("name", ODD)
@torch.inference_mode()
def test_logits_are_the_same_whichever_side_is_padded(name: str) -> None:
    theirs, ours, places = made(name)
    known = [symbol for symbol, place in enumerate(places) if place is not None]
    tokens = tokens_of(20)
    logits = ours.logits(ours.states(tokens))
    for left, right in ((0, 0), (3, 0), (0, 3)):
        ids = torch.nn.functional.pad(in_theirs(tokens, places), (left, right), value=11)
        mask = torch.nn.functional.pad(torch.ones_like(tokens), (left, right))
        numbers = (mask.cumsum(1) - 1).clamp(min=0)
        expected = theirs(input_ids=ids, attention_mask=mask, position_ids=numbers).logits
        own = expected[:, left : left + 20][..., [places[symbol] for symbol in known]]
        torch.testing.assert_close(logits[..., known], own, atol=1e-5, rtol=1e-5)


class Prompted:
    """Our model, or its fused form, with a prompt before what search writes."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def start(self, source: torch.Tensor) -> Any:
        self.last: torch.Tensor | None = source[:, -1]
        return self.model.start(source)

    def step(self, tokens: torch.Tensor, state: Any) -> Any:
        tokens, self.last = (tokens if self.last is None else self.last), None
        return self.model.step(tokens, state)


@pytest.mark.parametrize("name", ODD)
@torch.inference_mode()
def test_greedy_search_with_caches_is_generate(name: str) -> None:
    theirs, ours, places = made(name)
    prompt, length = tokens_of(7), 30
    generated = theirs.generate(
        input_ids=in_theirs(prompt, places),
        attention_mask=torch.ones_like(prompt),
        min_new_tokens=length,
        max_new_tokens=length,
        do_sample=False,
        pad_token_id=0,
        bad_words_ids=[[40]],
    )[:, prompt.shape[1] :]
    options = SearchOptions(beam=1, length_penalty=0.0, forced_length=length)
    limits = torch.tensor([length] * 2)
    for model in (ours, searched(ours)):
        found = search(Prompted(model), prompt, rows=2, options=options, max_lengths=limits)
        tokens = [[places[token] for token in one[0].tokens] for one in found]
        assert tokens == generated.tolist()


@pytest.mark.parametrize("name", ODD)
def test_tensors_and_fields_come_back(name: str) -> None:
    theirs, ours, places = made(name)
    back = llama.export_tensors(dict(ours.state_dict()), ours.settings, places)
    expected = saved(theirs)
    assert set(back) == set(expected)
    for key, tensor in expected.items():
        assert torch.equal(back[key], tensor), key
    written = theirs.config.to_dict()
    own = llama.config_of(ours.settings, theirs.config.model_type)
    again = llama.settings_of(own, "here", begin=True)
    assert again.attention_of_layers() == ours.settings.attention_of_layers()
    for key, value in own.items():
        if key not in ("architectures", "max_window_layers", "sliding_window"):
            assert value == written[key], key


def test_settings_are_read_again_as_they_were_written() -> None:
    settings = made("qwen2-windows")[1].settings
    assert GptSettings.model_validate(settings.as_tables()) == settings


def test_older_files_are_read() -> None:
    config = config_of("llama-3").to_dict()
    rope = dict(config.pop("rope_parameters"))
    older = config | {"rope_theta": rope.pop("rope_theta"), "rope_scaling": rope}
    assert llama.settings_of(older, "here") == llama.settings_of(
        config_of("llama-3").to_dict(), "here"
    )
    missing = {key: one for key, one in config.items() if key != "num_key_value_heads"}
    assert llama.settings_of(missing, "here").attention.key_value_heads == 6
    mistral = {key: value for key, value in SIZES.items() if key != "num_key_value_heads"}
    mistral |= {"model_type": "mistral", "hidden_size": 96, "num_attention_heads": 16}
    settings = llama.settings_of(mistral, "here")
    assert settings.attention.key_value_heads == 8
    assert settings.attention.mask is not None
    assert settings.attention.mask.before == 4095  # type: ignore[attr-defined]


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("llama", {"num_key_value_heads": 4}, "num_key_value_heads = 4: does not divide"),
    ("llama", {"num_attention_heads": 5}, "num_attention_heads = 5"),
    ("llama", {"num_attention_heads": 12}, "no even head width"),
    ("llama", {"head_dim": 12}, "head_dim = 12"),
    ("llama", {"hidden_act": "tanh"}, 'hidden_act = "tanh"'),
    ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor = 0.5: heedful does not know"),
    ("llama", {"rope_parameters": {"rope_type": "yarn", "factor": 2.0}}, 'rope_type = "yarn"'),
    ("llama", {"rope_parameters": {"rope_type": "llama3"}}, "the field factor is missing"),
    ("llama", {"rope_parameters": LLAMA3_ROPE | {"mscale": 2.0}}, "mscale = 2.0: heedful does not"),
    ("llama", {"rope_parameters": LLAMA3_ROPE | {"factor": 0.5}}, "factor"),
    ("llama", {"rope_parameters": LLAMA3_ROPE | {"low_freq_factor": 9.0}}, "slow 9.0"),
    ("llama", {"rope_parameters": 3}, "rope_parameters = 3: expected a table"),
    ("llama", {"sliding_window": 5}, "sliding_window = 5: heedful does not know this field"),
    ("mistral", {"sliding_window": 0}, "sliding_window = 0"),
    ("qwen2", {"layer_types": ["full_attention"]}, "layer_types"),
    ("qwen2", {"layer_types": [[], [], []]}, "layer_types"),
    ("llama", {"rope_parameters": {"rope_type": []}}, r"rope_type = \[\]"),
    ("qwen2", {"layer_types": ["full_attention", "chunked", "full_attention"]}, "layer_types"),
]


@pytest.mark.parametrize(("name", "changed", "message"), WRONG)
def test_a_field_without_counterpart_stops_with_its_name(
    name: str, changed: dict[str, Any], message: str
) -> None:
    with pytest.raises((UserError, ValueError), match=message):
        llama.settings_of(config_of(name).to_dict() | changed, "here/config.json")


def test_models_without_a_layout_are_refused() -> None:
    settings = made("llama")[1].settings
    attention = settings.attention
    window = {"name": "window", "before": 3, "after": 0}
    changes: list[tuple[dict[str, Any], str]] = [
        ({"norm": "layer"}, "model.norm"),
        ({"gated": False}, "model.gated"),
        ({"pre_norm": False}, "model.pre_norm"),
        ({"positions": "learned"}, "model.positions"),
        ({"positions": "learned", "attention": {"positions": "rotary"}}, "model.positions = 'lea"),
        ({"positions": "sinusoidal", "attention": {"positions": "rotary"}}, "are rotary only"),
        ({"positions": {"name": "rotary", "scaling": "yarn"}}, "the scaling 'yarn'"),
        ({"attention": {"normalizer": "entmax15"}}, "model.attention.normalizer"),
        ({"attention": {"gate": "head"}}, "model.attention.gate"),
        ({"attention": {"bias": "none", "mask": {"name": "block", "size": 3}}}, "mask"),
        ({"attention": {"mask": window | {"sinks": 1}}}, "without sinks"),
        ({"attention": {"layers": [{"every": 2, "key_value_heads": 3}]}}, "key_value_heads"),
        ({"attention": {"layers": [{"every": 2, "mask": window}]}}, "fit none of the layouts"),
        ({"bias": True, "attention": {"mask": window}}, "fit none of the layouts"),
    ]
    for changed, message in changes:
        table = {"layers": 4, "hidden_size": 24, "heads": 6, "norm": "rms", "gated": True}
        table |= {"positions": "rotary", "bias": False}
        with pytest.raises(UserError, match=message):
            llama.config_of(GptSettings.model_validate(table | changed))
    assert attention.key_value_heads == 2


def test_biases_of_queries_keys_and_values_only() -> None:
    settings = AttentionSettings(heads=2, bias="query-key-value")
    module = settings.build(8, "causal", bias=False)
    assert module.query_projection.bias is not None
    assert module.output_projection is not None
    assert module.output_projection.bias is None
    with pytest.raises(ValueError, match="biases of some projections only"):
        module.to_torch()
    for other in ({"latent_size": 4}, {"mixing": "differential"}, {"kind": "linear"}):
        with pytest.raises(ValueError, match="query-key-value"):
            AttentionSettings(heads=2, bias="query-key-value", **other).build_self(8, "causal")
    for kind in ("standard", "linear", "delta"):
        plain = AttentionSettings(heads=2, kind=kind, bias="none").build_self(8, "causal")
        own = ("query_projection", "key_projection", "value_projection", "output_projection")
        assert not [name for name in own if getattr(plain, name).bias is not None]


# Tokenisers and folders

STRANGE = [
    "don't",
    "WE'LL",
    "123456",
    " 12 3",
    "\r\n",
    "\n\n ",
    "\t",
    "é",
    "e\u0301",
    "東京",
    "ﬁ",
    "☃",
]
STRANGE += ["Ⅷ", "½", "\u200b", "\u00a0", "😀😀", "ſ", "ı'S", "<|begin", "a_b", "--", "…", "\x00"]
EXPRESSIONS = {"llama": LLAMA3, "qwen2": QWEN2}


def byte_pairs(kind: str) -> Tokenizer:
    """A tokeniser as Llama 3's or Qwen 2's, with special tokens after all others."""
    tokenizer = Tokenizer(BPE(ignore_merges=kind == "llama"))
    split = pre_tokenizers.Split(Regex(EXPRESSIONS[kind]), "isolated")
    last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, last])
    tokenizer.normalizer = normalizers.NFC() if kind == "qwen2" else None
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=330, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(TEXTS, trainer)
    return tokenizer


def save_tokeniser(folder: Path, kind: str) -> dict[str, int]:
    tokenizer = byte_pairs(kind)
    if kind == "qwen2":
        described = json.loads(tokenizer.to_str())["model"]
        merges = [tuple(pair) for pair in described["merges"]]
        vocabulary = described["vocab"] | {"<|endoftext|>": len(described["vocab"])}
        wrapped: Any = transformers.Qwen2Tokenizer(vocab=vocabulary, merges=merges)
    else:
        tokenizer.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"])
        wrapped = transformers.PreTrainedTokenizerFast(
            tokenizer_object=tokenizer,
            bos_token="<|begin_of_text|>",
            eos_token="<|end_of_text|>",
        )
    wrapped.save_pretrained(folder)
    found: dict[str, int] = wrapped.get_vocab()
    return found


@functools.cache
def tokenisers(kind: str) -> tuple[Any, ImportedVocabulary]:
    folder = Path(tempfile.mkdtemp())
    tokens = save_tokeniser(folder, kind)
    (folder / "config.json").write_text(json.dumps({"model_type": kind}))
    files = read_files(folder)
    special = find_special(files, str(folder), encoder=False)
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    return theirs, ImportedVocabulary(files, special, len(tokens) + 3, str(folder))


def strange_texts() -> list[str]:
    draw = random.Random(5)
    pieces = [*STRANGE, *" ".join(TEXTS[:4]).split(), " ", "  "]
    joined = ["".join(draw.choices(pieces, k=draw.randrange(9))) for _ in range(250)]
    letters = (list(range(32, 0x500)), list(range(0x2000, 0x2100)), list(range(0x1F600, 0x1F640)))
    every = [code for some in letters for code in some]
    return joined + [
        "".join(map(chr, draw.choices(every, k=draw.randrange(14)))) for _ in range(250)
    ]


@pytest.mark.parametrize("kind", EXPRESSIONS)
def test_500_strange_texts_have_the_tokens_of_transformers(kind: str) -> None:
    theirs, ours = tokenisers(kind)
    texts = strange_texts()
    assert len(texts) == 500
    for text in texts:
        expected = theirs(text, add_special_tokens=False)["input_ids"]
        assert [ours.places[token] for token in ours.encode(text)] == expected, repr(text)
        if kind == "llama":
            assert ours.decode(ours.encode(text)) == text


def folder_of(folder: Path, name: str) -> Any:
    folder.mkdir(parents=True)
    kind = ODD[name][0]
    tokens = save_tokeniser(folder, "qwen2" if kind == "qwen2" else "llama")
    end = tokens["<|endoftext|>" if kind == "qwen2" else "<|end_of_text|>"]
    config = config_of(name)
    config.vocab_size, config.eos_token_id = len(tokens), end
    config.bos_token_id = tokens.get("<|begin_of_text|>", end)
    model: Any = randomise(getattr(transformers, llama.CLASSES[kind])(config))
    model.save_pretrained(folder)
    return model


def opened(path: Path) -> tuple[TextRun, Any]:
    run = open_run(path)
    assert isinstance(run, TextRun)
    model = build_text_model(run)
    point = run.chosen()
    load_model_tensors(model, point.weights(), point.path)
    return run, model.eval()


@torch.inference_mode()
def assert_same(path: Path, folder: Path) -> None:
    """Text in, logits out, through both whole chains."""
    run, ours = opened(path)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    imported = "imported" in run.facts
    auto = transformers.AutoTokenizer if imported else transformers.PreTrainedTokenizerFast
    tokeniser = auto.from_pretrained(folder)
    vocabulary = run.vocabulary()
    places = list(getattr(vocabulary, "places", range(vocabulary.size)))
    first = tokeniser.bos_token_id if ours.settings.begin else tokeniser.eos_token_id
    known = [symbol for symbol, place in enumerate(places) if place is not None]
    for text in ("The quick cat sat, on the mat.", "12 and 345", "A naïve café! doesn't she?"):
        tokens = [END, *vocabulary.encode(text)]
        ids = tokeniser(text, add_special_tokens=False)["input_ids"]
        assert [places[token] for token in tokens[1:]] == ids
        logits = ours.logits(ours.states(torch.tensor([tokens])))[0]
        expected = theirs(torch.tensor([[first, *ids]])).logits[0]
        own = expected[:, [places[symbol] for symbol in known]]
        torch.testing.assert_close(logits[:, known], own, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["llama-3", "llama-tied", "mistral", "qwen2-windows"])
def test_an_imported_model_is_a_run_and_comes_back_whole(name: str, tmp_path: Path) -> None:
    folder, run, back = tmp_path / "hf", tmp_path / "run", tmp_path / "back"
    model = folder_of(folder, name)
    assert import_hf(folder, run).recipe.task == "language-model"
    assert_same(run, folder)
    generator = load_generator(run)
    written = generator.generate(
        "The quick", options=SearchOptions(beam=1), max_tokens=9, begins=True
    )[0]
    tokeniser = transformers.AutoTokenizer.from_pretrained(folder)
    first = tokeniser.bos_token_id if name[:5] != "qwen2" else tokeniser.eos_token_id
    ids = torch.tensor([[first, *tokeniser("The quick", add_special_tokens=False)["input_ids"]]])
    never = [] if name[:5] == "qwen2" else [[tokeniser.bos_token_id]]
    found = model.generate(ids, max_new_tokens=9, do_sample=False, bad_words_ids=never or None)
    expected = found[0, ids.shape[1] :].tolist()
    expected = (
        expected[: expected.index(tokeniser.eos_token_id)]
        if tokeniser.eos_token_id in expected
        else expected
    )
    assert written.text == tokeniser.decode(expected, clean_up_tokenization_spaces=False)
    export_hf(run, back)
    before, after = (safetensors.torch.load_file(at / "model.safetensors") for at in (folder, back))
    assert set(before) == set(after)
    assert all(torch.equal(before[key], after[key]) for key in before)
    assert (folder / "tokenizer.json").read_bytes() == (back / "tokenizer.json").read_bytes()
    old, new = (json.loads((at / "config.json").read_text()) for at in (folder, back))
    same = {key for key in old if key not in ("max_window_layers", "pad_token_id")}
    assert {key: new.get(key) for key in same} == {key: old[key] for key in same}
    assert_same(run, back)


OWN: dict[str, Any] = {
    "kind": "gpt", "hidden_size": 16, "ffn_size": 22, "heads": 4, "layers": 2, "max_length": 120,
    "norm": "rms", "gated": True, "bias": False, "activation": "silu", "positions": "rotary",
    "tied_embeddings": False, "dropout": 0.0, "attention_dropout": 0.0,
    "attention": {"key_value_heads": 2},
}  # fmt: skip


@pytest.mark.parametrize("architecture", llama.CLASSES.values())
def test_our_own_model_is_exported_by_its_biases_and_windows(
    architecture: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text.txt").write_text("\n\n".join(TEXTS * 3), encoding="utf-8")
    window, begin = {"name": "window", "before": 2, "after": 0}, architecture[:7] == "Mistral"
    more: dict[str, dict[str, Any]] = {
        "LlamaForCausalLM": {},
        "MistralForCausalLM": {"mask": window},
        "Qwen2ForCausalLM": {"bias": "query-key-value", "layers": [{"every": 2, "mask": window}]},
    }
    recipe = {
        "task": "language-model",
        "data": {"train": str(tmp_path / "text.txt")},
        "tokeniser": {"kind": "bytes", "vocabulary_size": 300},
        "model": OWN | {"attention": OWN["attention"] | more[architecture], "begin": begin},
        "context": 32,
        "training": {"max_steps": 3, "batch_tokens": 128},
    }
    train(recipe, tmp_path / "run")
    export_hf(tmp_path / "run", tmp_path / "hf")
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert config["architectures"] == [architecture]
    assert_same(tmp_path / "run", tmp_path / "hf")
    if architecture == "Qwen2ForCausalLM":
        assert "PreTrainedTokenizerFast.from_pretrained" in capsys.readouterr().err
    else:
        again = import_hf(tmp_path / "hf", tmp_path / "again")
        assert again.recipe.as_tables()["model"].get("begin", False) == begin
        assert_same(tmp_path / "again", tmp_path / "hf")
        theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
        ids = theirs("The quick", add_special_tokens=False)["input_ids"]
        assert theirs("The quick")["input_ids"] == [*([BEGIN] if begin else []), *ids]


def test_what_cannot_be_imported_is_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "hf"
    folder_of(folder, "llama")
    config = json.loads((folder / "config.json").read_text())
    tokeniser = (folder / "tokenizer.json").read_text()

    def refused(message: str) -> None:
        with pytest.raises(UserError, match=message) as caught:
            import_hf(folder, tmp_path / "out")
        assert "\n" not in str(caught.value)
        assert not (tmp_path / "out").exists()

    wrong: list[tuple[dict[str, Any], str]] = [
        ({"vocab_size": 50}, "only 50 rows"),
        ({"num_hidden_layers": 4}, r"model\.layers\.3\.self_attn\.q_proj\.weight' is missing"),
        ({"num_hidden_layers": 2}, r"model\.layers\.2.* is not in the layout"),
        ({"intermediate_size": 30}, r"\[29, 36\], but config.json gives \[30, 36\]"),
        ({"num_key_value_heads": 3}, r"k_proj\.weight' has shape \[12, 36\]"),
        ({"model_type": "qwen2"}, "Qwen 2's regular expression|NFC"),
        ({"model_type": "mistral", "mlp_bias": None}, "attention_bias = false: heedful does not"),
        ({"model_type": "gemma"}, "'gemma' is not supported; supported are .*llama"),
        ({"rope_parameters": LLAMA3_ROPE | {"low_freq_factor": 9.0}}, r"slow 9\.0"),
    ]
    for changed, message in wrong:
        (folder / "config.json").write_text(json.dumps(config | changed))
        refused(message)
    (folder / "config.json").write_text(json.dumps(config))
    other = json.loads(tokeniser)
    other["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "(a+)+b"
    (folder / "tokenizer.json").write_text(json.dumps(other))
    refused("pre_tokenizer .* is not supported")
    (folder / "tokenizer.json").unlink()
    described = json.loads(tokeniser)["model"]
    (folder / "vocab.json").write_text(json.dumps(described["vocab"]))
    (folder / "merges.txt").write_text("\n".join(" ".join(pair) for pair in described["merges"]))
    refused("no tokenizer.json, which model_type = 'llama' needs|eos_token")
    (folder / "tokenizer.json").write_text(tokeniser)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    refused("pickles are not read")


def test_a_qwen_2_with_another_tokeniser_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "hf"
    folder_of(folder, "qwen2")
    whole = json.loads((folder / "tokenizer.json").read_text())
    for changed in ("normalizer", "pre_tokenizer"):
        other = json.loads(json.dumps(whole))
        if changed == "normalizer":
            other["normalizer"] = None
        else:
            other["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = LLAMA3
        (folder / "tokenizer.json").write_text(json.dumps(other))
        with pytest.raises(UserError, match=r"tokenizer.json has .*, but AutoTokenizer uses"):
            import_hf(folder, tmp_path / "out")


def test_begin_is_read_where_a_document_begins() -> None:
    torch.manual_seed(1)
    given = {"layers": 1, "hidden_size": 8, "heads": 2}
    ours = Gpt(GptSettings(begin=True, **given), 12).eval()
    usual = Gpt(GptSettings(**given), 12).eval()
    usual.load_state_dict(ours.state_dict())
    tokens = torch.tensor([[END, 5, 6, PAD]])
    assert torch.equal(ours.states(tokens), ours.states(tokens.masked_fill(tokens == END, BEGIN)))
    with torch.no_grad():
        usual.embedding.weight[END] = usual.embedding.weight[BEGIN]
    assert torch.equal(ours.states(tokens), usual.states(tokens))
