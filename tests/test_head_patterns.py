"""Patterns of heads: weights that follow one, weights that follow none, and their limits."""

import pytest
import torch
from torch import Tensor

from heedful.evaluation.head_patterns import HeadPattern, head_patterns
from heedful.inference.trace import Trace
from heedful.viewing.trace_encoding import summary

TOKENS = ["a", "b", "c", "d", "e", "f", "g", "h"]
L = len(TOKENS)


def to(offset: int, share: float = 0.8) -> Tensor:
    """Rows that give a share to the key at a distance, and the rest to all evenly."""
    weights = torch.full((L, L), (1 - share) / L)
    for i in range(L):
        if 0 <= i + offset < L:
            weights[i, i + offset] += share
    return weights / weights.sum(-1, keepdim=True)


def column(place: int, share: float = 0.8) -> Tensor:
    weights = torch.full((L, L), (1 - share) / L)
    weights[:, place] += share
    return weights


@pytest.mark.parametrize(
    ("weights", "name"),
    [
        (to(-1), "previous token"),
        (to(1), "next token"),
        (to(0), "itself"),
        (to(-3), "3 tokens back"),
        (to(2), "2 tokens ahead"),
        (column(0), "first token"),
        (column(L - 1), "last token"),
        (torch.full((L, L), 1 / L), "even"),
        (torch.full((L, L), 1.0).tril() / torch.arange(1, L + 1).unsqueeze(1), "even"),
        (column(4, 0.9), "mixed"),
        (torch.zeros(L, L), "mixed"),
    ],
)
def test_heads_are_named_by_what_they_attend_to(weights: Tensor, name: str) -> None:
    (found,) = head_patterns(weights[None], TOKENS, TOKENS, same_text=True)
    assert found.name == name


def test_the_share_is_the_mean_weight_of_such_keys() -> None:
    weights = to(-1, 0.7)
    (found,) = head_patterns(weights[None], TOKENS, TOKENS, same_text=True)
    expected = torch.stack([weights[i, i - 1] for i in range(1, L)]).mean().item()
    assert found.share == pytest.approx(expected)


def test_induction_and_same_tokens() -> None:
    tokens = ["x", "y", "x", "y", "x", "y"]
    induction, same = torch.eye(6), torch.eye(6)
    for i in range(2, 6):
        induction[i] = torch.eye(6)[i - 1]  # what followed the last time
        same[i] = torch.eye(6)[i - 2]
    other = ["x", "y", "z", "x", "y", "z"]
    copying = torch.full((6, 6), 1 / 6).tril()
    for i in (3, 4, 5):
        copying[i] = torch.eye(6)[i - 2]
    (found,) = head_patterns(copying[None], other, other, same_text=True)
    assert found == HeadPattern("token after the same token", 1.0)
    (found,) = head_patterns(same[None], tokens, tokens, same_text=True)
    assert found.name == "same token"


def test_attention_to_another_text() -> None:
    keys = [*"uvwxyz", "</s>"]
    moving = torch.zeros(5, 7)
    for i in range(5):
        moving[i, i + 1] = 1.0
    parked = torch.full((5, 7), 0.02)
    parked[:, 6] = 0.88
    backwards = moving.flip(0)
    found = head_patterns(
        torch.stack([moving, parked, backwards]), TOKENS[:5], keys, same_text=False
    )
    assert [one.name for one in found] == ["in order", "last token", "mixed"]
    assert found[0].share == pytest.approx(1.0)


def test_empty_short_and_wrong_weights() -> None:
    assert head_patterns(torch.zeros(2, 0, 3), [], list("abc"), same_text=False)[1].name == "mixed"
    assert head_patterns(torch.ones(1, 1, 1), ["a"], ["a"], same_text=True)[0].name == "mixed"
    with pytest.raises(ValueError, match="do not belong to 1 queries and 3 keys"):
        head_patterns(torch.zeros(2, 2, 3), ["a"], list("abc"), same_text=False)


def test_the_page_gets_them() -> None:
    weights = torch.stack([to(-1), to(0)])
    trace = Trace.of({"text": TOKENS}, {"one": ("text", "text", weights)}, title="t")
    (facts,) = summary(trace)["maps"]
    assert [one["name"] for one in facts["patterns"]] == ["previous token", "itself"]
    assert facts["patterns"][0]["share"] == pytest.approx(0.825, abs=0.01)
