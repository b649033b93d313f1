"""``heedful translate RUN FOLDER``: a tree of documents, and only what has changed."""

import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file

from heedful.basics.bounded_reading import read_json
from heedful.cli.main import main
from heedful.runs.checkpoints import MODEL, STATE, TRAINING, read_tensors, save_checkpoint
from heedful.tasks.pairs.run import open_pair_run
from heedful.tasks.translation.folders import translator_key
from serving_help import small_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_run(tmp_path_factory.mktemp("folder"), source="en", target="de")


def call(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *arguments: object,
) -> tuple[int, str, str]:
    monkeypatch.setattr("sys.argv", ["heedful", "translate", *map(str, arguments)])
    with pytest.raises(SystemExit) as exit:
        main()
    out, err = capsys.readouterr()
    return int(exit.value.code or 0), out, err


def tree(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_a_folder_is_translated_and_only_changes_again(
    run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source, output = tmp_path / "in", tmp_path / "out"
    for name, text in {
        "a.json": '{"x": "the cat"}',
        "deep/b.srt": "1\n00:00:01,000 --> 00:00:02,000\nthe dog\n",
        "deep/plain.txt": "the cat\n\nthe dog\n",
        "picture.png": "\x89PNG",
        ".hidden/c.json": "{}",
    }.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text, "utf-8")
    code, out, _ = call(monkeypatch, capsys, run, source, "--output", output)
    assert (code, out) == (0, f"{output}: 3 translated, 1 copied\n")
    made = tree(output)
    assert sorted(made) == [
        ".heedful-translated.json", "a.json", "deep/b.srt", "deep/plain.txt", "picture.png"
    ]  # fmt: skip
    assert json.loads(made["a.json"])["x"] != "the cat"
    assert made["deep/plain.txt"].count(b"\n") == 3
    assert made["picture.png"] == (source / "picture.png").read_bytes()

    (source / "a.json").write_text('{"x": "the red cat"}', "utf-8")
    (output / "deep/b.srt").unlink()
    code, out, _ = call(monkeypatch, capsys, run, source, "--output", output)
    assert (code, out) == (0, f"{output}: 2 translated, 2 unchanged\n")
    assert tree(output)["deep/b.srt"] == made["deep/b.srt"]

    # Another search translates all again.
    code, out, _ = call(monkeypatch, capsys, run, source, "--output", output, "--beam", 1)
    assert out == f"{output}: 3 translated, 1 copied\n"

    (source / "a.json").write_text("{", "utf-8")
    code, out, err = call(monkeypatch, capsys, run, source, "--output", output)
    assert code == 1
    assert "a.json:1: not JSON" in err
    assert "1 refused" in out


def test_other_weights_or_another_ensemble_translate_all_again(
    run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    own, source, output = tmp_path / "own", tmp_path / "in", tmp_path / "out"
    shutil.copytree(run, own)
    source.mkdir()
    (source / "a.txt").write_text("the cat\n")
    arguments = (run, source, "--output", output)
    for more, outcome in (
        ((), "translated"), ((), "unchanged"), (("--ensemble", own), "translated"),
    ):  # fmt: skip
        code, out, err = call(monkeypatch, capsys, *arguments, *more)
        assert (code, out) == (0, f"{output}: 1 {outcome}\n"), err
    runs = ([own], [own, run])
    before = [translator_key(one, None, ()) for one in runs]
    assert [translator_key(one, None, ()) for one in runs] == before
    assert translator_key([run], None, ()) == before[0] != before[1]
    checkpoint = open_pair_run(own).chosen(None)
    weights = {name: 1.5 * one for name, one in load_file(checkpoint.path / MODEL).items()}
    shutil.copytree(checkpoint.path, own / "before")
    shutil.rmtree(checkpoint.path)  # and train again, with the same facts
    state = read_json(own / "before" / STATE)
    save_checkpoint(checkpoint.path, weights, read_tensors(own / "before" / TRAINING), state)
    after = [translator_key(one, None, ()) for one in runs]
    assert not {*before} & {*after}
    assert translator_key([run, own], None, ()) != after[1]


def test_yaml_is_translated_if_it_names_its_language(
    run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source, output = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    (source / "en.yml").write_text("en:\n  x: the cat\n")
    (source / "settings.yml").write_text("name: the cat\n")
    code, out, _ = call(monkeypatch, capsys, run, source, "--output", output)
    assert (code, out) == (0, f"{output}: 1 translated, 1 copied\n")
    assert (output / "en.yml").read_text().startswith("de:\n  x: ")
    assert (output / "settings.yml").read_text() == "name: the cat\n"


@pytest.mark.parametrize(
    ("output", "message"),
    [(None, "--output"), ("in/out", "is inside"), ("in", "is inside"), ("file", "it is a file")],
)
def test_places_that_cannot_be_written(
    output: str | None,
    message: str,
    run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text("{}")
    (tmp_path / "file").write_text("x")
    given = [] if output is None else ["--output", tmp_path / output]
    code, _, err = call(monkeypatch, capsys, run, tmp_path / "in", *given)
    assert code == 2
    assert message in err
    assert err.count("\n") == 1


def test_strict_says_what_a_translation_lacks(
    run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"x": "the cat has 12 and 34"}', "utf-8")
    code, _, err = call(monkeypatch, capsys, run, path, "--output", tmp_path / "b.json")
    assert code == 0
    assert "numbers; see heedful check" in err
    code, _, _ = call(monkeypatch, capsys, run, path, "--output", tmp_path / "b.json", "--strict")
    assert code == 1
    assert json.loads((tmp_path / "b.json").read_text("utf-8"))

    (tmp_path / "in").mkdir()
    path.rename(tmp_path / "in" / "a.json")
    folder = [run, tmp_path / "in", "--output", tmp_path / "out", "--strict"]
    for _ in range(2):  # what lacks something is not taken as finished
        code, out, _ = call(monkeypatch, capsys, *folder)
        assert (code, out) == (1, f"{tmp_path / 'out'}: 1 translated\n")
    code, out, _ = call(monkeypatch, capsys, *folder[:-1])
    assert (code, out) == (0, f"{tmp_path / 'out'}: 1 translated\n")
    code, out, _ = call(monkeypatch, capsys, *folder[:-1], "--to", "de-AT")
    assert "unchanged" not in out
    code, _, err = call(monkeypatch, capsys, *folder, "--alignments", tmp_path / "links")
    assert code == 2
    assert "--alignments is for one text file" in err
