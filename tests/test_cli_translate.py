"""``heedful translate`` on a small run: parity, formats, documents, pipes, wrong input."""

import gzip
import io
import json
import random
import re
import signal
import zipfile
from pathlib import Path

import pytest
import torch
import typer
from typer.testing import CliRunner

from command_help import PIPE, Started, run_command
from heedful.basics.errors import UserError
from heedful.cli import task_commands
from heedful.data.documents.formats import FORMATS
from heedful.tasks.pairs.building import load_translator
from heedful.tasks.translation.input_format import Format

WORDS = {"one": "eins", "two": "zwei", "red": "rot", "dog": "Hund", "sees": "sieht", "cat": "Katze"}
RECIPE = """
seed = 3
[data]
train = "train.tsv"
validation = "validation.tsv"
source = "en"
target = "de"
max_tokens = 30
[tokeniser]
vocabulary_size = 360
[model]
kind = "transformer"
layers = 1
hidden_size = 32
ffn_size = 32
heads = 2
dropout = 0.0
max_length = 40
[training]
max_steps = 120
batch_tokens = 400
learning_rate = 0.005
warmup_steps = 20
validate_every = 120
checkpoint_every = 120
threads = 1
"""
LINES = ["one red dog", "", "cat sees dog", "  ", "two cat"]

torch.set_num_threads(1)
app = typer.Typer()
app.callback()(lambda: None)
task_commands.register(app)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("translate")
    chance = random.Random(1)
    for name, count in (("train", 600), ("validation", 4)):
        sources = [chance.choices(list(WORDS), k=chance.randint(1, 5)) for _ in range(count)]
        pairs = [(" ".join(line), " ".join(WORDS[word] for word in line)) for line in sources]
        text = "".join(f"{source}\t{target}\n" for source, target in pairs)
        (folder / f"{name}.tsv").write_text(text)
    (folder / "recipe.toml").write_text(RECIPE)
    done = run_command("train", "recipe.toml", "--out", "run", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "run"


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "in.txt"
    path.write_text("\n".join(LINES) + "\n")
    return path


def call(*arguments: object, given: bytes = b"") -> tuple[bytes, str]:
    """Standard output and standard error; what it raises is raised here."""
    result = CliRunner().invoke(app, ["translate", *map(str, arguments)], input=given)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout_bytes, result.stderr


def test_lines_in_lines_out(run: Path, text: Path, tmp_path: Path) -> None:
    out, _ = call(run, text)
    lines = out.decode().split("\n")
    assert len(lines) == len(LINES) + 1
    assert (lines[1], lines[3], lines[5]) == ("", "  ", "")
    assert all(lines[place] for place in (0, 2, 4))
    assert call(run, given=text.read_bytes())[0] == out
    assert call(run, "-", given=text.read_bytes().rstrip(b"\n"))[0] == out
    (tmp_path / "in.gz").write_bytes(gzip.compress(text.read_bytes()))
    assert call(run, tmp_path / "in.gz")[0] == out
    assert call(run, text, "--output", tmp_path / "deep" / "out.txt")[0] == b""
    assert (tmp_path / "deep" / "out.txt").read_bytes() == out
    assert call(run, given=b"")[0] == b""


def test_the_command_and_the_library_agree_byte_by_byte(run: Path, text: Path) -> None:
    translator = load_translator([run], device="cpu")
    lines = [one.text for one in translator.translate(LINES)]
    out = call(run, text, "--no-memory")[0]
    assert out.decode() == "".join(f"{line}\n" for line in lines)


def test_scores_and_alignments_beside_the_text(run: Path, text: Path, tmp_path: Path) -> None:
    links = tmp_path / "links.txt"
    out, _ = call(run, text, "--scores", "--alignments", links, "--beam", 2)
    columns = [line.split("\t") for line in out.decode().splitlines()]
    assert all(len(column) == 2 and float(column[1]) <= 0 for column in columns)
    pharaoh = links.read_text().split("\n")
    assert len(pharaoh) == len(LINES) + 1
    for line, column, source in zip(pharaoh, columns, LINES, strict=False):
        pairs = [tuple(map(int, pair.split("-"))) for pair in line.split()]
        assert [target for _, target in pairs] == list(range(len(column[0].split())))
        assert all(0 <= word < len(source.split()) for word, _ in pairs)


def test_json_lines_hold_all_that_there_is(run: Path, text: Path) -> None:
    for options, others in (
        (["--json", "--no-memory"], 0),
        (["--nbest", 3], 2),
        (["--nbest", 7], 6),
    ):
        found = [json.loads(line) for line in call(run, text, *options)[0].splitlines()]
        assert [one["source"] for one in found] == LINES
        for one in found:
            assert len(one["alternatives"]) == (others if one["source"].strip() else 0)
            assert len(one["tokens"]) == len(one["token_scores"])
            assert [target for _, target in one["alignment"]] == list(
                range(len(one["text"].split()))
            )


def test_sampling_and_ensembles(run: Path, text: Path) -> None:
    options = ("--sample", "--temperature", 2.0, "--top-k", 20, "--top-p", 0.95)
    first, again, other = (call(run, text, *options, "--seed", seed)[0] for seed in (5, 5, 6))
    assert first == again != other
    ensemble = call(run, text, "--ensemble", run, "--no-memory")[0]
    assert ensemble == call(run, text, "--no-memory")[0]


def test_long_lines_are_split_and_said_once(run: Path) -> None:
    long = " ".join(["one red dog."] * 30)
    out, said = call(run, given=f"{long}\ntwo\n{long}\n".encode())
    assert len(out.splitlines()) == 3
    assert said.count("in parts") == 1


def test_line_breaks_in_a_translation_keep_the_lines(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from heedful.data.tokeniser import Tokeniser

    plain = Tokeniser.decode
    monkeypatch.setattr(
        Tokeniser, "decode", lambda self, ids: plain(self, ids).replace("s", "\r\n")
    )
    out, said = call(run, "--no-memory", given=b"one one\none\n")
    assert out.count(b"\n") == 2
    assert b"\r" not in out
    assert "2 translations had a line break" in said
    found = [
        json.loads(line)
        for line in call(run, "--json", "--no-memory", given=b"one\n")[0].splitlines()
    ]
    assert "\r\n" in found[0]["text"]


CATALOGUE = """msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\\n"
"Language: de\\n"

# kept
msgid "one red dog"
msgstr ""

msgid "two"
msgstr "zwo"
"""
MEMORY = """<?xml version="1.0" encoding="UTF-8"?>
<tmx version="1.4"><header creationtool="x" creationtoolversion="1" segtype="sentence"
 o-tmf="x" adminlang="en" srclang="en" datatype="plaintext"/>
<body>
<tu><tuv xml:lang="en-US"><seg>one cat</seg></tuv></tu>
</body></tmx>
"""


def test_documents_come_back_filled(run: Path, tmp_path: Path) -> None:
    translated = call(run, given=b"one red dog\none cat\n")[0].decode().splitlines()
    (tmp_path / "m.po").write_text(CATALOGUE)
    call(run, tmp_path / "m.po", "--output", tmp_path / "filled.po")
    filled = (tmp_path / "filled.po").read_text()
    assert f'msgid "one red dog"\nmsgstr "{translated[0]}"' in filled
    assert "# kept\n" in filled
    assert 'msgid "two"\nmsgstr "zwo"\n' in filled
    assert call(run, tmp_path / "m.po")[0].decode() == filled
    (tmp_path / "m.tmx").write_text(MEMORY)
    memory = call(run, tmp_path / "m.tmx")[0].decode()
    assert f"<seg>{translated[1]}</seg>" in memory
    with pytest.raises(UserError, match="are for text"):
        call(run, tmp_path / "m.po", "--json")
    # A pipe is not looked at, but is no text either: the choice is the user's.
    assert call(run, "--format", "po", given=CATALOGUE.encode())[0].decode() == filled
    packed = gzip.compress(MEMORY.encode())
    assert call(run, "-", "--format", "tmx", given=packed)[0].decode() == memory
    page = call(run, "--format", "html", given=b"<p>one red dog<p>one cat")[0].decode()
    assert page == f"<p>{translated[0]}<p>{translated[1]}"
    for kind, text in (("PO", CATALOGUE), ("TMX", MEMORY)):
        with pytest.raises(UserError, match=f"standard input looks like {kind}: give --format"):
            call(run, given=text.encode())
        lines = call(run, "--format", "lines", given=text.encode())[0]
        assert lines.count(b"\n") == text.count("\n")
    assert call(run, given=b"<?xml version='1.0'?><html/>\n")[0].count(b"\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["filled.po", "m.po", "m.tmx"]


def test_every_document_format_has_a_name_for_pipes() -> None:
    assert [one.value for one in Format] == ["auto", "lines", *FORMATS]


def test_a_table_is_filled_if_its_columns_are_named(run: Path, tmp_path: Path) -> None:
    translated = call(run, given=b"one red dog\n")[0].decode().strip()
    columns = ("--source-column", "en", "--target-column", "de")
    rows = "en,de\none red dog,\none cat,x\n"
    path = tmp_path / "a.csv"
    path.write_text(rows)
    filled = f"en,de\none red dog,{translated}\none cat,x\n"
    assert call(run, path, *columns)[0].decode() == filled
    assert call(run, "--format", "csv", *columns, given=rows.encode())[0].decode() == filled
    tsv = call(run, "--format", "tsv", *columns, given=rows.replace(",", "\t").encode())[0]
    assert tsv.decode() == filled.replace(",", "\t")
    assert call(run, path, "--format", "lines")[0].count(b"\n") == 3
    with pytest.raises(UserError, match=r"a\.csv is a table: name its columns"):
        call(run, path)
    with pytest.raises(UserError, match="needs --format csv or --format tsv"):
        call(run, *columns, given=rows.encode())
    with pytest.raises(UserError, match="--target-column needs --source-column"):
        call(run, path, *columns[2:])
    (tmp_path / "a.txt").write_text("one red dog\n")
    with pytest.raises(UserError, match="is no table; leave out --source-column"):
        call(run, tmp_path / "a.txt", *columns)


def test_office_documents_come_back_from_a_pipe(run: Path, tmp_path: Path) -> None:
    translated = call(run, given=b"one red dog\n")[0].decode().strip()
    path = tmp_path / "a.odt"
    text = 'xmlns:t="urn:oasis:names:tc:opendocument:xmlns:text:1.0"'
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("content.xml", f"<d {text}><t:p>one <t:span>red</t:span> dog</t:p></d>")
    for arguments in ((path,), ("--format", "opendocument")):
        out = call(run, *arguments, given=path.read_bytes())[0]
        found = zipfile.ZipFile(io.BytesIO(out)).read("content.xml").decode()
        assert found.count("<t:span>") == found.count("</t:span>") == 1
        assert re.sub(r"<[^>]*>", "", found).split() == translated.split()


def test_documents_with_markup_come_back_translated(run: Path, tmp_path: Path) -> None:
    translated = call(run, given=b"one red dog\none cat\n")[0].decode().splitlines()
    path = tmp_path / "a.md"
    path.write_bytes("# one red dog\n\n- one cat\n\n``` \nM\xfcll\n```\n".encode("latin-1"))
    with pytest.raises(UserError, match=r"a\.md:6: byte 0xFC is not utf-8; .*--encoding"):
        call(run, path)
    with pytest.raises(UserError, match="unknown encoding 'nonsense'"):
        call(run, path, "--encoding", "nonsense")
    out = call(run, path, "--encoding", "latin-1", "--no-memory")[0].decode("latin-1")
    assert out == f"# {translated[0]}\n\n- {translated[1]}\n\n``` \nM\xfcll\n```\n"
    (tmp_path / "m.po").write_text(CATALOGUE)
    with pytest.raises(UserError, match="declares its encoding"):
        call(run, tmp_path / "m.po", "--encoding", "latin-1")


def test_the_first_column_of_tsv_is_translated(run: Path, text: Path, tmp_path: Path) -> None:
    expected, _ = call(run, text)
    rows = "".join(f"{line}\tx\ty\n" if line else "\n" for line in LINES)
    for name in ("pairs.tsv", "PAIRS.TSV.gz", "pairs.txt"):
        content = gzip.compress(rows.encode()) if name.endswith("gz") else rows.encode()
        (tmp_path / name).write_bytes(content)
        options = ["--format", "tsv"] if name == "pairs.txt" else []
        out, said = call(run, tmp_path / name, *options)
        assert out == expected
        assert "only the first column is translated; 4 lines have more columns" in said
    out, said = call(run, tmp_path / "pairs.tsv", "--format", "lines", "--json")
    assert json.loads(out.splitlines()[0])["source"] == "one red dog\tx\ty"
    assert said == ""
    assert call(run, "--format", "tsv", given=rows.encode())[0] == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--seed", 3], "--seed is for sampling"),
        (["--sample", "--beam", 3], "exclude each other"),
        (["--beam", 3, "--nbest", 4], "set beam to at least 4"),
        (["--beam", 0], "'beam' = 0"),
        (["--temperature", 0.5], "need sampling"),
        (["--sample", "--top-p", 2], "'top_p' = 2"),
        (["--json", "--scores"], "leave out --scores"),
        (["--output", "."], "is a folder"),
        (["--output", "x", "--alignments", "x"], "give two files"),
        (["--device", "tpu"], "unknown device"),
        (["--threads", 0], "the minimum is 1"),
        (["--ensemble", "nowhere"], "nowhere"),
    ],
)
def test_wrong_options_stop_before_translating(
    run: Path, text: Path, options: list[object], message: str
) -> None:
    with pytest.raises(UserError, match=message) as error:
        call(run, text, *options)
    assert "\n" not in str(error.value)


def test_wrong_input_leaves_no_output(run: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_bytes(b"one\nt\xffwo\n")
    for name, message in (("absent.txt", "absent.txt"), ("bad.txt", "bad.txt:2")):
        with pytest.raises(UserError, match=message):
            call(run, tmp_path / name, "--output", tmp_path / "out.txt")
    with pytest.raises(UserError, match="norun"):
        call(tmp_path / "norun", tmp_path / "bad.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["bad.txt"]


def test_a_pipe_is_answered_while_it_is_open_and_can_be_interrupted(
    run: Path, tmp_path: Path
) -> None:
    command = ["translate", run, "--alignments", tmp_path / "links"]
    command += ["--threads", "1"]  # no notice about other programs
    with Started(*command, stdin=PIPE, stdout=PIPE, stderr=PIPE, text=False) as process:
        for line in (b"one red dog\n", b"\n", b"two\n"):
            process.stdin.write(line)
            process.stdin.flush()
            answer = process.stdout.readline()  # would wait for ever, if it were not flushed
            assert (answer == b"\n") == (line == b"\n")
        process.send_signal(signal.SIGINT)
        rest, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert rest == b""
    assert said == b"heedful: interrupted\n"
    assert list(tmp_path.iterdir()) == []
