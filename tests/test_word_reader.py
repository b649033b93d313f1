"""Weights and states by word, the lens over texts, and probes, against shorter models and loops."""

import copy
from typing import Any

import pytest
import torch
from scipy.stats import entropy
from sklearn.linear_model import LogisticRegression

from heedful.attention import watch
from heedful.basics.errors import UserError
from heedful.basics.symbols import BEGIN, END
from heedful.evaluation.layer_predictions import layer_predictions
from heedful.evaluation.probing import ControlTask, MostFrequent, best_probe, fit_probe
from heedful.inference.generator import Generator
from heedful.inference.tagger import Tagger
from heedful.inference.word_reader import BOUNDARY, WordReader
from heedful.models import build_language_model
from heedful.models.bert import Bert, BertSettings
from heedful.models.encoders import HeadedEncoder, TextEncoder, sequences_of
from heedful.models.encoders import Tagger as Head
from heedful.models.language_encoder import LanguageEncoder
from heedful.models.recurrent_language import RecurrentLanguageSettings
from language_help import ByteVocabulary
from test_lens import gpt, shortened

SENTENCES = [["a", "cat"], ["the", "small", "dog", "sleeps"], ["it"]]


def bert(layers: int, **options: Any) -> Bert:
    torch.manual_seed(2)
    sizes = {"layers": layers, "hidden_size": 12, "heads": 3, "ffn_size": 20, "max_length": 40}
    model = Bert(BertSettings.model_validate({**sizes, **options}), 260)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape))
    return model.eval()


def tagger(encoder: TextEncoder) -> Tagger:
    model = HeadedEncoder(encoder, {"tagging": Head(encoder.dim, 2, 0.0)}).eval()
    return Tagger(model, ByteVocabulary(), ["X", "Y"])


def test_rows_have_the_word_of_each_token() -> None:
    reader = WordReader(tagger(bert(1)))
    row = reader.row(["a", "cat"])
    assert bytes(token - 4 for token in row.tokens) == b"a cat"
    # White space belongs to the word after it.
    assert row.words == [BOUNDARY, 0, 1, 1, 1, 1, BOUNDARY]
    causal = WordReader(Generator(gpt(1, True), ByteVocabulary()))
    assert causal.row(["a", "cat"]).words == [BOUNDARY, 0, 1, 1, 1, 1]


def test_a_language_model_as_an_encoder_is_read_as_the_language_model() -> None:
    alone = WordReader(Generator(gpt(2, True), ByteVocabulary()))
    inside = WordReader(tagger(LanguageEncoder(gpt(2, True), 16)))
    assert inside.causal
    rows = inside.rows(SENTENCES, "the test")
    assert rows == alone.rows(SENTENCES, "the test")
    assert inside.heads() == alone.heads()
    for one, other in ((inside.weights, alone.weights), (inside.states, alone.states)):
        torch.testing.assert_close(dict(one(rows)), dict(other(rows)))


@pytest.mark.parametrize("kind", ["encoder", "language"])
def test_weights_and_states_are_those_of_shorter_models(kind: str) -> None:
    if kind == "encoder":
        whole: Any = bert(3)
        reader = WordReader(tagger(whole))
    else:
        whole = gpt(3, False)
        reader = WordReader(Generator(whole, ByteVocabulary()))
    rows = reader.rows(SENTENCES, "the test")
    weights, states = dict(reader.weights(rows)), dict(reader.states(rows))
    assert reader.heads()[:2] == ["1.1", "1.2"]
    assert len(reader.heads()) == len(weights[0])
    for index, row in rows.items():
        given = torch.tensor([[END, *row.tokens]])
        for layer in range(1, 4):
            with torch.no_grad(), watch(whole) as seen:
                if kind == "encoder":
                    shorter = shortened(whole, bert(layer))
                    found = shorter(sequences_of([row.tokens])).states[0]
                    whole(sequences_of([row.tokens]))
                else:
                    found = shortened(whole, gpt(layer, False)).states(given)[0]
                    whole.states(given)
            for word in range(len(SENTENCES[index])):
                own = [place for place, one in enumerate(row.words) if one == word]
                torch.testing.assert_close(states[index][layer, word], found[own].mean(0))
            every = torch.cat([one[0][0] for one in seen.values()])
            torch.testing.assert_close(weights[index], every)
    if kind == "encoder":
        with torch.no_grad():
            given = sequences_of([rows[2].tokens])
            embedded = whole.embeddings(given.tokens, given.segments)[0]
        torch.testing.assert_close(states[2][0, 0], embedded[1:3].mean(0))


def test_shared_layers_have_weights_and_states_of_each_call() -> None:
    encoder = bert(2, shared_layers=True)
    reader = WordReader(tagger(encoder))
    rows = reader.rows(SENTENCES, "the test")
    assert reader.heads() == ["1.1", "1.2", "1.3", "2.1", "2.2", "2.3"]
    states = dict(reader.states(rows))
    assert states[0].shape == (3, 2, 12)
    assert next(reader.weights(rows))[1].shape[0] == 6


def test_long_sentences_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    reader = WordReader(tagger(bert(1)))
    rows = reader.rows([["x" * 50], ["a"]], "the study")
    assert list(rows) == [1]
    told = capsys.readouterr().err
    assert "1 sentence was left out of the study: longer than the model's 40 tokens" in told
    words = [*"abcdefghij", "x" * 50, "klm" * 6, "nop" * 6]
    parts = reader.parts(words)
    assert [word for part in parts for word in part] == words
    assert ["x" * 50] in parts
    assert list(reader.rows(parts, "the study")) == [
        place for place, part in enumerate(parts) if part != ["x" * 50]
    ]
    assert len(parts) < len(words)
    assert reader.parts([]) == []


def test_other_models_are_refused() -> None:
    with pytest.raises(UserError, match="needs the run of an encoder"):
        WordReader(object())
    settings = RecurrentLanguageSettings(hidden_size=8, embedding_size=8)
    recurrent = build_language_model(settings, 260)
    with pytest.raises(UserError, match="no self-attention"):
        WordReader(Generator(recurrent, ByteVocabulary()))
    with pytest.raises(UserError, match="no layers whose states"):
        layer_predictions(recurrent, [[END, 7, 8]], torch.device("cpu"))
    with pytest.raises(UserError, match="no text of at least two tokens"):
        layer_predictions(gpt(1, True), [], torch.device("cpu"))


@pytest.mark.parametrize("pre_norm", [True, False])
def test_predictions_of_layers_are_those_of_shorter_models(pre_norm: bool) -> None:
    whole = gpt(2, pre_norm)
    texts = [[END, 70, 90, 8, 9], [END, 77, 60]]
    found = layer_predictions(whole, texts, torch.device("cpu"))
    assert found.rank.shape == (3, 6)
    place = 0
    for text in texts:
        given, following = torch.tensor([text[:-1]]), text[1:]
        with torch.no_grad():
            final = whole.logits(whole.states(given))[0].softmax(1)
            for layer in (1, 2):
                short = shortened(whole, gpt(layer, pre_norm))
                own = short.logits(short.states(given))[0].softmax(1)
                for row, token in enumerate(following):
                    at = layer, place + row
                    best = int(final[row].argmax())
                    assert int(found.rank[at]) == int((own[row] > own[row, best]).sum()) + 1
                    assert float(found.probability[at]) == pytest.approx(float(own[row, best]))
                    assert float(found.divergence[at]) == pytest.approx(
                        float(entropy(final[row], own[row])), abs=1e-5
                    )
                    right = float(-own[row, token].log())
                    assert float(found.loss[at]) == pytest.approx(right, abs=1e-5)
                    assert int(found.best[at]) == int(own[row].argmax())
                    assert float(found.best_probability[at]) == pytest.approx(float(own[row].max()))
        place += len(following)
    assert bool((found.rank[-1] == 1).all())
    assert float(found.divergence[-1].abs().max()) < 1e-6


def test_a_probe_is_the_logistic_regression_of_scikit_learn() -> None:
    torch.manual_seed(4)
    states = torch.randn(300, 5, dtype=torch.double) * torch.tensor([1.0, 20, 0.1, 1, 0])
    labels = (states[:, :3] / torch.tensor([1.0, 20, 0.1])).argmax(1)
    states = states + 3
    probe = fit_probe(states, labels, 3, 1e-2)
    deviation = states.std(0, correction=0).clamp(min=1e-12)
    standard = ((states - states.mean(0)) / deviation).numpy()
    reference = LogisticRegression(C=1 / (1e-2 * 300), tol=1e-10, max_iter=2000)
    reference.fit(standard, labels.numpy())
    own = probe.weight * deviation
    assert own[:, :4].numpy() == pytest.approx(reference.coef_[:, :4], abs=1e-4)
    assert not own[:, 4].any()
    assert probe.accuracy(states, labels) == reference.score(standard, labels.numpy()) > 0.9


def test_the_penalty_is_chosen_in_validation() -> None:
    torch.manual_seed(5)
    states, labels = torch.randn(40, 30), torch.randint(2, (40,))
    states[:, 0] += 4.0 * labels  # only this dimension tells the label
    other_labels = torch.randint(2, (400,))
    other = torch.randn(400, 30)
    other[:, 0] += 4.0 * other_labels
    found = best_probe((states, labels), (other, other_labels), 2, (1e-6, 1.0))
    fits = {one: fit_probe(states, labels, 2, one) for one in (1e-6, 1.0)}
    scores = {one: fit.accuracy(other, other_labels) for one, fit in fits.items()}
    assert found.penalty == max(scores, key=lambda one: scores[one])
    assert found.accuracy(other, other_labels) == max(scores.values())


def test_a_control_task_has_the_frequencies_of_the_labels() -> None:
    control = ControlTask([0] * 6 + [1] * 3 + [3], seed=1)
    labels = control.of([f"word {number}" for number in range(4000)])
    for label, share in {0: 0.6, 1: 0.3, 3: 0.1}.items():
        assert labels.count(label) / 4000 == pytest.approx(share, abs=0.03)
    assert control.of(["a", "b", "a"]) == [*control.of(["a", "b"]), *control.of(["a"])]
    words = [str(number) for number in range(50)]
    assert ControlTask([0, 1], seed=1).of(words) != ControlTask([0, 1], seed=2).of(words)


def test_the_most_frequent_label_of_a_word() -> None:
    known = MostFrequent(["a", "a", "a", "b", "c"], [1, 1, 0, 0, 0])
    assert known.accuracy(["a", "b", "new"], [1, 0, 0]) == 1.0
    assert known.accuracy(["a", "new"], [0, 1]) == 0.0


def test_rows_begin_and_end_as_in_training() -> None:
    encoder = bert(1)
    reader, seen = WordReader(tagger(encoder)), []
    handle = encoder.embeddings.register_forward_pre_hook(lambda module, given: seen.append(given))
    list(reader.states(reader.rows([["it"]], "the test")))
    handle.remove()
    assert seen[0][0].tolist() == [[BEGIN, *ByteVocabulary().encode("it"), END]]
    assert copy.deepcopy(encoder)(sequences_of([[7]])).states is not None
