"""The logit lens: each layer's predictions against models that end after that layer."""

import copy
from typing import Any

import httpx
import pytest
import torch

from heedful.basics.errors import UserError
from heedful.basics.symbols import END
from heedful.inference import Translator
from heedful.inference.batches import source_of, target_in_of
from heedful.inference.generator import Generator
from heedful.inference.lens import Lens, lens_of
from heedful.inference.tracing import END_LABEL
from heedful.models.gpt import Gpt, GptSettings
from heedful.models.recurrent import RecurrentEncoderDecoder, RecurrentSettings
from heedful.models.transformer import Transformer, TransformerSettings
from heedful.serving import Served, make_application
from heedful.viewing.labels import token_labels
from language_help import ByteVocabulary
from serving_help import TOKENISERS, VOCABULARY, running
from test_serving_readers import TAGGER

SOURCE, TARGET = "the small cat", "a dog"


def gpt(layers: int, pre_norm: bool) -> Gpt:
    torch.manual_seed(2)
    sizes = {"hidden_size": 16, "heads": 2, "ffn_size": 24, "max_length": 40}
    settings = GptSettings.model_validate({**sizes, "layers": layers, "pre_norm": pre_norm})
    return _spread(Gpt(settings, 260))


def transformer(layers: int, pre_norm: bool) -> Transformer:
    torch.manual_seed(2)
    sizes = {"hidden_size": 16, "heads": 2, "ffn_size": 24, "max_length": 40}
    table = {**sizes, "layers": layers, "pre_norm": pre_norm}
    settings = TransformerSettings.model_validate(table)
    return _spread(Transformer(settings, VOCABULARY, VOCABULARY))


def _spread(model: Any) -> Any:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape))
    return model.eval()


def shortened(whole: Any, shorter: Any) -> Any:
    """The shorter model with the weights of the whole one."""
    own = whole.state_dict()
    shorter.load_state_dict({name: own[name] for name in shorter.state_dict()})
    return shorter


def check(found: Lens, layer: int, scores: torch.Tensor, decided: list[int]) -> None:
    """The predictions of a layer against log-probabilities ``[N, V]``."""
    assert len(found.predictions[layer]) == len(decided) == len(found.decided)
    for one, row, token in zip(found.predictions[layer], scores.exp(), decided, strict=True):
        order = row.argsort(descending=True)
        assert one.probability == pytest.approx(float(row[token]), abs=1e-6)
        assert one.rank == int((row > row[token]).sum()) + 1
        assert one.probabilities == pytest.approx(row[order[:5]].tolist(), abs=1e-6)
        assert len(one.labels) == 5


@pytest.mark.parametrize("pre_norm", [True, False])
def test_a_layer_of_a_gpt_predicts_as_a_gpt_that_ends_there(pre_norm: bool) -> None:
    whole, vocabulary = gpt(3, pre_norm), ByteVocabulary()
    found = lens_of(lambda: Generator(whole, vocabulary).trace("a cat", " sat"))
    assert found.layers == ["layers.0", "layers.1", "layers.2"]
    seen: list[torch.Tensor] = []
    states = whole.states

    def recorded(tokens: torch.Tensor) -> torch.Tensor:
        seen.append(tokens)
        return states(tokens)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(whole, "states", recorded)
        trace = Generator(whole, vocabulary).trace("a cat", " sat")
    with torch.no_grad():
        own = whole.logits(states(seen[0]))[0].log_softmax(1)
    decided = [*seen[0][0, 1:].tolist(), int(own[-1, END:].argmax()) + END]
    assert own.gather(1, torch.tensor(decided).unsqueeze(1)).flatten().tolist() == pytest.approx(
        list(trace.log_probabilities), abs=1e-5
    )
    for layer in range(3):
        model = shortened(whole, gpt(layer + 1, pre_norm))
        with torch.no_grad():
            scores = model.logits(model.states(seen[0]))[0].log_softmax(1)
        check(found, layer, scores, decided)


@pytest.mark.parametrize("pre_norm", [True, False])
def test_a_layer_of_a_decoder_predicts_as_a_decoder_that_ends_there(pre_norm: bool) -> None:
    whole = transformer(3, pre_norm)
    found = lens_of(lambda: Translator([whole], TOKENISERS).trace(SOURCE, TARGET))
    assert found.layers == ["decoder.0", "decoder.1", "decoder.2"]
    assert found.decided[-1] == END_LABEL
    device = torch.device("cpu")
    source = source_of([TOKENISERS.source.encode(SOURCE)], device)
    target = TOKENISERS.target.encode(TARGET)
    for layer in range(3):
        model = copy.deepcopy(whole)
        model.decoder = torch.nn.ModuleList(list(model.decoder)[: layer + 1])
        with torch.no_grad():
            scores = model.teacher_force(source, target_in_of([target], device))[0].log_softmax(1)
        check(found, layer, scores, [*target, END])


def test_models_without_such_states_are_refused() -> None:
    torch.manual_seed(1)
    recurrent = RecurrentEncoderDecoder(
        RecurrentSettings(embedding_size=8, hidden_size=8), VOCABULARY, VOCABULARY
    ).eval()
    for trace in (
        lambda: Translator([recurrent], TOKENISERS).trace(SOURCE, TARGET),
        lambda: TAGGER.trace(["a", "cat"]),
    ):
        with pytest.raises(UserError, match="the logit lens needs a Transformer that writes"):
            lens_of(trace)


def test_the_server_returns_the_same() -> None:
    one = Translator([transformer(2, True)], TOKENISERS)
    right = lens_of(lambda: one.trace(SOURCE, TARGET))
    served = [Served("one", one, "en", "de"), Served("tags", TAGGER)]
    with running(make_application(served)) as address, httpx.Client(base_url=address) as client:
        given = {"model": "one", "source": SOURCE, "target": TARGET}
        found = client.post("/api/lens", json=given).json()
        refused = client.post("/api/lens", json={"model": "tags", "source": "a cat"})
    assert (found["layers"], found["decided"]) == (right.layers, token_labels(right.decided))
    for row, mine in zip(found["predictions"], right.predictions, strict=True):
        for given, own in zip(row, mine, strict=True):
            assert (given["labels"], given["rank"]) == (token_labels(own.labels), own.rank)
            assert given["probability"] == pytest.approx(own.probability)
    assert refused.status_code == 400
    assert "logit lens" in refused.json()["error"]
