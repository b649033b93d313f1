"""The effect of heads: models whose heads are removed against models with zeroed weights."""

import copy
from typing import Any

import httpx
import pytest
import torch

from heedful.attention import MultiHeadAttention
from heedful.basics.errors import UserError
from heedful.basics.symbols import END
from heedful.decoding import SearchOptions
from heedful.inference import Translator
from heedful.inference.batches import source_of, target_in_of
from heedful.inference.generator import Generator
from heedful.inference.removal import effect_of_heads, removed_heads
from heedful.models.recurrent import RecurrentEncoderDecoder, RecurrentSettings
from heedful.serving import Served, make_application
from heedful.viewing.labels import token_labels
from language_help import ByteVocabulary
from serving_help import TOKENISERS, VOCABULARY, running
from test_lens import SOURCE, TARGET, gpt, transformer
from test_serving_readers import TAGGER

HEADS = [("decoder.1.cross_attention", 1), ("encoder.0.self_attention", 0)]


def zeroed(model: Any, heads: list[tuple[str, int]]) -> Any:
    """A copy whose output projections do not read the heads."""
    other = copy.deepcopy(model)
    for name, head in heads:
        part = other.get_submodule(name)
        with torch.no_grad():
            part.output_projection.weight[:, head * part.head_dim : (head + 1) * part.head_dim] = 0
    return other


def test_a_removed_head_contributes_nothing() -> None:
    torch.manual_seed(1)
    layer = MultiHeadAttention(12, heads=3, key_heads=1).double()
    x = torch.randn(2, 5, 12, dtype=torch.double, requires_grad=True)
    other = zeroed(layer, [("", 1)])
    with removed_heads(layer, [("", 1)]):
        result = layer(x, x)
    expected = other(x, x)
    torch.testing.assert_close(result, expected)
    ours = torch.autograd.grad(result.square().sum(), x)[0]
    torch.testing.assert_close(ours, torch.autograd.grad(expected.square().sum(), x)[0])
    assert not torch.allclose(layer(x, x), expected)


@pytest.mark.parametrize("target", [None, TARGET])
def test_a_translators_decisions_are_those_of_zeroed_weights(target: str | None) -> None:
    whole = transformer(2, True)
    one, other = (Translator([model], TOKENISERS) for model in (whole, zeroed(whole, HEADS)))
    before = one.trace(SOURCE, target)
    found = effect_of_heads(lambda: one.trace(SOURCE, target), HEADS)
    assert found.decided == list(before.decided)
    assert found.before == pytest.approx(list(before.log_probabilities), abs=1e-6)
    after = other.trace(SOURCE, target)
    assert found.decided_without == list(after.decided)
    assert found.without == pytest.approx(list(after.log_probabilities), abs=1e-5)
    tokens = TOKENISERS.target.encode(TARGET) if target else _tokens(one)
    same = _given(other, tokens)
    assert found.after == pytest.approx(same, abs=1e-5)
    assert found.after != pytest.approx(found.before, abs=1e-3)
    assert one.trace(SOURCE, target).log_probabilities == before.log_probabilities


def _tokens(one: Translator) -> list[int]:
    with one.ready():
        found = one.find([TOKENISERS.source.encode(SOURCE)], one.options, [0])
    return list(found[0].hypotheses[0].tokens)


def _given(one: Translator, tokens: list[int]) -> list[float]:
    device = torch.device("cpu")
    batch = source_of([TOKENISERS.source.encode(SOURCE)], device), target_in_of([tokens], device)
    with torch.no_grad():
        scores = one.model.teacher_force(*batch)[0].log_softmax(1)
    return scores.gather(1, torch.tensor([*tokens, END]).unsqueeze(1)).flatten().tolist()


def test_a_search_with_caches_sees_the_removal() -> None:
    whole = transformer(2, False)
    one, other = (Translator([model], TOKENISERS) for model in (whole, zeroed(whole, HEADS)))
    options = SearchOptions(beam=2, forced_length=12)
    given: dict[str, Any] = {"options": options}
    first, right = one.translate([SOURCE], **given), other.translate([SOURCE], **given)
    with removed_heads(whole, HEADS):
        removed = one.translate([SOURCE], **given)
    assert removed[0].text == right[0].text != first[0].text
    assert one.translate([SOURCE], **given)[0].text == first[0].text


def test_another_output_than_the_given_one_is_searched() -> None:
    whole = transformer(2, True)
    one, other = (Translator([model], TOKENISERS) for model in (whole, zeroed(whole, HEADS)))
    found = effect_of_heads(
        lambda: one.trace(SOURCE, TARGET), HEADS, search=lambda: one.trace(SOURCE)
    )
    assert found.decided == list(one.trace(SOURCE, TARGET).decided)
    assert found.decided_without == list(other.trace(SOURCE).decided)


def test_a_gpt_and_a_tagger_have_effects() -> None:
    generator = Generator(gpt(2, True), ByteVocabulary())
    tagged = next(iter(TAGGER.model.attention_axes()))
    for trace, name in (
        (lambda: generator.trace("a cat", " sat"), "layers.1.self_attention"),
        (lambda: TAGGER.trace(["a", "cat"]), tagged),
    ):
        found = effect_of_heads(trace, [(name, 0)])
        assert len(found.decided) == len(found.before) == len(found.after)
        assert len(found.decided_without) == len(found.without)
        assert found.after != found.before


def test_heads_that_are_not_there_are_refused() -> None:
    model = transformer(2, True)
    one = Translator([model], TOKENISERS)
    cases = {
        "no attention module 'encoder.7'": [("encoder.7", 0)],
        "no attention module 'output": [("output", 0)],
        "no head 5; encoder.0.self_attention has 2 heads": [("encoder.0.self_attention", 5)],
        "no heads to remove": [],
    }
    for message, heads in cases.items():
        with pytest.raises(UserError, match=message):
            effect_of_heads(lambda: one.trace(SOURCE, TARGET), heads)
    torch.manual_seed(1)
    recurrent = RecurrentEncoderDecoder(
        RecurrentSettings(embedding_size=8, hidden_size=8), VOCABULARY, VOCABULARY
    ).eval()
    names = list(recurrent.attention_axes())
    with pytest.raises(UserError, match="not joined by a projection"):
        effect_of_heads(lambda: Translator([recurrent], TOKENISERS).trace(SOURCE), [(names[0], 0)])


def test_the_server_returns_the_same() -> None:
    one = Translator([transformer(2, True)], TOKENISERS)
    right = effect_of_heads(lambda: one.trace(SOURCE), HEADS)
    heads = [{"module": name, "head": head} for name, head in HEADS]
    with (
        running(make_application([Served("one", one, "en", "de")])) as address,
        httpx.Client(base_url=address) as client,
    ):
        found = client.post("/api/removal", json={"source": SOURCE, "heads": heads}).json()
        given = {"source": SOURCE, "target": TARGET, "heads": heads, "search": True}
        searched = client.post("/api/removal", json=given).json()
        refused = client.post(
            "/api/removal", json={"source": SOURCE, "heads": [{"module": "x", "head": 0}]}
        )
        wrong = client.post("/api/removal", json={"source": SOURCE, "heads": []})
    assert found["decided"] == token_labels(right.decided)
    assert found["decided_without"] == token_labels(right.decided_without)
    assert searched["decided_without"] == found["decided_without"]
    assert searched["decided"] != found["decided"]
    assert found["after"] == pytest.approx(right.after)
    assert (refused.status_code, wrong.status_code) == (400, 400)
    assert "no attention module 'x'" in refused.json()["error"]
