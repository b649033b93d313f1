"""``/api/architecture`` and ``/api/equation``: the same numbers as in Python, and their errors."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import torch

from heedful.serving import Served, make_application
from heedful.viewing import inspection_encoding
from page_help import pair_trace
from serving_help import running, translator
from test_serving_readers import TAGGER, WRITER

GIVEN = {"model": "one", "source": "the small cat", "target": "a dog"}
CROSS = {**GIVEN, "module": "decoder.0.cross_attention", "head": 1, "row": 2}


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    models = [
        Served("one", translator(), "en", "de"), Served("tags", TAGGER), Served("gpt", WRITER),
    ]  # fmt: skip
    app = make_application(models, traces={"kept": pair_trace()})
    with running(app) as address, httpx.Client(base_url=address) as client:
        yield client


def test_the_stages_of_a_model(client: httpx.Client) -> None:
    found = client.post("/api/architecture", json=GIVEN).json()
    assert [lane["axis"] for lane in found["lanes"]] == ["source", "target"]
    names = [[stage["name"] for stage in lane["stages"]] for lane in found["lanes"]]
    assert names[1] == ["target_embedding", "target_positions", "decoder.0"]
    layer = found["lanes"][1]["stages"][2]
    assert layer["maps"] == ["decoder.0.self_attention", "decoder.0.cross_attention"]
    assert [part["kind"] for part in layer["parts"]].count("attention") == 2
    answer = client.post("/api/architecture", json={"model": "gpt", "source": "a", "target": ""})
    assert answer.status_code == 200, answer.text
    (lane,) = answer.json()["lanes"]
    assert lane["axis"] == "text"


def test_the_numbers_of_an_equation(client: httpx.Client) -> None:
    right = translator().trace("the small cat", "a dog")["decoder.0.cross_attention"]
    found = client.post("/api/equation", json=CROSS).json()
    heads, rows, _ = right.weights.shape
    assert (found["heads"], found["rows"]) == (heads, rows)
    assert (found["head"], found["row"], found["score"]) == (1, 2, "dot")
    assert torch.allclose(torch.tensor(found["weights"]), right.weights[1, 2], atol=1e-5)
    query, keys = torch.tensor(found["query"]), torch.tensor(found["keys"])
    weights = (found["scale"] * keys @ query).softmax(0)
    assert torch.allclose(weights, torch.tensor(found["weights"]), atol=1e-5)
    context = weights @ torch.tensor(found["values"])
    assert torch.allclose(context, torch.tensor(found["context"]), atol=1e-4)
    again = client.post("/api/equation", json={**CROSS, "row": 0}).json()
    assert torch.allclose(torch.tensor(again["weights"]), right.weights[1, 0], atol=1e-5)


@pytest.mark.parametrize(
    ("changed", "status", "message"),
    [
        ({"module": "decoder.9"}, 400, "no attention module 'decoder.9'; the model has encoder.0"),
        ({"module": ""}, 400, "no attention module ''"),
        ({"module": "x" * 301}, 400, "module"),
        ({"module": 3}, 400, "module"),
        ({"head": 2}, 400, "no head 2; decoder.0.cross_attention has 2 heads, from 0"),
        ({"head": 10**30}, 400, "no head"),
        ({"head": -1}, 400, "head"),
        ({"row": 99}, 400, "no query 99"),
        ({"source": None}, 400, "give source"),
        ({"trace": "kept", "model": None, "source": None}, 400, "an opened trace has weights only"),
        ({"model": "other"}, 404, "no model other; models: one, tags, gpt"),
        ({"unknown": 1}, 400, "unknown"),
    ],
)
def test_wrong_requests(
    client: httpx.Client, changed: dict[str, Any], status: int, message: str
) -> None:
    answer = client.post("/api/equation", json={**CROSS, **changed})
    assert answer.status_code == status, answer.text
    assert message in answer.json()["error"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"heads": [1]}, "heads.0: input should be"),
        ({"heads": [{"module": "decoder.0.cross_attention", "head": -1}]}, "heads.0.head: input"),
        ({"heads": [{"module": "a", "head": 0}] * 4097}, "heads: 4,097 values"),
    ],
)
def test_wrong_heads_are_named(client: httpx.Client, changed: dict[str, Any], message: str) -> None:
    given = {name: CROSS[name] for name in ("model", "source", "target") if name in CROSS}
    answer = client.post("/api/removal", json={**given, **changed})
    assert answer.status_code == 400, answer.text
    assert message in answer.json()["error"]


def test_too_many_numbers(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspection_encoding, "MOST_NUMBERS", 100)
    answer = client.post("/api/equation", json=CROSS)
    assert answer.status_code == 400
    assert "give a shorter text" in answer.json()["error"]
