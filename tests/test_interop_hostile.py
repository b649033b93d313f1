"""Whatever the files of a model say, it is imported or refused in one line."""

import functools
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.basics.errors import UserError
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
