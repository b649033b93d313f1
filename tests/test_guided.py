"""Guided alignment: links stay with their pairs, the term is its formula, attention learns them."""

import json
import random
import re
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.attention import watch
from heedful.basics.errors import UserError
from heedful.data.batching import Batch, TokenBatches
from heedful.data.links import LinkedPair, token_links
from heedful.data.pair_store import write_pair_store
from heedful.data.positions import Position
from heedful.data.store import Store
from heedful.data.tokeniser import Tokenisers
from heedful.evaluation.aligner import Aligner, Direction
from heedful.evaluation.alignment_error import GoldLinks, alignment_error_rate
from heedful.models.pairs import AlignmentSource, PairModel, Source
from heedful.runs.opening import open_run
from heedful.tasks.pairs.alignment_rules import rule_of
from heedful.tasks.pairs.building import load_translator
from heedful.tasks.pairs.guided import GuidedAlignment
from heedful.training import train
from heedful.training.terms import TeacherForced
from test_inference import TOKENISERS, recurrent, sentences, transformer

WORDS = {"one": "eins", "two": "zwei", "red": "rot", "dog": "Hund", "sees": "sieht", "cat": "Katze"}


def rows_of_words(
    count: int, seed: int, least: int = 2, backwards: bool = True
) -> list[LinkedPair]:
    """Sentences whose words are translated, in the opposite order or not, and their links."""
    chance = random.Random(seed)
    rows = []
    for _ in range(count):
        words = chance.choices(list(WORDS), k=chance.randint(least, 6))
        order = range(len(words))[::-1] if backwards else range(len(words))
        links = tuple(zip(order, range(len(words)), strict=True))
        texts = " ".join(words), " ".join(WORDS[words[place]] for place in order)
        rows.append(LinkedPair(*texts, links))
    return rows


def write(folder: Path, rows: list[LinkedPair]) -> None:
    texts = "".join(f"{row.source}\t{row.target}\n" for row in rows)
    (folder / "train.tsv").write_text(texts, encoding="utf-8")
    links = "".join(" ".join(f"{i}-{j}" for i, j in row.links) + "\n" for row in rows)
    (folder / "links").write_text(links, encoding="utf-8")


def recipe(
    steps: int, model: dict[str, Any], guided: dict[str, Any], **data: Any
) -> dict[str, Any]:
    return {
        "data": {
            "train": "train.tsv",
            "links": "links",
            "max_tokens": 60,
            "filters": {"duplicates": False},
            **data,
        },
        "tokeniser": {"vocabulary_size": 375},
        "model": {"max_length": 64, **model},
        "training": {
            "max_steps": steps,
            "batch_tokens": 600,
            "learning_rate": 6e-3,
            "warmup_steps": 10,
            "log_every": 10,
            "precision": "float32",
            "device": "cpu",
            "guided_alignment": guided,
        },
    }


SMALL = {"layers": 2, "hidden_size": 32, "ffn_size": 32, "heads": 2, "pre_norm": True}
RECURRENT = {"kind": "recurrent", "embedding_size": 24, "hidden_size": 24}


def linked_words(batch: Batch, tokenisers: Tokenisers) -> list[tuple[str, str]]:
    """The words that each link of a batch joins."""
    assert batch.links is not None
    found = []
    for row, target, source in batch.links.tolist():
        words = []
        for tokens, tokeniser, place in (
            (batch.source[row], tokenisers.source, source),
            (batch.target_out[row], tokenisers.target, target),
        ):
            own = tokens.tolist()
            words.append(tokeniser.decode(own).split()[tokeniser.word_indices(own)[place]])
        found.append((words[0], words[1]))
    return found


def test_links_stay_with_their_pairs_whatever_is_left_out(tmp_path: Path) -> None:
    rows = rows_of_words(150, 1)
    rows[5] = LinkedPair("", "eins", ())
    rows[9] = rows[10] = rows[11]
    rows[20] = LinkedPair("dog " * 70, "Hund " * 70, ((69, 0),))
    rows[30] = rows[30]._replace(links=())
    write(tmp_path, rows)
    shares = {"validation_share": 0.2, "test_share": 0.1, "max_tokens": 30}
    data = {**shares, "filters": {"duplicates": True}}
    train(recipe(1, SMALL, {}, **data), tmp_path / "run", data=tmp_path)
    run = open_run(tmp_path / "run")
    assert {"empty", "duplicate", "longer than 30 tokens"} <= run.facts["data"]["left_out"].keys()
    corpus = Store.open(run.train_folder)
    tokenisers = run.tokenisers()
    assert "links" in corpus.codecs
    batches = TokenBatches(corpus, 200)
    ordered = [linked_words(batch, tokenisers) for batch in batches.once()]
    links = [link for batch in ordered for link in batch]
    assert links
    assert all(WORDS[source] == target for source, target in links)
    # Every token of linked words is linked, in training's order too.
    count = run.facts["data"]["train_pairs"]
    epoch, drawn = 0, Counter[tuple[str, str]]()
    for position, batch in batches.batches(Position(1, 0, 0)):
        drawn.update(linked_words(batch, tokenisers))
        epoch = position.epoch
        if epoch:
            break
    assert drawn == Counter(links)
    assert len(corpus) == count


def test_links_are_read_at_random_from_several_shards(tmp_path: Path) -> None:
    lines = sentences(40)
    rows = [
        LinkedPair(line, line, tuple((i, i) for i in range(len(line.split())) if (i + n) % 3))
        for n, line in enumerate(lines)
    ]
    for pairs in (7, 1000):
        folder = tmp_path / str(pairs)
        write_pair_store(
            rows,
            TOKENISERS,
            folder,
            max_tokens=100,
            left_out=Counter(),
            linked=True,
            shard_rows=pairs,
        )
    one, other = (Store.open(tmp_path / name) for name in ("7", "1000"))
    chosen = np.random.default_rng(1).permutation(40)[:25]
    for corpus in (one, other):
        found = corpus.read("links", chosen)
        start = 0
        for place, count in zip(chosen, found.lengths, strict=True):
            tokens = TOKENISERS.source.encode(lines[place])
            words = TOKENISERS.source.word_indices(tokens)
            expected = token_links(rows[place].links, words, words)
            assert [tuple(link) for link in found.values[start : start + count]] == expected
            start += count
        nothing = corpus.read("links", np.empty(0, np.int64))
        assert len(nothing.values) == len(nothing.lengths) == 0
    (tmp_path / "7" / "00001.links.values").write_bytes(b"")
    with pytest.raises(UserError, match="damaged"):
        Store.open(tmp_path / "7")


def naive(weights: list[list[list[float]]], links: list[list[int]], shift: int) -> float:
    """The formula, link by link: ``weights[row][target position][source position]``."""
    total = 0.0
    for row, of_row in enumerate(weights):
        for target in range(len(of_row) - 1):
            linked = [s for r, t, s in links if (r, t) == (row, target)]
            for source in linked:
                total -= float(np.log(of_row[target + shift][source])) / len(linked)
    return total


def linked_batch(count: int, seed: int) -> Batch:
    folder_rows = [
        LinkedPair(line, line, tuple({(i, j) for i in range(2) for j in range(len(line.split()))}))
        for line in (line for line in sentences(count, seed) if len(line.split()) > 1)
    ]
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "corpus"
        write_pair_store(
            folder_rows, TOKENISERS, path, max_tokens=60, left_out=Counter(), linked=True
        )
        return next(iter(islice(TokenBatches(Store.open(path), 300).once(), 1)))


@pytest.mark.parametrize("name", ["transformer", "bahdanau", "luong-general"])
def test_the_term_is_its_formula(name: str) -> None:
    model: PairModel = transformer() if name == "transformer" else recurrent(name)
    model.eval()
    usual = model.alignment
    assert usual is not None
    batch = linked_batch(12, 3)
    choices = [(None, 0), (None, 1)] + [((1,), 1)] * (name == "transformer")
    for heads, shift in choices:
        where = AlignmentSource(usual.module, heads, shift)
        term = GuidedAlignment(where, weight=0.5)
        with watch(model, term.modules, keep_gradients=True) as seen:
            model.states(Source(batch.source, batch.source_lengths), batch.target_in)
        loss = term.loss(
            TeacherForced(batch.target_out, seen, torch.zeros(batch.target_out.shape), batch.links)
        )
        weights = torch.cat(seen[where.module], dim=2).detach()
        chosen = weights if heads is None else weights[:, list(heads)]
        assert batch.links is not None
        expected = naive(chosen.mean(1).tolist(), batch.links.tolist(), shift)
        assert loss.parts["guided_alignment"].item() == pytest.approx(expected, rel=1e-4)
        assert loss.total.item() == pytest.approx(0.5 * expected, rel=1e-4)
        model.zero_grad()
        loss.total.backward()
        moved = [p for p in model.parameters() if p.grad is not None and bool(p.grad.any())]
        assert moved
    with pytest.raises(UserError, match="none with the index 9"):
        GuidedAlignment(AlignmentSource(usual.module, (9,), 0), 1.0).loss(
            TeacherForced(batch.target_out, seen, torch.zeros(1), batch.links)
        )
    unlinked = Batch(**{**vars(batch), "links": None})
    with pytest.raises(UserError, match=r"set data\.links"):
        term.loss(TeacherForced(unlinked.target_out, seen, torch.zeros(1), unlinked.links))


words = st.lists(st.integers(-1, 3), max_size=6)


@settings(max_examples=50, deadline=None)
@given(words, words, st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), unique=True))
def test_tokens_are_linked_exactly_where_their_words_are(
    source: list[int], target: list[int], links: list[tuple[int, int]]
) -> None:
    found = token_links(links, source, target)
    assert len(set(found)) == len(found)
    every = {(s, t) for s in range(len(source)) for t in range(len(target))}
    assert set(found) == {(s, t) for s, t in every if (source[s], target[t]) in links}


@pytest.mark.parametrize(
    ("model", "guided"),
    [
        (SMALL, {"weight": 1.0, "head": 2, "shift": 1, "module": "decoder.1.cross_attention"}),
        (SMALL, {"weight": 20.0}),
        (RECURRENT, {"weight": 20.0}),
    ],
    ids=["one head", "all heads", "recurrent"],
)
def test_attention_learns_the_links(
    tmp_path: Path, model: dict[str, Any], guided: dict[str, Any]
) -> None:
    write(tmp_path, rows_of_words(300, 1, backwards=False))
    train(recipe(60, model, guided), tmp_path / "run", data=tmp_path)
    run = open_run(tmp_path / "run")
    records = [json.loads(line) for line in run.metrics_file.read_text().splitlines()]
    of_term = [record["guided_alignment"] for record in records if record["kind"] == "train"]
    assert of_term[-1] < 0.75 * of_term[0]
    translator = load_translator([run.path], device="cpu")
    known = rule_of(run, translator.models[0])
    assert known is not None
    assert known.origin == "guided by links in training"
    if "head" in guided:
        where = AlignmentSource("decoder.1.cross_attention", (1,), 1)
        assert translator.rules[0] is not None
        assert translator.rules[0].where == where
    rows = rows_of_words(40, 2, backwards=False)
    found = Aligner([Direction(translator)]).align(rows)
    gold = [GoldLinks(frozenset(row.links), frozenset(row.links)) for row in rows]
    assert alignment_error_rate(gold, [one.links for one in found]).aer < 0.45


def test_a_reversed_corpus_takes_its_links_along(tmp_path: Path) -> None:
    write(tmp_path, rows_of_words(60, 1))
    train(recipe(1, SMALL, {}, reversed=True), tmp_path / "run", data=tmp_path)
    run = open_run(tmp_path / "run")
    batches = TokenBatches(Store.open(run.train_folder), 200)
    found = [link for batch in batches.once() for link in linked_words(batch, run.tokenisers())]
    assert all(WORDS[target] == source for source, target in found)


def refused(tmp_path: Path, links: str, **more: Any) -> str:
    texts = "one red dog\teins Hund\ntwo\tzwei Katze Hund\n" * 3
    (tmp_path / "train.tsv").write_text(texts, encoding="utf-8")
    (tmp_path / "links").write_text(links, encoding="utf-8")
    with pytest.raises(UserError) as caught:
        train(recipe(1, SMALL, {}, **more), tmp_path / "run", data=tmp_path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("links", "says"),
    [
        ("1-1 3-2\n1-3\n" * 3, "all links are in range counted from 1: subtract 1"),
        ("0-0 1-2\n0-0 2-0\n" * 3, "all links are in range the other way round"),
        ("1-1 2-3\n1-1 3-1\n" * 3, "the other way round and counted from 1"),
        ("0-0 1-1\n0-0 9-0\n" * 3, "line 2: link '9-0' is out of range for 1 source and 3 target"),
        ("0-0\n", "has 1 lines of links but the corpus has 6 pairs"),
        ("0-0\n" * 8, "has 8 lines of links but the corpus has 6 pairs"),
        ("0-0\n0_0\n", "links, line 2: '0_0' is not a link"),
        ("\n" * 6, "has no links"),
    ],
)
def test_wrong_links_are_one_clear_line(tmp_path: Path, links: str, says: str) -> None:
    assert re.search(re.escape(says), refused(tmp_path, links))


def test_guidance_that_cannot_be_is_refused(tmp_path: Path) -> None:
    write(tmp_path, rows_of_words(60, 1))

    def message(model: dict[str, Any], guided: dict[str, Any], **data: Any) -> str:
        with pytest.raises(UserError) as caught:
            train(recipe(2, model, guided, **data), tmp_path / "run", data=tmp_path)
        return str(caught.value)

    assert "needs data.links" in message(SMALL, {"weight": 1.0}, links=None)
    (tmp_path / "links").rename(tmp_path / "gone")
    assert "does not exist" in message(SMALL, {})
    (tmp_path / "gone").rename(tmp_path / "links")
    train(recipe(1, SMALL, {}), tmp_path / "run", data=tmp_path)
    assert "weight = 0.05, now it is 0.1" in message(SMALL, {"weight": 0.1})
    assert "started with data.links" in message(SMALL, {}, links=None)
    (tmp_path / "links").write_text("0-0\n" * 60)
    assert "data.links is not what" in message(SMALL, {})
    write(tmp_path, rows_of_words(60, 1))
    none = {"kind": "recurrent", "attention": "none", "embedding_size": 8, "hidden_size": 8}
    for model, guided, says in (
        (SMALL, {"module": "decoder.0.self_attention"}, "choose a module with cross-attention"),
        (SMALL, {"head": 7}, "has 2 heads"),
        (none, {}, "no attention to its source"),
    ):
        with pytest.raises(UserError, match=says):
            train(recipe(2, model, guided), tmp_path / says.replace(" ", "-"), data=tmp_path)
