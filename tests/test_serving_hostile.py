"""Hostile requests: a right answer or a 4xx with ``error``, never a 5xx, and the server goes on.

``HEEDFUL_HOSTILE=10000`` in the environment sends so many random bodies; a few hundred without it.
"""

import json
import os
import random
import time
import urllib.parse
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from heedful.serving import Limits, Served, make_application
from serving_help import running, sentences, translator
from test_serving_readers import READERS

COUNT = int(os.environ.get("HEEDFUL_HOSTILE", "300"))
FIELDS: dict[str, dict[str, Any]] = {
    "/translate": {"q": "the cat.", "source": "en", "target": "de", "format": "text"},
    "/detect": {"q": "the cat."},
    "/api/translate": {
        "text": "the cat.",
        "nbest": 1,
        "prefix": "a",
        "alignments": True,
        "checks": True,
        "matches": True,
    },
    "/api/translate/stream": {"text": "the cat."},
    "/api/alternatives": {"text": "the cat.", "prefix": "a", "count": 2},
    "/api/trace": {"source": "the cat.", "target": "a", "gradients": True},
    "/api/attention": {"source": "the cat.", "map": 0},
    "/api/architecture": {"source": "the cat.", "target": "a"},
    "/api/lens": {"source": "the cat.", "target": "a"},
    "/api/removal": {
        "source": "the cat.",
        "target": "a",
        "heads": [{"module": "decoder.0.self_attention", "head": 0}],
        "search": True,
    },
    "/api/equation": {
        "source": "the cat.",
        "target": "a",
        "module": "decoder.0.cross_attention",
        "head": 0,
        "row": 0,
    },
    "/api/faithfulness": {"source": "the cat.", "target": "a"},
    "/api/classify": {"text": "the film", "model": "mood", "explain": True},
    "/api/tag": {"text": "the film"},
    "/api/fill": {"text": "the [MASK]", "count": 2},
    "/api/generate": {"prompt": "a", "model": "gpt", "max_tokens": 3, "nbest": 2, "stop": ["x"]},
    "/api/generate/stream": {"prompt": "a", "model": "gpt", "max_tokens": 3},
}
PREDICTED: dict[str, dict[str, Any]] = {
    "/api/predict/mood": {"inputs": ["the film", ["it", "was"]]},
    "/api/predict/one": {"inputs": ["the cat."]},
    "/api/predict/none": {"inputs": [{"text": ["the cat."]}]},
}
"""``/api/predict/{model}``, which stands for itself in the description."""
NASTY: list[Any] = [
    "",
    " ",
    "\x00",
    "\x00\x01\x1b[2J\x7f\x85\u2028\u202e\ufeff",
    "\ud800",
    "\udfff\ud800",
    "a" * 3_000,
    "\n" * 3_000,
    "é́́́" * 200,
    "👩‍👩‍👧‍👦" * 50,
    "<script>alert(1)</script>",
    "../../etc/passwd",
    "%00%ff%",
    "${jndi:x}",
    None,
    True,
    0,
    -1,
    10**30,
    1e308,
    float("nan"),
    float("inf"),
    [],
    {},
    [[]],
    [None],
    ["the cat.", 5],
    ["the cat."] * 30,
    {"q": {"q": {}}},
    [[1] * 3_000],
    [{"a": [["the cat."] * 30] * 30}],
    "auto",
    "EN",
    "de",
]
HEADERS = (
    "application/json",
    "application/x-www-form-urlencoded",
    "multipart/form-data",
    "multipart/form-data; boundary=x",
    "text/plain; charset=utf-16",
    "application/octet-stream",
    "",
)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    limits = Limits(characters=5_000, texts=100, body=1 << 20, tokens=70)
    models = [Served("one", small(), "en", "de")]
    readers = [one for one in READERS if one.name in ("mood", "tags", "bert", "gpt")]
    with running(make_application([*models, *readers], limits=limits)) as address:
        yield address


def small() -> Any:
    return translator(max_length=24)


@pytest.fixture
def client(address: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=address, timeout=30) as client:
        yield client
        right = small().translate(["a small dog."])[0].text
        given = {"q": "a small dog.", "source": "en", "target": "de"}
        assert client.post("/translate", json=given).json() == {"translatedText": right}


def check(answer: httpx.Response, what: object) -> None:
    assert answer.status_code == 200 or 400 <= answer.status_code < 500, (what, answer.text)
    if answer.headers["content-type"].startswith("application/json"):
        found = answer.json()
        assert answer.status_code == 200 or set(found) == {"error"}, what
        if answer.status_code != 200:
            assert found["error"].isprintable(), what
            assert "Traceback" not in found["error"]
            assert "/work" not in found["error"]
    else:
        assert answer.status_code == 200, what


def some_fields(chance: random.Random, path: str) -> dict[str, Any]:
    fields = dict({**FIELDS, **PREDICTED}[path])
    for name in chance.sample(
        [*fields, "alternatives", "beam", "model", "trace"], k=chance.randrange(3)
    ):
        fields[name] = chance.choice(NASTY)
    if chance.random() < 0.2:
        fields.pop(chance.choice(list(fields)))
    return fields


def some_body(chance: random.Random, path: str) -> bytes:
    kind = chance.randrange(5)
    if kind == 0:
        return chance.randbytes(chance.randrange(300))
    if kind == 1:
        fields = {name: str(value) for name, value in some_fields(chance, path).items()}
        return urllib.parse.urlencode(fields, errors="replace").encode()
    body = json.dumps(some_fields(chance, path), ensure_ascii=chance.random() < 0.7)
    sent = body.encode("utf-8", "surrogatepass")
    if kind == 2:  # broken somewhere
        at = chance.randrange(len(sent))
        return sent[:at] + chance.randbytes(chance.randrange(3)) + sent[at + 1 :]
    return sent


def test_random_bodies(client: httpx.Client) -> None:
    chance = random.Random(COUNT)
    counts = {200: 0, 400: 0}
    for _ in range(COUNT):
        path = chance.choice([*FIELDS, *PREDICTED])
        body, kind = some_body(chance, path), chance.choice(HEADERS)
        answer = client.post(path, content=body, headers={"Content-Type": kind})
        check(answer, (path, kind, body))
        counts[answer.status_code] = counts.get(answer.status_code, 0) + 1
    assert counts[200] > COUNT / 20
    assert counts[400] > COUNT / 20


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b'{"q": "a"', 400),
        (b"null", 400),
        (b"[1, 2]", 400),
        (b'{"q": "\xff\xfe"}', 400),
        (b"[" * 100_000, 400),
        (b'{"q":' * 100_000, 400),
        (b'{"q": ' + b"1" * 5_000 + b"}", 400),
        (json.dumps({**FIELDS["/translate"], "q": "a" * 10_000_000}).encode(), 413),
        (json.dumps({**FIELDS["/translate"], "q": ["a"] * 5_000}).encode(), 400),
        (json.dumps({**FIELDS["/translate"], "q": ["a" * 60] * 100}).encode(), 400),
        (json.dumps({**FIELDS["/translate"], "q": "\x00\x01\t\x7f"}).encode(), 200),
        (json.dumps({**FIELDS["/translate"], "q": "a" * 1_000}).encode(), 200),
        (json.dumps({**FIELDS["/translate"], "q": "\ud83d"}).encode(), 400),
        (b"q=a&source=en&target=de&q=b", 400),
        (b"&".join(b"%d=a" % i for i in range(5_000)), 400),
        (b"q=%ff&source=en&target=de", 400),
    ],
)
def test_bodies_that_break_others(client: httpx.Client, body: bytes, status: int) -> None:
    for path in ("/translate", "/api/translate"):
        answer = client.post(path, content=body)
        check(answer, body[:100])
        if path == "/translate":
            assert answer.status_code == status, answer.text[:200]


def test_inputs_that_break_others(client: httpx.Client) -> None:
    """Of ``/api/predict``, whose inputs may be anything."""
    deep = b'{"inputs": [' + b'{"a":' * 900 + b"1" + b"}" * 900 + b"]}"
    wide = b'{"inputs": [[' + b"1," * 200_000 + b"1]]}"
    for body in (deep, wide, b'{"inputs": [' + b"1," * 90 + b"1]}", b'{"inputs": {"a": "b"}}'):
        for path in PREDICTED:
            began = time.process_time()
            answer = client.post(path, content=body)
            check(answer, body[:50])
            assert answer.status_code in (400, 404), answer.text
            assert time.process_time() - began < 2
        answer = client.post("/api/trace", content=body.replace(b"inputs", b"input"))
        assert answer.status_code == 400
    pairs = {"inputs": [["the film", "it"], ["it", "was"], "alone"]}
    answer = client.post("/api/predict/mood", json=pairs)
    assert len(answer.json()["results"]) == 3, answer.text


def test_heads_that_break_others(client: httpx.Client) -> None:
    long = " ".join(sentences(600))[:4_500]
    given = {**FIELDS["/translate"], "q": long}
    assert client.post("/translate", params=given).status_code == 200
    for query in ("q=%", "q=%ff&source=en&target=de", "q&q", "&&&===", "q=a;source=en"):
        check(client.post(f"/translate?{query}"), query)
    for path in ("/%ff", "/translate/", "/api", "/api/translate/x", "/\u202e", "//", "/page/"):
        check(client.get(path, follow_redirects=True), path)
    for method in ("PUT", "DELETE", "OPTIONS", "TRACE", "HEAD", "PROPFIND"):
        answer = client.request(method, "/translate")
        assert answer.status_code == 405
    # Nothing that a client sends comes back in a head.
    answer = client.post("/translate?source=en%0d%0aX-Evil:%201&q=a&target=de%0d%0aSet-Cookie:a=b")
    assert answer.status_code == 400
    assert "x-evil" not in answer.headers
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("most", [5, pytest.param(50, marks=pytest.mark.slow)])
def test_requests_made_from_the_description(address: str, most: int) -> None:
    described = schemathesis.openapi.from_url(f"{address}/spec")
    checks = [
        not_a_server_error,
        status_code_conformance,
        content_type_conformance,
        response_schema_conformance,
    ]
    paths = set()
    for found in described.get_all_operations():
        operation = found.ok()
        paths.add(operation.path)

        @settings(
            max_examples=most,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            database=None,
            derandomize=True,
        )
        @given(case=operation.as_strategy())
        def call(case: schemathesis.Case) -> None:
            case.call_and_validate(checks=checks)

        call()
    others = {"/languages", "/frontend/settings", "/health", "/ready", "/api/models"}
    others |= {"/translate_file", "/download_file/{name}"}
    # No run for dialogues or recordings is served here.
    others |= {"/api/chat", "/api/chat/stream", "/api/subtitles"}
    assert set(FIELDS) | others | {"/api/predict/{model}"} == paths
