"""LibreTranslate's contract: its real clients, and requests as other tools send them."""

import asyncio
import gc
import json
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from deep_translator import LibreTranslator
from libretranslatepy import LibreTranslateAPI
from pydantic import BaseModel

from heedful.basics.errors import UserError
from heedful.data.protected.pairs import Rules
from heedful.decoding import SearchOptions
from heedful.serving import Limits, Served, inspections
from heedful.serving.served import ServedModels
from heedful.serving.traces import EncodedTrace, TraceCache, TraceKey
from heedful.tasks.endpoints import Contract, Route, Search, SearchAll
from heedful.tasks.spec import spec_named
from serving_help import sentences, serving, translator

MODEL, OTHER = translator(), translator(seed=2)
TEXTS = sentences(6, seed=5)
RIGHT = [one.text for one in MODEL.translate(TEXTS)]


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    models = Served("one", MODEL, "en", "de"), Served("two", OTHER, "pt-BR", "de")
    with serving(*models, limits=Limits(characters=5_000, texts=50)) as client:
        yield client


def test_libretranslatepy(client: httpx.Client) -> None:
    api = LibreTranslateAPI(str(client.base_url))
    assert [api.translate(text, "en", "de") for text in TEXTS] == RIGHT
    # It sends its key always, if it has one.
    assert LibreTranslateAPI(str(client.base_url), "a key").translate(TEXTS[0], "en", "de")
    assert api.detect("Das ist ein kleiner Hund.")[0]["language"] == "de"
    assert api.languages() == [
        {"code": "en", "name": "English", "targets": ["de"]},
        {"code": "de", "name": "German", "targets": []},
        {"code": "pt-BR", "name": "Portuguese (Brazil)", "targets": ["de"]},
    ]


def test_deep_translator(client: httpx.Client) -> None:
    """It puts all into the query string, sends no body, and wants an address that ends in /."""
    address = str(client.base_url).rstrip("/") + "/"
    client_of = LibreTranslator("en", "de", api_key="none", custom_url=address)
    assert [client_of.translate(text) for text in TEXTS] == RIGHT
    assert client_of.translate_batch(TEXTS[:2]) == RIGHT[:2]


def test_as_weblate_sends_it(client: httpx.Client) -> None:
    """Languages once; then lists in JSON, the key always there, be it empty."""
    known = client.get("/languages").json()
    assert [one["code"] for one in known if "de" in one["targets"]] == ["en", "pt-BR"]
    given = {"api_key": "", "q": [*TEXTS, ""], "source": "en", "target": "de"}
    answer = client.post("/translate", json=given)
    assert answer.json() == {"translatedText": [*RIGHT, ""]}


def test_as_omegat_sends_it(client: httpx.Client) -> None:
    """Parameters to the full address, language codes in lower case."""
    given = {"q": TEXTS[0], "source": "pt-br", "target": "DE", "format": "text", "api_key": ""}
    expected = {"translatedText": OTHER.translate(TEXTS[:1])[0].text}
    assert client.post("/translate", data=given).json() == expected
    assert client.post("/translate", params=given).json() == expected
    assert client.post("/translate", json=given).json() == expected
    assert client.post("/translate", files={k: (None, v) for k, v in given.items()}).json() == (
        expected
    )


def test_a_model_with_placeholders_keeps_outer_white_space() -> None:
    model = translator(protect=Rules(("number",)))
    texts = ["  the cat 3", "\ta dog\t\n  a tree "]
    with serving(Served("one", model, "en", "de")) as client:
        answer = client.post("/translate", json={"q": texts, "source": "en", "target": "de"}).json()
    assert answer["translatedText"] == [one.text for one in model.translate(texts)]
    assert answer["translatedText"][0].startswith("  ")


def test_every_way_gives_the_same(client: httpx.Client) -> None:
    given = {"q": "the cat.\n\n a dog & a=b?100 % é ☃", "source": "en", "target": "de"}
    answers = [
        client.post("/translate", json=given),
        client.post("/translate", data=given),
        client.post("/translate", params=given),
        client.post("/translate", params={"target": "de", "source": "en"}, data={"q": given["q"]}),
        # What curl -d sends: JSON that says it is a form.
        client.post(
            "/translate",
            content=json.dumps(given),
            headers={"Content-Type": "application/x-www-form-urlencoded"},
        ),
    ]
    lines = [one.text for one in MODEL.translate(given["q"].split("\n"))]
    assert {answer.text for answer in answers} == {answers[0].text}
    assert answers[0].json() == {"translatedText": "\n".join(lines)}


def test_auto_says_what_it_detected(client: httpx.Client) -> None:
    english = "This is a text about the weather in our town, which is fine."
    german = "Dies ist ein Text über das Wetter in unserer Stadt, das schön ist."
    answer = client.post(
        "/translate", json={"q": [english, german], "source": "AUTO", "target": "de"}
    ).json()
    found = answer["detectedLanguage"]
    assert [one["language"] for one in found] == ["en", "de"]
    assert all(50 < one["confidence"] <= 100 for one in found)
    # What is in the target language stays as it is.
    assert answer["translatedText"] == [MODEL.translate([english])[0].text, german]
    single = client.post("/translate", data={"q": english, "source": "auto", "target": "de"}).json()
    assert single["detectedLanguage"] == found[0]
    assert set(single) == {"detectedLanguage", "translatedText"}
    empty = client.post("/translate", data={"q": "", "source": "auto", "target": "de"}).json()
    assert empty["translatedText"] == ""


def test_alternatives_only_when_asked_for(client: httpx.Client) -> None:
    given = {"q": TEXTS[0], "source": "en", "target": "de", "alternatives": 3}
    answer = client.post("/translate", json=given).json()
    options = SearchOptions(beam=4, nbest=4)
    [whole] = MODEL.translate(TEXTS[:1], options=options)
    assert answer["translatedText"] == whole.text
    assert answer["alternatives"] == [
        text for text in dict.fromkeys(one.text for one in whole.alternatives) if text != whole.text
    ]
    listed = client.post("/translate", json={**given, "q": TEXTS[:2]}).json()
    assert listed["alternatives"][0] == answer["alternatives"]
    assert len(listed["alternatives"]) == 2
    as_form = client.post("/translate", data={**given, "alternatives": "3"}).json()
    assert as_form == answer


@pytest.mark.parametrize(
    ("given", "status", "said"),
    [
        ({"source": "en", "target": "de"}, 400, "q is missing"),
        ({"q": "a", "target": "de"}, 400, "source is missing"),
        ({"q": 5, "source": "en", "target": "de"}, 400, "q: input should be a text or a list"),
        ({"q": ["a", None], "source": "en", "target": "de"}, 400, "q: input should be a text"),
        ({"q": "a", "source": "en", "target": "xx"}, 400, "xx is not supported; languages: en, de"),
        ({"q": "a", "source": "", "target": "de"}, 400, "an empty code is not supported"),
        ({"q": "a", "source": "de", "target": "en"}, 400, "no model translates de to en"),
        ({"q": "<b>a</b>", "source": "en", "target": "de", "format": "xml"}, 400, "format"),
        ({"q": "a", "source": "en", "target": "de", "format": "pdf"}, 400, "format: input should"),
        ({"q": "a", "source": "en", "target": "de", "alternatives": -1}, 400, "alternatives: "),
        ({"q": "a", "source": "en", "target": "de", "alternatives": 99}, 400, "the maximum is 15"),
        ({"q": "a" * 5_001, "source": "en", "target": "de"}, 400, "5,001 characters; the maximum"),
        ({"q": ["a"] * 51, "source": "en", "target": "de"}, 400, "q: 51 values; the maximum"),
        ({"q": "a\ud800", "source": "en", "target": "de"}, 400, "Unicode at character 1"),
        ({"q": "a", "source": "e\nn\ud800", "target": "de"}, 400, r"e\nn\ud800 is not supported"),
    ],
)
def test_what_is_wrong_is_said(
    client: httpx.Client, given: dict[str, object], status: int, said: str
) -> None:
    answer = client.post("/translate", content=json.dumps(given))
    assert answer.status_code == status
    assert set(answer.json()) == {"error"}
    assert said in answer.json()["error"]
    assert "\n" not in answer.json()["error"]


def test_the_language_s_own_code_counts_before_another_variety() -> None:
    models = ServedModels([Served("a", MODEL, "de-x-2", "en"), Served("b", MODEL, "de", "fr")])
    assert [models.code(code) for code in ("de-DE", "de_x_2", "DE", "en-US", "xx")] == [
        "de",
        "de-x-2",
        "de",
        "en",
        None,
    ]


def test_caches_do_not_keep_models_that_were_replaced() -> None:
    models = ServedModels([Served("one", MODEL)])
    handler: Any = SimpleNamespace(models=models)
    caches = TraceCache(handler, {}), inspections._Equations(handler)
    old = weakref.ref(models.models[0])
    models.replace([Served("one", OTHER)])
    gc.collect()
    assert old() is None, caches


def test_a_cache_forgets_traces_of_models_that_were_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = iter([b"old", b"new"])

    async def compute(_cache: TraceCache, _request: Any, _key: TraceKey) -> EncodedTrace:
        return EncodedTrace(next(found), ())

    monkeypatch.setattr(TraceCache, "_compute", compute)
    models = ServedModels([Served("one", MODEL)])
    handler: Any = SimpleNamespace(models=models)
    request: Any = None
    cache, key = TraceCache(handler, {}), TraceKey(None, "one")
    before = [asyncio.run(cache.get(request, key)).summary for _ in range(2)]
    models.replace([Served("one", OTHER)])
    assert [*before, asyncio.run(cache.get(request, key)).summary] == [b"old", b"old", b"new"]


def test_codes_of_a_region_mean_the_only_language_there_is(client: httpx.Client) -> None:
    for code in ("en_US", "EN-gb", "en"):
        given = {"q": TEXTS[0], "source": code, "target": "de-AT"}
        assert client.post("/translate", data=given).json()["translatedText"] == RIGHT[0]


def test_settings_health_figures_and_what_is_not_there(client: httpx.Client) -> None:
    settings = client.get("/frontend/settings").json()
    assert settings["charLimit"] == 5_000
    assert settings["keyRequired"] is False
    assert settings["language"]["source"] == {"code": "en", "name": "English"}
    assert client.get("/health").json() == {"status": "ok"}
    figures = client.get("/metrics")
    assert figures.headers["content-type"].startswith("text/plain")
    assert 'heedful_requests_total{path="/health",status="200"}' in figures.text
    assert "heedful_slice_items_bucket" in figures.text
    described = client.get("/spec").json()
    assert {"/translate", "/detect", "/languages", "/api/translate"} <= set(described["paths"])
    for method, path, status in (("GET", "/translate", 405), ("GET", "/nothing", 404)):
        answer = client.request(method, path)
        assert answer.status_code == status
        assert set(answer.json()) == {"error"}


def test_any_task_can_add_a_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Served("one", MODEL, "en", "de")

    class Asked(BaseModel):
        text: str

    async def mirrored(asked: Asked, search: SearchAll) -> dict[str, str]:
        if not asked.text:
            raise UserError("nothing to mirror")
        [[found]] = await search([(model, Search([asked.text], MODEL.options))])
        return {"mirrored": asked.text[::-1], "translation": found.text}

    contract = Contract("mirrors", [Route("/mirror", mirrored, dict[str, str], Asked)])
    monkeypatch.setattr(type(spec_named("tagging")), "contracts", lambda self, server: [contract])
    with serving(model) as client:
        answer = client.post("/mirror", data={"text": "the cat."})
        assert answer.json() == {
            "mirrored": ".tac eht",
            "translation": MODEL.translate(["the cat."])[0].text,
        }
        refused = client.post("/mirror", json={"text": ""})
        assert (refused.status_code, refused.json()["error"]) == (400, "nothing to mirror")
        assert client.get("/spec").json()["paths"]["/mirror"]["post"]["tags"] == ["mirrors"]
