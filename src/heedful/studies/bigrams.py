"""``heedful study bigrams``: bigrams on the direct path, skip trigrams in value–output circuits.

Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits", sections "Zero-Layer
Transformers" and "One-Layer Attention-Only Transformers". The texts are drawn from a Markov chain
whose probabilities are known, with skip trigrams whose places and words are known.
Shapes: N texts, T words, W words of the language, C words of the chain.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.studies.circuits import ValueOutput, copying_score, direct_path, value_output
from heedful.studies.drawing import draw_matrix, finish, panels
from heedful.studies.language import Budget, Reader, head_name, train_language
from heedful.studies.study import Cell, Picture, Study, StudyOptions, StudyResult, Table

LENGTH = 48
CHAIN = tuple(f"w{number}" for number in range(40))
"""Words of the Markov chain."""
KINDS = {
    "mr": [(f"n{number}", f"n{number}") for number in range(8)],
    "qa": [(f"a{number}", f"A{number}") for number in range(4)],
    "qb": [(f"b{number}", f"B{number}") for number in range(4)],
}
"""Question → pairs of an opener, earlier in the text, and the word that follows the question."""
WORDS = (
    *CHAIN,
    *KINDS,
    *dict.fromkeys(word for pairs in KINDS.values() for pair in pairs for word in pair),
)
MODEL = {"hidden_size": 64, "heads": 4, "ffn_size": 0, "bias": False, "tied_embeddings": False}


@dataclass(frozen=True)
class Language:
    """The Markov chain: probabilities ``[W, C]`` of the words of the chain after each word."""

    chances: NDArray[np.float64]

    @classmethod
    def drawn(cls, seed: int = 0) -> "Language":
        """Rows ``0.9 · Dirichlet(0.3) + 0.1 / C``."""
        rows = np.random.default_rng(seed).dirichlet([0.3] * len(CHAIN), len(WORDS))
        return cls(0.9 * rows + 0.1 / len(CHAIN))

    def texts(self, seed: int, count: int) -> NDArray[np.int64]:
        """Indices of words ``[N, T]``: of each kind an opener in the first 20 words, and later its
        question with the word that follows."""
        rng = np.random.default_rng([1, seed])
        texts = np.full((count, LENGTH), -1)
        kinds = list(KINDS)
        for row in texts:
            openers = rng.permutation(20)[: len(kinds)]
            questions = 24 + 2 * rng.permutation((LENGTH - 24) // 2)[: len(kinds)]
            for kind, early, late in zip(kinds, openers, questions, strict=True):
                opener, closer = KINDS[kind][rng.integers(len(KINDS[kind]))]
                row[early] = WORDS.index(opener)
                row[late : late + 2] = WORDS.index(kind), WORDS.index(closer)
        sums = self.chances.cumsum(1)
        for place in range(LENGTH):
            before = texts[:, place - 1] if place else np.zeros(count, np.int64)
            drawn = (rng.random((count, 1)) > sums[before]).sum(1).clip(max=len(CHAIN) - 1)
            texts[:, place] = np.where(texts[:, place] < 0, drawn, texts[:, place])
        return texts


def row_correlation(found: Tensor, expected: Tensor) -> float:
    """The mean over rows of Pearson's correlation, which no scale of a row changes.

    Args:
        found: ``[R, C]``.
        expected: ``[R, C]``.

    Example:
        >>> round(row_correlation(torch.tensor([[1, 2, 4.0]]), torch.tensor([[9, 7, 3.0]])), 6)
        -1.0
    """
    rows = [one - one.mean(1, keepdim=True) for one in (found.double(), expected.double())]
    unit = [one / one.norm(dim=1, keepdim=True) for one in rows]
    return float((unit[0] * unit[1]).sum(1).mean())


@dataclass(frozen=True)
class Measured:
    """What is measured of one model.

    Attributes:
        correlation: of the direct path with the logarithms of the chain's probabilities.
        divergence: mean Kullback–Leibler divergence in nats from the chain to the next words after
            each word of the chain, in texts.
        accuracy: share of questions that are answered right, by question.
        heads: a row a head: name, weights on the opener, copying score of names, share of openers
            whose partner the value–output circuit ranks first of all partners, for qa and qb.
        circuits: the value–output circuit of each head.
    """

    correlation: float
    divergence: float
    accuracy: dict[str, float]
    heads: list[tuple[Cell, ...]]
    circuits: list[ValueOutput]


def measure(reader: Reader, language: Language, texts: NDArray[np.int64]) -> Measured:
    """Measure a model on texts ``[N, T]`` that it was not trained on."""
    tokens = reader.tokens([[WORDS[index] for index in row] for row in texts])
    scores = reader.read(tokens)
    chain = reader.words(CHAIN)
    expected = torch.from_numpy(language.chances[: len(CHAIN)]).log()
    paths = direct_path(reader.model)[chain][:, chain].cpu()
    own = torch.from_numpy(texts)
    plain = (own[:, :-1] < len(CHAIN)) & (own[:, 1:] < len(CHAIN))
    after = scores[:, 1:-1][plain][:, chain].log_softmax(-1).double()  # END shifts by one
    true = expected[own[:, :-1][plain]]
    divergence = float((true.exp() * (true - after)).sum(-1).mean())
    accuracy = {}
    for kind in KINDS:
        at = own[:, :-1] == WORDS.index(kind)
        best = scores[:, 1:-1][at].argmax(-1)
        accuracy[kind] = float((best == tokens[:, 2:].cpu()[at]).double().mean())
    if not reader.heads:
        return Measured(row_correlation(paths, expected), divergence, accuracy, [], [])
    weights = opener_weights(reader.weights(tokens)[:, 0], texts)
    circuits = [value_output(reader.model, *head) for head in reader.heads]
    heads: list[tuple[Cell, ...]] = []
    for place, (head, circuit) in enumerate(zip(reader.heads, circuits, strict=True)):
        names = torch.tensor(reader.words(first for first, _ in KINDS["mr"]))
        ranked = [first_ranked(reader, circuit, kind) for kind in ("qa", "qb")]
        own_weights = [weights[kind][place] for kind in KINDS]
        heads.append((head_name(head), *own_weights, copying_score(circuit, names), *ranked))
    return Measured(row_correlation(paths, expected), divergence, accuracy, heads, circuits)


def opener_weights(weights: Tensor, texts: NDArray[np.int64]) -> dict[str, list[float]]:
    """Question → mean weight of each head on its opener.

    Args:
        weights: of one layer ``[N, H, T + 1, T + 1]``; END is first.
        texts: ``[N, T]``.
    """
    found = {}
    for kind, pairs in KINDS.items():
        openers = [WORDS.index(opener) for opener, _ in pairs]
        asked = (texts == WORDS.index(kind)).argmax(1) + 1
        opened = np.isin(texts[:, :24], openers).argmax(1) + 1
        each = weights[np.arange(len(texts)), :, asked, opened]  # [N, H]
        found[kind] = each.double().mean(0).tolist()
    return found


def partner_logits(reader: Reader, circuit: ValueOutput, kind: str) -> Tensor:
    """The logits that a circuit gives to each partner (rows) for each opener (columns) of a set.

    Means of rows and columns are subtracted: what all openers add to a partner can be balanced by
    the direct path of the question, and what an opener adds to all partners does not choose one.
    """
    openers, closers = (reader.words(words) for words in zip(*KINDS[kind], strict=True))
    block = circuit.matrix[closers][:, openers].cpu()
    block = block - block.mean(1, keepdim=True)
    return block - block.mean(0, keepdim=True)


def first_ranked(reader: Reader, circuit: ValueOutput, kind: str) -> float:
    """The share of openers whose own partner has the highest logit in :func:`partner_logits`."""
    best = partner_logits(reader, circuit, kind).argmax(0)
    return float((best == torch.arange(len(best))).double().mean())


def run(options: StudyOptions) -> StudyResult:
    """Train a model without layers and one with a layer for each seed, and measure them."""
    language = Language.drawn()
    count, budget = (
        (200, Budget(8, 16, 3e-3)) if options.quick else (20_000, Budget(1000, 64, 3e-3))
    )
    parts = {
        "train": language.texts(0, count),
        "validation": language.texts(1, count // 20),
        "test": language.texts(2, count // 20),
    }
    texts = {
        part: [[WORDS[index] for index in row] for row in rows]
        for part, rows in parts.items()
        if part != "test"
    }
    found: dict[int, list[Measured]] = {0: [], 1: []}
    readers: list[Reader] = []
    for seed in options.seeds:
        for layers in found:
            positions = "rotary" if layers else "none"
            model = {**MODEL, "layers": layers, "positions": positions}
            name = f"{layers}-layer-seed-{seed}"
            trained = train_language(options, name, seed, texts, model, budget)
            readers.append(Reader.of(trained, options.device))
            found[layers].append(measure(readers[-1], language, parts["test"]))
    return _result(options.seeds, found, readers, language)


def _result(
    seeds: Sequence[int],
    found: dict[int, list[Measured]],
    readers: Sequence[Reader],
    language: Language,
) -> StudyResult:
    columns = ("layers", "seed", "correlation with bigrams", "divergence in nats")
    rows: list[tuple[Cell, ...]] = []
    for layers, measured in found.items():
        for seed, one in zip(seeds, measured, strict=True):
            shares = [one.accuracy[kind] for kind in KINDS]
            rows.append((layers, seed, one.correlation, one.divergence, *shares))
    models = Table(
        "models", "Models", (*columns, *(f"right after {kind}" for kind in KINDS)), tuple(rows)
    )
    head_rows = [
        (seed, *row) for seed, one in zip(seeds, found[1], strict=True) for row in one.heads
    ]
    heads = Table(
        "heads",
        "Heads of the models with one layer",
        (
            *("seed", "head", *(f"weight {kind} → opener" for kind in KINDS)),
            *("copying score of names", "qa: partner first", "qb: partner first"),
        ),
        tuple(head_rows),
    )
    pictures = (
        _scatter(readers[:2], language),
        _circuit(readers[1], found[1][0]),
    )
    return StudyResult(_sentences(found), (models, heads), pictures)


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def _sentences(found: dict[int, list[Measured]]) -> tuple[str, ...]:
    zero, one = found[0], found[1]
    best = max(
        zip(one[0].heads, one[0].circuits, strict=True), key=lambda pair: _weight(pair[0], 1)
    )
    parts = [
        f"Without layers, the direct path W_U W_E has a correlation of "
        f"{_mean([m.correlation for m in zero]):.3f} with the logarithms of the true bigram "
        f"probabilities (mean over rows and seeds), with one layer of attention "
        f"{_mean([m.correlation for m in one]):.3f}.",
        f"Divergence from the true bigrams: {_mean([m.divergence for m in zero]):.4f} nats without "
        f"layers, {_mean([m.divergence for m in one]):.4f} with one.",
    ]
    for kind, pairs in KINDS.items():
        shares = [_mean([m.accuracy[kind] for m in some]) for some in (zero, one)]
        parts.append(
            f"After {kind}, {100 * shares[1]:.1f} % of the words are predicted right with one "
            f"layer, {100 * shares[0]:.1f} % without (chance {100 / len(pairs):.1f} %)."
        )
    parts.append(
        f"Of the first model, head {best[0][0]} has the largest weight from mr to the name "
        f"({_weight(best[0], 1):.2f}); its copying score over names is {_weight(best[0], 4):.2f}."
    )
    return (" ".join(parts[:2]), *parts[2:])


def _weight(row: tuple[Cell, ...], place: int) -> float:
    value = row[place]
    assert isinstance(value, float)
    return value


def _scatter(readers: Sequence[Reader], language: Language) -> Picture:
    figure, axes = panels(len(readers))
    expected = torch.from_numpy(language.chances[: len(CHAIN)]).log()
    for panel, reader in zip(axes, readers, strict=True):
        chain = reader.words(CHAIN)
        found = direct_path(reader.model)[chain][:, chain].cpu()
        xs, ys = (_standardised(one).flatten().tolist() for one in (expected, found))
        panel.scatter(xs, ys, s=4, alpha=0.4, color="#0072b2", linewidths=0)
        layers = reader.model.settings.layers
        panel.set_title(f"{layers} layers" if layers != 1 else "1 layer", loc="left", fontsize=10)
        panel.set_xlabel("log bigram probability (per row, standardised)")
        panel.set_ylabel("direct path (per row, standardised)")
        finish(panel)
    return Picture("direct-path", "The direct path W_U W_E against the true bigrams.", figure)


def _standardised(rows: Tensor) -> Tensor:
    return (rows - rows.mean(1, keepdim=True)) / rows.std(1, keepdim=True)


def _circuit(reader: Reader, measured: Measured) -> Picture:
    """For each question, the circuit of the head with the largest weight on the opener."""
    figure, axes = panels(len(KINDS), 3.4, 3.2)
    for place, (panel, (kind, pairs)) in enumerate(zip(axes, KINDS.items(), strict=True), start=1):
        row = max(measured.heads, key=lambda one: _weight(one, place))
        circuit = measured.circuits[measured.heads.index(row)]
        openers, closers = zip(*pairs, strict=True)
        block = partner_logits(reader, circuit, kind)
        most = float(block.abs().max()) or 1.0
        draw_matrix(panel, block.tolist(), closers, openers, low=0, high=most, numbers=False)
        panel.set_title(f"{kind}: head {row[0]}", loc="left", fontsize=10)
        panel.set_xlabel("opener")
    axes[0].set_ylabel("word after the question")
    return Picture(
        "circuits",
        "Value–output circuits: logits of the words after a question (rows) for each opener that "
        "is attended to (columns), relative to the means; white is 0 or less.",
        figure,
    )


METHOD = """\
Elhage et al. 2021. Texts of 48 words from a Markov chain over 40 words, whose probabilities are
known (rows 0.9 · Dirichlet(0.3) + 0.1 uniform). In the first 20 words there is one word of each
of three sets; later, `mr` is followed by the same name, `qa` and `qb` by the partner of the
earlier word (skip trigrams `n3 … mr n3`, `a1 … qa A1`). 20,000 texts for training, 1,000 for
validation, 1,000 for the test; models without layers and with one layer of four heads without
feed-forward network, width 64, untied embeddings, rotary positions. Measured: Pearson's
correlation of each row of the direct path W_U W_E (with the last norm's gain and centring
folded in) with the logarithms of the true probabilities; the Kullback–Leibler divergence on
test texts; weights from questions to openers; the eigenvalues Σλ / Σ|λ| of the value–output
circuit over the names; and how often the circuit ranks the right partner first of its set,
relative to the means over the set's openers and partners."""

STUDY = Study(
    "bigrams",
    "Bigrams on the direct path and skip trigrams in value–output circuits",
    "Which statistics of the texts do the direct path and the value–output circuits of a small "
    "attention-only model hold?",
    METHOD,
    run,
    takes=(),
)
