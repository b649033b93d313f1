"""Whatever the files of a model say, it is imported or refused in one line."""

import functools
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load, save

from heedful.basics.errors import UserError
from heedful.data.tokenizer_json import check_vocabulary
from heedful.interop.importing import import_hf
from interop_help import bert_folder, gpt_folder, marian_folder

KINDS = ["marian", "bert", "tags", "gpt"]
ODD: list[Any] = [None, True, -1, 0, 1, 2, 1.5, "x", "", [], {}, [1], {"0": "a"}, {"content": 3}]
ODD += [10**18, float("inf"), "relu", {"0": ["a"], "1": None, "2": "b"}, ["BertModel"], [[]]]
EXTRA = ["decoder_vocab_size", "position_embedding_type", "separate_vocabs", "sep_token", "n_inner"]
EXTRA += ["unk_token", "added_tokens_decoder", "source_lang", "do_lower_case", "num_beams"]


@functools.cache
def folder_of(kind: str) -> Path:
    folder = Path(tempfile.mkdtemp()) / kind
    if kind == "marian":
        marian_folder(folder)
    elif kind == "gpt":
        gpt_folder(folder)
    else:
        bert_folder(folder, f"BertFor{'Token' if kind == 'tags' else 'Sequence'}Classification")
    return folder


def changed(kind: str, change: dict[str, bytes]) -> Path:
    """The folder with some files changed, links to the others."""
    made = Path(tempfile.mkdtemp())
    for path in folder_of(kind).iterdir():
        (made / path.name).symlink_to(path)
    for name, content in change.items():
        (made / name).unlink(missing_ok=True)
        (made / name).write_bytes(content)
    return made


def imported_or_refused(folder: Path) -> None:
    message = ""
    try:
        import_hf(folder, folder / "run")
    except UserError as error:
        message = str(error)
    assert "\n" not in message
    assert (folder / "run").exists() == (not message)
    shutil.rmtree(folder)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_odd_values(kind: str, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(["config.json", "config.json", "tokenizer_config.json"]))
    values = json.loads((folder_of(kind) / name).read_text())
    key = data.draw(st.sampled_from([*sorted(values), *EXTRA]))
    values[key] = data.draw(st.sampled_from(ODD))
    imported_or_refused(changed(kind, {name: json.dumps(values).encode()}))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_damaged_files(kind: str, data: st.DataObject) -> None:
    names = sorted(path.name for path in folder_of(kind).iterdir())
    name = data.draw(st.sampled_from(names))
    content = bytearray((folder_of(kind) / name).read_bytes())
    what = data.draw(st.sampled_from(["cut", "bytes", "empty", "list"]))
    if what == "cut":
        content = content[: data.draw(st.integers(0, len(content)))]
    elif what == "bytes":
        for _ in range(3):
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    else:
        content = bytearray(b"" if what == "empty" else b"[]")
    imported_or_refused(changed(kind, {name: bytes(content)}))


@pytest.mark.parametrize("kind", KINDS)
def test_missing_files(kind: str) -> None:
    for path in sorted(folder_of(kind).iterdir()):
        folder = changed(kind, {})
        (folder / path.name).unlink()
        imported_or_refused(folder)


def refused(folder: Path, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        import_hf(folder, folder / "run")
    assert "\n" not in str(caught.value)
    assert not (folder / "run").exists()
    shutil.rmtree(folder)


def config_with(kind: str, **fields: Any) -> dict[str, bytes]:
    values = json.loads((folder_of(kind) / "config.json").read_text())
    return {"config.json": json.dumps({**values, **fields}).encode()}


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        ("bert", {"num_hidden_layers": 10**9}, "from 1 to 1,000"),
        ("gpt", {"n_layer": 10**9}, "from 1 to 1,000"),
        ("marian", {"encoder_layers": 10**9}, "from 1 to 1,000"),
        ("bert", {"hidden_size": 3 * 10**9}, "from 1 to 262,144"),
        ("gpt", {"n_embd": 262_143, "n_inner": None}, "model.ffn_size|ffn_size: .*262144"),
        ("marian", {"d_model": 10**9}, "from 1 to 262,144"),
        ("bert", {"vocab_size": 3_000_000}, "from 1 to 999,995"),
        ("gpt", {"vocab_size": 3_000_000}, "from 1 to 999,995"),
        ("marian", {"vocab_size": 3_000_000}, "from 1 to 999,995"),
        ("bert", {"max_position_embeddings": 10**9}, "from 2 to 1,048,576"),
    ],
)
def test_sizes_have_a_ceiling(kind: str, fields: dict[str, Any], message: str) -> None:
    refused(changed(kind, config_with(kind, **fields)), message)


@pytest.mark.parametrize("kind", KINDS)
def test_a_deeply_nested_configuration_is_one_line(kind: str) -> None:
    refused(changed(kind, {"config.json": b"[" * 2_000_000}), "nested too deeply")


def tokenizer_with(kind: str, **parts: Any) -> dict[str, bytes]:
    values = json.loads((folder_of(kind) / "tokenizer.json").read_text())
    model = values["model"] | parts.pop("model", {})
    return {"tokenizer.json": json.dumps({**values, **parts, "model": model}).encode()}


REGEX = {"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": "b"}
DOUBLE = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
SPLIT = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
PRECOMPILED = {"type": "Precompiled", "precompiled_charsmap": "AAAA"}
BOMBS: list[tuple[dict[str, Any], str]] = [
    ({"normalizer": REGEX}, "normalizer .* is not supported"),
    ({"normalizer": {"type": "Sequence", "normalizers": [DOUBLE] * 40}}, "at most 16 steps"),
    ({"normalizer": {"type": "Sequence", "normalizers": [DOUBLE] * 9}}, "is not supported"),
    ({"normalizer": PRECOMPILED}, "precompiled_charsmap is damaged"),
    ({"normalizer": {"type": "Sequence", "normalizers": 3}}, "not a list of at most 16"),
    ({"normalizer": {"type": ["NFC"]}}, "is not supported"),
    ({"pre_tokenizer": SPLIT}, "pre_tokenizer .* is not supported"),
    (
        {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [BYTES] * 9}},
        "9 times instead of once",
    ),
    ({"model": {"max_input_chars_per_word": 10**9}}, "at most 1,000 are supported"),
    ({"model": {"dropout": 0.5}}, "tokens would be random"),
    ({"model": {"vocab": {"a": 10**40}}}, "damaged|no .*_token"),
    ({"model": {"merges": [["a", "b"]] * 4_000_000}}, "more values than the limit of 8,000,000"),
    ({"added_tokens": [{"id": 5, "content": ""}]}, "no text of 1 to 1,000"),
    ({"added_tokens": [{"id": 1, "content": "x"}] * 10_001}, "not a list of at most 10,000"),
]


@pytest.mark.parametrize(("parts", "message"), BOMBS, ids=range(len(BOMBS)))
def test_bombs_in_a_tokeniser_are_refused(parts: dict[str, Any], message: str) -> None:
    kind = "gpt" if "pre_tokenizer" in parts or "merges" in parts.get("model", {}) else "bert"
    refused(changed(kind, tokenizer_with(kind, **dict(parts))), message)


def test_a_panic_of_the_library_is_one_line() -> None:
    """What the check lets through may make the library panic all the same: here, a number."""
    wrong = tokenizer_with("bert", model={"vocab": {"[UNK]": 2**32 + 1}})
    folder = changed("bert", wrong)
    imported_or_refused(folder)


def test_a_vocabulary_of_millions_of_pieces_is_refused() -> None:
    rows = b'{"x": 1' + b"".join(b',"%x":%d' % (n, n) for n in range(2_000_001)) + b"}"
    refused(changed("marian", {"vocab.json": rows}), "more values than the limit of 2,000,000")


def test_a_vocabulary_has_a_ceiling() -> None:
    with pytest.raises(UserError, match="here: a vocabulary of 1,000,001 tokens, more than"):
        check_vocabulary(dict.fromkeys(map(str, range(1_000_001)), 0), "here")


def test_a_list_of_millions_of_words_is_refused() -> None:
    folder = changed("bert", {"vocab.txt": b"word\n" * 3_000_000})
    (folder / "tokenizer.json").unlink()
    refused(folder, "3,000,000 tokens, more than the 1,000,000")


@pytest.mark.parametrize("kind", KINDS)
def test_weights_that_are_not_finite_are_refused(kind: str) -> None:
    tensors = load(folder_of(kind).joinpath("model.safetensors").read_bytes())
    name = sorted(tensors)[-1]
    tensors[name].view(-1)[0] = float("nan")
    content = save(tensors, metadata={"format": "pt"})
    refused(changed(kind, {"model.safetensors": content}), f"'{name}' has numbers that are not")


@pytest.mark.parametrize("kind", ["float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"])
def test_weights_in_eight_bits_are_refused(kind: str) -> None:
    tensors = load(folder_of("gpt").joinpath("model.safetensors").read_bytes())
    name = sorted(tensors)[-1]
    tensors[name] = tensors[name].abs().to(getattr(torch, kind))
    content = save(tensors, metadata={"format": "pt"})
    refused(changed("gpt", {"model.safetensors": content}), f"'{name}' is {kind}; only float16")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs POSIX files")
@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_pipes_are_not_read(name: str) -> None:
    folder = changed("gpt", {})
    (folder / name).unlink()
    os.mkfifo(folder / name)
    refused(folder, "not a file")
