"""CTC in the search of a decoder: probabilities of prefixes against the sum over all paths."""

import itertools
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.basics.symbols import BEGIN, END, PAD
from heedful.decoding import Hypothesis, JointCtc, SearchOptions, search
from heedful.decoding.ctc import log_probability, prefix_search
from heedful.decoding.joint_ctc import CtcPrefixes, Emissions
from heedful.models import TensorState
from test_ctc import all_outputs

SYMBOLS = 7  # PAD (the blank), UNKNOWN, BEGIN, END and three of texts


def emissions(*lengths: int, seed: int = 1) -> Emissions:
    """Symbols that no text has are as likely as others; the padding is not 0."""
    generator = torch.Generator().manual_seed(seed)
    shape = len(lengths), max(lengths), SYMBOLS
    likely = torch.randn(shape, generator=generator, dtype=torch.float64)
    return Emissions((2 * likely).log_softmax(-1), torch.tensor(lengths))


def outputs_of(given: Emissions, row: int) -> dict[tuple[int, ...], float]:
    """The probability of each output of a source, by enumeration of all paths."""
    return all_outputs(given.likely[row, : given.lengths[row]], PAD)


class Chain:
    """A decoder of bigrams."""

    def __init__(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.table = torch.randn(SYMBOLS, SYMBOLS, generator=generator, dtype=torch.float64)

    def start(self, source: Emissions) -> TensorState:
        return TensorState(row=torch.arange(len(source.lengths)))

    def step(self, tokens: Tensor, state: TensorState) -> tuple[Tensor, TensorState]:
        return self.table[tokens], state

    def log_probability(self, tokens: tuple[int, ...]) -> float:
        pairs = itertools.pairwise([BEGIN, *tokens, END])
        return sum(float(self.table[a].log_softmax(0)[b]) for a, b in pairs)


def found_by(decodable: Any, given: Emissions, **options: Any) -> list[list[Hypothesis]]:
    settings = SearchOptions.model_validate({"beam": 1, "length_penalty": 0, **options})
    limits = given.lengths + 1
    return search(decodable, given, rows=len(limits), options=settings, max_lengths=limits)


@pytest.mark.parametrize("seed", range(3))
def test_probabilities_of_prefixes_are_those_of_all_paths(seed: int) -> None:
    """All prefixes up to three symbols, of sources of different lengths in one batch."""
    given, prefixes = emissions(4, 3, 1, seed=seed), CtcPrefixes(PAD)
    expected = [outputs_of(given, row) for row in range(3)]
    begun = prefixes.start(given)
    for prefix in itertools.product((4, 5, 6), repeat=3):
        state, tokens = begun, torch.full((3,), BEGIN)
        for length in range(4):
            logits, state = prefixes.step(tokens, state)
            for row, outputs in enumerate(expected):
                own = prefix[:length]

                def beginning(first: tuple[int, ...], outputs: Any = outputs) -> float:
                    return math.fsum(p for o, p in outputs.items() if o[: len(first)] == first)

                whole = beginning(own)
                if not whole:
                    assert bool((logits[row, 1:] == -math.inf).all())
                    continue
                found = logits[row].exp()
                for symbol in (4, 5, 6):
                    assert float(found[symbol]) * whole == pytest.approx(
                        beginning((*own, symbol)), abs=1e-14
                    )
                assert float(found[END]) * whole == pytest.approx(outputs.get(own, 0), abs=1e-14)
                assert found[[1, BEGIN]].sum() == 0
                assert float(found.sum()) == pytest.approx(1)
            if length < 3:
                tokens = torch.full((3,), prefix[length])


def test_long_sounds_are_exact() -> None:
    """The sum over the steps of a text is CTC's loss, where probabilities are far below float64."""
    generator = torch.Generator().manual_seed(2)
    likely = (5 * torch.randn(1, 400, 40, generator=generator).double()).log_softmax(-1)
    text = torch.randint(4, 40, (60,), generator=generator).tolist()
    text[10] = text[11] = text[12]
    prefixes = CtcPrefixes(PAD)
    state, total = prefixes.start(Emissions(likely, torch.tensor([400]))), 0.0
    for given, wanted in itertools.pairwise([BEGIN, *text, END]):
        logits, state = prefixes.step(torch.tensor([given]), state)
        total += float(logits[0, wanted])
    assert total < -1000
    assert total == pytest.approx(log_probability(likely[0], text, PAD), rel=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_with_the_whole_weight_it_is_ctc(seed: int) -> None:
    given = emissions(5, 3, 4, seed=seed)
    given.likely[..., 1:4] = -60.0  # no text has them
    given = given._replace(likely=given.likely.log_softmax(-1))
    decodable: Any = JointCtc(Chain(seed), lambda it: it, 1.0, PAD)
    found = found_by(decodable, given, beam=100, nbest=3)
    for row, hypotheses in enumerate(found):
        expected = prefix_search(given.likely[row, : given.lengths[row]], PAD, beam=1000)
        assert [one.tokens for one in hypotheses] == [one.tokens for one in expected[:3]]
        for one, other in zip(hypotheses, expected, strict=False):
            assert one.log_probability == pytest.approx(other.log_probability, abs=1e-5)


@pytest.mark.parametrize("beam", [1, 4])
def test_without_weight_it_is_the_decoder(beam: int) -> None:
    given, decoder = emissions(5, 3, 4), Chain(3)
    decodable: Any = JointCtc(decoder, lambda it: it, 0.0, PAD)
    alone, joint = (found_by(one, given, beam=beam) for one in (decoder, decodable))
    for one, other in zip(alone, joint, strict=True):
        assert [own.tokens for own in one] == [own.tokens for own in other]
        assert one[0].log_probability == pytest.approx(other[0].log_probability, abs=1e-5)


@pytest.mark.parametrize("weight", [0.2, 0.7])
def test_scores_are_weighted_sums_and_the_best_is_found(weight: float) -> None:
    """Watanabe et al. 2017, equation 50, over all texts that are possible."""
    given, decoder = emissions(4, 3, seed=5), Chain(4)
    decodable: Any = JointCtc(decoder, lambda it: it, weight, PAD)
    for row, hypotheses in enumerate(found_by(decodable, given, beam=200, nbest=2)):
        scores = {
            text: weight * math.log(chance) + (1 - weight) * decoder.log_probability(text)
            for text, chance in outputs_of(given, row).items()
            if not {1, BEGIN, END} & {*text}
        }
        best = sorted(scores, key=lambda text: -scores[text])[:2]
        assert [one.tokens for one in hypotheses] == best
        for one in hypotheses:
            assert one.log_probability == pytest.approx(scores[one.tokens], abs=1e-5)


def test_a_source_is_the_same_alone_and_beside_others() -> None:
    given = emissions(6, 2, 5, seed=7)
    decodable: Any = JointCtc(Chain(5), lambda it: it, 0.5, PAD)
    together = found_by(decodable, given, beam=3)
    for row, length in enumerate(given.lengths.tolist()):
        one = Emissions(given.likely[row : row + 1, :length], given.lengths[row : row + 1])
        assert found_by(decodable, one, beam=3)[0][0].tokens == together[row][0].tokens


def test_a_decoder_that_repeats_itself_stops_where_the_sound_ends() -> None:
    """The decoder alone never ends; CTC has no path for more symbols than positions."""

    class Endless:
        def start(self, source: Emissions) -> TensorState:
            return TensorState(row=torch.arange(len(source.lengths)))

        def step(self, tokens: Tensor, state: TensorState) -> tuple[Tensor, TensorState]:
            return 30.0 * F.one_hot(torch.full_like(tokens, 5), SYMBOLS), state

    given = emissions(6, 3)
    decodable: Any = JointCtc(Endless(), lambda it: it, 0.3, PAD)
    limits = torch.full((2,), 50)
    for beam in (1, 4):
        options = SearchOptions(beam=beam)
        found = search(decodable, given, rows=2, options=options, max_lengths=limits)
        assert [len(own[0].tokens) for own in found] == [3, 2]  # 5, blank, 5, blank, 5
        assert all(math.isfinite(own[0].log_probability) for own in found)


def test_weights_out_of_range() -> None:
    with pytest.raises(ValueError, match="from 0 to 1"):
        JointCtc(Chain(1), lambda it: it, 1.5, PAD)
