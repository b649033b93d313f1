"""Linear probes of states: what a linear map can read from them.

    p = softmax(W z + b),   z the standardized state,   minimize  −mean ln p_y + λ/2 ‖W‖²

Tenney et al. 2019, "BERT Rediscovers the Classical NLP Pipeline", probes layers; Hewitt and Liang
2019, "Designing and Interpreting Probes with Control Tasks", compares a probe's accuracy with that
of a control task, in which each word type has a random label: the difference is the selectivity.
Shapes: N words, D width, C labels.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

_STEPS = 200
PENALTIES = (1e-5, 1e-4, 1e-3, 1e-2)
"""The values of λ that are tried."""


class Probe(NamedTuple):
    """A linear probe."""

    weight: Tensor
    """``[C, D]``, for states as they are."""
    bias: Tensor
    """``[C]``"""
    penalty: float
    """λ."""

    def labels(self, states: Tensor) -> Tensor:
        """The most probable label of each of ``states [N, D]``, ``[N]``."""
        return (states @ self.weight.T + self.bias).argmax(1)

    def accuracy(self, states: Tensor, labels: Tensor) -> float:
        """The share of right labels."""
        return float((self.labels(states) == labels).cpu().double().mean())


def fit_probe(
    states: Tensor, labels: Tensor, classes: int, penalty: float, steps: int = _STEPS
) -> Probe:
    """The probe with the least loss, found by L-BFGS from zeros.

    Args:
        states: ``[N, D]``.
        labels: integers ``[N]``.
        classes: number of labels C.
        penalty: λ, above 0: of the squared weights of standardized states, not of the bias.
        steps: maximum number of iterations.
    """
    mean = states.mean(0)
    # A dimension that never changes has no information; its weight stays 0.
    deviation = states.std(0, correction=0)
    scale = torch.where(deviation > 1e-12, 1 / deviation.clamp(min=1e-12), 0.0)
    inputs = (states - mean) * scale
    weight = states.new_zeros(classes, states.shape[1], requires_grad=True)
    bias = states.new_zeros(classes, requires_grad=True)
    optimiser = torch.optim.LBFGS(
        [weight, bias],
        max_iter=steps,
        tolerance_grad=1e-6,
        tolerance_change=1e-10,
        line_search_fn="strong_wolfe",
    )

    def loss() -> Tensor:
        optimiser.zero_grad()
        logits = torch.nn.functional.linear(inputs, weight, bias)
        value = torch.nn.functional.cross_entropy(logits, labels)
        value = value + penalty / 2 * weight.square().sum()
        value.backward()
        return value

    with torch.enable_grad():
        optimiser.step(loss)
    own = weight.detach() * scale
    return Probe(own, bias.detach() - own @ mean, penalty)


def best_probe(
    train: tuple[Tensor, Tensor],
    validation: tuple[Tensor, Tensor],
    classes: int,
    penalties: Sequence[float] = PENALTIES,
) -> Probe:
    """The probe of the penalty with the highest accuracy in validation, the largest of equal ones.

    Args:
        train: states ``[N, D]`` and labels ``[N]``.
        validation: others.
        classes: number of labels.
        penalties: the values of λ.
    """
    probes = [fit_probe(*train, classes, one) for one in sorted(penalties, reverse=True)]
    return max(probes, key=lambda probe: probe.accuracy(*validation))


class ControlTask:
    """A random label for each word type, drawn with the frequencies of given labels.

    Hewitt and Liang 2019, section 2. A word has the same label wherever it occurs, so that a probe
    can only learn it by memorising words.

    Args:
        labels: the labels of the training data, whose frequencies are used.
        seed: determines the labels; a word's label does not depend on other words.

    Example:
        >>> control = ControlTask([0, 1, 1, 2], seed=1)
        >>> control.of(["a", "dog", "a"])[0] == control.of(["a"])[0]
        True
    """

    def __init__(self, labels: Sequence[int], seed: int) -> None:
        counts = Counter(labels)
        self._labels, self._seed = sorted(counts), seed
        self._frequencies = [counts[label] for label in self._labels]

    def of(self, words: Sequence[str]) -> list[int]:
        """The label of each word."""
        found = {word: self._draw(word) for word in dict.fromkeys(words)}
        return [found[word] for word in words]

    def _draw(self, word: str) -> int:
        generator = random.Random(f"{self._seed} {word}")
        return generator.choices(self._labels, self._frequencies)[0]


class MostFrequent:
    """The baseline that knows words only: the most frequent label of each word type.

    A word that is not in the training data gets the most frequent label of all. Of equally frequent
    labels, the one that occurs first.

    Args:
        words: the words of the training data.
        labels: their labels.
    """

    def __init__(self, words: Sequence[str], labels: Sequence[int]) -> None:
        counts: defaultdict[str, Counter[int]] = defaultdict(Counter)
        for word, label in zip(words, labels, strict=True):
            counts[word][label] += 1
        self._labels = {word: own.most_common(1)[0][0] for word, own in counts.items()}
        self._other = Counter(labels).most_common(1)[0][0]

    def accuracy(self, words: Sequence[str], labels: Sequence[int]) -> float:
        """The share of right labels."""
        right = [
            self._labels.get(word, self._other) == label
            for word, label in zip(words, labels, strict=True)
        ]
        return sum(right) / len(right)
