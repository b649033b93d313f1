"""Corpus scores, intervals and significance against sacrebleu's public interface."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.significance import PairedTest

from heedful.basics.errors import UserError
from heedful.evaluation.metrics import Score, bleu, perplexity, score_corpus
from heedful.evaluation.significance import compare_systems
from heedful.evaluation.statistics import collect

WORDS = ["the", "a", "man", "dog", "house", "red", "old", "in", ",", "quickly", "Ärger", "犬", "."]


def made_up(count: int, seed: int) -> list[str]:
    chance = random.Random(seed)
    return [" ".join(chance.choices(WORDS, k=chance.randint(3, 14))) for _ in range(count)]


def spoilt(texts: list[str], share: float, seed: int) -> list[str]:
    chance = random.Random(seed)
    return [
        " ".join(word if chance.random() > share else chance.choice(WORDS) for word in text.split())
        for text in texts
    ]


REFERENCES = made_up(150, seed=1)
GOOD = spoilt(REFERENCES, 0.15, seed=2)
WORSE = spoilt(REFERENCES, 0.35, seed=3)


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("tokenise", ["13a", "none", "intl", "char"])
def test_scores_signatures_and_intervals_are_sacrebleus(tokenise: str, lowercase: bool) -> None:
    ours = score_corpus(GOOD, REFERENCES, tokenise=tokenise, lowercase=lowercase, bootstrap=200)
    theirs = [BLEU(tokenize=tokenise, lowercase=lowercase), CHRF(lowercase=lowercase), TER()]
    for score, metric in zip(ours, theirs, strict=True):
        expected = metric.corpus_score(GOOD, [REFERENCES], n_bootstrap=200)
        assert score.value == pytest.approx(expected.score, abs=1e-9)
        assert score.name == expected.name
        assert score.signature == str(metric.get_signature())
        assert score.low is not None
        assert score.high is not None
        assert (score.high - score.low) / 2 == pytest.approx(expected._ci, abs=1e-3)
        assert score.low < score.value < score.high


def test_without_resampling_there_is_no_interval_and_no_mention_of_it() -> None:
    [score] = score_corpus(GOOD, REFERENCES, metrics=["bleu"], bootstrap=0)
    assert (score.low, score.high) == (None, None)
    assert "bs:" not in score.signature
    assert score.detail["hypothesis_length"] == score.detail["reference_length"]


def test_quick_bleu_is_the_same_number() -> None:
    [score] = score_corpus(GOOD, REFERENCES, metrics=["bleu"], tokenise="none", bootstrap=0)
    assert bleu(GOOD, REFERENCES, tokenise="none") == score.value


@settings(max_examples=30, deadline=None)
@given(st.lists(st.text(min_size=1, max_size=30), min_size=1, max_size=6))
def test_any_text_scores_and_equals_itself(texts: list[str]) -> None:
    for score in score_corpus(texts, texts, bootstrap=0):
        assert isinstance(score, Score)
        assert 0 <= score.value <= 100 + 1e-9
    assert score_corpus(texts, texts, metrics=["ter"], bootstrap=0)[0].value == 0


def test_sums_over_parts_give_the_score_of_the_part() -> None:
    statistics = collect("bleu", GOOD, REFERENCES)
    rows = list(range(0, 150, 7))
    expected = bleu([GOOD[row] for row in rows], [REFERENCES[row] for row in rows])
    assert statistics.score(rows).score == pytest.approx(expected)
    assert statistics.subset(rows).score().score == pytest.approx(expected)


def test_missing_references_are_none_to_sacrebleu() -> None:
    second = [text if row % 3 else None for row, text in enumerate(WORSE)]
    several = [[one, *filter(None, [two])] for one, two in zip(REFERENCES, second, strict=True)]
    short = [" ".join(text.split()[:3]) for text in GOOD]
    for name, metric in (("bleu", BLEU()), ("chrf", CHRF()), ("ter", TER())):
        ours = collect(name, short, several)
        assert ours.score().score == metric.corpus_score(short, [REFERENCES, second]).score
        assert str(ours.metric.get_signature()).startswith("nrefs:var")
    assert collect("ter", ["a", "b"], [["a"], []]).values.tolist() == [[0, 1], [1, 0]]


def test_sentences_alone_score_as_sacrebleus_sentences() -> None:
    for name, metric in (("bleu", BLEU(effective_order=True)), ("chrf", CHRF()), ("ter", TER())):
        ours = collect(name, GOOD, REFERENCES).by_sentence().sentence_values()
        theirs = [
            metric.sentence_score(one, [two]).score
            for one, two in zip(GOOD, REFERENCES, strict=True)
        ]
        assert ours == pytest.approx(theirs)


@pytest.mark.parametrize(
    ("hypotheses", "references", "tokenise", "says"),
    [
        (["a"], ["a", "b"], "13a", "1 hypotheses but 2 references"),
        ([], [], "13a", "nothing to score"),
        (["a"], ["a"], "13", "did you mean '13a'"),
        (["a"], ["a"], "qqq", "use one of"),
    ],
)
def test_wrong_input_is_one_clear_line(
    hypotheses: list[str], references: list[str], tokenise: str, says: str
) -> None:
    with pytest.raises(UserError, match=says) as caught:
        score_corpus(hypotheses, references, tokenise=tokenise)
    assert "\n" not in str(caught.value)


def test_paired_tests_are_sacrebleus() -> None:
    # Two systems of nearly the same quality: p-values away from their ends tell more.
    near = spoilt(REFERENCES, 0.17, seed=9)
    ours = compare_systems(GOOD, near, REFERENCES, trials=1000)
    for kind in ("bs", "ar"):
        metrics = {"BLEU": BLEU(), "chrF2": CHRF(), "TER": TER()}
        systems = [("first", GOOD), ("second", near)]
        _, theirs = PairedTest(systems, metrics, [REFERENCES], kind, n_samples=1000)()
        for each in ours:
            p = each.bootstrap_p if kind == "bs" else each.randomisation_p
            expected = theirs[each.name][1].p_value
            # Ours counts what ties with the difference seen, as Noreen's test does; theirs does
            # not, and whole edits of TER tie often.
            slack = 0.05 if each.name == "TER" else 0.0
            assert expected - 1e-3 <= p <= expected + 1e-3 + slack


def test_the_better_system_is_named_for_every_metric_and_order() -> None:
    for each in compare_systems(GOOD, WORSE, REFERENCES, trials=500, resamples=500):
        assert each.better == "first"
        assert (each.difference < 0) == (each.name != "TER")
    for each in compare_systems(WORSE, GOOD, REFERENCES, trials=500, resamples=500):
        assert each.better == "second"


def test_a_system_is_not_better_than_itself() -> None:
    for each in compare_systems(GOOD, GOOD, REFERENCES, trials=200, resamples=200):
        assert each.better is None
        assert each.bootstrap_p == each.randomisation_p == 1.0


def test_perplexity() -> None:
    assert perplexity(0.0, 5) == 1.0
    assert perplexity(1.0, 0) == float("inf")
    assert perplexity(1e9, 1) == float("inf")
