"""BERT and GPT-2 models as runs, and runs as such models: whole folders, read on both sides."""

import json
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
import transformers

import heedful
from heedful.basics.errors import UserError
from heedful.basics.symbols import END
from heedful.interop.exporting import export_hf
from heedful.interop.importing import import_hf
from heedful.models.encoders import HeadedEncoder, sequences_of
from heedful.models.language import LanguageModel
from heedful.runs.checkpoints import load_model_tensors
from heedful.runs.opening import open_run
from heedful.tasks.texts.building import build_text_model
from heedful.tasks.texts.loading import load_classifier, load_filler, load_generator, load_tagger
from heedful.tasks.texts.run import TextRun
from heedful.training import train
from interop_help import LABELS, TEXTS, bert_folder, gpt_folder
from text_help import RECIPES, write_data

BERTS = {
    "BertModel": "masked",
    "BertForMaskedLM": "masked",
    "BertForPreTraining": "masked",
    "BertForNextSentencePrediction": "masked",
    "BertForSequenceClassification": "classification",
    "BertForTokenClassification": "tagging",
}
SENTENCES = ["The quick cat sat, on the mat.", "Numbers 12", "A naïve café! doesn't she?"]


def opened(path: Path) -> tuple[TextRun, Any]:
    run = open_run(path)
    assert isinstance(run, TextRun)
    model = build_text_model(run)
    point = run.chosen()
    load_model_tensors(model, point.weights(), point.path)
    return run, model.eval()


def close(one: torch.Tensor, other: torch.Tensor) -> None:
    torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def theirs_of(folder: Path) -> tuple[Any, Any]:
    kind = json.loads((folder / "config.json").read_text())["architectures"][0]
    model = getattr(transformers, kind).from_pretrained(folder)
    return model.eval(), transformers.AutoTokenizer.from_pretrained(folder)


@torch.inference_mode()
def assert_same_bert(path: Path, folder: Path) -> None:
    """Text in, logits out, through both whole chains."""
    run, ours = opened(path)
    assert isinstance(ours, HeadedEncoder)
    theirs, tokeniser = theirs_of(folder)
    vocabulary = run.vocabulary()
    places = getattr(vocabulary, "places", range(vocabulary.size))
    for side in ("left", "right"):
        tokeniser.padding_side = side
        inputs = tokeniser(SENTENCES, padding=True, return_tensors="pt")
        # Absolute positions count from the left in both: padded left, they must be said.
        inputs["position_ids"] = (inputs["attention_mask"].cumsum(1) - 1).clamp(min=0)
        expected = theirs(**inputs)
        real = inputs["attention_mask"].bool()
        batch = sequences_of([vocabulary.encode(text) for text in SENTENCES])
        own = torch.arange(batch.tokens.shape[1]) < batch.lengths[:, None]
        encoded = ours.encoder(batch)
        kind = type(theirs).__name__
        states = encoded.states[own]
        if kind == "BertModel":
            close(states, expected.last_hidden_state[real])
            if side == "right":
                close(encoded.pooled, expected.pooler_output)
        elif kind in ("BertForMaskedLM", "BertForPreTraining"):
            logits = expected.logits if kind == "BertForMaskedLM" else expected.prediction_logits
            close(ours.heads["masked"](states), logits[real][:, list(places)])
        elif kind == "BertForNextSentencePrediction":
            if side == "right":
                close(ours.heads["masked_next"](encoded), expected.logits)
        elif kind == "BertForTokenClassification":
            close(ours.heads["tagging"](encoded)[own], expected.logits[real])
        elif side == "right":
            close(ours.heads["classification"](encoded), expected.logits)


@torch.inference_mode()
def assert_same_gpt(path: Path, folder: Path) -> None:
    run, ours = opened(path)
    assert isinstance(ours, LanguageModel)
    theirs, tokeniser = theirs_of(folder)
    vocabulary = run.vocabulary()
    places = list(getattr(vocabulary, "places", range(vocabulary.size)))
    known = [symbol for symbol, place in enumerate(places) if place is not None]
    for text in SENTENCES:
        tokens = [END, *vocabulary.encode(text)]
        ids = tokeniser(text)["input_ids"]
        assert [places[token] for token in tokens] == [tokeniser.eos_token_id, *ids]
        logits = ours.logits(ours.states(torch.tensor([tokens])))[0]
        expected = theirs(torch.tensor([[tokeniser.eos_token_id, *ids]])).logits[0]
        close(logits[:, known], expected[:, [places[symbol] for symbol in known]])


def assert_same_files(one: Path, other: Path) -> None:
    before, after = (safetensors.torch.load_file(at / "model.safetensors") for at in (one, other))
    assert set(before) == set(after)
    assert all(torch.equal(before[name], after[name]) for name in before)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (one / name).read_bytes() == (other / name).read_bytes()
    old, new = (json.loads((at / "config.json").read_text()) for at in (one, other))
    assert {key: new.get(key) for key in old} == old


@pytest.mark.parametrize("kind", BERTS)
def test_an_imported_bert_is_a_run_and_comes_back_whole(kind: str, tmp_path: Path) -> None:
    folder, run, back = tmp_path / "hf", tmp_path / "run", tmp_path / "back"
    options = {"classifier_dropout": 0.2} if BERTS[kind] != "masked" else {}
    bert_folder(folder, kind, type_vocab_size=1 if kind == "BertForMaskedLM" else 2, **options)
    assert import_hf(folder, run).recipe.task == BERTS[kind]
    assert_same_bert(run, folder)
    export_hf(run, back)
    assert_same_files(folder, back)
    assert_same_bert(run, back)


@pytest.mark.parametrize("tied", [True, False])
def test_an_imported_gpt_is_a_run_and_comes_back_whole(tied: bool, tmp_path: Path) -> None:
    folder, run, back = tmp_path / "hf", tmp_path / "run", tmp_path / "back"
    gpt_folder(folder, tie_word_embeddings=tied, n_inner=30)
    assert import_hf(folder, run).recipe.task == "language-model"
    assert_same_gpt(run, folder)
    export_hf(run, back)
    assert_same_files(folder, back)
    assert_same_gpt(run, back)


def test_imported_runs_answer(tmp_path: Path) -> None:
    for kind in ("BertForSequenceClassification", "BertForTokenClassification", "BertForMaskedLM"):
        bert_folder(tmp_path / f"{kind}-hf", kind)
        import_hf(tmp_path / f"{kind}-hf", tmp_path / kind)
    decisions = load_classifier(tmp_path / "BertForSequenceClassification").classify(SENTENCES)
    theirs, tokeniser = theirs_of(tmp_path / "BertForSequenceClassification-hf")
    inputs = tokeniser(SENTENCES, padding=True, return_tensors="pt")
    expected = theirs(**inputs).logits.argmax(1).tolist()
    assert [one.label for one in decisions] == [LABELS[number] for number in expected]
    tagged = load_tagger(tmp_path / "BertForTokenClassification").tag([["The", "cat"], ["sat"]])
    assert [len(tags) for tags in tagged] == [2, 1]
    assert load_filler(tmp_path / "BertForMaskedLM").fill("The [MASK] sat", count=3)
    gpt_folder(tmp_path / "gpt-hf")
    import_hf(tmp_path / "gpt-hf", tmp_path / "gpt")
    assert load_generator(tmp_path / "gpt").perplexity(SENTENCES)
    with pytest.raises(UserError):
        load_classifier(tmp_path / "gpt")


def test_a_classifier_of_pairs(tmp_path: Path) -> None:
    folder, run = tmp_path / "hf", tmp_path / "run"
    bert_folder(folder, "BertForSequenceClassification")
    import_hf(folder, run, pairs=True)
    pairs = [("The cat sat", "A mat."), ("12", "Numbers 12 and 345")]
    decisions = load_classifier(run).classify(pairs)
    theirs, tokeniser = theirs_of(folder)
    inputs = tokeniser(*map(list, zip(*pairs, strict=True)), padding=True, return_tensors="pt")
    with torch.inference_mode():
        expected = theirs(**inputs).logits.softmax(1)
    for one, probabilities in zip(decisions, expected, strict=True):
        found = torch.tensor([one.probabilities[label] for label in LABELS])
        close(found, probabilities)


def labelled_corpus(folder: Path) -> Path:
    rows = [f"{text}\t{LABELS[number % 3]}" for number, text in enumerate(TEXTS * 3)]
    path = folder / "corpus.tsv"
    path.write_text("\n".join(["text\tlabel", *rows]) + "\n", encoding="utf-8")
    return path


def test_training_starts_from_an_imported_bert(tmp_path: Path) -> None:
    folder, run, tuned, back = (tmp_path / name for name in ("hf", "run", "tuned", "back"))
    bert_folder(folder, "BertForPreTraining")
    import_hf(folder, run)
    recipe = {
        "task": "classification",
        "data": {"train": str(labelled_corpus(tmp_path)), "validation_share": 0.2},
        "max_tokens": 60,
        "training": {"max_steps": 3, "batch_tokens": 256, "validate_every": 3},
    }
    train(recipe, tuned, start_from=run)
    assert open_run(tuned).chosen().step == 3
    export_hf(tuned, back)
    assert json.loads((back / "config.json").read_text())["architectures"] == [
        "BertForSequenceClassification"
    ]
    assert_same_bert(tuned, back)


@pytest.mark.parametrize("kind", ["bpe", "unigram", "bytes", "characters"])
def test_our_own_gpt_is_a_gpt_2(kind: str, tmp_path: Path) -> None:
    corpus = tmp_path / "text.txt"
    corpus.write_text("\n\n".join(TEXTS * 3), encoding="utf-8")
    recipe = {
        "task": "language-model",
        "data": {"train": str(corpus)},
        "tokeniser": {"kind": kind, "vocabulary_size": 385},
        "model": {"kind": "gpt", "hidden_size": 16, "heads": 2, "layers": 1, "max_length": 120},
        "context": 32,
        "training": {"max_steps": 2, "batch_tokens": 128},
    }
    train(recipe, tmp_path / "run")
    export_hf(tmp_path / "run", tmp_path / "hf")
    assert_same_gpt(tmp_path / "run", tmp_path / "hf")
    if kind == "bytes":  # and what we wrote, we read
        import_hf(tmp_path / "hf", tmp_path / "again")
        assert_same_gpt(tmp_path / "again", tmp_path / "hf")


def test_our_own_bert_is_a_bert(tmp_path: Path) -> None:
    recipe = {
        "task": "classification",
        "data": {"train": str(labelled_corpus(tmp_path))},
        "tokeniser": {"kind": "unigram", "vocabulary_size": 380},
        "model": {"kind": "bert", "hidden_size": 16, "heads": 2, "layers": 1, "max_length": 64},
        "max_tokens": 60,
        "training": {"max_steps": 2, "batch_tokens": 256},
    }
    train(recipe, tmp_path / "run")
    export_hf(tmp_path / "run", tmp_path / "hf")
    assert_same_bert(tmp_path / "run", tmp_path / "hf")
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert sorted(config["label2id"]) == sorted(LABELS)


def test_of_several_heads_one_goes_along(tmp_path: Path) -> None:
    corpus = labelled_corpus(tmp_path)
    documents = tmp_path / "text.txt"
    documents.write_text("\n\n".join("\n".join(TEXTS[:4]) for _ in range(6)), encoding="utf-8")
    recipe = {
        "task": "several",
        "tasks": {
            "mood": {"task": "classification", "data": {"train": str(corpus)}},
            "words": {"task": "masked", "data": {"train": str(documents)}},
        },
        "tokeniser": {"kind": "bytes", "vocabulary_size": 300, "mask": True},
        "model": {"kind": "bert", "hidden_size": 16, "heads": 2, "layers": 1, "max_length": 90},
        "max_tokens": 80,
        "training": {"max_steps": 2, "batch_tokens": 256},
    }
    train(recipe, tmp_path / "run")
    with pytest.raises(UserError, match=r"several heads.*--head mood, --head words"):
        export_hf(tmp_path / "run", tmp_path / "hf")
    named = {"mood": "BertForSequenceClassification", "words": "BertForPreTraining"}
    for head, architecture in named.items():
        export_hf(tmp_path / "run", tmp_path / head, head=head)
        theirs, tokeniser = theirs_of(tmp_path / head)
        assert type(theirs).__name__ == architecture
        run, ours = opened(tmp_path / "run")
        batch = sequences_of([run.vocabulary().encode("The cat sat")])
        inputs = tokeniser("The cat sat", return_tensors="pt")
        with torch.inference_mode():
            encoded, expected = ours.encoder(batch), theirs(**inputs)
            if head == "mood":
                close(ours.heads["mood"](encoded), expected.logits)
            else:
                close(ours.heads["words"](encoded.states[0]), expected.prediction_logits[0])
                close(ours.heads["words_next"](encoded), expected.seq_relationship_logits)


def test_what_cannot_be_is_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "hf"
    bert_folder(folder, "BertForSequenceClassification")
    config = json.loads((folder / "config.json").read_text())
    tokeniser = (folder / "tokenizer.json").read_bytes()
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"id2label": {"0": "a", "1": "a", "2": "b"}}, "id2label contains a name twice"),
        ({"id2label": {"0": "a"}}, "id2label has 1 names, the classifier 3 classes"),
        ({"vocab_size": 50}, "only 50 rows"),
        ({"num_hidden_layers": 3}, r"layer\.2\.attention\.self\.query\.weight' is missing"),
        ({"hidden_size": 24}, r"shape \[\d+, 18\], but config.json gives \[\d+, 24\]"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type"),
    ]

    def refused(message: str) -> None:
        with pytest.raises(UserError, match=message) as caught:
            import_hf(folder, tmp_path / "out")
        assert "\n" not in str(caught.value)
        assert not (tmp_path / "out").exists()

    for changed, message in wrong:
        (folder / "config.json").write_text(json.dumps(config | changed))
        refused(message)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").unlink()
    refused(r"no tokeniser: there is no tokenizer\.json")
    (folder / "tokenizer.json").write_bytes(tokeniser[:100])
    refused("damaged")


def test_a_classifier_with_one_output_predicts_a_number(tmp_path: Path) -> None:
    folder = tmp_path / "hf"
    bert_folder(folder, "BertForSequenceClassification")
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    weights |= {name: weights[name][:1] for name in ("classifier.weight", "classifier.bias")}
    safetensors.torch.save_file(weights, folder / "model.safetensors")
    _changed(folder / "config.json", id2label={"0": "LABEL_0"}, label2id={"LABEL_0": 0})
    run = import_hf(folder, tmp_path / "out")
    assert run.recipe.task == "regression"
    texts = ["a brown dog", "the man is here in the house"]
    assert numbers(run.path, texts) == pytest.approx(theirs(folder, texts), abs=1e-5)
    export_hf(run.path, tmp_path / "back")
    assert theirs(tmp_path / "back", texts) == pytest.approx(theirs(folder, texts), abs=1e-6)
    kept = safetensors.torch.load_file(tmp_path / "back" / "model.safetensors")
    assert all(torch.equal(kept[name], one) for name, one in weights.items())
    assert (
        json.loads((tmp_path / "back" / "config.json").read_text())["problem_type"] == "regression"
    )
    again = import_hf(tmp_path / "back", tmp_path / "again")
    assert again.recipe.task == "regression"
    assert numbers(again.path, texts) == pytest.approx(numbers(run.path, texts), abs=1e-6)


def test_our_own_regression_gives_its_numbers_in_transformers(tmp_path: Path) -> None:
    write_data(tmp_path)
    assert train(RECIPES["rated"], tmp_path / "run", data=tmp_path)
    export_hf(tmp_path / "run", tmp_path / "hf")
    texts = ["the red dog sees a cat", "the blue bird eats a dog"]
    found = numbers(tmp_path / "run", texts)
    assert theirs(tmp_path / "hf", texts) == pytest.approx(found, abs=1e-4)
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["problem_type"] == "regression"


def test_several_numbers_for_a_text_are_refused(tmp_path: Path) -> None:
    bert_folder(tmp_path / "hf", "BertForSequenceClassification")
    _changed(tmp_path / "hf" / "config.json", problem_type="regression")
    with pytest.raises(UserError, match=r'"regression": the head has \d outputs; heedful predicts'):
        import_hf(tmp_path / "hf", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def numbers(run: Path, texts: list[str]) -> list[float]:
    return [float(one.value) for one in heedful.load(run, device="cpu").predict(texts)]


def theirs(folder: Path, texts: list[str]) -> list[float]:
    """The numbers of transformers for single texts, with the folder's tokeniser."""
    model: Any = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert model.config.num_labels == 1
    with torch.no_grad():
        return [float(model(**tokenizer(text, return_tensors="pt")).logits[0, 0]) for text in texts]


def _changed(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"tokenizer_class": "BertJapaneseTokenizer"}, 'tokenizer_class = "BertJapaneseTokenizer"'),
        ({"do_lower_case": False}, "lowercase = true, but AutoTokenizer uses do_lower_case = f"),
        ({"strip_accents": False}, "strip_accents = null, but AutoTokenizer uses strip_accents"),
        ({"tokenize_chinese_chars": False}, "uses tokenize_chinese_chars = false"),
    ],
)
def test_a_wordpiece_folder_that_contradicts_itself_is_refused(
    said: dict[str, Any], message: str, tmp_path: Path
) -> None:
    folder = tmp_path / "hf"
    bert_folder(folder, "BertForMaskedLM")
    _changed(folder / "tokenizer_config.json", **said)
    with pytest.raises(UserError, match=message):
        import_hf(folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    _changed(folder / "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast")
    assert_same_bert(import_hf(folder, tmp_path / "out").path, folder)  # tokenizer.json as it is


def test_files_that_auto_tokenizer_wrote_agree(tmp_path: Path) -> None:
    folder = tmp_path / "hf"
    bert_folder(folder, "BertForMaskedLM")
    _changed(folder / "tokenizer_config.json", do_lower_case=False)
    transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(folder)
    assert_same_bert(import_hf(folder, tmp_path / "out").path, folder)


def test_a_class_named_in_the_models_configuration_counts(tmp_path: Path) -> None:
    folder = tmp_path / "hf"
    bert_folder(folder, "BertForMaskedLM")
    _changed(folder / "tokenizer_config.json", tokenizer_class=None)
    _changed(folder / "config.json", tokenizer_class="BertJapaneseTokenizer")
    with pytest.raises(UserError, match="BertJapaneseTokenizer"):
        import_hf(folder, tmp_path / "out")


def test_a_prefix_space_that_auto_tokenizer_adds_is_not_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "hf"
    gpt_folder(folder)
    _changed(folder / "tokenizer_config.json", add_prefix_space=True)
    with pytest.raises(UserError, match="AutoTokenizer uses add_prefix_space = true"):
        import_hf(folder, tmp_path / "out")


HARMLESS = {
    "n_special": 0,
    "predict_special_tokens": True,
    "output_past": True,
    "pruned_heads": {},
    "use_bfloat16": False,
    "tf_legacy_loss": False,
}


def test_fields_without_effect_do_not_stop_an_import(tmp_path: Path) -> None:
    folder = tmp_path / "gpt"
    gpt_folder(folder)
    _changed(folder / "config.json", **HARMLESS, is_decoder=False)
    import_hf(folder, tmp_path / "out")
    _changed(folder / "config.json", pruned_heads={"0": [1]})
    with pytest.raises(UserError, match="pruned_heads"):
        import_hf(folder, tmp_path / "other")


def test_an_unknown_field_may_be_ignored(tmp_path: Path) -> None:
    folder = tmp_path / "hf"
    bert_folder(folder, "BertForMaskedLM")
    _changed(folder / "config.json", note="mine")
    with pytest.raises(UserError, match=r'note = "mine".*--ignore-field note'):
        import_hf(folder, tmp_path / "out")
    with pytest.raises(UserError, match="has no field 'nota' to ignore"):
        import_hf(folder, tmp_path / "out", ignored=["nota"])
    run = import_hf(folder, tmp_path / "out", ignored=["note"])
    assert run.facts["imported"]["ignored"] == ["note"]
    assert_same_bert(run.path, folder)
