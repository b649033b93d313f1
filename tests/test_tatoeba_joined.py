"""Joined pairs: parts that share no sentence, lengths as said, the same files again."""

import importlib
import random
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
REAL = Path(__file__).resolve().parents[2] / "shared" / "data" / "tatoeba-deu-eng" / "deu-eng.zip"


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("tatoeba_joined")


def archive(path: Path, count: int) -> Path:
    """English sentences with several German ones, and the other way round, as in Tatoeba."""
    chance = random.Random(4)
    rows = [f"E{chance.randrange(count)}!\tD{chance.randrange(count)}." for _ in range(count)]
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("deu.txt", "".join(f"{row}\n" for row in rows))
    return path


def read(folder: Path, part: str) -> list[tuple[str, str]]:
    sides = [(folder / f"{part}.{side}").read_text().splitlines() for side in ("en", "de")]
    return list(zip(*sides, strict=True))


def test_parts_share_no_sentence_of_either_language(made: Any, tmp_path: Path) -> None:
    source = archive(tmp_path / "deu-eng.zip", 2000)
    arguments = [str(source), "--validation", "9", "--test", "15"]
    for out in ("one", "two"):
        assert made.main([*arguments, "--out", str(tmp_path / out)]) == 0
    parts = {part: read(tmp_path / "one", part) for part in made.PARTS}
    assert parts == {part: read(tmp_path / "two", part) for part in made.PARTS}
    assert (len(parts["val"]), len(parts["test"])) == (9, 15)
    assert len(parts["train"]) > 50
    for side in (0, 1):
        seen: set[str] = set()
        for pairs in parts.values():
            sentences = {sentence for pair in pairs for sentence in pair[side].split()}
            assert not sentences & seen
            seen |= sentences
    for english, german in parts["train"] + parts["test"]:
        assert 2 <= len(english.split()) == len(german.split()) <= 5
        assert len(set(english.split())) == len(english.split())
    assert "CC BY 2.0" in (tmp_path / "one" / "ATTRIBUTION.txt").read_text()
    other = tmp_path / "other"
    assert made.main([*arguments, "--out", str(other), "--seed", "2"]) == 0
    assert read(other, "test") != parts["test"]


def test_long_texts_are_of_the_test_part(made: Any, tmp_path: Path) -> None:
    source = archive(tmp_path / "deu-eng.zip", 2000)
    arguments = [str(source), "--validation", "9", "--test", "60"]
    assert made.main([*arguments, "--out", str(tmp_path / "one")]) == 0
    assert made.main([*arguments, "--out", str(tmp_path / "two"), "--long", "20"]) == 0
    for part in made.PARTS:
        assert read(tmp_path / "one", part) == read(tmp_path / "two", part)
    long = read(tmp_path / "two", "long")
    assert len(long) == 20
    assert not (tmp_path / "one" / "long.en").exists()
    assert {len(english.split()) for english, _ in long} == set(range(6, 13))
    for side in (0, 1):
        sentences = [pair[side].split() for pair in long]
        assert all(len(set(text)) == len(text) for text in sentences)
        known = {
            each
            for part in ("train", "val")
            for pair in read(tmp_path / "two", part)
            for each in pair[side].split()
        }
        assert not known & {each for text in sentences for each in text}
    assert made.main([*arguments, "--out", str(tmp_path / "few"), "--long", "90"]) == 1


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.sampled_from("stuvwxyz")), max_size=12))
@settings(max_examples=60)
def test_families_are_what_sentences_join(pairs: list[tuple[str, str]]) -> None:
    import sys

    sys.path.insert(0, str(BENCHMARKS))
    families = importlib.import_module("tatoeba_joined").families
    sys.path.remove(str(BENCHMARKS))
    found = families(pairs)
    assert sorted(pair for family in found for pair in family) == sorted(pairs)
    for side in (0, 1):
        sides = [{pair[side] for pair in family} for family in found]
        assert sum(map(len, sides)) == len(set().union(*sides))
    for family in found:  # and no larger than they must be: every family hangs together
        reached = {family[0]}
        for _ in family:
            reached |= {
                pair for pair in family for one in reached if pair[0] == one[0] or pair[1] == one[1]
            }
        assert reached == set(family)


def test_what_is_not_the_corpus_is_one_clear_line(
    made: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(tmp_path / "out")]
    few = archive(tmp_path / "few.zip", 30)
    untabbed = tmp_path / "deu.txt"
    untabbed.write_text("Hi. Hallo!\n")
    for source, message in (
        (tmp_path / "none.zip", "cannot be read"),
        (few, "too few"),
        (untabbed, "English TAB German"),
    ):
        assert made.main([str(source), *out]) == 1
        err = capsys.readouterr().err
        assert message in err
        assert len(err.splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(not REAL.exists(), reason=f"needs {REAL}")
def test_the_real_corpus_is_as_counted(made: Any) -> None:
    pairs = made.read_pairs(REAL)
    assert len(pairs) == 169_813
    assert pairs[0] == ("Hi.", "Hallo!")
