"""Our own contract: scores, alignments, streams, alternatives, traces; and the page's files."""

import json
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from heedful.data.memory import Entry, Memory
from heedful.decoding import SearchOptions
from heedful.evaluation.faithfulness import faithfulness
from heedful.serving import Served
from heedful.viewing.trace_encoding import map_bytes, summary
from serving_help import sentences, serving, translator

MODEL, OTHER = translator(max_length=24), translator(seed=2)
TEXTS = sentences(4, seed=3)
LONG = " ".join(sentences(10)) + "\n\n" + TEXTS[0] + " \n"


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    models = Served("one", MODEL, "en", "de"), Served("two", OTHER)
    opened = {"saved": OTHER.trace(TEXTS[0])}
    with serving(*models, traces=opened) as client:
        yield client


def test_models(client: httpx.Client) -> None:
    answer = client.get("/api/models").json()
    assert answer["traces"] == ["saved"]
    one, two = answer["models"]
    assert (one["name"], one["source"], one["target"]) == ("one", "en", "de")
    assert (two["source"], two["target"], two["max_tokens"]) == (None, None, 63)
    assert one["parameters"] == sum(p.numel() for p in MODEL.models[0].parameters())
    assert one["vocabulary"] == {"source": 380, "target": 380}
    assert {
        "name": "decoder.0.cross_attention",
        "query_axis": "target",
        "key_axis": "source",
        "key_kind": "tokens",
        "removable": True,
    } in one["maps"]
    assert one["aligns"] is True


def test_translations_with_all_there_is_to_know(client: httpx.Client) -> None:
    given = {"model": "two", "text": TEXTS, "nbest": 2, "beam": 3, "length_penalty": 0.5}
    plain = client.post("/api/translate", json=given).json()
    assert all("soft" not in one and "alignment" not in one for one in plain["translations"])
    answer = client.post("/api/translate", json={**given, "alignments": True}).json()
    assert answer["model"] == "two"
    options = SearchOptions(beam=3, nbest=2, length_penalty=0.5)
    found = OTHER.translate(TEXTS, options=options, alignments=True)
    for shown, right in zip(answer["translations"], found, strict=True):
        expected = right.to_json()
        assert shown["text"] == expected["text"]
        assert shown["score"] == pytest.approx(expected["score"], abs=1e-4)
        assert shown["tokens"] == expected["tokens"]
        assert shown["alignment"] == expected["alignment"]
        assert [one["text"] for one in shown["alternatives"]] == [
            one["text"] for one in expected["alternatives"]
        ]
        assert shown["source_words"] == right.source.split()
        assert right.alignment is not None
        for row, own in zip(shown["soft"], right.alignment.soft.tolist(), strict=True):
            assert row["first"] == 0
            assert row["weights"] == pytest.approx(own, abs=1e-4)


def test_a_model_is_chosen_by_languages_or_has_to_be_named(client: httpx.Client) -> None:
    by_pair = client.post("/api/translate", json={"text": "a", "source": "EN", "target": "de"})
    assert by_pair.json()["model"] == "one"
    unclear = client.post("/api/translate", json={"text": "a"})
    assert (unclear.status_code, unclear.json()["error"]) == (
        400,
        "choose a model: one, two",
    )
    assert client.post("/api/translate", json={"text": "a", "model": "x"}).status_code == 404
    wrong = client.post("/api/translate", json={"text": "a", "source": "de", "target": "en"})
    assert wrong.status_code == 400
    assert wrong.json()["error"].startswith(
        "no model translates de to en; available pairs: en to de"
    )


def test_a_given_beginning(client: httpx.Client) -> None:
    right = OTHER.continue_from(TEXTS[0], "the red ")
    given = {"model": "two", "text": TEXTS[0], "prefix": "the red "}
    [one] = client.post("/api/translate", json=given).json()["translations"]
    assert one["text"] == right.text
    assert one["text"].startswith("the red ")
    wrong = client.post("/api/translate", json={**given, "text": TEXTS})
    assert wrong.status_code == 400
    for empty in ({**given, "text": ""}, {**given, "prefix": "a " * 100}):
        assert client.post("/api/translate", json=empty).status_code == 400


def test_sentences_go_one_by_one_unless_the_line_is_to_stay_whole(client: httpx.Client) -> None:
    first, second = "the small cat sat.", "The dog sat on a mat."
    text = f"{first}  {second}"
    asked = {"model": "two", "text": text, "beam": 2}
    [found] = client.post("/api/translate", json=asked).json()["translations"]
    options = SearchOptions(beam=2)
    apart = OTHER.translate([first, second], options=options, alignments=True)
    assert found["text"] == f"{apart[0].text}  {apart[1].text}"
    assert found["parts"] == 2
    whole = {**asked, "sentences": False}
    [kept] = client.post("/api/translate", json=whole).json()["translations"]
    assert kept["text"] == OTHER.translate([text], options=options)[0].text
    assert kept["text"] != found["text"]
    lines = client.post("/api/translate/stream", json=asked).text.splitlines()
    assert [json.loads(line).get("parts") for line in lines] == [2, 2, None]


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("alternatives", {"text": "a cat.\na dog."}),
        ("translate", {"text": "a cat.\na dog.", "prefix": "the"}),
        ("trace", {"source": "a cat.\na dog."}),
        ("attention", {"source": "a cat.\na dog.", "map": 0}),
    ],
)
def test_what_is_of_one_sequence_takes_one_line(
    client: httpx.Client, path: str, fields: dict[str, object]
) -> None:
    answer = client.post(f"/api/{path}", json={"model": "two", **fields})
    assert answer.status_code == 400
    assert "of one line" in answer.json()["error"]
    # Other characters that Python calls line breaks are none to what cuts texts.
    fields = {
        name: one.replace("\n", "\u2028") if isinstance(one, str) else one
        for name, one in fields.items()
    }
    assert client.post(f"/api/{path}", json={"model": "two", **fields}).status_code == 200


def test_a_stream_gives_the_parts_of_the_whole(client: httpx.Client) -> None:
    whole = client.post("/api/translate", json={"model": "one", "text": LONG}).json()
    with client.stream("POST", "/api/translate/stream", json={"model": "one", "text": LONG}) as got:
        assert got.headers["content-type"].startswith("application/x-ndjson")
        *lines, last = [json.loads(line) for line in got.iter_lines()]
    assert [line["part"] for line in lines] == list(range(len(lines)))
    assert {line["parts"] for line in lines} == {len(lines)}
    assert len(lines) > 2
    assert last["done"] is True
    text = "".join(line["before"] + line["text"] for line in lines) + last["after"]
    assert text == whole["translations"][0]["text"]
    nothing = client.post("/api/translate/stream", json={"model": "one", "text": " \n"})
    assert json.loads(nothing.text)["after"] == " \n"


def test_alternatives(client: httpx.Client) -> None:
    given = {"model": "two", "text": TEXTS[0], "prefix": "", "count": 3}
    answer = client.post("/api/alternatives", json=given).json()
    right = OTHER.alternatives(TEXTS[0], "", 3)
    assert [one["text"] for one in answer["alternatives"]] == [one.text for one in right]
    assert set(answer["alternatives"][0]) == {"word", "text", "log_probability", "probability"}


def test_traces_and_their_maps(client: httpx.Client) -> None:
    given = {"model": "two", "source": TEXTS[0], "target": TEXTS[1]}
    right = OTHER.trace(TEXTS[0], TEXTS[1])
    shown = client.post("/api/trace", json=given)
    assert shown.headers["content-encoding"] == "gzip"
    assert shown.json()["axes"] == summary(right)["axes"]
    assert [one["name"] for one in shown.json()["maps"]] == [one.name for one in right.maps]
    for i in range(len(right.maps)):
        answer = client.post("/api/attention", json={**given, "map": i})
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.content == map_bytes(right, i)
    more = client.post("/api/trace", json={**given, "gradients": True}).json()
    assert {one["kind"] for one in more["maps"]} == {"weights", "rollout", "gradient"}
    plain = client.post("/api/attention", json={**given, "map": 0}, headers={"Accept-Encoding": ""})
    assert plain.content == map_bytes(right, 0)
    saved = client.post("/api/trace", json={"trace": "saved"}).json()
    assert saved == json.loads(json.dumps(summary(OTHER.trace(TEXTS[0]))))
    for wrong, status in (
        ({**given, "map": 99}, 404),
        ({"trace": "other", "map": 0}, 404),
        ({"model": "two", "map": 0}, 400),
        ({**given, "map": -1}, 400),
        ({"model": "two", "source": "a " * 500, "map": 0}, 400),
    ):
        answer = client.post("/api/attention", json=wrong)
        assert answer.status_code == status
        assert set(answer.json()) == {"error"}


def test_faithfulness(client: httpx.Client) -> None:
    right = faithfulness(OTHER, TEXTS[0], TEXTS[1])
    given = {"model": "two", "source": TEXTS[0], "target": TEXTS[1]}
    answer = client.post("/api/faithfulness", json=given).json()
    assert answer["words"] == len(right.dropped)
    assert answer["attended"] == pytest.approx(right.attended, abs=1e-4)
    assert answer["draws"] == right.draws
    single = client.post("/api/faithfulness", json={**given, "source": "word"})
    assert single.status_code == 400


def test_unknown_fields_are_refused(client: httpx.Client) -> None:
    answer = client.post("/api/translate", json={"text": "a", "model": "two", "nbset": 2})
    assert answer.json() == {"error": "nbset is not a field of this request"}


def test_the_page_and_nothing_beside_it(client: httpx.Client) -> None:
    page = client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "http" not in policy
    assert "unsafe" not in policy
    module = client.get("/page/main.js")
    assert module.headers["content-type"].startswith("text/javascript")
    assert module.headers["x-content-type-options"] == "nosniff"
    for name, kind in (("page.js", "text/javascript"), ("page.css", "text/css")):
        bundled = client.get(f"/page/{name}")
        assert bundled.headers["content-type"].startswith(kind)
        assert bundled.headers["content-security-policy"] == policy
        known = {"If-None-Match": bundled.headers["etag"]}
        again = client.get(f"/page/{name}", headers=known)
        assert (again.status_code, again.content) == (304, b"")
    address = client.base_url
    for path in (
        "/page/../__init__.py",
        "/page/..%2f__init__.py",
        "/page/%2e%2e/__init__.py",
        "/page//etc/passwd",
        "/page/%00",
        "/page/..\\__init__.py",
    ):
        # As raw bytes, because clients tidy such paths up.
        assert b"404" in _raw(str(address.host), int(address.port or 0), path)[:20], path


def _raw(host: str, port: int, path: str) -> bytes:
    with socket.create_connection((host, port), timeout=10) as one:
        one.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        found = b""
        while part := one.recv(65536):
            found += part
    return found


def test_exact_matches_come_from_the_memory() -> None:
    """The model translates the other texts, in order; alternatives and alignments are its own."""
    remembering = translator(max_length=24)
    remembering.memory = Memory([Entry(TEXTS[1], "Aus dem Speicher."), Entry(TEXTS[1], "Anders.")])
    texts = [*TEXTS, "", TEXTS[1]]
    plain = [one.text for one in MODEL.translate(texts)]
    expected = [plain[0], "Aus dem Speicher.", *plain[2:5], "Aus dem Speicher."]
    with serving(Served("one", remembering, "en", "de")) as client:

        def posted(**fields: object) -> list[dict[str, Any]]:
            answer = client.post("/api/translate", json={"text": texts, **fields})
            return list(answer.json()["translations"])

        found = posted()
        assert [one["text"] for one in found] == expected
        assert found[1]["memory"] == {"kind": "exact", "others": ["Anders."]}
        assert "memory" not in found[0]
        for fields in ({"memory": False}, {"nbest": 2}, {"alignments": True}):
            assert [one["text"] for one in posted(**fields)] == plain
        assert [one["text"] for one in posted(text=[TEXTS[1]])] == ["Aus dem Speicher."]
        asked = {"q": texts, "source": "en", "target": "de"}
        assert client.post("/translate", json=asked).json()["translatedText"] == expected
        asked = {**asked, "alternatives": 1}
        assert client.post("/translate", json=asked).json()["translatedText"] == plain
