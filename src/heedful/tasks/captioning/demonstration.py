"""The demo of captions: people of Noto Emoji, in combinations that training has not seen."""

import zipfile
from pathlib import Path
from typing import Any

from heedful.basics.files import atomic_file
from heedful.tasks.image_input import seen_in
from heedful.tasks.spec import Demo

ARCHIVE = Path(__file__).with_name("emoji.zip")
"""``train.tsv``, ``test.tsv``, the pictures and their licence."""
_SIDE, _BATCH = 64, 32


def make_demo(folder: Path) -> Demo:
    """Write the pictures and their tables to a folder."""
    with zipfile.ZipFile(ARCHIVE) as archive:
        for name in archive.namelist():
            with atomic_file(folder / name) as file:
                file.write(archive.read(name))
    train, test = (_rows(folder / f"{part}.tsv") for part in ("train", "test"))
    paths = [folder / "images" / name for name, _ in test]
    return Demo(
        about=f"{len(train)} pictures of people with captions, and {len(test)} unseen combinations "
        "of gender, role and skin tone",
        recipe=_recipe(),
        names=[str(path) for path in paths],
        inputs=[seen_in(str(path)) for path in paths],
        expected=[caption for _, caption in test],
    )


def _rows(table: Path) -> list[tuple[str, str]]:
    lines = table.read_text(encoding="utf-8").splitlines()[1:]
    return [(name, caption) for name, _, caption in (line.partition("\t") for line in lines)]


def _recipe() -> dict[str, Any]:
    return {
        "task": "captioning",
        "data": {
            "train": "train.tsv",
            "test": "test.tsv",
            "images": "images",
            "size": [_SIDE, _SIDE],
            "split": "spaces",
            "minimum_count": 1,
            "validation_share": 0.05,
        },
        "model": {
            "kind": "recurrent",
            "attention": "bahdanau",
            "context_gate": True,
            "initial_state": "zeros",
            "embedding_size": 32,
            "hidden_size": 128,
            "dropout": 0.2,
            "encoder": {"widths": [16, 32, 64], "blocks": 1, "stem": "small"},
        },
        "training": {
            "max_steps": 800,
            "batch_tokens": _BATCH * (_SIDE * _SIDE * 3 + 1),
            "learning_rate": 2e-3,
            "warmup_steps": 100,
            "schedule": "cosine",
            "precision": "float32",
            "shift": 2,
            "choose_by": "loss",
            "validate_every": 200,
            "checkpoint_every": 200,
            "keep_last": 1,
        },
    }
