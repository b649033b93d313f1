"""``heedful data``: each command on small real files, and what it refuses."""

import gzip
import json
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from command_help import PIPE, Started
from heedful.basics.errors import UserError
from heedful.cli import data as commands
from heedful.data.examples import Pair
from heedful.data.overlap import count_overlap
from heedful.data.pair_writer import write_pairs
from heedful.data.readers import read_pairs
from heedful.data.splitting import Split, parse_size

TMX = """<tmx version="1.4"><header srclang="en"/><body>
<tu><tuv xml:lang="en-US"><seg>two\nlines\tand a tab</seg></tuv>
<tuv xml:lang="de"><seg>b</seg></tuv></tu>
<tu><tuv xml:lang="en-US"><seg>c</seg></tuv><tuv xml:lang="de"><seg>d e</seg></tuv></tu>
<tu><tuv xml:lang="en-US"><seg>c</seg></tuv><tuv xml:lang="de"><seg>d e</seg></tuv></tu>
<tu><tuv xml:lang="en-US"><seg>alone</seg></tuv></tu>
</body></tmx>"""


def run(*arguments: object, stdin: str | bytes | None = None) -> Result:
    app = typer.Typer()
    commands.register(app)
    # A second command, so that typer keeps the group's name as real command lines have it.
    app.command()(lambda: None)
    words = ["data", *map(str, arguments)]
    return CliRunner().invoke(app, words, input=stdin, catch_exceptions=False)


@pytest.fixture
def memory(tmp_path: Path) -> Path:
    path = tmp_path / "memory.tmx"
    path.write_text(TMX)
    return path


def test_stats_as_json_and_as_a_table(memory: Path) -> None:
    shown = json.loads(run("stats", memory, "--json").stdout)
    assert (shown["pairs"], shown["duplicates"]) == (3, 1)
    assert shown["source"]["words"] == 7
    assert shown["source"]["most_words"] == 5
    assert shown["target"]["characters"] == 7
    assert shown["left_out"] == {"units without both languages": 1}
    table = run("stats", memory, "--no-duplicates")
    assert "pairs        2" in table.stdout
    assert "1 units without both languages" in table.stderr
    assert "1 duplicate" in table.stderr


def test_stats_of_nothing_and_of_standard_input(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").touch()
    assert json.loads(run("stats", tmp_path / "a.tsv", "--json").stdout)["pairs"] == 0
    assert json.loads(run("stats", "-", "--json", stdin="a\tb\n").stdout)["pairs"] == 1


def test_convert_says_what_it_changed(memory: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.tsv"
    said = run("convert", memory, "--output", out).stderr
    assert out.read_text() == "two lines and a tab\tb\nc\td e\nc\td e\n"
    assert "1 pairs with TABs or line breaks, which became spaces" in said
    assert "3 pairs written" in said
    said = run("convert", memory, "--output", out, "--breaks", "leave-out").stderr
    assert out.read_text() == "c\td e\nc\td e\n"
    assert "1 pairs with TABs or line breaks, left out" in said
    run("convert", memory, "--output", "-", "--no-duplicates", "--max-words", 4)


def test_convert_to_aligned_and_packed_files_and_back(memory: Path, tmp_path: Path) -> None:
    english, german = tmp_path / "a.en.gz", tmp_path / "a.de"
    run("convert", memory, "--output", english, "--output", german)
    assert gzip.decompress(english.read_bytes()).decode() == "two lines\tand a tab\nc\nc\n"
    again = tmp_path / "again.tsv"
    run("convert", english, german, "--output", again)
    assert again.read_text().count("\n") == 3
    first = english.read_bytes()
    run("convert", memory, "--output", english, "--output", german)
    assert english.read_bytes() == first


def test_carriage_returns_at_the_end_do_not_vanish_unsaid(tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    assert write_pairs([Pair("a\r", "b")], paths).changed.total() == 1


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\ufeff"), max_size=8)


@given(st.lists(st.builds(Pair, TEXT, TEXT), max_size=10), st.booleans())
@settings(max_examples=60, deadline=None)
def test_what_is_written_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[Pair], aligned: bool
) -> None:
    folder = tmp_path_factory.mktemp("w")
    paths = [folder / "a", folder / "b"] if aligned else [folder / "a.tsv"]
    writer = write_pairs(pairs, paths)
    forbidden = "\n\r" if aligned else "\t\n\r"
    unchanged = [not set("".join(pair)) & set(forbidden) for pair in pairs]
    assert writer.changed.total() == unchanged.count(False)
    back = list(read_pairs(paths))
    assert len(back) == len(pairs)
    for kept, pair, read in zip(unchanged, pairs, back, strict=True):
        assert not kept or read == pair


@given(
    st.lists(st.integers(0, 30), min_size=2, max_size=80),
    st.integers(0, 20),
    st.integers(0, 20),
    st.randoms(use_true_random=False),
)
@settings(max_examples=80, deadline=None)
def test_splits_keep_sources_apart_whatever_the_order(
    numbers: list[int], validation: int, test: int, shuffler: random.Random
) -> None:
    sources = [str(number) for number in numbers]
    if validation + test >= len(sources):
        with pytest.raises(UserError, match="leave no pairs"):
            Split(sources, str(validation), str(test), 1)
        return
    split = Split(sources, str(validation), str(test), 1)
    sizes = Counter(split.part(source) for source in sources)
    assert sizes["test"] <= test
    assert sizes["validation"] <= validation
    if len(set(sources)) == len(sources):
        assert (sizes["test"], sizes["validation"]) == (test, validation)
    shuffled = sources.copy()
    shuffler.shuffle(shuffled)
    again = Split(shuffled, str(validation), str(test), 1)
    assert [again.part(f" {source}\n") for source in sources] == list(map(split.part, sources))


def test_split_writes_all_pairs_once(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    lines = [f"s{number % 700}\tt{number}" for number in range(1000)]
    path.write_text("\n".join(lines))
    out = tmp_path / "parts"
    said = run(
        "split", path, "--output-dir", out, "--validation", 100, "--test", "5 %", "--seed", 7
    ).stderr
    parts = {part.stem: list(read_pairs([part])) for part in out.iterdir()}
    assert {name: len(pairs) for name, pairs in parts.items()} == {
        "train": 850,
        "validation": 100,
        "test": 50,
    }
    assert "train 850, validation 100, test 50" in said
    assert sorted("\t".join(pair) for pairs in parts.values() for pair in pairs) == sorted(lines)
    train = [pair.source for pair in parts["train"]]
    assert count_overlap(train, [pair.source for pair in parts["test"]]) == 0
    assert count_overlap(train, [pair.source for pair in parts["validation"]]) == 0
    run("split", path, "--output-dir", tmp_path / "again", "--validation", 100, "--test", 50,
        "--seed", 7)  # fmt: skip
    run("split", path, "--output-dir", tmp_path / "other", "--validation", 100, "--test", 50,
        "--seed", 8)  # fmt: skip
    tests = [(tmp_path / name / "test.tsv").read_text() for name in ("parts", "again", "other")]
    assert tests[0] == tests[1] != tests[2]


def test_split_into_text_files(memory: Path, tmp_path: Path) -> None:
    out = tmp_path / "parts"
    run("split", memory, "--from", "en", "--to", "de", "--output-dir", out, "--format", "text",
        "--test", 1)  # fmt: skip
    assert sorted(path.name for path in out.iterdir()) == [
        f"{part}.{side}" for part in ("test", "train", "validation") for side in ("de", "en")
    ]


def test_a_folder_in_use_is_left_alone(memory: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="already exists"):
        run("split", memory, "--output-dir", tmp_path, "--test", 1)
    assert memory.exists()


def test_a_failure_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_bytes(b"a\tb\n" * 5000 + b"c\xff\n")
    for command in (
        ("convert", path, "--output", tmp_path / "out.tsv"),
        ("convert", path, "--output", tmp_path / "o.gz", "--output", tmp_path / "p"),
        ("split", path, "--output-dir", tmp_path / "parts", "--test", 1),
    ):
        with pytest.raises(UserError, match=r"a\.tsv:5001: byte 0xFF"):
            run(*command)
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.tsv"]


def test_an_output_that_cannot_be_written_is_one_line(memory: Path) -> None:
    with pytest.raises(UserError, match="cannot write"):
        run("convert", memory, "--output", memory / "out.tsv")


def test_wrong_wishes(memory: Path, tmp_path: Path) -> None:
    out = tmp_path / "o"
    for arguments, message in (
        (("split", "-", "--output-dir", out), "reads its input twice"),
        (("split", memory, "--output-dir", out, "--test", "many"), "'many' is not a size"),
        (("split", memory, "--output-dir", out, "--test", 3), "leave no pairs of 3"),
        (("convert", memory, "--output", out, "--output", out), "two different outputs"),
        (("stats", memory, "--max-words", 0), "max_words"),
        (("stats", memory, "--from", "fr"), "'fr' is not in .*: de, en-US"),
    ):
        with pytest.raises(UserError, match=message):
            run(*arguments)
    assert not out.exists()
    with pytest.raises(UserError, match="is not a size"):
        parse_size("-5", 10)


def test_every_help_ends_in_an_example() -> None:
    for name in ("stats", "convert", "split"):
        shown = run(name, "--help").stdout
        assert f"heedful data {name} memory.tmx" in shown


def start(*arguments: object) -> Started:
    return Started("data", *arguments, stdin=PIPE, stdout=PIPE, stderr=PIPE, text=False)


def test_what_is_interrupted_leaves_nothing_behind(tmp_path: Path) -> None:
    with start("convert", "-", "--output", tmp_path / "out.tsv") as process:
        process.stdin.write(b"one\teins\n")
        process.stdin.flush()
        while process.poll() is None and not list(tmp_path.iterdir()):
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert said == b"heedful: interrupted\n"
    assert list(tmp_path.iterdir()) == []


def test_a_reader_that_goes_ends_the_command_quietly(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("one\teins\n" * 50_000)
    with start("convert", tmp_path / "a.tsv", "--output", "-") as process:
        process.stdout.readline()
        process.stdout.close()
        said = process.stderr.read()
        process.wait(timeout=60)
    assert process.returncode == 141
    assert said == b""
