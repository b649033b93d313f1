"""Translation memories: units found by source and context, reused by ``heedful translate``."""

import json
import re
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

import heedful
from heedful.basics.errors import UserError
from heedful.cli.main import _register, app
from heedful.cli.memory import _changed_memory
from heedful.data import memory as memory_module
from heedful.data.documents import open_document
from heedful.data.memory import Entry, Match, Memory
from heedful.data.protected.pairs import Rules
from heedful.inference.document_files import translate_document
from heedful.tasks.pairs.run import open_pair_run
from serving_help import small_run, translator


def test_the_context_decides_then_the_frequency() -> None:
    memory = Memory(
        [
            Entry("Open", "Öffnen"),
            Entry("Open", "Offen", "state"),
            Entry("Open", "Öffnen"),
            Entry("Open", "Eröffnen"),
        ]
    )
    assert memory.find("Open") == Match("Öffnen", "exact", ("Offen", "Eröffnen"))
    assert memory.find("Open", "state") == Match("Offen", "context", ("Öffnen", "Eröffnen"))
    assert memory.find("Open", "other") == Match("Öffnen", "exact", ("Offen", "Eröffnen"))
    assert memory.find(" Open\n") == Match(" Öffnen\n", "exact", ("Offen", "Eröffnen"))
    assert memory.find("open") is None
    assert memory.find("  ") is None
    assert memory.statistics() == {
        "units": 3,
        "sources": 1,
        "sources_with_several_targets": 1,
        "units_with_context": 1,
    }


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    entries = [Entry('a "b"\n', "c\u2028d\\"), Entry("a", "b", "ctx", 3)]
    Memory(entries).save(tmp_path / "memory.jsonl")
    assert list(Memory.load(tmp_path / "memory.jsonl")) == entries


@pytest.mark.parametrize("row", ['["a", "b"]', '["a", "b", null, 0]', "{}", '["a", 1, null, 1]'])
def test_damage_is_one_line(tmp_path: Path, row: str) -> None:
    path = tmp_path / "memory.jsonl"
    path.write_text('["a", "b", null, 1]\n' + row + "\n", "utf-8")
    with pytest.raises(UserError, match="line 2"):
        Memory.load(path)


def test_a_full_memory_counts_what_it_leaves_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(memory_module, "MOST_UNITS", 2)
    memory = Memory(Entry(str(number), "x") for number in range(4))
    memory.save(tmp_path / "memory.jsonl")
    assert len(memory) == 2
    assert "2 units left out of the memory" in capsys.readouterr().err
    assert memory.find("2") is None  # what is left out leaves no source behind
    assert memory.statistics()["sources"] == 2
    memory.add(Entry("1", "x"))
    assert list(memory) == [Entry("0", "x"), Entry("1", "x", times=2)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_run(tmp_path_factory.mktemp("memory"), source="en", target="de")


def heedful_command(*arguments: object, given: str | None = None) -> str:
    if not app.registered_commands:
        _register()
    result = CliRunner().invoke(app, list(map(str, arguments)), input=given)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_run_keeps_its_training_units_and_no_held_out_ones(run: Path) -> None:
    memory = open_pair_run(run).memory()
    assert memory is not None
    lines = (run.parent / "train.tsv").read_text("utf-8").splitlines()
    assert all(memory.find(line.split("\t")[0]) for line in lines)
    held_out = {pair.source for pair in open_pair_run(run).pairs("validation")}
    assert not held_out & {entry.source for entry in memory} - {
        line.split("\t")[0] for line in lines
    }


def test_what_is_left_out_of_training_is_not_in_the_memory(tmp_path: Path) -> None:
    rows = [
        ("The test source!", "near"),
        ("The test source.", "exact"),
        ("Short", "too long " * 40),
        *((f"Sentence number {n}.", f"Satz Nummer {n}.") for n in range(20)),
        ("Sentence number 3.", "Satz drei."),
        ("Sentence number 3.", "Satz drei."),
    ]
    recipe = {
        "data": {"source": "en", "target": "de"},
        "tokeniser": {"vocabulary_size": 360},
        "model": {"layers": 1, "hidden_size": 16, "ffn_size": 16, "heads": 2},
        "training": {"max_steps": 1, "batch_tokens": 300, "warmup_steps": 1, "threads": 1},
    }
    held = [("The test source.", "Der Testsatz.")]
    data = {"train": rows, "validation": held, "test": held}
    for near, out in ((False, 0), (True, 2)):
        own = recipe | {"data": {**recipe["data"], "keep_near_duplicates": near}}
        assert heedful.train(own, tmp_path / f"run-{near}", data=data)
        memory = open_pair_run(tmp_path / f"run-{near}").memory()
        assert memory is not None
        sources = {entry.source for entry in memory}
        assert len(sources) == 20 + out
        assert "Short" not in sources
        found = memory.find("Sentence number 3.")
        assert found is not None
        assert found.target == "Satz drei."  # duplicates count


def test_lines_that_the_memory_has_are_taken_from_it(run: Path) -> None:
    known, expected = (run.parent / "train.tsv").read_text("utf-8").split("\n")[0].split("\t")
    text = f"a cat cat cat mat\n{known}\n\n{known} {known}\n"
    found = heedful_command("translate", run, given=text).split("\n")
    plain = heedful_command("translate", run, "--no-memory", given=text).split("\n")
    assert len(found) == len(plain) == 5
    assert found[1] == expected != plain[1]
    assert [found[place] for place in (0, 2, 3)] == [plain[place] for place in (0, 2, 3)]
    rows = [
        json.loads(line)
        for line in heedful_command("translate", run, "--json", given=text).splitlines()
    ]
    assert [("memory" in row) for row in rows] == [False, True, False, False]
    assert rows[1]["memory"] == {"kind": "exact", "others": []}
    # What asks for the model's own output gets it.
    assert heedful_command("translate", run, "--scores", given=known).split("\t")[0] == plain[1]


PO = """msgid ""
msgstr "Content-Type: text/plain; charset=UTF-8\\n"

# A comment.
msgctxt "state"
msgid "Open"
msgstr ""

msgid "Open"
msgstr ""

msgid "a cat sat"
msgstr ""
"""

XLIFF = """<?xml version="1.0" encoding="UTF-8"?>
<xliff version="1.2"><file source-language="en" target-language="de" original="a" datatype="x">
<body><trans-unit id="one"><source>Open</source></trans-unit>
<trans-unit id="two"><source>Open</source><target state="new" state-qualifier="mt-suggestion"/>
</trans-unit><trans-unit id="three"><source>a cat sat</source></trans-unit></body></file></xliff>
"""


def test_matches_are_marked_in_documents(run: Path, tmp_path: Path) -> None:
    heedful_command("memory", "add", run, "Open", "Öffnen")
    heedful_command("memory", "add", run, "Open", "Offen", "--context", "state")
    heedful_command("memory", "add", run, "Open", "Aufmachen", "--context", "two")
    heedful_command("memory", "add", run, "Open", "Öffnen")
    for name, text in (("a.po", PO), ("a.xlf", XLIFF)):
        (tmp_path / name).write_text(text, "utf-8")
        heedful_command("translate", run, tmp_path / name, "--output", tmp_path / f"out-{name}")
    filled = (tmp_path / "out-a.po").read_text("utf-8")
    assert (
        '# context match in the memory\n# A comment.\nmsgctxt "state"\nmsgid "Open"\n'
        'msgstr "Offen"\n\n# exact match in the memory\nmsgid "Open"\nmsgstr "Öffnen"\n\n'
        '#, fuzzy\nmsgid "a cat sat"\n'
    ) in filled
    filled = (tmp_path / "out-a.xlf").read_text("utf-8")
    assert '<target state="translated" state-qualifier="exact-match">Öffnen</target>' in filled
    assert '<target state="translated" state-qualifier="id-match">Aufmachen</target>' in filled
    assert filled.count("needs-review-translation") == 1
    assert "mt-suggestion" not in filled
    assert open_document(tmp_path / "out-a.xlf", source="en", target="de").segments == []  # type: ignore[union-attr]


def test_the_commands_of_the_memory(run: Path, tmp_path: Path) -> None:
    catalogue = tmp_path / "b.po"
    catalogue.write_text(
        'msgid "Save as"\nmsgstr "Speichern unter"\n\n#, fuzzy\nmsgid "Close"\nmsgstr "Zu"\n',
        "utf-8",
    )
    before = json.loads(heedful_command("memory", "stats", run, "--json"))["units"]
    told = heedful_command("memory", "import", run, catalogue)
    assert told.startswith("1 of 2 units")
    assert json.loads(heedful_command("memory", "stats", run, "--json"))["units"] == before + 1
    assert heedful_command("memory", "search", run, "save AS") == "Save as\tSpeichern unter\n"
    (row,) = heedful_command("memory", "search", run, "speichern", "--json").splitlines()
    assert json.loads(row)["target"] == "Speichern unter"
    heedful_command("memory", "export", run, tmp_path / "out.tsv")
    lines = (tmp_path / "out.tsv").read_text("utf-8").splitlines()
    assert len(lines) == before + 1
    assert all(re.fullmatch(r"[^\t]+\t[^\t]+", line) for line in lines)
    assert heedful.load(run)  # a memory that has grown is no damage


def test_commands_that_change_the_memory_at_once_lose_nothing(run: Path) -> None:
    def add() -> None:
        with _changed_memory(run) as memory:
            memory.add(Entry("Second", "Zweites"))

    second = threading.Thread(target=add)
    with _changed_memory(run) as memory:
        second.start()
        second.join(0.3)  # without a lock, it would be done now
        memory.add(Entry("First", "Erstes"))
    second.join()
    kept = open_pair_run(run).memory()
    assert kept is not None
    assert kept.find("First")
    assert kept.find("Second")


def test_a_recipe_may_leave_the_memory_out(tmp_path: Path) -> None:
    from heedful.runs.recipe import check_recipe

    data = {"train": ["a.tsv"], "keep_memory": False}
    assert check_recipe({"data": data}, "the test").data.keep_memory is False  # type: ignore[attr-defined]


def test_a_match_without_the_markup_of_a_document_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "a.html"
    path.write_text("<p>a <b>dog</b><p>a <b>cat</b>", encoding="utf-8")
    document = open_document(path)
    assert document is not None
    memory = Memory([Entry("a <b>dog</b>", "ein <b>Hund</b>"), Entry("a <b>cat</b>", "Katze")])
    model = translator(protect=Rules(("tags",)))
    found = translate_document(
        model, document, tmp_path / "b.html", options=model.options, memory=memory
    )
    assert [one.match is not None for one in found] == [True, False]
    written = (tmp_path / "b.html").read_text(encoding="utf-8")
    assert written.startswith("<p>ein <b>Hund</b><p>")
    assert written.count("<b>") == written.count("</b>") == 2
    assert "Katze" not in written
