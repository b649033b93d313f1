"""XLNet's layout: transformers' own models and ours, with the same numbers; whole folders."""

import json
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
import transformers
from tokenizers import processors
from torch import Tensor

from heedful.basics.errors import UserError
from heedful.basics.symbols import BEGIN, END
from heedful.data.imported_vocabulary import ImportedVocabulary, places_of
from heedful.data.tokeniser_files import find_special, read_files
from heedful.interop.exporting import export_hf
from heedful.interop.importing import import_hf
from heedful.interop.layouts import xlnet
from heedful.interop.tokeniser_class import check_tokeniser
from heedful.models.encoders import Classifier, HeadedEncoder, Sequences, Tagger, sequences_of
from heedful.models.xlnet import PermutationHead, XLNet
from heedful.runs.checkpoints import load_model_tensors
from heedful.runs.opening import open_run
from heedful.tasks.texts.building import build_text_model
from heedful.tasks.texts.loading import load_classifier, load_filler, load_tagger
from heedful.tasks.texts.run import TextRun
from heedful.training import train
from interop_help import LABELS, TEXTS, randomise, save_xlnet_tokeniser, wordpiece
from test_interop_pair_models import strange_texts

SPECIAL = [3, 1, 4, 2, 5]  # <pad>, <unk>, <cls>, <sep>, <mask> in their table
ODD: dict[str, dict[str, Any]] = {
    "plain": {},
    "first": {"summary_type": "first", "ff_activation": "relu"},
    "heads of width 1": {"d_model": 6, "n_head": 6, "ff_activation": "gelu_new"},
    "one head": {"n_head": 1, "layer_norm_eps": 1e-5, "n_layer": 1},
}
KINDS = {
    "XLNetModel": None,
    "XLNetLMHeadModel": "permutation",
    "XLNetForSequenceClassification": "classification",
    "XLNetForTokenClassification": "tagging",
}
SENTENCES = ["The quick cat sat, on the mat.", "Numbers 12", "A naïve café! doesn't she?"]


def config_of(name: str) -> transformers.XLNetConfig:
    given = {
        "vocab_size": 40,
        "d_model": 12,
        "n_layer": 3,
        "n_head": 3,
        "d_inner": 7,
        "num_labels": 4,
        "mem_len": None,
    }
    return transformers.XLNetConfig(**given | ODD[name])


def saved(model: Any) -> dict[str, Tensor]:
    """What save_pretrained would write."""
    found = model.state_dict()
    found.pop("lm_loss.weight", None)
    return dict(found)


def heads_of(encoder: XLNet, kind: str) -> dict[str, Any]:
    head = KINDS[kind]
    made = {
        "permutation": lambda: PermutationHead(encoder),
        "classification": lambda: Classifier(encoder.dim, 4, 0.0),
        "tagging": lambda: Tagger(encoder.dim, 4, 0.0),
    }
    return {} if head is None else {head: made[head]()}


def made(kind: str, name: str) -> tuple[Any, HeadedEncoder, xlnet.XLNetShape]:
    theirs = randomise(getattr(transformers, kind)(config_of(name))).eval()
    theirs.config.architectures = [kind]
    settings = xlnet.settings_of(theirs.config.to_dict(), "here")
    shape = xlnet.shape_of(saved(theirs))
    places = places_of(SPECIAL, 40)
    encoder = XLNet(settings, len(places))
    ours = HeadedEncoder(encoder, heads_of(encoder, kind))
    tensors = xlnet.import_tensors(saved(theirs), settings, places, shape, "here")
    ours.load_state_dict(tensors, strict=True)
    return theirs, ours.eval(), shape


def their_rows(ours: Sequences, begin: str) -> tuple[dict[str, Tensor], list[Tensor]]:
    """Rows in their numbers, padded as their tokeniser does; and our column of each of theirs."""
    table = torch.tensor(places_of(SPECIAL, 40))
    width, rows, columns = ours.tokens.shape[1], [], []
    for row, length in enumerate(ours.lengths.tolist()):
        own = torch.arange(length)
        segments = ours.segments[row].clone()
        if begin == "last":
            own, segments[0] = own.roll(-1), 2
        missing = width - length
        ids = table[ours.tokens[row, own]]
        pad = (missing, 0) if begin == "last" else (0, missing)
        rows.append(
            [
                torch.nn.functional.pad(part, pad)
                for part in (ids, segments[own], torch.ones(length).long())
            ]
        )
        columns.append(own)
    ids, types, there = (torch.stack(part) for part in zip(*rows, strict=True))
    return {"input_ids": ids, "token_type_ids": types, "attention_mask": there}, columns


def close(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("kind", KINDS)
@torch.inference_mode()
def test_outputs_are_the_same(kind: str, name: str) -> None:
    theirs, ours, _ = made(kind, name)
    generator = torch.Generator().manual_seed(2)

    def words(count: int) -> list[int]:
        return torch.randint(4, 40, (count,), generator=generator).tolist()

    batch = sequences_of([words(3), words(60), words(1)], [words(5), words(9), words(0)])
    assert isinstance(ours.encoder, XLNet)
    inputs, columns = their_rows(batch, ours.encoder.settings.begin)
    expected = theirs(**inputs)
    encoded = ours.encoder(batch)
    places = places_of(SPECIAL, 40)
    for row, own in enumerate(columns):
        real = inputs["attention_mask"][row].bool()
        if kind == "XLNetModel":
            close(encoded.states[row, own], expected.last_hidden_state[row, real])
        elif kind == "XLNetLMHeadModel":
            logits = ours.heads["permutation"](encoded.states[row, own])
            close(logits, expected.logits[row, real][:, places])
        elif kind == "XLNetForTokenClassification":
            close(ours.heads["tagging"](encoded)[row, own], expected.logits[row, real])
        else:
            close(ours.heads["classification"](encoded)[row], expected.logits[row])


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("kind", KINDS)
def test_tensors_and_fields_come_back(kind: str, name: str) -> None:
    theirs, ours, shape = made(kind, name)
    assert isinstance(ours.encoder, XLNet)
    settings, tensors = ours.encoder.settings, dict(ours.state_dict())
    back = xlnet.export_tensors(tensors, settings, places_of(SPECIAL, 40), shape)
    expected = saved(theirs)
    assert set(back) == set(expected)
    for key, tensor in expected.items():
        assert torch.equal(back[key], tensor), key
    written = theirs.config.to_dict()
    for key, value in xlnet.config_of(settings, shape).items():
        assert value == written[key], key


WRONG = [
    ({"attn_type": "uni"}, 'attn_type = "uni"'),
    ({"bi_data": True}, "bi_data = true"),
    ({"clamp_len": 40}, "clamp_len = 40"),
    ({"untie_r": False}, "untie_r = false"),
    ({"d_head": 5}, "d_head = 5"),
    ({"n_head": 5}, "d_model = 12: expected an even multiple of n_head = 5"),
    ({"ff_activation": "quick_gelu"}, 'ff_activation = "quick_gelu"'),
    ({"summary_type": "mean"}, 'summary_type = "mean"'),
    ({"summary_activation": "relu"}, 'summary_activation = "relu"'),
    ({"summary_use_proj": False}, "summary_use_proj = false"),
    ({"tie_word_embeddings": False}, "tie_word_embeddings = false"),
    ({"problem_type": "regression"}, 'problem_type = "regression"'),
    ({"embedding_size": 8}, "embedding_size = 8: heedful does not know this field"),
]


@pytest.mark.parametrize(("changed", "message"), WRONG)
def test_a_field_without_counterpart_stops_with_its_name(
    changed: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        xlnet.settings_of(config_of("plain").to_dict() | changed, "here/config.json")


def test_shapes_that_do_not_fit_are_one_line() -> None:
    theirs, _, shape = made("XLNetLMHeadModel", "plain")
    settings = xlnet.settings_of(theirs.config.to_dict(), "here")
    with pytest.raises(UserError, match=r"word_embedding.*\[40, 12\], but config.json gives \[41"):
        xlnet.import_tensors(saved(theirs), settings, places_of(SPECIAL, 41), shape, "here")
    wide = xlnet.settings_of(theirs.config.to_dict() | {"d_inner": 8}, "here")
    with pytest.raises(UserError, match=r"layer_1.weight' has shape \[7, 12\]"):
        xlnet.import_tensors(saved(theirs), wide, places_of(SPECIAL, 40), shape, "here")


# Whole folders


def xlnet_folder(folder: Path, kind: str, *, unigram: bool = False, **options: Any) -> None:
    """A random model with a tokeniser that puts [CLS] last, in a segment of its own.

    The tokeniser is XLNet's own (Unigram), or WordPiece.
    """
    folder.mkdir(parents=True)
    if unigram:
        tokens = save_xlnet_tokeniser(folder)
    else:
        tokens = save_wordpiece_with_begin_last(folder, options)
    config = transformers.XLNetConfig(
        vocab_size=len(tokens) + 2,
        d_model=18,
        n_layer=2,
        n_head=3,
        d_inner=10,
        pad_token_id=tokens["<pad>" if unigram else "[PAD]"],
        id2label=dict(enumerate(LABELS)),
        label2id={label: number for number, label in enumerate(LABELS)},
        **options,
    )
    randomise(getattr(transformers, kind)(config)).save_pretrained(folder)


def save_wordpiece_with_begin_last(folder: Path, options: dict[str, Any]) -> dict[str, int]:
    """Returns its tokens."""
    first = options.get("summary_type") == "first"
    tokenizer = wordpiece()
    tokens: dict[str, int] = tokenizer.get_vocab()
    before, after = ("[CLS] ", "") if first else ("", " [CLS]:2")
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{before}$A [SEP]{after}",
        pair=f"{before}$A [SEP] $B:1 [SEP]:1{after}",
        special_tokens=[(name, tokens[name]) for name in ("[CLS]", "[SEP]")],
    )
    names = {f"{role}_token": f"[{role.upper()}]" for role in ("pad", "unk", "cls", "sep", "mask")}
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        padding_side="right" if first else "left",
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        **names,
    ).save_pretrained(folder)
    return tokens


def theirs_of(folder: Path) -> tuple[Any, Any]:
    kind = json.loads((folder / "config.json").read_text())["architectures"][0]
    model = getattr(transformers, kind).from_pretrained(folder)
    return model.eval(), transformers.AutoTokenizer.from_pretrained(folder)


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
    theirs, tokeniser = theirs_of(folder)
    vocabulary = run.vocabulary()
    places = list(getattr(vocabulary, "places", range(vocabulary.size)))
    inputs = tokeniser(SENTENCES, padding=True, return_tensors="pt", return_token_type_ids=True)
    expected = theirs(**inputs, use_mems=False)
    encoded_texts = [vocabulary.encode(text) for text in SENTENCES]
    batch = sequences_of(encoded_texts)
    encoded = ours.encoder(batch)
    last = ours.encoder.settings.begin == "last"
    for row, tokens in enumerate(encoded_texts):
        real = inputs["attention_mask"][row].bool()
        row_of = [*tokens, END, BEGIN] if last else [BEGIN, *tokens, END]
        assert inputs["input_ids"][row, real].tolist() == [places[token] for token in row_of]
        own = torch.arange(len(row_of))
        states = encoded.states[row, own.roll(-1) if last else own]
        kind = type(theirs).__name__
        if kind == "XLNetModel":
            close(states, expected.last_hidden_state[row, real])
        elif kind == "XLNetLMHeadModel":
            known = [symbol for symbol, place in enumerate(places) if place is not None]
            logits = ours.heads["permutation"](states)[:, known]
            close(logits, expected.logits[row, real][:, [places[one] for one in known]])
        elif kind == "XLNetForTokenClassification":
            tags = ours.heads["tagging"](encoded)[row, own.roll(-1) if last else own]
            close(tags, expected.logits[row, real])
        else:
            close(ours.heads["classification"](encoded)[row], expected.logits[row])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("summary", ["last", "first", "unigram"])
def test_an_imported_xlnet_is_a_run_and_comes_back_whole(
    kind: str, summary: str, tmp_path: Path
) -> None:
    folder, run, back = tmp_path / "hf", tmp_path / "run", tmp_path / "back"
    if summary == "unigram":  # the library's own tokeniser for XLNet
        xlnet_folder(folder, kind, unigram=True, mem_len=None)
    else:
        xlnet_folder(folder, kind, summary_type=summary, mem_len=None)
    assert import_hf(folder, run).recipe.task == (KINDS[kind] or "permutation")
    assert_same(run, folder)
    export_hf(run, back)
    before, after = (safetensors.torch.load_file(at / "model.safetensors") for at in (folder, back))
    assert set(before) == set(after)
    assert all(torch.equal(before[name], after[name]) for name in before)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (folder / name).read_bytes() == (back / name).read_bytes()
    assert_same(run, back)
    old, new = (json.loads((at / "config.json").read_text()) for at in (folder, back))
    symbols = ("bos_token_id", "eos_token_id", "pad_token_id", "vocab_size")
    assert [old.get(name) for name in symbols] == [new.get(name) for name in symbols]


@pytest.mark.parametrize("lower", [False, True])
def test_strange_texts_have_the_same_tokens(lower: bool, tmp_path: Path) -> None:
    """Of the library's own tokeniser for XLNet, with special symbols at the end of a text."""
    tokens = save_xlnet_tokeniser(tmp_path, do_lower_case=lower)
    files = read_files(tmp_path)
    check_tokeniser(files, {"model_type": "xlnet"}, "here")
    special = find_special(files, "here")
    assert special == [tokens[name] for name in ("<pad>", "<unk>", "<cls>", "<sep>", "<mask>")]
    ours = ImportedVocabulary(files, special, len(tokens), "here")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    texts = [*strange_texts(500), "", " ", "a <mask> b", "``quoted'' \u00e9\u0301"]
    for text, found in zip(texts, ours.encode_batch(texts), strict=True):
        expected = theirs(text)["input_ids"]
        assert [ours.places[token] for token in (*found, END, BEGIN)] == expected, repr(text)


def test_files_that_contradict_the_class_are_one_line(tmp_path: Path) -> None:
    save_xlnet_tokeniser(tmp_path)
    whole = json.loads((tmp_path / "tokenizer.json").read_text())
    steps = whole["normalizer"]["normalizers"]

    def refused(message: str, **changed: Any) -> None:
        files = read_files(tmp_path) | {"tokenizer.json": json.dumps(whole | changed).encode()}
        with pytest.raises(UserError, match=message) as caught:
            check_tokeniser(files, {"model_type": "xlnet"}, "here")
        assert "\n" not in str(caught.value)

    assert "Precompiled" in [step["type"] for step in steps]
    refused("AutoTokenizer uses normalizers", normalizer=None)
    turned = {"type": "Sequence", "normalizers": steps[::-1]}
    refused("AutoTokenizer uses normalizers", normalizer=turned)
    refused("AutoTokenizer uses unk_id = 0", model=whole["model"] | {"unk_id": 7})
    refused("pre_tokenizer", pre_tokenizer=whole["pre_tokenizer"]["pretokenizers"][1])


@torch.inference_mode()
def test_imported_runs_answer(tmp_path: Path) -> None:
    for kind in KINDS:
        xlnet_folder(tmp_path / f"{kind}-hf", kind)
        import_hf(tmp_path / f"{kind}-hf", tmp_path / kind)
    folder = tmp_path / "XLNetForSequenceClassification"
    theirs, tokeniser = theirs_of(tmp_path / f"{folder.name}-hf")
    inputs = tokeniser(SENTENCES, padding=True, return_tensors="pt", return_token_type_ids=True)
    expected = theirs(**inputs).logits.argmax(1).tolist()
    found = load_classifier(folder).classify(SENTENCES)
    assert [one.label for one in found] == [LABELS[number] for number in expected]
    tagged = load_tagger(tmp_path / "XLNetForTokenClassification").tag([["The", "cat"], ["sat"]])
    assert [len(tags) for tags in tagged] == [2, 1]
    filling = load_filler(tmp_path / "XLNetLMHeadModel").fill("The [MASK] sat", count=3)
    assert len(filling.masks[0]) == 3


@torch.inference_mode()
def test_a_masked_word_is_filled_in_as_transformers_does(tmp_path: Path) -> None:
    """perm_mask hides the masked places from all tokens, target_mapping asks for them."""
    xlnet_folder(tmp_path / "hf", "XLNetLMHeadModel")
    import_hf(tmp_path / "hf", tmp_path / "run")
    theirs, tokeniser = theirs_of(tmp_path / "hf")
    text = "The [MASK] cat sat [MASK] the mat."
    inputs = tokeniser(text, return_tensors="pt")
    ids = inputs["input_ids"]
    masked = (ids[0] == tokeniser.mask_token_id).nonzero().flatten()
    hidden = torch.zeros(1, ids.shape[1], ids.shape[1])
    hidden[:, :, masked] = 1
    mapping = torch.nn.functional.one_hot(masked, ids.shape[1]).float()[None]
    logits = theirs(**inputs, perm_mask=hidden, target_mapping=mapping).logits[0]
    filler = load_filler(tmp_path / "run")
    tokens = filler.tokens(text)
    places = [place for place, token in enumerate(tokens) if token == filler.mask]
    found = filler.probabilities(tokens, places)
    known = [(n, at) for n, at in enumerate(filler.vocabulary.places) if at is not None]
    symbols, rows = zip(*known, strict=True)
    close(found[:, list(symbols)], logits.softmax(1)[:, list(rows)])


def recipe_of(task: str, folder: Path, kind: str, begin: str) -> dict[str, Any]:
    rows = [f"{text}\t{LABELS[number % 3]}" for number, text in enumerate(TEXTS * 3)]
    (folder / "corpus.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n", encoding="utf-8")
    (folder / "text.txt").write_text("\n\n".join(TEXTS * 3), encoding="utf-8")
    model = {"hidden_size": 16, "heads": 2, "layers": 1, "max_length": 64, "begin": begin}
    return {
        "task": task,
        "data": {"train": str(folder / ("corpus.tsv" if task == "classification" else "text.txt"))},
        "tokeniser": {"kind": kind, "vocabulary_size": 385, "mask": True},
        "model": {"kind": "xlnet", **model},
        "max_tokens": 60,
        "training": {"max_steps": 2, "batch_tokens": 256},
    }


@pytest.mark.parametrize(
    ("task", "kind", "begin"),
    [
        ("classification", "unigram", "last"),
        ("classification", "bytes", "first"),
        ("permutation", "bpe", "first"),
        ("permutation", "bytes", "last"),
    ],
)
def test_our_own_xlnet_is_an_xlnet(task: str, kind: str, begin: str, tmp_path: Path) -> None:
    train(recipe_of(task, tmp_path, kind, begin), tmp_path / "run")
    export_hf(tmp_path / "run", tmp_path / "hf")
    assert_same(tmp_path / "run", tmp_path / "hf")


def test_training_starts_from_an_imported_xlnet(tmp_path: Path) -> None:
    folder, run, tuned, back = (tmp_path / name for name in ("hf", "run", "tuned", "back"))
    xlnet_folder(folder, "XLNetLMHeadModel")
    import_hf(folder, run)
    recipe = recipe_of("classification", tmp_path, "bytes", "last")
    del recipe["model"], recipe["tokeniser"]
    train(recipe, tuned, start_from=run)
    export_hf(tuned, back)
    assert_same(tuned, back)


def test_folders_that_cannot_be_read(tmp_path: Path) -> None:
    folder = tmp_path / "hf"
    xlnet_folder(folder, "XLNetForSequenceClassification")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(UserError, match="pickles are not read"):
        import_hf(folder, tmp_path / "run")
    (folder / "pytorch_model.bin").unlink()
    other = tmp_path / "other"
    xlnet_folder(other, "XLNetForSequenceClassification", num_labels=1)
    with pytest.raises(UserError, match="such heads are not imported"):
        import_hf(other, tmp_path / "run")
    assert not (tmp_path / "run").exists()
