"""Folders of BERT's relatives as runs, and runs as such folders: text in, logits out."""

import json
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
import transformers

import heedful
from heedful.basics.errors import UserError
from heedful.interop.exporting import export_hf
from heedful.interop.importing import import_hf
from heedful.interop.tokeniser_class import separators_of_pairs
from heedful.models.encoders import HeadedEncoder, sequences_of
from heedful.runs.checkpoints import load_model_tensors
from heedful.runs.opening import open_run
from heedful.tasks.texts.building import build_text_model
from heedful.tasks.texts.loading import load_classifier, load_filler, load_tagger
from heedful.training import train
from interop_help import LABELS, randomise, save_roberta, save_unigram, save_wordpiece
from text_help import LABELLED, RECIPES, write_data

SENTENCES = ["The quick cat sat, on the mat.", "Numbers 12", "A naïve café! doesn't she?"]
_SMALL = {
    "hidden_size": 18,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 10,
    "max_position_embeddings": 64,
}
_DISTIL = {"dim": 18, "n_layers": 2, "n_heads": 3, "hidden_dim": 10, "max_position_embeddings": 64}
FAMILIES: dict[str, dict[str, Any]] = {
    "Roberta": {**_SMALL, "type_vocab_size": 1},
    "XLMRoberta": {**_SMALL, "type_vocab_size": 1},
    "DistilBert": _DISTIL,
    "Electra": {**_SMALL, "embedding_size": 7},
    "Bert": _SMALL,
    "Albert": {**_SMALL, "embedding_size": 7},
}
TASKS = {
    "Model": "masked",
    "ForMaskedLM": "masked",
    "ForPreTraining": "masked",
    "ForSequenceClassification": "classification",
    "ForTokenClassification": "tagging",
    "ForQuestionAnswering": "answer-spans",
}
CASES = [
    (family, kind)
    for family in FAMILIES
    for kind in TASKS
    if (kind != "ForPreTraining" or family in ("Electra", "Albert"))
    and (kind != "ForQuestionAnswering" or "Roberta" not in family)
]
PAIRS = [
    ("what sat on the mat?", "A cat, sat on the mat; the mat was flat!"),
    ("numbers?", "The quick brown fox jumps over the lazy dog."),
]


def made(folder: Path, family: str, kind: str, **options: Any) -> Any:
    folder.mkdir(parents=True)
    if family in ("XLMRoberta", "Albert"):
        tokens = save_unigram(folder, albert=family == "Albert")
    else:
        tokens = save_roberta(folder) if family == "Roberta" else save_wordpiece(folder)
    numbers = {label: number for number, label in enumerate(LABELS)}
    named = {"id2label": dict(enumerate(LABELS)), "label2id": numbers}
    labels = {} if kind in ("ForPreTraining", "ForQuestionAnswering") else named
    config = getattr(transformers, f"{family}Config")(
        vocab_size=len(tokens) + 2,
        pad_token_id=tokens.get("<pad>", tokens.get("[PAD]")),
        **{**FAMILIES[family], **labels, **options},
    )
    model = randomise(getattr(transformers, f"{family}{kind}")(config))
    model.save_pretrained(folder)
    return model


def opened(path: Path) -> tuple[Any, HeadedEncoder]:
    run: Any = open_run(path)
    model = build_text_model(run)
    point = run.chosen()
    load_model_tensors(model, point.weights(), point.path)
    assert isinstance(model, HeadedEncoder)
    return run, model.eval()


@torch.inference_mode()
def assert_same(path: Path, folder: Path, *, generator: bool = False) -> None:
    """Text in, logits out, through both whole chains."""
    run, ours = opened(path)
    [kind] = json.loads((folder / "config.json").read_text())["architectures"]
    theirs = getattr(transformers, kind).from_pretrained(folder).eval()
    tokeniser = transformers.AutoTokenizer.from_pretrained(folder)
    vocabulary = run.vocabulary()
    places = list(getattr(vocabulary, "places", range(vocabulary.size)))
    inputs = tokeniser(SENTENCES, padding=True, return_tensors="pt")
    names = ("input_ids", "attention_mask")
    expected = theirs(**{name: inputs[name] for name in names})
    real = inputs["attention_mask"].bool()
    batch = sequences_of([vocabulary.encode(text) for text in SENTENCES])
    assert torch.equal(torch.tensor(places)[batch.tokens], inputs["input_ids"])
    if generator:
        own = ours.heads["replaced"].generator
        found, wanted = own.head(own(batch).states[real]), expected.logits[real][:, places]
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
        return
    encoded = ours.encoder(batch)
    states = encoded.states[real]
    if kind.endswith("Model"):
        found, wanted = states, expected.last_hidden_state[real]
    elif kind == "ElectraForPreTraining":
        found, wanted = ours.heads["replaced"].detector(states), expected.logits[real]
    elif kind == "AlbertForPreTraining":
        found, wanted = ours.heads["masked_next"](encoded), expected.sop_logits
    elif kind.endswith("MaskedLM"):
        found, wanted = ours.heads["masked"](states), expected.logits[real][:, places]
    elif kind.endswith("TokenClassification"):
        found, wanted = ours.heads["tagging"](encoded)[real], expected.logits[real]
    elif kind.endswith("QuestionAnswering"):
        found = ours.heads["answer-spans"](encoded)[real]
        wanted = torch.stack([expected.start_logits, expected.end_logits], -1)[real]
    else:
        (head,) = ours.heads.values()
        found, wanted = head(encoded), expected.logits
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


def assert_same_files(one: Path, other: Path, unused: int) -> None:
    before, after = (safetensors.torch.load_file(at / "model.safetensors") for at in (one, other))
    assert set(before) == set(after)
    for name, tensor in before.items():
        if unused and name.endswith("position_embeddings.weight"):
            tensor[:unused] = 0.0
        assert torch.equal(tensor, after[name]), name
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (one / name).read_bytes() == (other / name).read_bytes()
    old, new = (json.loads((at / "config.json").read_text()) for at in (one, other))
    assert all(new.get(key) == value for key, value in old.items() if value is not None)


@pytest.mark.parametrize(("family", "kind"), CASES)
def test_an_imported_model_is_a_run_and_comes_back_whole(
    family: str, kind: str, tmp_path: Path
) -> None:
    folder, path, back = tmp_path / "hf", tmp_path / "run", tmp_path / "back"
    made(folder, family, kind)
    task = "replaced" if (family, kind) == ("Electra", "ForPreTraining") else TASKS[kind]
    assert import_hf(folder, path).recipe.task == task
    assert_same(path, folder)
    export_hf(path, back)
    pad = json.loads((folder / "config.json").read_text())["pad_token_id"]
    assert_same_files(folder, back, pad + 1 if "Roberta" in family else 0)
    assert_same(path, back)


@pytest.mark.parametrize("family", [one for one in FAMILIES if "Roberta" not in one])
def test_spans_have_transformers_logits_and_gradients(family: str, tmp_path: Path) -> None:
    """Questions with their texts, in float64."""
    folder, path = tmp_path / "hf", tmp_path / "run"
    theirs = made(folder, family, "ForQuestionAnswering").double()
    import_hf(folder, path)
    run, ours = opened(path)
    ours.double()
    tokeniser = transformers.AutoTokenizer.from_pretrained(folder)
    inputs = tokeniser(*map(list, zip(*PAIRS, strict=True)), padding=True, return_tensors="pt")
    vocabulary = run.vocabulary()
    first, second = ([vocabulary.encode(pair[side]) for pair in PAIRS] for side in (0, 1))
    batch = sequences_of(first, second)
    if family == "Albert":  # this tokeniser of transformers leaves the segments out
        inputs["token_type_ids"] = batch.segments
    expected = theirs(**inputs)
    assert torch.equal(torch.tensor(vocabulary.places)[batch.tokens], inputs["input_ids"])
    real = inputs["attention_mask"].bool()
    found = ours.heads["answer-spans"](ours.encoder(batch))[real]
    wanted = torch.stack([expected.start_logits, expected.end_logits], -1)[real]
    torch.testing.assert_close(found, wanted, atol=1e-9, rtol=1e-9)
    weights = torch.randn(found.shape, dtype=torch.float64, generator=torch.manual_seed(4))
    (found * weights).sum().backward()
    (wanted * weights).sum().backward()
    head: Any = ours.heads["answer-spans"]
    own = torch.cat([head.start.weight.grad, head.end.weight.grad])
    torch.testing.assert_close(own, theirs.qa_outputs.weight.grad, atol=1e-9, rtol=1e-9)
    reader = heedful.load(path, device="cpu")
    (answer,) = reader.predict([PAIRS[0]])
    assert answer.answer == PAIRS[0][1][answer.best.start : answer.best.end] != ""


def test_spans_between_two_symbols_are_refused(tmp_path: Path) -> None:
    made(tmp_path / "hf", "Roberta", "ForQuestionAnswering")
    with pytest.raises(UserError, match="puts 2 symbols between question and text"):
        import_hf(tmp_path / "hf", tmp_path / "run")


@pytest.mark.parametrize(("family", "refused"), [("Roberta", True), ("Albert", False)])
def test_pairs_between_two_symbols_are_not_exported(
    family: str, refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A classifier of pairs that was trained from a model whose tokeniser puts two there."""
    monkeypatch.chdir(tmp_path)
    write_data(tmp_path)
    made(tmp_path / "hf", family, "ForMaskedLM")
    start = import_hf(tmp_path / "hf", tmp_path / "start").recipe.as_tables()
    own = {name: start[name] for name in ("tokeniser", "model")}
    recipe = RECIPES["pairs"] | own
    recipe["training"] = recipe["training"] | {"max_steps": 1, "validate_every": 1}
    train(recipe, tmp_path / "run", start_from=tmp_path / "start")
    if refused:
        with pytest.raises(UserError, match="puts 2 symbols between the texts of a pair"):
            export_hf(tmp_path / "run", tmp_path / "out")
        assert not (tmp_path / "out").exists()
    else:
        export_hf(tmp_path / "run", tmp_path / "out")


def test_pairs_of_a_model_with_one_segment_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_data(tmp_path)
    recipe = RECIPES["pairs"] | {"model": RECIPES["pairs"]["model"] | {"segments": 1}}
    recipe["training"] = recipe["training"] | {"max_steps": 1, "validate_every": 1}
    train(recipe, tmp_path / "run")
    out = export_hf(tmp_path / "run", tmp_path / "out")
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(out).eval()
    pair = ("the red dog", "a cat")
    inputs = transformers.AutoTokenizer.from_pretrained(out)(*pair, return_tensors="pt")
    (found,) = heedful.load(tmp_path / "run", device="cpu").predict([pair])
    with torch.no_grad():
        wanted = theirs(**inputs).logits.softmax(-1)[0].tolist()
    names = [theirs.config.id2label[number] for number in range(len(wanted))]
    assert [found.probabilities[name] for name in names] == pytest.approx(wanted, abs=1e-5)


def test_separators_are_those_of_the_class_or_of_the_file(tmp_path: Path) -> None:
    save_roberta(tmp_path)
    described = json.loads((tmp_path / "tokenizer.json").read_text())
    single, between = [{"Sequence": {"id": "A"}}], {"SpecialToken": {"id": "</s>"}}
    pair = [{"Sequence": {"id": "A"}}, between, {"Sequence": {"id": "B"}}]
    template = {"type": "TemplateProcessing", "single": single, "pair": pair}

    def found(named: str, processor: Any) -> int:
        settings = {"tokenizer_class": named}
        content = described | {"post_processor": processor}
        files = {"tokenizer_config.json": settings, "tokenizer.json": content}
        return separators_of_pairs(
            {name: json.dumps(value).encode() for name, value in files.items()}, "here"
        )

    generic, roberta = "PreTrainedTokenizerFast", described["post_processor"]
    assert found("RobertaTokenizerFast", template) == 2
    assert found("BertTokenizer", roberta) == 1
    assert found(generic, roberta) == 2
    assert found(generic, template) == 1
    assert found(generic, template | {"pair": [pair[0], between, between, pair[2]]}) == 2
    assert found(generic, {"type": "Sequence", "processors": [{"type": "x"}, roberta]}) == 2
    assert found(generic, None) == 1


@pytest.mark.parametrize("family", FAMILIES)
def test_several_labels_are_imported_and_come_back(family: str, tmp_path: Path) -> None:
    folder, path, back = tmp_path / "hf", tmp_path / "run", tmp_path / "back"
    problem = {"problem_type": "multi_label_classification"}
    theirs = made(folder, family, "ForSequenceClassification", **problem)
    assert import_hf(folder, path).recipe.task == "multi-label"
    assert_same(path, folder)
    (found,) = heedful.load(path, device="cpu").predict(SENTENCES[:1])
    tokeniser = transformers.AutoTokenizer.from_pretrained(folder)
    inputs = tokeniser(SENTENCES[:1], return_tensors="pt")
    with torch.no_grad():
        names = ("input_ids", "attention_mask")
        wanted = theirs(**{name: inputs[name] for name in names}).logits.sigmoid()[0].tolist()
    assert list(found.probabilities.values()) == pytest.approx(wanted, abs=1e-5)
    assert found.labels == tuple(one for one, p in zip(LABELS, wanted, strict=True) if p >= 0.5)
    export_hf(path, back)
    pad = json.loads((folder / "config.json").read_text())["pad_token_id"]
    assert_same_files(folder, back, pad + 1 if "Roberta" in family else 0)
    assert_same(path, back)


@pytest.mark.parametrize("family", FAMILIES)
def test_an_imported_model_works_in_the_commands(family: str, tmp_path: Path) -> None:
    for kind in ("ForMaskedLM", "ForSequenceClassification", "ForTokenClassification"):
        made(tmp_path / kind, family, kind)
        import_hf(tmp_path / kind, tmp_path / f"run-{kind}")
    filler = load_filler(tmp_path / "run-ForMaskedLM", device="cpu")
    tokeniser = transformers.AutoTokenizer.from_pretrained(tmp_path / "ForMaskedLM")
    text = f"The {tokeniser.mask_token} sat on the mat."
    ids = tokeniser(text, add_special_tokens=False)["input_ids"]
    assert [filler.vocabulary.places[one] for one in filler.tokens(text)] == ids
    assert len(filler.fill(text).masks[0]) == 5
    classifier = load_classifier(tmp_path / "run-ForSequenceClassification", device="cpu")
    assert classifier.classify(["The cat"])[0].label in LABELS
    tagger = load_tagger(tmp_path / "run-ForTokenClassification", device="cpu")
    assert len(tagger.tag([["The", "cat", "sat"]])[0]) == 3


def test_a_discriminator_of_ours_and_its_generator_are_exported(tmp_path: Path) -> None:
    write_data(tmp_path)
    path = tmp_path / "run"
    recipe = {**RECIPES["replaced"], "training": {"max_steps": 3, "batch_tokens": 120}}
    assert train(recipe, path, data=tmp_path)
    export_hf(path, tmp_path / "discriminator")
    export_hf(path, tmp_path / "generator", head="generator")
    kinds = [
        json.loads((tmp_path / name / "config.json").read_text())["architectures"]
        for name in ("discriminator", "generator")
    ]
    assert kinds == [["ElectraForPreTraining"], ["ElectraForMaskedLM"]]
    words = ["the red dog sees a cat", "a bird", "the blue cat eats the dog"]
    SENTENCES[:], kept = words, list(SENTENCES)
    try:
        assert_same(path, tmp_path / "discriminator")
        assert_same(path, tmp_path / "generator", generator=True)
    finally:
        SENTENCES[:] = kept
    with pytest.raises(UserError, match=r"choose one \(--head replaced, --head generator"):
        export_hf(path, tmp_path / "none", head="none")


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        ({"segments": 0, "pooler": "relu"}, "DistilBertForSequenceClassification"),
        ({"embedding_size": 6, "pooler": "gelu"}, "ElectraForSequenceClassification"),
        ({"embedding_size": 6, "shared_layers": True}, "AlbertForSequenceClassification"),
        ({}, "BertForSequenceClassification"),
    ],
)
def test_the_settings_of_a_run_choose_its_layout(
    model: dict[str, Any], kind: str, tmp_path: Path
) -> None:
    write_data(tmp_path)
    recipe = RECIPES["classification"]
    own = {**recipe, "model": {**recipe["model"], **model}, "training": {"max_steps": 1}}
    assert train({**own, "data": LABELLED}, tmp_path / "run", data=tmp_path)
    export_hf(tmp_path / "run", tmp_path / "hf")
    assert json.loads((tmp_path / "hf/config.json").read_text())["architectures"] == [kind]
    SENTENCES[:], kept = ["the red dog", "a bird", "a cat sees the dog"], list(SENTENCES)
    try:
        assert_same(tmp_path / "run", tmp_path / "hf")
    finally:
        SENTENCES[:] = kept


@pytest.mark.parametrize("family", ["Roberta", "XLMRoberta", "Albert"])
def test_symbols_have_their_usual_names_in_settings_without_any(
    family: str, tmp_path: Path
) -> None:
    folder = tmp_path / "hf"
    made(folder, family, "ForMaskedLM")
    before = transformers.AutoTokenizer.from_pretrained(folder)
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 64}))
    import_hf(folder, tmp_path / "run")
    assert_same(tmp_path / "run", folder)
    run: Any = open_run(tmp_path / "run")
    names = ("pad", "unk", "cls", "sep", "mask")
    expected = [getattr(before, f"{name}_token_id") for name in names]
    assert list(run.vocabulary().places[:5]) == expected


def test_what_cannot_be_imported_is_one_line(tmp_path: Path) -> None:
    made(tmp_path / "pairs", "Roberta", "ForSequenceClassification")
    with pytest.raises(UserError, match="roberta puts 2 symbols between") as found:
        import_hf(tmp_path / "pairs", tmp_path / "run", pairs=True)
    assert "\n" not in str(found.value)
    for family in FAMILIES:
        folder = tmp_path / family
        made(folder, family, "ForMaskedLM")
        config = json.loads((folder / "config.json").read_text())
        width = "hidden_dim" if family == "DistilBert" else "intermediate_size"
        (folder / "config.json").write_text(json.dumps(config | {width: 11}))
        with pytest.raises(UserError, match=r"but config\.json gives"):
            import_hf(folder, tmp_path / "run")
        (folder / "config.json").write_text(json.dumps(config))
        (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
        with pytest.raises(UserError, match="pickles are not read"):
            import_hf(folder, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_tokeniser_that_transformers_would_build_otherwise_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "hf"
    made(folder, "XLMRoberta", "ForMaskedLM")
    whole = json.loads((folder / "tokenizer.json").read_text())
    changes: list[tuple[str, Any, str]] = [
        ("pre_tokenizer", whole["pre_tokenizer"]["pretokenizers"][1], "WhitespaceSplit and Metas"),
        ("normalizer", {"type": "Lowercase"}, r"normalizers \['Lowercase'\]"),
        ("model", {**whole["model"], "unk_id": 0}, "unk_id = 0"),
    ]
    for part, value, message in changes:
        (folder / "tokenizer.json").write_text(json.dumps({**whole, part: value}))
        with pytest.raises(UserError, match=message):
            import_hf(folder, tmp_path / "run")
