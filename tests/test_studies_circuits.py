"""Circuits and head scores of studies, on models whose weights are made by hand."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from heedful.basics.symbols import END
from heedful.models.gpt import Gpt, GptSettings
from heedful.studies.circuits import (
    ValueOutput,
    copying_score,
    direct_path,
    prefix_matching,
    previous_token,
    value_output,
)
from heedful.studies.induction import in_context_score, repeated_loss
from heedful.studies.language import Reader, losses

WORDS, LENGTH = 12, 9
SHARP = 400.0


def set_all(module: nn.Module, value: float = 0.0) -> None:
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(value)


def induction_model() -> Gpt:
    """A previous-token head in layer 1 and an induction head in layer 2, both made by hand.

    The width has four blocks: the token, its position, the previous token, and the copied token,
    which is all that the output reads.
    """
    width = 3 * WORDS + LENGTH
    token, place = slice(0, WORDS), slice(WORDS, WORDS + LENGTH)
    before = slice(WORDS + LENGTH, 2 * WORDS + LENGTH)
    copied = slice(2 * WORDS + LENGTH, width)
    settings = GptSettings(
        layers=2,
        hidden_size=width,
        heads=1,
        ffn_size=0,
        dropout=0.0,
        attention_dropout=0.0,
        max_length=LENGTH,
        tied_embeddings=False,
        bias=False,
    )
    model = Gpt(settings, WORDS).double().eval()
    set_all(model)
    with torch.no_grad():
        model.embedding.weight[:, token] = torch.eye(WORDS)
        model.embeddings.positions.table.weight[:, place] = torch.eye(LENGTH)
        assert model.output is not None
        model.output.weight[:, copied] = 10 * torch.eye(WORDS)
        for norm in (model.norm, *(layer.around_self.norm for layer in model.layers)):
            norm.weight.fill_(1.0)
        first, second = (layer.self_attention for layer in model.layers)
        # Position i looks for position i − 1; the value is the token, written to the third block.
        first.query_projection.weight[place, place] = SHARP * torch.eye(LENGTH).roll(1, 1)
        first.key_projection.weight[place, place] = torch.eye(LENGTH)
        first.value_projection.weight[token, token] = torch.eye(WORDS)
        first.output_projection.weight[before, token] = torch.eye(WORDS)
        # A token looks for a position whose previous token is the same; the value is the token.
        second.query_projection.weight[token, token] = SHARP * torch.eye(WORDS)
        second.key_projection.weight[token, before] = torch.eye(WORDS)
        second.value_projection.weight[token, token] = torch.eye(WORDS)
        second.output_projection.weight[copied, token] = 100 * torch.eye(WORDS)
    return model


@pytest.fixture(scope="module")
def reader() -> Reader:
    return Reader(induction_model(), None, "cpu")  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def repeated() -> Tensor:
    """END, four different words, and the same words again."""
    rng = np.random.default_rng(0)
    rows = [[END, *(3 + 1 + rng.permutation(WORDS - 4)[:4])] for _ in range(20)]
    return torch.tensor([[*row, *row[1:]] for row in rows])


def test_a_perfect_induction_head_has_score_1(reader: Reader, repeated: Tensor) -> None:
    weights = reader.weights(repeated)
    scores = prefix_matching(weights, 4).mean(0)
    assert scores[1, 0] == pytest.approx(1.0, abs=1e-6)
    assert scores[0, 0] == pytest.approx(0.0, abs=1e-6)
    assert previous_token(weights).mean(0)[0, 0] == pytest.approx(1.0, abs=1e-6)


def test_its_circuit_copies_and_the_other_head_writes_nothing(reader: Reader) -> None:
    words = torch.arange(4, WORDS)
    circuit = value_output(reader.model, 1, 0)
    assert copying_score(circuit, words) == pytest.approx(1.0)
    # The circuit is a multiple of the unit matrix, but for the mean that the norm subtracts.
    diagonal = circuit.matrix.diagonal()
    rest = circuit.matrix - circuit.matrix.diagonal().diag()
    assert diagonal.min() > 10 * rest.abs().max()
    other = value_output(reader.model, 0, 0).matrix  # the same for all words: none is favoured
    assert other.std(0).max() < 1e-12


def test_repeated_words_are_predicted_until_a_head_is_removed(
    reader: Reader, repeated: Tensor
) -> None:
    loss = losses(reader.read(repeated), repeated)[:, 4:]  # from the first word that is repeated
    assert loss[:, 1:].max() < 1e-3
    kept = repeated_loss_of(reader, repeated, ())
    for head in reader.heads:
        assert repeated_loss_of(reader, repeated, (head,)) > kept + 1.0


def repeated_loss_of(reader: Reader, tokens: Tensor, removed: tuple[tuple[int, int], ...]) -> float:
    return float(losses(reader.read(tokens, removed), tokens)[:, 5:].mean())


def test_the_loss_of_repeated_words_counts_them_only(reader: Reader) -> None:
    rng = np.random.default_rng(1)
    rows = [[END, *(4 + rng.permutation(WORDS - 4)[:4])] for _ in range(5)]
    tokens = torch.tensor([[*row, *row[1:]] for row in rows])
    from heedful.studies import induction

    scores = reader.read(tokens)
    period, induction.PERIOD = induction.PERIOD, 4
    try:
        found = repeated_loss(reader, tokens)
    finally:
        induction.PERIOD = period
    by_hand = []
    for score, row in zip(scores, tokens, strict=True):
        by_hand += [-float(score[place - 1, row[place]]) for place in range(5, 9)]
    assert found == pytest.approx(np.mean(by_hand))


@pytest.mark.parametrize(("sign", "score"), [(1.0, 1.0), (-1.0, -1.0)])
def test_the_copying_score_has_the_sign_of_the_eigenvalues(sign: float, score: float) -> None:
    torch.manual_seed(0)
    read = torch.randn(5, 30, dtype=torch.float64)
    found = copying_score(ValueOutput(sign * read.T, read))
    assert found == pytest.approx(score)
    # A cycle of n symbols has the n-th roots of 1 as eigenvalues; the mean takes 1 away.
    one = torch.eye(6, dtype=torch.float64)
    assert copying_score(ValueOutput(one.roll(1, 0), one)) == pytest.approx(-1 / 5)
    assert copying_score(ValueOutput(torch.ones_like(one), one)) == 0.0


def random_model(**given: object) -> Gpt:
    torch.manual_seed(1)
    sizes = {"hidden_size": 12, "heads": 3, "ffn_size": 0, "positions": "rotary", "bias": False}
    rest = {"layers": 1, "max_length": LENGTH, "tied_embeddings": False, "dropout": 0.0}
    model = Gpt(GptSettings(**{**sizes, **rest, **given}), WORDS).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.5)
    return model


@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_circuits_add_up_to_the_logits(norm: str) -> None:
    """Direct path + Σ weight · circuit = logits, up to the last norm's division."""
    model = random_model(norm=norm)
    tokens = torch.tensor([[4, 7, 9, 5, 5, 11]])
    weights = Reader(model, None, "cpu").weights(tokens)[0, 0].double()  # type: ignore[arg-type]
    total = direct_path(model)[tokens[0]]
    for head in range(3):
        total = total + weights[head] @ value_output(model, 0, head).matrix.T[tokens[0]]
    with torch.no_grad():
        logits = model.logits(model.states(tokens))[0]
    factors = logits / total  # one positive factor for each position
    assert factors.min() > 0
    torch.testing.assert_close(factors, factors[:, :1].expand_as(factors), atol=1e-4, rtol=1e-4)


def test_circuits_refuse_what_they_do_not_describe() -> None:
    with pytest.raises(ValueError, match="norms before"):
        value_output(random_model(pre_norm=False), 0, 0)
    with pytest.raises(ValueError, match="values of their own"):
        value_output(random_model(attention={"key_value_heads": 1}), 0, 0)


def test_the_in_context_score_is_late_less_early() -> None:
    loss = torch.full((2, 64), 9.0)
    loss[:, 4:8], loss[:, 56:] = 3.0, 0.5
    assert in_context_score(loss) == pytest.approx(-2.5)


def test_even_weights_have_the_score_of_chance() -> None:
    weights = torch.ones(1, 9, 9).tril()
    weights = weights / weights.sum(-1, keepdim=True)
    expected = np.mean([1 / (query + 1) for query in range(5, 9)])
    assert float(prefix_matching(weights, 4)) == pytest.approx(expected)
    previous = np.mean([1 / number for number in range(3, 10)])
    assert math.isclose(float(previous_token(weights)), previous, rel_tol=1e-6)
