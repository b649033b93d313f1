"""Training pairs whose source is nearly a held-out one are counted, and left out if asked for."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.data.overlap import NearDuplicates, near_key
from heedful.data.store import Store
from heedful.runs.recipe import check_recipe
from heedful.tasks.pairs.default_recipe import choose_recipe
from heedful.tasks.pairs.preparation import prepare_run
from heedful.tasks.pairs.run import PairRun

WORDS = ["red", "green", "dog", "cat", "house", "tree", "blue", "sky", "old", "new"]
SOURCES = [f"{a} {b} {c}" for a in WORDS for b in WORDS for c in WORDS[:3]]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Save the file", " save  the FILE… "),
        ("&Save the file", "Save the file:"),
        ("%d of 12 pages", "%d of 1,024 pages"),
        ("Straße", "STRASSE"),
        ("ｆｕｌｌ width", "full width"),
        ("कि तुम", "कि तुम!"),
    ],
)
def test_near_duplicates_have_one_key(one: str, other: str) -> None:
    assert near_key(one) == near_key(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Save the file", "Save the files"),
        ("page", "page 2"),
        ("कि", "का"),
        ("12:30", "12:31"),
        ("…", "!"),
        ("naïve", "naive"),
    ],
)
def test_other_texts_have_other_keys(one: str, other: str) -> None:
    assert near_key(one) != near_key(other)


@given(st.lists(st.text(max_size=5), max_size=8), st.text(max_size=5))
def test_what_is_found_is_the_same_or_near(held_out: list[str], source: str) -> None:
    found = NearDuplicates(held_out).find(source)
    texts = {text.strip() for text in held_out} - {""}
    assert (found == "same") is (source.strip() in texts)
    if found == "near":
        assert any(near_key(text) == near_key(source) for text in texts)


def run_of(folder: Path, *, files: bool, **data: object) -> PairRun:
    """A run over ``SOURCES``, a quarter of which differ from another in case and an ending only."""
    folder.mkdir(exist_ok=True)
    varied = [source.upper() + "!" for source in SOURCES[::3]]
    lines = [f"{source}\t{source}\n" for source in [*SOURCES, *varied, "12", "page 7"]]
    (folder / "train.tsv").write_text("".join(lines))
    (folder / "held.tsv").write_text("Red red red.\tx\ngreen dog red\tx\nPage 12:\tx\nnever\tx\n")
    held = {"validation": str(folder / "held.tsv")}
    shares = {"validation_share": 0.2, "test_share": 0.1}
    tables = {
        "data": {"train": str(folder / "train.tsv"), **(held if files else shares), **data},
        "tokeniser": {"vocabulary_size": 370},
        "model": {"layers": 1, "hidden_size": 16, "ffn_size": 16, "heads": 2},
    }
    return prepare_run(folder / "run", check_recipe(tables, "recipe"), None)


def training_sources(run: PairRun) -> list[str]:
    tokenisers = run.tokenisers()
    return [tokenisers.source.decode(row["source"]) for row in Store.open(run.train_folder)]


def test_near_duplicates_of_files_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_of(tmp_path / "a", files=True, keep_near_duplicates=False)
    reason = "near-duplicate of a validation or test source"
    gone = {"red red red", "RED RED RED!", "green dog red", "GREEN DOG RED!", "page 7"}
    left_out = gone & {*SOURCES, *(source.upper() + "!" for source in SOURCES[::3]), "page 7"}
    assert run.facts["data"]["left_out"] == {reason: len(left_out)}
    assert not gone & set(training_sources(run))
    assert len(training_sources(run)) == run.facts["data"]["train_pairs"]
    assert run.facts["data"]["near_duplicates_in_training"] == 0
    assert f"left out of training: {len(left_out)} {reason}" in capsys.readouterr().err


def test_they_are_kept_and_counted_by_default(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_of(tmp_path / "a", files=True)
    assert {"red red red", "page 7"} <= set(training_sources(run))
    near = run.facts["data"]["near_duplicates_in_training"]
    assert near >= 3  # without "green dog red", which is the same
    said = capsys.readouterr().err
    assert f"{near} training pairs are near-duplicates" in said
    assert "1 of 4 validation sources are also in the training corpus" in said


def test_shares_keep_near_duplicates_together(tmp_path: Path) -> None:
    run = run_of(tmp_path / "a", files=False, keep_near_duplicates=False)
    parts = [
        {near_key(source) for source in sources}
        for sources in (
            training_sources(run),
            [pair.source for pair in run.pairs("validation")],
            [pair.source for pair in run.pairs("test")],
        )
    ]
    assert all(parts)
    train, validation, test = parts
    assert not train & (validation | test)
    assert not validation & test
    assert run.facts["data"]["left_out"] == {}
    memory = run.memory()
    assert memory is not None
    assert not {near_key(entry.source) for entry in memory} & (validation | test)

    kept = run_of(tmp_path / "b", files=False)
    assert kept.facts["data"]["near_duplicates_in_training"] > 0


def test_without_a_recipe_they_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("".join(f"{source}\t{source}\n" for source in SOURCES))
    tables = choose_recipe([str(tmp_path / "a.tsv")], source="en", target="de")
    assert tables["data"]["keep_near_duplicates"] is False
