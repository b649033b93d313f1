"""Sampling: frequencies match the distribution; the seed and the line decide, not the batch."""

import pytest
import torch

from heedful.decoding import SearchOptions
from heedful.decoding.sampling import draw


def frequencies(logits: torch.Tensor, **options: object) -> torch.Tensor:
    """How often each column is drawn, over an even grid of uniform numbers."""
    count = 20_000
    uniform = (torch.arange(count) + 0.5) / count
    settings = SearchOptions.model_validate({"sample": True, **options})
    chosen = draw(logits.expand(count, -1), uniform, settings)
    return torch.bincount(chosen, minlength=len(logits)) / count


LOGITS = torch.tensor([0.3, -1.0, 2.0, 0.0, 1.2, -3.0])


def test_the_distribution_is_the_models() -> None:
    assert torch.allclose(frequencies(LOGITS), LOGITS.softmax(0), atol=1e-3)


def test_temperature_divides_the_logits() -> None:
    wanted = (LOGITS / 0.5).softmax(0)
    assert torch.allclose(frequencies(LOGITS, temperature=0.5), wanted, atol=1e-3)


def test_top_k_keeps_the_k_most_probable() -> None:
    kept = LOGITS.clone()
    kept[[0, 1, 3, 5]] = -torch.inf
    assert torch.allclose(frequencies(LOGITS, top_k=2), kept.softmax(0), atol=1e-3)
    assert torch.allclose(frequencies(LOGITS, top_k=99), LOGITS.softmax(0), atol=1e-3)


def test_top_p_keeps_the_smallest_set_that_reaches_p() -> None:
    probabilities = LOGITS.softmax(0)
    ordered = probabilities.sort(descending=True)
    share = float(ordered.values[:2].sum())
    kept = torch.zeros(6)
    kept[ordered.indices[:3]] = ordered.values[:3]
    wanted = kept / kept.sum()
    assert torch.allclose(frequencies(LOGITS, top_p=share + 1e-3), wanted, atol=1e-3)
    for least in (1e-6, 5e-324):  # the smallest number in float64 is 0 in float32
        assert frequencies(LOGITS, top_p=least)[2] == 1.0


@pytest.mark.parametrize("options", [{}, {"top_k": 3}, {"top_p": 0.9}])
def test_what_has_no_probability_is_never_drawn(options: dict[str, object]) -> None:
    logits = torch.tensor([[-torch.inf, 1.0, -torch.inf, 0.5, -torch.inf]])
    for number in (0.0, 0.5, 1.0 - 2.0**-24):
        settings = SearchOptions.model_validate({"sample": True, **options})
        assert draw(logits, torch.tensor([number]), settings).item() in (1, 3)
