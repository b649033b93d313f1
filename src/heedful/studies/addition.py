"""``heedful study addition``: which head reads which digit when numbers are added with carries.

A text is ``4 7 1 9 + 0 8 8 6 = 0 5 6 0 5``, digit by digit, with the most significant digit of the
sum first, or the least significant one. Carries and chains of carries: Quirke and Barez 2024,
"Understanding Addition in Transformers". Digits are numbered by their place, 0 for ones.
Shapes: N sums, n digits of a number, L layers, H heads, T tokens.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.studies.drawing import draw_lines, draw_matrix, panels
from heedful.studies.language import Budget, Head, Reader, head_name, train_language
from heedful.studies.study import Cell, Picture, Study, StudyOptions, StudyResult, Table

DIGITS = 4
ORDERS = ("least significant first", "most significant first")
MODEL = {"layers": 2, "hidden_size": 128, "heads": 4}
INPUTS = (*(f"a{place}" for place in reversed(range(DIGITS))), "+")
INPUTS += (*(f"b{place}" for place in reversed(range(DIGITS))), "=")
"""Names of the tokens of a question."""
BEFORE = len(INPUTS)
"""Tokens of a question, after END."""

Numbers = NDArray[np.int64]


class Sums(NamedTuple):
    """Sums with their digits, ones first."""

    a: Numbers
    """``[N, n]``"""
    b: Numbers
    """``[N, n]``"""
    sums: Numbers
    """``[N, n + 1]``"""
    carries: Numbers
    """``[N]``: the number of places that pass on a carry."""
    chains: Numbers
    """``[N]``: the most places that one carry passes through, see :func:`longest_chains`."""

    @classmethod
    def of(cls, a: Numbers, b: Numbers) -> "Sums":
        """The sums of digits ``[N, n]``, ones first.

        Example:
            >>> found = Sums.of(np.array([[9, 9, 4, 0]]), np.array([[1, 0, 5, 0]]))  # 499 + 501
            >>> found.sums.tolist(), found.carries.tolist(), found.chains.tolist()
            ([[0, 0, 0, 1, 0]], [3], [3])
        """
        carry = np.zeros(len(a), np.int64)
        digits, passed = [], []
        for place in range(a.shape[1]):
            total = a[:, place] + b[:, place] + carry
            carry = total // 10
            digits.append(total % 10)
            passed.append(carry)
        sums = np.stack([*digits, carry], 1)
        return cls(a, b, sums, np.stack(passed, 1).sum(1), longest_chains(a, b))

    def part(self, first: int, end: int | None = None) -> "Sums":
        """The sums from ``first`` to before ``end``."""
        return Sums(*(values[first:end] for values in self))

    def texts(self, order: str) -> list[list[str]]:
        """The words of each text."""
        sums = self.sums if order == ORDERS[0] else self.sums[:, ::-1]
        rows = zip(self.a[:, ::-1].tolist(), self.b[:, ::-1].tolist(), sums.tolist(), strict=True)
        return [[*map(str, a), "+", *map(str, b), "=", *map(str, s)] for a, b, s in rows]


def longest_chains(a: Numbers, b: Numbers) -> Numbers:
    """The length of the longest chain of carries ``[N]``: a place whose digits sum to 10 or more
    begins a chain of length 1, and each following place whose digits sum to 9 adds 1.

    Args:
        a: digits ``[N, n]``, ones first.
        b: digits ``[N, n]``, ones first.
    """
    chain = np.zeros(len(a), np.int64)
    longest = chain
    for place in range(a.shape[1]):
        total = a[:, place] + b[:, place]
        chain = np.where(total >= 10, 1, np.where((total == 9) & (chain > 0), chain + 1, 0))
        longest = np.maximum(longest, chain)
    return longest


def drawn_sums(seed: int, count: int) -> Sums:
    """Different sums of numbers with 4 digits, of which no pair occurs twice, in either order.

    In half of them the digits are drawn uniformly. In the others the digits of each place are made
    to sum to 9 with probability 1/2, so that long chains of carries are not rare.

    Raises:
        ValueError: there are fewer different pairs.
    """
    rng = np.random.default_rng(seed)
    wanted = 2 * count + 100
    a, b = rng.integers(0, 10, (2, wanted, DIGITS))
    nines = (rng.random((wanted, DIGITS)) < 0.5) & (np.arange(wanted) % 2 == 1)[:, None]
    b = np.where(nines, 9 - a, b)
    powers = 10 ** np.arange(DIGITS)
    pair = np.sort(np.stack([a @ powers, b @ powers], 1), 1) @ np.array([10**DIGITS, 1])
    _, first = np.unique(pair, return_index=True)
    rows = np.sort(first)[:count]
    if len(rows) < count:
        raise ValueError(f"there are only {len(rows)} different pairs, not {count}")
    return Sums.of(a[rows], b[rows])


def right_digits(reader: Reader, some: Sums, order: str, removed: Sequence[Head] = ()) -> Tensor:
    """Whether each digit of the sums is the most probable token ``[N, n + 1]``, ones first.

    Earlier digits of the sum are given as they are right.
    """
    tokens = reader.tokens(some.texts(order))
    best = reader.read(tokens, removed)[:, BEFORE:-1].argmax(-1)
    right = best == tokens[:, BEFORE + 1 :].cpu()
    return right if order == ORDERS[0] else right.flip(1)


def written_right(reader: Reader, some: Sums, order: str) -> NDArray[np.bool_]:
    """Whether each sum is right as the model writes it ``[N]``, digit by digit, greedily."""
    tokens = reader.tokens(some.texts(order))
    question, wanted = tokens[:, : BEFORE + 1], tokens[:, BEFORE + 1 :].cpu()
    for _ in range(DIGITS + 1):
        best = reader.read(question)[:, -1].argmax(-1, keepdim=True)
        question = torch.cat([question, best.to(question.device)], 1)
    found: NDArray[np.bool_] = (question[:, BEFORE + 1 :].cpu() == wanted).all(1).numpy()
    return found


def digit_weights(reader: Reader, some: Sums, order: str) -> Tensor:
    """Mean weights ``[L · H, n + 1, T]`` from the query of each digit of the sum, ones first."""
    weights = reader.weights(reader.tokens(some.texts(order))).double().mean(0).flatten(0, 1)
    rows = weights[:, BEFORE:-1]
    return rows if order == ORDERS[0] else rows.flip(1)


class Measured(NamedTuple):
    """What is measured of one model."""

    right: NDArray[np.bool_]
    """``[N]``: whether the written sum is right."""
    digits: list[float]
    """Share of right digits at each place, ones first."""
    without: NDArray[np.float64]
    """``[L · H, n + 1]``: the same without each head."""
    weights: Tensor
    """Mean weights of the digits' queries ``[L · H, n + 1, T]``."""


def measure(reader: Reader, test: Sums, order: str) -> Measured:
    """Measure a model on sums that it was not trained on."""
    digits = right_digits(reader, test, order).double().mean(0).tolist()
    without = [
        right_digits(reader, test, order, [head]).double().mean(0).tolist() for head in reader.heads
    ]
    return Measured(
        written_right(reader, test, order),
        digits,
        np.array(without),
        digit_weights(reader, test, order),
    )


def run(options: StudyOptions) -> StudyResult:
    """Train a model for each order and seed, and measure it on other sums."""
    quick = options.quick
    count, held_out = (200, 40) if quick else (60_000, 2000)
    budget = Budget(4, 8, 1e-3) if quick else Budget(6000, 256, 2e-3)
    every = drawn_sums(0, count + 2 * held_out)
    test = every.part(count + held_out)
    found: dict[str, list[Measured]] = {order: [] for order in ORDERS}
    names: list[str] = []
    for seed in options.seeds:
        for order, own in found.items():
            texts = {
                "train": every.part(0, count).texts(order),
                "validation": every.part(count, count + held_out).texts(order),
            }
            name = f"{order.replace(' ', '-')}-seed-{seed}"
            trained = train_language(options, name, seed, texts, MODEL, budget)
            reader = Reader.of(trained, options.device)
            names = [head_name(head) for head in reader.heads]
            own.append(measure(reader, test, order))
    return _result(found, test, names)


def _result(found: Mapping[str, list[Measured]], test: Sums, names: Sequence[str]) -> StudyResult:
    tables = (
        _by(found, "carries", "Right sums by number of carries", test.carries),
        _by(found, "chains", "Right sums by the longest chain of carries", test.chains),
        _heads(found, names),
    )
    pictures = [_accuracy(found, test)]
    for order, own in found.items():
        pictures += [_weights(order, own[0], names), _removed(order, own[0], names)]
    return StudyResult(_sentences(found, test, names), tables, tuple(pictures))


def _share(own: Sequence[Measured], rows: NDArray[np.bool_]) -> float:
    return float(np.mean([one.right[rows].mean() for one in own]))


def _by(found: Mapping[str, list[Measured]], name: str, title: str, values: Numbers) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for value in np.unique(values):
        inside = values == value
        shares = [_share(own, inside) for own in found.values()]
        rows.append((int(value), int(inside.sum()), *shares))
    everything = np.ones(len(values), np.bool_)
    rows.append(("all", len(values), *(_share(own, everything) for own in found.values())))
    return Table(name, f"{title} (test, means over seeds)", (name, "sums", *ORDERS), tuple(rows))


def read_inputs(weights: Tensor, order: str) -> list[str]:
    """The token with the largest mean weight for each digit of the sum.

    Args:
        weights: of a head ``[n + 1, T]``.
        order: of the digits of the sum.
    """
    places = range(DIGITS + 1) if order == ORDERS[0] else reversed(range(DIGITS + 1))
    labels = ["<s>", *INPUTS, *(f"s{place}" for place in places)]
    return [labels[int(best)] for best in weights.argmax(1)]


def _heads(found: Mapping[str, list[Measured]], names: Sequence[str]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for order, own in found.items():
        for place, name in enumerate(names):
            read = read_inputs(own[0].weights[place], order)
            losses = own[0].digits - own[0].without[place]
            worst = int(losses.argmax())
            rows.append((order, name, *read, f"s{worst}", float(losses[worst])))
    digits = tuple(f"s{place} reads" for place in range(DIGITS + 1))
    columns = ("order", "head", *digits, "hurt most without it", "by")
    return Table("heads", "What each head reads most (first seed)", columns, tuple(rows))


def _sentences(
    found: Mapping[str, list[Measured]], test: Sums, names: Sequence[str]
) -> tuple[str, ...]:
    parts = []
    long = test.chains == test.chains.max()
    for order, own in found.items():
        everything = float(np.mean([one.right for one in own]))
        losses = own[0].digits - own[0].without
        head, digit = np.unravel_index(losses.argmax(), losses.shape)
        read = read_inputs(own[0].weights[head], order)[int(digit)]
        most = losses[head, digit]
        removal = (
            f"the removal of head {names[int(head)]} lowers the share of right digits most, for "
            f"digit s{digit}, by {100 * most:.1f} points; this head's largest mean weight is then "
            f"on {read}"
            if most > 0
            else "the removal of no head lowers the share of right digits"
        )
        parts.append(
            f"{order.capitalize()}: {100 * everything:.1f} % of the test sums are right, "
            f"{100 * _share(own, test.carries == 0):.1f} % without a carry, "
            f"{100 * _share(own, long):.1f} % with a chain of {test.chains.max()} carries. With "
            f"the first seed, {removal}."
        )
    return tuple(parts)


def _accuracy(found: Mapping[str, list[Measured]], test: Sums) -> Picture:
    figure, axes = panels(2)
    labels = ("number of carries", "longest chain of carries")
    for panel, values, label in zip(axes, (test.carries, test.chains), labels, strict=True):
        xs = np.unique(values).tolist()
        draw_lines(
            panel,
            {order: (xs, [_share(own, values == x) for x in xs]) for order, own in found.items()},
        )
        panel.set_xticks(xs)
        panel.set_xlabel(label)
        panel.set_ylim(-0.02, 1.02)
    axes[0].set_ylabel("share of right sums")
    return Picture("accuracy", "Right sums by carries (test, means over seeds).", figure)


def _weights(order: str, one: Measured, names: Sequence[str]) -> Picture:
    """The mean weights of every head: digits of the sum against tokens of the question."""
    count = len(names) // MODEL["layers"]
    figure, axes = panels(count, 2.7, 4.6)
    figure.clear()
    grid = figure.subplots(MODEL["layers"], count, squeeze=False)
    places = range(DIGITS + 1) if order == ORDERS[0] else reversed(range(DIGITS + 1))
    labels = ["<s>", *INPUTS, *(f"s{place}" for place in places)][:-1]
    rows = [f"s{place}" for place in range(DIGITS + 1)]
    for place, name in enumerate(names):
        panel = grid[place // count][place % count]
        cells = one.weights[place][:, : len(labels)].tolist()
        draw_matrix(panel, cells, rows, labels, numbers=False)
        panel.tick_params(axis="x", labelrotation=90, labelsize=7)
        panel.set_title(f"head {name}", loc="left", fontsize=9)
    del axes
    caption = (
        f"Mean weights from the query of each digit of the sum (rows, s0 the ones) to the tokens "
        f"before it, {order} (first seed)."
    )
    return Picture(f"weights-{order.split()[0]}", caption, figure)


def _removed(order: str, one: Measured, names: Sequence[str]) -> Picture:
    figure, (panel,) = panels(1, 4.6, 3.4)
    rows = [one.digits, *one.without.tolist()]
    digits = [f"s{place}" for place in range(DIGITS + 1)]
    draw_matrix(panel, rows, ["no head", *names], digits)
    panel.set_ylabel("removed head")
    panel.set_xlabel("digit of the sum (s0: ones)")
    caption = f"Share of right digits without each head, {order} (first seed)."
    return Picture(f"removed-{order.split()[0]}", caption, figure)


METHOD = """\
Two numbers of 4 digits; half of the sums have uniformly drawn digits, in the other half the
digits of a place are made to sum to 9 with probability 1/2, so that long chains of carries are
not rare. No
pair of numbers occurs twice, in either order, so that training (60,000 sums), validation
(2,000) and test (2,000) are disjoint. GPTs with two layers, four heads and width 128 learn the
texts as language models, with the sum's digits in both orders. *Right*: all digits of the sum
that the model writes greedily. A *carry* is a place that passes 1 on; a *chain* begins at a
place whose digits sum to 10 or more, and continues through following places whose digits sum to
9. Weights are those of the query that predicts a digit (the token before it), averaged over
test sums. A removed head's result is set to zero; digits are then judged with the right earlier
digits given."""

STUDY = Study(
    "addition",
    "Addition with carries",
    "Which head reads which digit, and what do long chains of carries cost?",
    METHOD,
    run,
    takes=(),
)
