"""``heedful demo --task``: the data that a task brings, and the commands it shows."""

import zipfile
from pathlib import Path
from typing import Any

import pytest

from heedful.basics.errors import UserError
from heedful.cli import task_demonstration
from heedful.cli.demo import demo
from heedful.cli.task_demonstration import demonstrate_task
from heedful.tasks.captioning.demonstration import ARCHIVE, make_demo
from heedful.tasks.commands import trainable
from heedful.tasks.spec import Demo


def test_all_words_of_the_test_captions_are_in_the_training_captions(tmp_path: Path) -> None:
    demo = make_demo(tmp_path)
    rows = (tmp_path / "train.tsv").read_text(encoding="utf-8").splitlines()[1:]
    captions = [row.split("\t")[1] for row in rows]
    known = {word for caption in captions for word in caption.split()}
    assert len(demo.expected) == len(demo.inputs) == len(set(demo.names)) > 100
    assert not set(demo.expected) & set(captions)
    assert {word for one in demo.expected for word in one.split()} <= known
    assert all(Path(name).is_file() for name in demo.names)


def test_the_pictures_have_their_licences() -> None:
    with zipfile.ZipFile(ARCHIVE) as archive:
        text = archive.read("LICENCE.txt").decode()
    for name in ("Apache License 2.0", "MIT License", "UNICODE LICENSE V3"):
        assert name in text


def test_it_trains_shows_and_plots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = type(trainable()["caption"])
    made = spec.make_demo

    def small(self: Any, folder: Path) -> Demo:
        demo = made(self, folder)
        training = {**demo.recipe["training"], "max_steps": 2, "batch_tokens": 100_000}
        short = {key: getattr(demo, key)[:3] for key in ("names", "inputs", "expected")}
        return demo._replace(recipe={**demo.recipe, "training": training}, **short)

    monkeypatch.setattr(spec, "make_demo", small)
    out = tmp_path / "demo"
    demonstrate_task("caption", out, seed=1, threads=1, device="cpu")
    printed = capsys.readouterr().out
    assert printed.splitlines()[-1].startswith("EXACT=0.")
    assert f"heedful caption {out / 'run'} {out / 'data'}" in printed
    assert (out / "attention.png").stat().st_size > 1000


def test_wrong_choices_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--task classify has no demo; .* translate, caption"):
        demonstrate_task("classify", tmp_path / "new", seed=1, threads=None, device="cpu")
    with pytest.raises(UserError, match="--from and --to are for the demo of translation"):
        demo("caption", source="fr")
    (tmp_path / "letter.txt").write_text("mine")
    with pytest.raises(UserError, match="holds other files"):
        demonstrate_task("caption", tmp_path, seed=1, threads=None, device="cpu")
    assert task_demonstration._with_demo() == ["translate", "caption"]
