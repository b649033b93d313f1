"""``heedful align`` on real runs: links in order, both directions, rules chosen and kept."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from safetensors.torch import load_file
from typer.testing import CliRunner, Result

from heedful.basics.errors import UserError
from heedful.cli import evaluate, task_commands
from heedful.evaluation.alignment_error import alignment_error_rate, read_gold, read_links
from heedful.evaluation.forced_alignment import align_translations, candidate_weights
from heedful.evaluation.rule_selection import RuleSearch
from heedful.evaluation.symmetrisation import JOINS, symmetrise
from heedful.inference.alignment import AlignmentRule
from heedful.runs.manifest import write_sealed
from heedful.tasks.pairs.building import load_translator
from heedful.training import train

WORDS = {"one": "eins", "two": "zwei", "red": "rot", "dog": "Hund", "sees": "sieht", "cat": "Katze"}


def corpus(pairs: int, seed: int) -> list[tuple[str, str]]:
    chance = random.Random(seed)
    rows = []
    for _ in range(pairs):
        words = chance.choices(list(WORDS), k=chance.randint(2, 6))
        rows.append((" ".join(words), " ".join(WORDS[word] for word in words)))
    return rows


def as_tsv(rows: list[tuple[str, str]]) -> str:
    return "".join(f"{one}\t{two}\n" for one, two in rows)


def tables(steps: int, **data: object) -> dict[str, Any]:
    return {
        "data": {"train": "train.tsv", "max_tokens": 60, "filters": {"duplicates": False}, **data},
        "tokeniser": {"vocabulary_size": 360},
        "model": {
            "layers": 2,
            "hidden_size": 32,
            "ffn_size": 64,
            "heads": 2,
            "max_length": 64,
            "pre_norm": True,
        },
        "training": {
            "max_steps": steps,
            "batch_tokens": 1000,
            "learning_rate": 6e-3,
            "warmup_steps": 20,
            "precision": "float32",
            "device": "cpu",
        },
        "evaluation": {"samples": 0},
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs ``en-de`` and ``de-en``, and a development corpus with gold links."""
    folder = tmp_path_factory.mktemp("align")
    (folder / "train.tsv").write_text(as_tsv(corpus(400, 1)), encoding="utf-8")
    rows = corpus(25, 2)
    rows[3] = ("", "eins")
    rows[4] = ("", "")
    (folder / "dev.tsv").write_text(as_tsv(rows), encoding="utf-8")
    for name, side in (("dev.en", 0), ("dev.de", 1)):
        (folder / name).write_text("".join(row[side] + "\n" for row in rows), encoding="utf-8")
    gold = [" ".join(f"{i + 1}-{i + 1}" for i in range(len(one.split()))) for one, _ in rows]
    (folder / "gold").write_text("\n".join(gold) + "\n", encoding="utf-8")
    forward = tables(60, source="en", target="de")
    train(forward, folder / "en-de", data=folder)
    train(tables(60, source="de", target="en", reversed=True), folder / "de-en", data=folder)
    return folder


def heedful(*arguments: object, stdin: str | None = None) -> Result:
    app = typer.Typer()
    task_commands.register(app)
    evaluate.register(app)
    return CliRunner().invoke(app, ["align", *map(str, arguments)], input=stdin)


def finished(*arguments: object, stdin: str | None = None) -> str:
    result = heedful(*arguments, stdin=stdin)
    assert result.exception is None, result.exception
    return result.stdout


def refused(*arguments: object) -> str:
    result = heedful(*arguments)
    assert isinstance(result.exception, UserError), result.exception
    assert "\n" not in str(result.exception)
    return str(result.exception)


def without_rule(run: Path) -> None:
    (run / "alignment.json").unlink(missing_ok=True)


def rows_of(path: Path) -> list[list[str]]:
    return [line.split("\t") for line in path.read_text(encoding="utf-8").split("\n")[:-1]]


def test_pairs_in_lines_out_however_they_are_given(folder: Path, tmp_path: Path) -> None:
    run, dev = folder / "en-de", folder / "dev.tsv"
    lines = finished(run, dev).split("\n")
    assert len(lines) == 26
    assert lines[3] == lines[4] == lines[25] == ""
    assert finished(run, folder / "dev.en", folder / "dev.de").split("\n") == lines
    assert finished(run, "-", stdin=dev.read_text(encoding="utf-8")).split("\n") == lines
    finished(run, dev, "--output", tmp_path / "links")
    assert (tmp_path / "links").read_text().split("\n") == lines
    found = read_links(lines[:-1])
    for links, (source, target) in zip(found, rows_of(dev), strict=True):
        words = len(source.split()), len(target.split())
        assert all(i < words[0] and j < words[1] for i, j in links)
        assert {j for _, j in links} == (set(range(words[1])) if words[0] else set())
    objects = [json.loads(line) for line in finished(run, dev, "--json").split("\n")[:-1]]
    assert [[one["source"], one["target"]] for one in objects] == rows_of(dev)
    for one, links in zip(objects, found, strict=True):
        assert {(i, j) for i, j, _ in one["links"]} == links
        assert all(0 < weight <= 1 for _, _, weight in one["links"])


def test_directions_are_joined_as_asked(folder: Path) -> None:
    for run in ("en-de", "de-en"):
        without_rule(folder / run)
    forward, reverse = folder / "en-de", folder / "de-en"
    own = read_links(finished(forward, folder / "dev.tsv").split("\n")[:-1])
    # The corpus is said to be English-German, so the run that reads German has its links turned.
    turned = finished(reverse, folder / "dev.tsv", "--from", "en", "--to", "de").split("\n")[:-1]
    other = read_links(turned)
    backwards = finished(reverse, folder / "dev.de", folder / "dev.en").split("\n")[:-1]
    assert read_links(backwards, swap=True) == other
    for join in JOINS:
        lines = finished(forward, reverse, folder / "dev.tsv", "--join", join).split("\n")[:-1]
        both = zip(own, other, strict=True)
        assert read_links(lines) == [symmetrise(*each, join) for each in both], join
    usual = finished(forward, reverse, folder / "dev.tsv").split("\n")[:-1]
    lines = finished(forward, reverse, folder / "dev.tsv", "--join", "grow-diag-final-and")
    assert usual == lines.split("\n")[:-1]
    # The runs may come the other way round where the corpus is said to be so.
    again = finished(reverse, forward, folder / "dev.tsv", "--from", "en", "--to", "de")
    assert again.split("\n")[:-1] == usual


def test_a_reversed_corpus_trains_as_one_that_was_turned(folder: Path) -> None:
    turned = [(two, one) for one, two in corpus(400, 1)]
    (folder / "turned.tsv").write_text(as_tsv(turned), encoding="utf-8")
    settings = tables(6, source="de", target="en", train="turned.tsv")
    train(settings, folder / "turned", data=folder)
    settings = tables(6, source="de", target="en", reversed=True)
    train(settings, folder / "reversed", data=folder)
    one, other = (
        load_file(folder / name / "checkpoints" / "step-00000006" / "model.safetensors")
        for name in ("turned", "reversed")
    )
    assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def test_every_place_is_read_as_the_rule_for_it_reads(folder: Path) -> None:
    translator = load_translator([folder / "en-de"], device="cpu")
    sources, targets = (list(side) for side in zip(*rows_of(folder / "dev.tsv"), strict=True))
    found = candidate_weights(translator, sources, targets)
    assert len(found) == 2 * 2 * 3  # layers, shifts, all heads and each of two
    for where, matrices in found.items():
        translator.rules = (AlignmentRule(where),)
        again = align_translations(translator, sources, targets)
        for one, matrix in zip(again, matrices, strict=True):
            assert torch.allclose(one.soft, matrix, atol=1e-6)


def test_the_best_rule_is_kept_and_read(folder: Path) -> None:
    run, gold = folder / "en-de", folder / "gold"
    without_rule(run)
    shown = finished(run, folder / "dev.tsv", "--choose-rule", gold, "--pairs", 20)
    kept = json.loads((run / "alignment.json").read_text())
    assert kept["chosen_on"] == {
        "gold": str(gold),
        "hash": kept["chosen_on"]["hash"],
        "pairs": 20,
        "checkpoint": "step-00000060",
    }
    figures = kept["alone"]["figures"]
    assert f"{100 * figures['aer']:.1f} %" in shown.split("\n")[2]
    rows = rows_of(folder / "dev.tsv")[:20]
    right = read_gold(gold.read_text().split("\n")[:20])
    lines = finished(run, "-", stdin=as_tsv([(one, two) for one, two in rows])).split("\n")[:-1]
    assert alignment_error_rate(right, read_links(lines)).aer == pytest.approx(figures["aer"])
    # No other rule is better.
    translator = load_translator([run], device="cpu")
    assert translator.rules[0] is not None
    assert translator.rules[0].where.module == kept["alone"]["module"]
    search = RuleSearch(translator, *([row[side] for row in rows] for side in (0, 1)), right)
    lowest = min(alignment_error_rate(right, search.links(each.rule)).aer for each in search.ranked)
    assert figures["aer"] == pytest.approx(lowest)
    assert search.best.rule == translator.rules[0]
    assert figures["aer"] < 0.6


def test_both_rules_and_the_join_are_chosen_together(folder: Path) -> None:
    forward, reverse, gold = folder / "en-de", folder / "de-en", folder / "gold"
    finished(forward, reverse, folder / "dev.tsv", "--choose-rule", gold)
    kept = [json.loads((run / "alignment.json").read_text()) for run in (forward, reverse)]
    assert kept[0]["joined"]["key"] == kept[1]["joined"]["key"]
    joined = kept[0]["joined"]["figures"]
    assert joined == kept[1]["joined"]["figures"]
    assert joined["aer"] <= min(one["alone"]["figures"]["aer"] for one in kept) + 0.05
    result = heedful(forward, reverse, folder / "dev.tsv")
    assert f"joined by {kept[0]['joined']['join']}" in result.stderr
    right = read_gold(gold.read_text().split("\n")[:-1])
    links = read_links(result.stdout.split("\n")[:-1])
    assert alignment_error_rate(right, links).aer == pytest.approx(joined["aer"])
    # Chosen anew for one run alone, the two belong together no more.
    finished(forward, folder / "dev.tsv", "--choose-rule", gold)
    assert "joined by" not in heedful(forward, reverse, folder / "dev.tsv").stderr


def test_the_runs_rule_is_what_evaluation_scores(folder: Path) -> None:
    run, gold = folder / "en-de", folder / "gold"
    without_rule(run)
    finished(run, folder / "dev.tsv", "--choose-rule", gold)
    kept = json.loads((run / "alignment.json").read_text())["alone"]
    app = typer.Typer()
    task_commands.register(app)
    evaluate.register(app)
    arguments = ["evaluate", run, "--data", folder / "dev.tsv", "--gold", gold, "--json"]
    arguments += ["--beam", 1, "--bootstrap", 0]
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exception is None, result.exception
    report = json.loads(result.stdout)
    assert report["alignment"]["aer"] == pytest.approx(kept["figures"]["aer"])
    assert report["alignment_rule"]["module"] == kept["module"]
    assert "alignments from" in result.stderr


def test_a_damaged_rule_is_one_clear_line(folder: Path) -> None:
    run = folder / "en-de"
    good = {"module": "decoder.0.cross_attention", "heads": [1], "shift": 1, "threshold": None}
    on = {"gold": "g", "hash": "0", "pairs": 5, "checkpoint": "x"}
    figures = {"aer": 0.1, "f1": 0.9}
    base = {"format": 1, "chosen_on": on}
    for alone, says in (
        ({}, "damaged"),
        ({**good, "shift": 2, "figures": figures}, "damaged"),
        ({**good, "module": "decoder.7.cross_attention", "figures": figures}, "decoder.7"),
        ({**good, "heads": [5], "figures": figures}, "has 2 heads"),
        ({**good, "figures": None}, "damaged"),
    ):
        write_sealed(run, "alignment.json", {**base, "alone": alone})
        assert says in refused(run, folder / "dev.tsv")
    without_rule(run)


def test_what_does_not_belong_together_is_refused(folder: Path, tmp_path: Path) -> None:
    forward, reverse, dev = folder / "en-de", folder / "de-en", folder / "dev.tsv"
    assert "given twice" in refused(forward, forward, dev)
    assert "de to fr" in refused(forward, dev, "--from", "de", "--to", "fr")
    assert "needs two runs" in refused(forward, dev, "--join", "union")
    assert "not a way to join" in refused(forward, reverse, dev, "--join", "gdfa")
    assert "no corpus" in refused(forward)
    assert "no run at" in refused(tmp_path / "none", dev)
    assert "is a folder" in refused(forward, reverse, folder, dev)
    assert "leave out" in refused(forward, dev, "--choose-rule", folder / "gold", "--json")
    assert "need --choose-rule" in refused(forward, dev, "--pairs", 3)
    (tmp_path / "empty.tsv").write_text("one dog\t\ntwo cat\t\n")
    out = tmp_path / "out"
    assert "target side is empty in all" in refused(
        forward, tmp_path / "empty.tsv", "--output", out
    )
    assert not out.exists()


def test_two_runs_of_one_direction_are_refused(folder: Path) -> None:
    settings = tables(1, source="en", target="de")
    train(settings | {"seed": 2}, folder / "second", data=folder)
    message = refused(folder / "en-de", folder / "second", folder / "dev.tsv")
    assert "must translate de to en" in message
    for name in ("nameless", "nameless-too"):
        train(tables(1) | {"seed": len(name)}, folder / name, data=folder)
    message = refused(folder / "nameless", folder / "nameless-too", folder / "dev.tsv")
    assert "same files in the same order" in message


def test_gold_the_wrong_way_round_or_counted_otherwise_is_said(
    folder: Path, tmp_path: Path
) -> None:
    run = folder / "en-de"
    (tmp_path / "pairs.tsv").write_text("one red dog\teins Hund\ntwo\tzwei Katze Hund\n")
    for links, more, says in (
        ("1-1 2-3\n1-1 3-1\n", [], "all links are in range the other way round"),
        ("0-0 1-2\n0-0 2-0\n", [], "all links are in range the other way round"),
        ("1-1 3-2\n1-3\n", ["--indexing", "0"], "counted from 1: give --indexing 1"),
        ("1-1 2-3\n1-1 3-1\n", ["--indexing", "0"], "the other way round and counted from 1"),
        ("0-0 1-9\n0-0\n", [], "lines of links and texts belong together"),
        ("0-0\n", [], "1 sentences but there are 2"),
    ):
        (tmp_path / "gold").write_text(links)
        gold = ("--choose-rule", tmp_path / "gold", *more)
        assert says in refused(run, tmp_path / "pairs.tsv", *gold)
    (tmp_path / "pairs.tsv").write_text("one\teins\n\tzwei\n")
    (tmp_path / "gold").write_text("0-0\n0-0\n")
    gold = ("--choose-rule", tmp_path / "gold")
    assert "its source is empty" in refused(run, tmp_path / "pairs.tsv", *gold)
