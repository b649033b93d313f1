"""Subword regularisation: its distributions, the same draws after an interruption, no text lost."""

import random
from collections import Counter
from collections.abc import Callable
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
import tokenizers
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

import heedful
from heedful.basics.errors import UserError
from heedful.data.batching import TokenBatches
from heedful.data.columns import Column, tokens
from heedful.data.positions import Position
from heedful.data.store import Store, StoreWriter
from heedful.data.subword_sampling import DRAWS, SubwordSampler, draw_bpe, draw_unigram
from heedful.data.tokeniser import PLACEHOLDERS, Tokeniser, TokeniserSettings
from heedful.runs.opening import open_run
from heedful.runs.recipe import check_recipe

STEMS = ["low", "new", "wid", "slow", "show", "ban", "ris", "wat"]
ENDINGS = ["er", "est", "ing", "s", "ana", "ed", "erest", "ness"]
WORDS = [stem + ending for stem in STEMS for ending in ENDINGS]
TEXTS = [" ".join(random.Random(seed).choices(WORDS, k=6)) for seed in range(90)]
STRENGTH = {"bpe": 0.2, "unigram": 0.1}
SIZE = 385


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def tokeniser(request: pytest.FixtureRequest) -> Tokeniser:
    settings = TokeniserSettings(kind=request.param, vocabulary_size=SIZE)
    return Tokeniser.train(TEXTS, settings, seed=1, where="the test")


@pytest.fixture
def sampler(tokeniser: Tokeniser) -> SubwordSampler:
    return SubwordSampler(tokeniser, STRENGTH[tokeniser.settings.kind])


def column(tokeniser: Tokeniser, texts: list[str]) -> Column:
    return tokens(tokeniser.size).column(tokeniser.encode_batch(texts))


def rows_of(column: Column) -> list[list[int]]:
    return [column.take(np.array([row])).values.tolist() for row in range(len(column.lengths))]


def distance(one: dict[str, float], other: dict[str, float]) -> float:
    """The total variation distance of two distributions."""
    keys = one.keys() | other.keys()
    return sum(abs(one.get(key, 0) - other.get(key, 0)) for key in keys) / 2


def drawn(draw: Callable[[random.Random], list[str]], count: int) -> dict[str, float]:
    found = Counter(" ".join(draw(random.Random(number))) for number in range(count))
    return {key: times / count for key, times in found.items()}


def paper(pieces: list[str], scores: dict[str, float], dropout: float) -> dict[str, float]:
    """Algorithm 1 of Provilkov et al. (2020), with all probabilities instead of draws."""
    merges = [
        (-scores[one + other], place)
        for place, (one, other) in enumerate(pairwise(pieces))
        if one + other in scores
    ]
    found: Counter[str] = Counter({" ".join(pieces): dropout ** len(merges)})
    for rank, (_, place) in enumerate(sorted(merges)):
        joined = [*pieces[:place], pieces[place] + pieces[place + 1], *pieces[place + 2 :]]
        for key, probability in paper(joined, scores, dropout).items():
            found[key] += (1 - dropout) * dropout**rank * probability
    return found


MERGES = [("l", "o"), ("e", "s"), ("lo", "w"), ("es", "t"), ("w", "e"), ("low", "est"), ("o", "w")]
SCORES = {one + other: -float(rank) for rank, (one, other) in enumerate(MERGES)}


@pytest.mark.parametrize("dropout", [0.0, 0.1, 0.4, 0.9])
@pytest.mark.parametrize("word", ["lowest", "lowlow", "estest", "lowestlow"])
def test_bpe_dropout_has_the_distribution_of_the_paper(word: str, dropout: float) -> None:
    found = drawn(lambda source: draw_bpe(word, SCORES, dropout, source), 6000)
    assert distance(found, paper(list(word), SCORES, dropout)) < 0.04


def test_bpe_dropout_has_the_distribution_of_tokenizers() -> None:
    """The library gives a merge another chance where it drops a merge that another has replaced.

    In a word whose merges do not overlap there are none of these.
    """
    merges = [tuple(pair.split("+")) for pair in ("a+b", "c+d", "e+f", "ab+cd", "abcd+ef")]
    scores = {one + other: -float(rank) for rank, (one, other) in enumerate(merges)}
    symbols = sorted({*"abcdef", *scores})
    vocabulary = {symbol: number for number, symbol in enumerate(symbols)}
    model = tokenizers.models.BPE(vocabulary, merges, dropout=0.3)
    count = 4000
    theirs = Counter(
        " ".join(token.value for token in model.tokenize("abcdef")) for _ in range(count)
    )
    ours = drawn(lambda source: draw_bpe("abcdef", scores, 0.3, source), count)
    assert len(ours) > 8
    assert distance(ours, {key: times / count for key, times in theirs.items()}) < 0.05


def test_unigram_sampling_has_the_distribution_of_sentencepiece() -> None:
    trained = TokeniserSettings(kind="unigram", vocabulary_size=SIZE)
    tokeniser = Tokeniser.train(TEXTS, trained, seed=1, where="the test")
    scores = {piece: score for piece, (_, score) in tokeniser.scores().items()}
    processor = sentencepiece.SentencePieceProcessor(model_proto=tokeniser.model)
    count = 3000
    theirs = Counter(
        " ".join(
            processor.encode(
                " lowerest", out_type=str, enable_sampling=True, alpha=0.1, nbest_size=-1
            )
        )
        for _ in range(count)
    )
    ours = drawn(lambda source: draw_unigram("▁lowerest", scores, 0.1, source, 16), count)
    assert len(ours) > 4
    assert distance(ours, {key: times / count for key, times in theirs.items()}) < 0.06


@settings(max_examples=60, deadline=None)
@given(
    texts=st.lists(
        st.lists(
            st.sampled_from([*WORDS, " ", "  ", "\t", "☃", "日本語", PLACEHOLDERS[3], "⟦32⟧x⟦33⟧"])
        ).map(" ".join),
        min_size=1,
        max_size=5,
    ),
    epoch=st.integers(0, 9),
)
def test_no_text_is_lost(tokeniser: Tokeniser, texts: list[str], epoch: int) -> None:
    sampler = SubwordSampler(tokeniser, STRENGTH[tokeniser.settings.kind])
    given = column(tokeniser, texts)
    found = sampler.sample(given, np.arange(len(texts)), f"source 1 {epoch}", 1000)
    assert [tokeniser.decode(row) for row in rows_of(found)] == texts
    for one, other in zip(rows_of(found), rows_of(given), strict=True):
        placeholders = range(4, 4 + len(PLACEHOLDERS))
        kept = [[token for token in row if token in placeholders] for row in (one, other)]
        assert kept[0] == kept[1]


def test_without_randomness_the_segmentation_is_that_of_inference(tokeniser: Tokeniser) -> None:
    given = column(tokeniser, TEXTS)
    least = 0.0 if tokeniser.settings.kind == "bpe" else 200.0
    sampler = SubwordSampler(tokeniser, least)
    found = sampler.sample(given, np.arange(len(TEXTS)), "source 1 1", 1000)
    assert np.array_equal(found.values, given.values)
    assert np.array_equal(found.lengths, given.lengths)


def test_draws_depend_on_seed_epoch_row_and_place_only(
    tokeniser: Tokeniser, sampler: SubwordSampler
) -> None:
    given = column(tokeniser, TEXTS)
    rows = np.arange(len(TEXTS))
    whole = rows_of(sampler.sample(given, rows, "source 1 1", 1000))
    some = np.array([70, 3, 41])
    fresh = SubwordSampler(tokeniser, STRENGTH[tokeniser.settings.kind])
    assert rows_of(fresh.sample(given.take(some), some, "source 1 1", 1000)) == [
        whole[row] for row in some
    ]
    for other in ("source 2 1", "source 1 2", "target 1 1"):
        assert rows_of(sampler.sample(given, rows, other, 1000)) != whole
    one = column(tokeniser, [TEXTS[0]] * 90)  # equal texts, in other rows
    assert len({tuple(row) for row in rows_of(sampler.sample(one, rows, "1 1", 1000))}) > 10
    assert sum(map(len, whole)) > len(given.values)


def test_a_row_never_becomes_longer_than_the_model_reads(
    tokeniser: Tokeniser, sampler: SubwordSampler
) -> None:
    given = column(tokeniser, TEXTS)
    longest = int(np.median(given.lengths)) + 1
    found = sampler.sample(given, np.arange(len(TEXTS)), "source 1 1", longest)
    assert (found.lengths <= np.maximum(given.lengths, longest)).all()
    assert (found.lengths > given.lengths).any()
    assert [tokeniser.decode(row) for row in rows_of(found)] == TEXTS


def test_a_word_has_many_draws(sampler: SubwordSampler, tokeniser: Tokeniser) -> None:
    given = column(tokeniser, ["lowerest"] * 500)
    found = rows_of(sampler.sample(given, np.arange(500), "source 1 1", 99))
    assert 3 < len({tuple(row) for row in found}) <= DRAWS


def test_batches_after_an_interruption_are_the_same(
    tokeniser: Tokeniser, sampler: SubwordSampler, tmp_path: Path
) -> None:
    sides = {"source": column(tokeniser, TEXTS), "target": column(tokeniser, TEXTS[::-1])}
    with StoreWriter(tmp_path, dict.fromkeys(sides, tokens(tokeniser.size))) as writer:
        writer.add(sides)
        writer.finish({})

    def batches(sampler: SubwordSampler) -> TokenBatches:
        return TokenBatches(
            Store.open(tmp_path),
            100,
            resample=lambda columns, rows, key: {
                side: sampler.sample(own, rows, f"{side} {key}", 99)
                for side, own in columns.items()
            },
        )

    whole = list(islice(batches(sampler).batches(Position(1, 0)), 40))
    middle = whole[24][0]
    assert middle.epoch > 0
    fresh = SubwordSampler(tokeniser, STRENGTH[tokeniser.settings.kind])
    again = islice(batches(fresh).batches(middle), 15)
    for (position, one), (other_position, other) in zip(whole[25:], again, strict=True):
        assert position == other_position
        assert torch.equal(one.source, other.source)
        assert torch.equal(one.target_out, other.target_out)


def recipe(folder: Path, kind: str, **training: object) -> dict[str, object]:
    (folder / "train.tsv").write_text("".join(f"{text}\t{text}\n" for text in TEXTS))
    return {
        "data": {"train": str(folder / "train.tsv"), "filters": {"duplicates": False}},
        "tokeniser": {"kind": kind, "vocabulary_size": SIZE},
        "model": {"layers": 1, "hidden_size": 16, "ffn_size": 16, "heads": 2},
        "training": {"batch_tokens": 200, "precision": "float32", "threads": 1, **training},
    }


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(open_run(run).checkpoints()[-1].path / "model.safetensors")


@pytest.mark.parametrize("setting", ["subword_dropout", "subword_alpha"])
def test_an_interrupted_run_ends_with_the_same_weights(tmp_path: Path, setting: str) -> None:
    kind = "bpe" if setting == "subword_dropout" else "unigram"
    for out, steps in (("whole", [5]), ("parts", [3, 5]), ("plain", [5])):
        sampled = {} if out == "plain" else {setting: 0.2}
        for last in steps:
            heedful.train(recipe(tmp_path, kind, max_steps=last, **sampled), tmp_path / out)
    whole, parts, plain = (weights(tmp_path / out) for out in ("whole", "parts", "plain"))
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    assert not all(torch.equal(whole[name], plain[name]) for name in whole)


@pytest.mark.parametrize(
    ("kind", "training", "message"),
    [
        ("unigram", {"subword_dropout": 0.1}, "subword_dropout needs tokeniser.kind = 'bpe'"),
        ("bpe", {"subword_alpha": 0.1}, "subword_alpha needs tokeniser.kind = 'unigram'"),
        ("bpe", {"subword_dropout": 1.5}, "subword_dropout"),
    ],
)
def test_settings_that_do_not_fit_are_refused(
    tmp_path: Path, kind: str, training: dict[str, object], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        check_recipe(recipe(tmp_path, kind, **training), "recipe.toml")


def test_links_and_sampling_exclude_each_other(tmp_path: Path) -> None:
    tables = recipe(tmp_path, "bpe", subword_dropout=0.1)
    tables["data"] = {"train": "a.tsv", "links": "a.links"}
    with pytest.raises(UserError, match=r"data\.links"):
        check_recipe(tables, "recipe.toml")
