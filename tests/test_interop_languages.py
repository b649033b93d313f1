"""Models of many languages as runs: M2M-100, NLLB-200 and mBART-50, whole folders."""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
import transformers

import heedful
from heedful.basics.errors import UserError
from heedful.basics.symbols import BEGIN
from heedful.decoding import SearchOptions
from heedful.inference.batches import source_of
from heedful.interop.ctranslate2_folders import export_ctranslate2
from heedful.interop.exporting import export_hf
from heedful.interop.importing import import_hf
from heedful.runs.opening import open_run
from heedful.tasks.pairs.building import load_translator
from heedful.training import train
from interop_help import (
    randomise,
    save_m2m_tokeniser,
    save_mbart50_tokeniser,
    save_nllb_tokeniser,
)
from test_interop_pair_models import SENTENCES, SIZES, bart_folder, strange_texts
from test_interop_translators import tables, write_corpus

LANGUAGES = {
    "m2m": ("en", "de"),
    "nllb": ("eng_Latn", "zho_Hans"),
    "mbart50": ("en_XX", "de_DE"),
}
SYMBOLS = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2}
SAVE: dict[str, Any] = {
    "m2m": save_m2m_tokeniser,
    "nllb": save_nllb_tokeniser,
    "mbart50": save_mbart50_tokeniser,
}


def save_model(folder: Path, name: str) -> None:
    """A random model and its tokeniser."""
    folder.mkdir(parents=True)
    rows = SAVE[name](folder)
    kind = transformers.MBartConfig if name == "mbart50" else transformers.M2M100Config
    model = transformers.AutoModelForSeq2SeqLM.from_config(
        kind(vocab_size=rows, **SIZES, **SYMBOLS)
    )
    randomise(model).save_pretrained(folder)


@pytest.fixture(scope="module", params=LANGUAGES)
def imported(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path, Path]:
    """The name of the model, its folder and its run."""
    name, at = request.param, tmp_path_factory.mktemp(request.param)
    save_model(at / "hf", name)
    source, target = LANGUAGES[name]
    import_hf(at / "hf", at / "run", source=source, target=target)
    return name, at / "hf", at / "run"


def tokeniser_of(folder: Path, name: str) -> Any:
    source, target = LANGUAGES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return transformers.AutoTokenizer.from_pretrained(folder, src_lang=source, tgt_lang=target)


@torch.inference_mode()
def assert_same_logits(run: Path, folder: Path, name: str) -> None:
    """Text in, logits out, through both whole chains."""
    translator = load_translator([run], device="cpu")
    tokenisers, theirs = translator.tokenisers, tokeniser_of(folder, name)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    places = tokenisers.source.places  # type: ignore[attr-defined]
    for sentence in SENTENCES:
        inputs = theirs(sentence, text_target=sentence, return_tensors="pt")
        labels = inputs.pop("labels")
        tokens, written = tokenisers.source.encode(sentence), tokenisers.target.encode(sentence)
        assert [places[token] for token in tokens] == inputs["input_ids"][0, :-1].tolist()
        assert [places[token] for token in written] == labels[0, :-1].tolist()
        start = torch.tensor([[model.config.decoder_start_token_id]])
        logits = translator.models[0].teacher_force(
            source_of([tokens], torch.device("cpu")), torch.tensor([[BEGIN, *written]])
        )[0]
        expected = model(**inputs, decoder_input_ids=torch.cat([start, labels[:, :-1]], 1)).logits
        known = [symbol for symbol, place in enumerate(places) if place is not None]
        rows = [place for place in places if place is not None]
        torch.testing.assert_close(logits[:, known], expected[0][:, rows], atol=5e-5, rtol=1e-5)


def test_an_imported_model_is_a_run_and_comes_back_whole(
    imported: tuple[str, Path, Path], tmp_path: Path
) -> None:
    name, folder, run = imported
    assert_same_logits(run, folder, name)
    recipe = open_run(run).recipe
    assert recipe.task == "translation"
    assert (recipe.data.source, recipe.data.target) == LANGUAGES[name]  # type: ignore[attr-defined]
    export_hf(run, tmp_path / "back")
    assert_same_logits(run, tmp_path / "back", name)
    before, after = (
        safetensors.torch.load_file(at / "model.safetensors") for at in (folder, tmp_path / "back")
    )
    assert before.keys() == after.keys()
    for key, tensor in before.items():
        rows = slice(2 if "embed_positions" in key else 0, None)  # two rows are not used
        assert torch.equal(tensor[rows], after[key][rows]), key
    kept = [path.name for path in folder.iterdir() if path.suffix in (".json", ".model")]
    for file in set(kept) - {"config.json"}:
        assert (folder / file).read_bytes() == (tmp_path / "back" / file).read_bytes(), file


def test_strange_texts_have_the_same_tokens(imported: tuple[str, Path, Path]) -> None:
    name, folder, run = imported
    tokenisers, theirs = open_run(run).tokenisers(), tokeniser_of(folder, name)  # type: ignore[attr-defined]
    places, texts = tokenisers.source.places, [*strange_texts(500), "", " ", ">>fr<< a"]
    for text, found in zip(texts, tokenisers.source.encode_batch(texts), strict=True):
        expected = theirs(text)["input_ids"][:-1]
        assert [places[token] for token in found] == expected, repr(text)
        assert tokenisers.source.encode(text) == found


@torch.inference_mode()
def test_translations_are_those_of_generate(imported: tuple[str, Path, Path]) -> None:
    """They begin with the token of the target language, which is not part of the text."""
    name, folder, run = imported
    theirs, tokeniser = (
        transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval(),
        tokeniser_of(folder, name),
    )
    predictor = heedful.load(run, device="cpu")
    places, options = predictor.tokenisers.target.places, SearchOptions(beam=1, length_penalty=0.0)
    language = places[predictor.tokenisers.target.first]
    for sentence in SENTENCES:
        generated = theirs.generate(
            **tokeniser(sentence, return_tensors="pt"),
            num_beams=1,
            max_new_tokens=20,
            forced_bos_token_id=language,
            bad_words_ids=[[1], [3]],
        )[0, 1:]
        expected = [row for row in generated.tolist() if row != 2]
        with predictor.ready():
            tokens = predictor.protection.encode([sentence])
            found = predictor.find(tokens, options, [0])[0].hypotheses[0].tokens
        assert [places[token] for token in found][: len(expected)] == expected
        assert expected[0] == language
        text = predictor.translate([sentence], options=options)[0].text
        for one in LANGUAGES[name]:
            assert f"__{one}__" not in text
            assert one not in text
        started = predictor.continue_from(sentence, "The ", options=options)
        assert started.text.startswith("The ")
        assert predictor.alternatives(sentence, "", 3)


def test_ctranslate2_is_refused(imported: tuple[str, Path, Path], tmp_path: Path) -> None:
    message = "begin with the token of their language|model.embedding_norm = true"
    with pytest.raises(UserError, match=message):
        export_ctranslate2(imported[2], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_training_starts_from_such_a_model(
    imported: tuple[str, Path, Path], tmp_path: Path
) -> None:
    """And what has been trained is exported, with BEGIN as a symbol of its own."""
    name, _, run = imported
    recipe = tables(write_corpus(tmp_path)) | {"task": "translation"}
    train(recipe, tmp_path / "tuned", start_from=run)
    assert open_run(tmp_path / "tuned").chosen().step == 4
    out = export_hf(tmp_path / "tuned", tmp_path / "back")
    assert_same_logits(tmp_path / "tuned", out, name)
    generation = json.loads((out / "generation_config.json").read_text())
    target = tokeniser_of(out, name)(text_target=SENTENCES[0])["input_ids"][0]
    assert generation["forced_bos_token_id"] == target
    assert generation.get("renormalize_logits") == (None if name == "mbart50" else True)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(out).eval()
    predictor = heedful.load(tmp_path / "tuned", device="cpu")
    options = SearchOptions(beam=1, length_penalty=0.0)
    inputs = tokeniser_of(out, name)(SENTENCES[0], return_tensors="pt")
    generated = model.generate(**inputs, num_beams=1, max_new_tokens=12)[0, 1:].tolist()
    with predictor.ready():
        tokens = predictor.protection.encode([SENTENCES[0]])
        found = predictor.find(tokens, options, [0])[0].hypotheses[0].tokens
    places = predictor.tokenisers.target.places
    written = [row for row in generated if row != 2]
    assert [places[token] for token in found][: len(written)] == written


@pytest.mark.parametrize("name", LANGUAGES)
def test_languages_that_are_missing_or_unknown_are_one_line(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "hf"
    save_model(folder, name)
    source, target = LANGUAGES[name]

    def refused(message: str, **languages: str | None) -> None:
        with pytest.raises(UserError, match=message) as caught:
            import_hf(folder, tmp_path / "out", **languages)
        assert "\n" not in str(caught.value)
        assert not (tmp_path / "out").exists()

    refused("--from is missing")
    refused("--to is missing", source=source)
    refused("no language 'klingon'", source=source, target="klingon")
    refused(f"no language '{target[:-1]}q'", source=source, target=f"{target[:-1]}q")
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    changed = settings | {"legacy_behaviour": True}
    (folder / "tokenizer_config.json").write_text(json.dumps(changed))
    refused("legacy_behaviour = true", source=source, target=target)
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    if name == "m2m":
        for changed, message in (
            ({"language_codes": []}, r"language_codes = \[\]: supported are"),
            ({"added_tokens_decoder": {"900": {"content": "<tag>"}}}, '"<tag>" is added to those'),
        ):
            (folder / "tokenizer_config.json").write_text(json.dumps(settings | changed))
            refused(message, source=source, target=target)
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": 90}))
    refused("only 90 rows", source=source, target=target)
    (folder / "config.json").write_text(json.dumps(config | {"eos_token_id": 5}))
    refused("eos_token_id = 5", source=source, target=target)
    (folder / "config.json").write_text(json.dumps(config | {"d_model": 20}))
    refused("but config.json gives", source=source, target=target)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    refused("pickles are not read", source=source, target=target)


def test_a_class_that_only_the_configuration_names_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "hf"
    save_model(folder, "mbart50")
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    named = {"tokenizer_class": settings.pop("tokenizer_class")}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | named))
    import_hf(folder, tmp_path / "run", source="en_XX", target="de_DE")
    assert_same_logits(tmp_path / "run", folder, "mbart50")


def test_languages_are_for_models_of_many(tmp_path: Path) -> None:
    bart_folder(tmp_path / "hf")
    with pytest.raises(UserError, match="--from and --to are for models of many languages"):
        import_hf(tmp_path / "hf", tmp_path / "out", source="en", target="de")
