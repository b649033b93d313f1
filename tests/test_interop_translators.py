"""Marian models as runs, and runs as Marian models: whole folders, by our commands and theirs."""

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
from heedful.basics.symbols import BEGIN, END
from heedful.data.batching import Batch
from heedful.decoding import SearchOptions
from heedful.inference.batches import source_of
from heedful.interop.exporting import export_hf
from heedful.interop.importing import import_hf
from heedful.runs.opening import open_run
from heedful.tasks.pairs.building import load_translator
from heedful.tasks.translation.training import TranslationTask
from heedful.training import train
from interop_help import TEXTS, marian_folder

SENTENCES = ["The quick cat sat on the mat.", "Numbers 12 and 34", "She sells a naïve café"]


def tokeniser_of(folder: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return transformers.AutoTokenizer.from_pretrained(folder)


def loaded(folder: Path) -> Any:
    return transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()


@torch.inference_mode()
def assert_same_logits(run: Path, folder: Path) -> None:
    """Text in, logits out, through both whole chains."""
    translator = load_translator([run], device="cpu")
    ours, tokenisers = translator.models[0].eval(), translator.tokenisers
    theirs, tokeniser = loaded(folder), tokeniser_of(folder)
    for sentence in SENTENCES:
        tokens, written = tokenisers.source.encode(sentence), tokenisers.target.encode(sentence)
        logits = ours.teacher_force(
            source_of([tokens], torch.device("cpu")), torch.tensor([[BEGIN, *written]])
        )[0]
        inputs = tokeniser(sentence, text_target=sentence, return_tensors="pt")
        labels = inputs.pop("labels")
        start = torch.tensor([[theirs.config.decoder_start_token_id]])
        decoded = torch.cat([start, labels[:, :-1]], 1)
        expected = theirs(**inputs, decoder_input_ids=decoded).logits[0]
        places = getattr(tokenisers.target, "places", range(tokenisers.target.size))
        known = [symbol for symbol, place in enumerate(places) if place is not None]
        rows = [place for place in places if place is not None]
        assert labels[0, :-1].tolist() == [places[token] for token in written]
        torch.testing.assert_close(logits[:, known], expected[:, rows], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("separate", [False, True])
def test_an_imported_model_is_a_run_and_comes_back_whole(separate: bool, tmp_path: Path) -> None:
    folder, run, back = tmp_path / "hf", tmp_path / "run", tmp_path / "back"
    marian_folder(folder, separate=separate)
    import_hf(folder, run)
    assert_same_logits(run, folder)
    translations = heedful.load(run, device="cpu").translate([*SENTENCES, ""])
    assert len(translations) == 4
    export_hf(run, back)
    assert_same_logits(run, back)
    before = safetensors.torch.load_file(folder / "model.safetensors")
    after = safetensors.torch.load_file(back / "model.safetensors")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    same = ["source.spm", "target.spm", "vocab.json", "generation_config.json"]
    for name in same + (["target_vocab.json"] if separate else []):
        assert (folder / name).read_bytes() == (back / name).read_bytes(), name
    old, new = (json.loads((at / "config.json").read_text()) for at in (folder, back))
    assert {**old, "activation_function": "silu"} == new


def test_half_precision_and_shards_are_read(tmp_path: Path) -> None:
    folder, run = tmp_path / "hf", tmp_path / "run"
    model = marian_folder(folder).half()
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder, max_shard_size="20KB")
    assert (folder / "model.safetensors.index.json").exists()
    import_hf(folder, run)
    export_hf(run, tmp_path / "back")
    after = safetensors.torch.load_file(tmp_path / "back" / "model.safetensors")
    for name, tensor in after.items():
        assert tensor.dtype == torch.float32
        assert torch.equal(tensor, model.state_dict()[name].float())


def test_greedy_translations_are_those_of_generate(tmp_path: Path) -> None:
    folder, run = tmp_path / "hf", tmp_path / "run"
    marian_folder(folder)
    import_hf(folder, run)
    theirs, tokeniser = loaded(folder), tokeniser_of(folder)
    options = SearchOptions(beam=1, length_penalty=0.0)
    pad = theirs.config.pad_token_id
    found = heedful.load(run, device="cpu").translate(SENTENCES, options=options)
    for sentence, translation in zip(SENTENCES, found, strict=True):
        inputs = tokeniser(sentence, return_tensors="pt")
        generated = theirs.generate(
            **inputs, num_beams=1, bad_words_ids=[[pad], [1]], max_new_tokens=25
        )
        pieces = tokeniser.convert_ids_to_tokens(generated[0, 1:].tolist())
        ours = [*translation.tokens, *([] if translation.at_limit else ["</s>"])]
        assert pieces[:24] == ours[:24]


def test_the_loss_is_theirs(tmp_path: Path) -> None:
    """With the bias of each symbol, which our own models do not have."""
    folder, run = tmp_path / "hf", tmp_path / "run"
    marian_folder(folder)
    import_hf(folder, run)
    translator = load_translator([run], device="cpu")
    theirs, tokeniser = loaded(folder), tokeniser_of(folder)
    task = TranslationTask(
        translator.models[0],
        None,
        [],
        translator,
        options=SearchOptions(),
        device=torch.device("cpu"),
        label_smoothing=0.0,
        precision="float32",
        tokenise="13a",
        validation_pairs=1,
        samples=0,
    )
    for sentence in SENTENCES:
        source = [*translator.tokenisers.source.encode(sentence), END]
        target = translator.tokenisers.target.encode(sentence)
        batch = Batch(
            torch.tensor([source]),
            torch.tensor([len(source)]),
            torch.tensor([[BEGIN, *target]]),
            torch.tensor([[*target, END]]),
            torch.tensor([len(target) + 1]),
            len(target) + 1,
        )
        inputs = tokeniser(sentence, text_target=sentence, return_tensors="pt")
        expected = theirs(**inputs).loss.item() * batch.weight
        for found in (task.loss(batch).total, task.loss(batch).parts["loss"]):
            assert found.item() == pytest.approx(expected, rel=1e-5)


def write_corpus(folder: Path) -> Path:
    lines = [f"{text}\t{text.lower()} {number}" for number, text in enumerate(TEXTS * 10)]
    path = folder / "corpus.tsv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def tables(corpus: Path, **model: Any) -> dict[str, Any]:
    """A recipe of four steps."""
    training = {"max_steps": 4, "batch_tokens": 256, "validate_every": 4, "choose_by": "loss"}
    made: dict[str, Any] = {"data": {"train": str(corpus), "max_tokens": 60}, "training": training}
    if model:
        made["model"] = {"hidden_size": 16, "heads": 2, "ffn_size": 24, "layers": 2, **model}
        made["tokeniser"] = {"vocabulary_size": 380}
    return made


def test_training_starts_from_an_imported_model(tmp_path: Path) -> None:
    folder, run, tuned = tmp_path / "hf", tmp_path / "run", tmp_path / "tuned"
    marian_folder(folder)
    import_hf(folder, run)
    corpus = write_corpus(tmp_path)
    train(tables(corpus), tuned, start_from=run)
    assert open_run(tuned).chosen().step == 4
    export_hf(tuned, tmp_path / "back")
    assert_same_logits(tuned, tmp_path / "back")


OWN: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"tied_embeddings": "all"}, {}),
    ({"tied_embeddings": "output"}, {"joint": False, "kind": "unigram"}),
    ({"tied_embeddings": "none", "activation": "gelu"}, {"normalise": "nfc"}),
]


@pytest.mark.parametrize(("model", "tokeniser_settings"), OWN)
def test_our_own_run_is_a_marian_model(
    model: dict[str, Any],
    tokeniser_settings: dict[str, Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run, out = tmp_path / "run", tmp_path / "hf"
    recipe = tables(write_corpus(tmp_path), **model)
    recipe["tokeniser"] |= tokeniser_settings
    train(recipe, run)
    export_hf(run, out)
    assert_same_logits(run, out)
    theirs, tokeniser = loaded(out), tokeniser_of(out)
    own = heedful.load(run, device="cpu").tokenisers
    for text in (*TEXTS[:4], "  two  spaces ", "⟦3⟧ </s> ☃", "naïve\tcafé", "x"):
        assert tokeniser(text)["input_ids"][:-1] == own.source.encode(text)
        assert tokeniser(text_target=text)["input_ids"][:-1] == own.target.encode(text)
        assert tokeniser.decode(own.target.encode(text), use_source_tokenizer=False) == text.strip()
    # What the class itself takes apart, before it looks into any file.
    inside, first = "a >>de<< b", ">>de<< b"
    assert tokeniser(inside)["input_ids"][:-1] == own.source.encode(inside)
    assert tokeniser(first)["input_ids"][:-1] != own.source.encode(first)
    assert "MarianTokenizer reads '>>de<<' at the start of a text" in capsys.readouterr().err
    inputs = tokeniser(SENTENCES, return_tensors="pt", padding=True)
    assert theirs.generate(**inputs, max_new_tokens=5).shape[0] == 3
    again = tmp_path / "again"
    import_hf(out, again)  # and what we wrote, we read
    assert_same_logits(again, out)


def test_what_cannot_be_is_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "hf"
    marian_folder(folder)
    config = json.loads((folder / "config.json").read_text())

    def refused(message: str, source: Path = folder) -> None:
        with pytest.raises(UserError, match=message) as caught:
            import_hf(source, tmp_path / "out")
        assert "\n" not in str(caught.value)
        assert not (tmp_path / "out").exists()

    refused("is not a folder", tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    refused("has no config.json", tmp_path / "empty")
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "led"}))
    refused("model_type = 'led' is not supported; supported are albert, bart, bert, dist")
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": 100}))
    refused("only 100 rows")
    (folder / "config.json").write_text(json.dumps(config | {"d_model": 48}))
    refused(r"shape \[\d+, 24\], but config.json gives \[\d+, 48\]")
    (folder / "config.json").write_text(json.dumps(config))
    generation = (folder / "generation_config.json").read_text()
    forced = json.loads(generation) | {"forced_bos_token_id": 7}
    (folder / "generation_config.json").write_text(json.dumps(forced))
    refused("forced_bos_token_id = 7: supported is only")
    (folder / "generation_config.json").write_text(generation)
    (folder / "model.safetensors").rename(folder / "away")
    refused("has no model.safetensors")
    torch.save({"x": torch.ones(1)}, folder / "pytorch_model.bin")
    refused("pytorch_model.bin: pickles are not read")
    (folder / "model.safetensors").write_bytes(b"PK\x03\x04 no safetensors at all")
    refused("damaged or not a safetensors file")
    index = {"weight_map": {"x": "../other/model.safetensors"}}
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    refused("is not a safetensors file of this folder")
    for shard in ("a" * 300, "\ud800"):
        index = {"weight_map": {"x": f"{shard}.safetensors"}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        refused("is missing, damaged or not a safetensors file")
    (tmp_path / "out").mkdir()
    with pytest.raises(UserError, match="exists; choose another place"):
        import_hf(folder, tmp_path / "out")


def test_runs_without_this_shape_are_refused(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path)
    recurrent = tables(corpus)
    recurrent["model"] = {"kind": "recurrent", "hidden_size": 8, "embedding_size": 8}
    recurrent["tokeniser"] = {"vocabulary_size": 380}
    for recipe, message in (
        (tables(corpus, positions="rotary"), "model.positions = 'rotary'.*--set model.positions="),
        (recurrent, "model.kind = 'recurrent' cannot be exported"),
    ):
        run = tmp_path / str(len(message))
        recipe["training"]["max_steps"] = 1
        train(recipe, run)
        with pytest.raises(UserError, match=message):
            export_hf(run, tmp_path / "out")
        assert not (tmp_path / "out").exists()
