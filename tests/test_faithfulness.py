"""Faithfulness of attention for one sentence, against probabilities computed another way."""

from itertools import combinations

import pytest
import torch

from heedful.basics.errors import UserError
from heedful.basics.symbols import END
from heedful.evaluation.faithfulness import faithfulness
from heedful.inference import Translator
from heedful.inference.batches import source_of, target_in_of
from test_inference import TOKENISERS, recurrent, transformer, translator

TEXT, OUTPUT = "the small dog sat on a mat", "a red house."


def log_probability(ours: Translator, source: str, target: str) -> float:
    """Of the mean of the models' probabilities, one sentence at a time."""
    own, written = TOKENISERS.source.encode(source), TOKENISERS.target.encode(target)
    cpu = torch.device("cpu")
    with ours.ready():
        mean = sum(
            model.teacher_force(source_of([own], cpu), target_in_of([written], cpu))[0].softmax(-1)
            for model in ours.models
        ) / len(ours.models)
    return sum(float(mean[i, token].log()) for i, token in enumerate([*written, END]))


@pytest.mark.parametrize("kind", ["transformer", "bahdanau", "ensemble", "one by one"])
def test_every_figure_is_a_difference_of_log_probabilities(kind: str) -> None:
    ours = translator(recurrent("bahdanau") if kind == "bahdanau" else transformer())
    if kind == "ensemble":
        ours = Translator([transformer(1), transformer(2)], TOKENISERS)
    if kind == "one by one":
        ours.batch_tokens = 1
    found = faithfulness(ours, TEXT, OUTPUT, share=0.3, draws=1000)
    words = TEXT.split()
    whole = log_probability(ours, TEXT, OUTPUT)
    falls = {
        left_out: whole
        - log_probability(
            ours, " ".join(w for i, w in enumerate(words) if i not in left_out), OUTPUT
        )
        for left_out in combinations(range(len(words)), 2)
    }
    assert found.draws == len(falls)
    assert found.random == pytest.approx(sum(falls.values()) / len(falls), abs=1e-3)
    dropped = tuple(words.index(word) for word in found.dropped)
    assert found.attended == pytest.approx(falls[dropped], abs=1e-3)
    assert found.higher >= 1  # its own choice is among all choices
    with ours.ready():
        own, written = TOKENISERS.source.encode(TEXT), TOKENISERS.target.encode(OUTPUT)
        batch = source_of([own], torch.device("cpu"))
        soft = ours.align(batch, [own], [written])[0].sum(0)
    assert set(dropped) == set(soft.topk(2).indices.tolist())


def test_draws_are_different_choices_and_the_same_for_the_same_seed() -> None:
    ours = translator()
    long = TEXT + " with the red tree"
    found = faithfulness(ours, long, OUTPUT, draws=5)
    assert found == faithfulness(ours, long, OUTPUT, draws=5)
    assert found.draws == 5
    assert faithfulness(ours, long).dropped


def test_what_cannot_be_measured_is_said() -> None:
    with pytest.raises(UserError, match="two words"):
        faithfulness(translator(), "dog", OUTPUT)
    with pytest.raises(UserError, match="empty"):
        faithfulness(translator(), TEXT, " ")
    with pytest.raises(UserError, match="more than the model's"):
        faithfulness(translator(), "dog " * 300, OUTPUT)
    with pytest.raises(UserError, match="no attention"):
        faithfulness(translator(recurrent("none")), TEXT, OUTPUT)
