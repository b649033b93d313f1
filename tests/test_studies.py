"""Studies: how they are found, their options, reports and the command."""

import json
import shlex
from pathlib import Path
from textwrap import dedent

import pytest
import typer.testing

from heedful.basics.errors import UserError
from heedful.cli.main import _register, app, main
from heedful.studies.catalogue import register, studies, study_named
from heedful.studies.report import command_of, run_study
from heedful.studies.study import Study, StudyOptions, StudyResult, Table

PLUGIN = """
    from heedful.studies.catalogue import register
    from heedful.studies.study import Picture, Study, StudyOptions, StudyResult, Table
    from heedful.viewing.figures import new_figure

    def run(options: StudyOptions) -> StudyResult:
        options.echo("counting")
        lines = (options.data_folder() / "lines.txt").read_text().splitlines()
        figure = new_figure(3, 2)
        figure.subplots().bar([0], [len(lines)])
        rows = (("lines.txt", len(lines), 1 / 0.3),)
        table = Table("lines", "Lines", ("file", "lines", "share"), rows)
        found = f"There are {len(lines)} lines."
        return StudyResult((found,), (table,), (Picture("bar", "All.", figure),))

    needs = {"data": "lines.txt"}
    register(Study("lines", "Counted lines", "How many lines?", "Counts.", run, needs))
"""


@pytest.fixture(scope="module")
def runner() -> typer.testing.CliRunner:
    if "study" not in [command.name for command in app.registered_commands]:
        _register()
    return typer.testing.CliRunner()


def _result(options: StudyOptions) -> StudyResult:
    return StudyResult(("x",), (Table("t", "T", ("a",), ((float("nan"),), (12345,))),))


def test_a_plug_in_adds_a_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plugin, out = tmp_path / "lines.py", tmp_path / "out"
    plugin.write_text(dedent(PLUGIN))
    (tmp_path / "lines.txt").write_text("a\nb\n")
    command = ["heedful", "study", "lines", "--plugin", str(plugin), "--out", str(out)]
    monkeypatch.setattr("sys.argv", [*command, "--data", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        main()
    printed = capsys.readouterr()
    assert ended.value.code == 0
    assert printed.out.startswith("There are 2 lines.")
    assert "counting" in printed.err
    page = (out / "lines.md").read_text()
    assert "| lines.txt | 2 | 3.333 |" in page
    assert "(lines-bar.svg)" in page
    assert (out / "lines-bar.svg").read_text().startswith("<?xml")
    assert json.loads((out / "lines.json").read_text())["tables"][0]["rows"] == [
        ["lines.txt", 2, 1 / 0.3]
    ]
    monkeypatch.setattr("sys.argv", command)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "needs --data: lines.txt" in capsys.readouterr().err


def test_each_study_is_named_as_its_file() -> None:
    found = [one.name for one in studies()]
    assert found == sorted(found)
    for name in found:
        assert study_named(name).name == name
        assert study_named(name).question.endswith("?"), name


def test_unknown_names_and_taken_names_are_refused() -> None:
    with pytest.raises(UserError, match="no study 'report'"):
        study_named("report")
    for name in ("report", "addition"):  # a module and a study of the package
        with pytest.raises(UserError, match=f"the name '{name}' of a study is taken"):
            register(Study(name, "", "", "", _result))
    assert study_named("addition").title


def test_the_report_is_the_result(tmp_path: Path) -> None:
    study = Study("x", "X | Y", "Why?", "So.", _result)
    report = run_study(study, StudyOptions(tmp_path / "out", quick=True, seeds=(1, 2)))
    assert report["tables"][0]["rows"] == [[None], [12345]]
    assert report["command"] == f"heedful study x --out {tmp_path / 'out'} --seeds 2 --quick"
    page = (tmp_path / "out" / "x.md").read_text()
    assert "| – |" in page
    assert "| 12,345 |" in page
    assert "mean nothing" in page
    with pytest.raises(UserError, match="is a file; --out must be a folder"):
        run_study(study, StudyOptions(tmp_path / "out" / "x.md"))
    given = StudyOptions(Path("my out"), Path("da'ta"), (Path("a b"), Path("c")))
    assert shlex.split(command_of(study, given)) == [
        *("heedful", "study", "x", "--out", "my out", "--data", "da'ta"),
        *("--run", "a b", "--run", "c"),
    ]
    with pytest.raises(ValueError, match="2 cells for 1 columns"):
        Table("t", "T", ("a",), ((1, 2),))


def test_texts_of_a_report_are_not_markup(tmp_path: Path) -> None:
    table = Table("t", "a*b*", ("x|y",), ((1,),))
    result = StudyResult(("It reads <s> and `a_b`.",), (table,))
    run_study(Study("x", "X", "Why?", "So.", lambda options: result), StudyOptions(tmp_path))
    page = (tmp_path / "x.md").read_text()
    assert r"It reads \<s\> and \`a\_b\`." in page
    assert r"## a\*b\*" in page
    assert r"| x\|y |" in page


def test_a_folder_that_cannot_be_written_is_refused_before_measuring(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    study = Study("x", "X", "Why?", "So.", lambda options: pytest.fail("it measures"))
    with pytest.raises(UserError, match="cannot write"):
        run_study(study, StudyOptions(tmp_path / "file" / "out"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["study", "lines"], "--out FOLDER is missing"),
        (["study", "x", "--out", "o", "--seeds", "0"], "--seeds 0"),
        (["study", "--out", "o"], "--out needs the name of a study"),
        (["study", "--quick", "--json"], "--quick needs the name of a study"),
        (["study", "--seeds", "2"], "--seeds needs the name of a study"),
        (["study", "pruning", "--out", "o"], "needs --data or --run: a folder with"),
        (["study", "bigrams", "--out", "o", "--device", "foo"], "foo"),
        (["study", "zzz", "--out", "o"], "no study 'zzz'"),
        (["study", "bigrams", "--out", "o", "--data", "."], "leave out --data"),
        (["study", "bigrams", "--out", "o", "--run", "r"], "leave out --run"),
    ],
)
def test_what_is_wrong_is_one_line(
    runner: typer.testing.CliRunner, given: list[str], message: str
) -> None:
    found = runner.invoke(app, given)
    assert isinstance(found.exception, UserError)
    assert message in str(found.exception)
    assert "\n" not in str(found.exception)


def test_the_list_is_printed(runner: typer.testing.CliRunner) -> None:
    rows = json.loads(runner.invoke(app, ["study", "--json"]).stdout)
    printed = runner.invoke(app, ["study"]).stdout
    assert all(row["name"] in printed and row["title"] in printed for row in rows)
    assert {row["name"] for row in rows} == {one.name for one in studies()}
    assert "needs --data or --run: a folder with wikitext-2, or a trained run" in printed
    takes = {row["name"]: row["takes"] for row in rows}
    assert (takes["addition"], takes["pruning"]) == ([], ["data", "run"])
