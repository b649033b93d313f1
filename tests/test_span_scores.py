"""Scores of spans against seqeval."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from seqeval.metrics import f1_score, precision_score, recall_score
from seqeval.scheme import IOB2, IOBES
from typer.testing import CliRunner

import heedful
from heedful.basics.errors import UserError
from heedful.cli import main
from heedful.data.tag_schemes import Scheme
from heedful.evaluation.span_scores import score_spans
from heedful.evaluation.statistics import measure
from text_help import LOOP, TAGGED, encoder, write_data


def corpus(letters: str) -> tuple[list[list[str]], list[list[str]]]:
    draw = random.Random(7)
    tags = ["O", *(f"{letter}-{kind}" for letter in letters for kind in "XYZ")]
    gold = [draw.choices(tags, k=draw.randint(1, 12)) for _ in range(300)]
    given = [[one if draw.random() < 0.7 else draw.choice(tags) for one in own] for own in gold]
    return gold, given


@pytest.mark.parametrize(
    ("scheme", "peer", "letters"),
    [(None, None, "BI"), ("IOB2", IOB2, "BI"), ("IOBES", IOBES, "BIES")],
)
def test_scores_are_those_of_seqeval(scheme: Scheme | None, peer: Any, letters: str) -> None:
    gold, given = corpus(letters)
    how: dict[str, Any] = {"mode": "strict", "scheme": peer} if peer else {}
    report = score_spans(gold, given, scheme)
    every, types = report.all_types, report.by_type.values()
    for score, name in ((precision_score, "precision"), (recall_score, "recall"), (f1_score, "f1")):
        assert getattr(every, name) == pytest.approx(score(gold, given, average="micro", **how))
        expected = score(gold, given, average=None, **how)
        assert np.allclose(expected, [getattr(own, name) for own in types])
    assert report.macro_f1 == pytest.approx(f1_score(gold, given, average="macro", **how))
    assert 0.1 < every.f1 < 0.9


def test_the_f1_of_a_corpus_is_that_of_its_summed_sentences() -> None:
    gold, given = corpus("BI")
    report = score_spans(gold, given)
    found = measure("span_f1", {"kind": "f1", "values": report.sentences}, [], [])
    assert found.value_of_sum(found.values.sum(0)) == pytest.approx(report.all_types.f1)
    half = score_spans(gold[:150], given[:150])
    assert found.value_of_sum(found.values[:150].sum(0)) == pytest.approx(half.all_types.f1)


def test_no_spans_give_zero() -> None:
    report = score_spans([["O", "O"]], [["O", "O"]])
    assert set(report.figures().values()) == {0.0}


def words(folder: Path, sentences: list[tuple[str, str]]) -> None:
    blocks = [
        "\n".join(map("\t".join, zip(text.split(), tags.split(), strict=True)))
        for text, tags in sentences
    ]
    (folder / "names.tsv").write_text("\n\n".join(blocks) + "\n", encoding="utf-8")


def test_taggers_of_spans_are_chosen_and_evaluated_by_them(tmp_path: Path) -> None:
    words(tmp_path, [("ann sees rome", "I-PER O I-LOC"), ("ann new york", "_ I-LOC I-LOC")] * 4)
    data = {"train": "names.tsv", "validation": "names.tsv", "test": "names.tsv", "untagged": "_"}
    loop = {**LOOP, "max_steps": 40, "validate_every": 20, "choose_by": "span_f1"}
    recipe = encoder("tagging", {**data, "scheme": "IOB1"}, training=loop)
    heedful.train(recipe, tmp_path / "run", data=tmp_path)
    if not main.app.registered_commands:
        main._register()
    done = CliRunner().invoke(main.app, ["evaluate", str(tmp_path / "run"), "--json"])
    assert done.exit_code == 0, done.output
    scores = json.loads(done.stdout)["scores"]["tagging"]
    tagger = heedful.load(tmp_path / "run", device="cpu")
    given = tagger.tag([["ann", "sees", "rome"], ["ann", "new", "york"]])
    # A word without gold tag is outside of all spans.
    gold = [["I-PER", "O", "I-LOC"], ["O", "I-LOC", "I-LOC"]]
    given[1][0] = "O"
    assert scores["spans"]["span_f1"] == pytest.approx(f1_score(gold, given))
    assert scores["strict_spans"]["scheme"] == "IOB1"
    assert set(scores["spans"]["types"]) == {"PER", "LOC"}
    assert scores["spans"]["span_f1"] > 0.9


def test_choosing_by_spans_needs_tags_of_spans(tmp_path: Path) -> None:
    write_data(tmp_path)
    recipe = encoder("tagging", TAGGED, training={**LOOP, "choose_by": "span_f1"})
    with pytest.raises(UserError, match="needs tags of spans, such as B-PER"):
        heedful.train(recipe, tmp_path / "run", data=tmp_path)
    assert not (tmp_path / "run").exists()
