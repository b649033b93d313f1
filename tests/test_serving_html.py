"""``format: html``: fragments come back with the same markup, whatever a model writes."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.data.documents.html import HtmlDocument
from heedful.data.documents.html_tokens import tokens
from heedful.data.memory import Entry, Memory
from heedful.data.protected.known import KnownSpans
from heedful.data.protected.pairs import Rules
from heedful.data.protected.rules import VOID
from heedful.decoding import SearchOptions
from heedful.inference.protection import Protection
from heedful.inference.translation import Translation
from heedful.serving import Limits, Served
from heedful.serving.served import ServedModels
from heedful.tasks.endpoints import Search
from heedful.tasks.translation.libretranslate import LibreTranslate, TranslateRequest
from serving_help import TOKENISERS, serving, translator

PROTECTED = translator(protect=Rules(("tags", "number")))
PLACED = translator(seed=2)
FRAGMENTS = [
    "<p>the <b>red</b> cat <i>sat</i> on the mat.</p>",
    "the cat. <b>a dog. the tree.</b> the <a href='u'>mat</a>.",
    "<ul><li>a cat<li>a <em>small</em> dog</ul>",
    "no markup & none &amp; more",
    "",
    "<br>",
]


class Written(LibreTranslate):
    """The contract with a function in place of a model."""

    def __init__(self, write: Callable[[str], str], **of_predictor: Any) -> None:
        protection = Protection(TOKENISERS, Rules(()))
        default = {"options": SearchOptions(), "memory": None, "protection": protection}
        self.searches: list[Search] = []
        self.write = write
        model = Served(
            "one", SimpleNamespace(**{**default, **of_predictor}), "en", "de", "aligning"
        )
        models = ServedModels.__new__(ServedModels)
        models.models, models.pairs, models.codes = [model], {("en", "de"): model}, ["en", "de"]
        server: Any = SimpleNamespace(
            models=models,
            limits=Limits(),
            needs_key=False,
            check_texts=lambda texts: None,
            shared_files=None,
        )
        super().__init__(server)

    async def _search(self, searches: Sequence[tuple[Any, Search]]) -> list[list[Translation]]:
        self.searches += [search for _, search in searches]
        return [[Translation(t, self.write(t)) for t in search.texts] for _, search in searches]

    def html(self, text: str, **fields: Any) -> str:
        """The translation of a fragment."""
        fields = {"source": "en", "target": "de", "format": "html", **fields}
        request = TranslateRequest(q=text, **fields)
        return cast(str, asyncio.run(self.translate(request, self._search))["translatedText"])


def tags(text: str) -> list[str]:
    """Names of tags, and comments and scripts as they are."""
    shown = {"start": "{}", "end": "/{}"}
    return [
        shown[one.kind].format(one.name) if one.kind in shown else text[one.start : one.end]
        for one in tokens(text)
        if one.kind != "text"
    ]


def nests(names: Sequence[str]) -> bool:
    """Whether tags open and close like brackets."""
    opened: list[str] = []
    for name in names:
        if name.startswith("/"):
            if not opened or opened.pop() != name[1:]:
                return False
        elif not name.startswith("<") and name not in VOID:
            opened.append(name)
    return not opened


def upper_words(text: str) -> str:
    """Capital letters outside of tags."""
    parts: list[str] = []
    for one in tokens(text):
        own = text[one.start : one.end]
        parts.append(own.upper() if one.kind == "text" else own)
    return "".join(parts)


@pytest.mark.parametrize(
    ("fragment", "expected"),
    [
        ("<p>A <b>big</b> dog</p>", "<p>A <b>BIG</b> DOG</p>"),
        ("fish &amp; chips 3 &lt; 5", "FISH &amp; CHIPS 3 &lt; 5"),
        ("a&nbsp;b &hellip; é", "A&nbsp;B &hellip; É"),
        ("<!-- note --><p>x <!-- y --> z</p>", "<!-- note --><p>X <!-- y --> Z</p>"),
        ("<script>let a = 1</script><p>x</p>", "<script>let a = 1</script><p>X</p>"),
        ("<style>p { }</style>x", "<style>p { }</style>X"),
        ('see <span translate="no">Acme</span> x', 'SEE <span translate="no">Acme</span> X'),
        ('<i class="a notranslate">Acme</i> x', '<i class="a notranslate">Acme</i> X'),
        ('<p class=notranslate>Acme</p><p>x', '<p class=notranslate>Acme</p><p>X'),
        ("<div><h1>a</h1><ul><li>b<li>c</ul></div>", "<div><h1>A</h1><ul><li>B<li>C</ul></div>"),
        ('<img src=a alt="a dog">', '<img src=a alt="A DOG">'),
        ("one<br/>two", "ONE<br/>TWO"),
        ("12 <b>34</b>", "12 <b>34</b>"),
        ("  <p> a </p>\r\n\r\n ", "  <p> A </p>\r\n\r\n "),
        ("<b>a <i>b</b> c</i>", "<b>A <i>B</b> C</i>"),  # broken: comes back without loss
        ("a < b <", "A &lt; B &lt;"),
        ("</p>a<p", "</p>A<p"),
        ("<p title='x", "<p title='x"),
        ("\ufeff<p>a</p>", "\ufeff<p>A</p>"),
        ('<meta charset="utf-16"><p>é</p>', '<meta charset="utf-16"><p>É</p>'),
        ("<pre>a</pre><code>b</code> c", "<pre>a</pre><code>b</code> C"),
    ],
)  # fmt: skip
def test_words_change_and_markup_stays(fragment: str, expected: str) -> None:
    assert Written(upper_words).html(fragment) == expected
    assert Written(lambda text: text).html(fragment) == fragment


def test_a_model_that_loses_tags_translates_the_words_between_them() -> None:
    api = Written(lambda text: "".join(c for c in text.upper() if c not in "<>/"))
    assert api.html("<p>A <b>big</b> dog 7 <i>9</i>.</p>") == "<p>A <b>BIG</b> DOG 7 <i>9</i>.</p>"
    first, second = api.searches
    assert list(first.texts) == ["A <b>big</b> dog 7 <i>9</i>."]
    assert list(second.texts) == ["A", "big", "dog 7"]


PARTS = st.sampled_from([
    "a", "b c", ".", ", ", "&amp;", "&lt;b&gt;", "<b>", "</b>", "<i class='x y'>", "</i>", "<p>",
    "</p>", "<br>", "<!-- c -->", "<", ">", "&", "\n", '<a href="u" title="t u">', "</a>",
    "<script>s</script>", "<li>", "</ul>", "<td", "{{ x }}", "%s", "⟦0⟧", "⟦32⟧", "\0", "é",
    "<span translate=no>", "</span>", "<textarea>", "</textarea>", "<img alt=x>",
])  # fmt: skip
FRAGMENT = st.lists(PARTS, max_size=14).map("".join)


@settings(deadline=None, max_examples=200)
@given(fragment=FRAGMENT, data=st.data())
def test_any_fragment_and_any_words_of_a_model(fragment: str, data: st.DataObject) -> None:
    """The tags are the same ones, and nest if those of the source do."""

    def write(text: str) -> str:
        pieces = HtmlDocument(text.encode(), "a", "utf-8").text.split(" ")
        order = data.draw(st.permutations([*pieces, *data.draw(st.lists(PARTS, max_size=3))]))
        return " ".join(order[: data.draw(st.integers(0, len(order)))])

    own = tags(fragment)
    found = tags(Written(write).html(fragment))
    assert Counter(found) == Counter(own)
    assert nests(found) or not nests(own)


@pytest.mark.parametrize("model", [PROTECTED, PLACED], ids=["placeholders", "alignment"])
def test_a_server_keeps_the_markup(model: Any) -> None:
    with serving(Served("one", model, "en", "de")) as client:
        fields = {"source": "en", "target": "de", "format": "html"}
        answer = client.post("/translate", json={"q": FRAGMENTS, **fields}).json()
        assert list(answer) == ["translatedText"]
        found = answer["translatedText"]
        for fragment, one in zip(FRAGMENTS, found, strict=True):
            assert Counter(tags(one)) == Counter(tags(fragment))
            assert nests(tags(one)) == nests(tags(fragment))
        assert found[4:] == FRAGMENTS[4:]
        assert found[0] != FRAGMENTS[0]
        more = client.post("/translate", data={"q": FRAGMENTS[0], "alternatives": 3, **fields})
        texts = [more.json()["translatedText"], *more.json()["alternatives"]]
        # A model without placeholders has an alignment of its best translation only.
        assert len(set(texts)) == len(texts) > (model is PROTECTED)
        assert {tuple(sorted(tags(one))) for one in texts} == {tuple(sorted(tags(FRAGMENTS[0])))}


def test_the_words_decide_the_language() -> None:
    german = "<p lang=x-the-english-of-the-day>Das ist <b>ein kleiner</b> Hund.</p>"
    with serving(Served("one", PROTECTED, "de", "en")) as client:
        given = {"q": german, "source": "auto", "target": "en", "format": "html"}
        answer = client.post("/translate", json=given).json()
        assert answer["detectedLanguage"]["language"] == "de"
        same = client.post("/translate", json={**given, "target": "de"}).json()
        assert same["translatedText"] == german


def test_matches_are_used_if_they_have_the_markup() -> None:
    memory = Memory([
        Entry("a <b>dog</b>", "ein <b>Hund</b>"),
        Entry("a <b>cat</b>", "eine Katze"),
        Entry("fish & chips", "Fisch & Chips"),
    ])  # fmt: skip
    api = Written(upper_words, memory=memory)
    given = "<p>a <b>dog</b></p><p>a <b>cat</b></p><p>fish &amp; chips"
    expected = "<p>ein <b>Hund</b></p><p>A <b>CAT</b></p><p>Fisch &amp; Chips"
    assert api.html(given) == expected


def test_parts_of_texts_have_their_spans() -> None:
    text = "Say <b>this</b>. Then <b>that</b>."
    spans = [[(4, 7), (11, 15)], [(22, 25), (29, 33)]]
    known = KnownSpans([text, "no"], {"<i>": [[(0, 3)]], text: spans})
    assert known.of("Then <b>that</b>.") == [[(5, 8), (12, 16)]]
    assert known.of("<b>that") == [[(0, 3)]]
    assert known.of("<i>") == [[(0, 3)]]
    assert list(known.of("no")) == list(known.of("absent")) == list(known.of("\0")) == []


@pytest.mark.parametrize(
    "fragment",
    [
        "<b>a" * 20_000,
        "<b>a</b>" * 10_000,
        "".join(f"<b id={i}>a</b>" for i in range(6_000)),
        "".join(f"<i{i}>a. " for i in range(8_000)),
        "<p>" + "<" * 90_000,
        "<b>a</b>. <p>" * 7_000,
    ],
    ids=["open", "pairs", "different", "names", "signs", "paragraphs"],
)
def test_adverse_fragments_take_little_time(fragment: str) -> None:
    began = time.process_time()
    api = Written(lambda text: text[::-1])
    assert Counter(tags(api.html(fragment))) == Counter(tags(fragment))
    assert time.process_time() - began < 4
