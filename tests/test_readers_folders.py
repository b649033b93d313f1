"""A folder of bilingual files as a corpus."""

import gzip
from pathlib import Path

import pytest

from heedful.basics.errors import UserError
from heedful.data.examples import Pair
from heedful.data.readers import read_pairs
from heedful.data.units import read_units
from heedful.runs.opening import open_run
from heedful.tasks.commands import train_from_command

PO = 'msgctxt "{0}"\nmsgid "Open {0}"\nmsgstr "Öffne {0}"\n\nmsgid "Save {0}"\nmsgstr ""\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    (folder / "b").mkdir(parents=True)
    (folder / "b" / "two.po").write_text(PO.format("two"), "utf-8")
    (folder / "a.po").write_text(PO.format("one"), "utf-8")
    (folder / "c.tsv.gz").write_bytes(gzip.compress("Close\tSchließe\n".encode()))
    (folder / "notes.txt").write_text("not a pair")
    return folder


def test_all_files_are_read_in_order(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = [("Open one", "Öffne one"), ("Open two", "Öffne two"), ("Close", "Schließe")]
    assert list(read_pairs([folder])) == [Pair(*each) for each in wanted]
    assert capsys.readouterr().err == f"heedful: left out of {folder}: 2 untranslated\n"
    units = list(read_units(folder))
    assert [unit.context for unit in units] == ["one", None, "two", None, None]


def test_a_folder_without_such_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no file with one of the endings"):
        list(read_pairs([tmp_path]))


def test_a_run_is_trained_on_a_folder_and_resumed(folder: Path, tmp_path: Path) -> None:
    rows = "".join(f"word{n} word{n % 7}\twort{n} wort{n % 7}\n" for n in range(60))
    (folder / "d.tsv").write_text(rows)
    small = ["training.max_steps=2", "training.validate_every=2", "tokeniser.vocabulary_size=360"]
    small += ["model.hidden_size=8", "model.heads=2", "model.layers=1"]

    def train(steps: int) -> None:
        overrides = [*small, f"training.max_steps={steps}"]
        given = {"given": {"source": "en", "target": "de"}, "start_from": None}
        train_from_command(None, tmp_path / "run", [str(folder)], overrides=overrides, **given)

    train(1)
    train(2)
    facts = open_run(tmp_path / "run").facts["data"]
    assert facts["hashes"]["train"][0]
    (folder / "a.po").write_text(PO.format("three"), "utf-8")
    with pytest.raises(UserError, match=r"data.train is not what .* was started with"):
        train(3)
