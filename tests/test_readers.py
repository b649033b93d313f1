"""Readers of text and TSV, of any file's kind, and of what every format shares."""

import gzip
import os
import subprocess
import sys
import threading
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.basics.errors import UserError
from heedful.data.readers import read_line_blocks, read_lines, read_pairs
from heedful.data.readers.kinds import Kind, find_kind

DATA = Path(__file__).parents[1] / "../shared/data"
LINES = st.lists(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r\ufeff"), max_size=8),
    max_size=8,
)


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@given(LINES, st.sampled_from(["\n", "\r\n"]), st.booleans(), st.booleans())
@settings(max_examples=60, deadline=None)
def test_lines_come_back(
    tmp_path_factory: pytest.TempPathFactory,
    lines: list[str],
    ending: str,
    ended: bool,
    packed: bool,
) -> None:
    text = ending.join(lines) + (ending if ended and lines else "")
    data = text.encode("utf-8-sig" if ended else "utf-8")
    path = tmp_path_factory.mktemp("lines") / "a"
    path.write_bytes(gzip.compress(data) if packed else data)
    expected = lines if ended else lines[: len(lines) - (lines[-1:] == [""])]
    assert list(read_lines(path)) == expected


def test_only_line_feeds_end_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "a", "a\u2028b\x0bc\x0cd\x85e\rf\r\r\n\ng")
    assert list(read_lines(path)) == ["a\u2028b\x0bc\x0cd\x85e\rf\r", "", "g"]


def test_a_pipe_is_not_waited_for() -> None:
    program = (
        "from heedful.data.readers import read_lines\n"
        "for line in read_lines('-'): print(line.upper(), flush=True)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        # A reader that waits for more would wait for ever.
        watchdog = threading.Timer(30, child.kill)
        watchdog.start()
        for word in (b"one", b"two"):
            child.stdin.write(word + b"\n")
            child.stdin.flush()
            assert child.stdout.readline() == word.upper() + b"\n"
        child.stdin.close()
        watchdog.cancel()


def test_blocks_hold_what_is_there(tmp_path: Path) -> None:
    path = write(tmp_path / "a", "a\nb\nc")
    assert list(read_line_blocks(path)) == [["a", "b"], ["c"]]


def test_aligned_files_and_tsv_give_the_same(tmp_path: Path) -> None:
    source = write(tmp_path / "a.en", "\ufeffone\n\nthree\n")
    target = write(tmp_path / "a.de", gzip.compress("eins\r\nzwei\r\n\u2028drei".encode()))
    expected = [("one", "eins"), ("", "zwei"), ("three", "\u2028drei")]
    assert list(read_pairs([source, target])) == expected
    tsv = write(tmp_path / "a.tsv", "\n".join("\t".join(pair) for pair in expected))
    assert list(read_pairs([tsv])) == expected


def test_further_columns_are_counted_or_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "a.tsv", "a\tb\tc\td\ne\tf\n")
    left_out: Counter[str] = Counter()
    assert list(read_pairs([path], left_out=left_out)) == [("a", "b"), ("e", "f")]
    assert left_out == {"lines' columns after the second": 1}
    assert capsys.readouterr().err == ""
    list(read_pairs([path]))
    assert f"left out of {path}: 1 lines' columns" in capsys.readouterr().err


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-16-le", "shift_jis", "UTF8"])
def test_other_encodings(encoding: str, tmp_path: Path) -> None:
    word = "語" if encoding == "shift_jis" else "ä"
    path = write(tmp_path / "a.tsv", f"a\t{word}\r\nb\tc\n".encode(encoding))
    assert list(read_pairs([path], encoding=encoding)) == [("a", word), ("b", "c")]


GOOD = b"".join(b"source %d\ttarget %d\n" % (n, n) for n in range(20_000))


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a.tsv": b"a\tb\nc d\n"}, r"a.tsv:2: no TAB"),
        ({"a.tsv": b"a\tb\nc\t\xe4\n"}, r"a.tsv:2: byte 0xE4 is not UTF-8"),
        ({"a.tsv": GOOD + b"c\t\xe4\n"}, r"a.tsv:20001: byte 0xE4"),
        ({"a.tsv": b"a\tb\nc\t\xed\xa0\x80\n"}, r"a.tsv:2: byte 0xED is not UTF-8"),
        ({"a.tsv": b"a\tb\nc\td\xc3"}, r"a.tsv:2: byte 0xC3"),
        ({"a": b"1\n2\n3\n", "b": b"1\n2\n"}, r"a has 3 lines but .*b has 2"),
        ({"a": b"1\n", "b": b"1\n2\n3"}, r"a:2: .*a has 1 lines but .*b has 3"),
        ({"a": b"1\n\xff", "b": b"1\n2\n3"}, r"a:2: byte 0xFF"),
        ({"a.gz": gzip.compress(GOOD)[:-5000]}, r"a.gz:\d+: the gzip data end unexpectedly"),
        ({"a.gz": gzip.compress(GOOD)[:-8] + b"\0" * 8}, r"a.gz:20001: the gzip data are damaged"),
        ({"a.gz": gzip.compress(GOOD)[:9]}, r"a.gz:1: the gzip data"),
        ({"a": b"", "b": b"", "c": b""}, "3 files given"),
        ({"a": b"a\n", "b": b"<?xml version='1.0'?><tmx/>"}, "b is TMX; give such a file alone"),
        ({"a.html": b"<?xml version='1.0'?>\n<html/>"}, "root is <html>"),
        ({"none.tsv": None}, r"cannot read .*none.tsv: No such file"),
    ],
)
def test_wrong_files_are_one_line(
    files: dict[str, bytes | None], message: str, tmp_path: Path
) -> None:
    for name, data in files.items():
        if data is not None:
            write(tmp_path / name, data)
    with pytest.raises(UserError, match=message) as caught:
        list(read_pairs([tmp_path / name for name in files]))
    assert "\n" not in str(caught.value)


def test_wrong_arguments(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "a\tb")
    with pytest.raises(UserError, match="unknown encoding 'utf-9'"):
        list(read_pairs([path], encoding="utf-9"))
    with pytest.raises(UserError, match="unknown encoding 'base64'"):
        list(read_pairs([path], encoding="base64"))
    with pytest.raises(UserError, match="cannot be both"):
        list(read_pairs(["-", "-"]))
    with pytest.raises(UserError, match="Is a directory"):
        list(read_pairs([tmp_path, path]))


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read every file")
def test_a_file_without_rights(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "a\tb")
    path.chmod(0)
    with pytest.raises(UserError, match="Permission denied"):
        list(read_pairs([path]))


def test_an_empty_file_has_no_pairs(tmp_path: Path) -> None:
    assert list(read_pairs([write(tmp_path / "a.tsv", "")])) == []


def test_standard_input_plain_and_packed() -> None:
    program = "from heedful.data.readers import read_pairs; print(len(list(read_pairs(['-']))))"
    for data in (GOOD, gzip.compress(GOOD)):
        done = subprocess.run(
            [sys.executable, "-c", program], input=data, capture_output=True, check=True
        )
        assert done.stdout == b"20000\n"


@pytest.mark.parametrize(
    ("text", "name", "kind"),
    [
        ("<?xml version='1.0'?>\n<!-- <xliff> --><tmx>", "a.txt", Kind.TMX),
        ("\ufeff\n<!DOCTYPE tmx [<!ELEMENT a ANY>]><tmx>", "a.xlf", Kind.TMX),
        ("<x:xliff xmlns:x='u'>", "a", Kind.XLIFF),
        ("<b>bold</b>\tfett", "a.tsv", Kind.TEXT),
        ('# c\nmsgid ""\nmsgstr ""\n', "a.tsv", Kind.PO),
        ('#~ msgid "a"\n#~ msgstr "b"\n', "a", Kind.PO),
        ('msgid "a"\tmsgstr "b"', "a", Kind.TEXT),
        ("# a heading\nmsgid \tx\n", "a.txt", Kind.TEXT),
        ("rubbish", "a.po.gz", Kind.PO),
        ("", "a.tmx", Kind.TMX),
        ("", "a", Kind.TEXT),
    ],
)
def test_kinds_are_found_by_content(text: str, name: str, kind: Kind) -> None:
    assert find_kind(text.encode(), name) is kind
    assert find_kind(text.encode("utf-16"), name, "utf-16") is kind


def test_memory_stays_flat_for_text(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", GOOD * 4)

    def peak(pairs: Iterator[object]) -> int:
        tracemalloc.start()
        count = sum(1 for _ in pairs)
        assert count == 80_000
        highest = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return highest

    assert peak(read_pairs([path])) < 1_000_000 < path.stat().st_size


@pytest.mark.skipif(not DATA.exists(), reason="the shared data sets are not here")
def test_the_counts_of_real_corpora() -> None:
    folder = DATA / "multi30k"
    names = sorted(path.name for path in folder.rglob("*.en*") if "lc.norm" not in str(path))
    assert names, f"no English file in {folder}"
    counts = {
        name: sum(1 for _ in read_pairs([folder / name, folder / name.replace(".en", ".de")]))
        for name in names
        if (folder / name).exists()
    }
    assert {29_000, 1_014, 1_000} <= set(counts.values())
