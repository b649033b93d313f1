"""Word vectors for models of pairs: what they begin with, what stays, and what is refused."""

import random
from pathlib import Path

import pytest
import torch

from heedful.basics.errors import UserError
from heedful.runs.checkpoints import load_model_tensors
from heedful.tasks.pairs.building import build_run_model, load_run_start
from heedful.tasks.pairs.run import PairRun, open_pair_run
from heedful.training.train import train

WORDS = {"one": "eins", "two": "zwei", "red": "rot", "dog": "Hund", "sees": "sieht", "cat": "Katze"}
WIDTH = 8


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = random.Random(1)
    rows = [rng.choices(list(WORDS), k=rng.randint(2, 5)) for _ in range(60)]
    lines = [" ".join(row) + "\t" + " ".join(map(WORDS.__getitem__, row)) for row in rows]
    (tmp_path / "pairs.tsv").write_text("\n".join(lines) + "\n")
    for name, words in (("en", list(WORDS)), ("de", [*WORDS.values(), "one"])):
        numbers = [[round(rng.uniform(-1, 1), 3) for _ in range(WIDTH)] for _ in words]
        text = [" ".join([w, *map(str, n)]) for w, n in zip(words, numbers, strict=True)]
        (tmp_path / f"{name}.txt").write_text("\n".join(text) + "\n")
    return tmp_path


def recipe(model: str, joint: bool = False, **vectors: object) -> dict[str, object]:
    width = {
        "recurrent": {"embedding_size": WIDTH, "hidden_size": 8},
        "aligner": {"hidden_size": WIDTH},
    }
    own = width.get(model, {"hidden_size": WIDTH, "heads": 2, "layers": 1, "ffn_size": 8})
    tables: dict[str, object] = {
        "data": {"train": "pairs.tsv", "filters": {"duplicates": False}},
        "tokeniser": {"vocabulary_size": 360 if not joint else 390, "joint": joint},
        "model": {"kind": model, **own}
        | ({"tied_embeddings": "none"} if model == "recurrent" else {}),
        "vectors": vectors,
        "training": {"max_steps": 3, "batch_tokens": 99, "warmup_steps": 1, "threads": 1},
    }
    if model == "transformer" and not joint:
        tables["model"] = {**own, "kind": model, "tied_embeddings": "output"}
    if model == "aligner":
        tables |= {"task": "alignment", "training": {**tables["training"], "choose_by": "loss"}}  # type: ignore[dict-item]
    return tables


def tables_of(run: PairRun) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """The tables of token vectors before the first step and after the last."""
    first, last = build_run_model(run), build_run_model(run)
    load_run_start(run, first)
    point = run.chosen()
    load_model_tensors(last, point.weights(), point.path)
    sides = [side for side in ("source", "target") if hasattr(first, f"{side}_embedding")]
    return tuple(  # type: ignore[return-value]
        {side: getattr(model, f"{side}_embedding").weight.detach() for side in sides}
        for model in (first, last)
    )


def given(path: Path) -> dict[str, torch.Tensor]:
    rows = [line.split() for line in path.read_text().splitlines()]
    return {row[0]: torch.tensor([float(number) for number in row[1:]]) for row in rows}


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("model", ["transformer", "recurrent"])
def test_each_side_begins_with_its_vectors(folder: Path, model: str, frozen: bool) -> None:
    tables = recipe(model, source="en.txt", target="de.txt", frozen=frozen)
    assert train(tables, folder / "run", data=folder)
    run = open_pair_run(folder / "run")
    first, last = tables_of(run)
    tokenisers = run.tokenisers()
    for side, name, tokeniser in (
        ("source", "en", tokenisers.source),
        ("target", "de", tokenisers.target),
    ):
        whole = 0
        for word, vector in given(folder / f"{name}.txt").items():
            tokens = tokeniser.encode(word)
            if len(tokens) > 1:
                continue
            whole += 1
            assert torch.equal(first[side][tokens[0]], vector), word
            assert torch.equal(last[side][tokens[0]], vector) == frozen, word
        assert whole >= 3
        assert run.facts["vectors"][side] == {"found": pytest.approx(0.5, abs=0.5), "width": WIDTH}
    # A run that goes on knows its files by their content.
    assert train(tables, folder / "run", data=folder)
    (folder / "de.txt").write_text((folder / "en.txt").read_text())
    with pytest.raises(UserError, match=r"vectors\.target is not what .* was started with"):
        train(tables, folder / "run", data=folder)


def test_one_table_takes_both_and_the_targets_words_count(folder: Path) -> None:
    tables = recipe("transformer", joint=True, source="en.txt", target="de.txt")
    assert train(tables, folder / "run", data=folder)
    run = open_pair_run(folder / "run")
    first, _ = tables_of(run)
    (token,) = run.tokenisers().target.encode("one")
    assert torch.equal(first["source"][token], given(folder / "de.txt")["one"])
    (token,) = run.tokenisers().target.encode("dog")
    assert torch.equal(first["source"][token], given(folder / "en.txt")["dog"])


def test_an_aligner_begins_with_the_sources(folder: Path) -> None:
    assert train(recipe("aligner", source="en.txt"), folder / "run", data=folder)
    run = open_pair_run(folder / "run")
    first, _ = tables_of(run)
    (token,) = run.tokenisers().source.encode("dog")
    assert torch.equal(first["source"][token], given(folder / "en.txt")["dog"])
    with pytest.raises(UserError, match="the aligner embeds the source only"):
        train(recipe("aligner", target="de.txt"), folder / "other", data=folder)


def test_what_does_not_fit_is_one_line(folder: Path) -> None:
    with pytest.raises(UserError, match=r"names no file: give vectors\.source"):
        train(recipe("recurrent", frozen=True), folder / "none", data=folder)
    wide = recipe("recurrent", source="en.txt")
    wide["model"] = {"kind": "recurrent", "embedding_size": 9, "hidden_size": 8}
    with pytest.raises(UserError, match=r"8 wide, .* 9; set model\.embedding_size = 8"):
        train(wide, folder / "wide", data=folder)
    assert train(recipe("recurrent", source="en.txt"), folder / "run", data=folder)
    with pytest.raises(UserError, match=r"\[vectors\] and --start-from .* both give"):
        train(
            recipe("recurrent", source="en.txt"),
            folder / "on",
            data=folder,
            start_from=folder / "run",
        )
