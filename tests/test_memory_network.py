"""The end-to-end memory network against the equations of its paper, written as loops."""

from typing import Any, get_args

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from heedful.attention import watch
from heedful.models import StorySettings, build_story_model
from heedful.models.memory_network import MemoryNetwork
from heedful.models.stories import Encoding, ages, noisy_ages

WORDS, WIDTH, ANSWERS = 12, 5, [6, 9, 4]
STORY = [[5, 6, 7, 8], [9, 4, 0, 0], [10, 11, 6, 0]]
SHORT = [[8, 5, 4, 0]]
QUESTION, SHORT_QUESTION = [4, 7, 10], [11, 5]


def made(**more: Any) -> MemoryNetwork:
    torch.manual_seed(4)
    table = {"kind": "memory-network", "hidden_size": WIDTH, "memory": 6, **more}
    model = build_story_model(StorySettings.model_validate(table), WORDS, ANSWERS).double()
    assert isinstance(model, MemoryNetwork)
    for name, parameter in model.named_parameters():
        nn.init.normal_(parameter, std=0.7)
        if "table" in name:
            with torch.no_grad():
                parameter[0] = 0
    return model.eval()


def sentence(table: Tensor, tokens: list[int], encode: Any) -> Tensor:
    """Σ_j l_j ∘ A x_j, with l_kj = (1 − j/J) − (k/d) (1 − 2j/J), centred, trained, or 1."""
    tokens = [one for one in tokens if one]
    total, J = table.new_zeros(WIDTH), max(len(tokens), encode.longest)
    for j, token in enumerate(tokens, start=1):
        for k in range(1, WIDTH + 1):
            weight: Any = 1.0
            if encode.encoding == "positions":
                weight = (1 - j / J) - (k / WIDTH) * (1 - 2 * j / J)
            if encode.encoding == "centred-positions":
                weight = 1 + 4 * (k - (WIDTH + 1) / 2) * (j - (J + 1) / 2) / (WIDTH * J)
            if encode.encoding == "learned":
                weight = encode.weights[j - 1, k - 1]
            one = torch.zeros(WIDTH, dtype=torch.double)
            one[k - 1] = 1
            total = total + one * weight * table[token, k - 1]
    return total


def grams(table: Tensor, tokens: list[int], own: Any) -> Tensor:
    """The sum of the embeddings of all n-grams of 2 words and more."""
    tokens, total = [one for one in tokens if one], table.new_zeros(WIDTH)
    for n in range(2, own.n_grams + 1):
        for start in range(len(tokens) - n + 1):
            mixed = n
            for token in [*tokens[start : start + n], 0]:
                mixed = (mixed * 48_271 + token) % (2**31 - 1)
            total = total + table[1 + mixed % (own.n_gram_rows - 1)]
    return total


def equations(model: MemoryNetwork, story: list[list[int]], question: list[int]) -> Tensor:
    own = model.settings
    adjacent = own.tying == "adjacent"
    tables = [one.weight for one in model.tables]
    times = [one.weight for one in model.times]

    def text(at: int, tokens: list[int]) -> Tensor:
        table = tables[at] if at < len(tables) else model.question_table.weight
        words = sentence(table, tokens, model.encode)
        if own.n_grams == 1:
            return words
        return words + grams(model.n_gram_tables[at].weight, tokens, own)

    state = text(0 if adjacent else 2, question)
    reads, p = [state], torch.empty(0)
    for hop in range(own.hops):
        a, c = (hop, hop + 1) if adjacent else (0, 1)
        age = range(len(story) - 1, -1, -1)
        m = [text(a, one) + times[a][t] for one, t in zip(story, age, strict=True)]
        v = [text(c, one) + times[c][t] for one, t in zip(story, age, strict=True)]
        dots = [state @ one for one in m]
        if own.relative_time and hop:
            R, old = own.relative_time, p[1:] if own.can_stop else p
            for i, t in enumerate(age):
                for weight, u in zip(old, age, strict=True):
                    at = max(-R, min(R, u - t)) + R
                    by = model.relative[hop, at] + state @ model.relative_keys[hop, at]
                    dots[i] = dots[i] + weight * by
        if own.can_stop:
            dots, v = [state @ model.stop[hop], *dots], [torch.zeros(WIDTH).double(), *v]
        if own.empty_slots:  # every empty place of the memory
            empty = [torch.zeros(()).double()] * (own.memory - len(story))
            dots, v = [*dots, *empty], [*v, *[torch.zeros(WIDTH).double()] * len(empty)]
        p = torch.stack(dots).softmax(0)
        read = sum(weight * one for weight, one in zip(p, v, strict=True))
        state = read + (state if adjacent else model.between.weight @ state)
        reads.append(read)
    if own.readout_size:
        hidden = model.hidden.weight @ torch.cat(reads) + model.hidden.bias
        return model.readout.weight @ hidden.clamp(min=0) + model.readout.bias
    output = tables[-1][ANSWERS] if adjacent else model.output.weight
    return output @ state


def batch() -> tuple[Tensor, Tensor]:
    """Two stories, the second one padded."""
    padded = [*SHORT, [0] * 4, [0] * 4]
    return torch.tensor([STORY, padded]), torch.tensor([QUESTION, [*SHORT_QUESTION, 0]])


@pytest.mark.parametrize("tying", ["adjacent", "layer-wise"])
@pytest.mark.parametrize("encoding", get_args(Encoding))
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"can_stop": True},
        {"relative_time": 1},
        {"longest_text": 3, "empty_slots": True},
        {"memory": 3, "empty_slots": True},  # the first story leaves no place empty
        {"can_stop": True, "relative_time": 2, "readout_size": 7},
        {"n_grams": 3, "n_gram_rows": 50},
    ],
)
def test_outputs_and_gradients_are_those_of_the_equations(
    tying: str, encoding: str, more: dict[str, Any]
) -> None:
    model = made(tying=tying, encoding=encoding, hops=3, **more)
    ours = model(*batch()).logits
    theirs = torch.stack(
        [equations(model, STORY, QUESTION), equations(model, SHORT, SHORT_QUESTION)]
    )
    torch.testing.assert_close(ours, theirs)
    probe = torch.randn(2, 3, dtype=torch.double)
    names, leaves = zip(*model.named_parameters(), strict=True)
    got, expected = (torch.autograd.grad((one * probe).sum(), leaves) for one in (ours, theirs))
    for one, other, name in zip(got, expected, names, strict=True):
        if "table" in name:  # the padding's row is not trained
            one[0] = other[0] = 0
        torch.testing.assert_close(one, other)


def test_scores_are_those_of_each_hop_and_their_softmax_is_watched() -> None:
    model = made(hops=2)
    with watch(model, ["attention"]) as seen:
        scores = model(*batch()).scores
    assert scores.shape == (2, 2, 3)
    for hop, weights in enumerate(seen["attention"]):
        torch.testing.assert_close(weights[:, 0, 0], scores[:, hop].softmax(-1))
    assert scores[1, :, 1:].isinf().all()


def test_empty_places_are_watched_as_one_column() -> None:
    model = made(hops=2, empty_slots=True)
    with watch(model, ["attention"]) as seen:
        scores = model(*batch()).scores
    assert scores.shape == (2, 2, 4)
    empty = torch.tensor([[3.0, 3.0], [5.0, 5.0]], dtype=torch.double)  # of 6 places
    torch.testing.assert_close(scores[:, :, 0].exp(), empty)
    for hop, weights in enumerate(seen["attention"]):
        torch.testing.assert_close(weights[:, 0, 0], scores[:, hop].softmax(-1))
    full = made(hops=2, memory=3, empty_slots=True)
    story, question = batch()
    assert full(story, question, linear=True).logits.isfinite().all()


def test_a_linear_start_reads_with_scores_that_are_not_normalized() -> None:
    model = made(hops=1)
    story, question = batch()
    found = model(story, question, linear=True)
    values = model.encode(model.tables[1], story) + model.times[1](ages((story != 0).any(2)))
    state = model.encode(model.tables[0], question)
    scores = found.scores[:, 0].masked_fill(found.scores[:, 0].isinf(), 0)
    read = (scores.unsqueeze(-1) * values).sum(1)
    torch.testing.assert_close(found.logits, (state + read) @ model.tables[1].weight[ANSWERS].T)


def test_noise_moves_ages_in_training_only() -> None:
    facts = torch.tensor([[True] * 20, [True] * 5 + [False] * 15])
    torch.manual_seed(1)
    drawn = torch.stack([noisy_ages(facts, 0.2) for _ in range(200)])
    assert (drawn[:, 0].diff(dim=1) < 0).all()  # older facts stay older
    assert drawn[:, 0].max() == 23  # up to 4 empty facts among 20
    assert drawn[:, 1, :5].max() == 5
    assert (drawn[:, 1, 5:] == 0).all()
    assert not torch.equal(drawn[0], drawn[1])
    model = made(time_noise=0.5)
    story, question = batch()
    torch.testing.assert_close(model(story, question).logits, model(story, question).logits)
    model.train()
    several = {tuple(model(story, question).logits[0].tolist()) for _ in range(20)}
    assert len(several) > 1


def test_training_leaves_out_ngrams_and_scales_the_others() -> None:
    model = made(n_grams=3, n_gram_dropout=0.25, hops=1, time_noise=0.0)
    table = model.n_gram_tables[0]
    tokens = torch.tensor(STORY[:1]).expand(20_000, -1)
    seen: list[Tensor] = []
    handle = table.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    with torch.no_grad():
        expected = model._text(0, tokens[:1])
        model.train()
        drawn = model._text(0, tokens)
    handle.remove()
    assert not (seen[0] == 0).any()
    assert (seen[1] == 0).double().mean() == pytest.approx(0.25, abs=0.01)
    torch.testing.assert_close(drawn.mean(0, keepdim=True), expected, atol=0.05, rtol=0)


def test_another_normalizer_reads_few_facts() -> None:
    model = made(attention={"normalizer": "sparsemax"})
    with watch(model, ["attention"]) as seen:
        model(*batch())
    weights = torch.stack(list(seen["attention"]))
    assert (weights == 0).any()
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights.sum(-1)))


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"hops": 0}, "hops"),
        ({"memory": 0}, "memory"),
        ({"attention": {"heads": 2}}, "no heads"),
        ({"time_noise": 2}, "time_noise"),
        ({"can_stop": True, "empty_slots": True}, "two ways to read no fact"),
    ],
)
def test_impossible_settings_are_refused(table: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        StorySettings.model_validate({"kind": "memory-network", **table})
