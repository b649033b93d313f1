"""``/api/classify``, ``tag``, ``fill``, ``generate``: the same answers as without a server."""

import json
import threading
import time
from collections.abc import Iterator

import httpx
import pytest
import torch
from torch import Tensor

from heedful.basics.errors import UserError
from heedful.decoding import SearchOptions
from heedful.inference.explaining import explain
from heedful.inference.fill_mask import FillMask
from heedful.inference.generator import Generator
from heedful.inference.tagger import Tagger
from heedful.models.gpt import Gpt, GptSettings
from heedful.serving import Limits, Served, make_application
from heedful.viewing.trace_encoding import map_bytes, summary
from language_help import ByteVocabulary, Read, Recited
from serving_help import serving, translator
from test_reading import LABELS, TAGS, classifier, headed, vocabulary

torch.set_num_threads(1)
MOOD, PAIRS = classifier(headed(), notify=lambda text: None), classifier(headed(), pairs=True)
TAGGER, FILLER = Tagger(headed(), vocabulary(), TAGS), FillMask(headed(), vocabulary())
torch.manual_seed(1)
WRITER = Generator(
    Gpt(GptSettings(layers=1, hidden_size=16, heads=2, max_length=60), 260).eval(), ByteVocabulary()
)
RECITED = Generator(Recited("ab ☃ cd|"), ByteVocabulary())


class Slow(Recited):
    """Takes its time, and counts."""

    steps = 0

    def step(self, tokens: Tensor, state: Read) -> tuple[Tensor, Read]:  # type: ignore[override]
        time.sleep(0.01)
        self.steps += 1
        return super().step(tokens, state)


SLOW = Slow("abcdefgh", max_length=2000)
READERS = [
    Served("mood", MOOD),
    Served("pairs", PAIRS),
    Served("tags", TAGGER),
    Served("bert", FILLER),
    Served("gpt", WRITER),
    Served("recited", RECITED),
    Served("slow", Generator(SLOW, ByteVocabulary())),
]


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    models = [Served("one", translator(max_length=24), "en", "de")]
    with serving(*models, *READERS, limits=Limits(tokens=600)) as client:
        yield client


def refused(answer: httpx.Response, status: int, message: str) -> None:
    assert answer.status_code == status, answer.text
    assert message in answer.json()["error"]


def test_models_are_told_of(client: httpx.Client) -> None:
    found = client.get("/api/models").json()
    assert [one["name"] for one in found["models"]] == ["one"]
    facts = {one["name"]: one for one in found["readers"]}
    assert facts["mood"]["task"] == "classification"
    assert facts["mood"]["labels"] == LABELS
    assert facts["tags"]["labels"] == TAGS
    assert facts["gpt"]["architecture"] == "Gpt"
    assert {
        "name": "encoder.layers.0.self_attention",
        "query_axis": "text",
        "key_axis": "text",
        "key_kind": "tokens",
        "removable": True,
    } in (facts["bert"]["maps"])


def test_classes_are_those_of_the_classifier(client: httpx.Client) -> None:
    texts = ["the film was long", "", "it"]
    found = client.post("/api/classify", json={"model": "mood", "text": texts}).json()
    assert found == {"model": "mood", "results": [one.to_json() for one in MOOD.classify(texts)]}
    why = client.post(
        "/api/classify", json={"model": "mood", "text": texts, "explain": True}
    ).json()["results"]
    assert why[0]["words"] == [vars(one) for one in explain(MOOD, texts[0]).words]
    assert (why[1]["label"], why[1]["words"]) == (None, [])
    given = {"model": "pairs", "text": "the film", "second": "it was"}
    pair = client.post("/api/classify", json=given).json()["results"]
    assert pair == [PAIRS.classify([("the film", "it was")])[0].to_json()]


def test_tags_and_hidden_words_are_those_of_the_models(client: httpx.Client) -> None:
    found = client.post("/api/tag", json={"text": ["the film", ""]}).json()
    assert found["results"] == [one.to_json() for one in TAGGER.taggings([["the", "film"], []])]
    filled = client.post("/api/fill", json={"text": "the [MASK]", "count": 3}).json()
    expected = json.loads(json.dumps(FILLER.fill("the [MASK]", 3).to_json()))
    assert filled == {"model": "bert", "result": expected}


def test_what_is_written_is_what_the_generator_writes(client: httpx.Client) -> None:
    given = {"model": "gpt", "prompt": "ab", "max_tokens": 8, "top_k": 5, "seed": 3, "nbest": 2}
    found = client.post("/api/generate", json=given).json()["texts"]
    options = SearchOptions(sample=True, top_k=5, seed=3, nbest=2)
    expected = WRITER.generate("ab", options=options, max_tokens=8)
    assert found == [json.loads(json.dumps(one.to_json())) for one in expected]
    beams = client.post("/api/generate", json={"model": "gpt", "prompt": "ab", "beam": 2})
    assert (
        beams.json()["texts"][0]["text"]
        == WRITER.generate("ab", options=SearchOptions(beam=2), max_tokens=64)[0].text
    )


def test_a_stream_is_the_text_in_pieces(client: httpx.Client) -> None:
    given = {"model": "recited", "prompt": "x", "beam": 1, "stop": ["d"]}
    answer = client.post("/api/generate/stream", json=given)
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    *pieces, last = map(json.loads, answer.text.splitlines())
    assert "".join(piece["text"] for piece in pieces) == "ab ☃ c" == last["text"]
    assert len(pieces) == 6
    assert (last["done"], last["ended"]) == (True, "stop")


def test_nobody_writes_for_who_has_left(client: httpx.Client) -> None:
    given = {"model": "slow", "prompt": "x", "beam": 1, "max_tokens": 600}
    with client.stream("POST", "/api/generate/stream", json=given) as answer:
        next(answer.iter_lines())
    time.sleep(0.3)
    steps = SLOW.steps
    assert steps < 300
    time.sleep(0.1)
    assert SLOW.steps - steps <= 1
    assert client.post("/api/tag", json={"text": "it"}).status_code == 200


def test_traces_of_readers_are_traces(client: httpx.Client) -> None:
    for name, source, target in (
        ("mood", "the film was long", None),
        ("pairs", "the film", "it was"),
        ("tags", "the film", None),
        ("bert", "the [MASK]", None),
        ("gpt", "ab", "cd"),
    ):
        given = {"model": name, "source": source, "target": target, "gradients": True}
        found = client.post("/api/trace", json=given).json()
        reader = next(one for one in READERS if one.name == name)
        trace = reader.trace(source, target)
        assert found["axes"] == summary(trace)["axes"]
        assert [one["name"] for one in found["maps"]] == [one.name for one in trace.maps]
        weights = client.post("/api/attention", json={**given, "map": 0}).content
        assert weights == map_bytes(trace, 0)
    refused(
        client.post("/api/trace", json={"model": "tags", "source": "a", "target": "b"}),
        400,
        "reads one text",
    )


EXPLAINED = {"text": "the film", "model": "mood", "explain": True}


@pytest.mark.parametrize(
    ("path", "given", "status", "message"),
    [
        ("classify", {"text": "a"}, 400, "choose a model: mood, pairs"),
        ("classify", {"text": "a", "model": "tags"}, 404, "classifies; models: mood, pairs"),
        ("classify", {"text": "a", "model": "pairs"}, 400, "pairs"),
        (
            "classify",
            {"text": ["a", "b"], "second": "c", "model": "pairs"},
            400,
            "2 values of text but 1",
        ),
        ("classify", {"text": "the " * 90, "model": "mood", "explain": True}, 400, "tokens"),
        ("classify", {"model": "mood"}, 400, "text is missing"),
        ("classify", {**EXPLAINED, "label": "\ud800"}, 400, "Unicode"),
        ("classify", {**EXPLAINED, "label": "x\ny"}, 400, "unknown label 'x y'; known labels"),
        ("classify", {**EXPLAINED, "label": "x" * 9000}, 400, "…"),
        ("tag", {"text": ["a"] * 1001}, 400, "text: 1,001 values"),
        ("tag", {"text": "\ud800"}, 400, "Unicode"),
        ("fill", {"text": "a"}, 400, "the text has no mask"),
        ("fill", {"text": "[MASK]", "count": 101}, 400, "count"),
        ("generate", {"model": "gpt", "max_tokens": 601}, 400, "601 tokens; the maximum is 600"),
        ("generate", {"model": "gpt", "nbest": 17}, 400, "the maximum is 16"),
        ("generate", {"model": "gpt", "beam": 2, "top_k": 3}, 400, "sampling"),
        ("generate", {"model": "gpt", "stop": [""]}, 400, "empty"),
        ("generate", {"model": "gpt", "temperature": 0}, 400, "temperature"),
        ("generate/stream", {"model": "gpt", "nbest": 2}, 400, "not a field"),
        ("generate/stream", {"model": "one"}, 404, "generates text"),
        ("translate", {"model": "mood", "text": "a"}, 404, "models: one"),
    ],
)
def test_what_is_wrong_is_said(
    client: httpx.Client, path: str, given: dict[str, object], status: int, message: str
) -> None:
    content = json.dumps(given).encode()
    headers = {"Content-Type": "application/json"}
    refused(client.post(f"/api/{path}", content=content, headers=headers), status, message)


def test_many_clients_get_their_own(client: httpx.Client) -> None:
    texts = [f"the film was {word}" for word in ("long", "loud", "very", "it", "we", "and")]
    found: dict[str, object] = {}

    def ask(text: str) -> None:
        given = {"model": "mood", "text": text}
        found[text] = client.post("/api/classify", json=given).json()["results"][0]["probability"]

    threads = [threading.Thread(target=ask, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {text: MOOD.classify([text])[0].probability for text in texts}


def test_two_of_a_name_are_refused() -> None:
    with pytest.raises(UserError, match="same name"):
        make_application([Served("one", translator()), Served("one", TAGGER)])
