"""Studies on generated data: their data, their measures, and a quick run of each."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from heedful.basics.errors import UserError
from heedful.studies import addition, anaphora, bigrams, induction
from heedful.studies.addition import ORDERS, Sums, drawn_sums, read_inputs
from heedful.studies.catalogue import study_named
from heedful.studies.circuits import ValueOutput
from heedful.studies.report import run_study
from heedful.studies.sentences import NOUNS, PARTS, dependent, part_of, sentences
from heedful.studies.study import StudyOptions

# Each study, in seconds


@pytest.mark.parametrize("name", ["addition", "anaphora", "bigrams", "induction"])
def test_it_runs_and_is_resumed(name: str, tmp_path: Path) -> None:
    lines: list[str] = []
    options = StudyOptions(tmp_path, threads=1, device="cpu", quick=True, echo=lines.append)
    report = run_study(study_named(name), options)
    assert lines
    for picture in report["pictures"]:
        assert (tmp_path / picture["file"]).stat().st_size > 1000
    for table in report["tables"]:
        assert table["rows"], table["name"]
    names = [one["name"] for one in report["tables"] + report["pictures"]]
    assert len(names) == len(set(names))
    assert len(report["found"]) >= 2
    first = (tmp_path / f"{name}.json").read_text()
    assert json.loads(first) == report
    trained = [path for path in tmp_path.rglob("weights*") if path.is_file()]
    times = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.safetensors")}
    assert times or trained
    if name == "bigrams":  # the fastest one
        run_study(study_named(name), options)
        assert (tmp_path / f"{name}.json").read_text() == first
        assert times == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.safetensors")}
        other = StudyOptions(tmp_path, threads=1, device="cpu", echo=lines.append)
        with pytest.raises(UserError, match="0-layer-seed-1"):
            run_study(study_named(name), other)


# anaphora


@pytest.mark.parametrize("part", PARTS)
def test_sentences_have_the_dependencies_that_they_claim(part: str) -> None:
    for one in sentences(part, 3, 200):
        subject = one.words[one.subject]
        for dependency in anaphora.DEPENDENCIES:
            place = one.place_of(dependency)
            assert one.words[place] == dependent(subject, dependency)
            assert one.distance(dependency) == place - one.subject > 0
        assert [place for place, word in enumerate(one.words) if word in NOUNS] == list(one.nouns)
        for place in set(one.nouns) - {one.subject}:
            assert part_of(subject, one.words[place]) == part
        adjective, thing = one.words[one.verb + 1], one.words[one.pronoun + 3]
        assert part_of(adjective, thing) == part


def test_no_sentence_is_in_two_parts() -> None:
    each = [{one.words for one in sentences(part, 0, 3000)} for part in PARTS]
    assert not each[0] & each[1] | each[0] & each[2] | each[1] & each[2]


def test_baselines_follow_the_nearest_and_the_first_person() -> None:
    class FromWords:
        """A model without knowledge whose only head always looks at the first word."""

        def __init__(self) -> None:
            every = {word for one in some for word in one.words}
            self.known = {word: place for place, word in enumerate(sorted(every))}

        def words(self, words: tuple[str, ...]) -> list[int]:
            return [self.known[word] for word in words]

        def tokens(self, texts: list[tuple[str, ...]]) -> torch.Tensor:
            return torch.tensor([[0, *self.words(text)] for text in texts])

        def read(self, tokens: torch.Tensor) -> torch.Tensor:
            scores = torch.zeros(*tokens.shape, len(self.known))
            scores[..., self.known["they"]] = scores[..., self.known["were"]] = 1.0
            return scores

        def weights(self, tokens: torch.Tensor) -> torch.Tensor:
            weights = torch.zeros(len(tokens), 1, 1, tokens.shape[1], tokens.shape[1])
            weights[..., 2] = 1.0
            return weights

    some = list(sentences("train", 5, 400))
    for dependency in anaphora.DEPENDENCIES:
        found = anaphora.decisions(FromWords(), some, dependency)  # type: ignore[arg-type]
        subjects = [NOUNS[one.words[one.subject]] for one in some]
        np.testing.assert_array_equal(found.right, [noun == "they" for noun in subjects])
        np.testing.assert_array_equal(found.strongest[:, 0], [one.subject == 1 for one in some])
        for one, nearest, first in zip(some, found.nearest, found.first, strict=True):
            before = [place for place in one.nouns if place < one.place_of(dependency)]
            expected = one.words[one.place_of(dependency)]
            assert nearest == (dependent(one.words[before[-1]], dependency) == expected)
            assert first == (dependent(one.words[before[0]], dependency) == expected)


def test_every_distance_is_in_one_bin() -> None:
    distance = np.arange(1, 25)
    assert (np.sum(list(anaphora.in_bins(distance).values()), 0) == 1).all()


# addition


def test_sums_and_carries_are_those_of_integers() -> None:
    some = drawn_sums(4, 2000)
    powers = 10 ** np.arange(addition.DIGITS)
    a, b = some.a @ powers, some.b @ powers
    sums = some.sums @ (10 ** np.arange(addition.DIGITS + 1))
    np.testing.assert_array_equal(sums, a + b)
    assert len({tuple(sorted(pair)) for pair in zip(a.tolist(), b.tolist(), strict=True)}) == 2000
    # Carries: the digits of a and b have 9 more than those of the sum for each carry.
    digit_sums = some.a.sum(1) + some.b.sum(1) - some.sums.sum(1)
    np.testing.assert_array_equal(some.carries, digit_sums // 9)
    assert set(some.carries) == set(some.chains) == set(range(addition.DIGITS + 1))


@pytest.mark.parametrize(
    ("a", "b", "chain"),
    [(9999, 1, 4), (1234, 4321, 0), (5555, 5555, 1), (999, 1, 3), (9995, 5, 4), (5905, 5095, 3)],
)
def test_chains_of_known_sums(a: int, b: int, chain: int) -> None:
    digits = [np.array([[int(digit) for digit in f"{one:04}"[::-1]]]) for one in (a, b)]
    assert Sums.of(*digits).chains.tolist() == [chain]


def test_texts_have_the_sum_in_both_orders() -> None:
    some = Sums.of(np.array([[9, 1, 7, 4]]), np.array([[6, 8, 8, 0]]))  # 4719 + 886 = 05605
    assert " ".join(some.texts(ORDERS[1])[0]) == "4 7 1 9 + 0 8 8 6 = 0 5 6 0 5"
    assert " ".join(some.texts(ORDERS[0])[0]) == "4 7 1 9 + 0 8 8 6 = 5 0 6 5 0"


def test_what_a_head_reads_is_named_by_place() -> None:
    weights = torch.zeros(5, 16)
    for digit, key in enumerate([4, 9, 1, 10, 15]):
        weights[digit, key] = 1.0
    assert read_inputs(weights, ORDERS[0]) == ["a0", "b0", "a3", "=", "s4"]
    assert read_inputs(weights, ORDERS[1]) == ["a0", "b0", "a3", "=", "s0"]


# bigrams and induction


def test_texts_have_the_skip_trigrams_and_the_chain_that_they_claim() -> None:
    language = bigrams.Language.drawn()
    np.testing.assert_allclose(language.chances.sum(1), 1)
    texts = language.texts(7, 3000)
    np.testing.assert_array_equal(texts, language.texts(7, 3000))
    for row in texts[:200]:
        words = [bigrams.WORDS[index] for index in row]
        for kind, pairs in bigrams.KINDS.items():
            at = words.index(kind)
            partners = {closer: opener for opener, closer in pairs}
            assert words.index(partners[words[at + 1]]) < 20 <= 24 <= at
    # The counted bigrams of the chain approach the given ones.
    chain = len(bigrams.CHAIN)
    plain = (texts[:, :-1] < chain) & (texts[:, 1:] < chain)
    counts = np.zeros((chain, chain))
    np.add.at(counts, (texts[:, :-1][plain], texts[:, 1:][plain]), 1)
    counted = counts / counts.sum(1, keepdims=True)
    assert np.abs(counted - language.chances[:chain]).max() < 0.05


def test_weights_on_openers_are_read_at_the_questions() -> None:
    texts = bigrams.Language.drawn().texts(8, 50)
    weights = torch.zeros(50, 2, bigrams.LENGTH + 1, bigrams.LENGTH + 1)
    for number, row in enumerate(texts):
        words = [bigrams.WORDS[index] for index in row]
        opened = next(place for place, word in enumerate(words) if word in {"a0", "a1", "a2", "a3"})
        weights[number, 1, words.index("qa") + 1, opened + 1] = 1.0
    found = bigrams.opener_weights(weights, texts)
    assert found == {"mr": [0, 0], "qa": [0, 1], "qb": [0, 0]}


def test_induction_texts_repeat_their_segments() -> None:
    for text in induction.repeated_segments(3, 50):
        periods = [n for n in range(8, 25) if text[n:] == text[:-n]]
        assert periods
    for text in induction.repeated_random(3, 50):
        assert len(set(text)) == induction.PERIOD
        assert text[: induction.PERIOD] == text[induction.PERIOD :]


def test_the_phase_change_is_the_steepest_fall() -> None:
    points = [
        induction.Point(step, [0.0], score, 0.0)
        for step, score in [(10, 0.0), (20, -0.1), (30, -1.5), (40, -1.6)]
    ]
    assert induction.steepest(points) == (20, 30)
    assert induction.steepest(points[:1]) is None
    rising = [replace(one, score=-one.score) for one in points]
    assert induction.steepest(rising) is None


def test_partners_are_ranked_by_what_openers_add() -> None:
    class Numbered:
        """Each word is its place in the language."""

        def words(self, words: tuple[str, ...]) -> list[int]:
            return [bigrams.WORDS.index(word) for word in words]

    reader = Numbered()
    openers, closers = zip(*bigrams.KINDS["qa"], strict=True)
    torch.manual_seed(0)
    size = len(bigrams.WORDS)
    write = torch.randn(size, 1, dtype=torch.float64) @ torch.ones(1, size, dtype=torch.float64)
    matrix = write + 100 * torch.randn(1, size, dtype=torch.float64)  # of rows and of columns
    for opener, closer in zip(openers, closers, strict=True):
        matrix[bigrams.WORDS.index(closer), bigrams.WORDS.index(opener)] += 0.5
    circuit = ValueOutput(matrix, torch.eye(size, dtype=torch.float64))
    assert bigrams.first_ranked(reader, circuit, "qa") == 1.0  # type: ignore[arg-type]
    found = bigrams.partner_logits(reader, circuit, "qa")  # type: ignore[arg-type]
    torch.testing.assert_close(found, 0.5 * (torch.eye(4) - 0.25).double())
