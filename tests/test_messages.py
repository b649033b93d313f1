"""The branches of ICU messages are segments of their own."""

import json
import random
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.data.documents import open_document
from heedful.data.documents.branches import with_branches
from heedful.data.memory import Entry, Memory
from heedful.data.protected.messages import Choice, Message, Piece
from heedful.data.protected.numbers import locale_of
from heedful.data.protected.pairs import Rules
from heedful.data.units import Unit
from heedful.evaluation.checks import check_units
from heedful.inference.document_files import translate_document
from heedful.serving import Served
from serving_help import serving, translator

FILES = "{n, plural, one {# file} other {# files}}"


def upper(text: str) -> str:
    """The text in capitals, without its arguments."""
    return re.sub(
        r"\{[^{}]*\}|([^{}]+)", lambda found: found[0].upper() if found[1] else found[0], text
    )


@pytest.mark.parametrize(
    ("text", "language", "joined"),
    [
        (FILES, "de", "{n, plural, one {# FILE} other {# FILES}}"),
        (FILES, "ja", "{n, plural, other {# FILES}}"),
        (FILES, "qqq", "{n, plural, one {# FILE} other {# FILES}}"),
        # A branch without the number is for 1 only; in Russian, "one" is also 21.
        (
            "{n, plural, =0 {none} one {a file} other {# files}}",
            "ru",
            "{n, plural, =1 {A FILE} =0 {NONE} one {# FILES} few {# FILES} many {# FILES} "
            "other {# FILES}}",
        ),
        (
            "In {where}: { g , select , male{his} other{their {n,number}} }!",
            "pl",
            "IN {where}: { g , select , male{HIS} other{THEIR {n,number}} }!",
        ),
        ("{n, selectordinal, one {#st day} other {#th day}}", "de", None),
        ("{g, select, other {it''s '{x}' {n}}}", "de", "{g, select, other {IT''S '{x}' {n}}}"),
        ("it's {g, select, other {so}}", "de", "IT'S {g, select, other {SO}}"),
        (
            "{n} of {n, plural, other {# and {m, plural, other {#}}}}",
            "de",
            "{n} OF {n, plural, one {# AND {m, plural, one {#} other {#}}} "
            "other {# AND {m, plural, one {#} other {#}}}}",
        ),
    ],
)
def test_messages_get_the_categories_of_the_language(
    text: str, language: str, joined: str | None
) -> None:
    message = Message.parse(text)
    assert message is not None
    assert message.joined(upper, language) == (joined or "{n, selectordinal, other {#TH DAY}}")
    assert message.joined(lambda piece: None, None) == text
    assert message.joined(lambda piece: f"{piece} {{new}} #", None) == text


@pytest.mark.parametrize(
    "text",
    [
        "{n, plural, one {x}}",
        "{{n}} {n, plural, other {x}}",
        "{n, plural, few {x} few {y} other {z}}",
        "{n, plural, some {x} other {z}}",
        "{n, plural, other {x",
        "{g, select, other {so'}}",
        "{g, select, other {x}} }",
        "{n} files",
        "{a, select, other {" * 9 + "x" + "}}" * 9,
        "{a, select, other {x}}" * 25,
    ],
)
def test_malformed_messages_and_other_texts_stay_whole(text: str) -> None:
    assert Message.parse(text) is None


WORDS = st.text("ab '#|\n", max_size=6)
KEYS = {
    "plural": ["=0", "=1", "zero", "one", "two", "few", "many"],
    "selectordinal": ["=7", "one", "two", "few"],
    "select": ["male", "female", "x-1"],
}


@st.composite
def messages(draw: st.DrawFn, depth: int = 0) -> str:
    parts = [draw(WORDS).replace("'", "''")]
    for _ in range(draw(st.integers(int(depth == 0), 2))):
        kind = draw(st.sampled_from(["argument", "quoted", *([] if depth > 2 else KEYS)]))
        name = draw(st.sampled_from(["n", "m", "0"]))
        if kind == "argument":
            parts.append(draw(st.sampled_from([f"{{{name}}}", f"{{ {name}, number, ::x }}"])))
        elif kind == "quoted":
            parts.append("'{it''s}' ")
        else:
            keys = [*draw(st.lists(st.sampled_from(KEYS[kind]), unique=True)), "other"]
            inside = [f"{key} {{{draw(messages(depth=depth + 1))}}}" for key in keys]
            parts.append(f"{{{name}, {kind}, {' '.join(inside)}}}")
        parts.append(draw(WORDS).replace("'", "''"))
    return "".join(parts)


def shape(piece: Piece, language: str | None) -> str:
    """The arguments of a piece and its branches, with the categories of a language."""
    simple = sorted(text for text, is_span in piece.parts if is_span and text not in piece.choices)
    choices = (choice_shape(choice, language) for choice in piece.choices.values())
    return repr((simple, sorted(choices)))


def choice_shape(choice: Choice, language: str | None) -> str:
    keys = {branch.key for branch in choice.branches}
    locale = None if language is None or choice.kind == "select" else locale_of(language)
    if locale is not None:
        rule = locale.plural_form if choice.kind == "plural" else locale.ordinal_form
        keys = {key for key in keys if key[0] == "="} | set(rule.tags) | {"other"}
    same = [
        shape(branch.text, language)
        for branch in choice.branches
        if choice.kind == "select" or branch.key == "other"
    ]
    return repr((choice.name, choice.kind, sorted(keys - {"=1"}), same))


@settings(max_examples=150, deadline=None)
@given(messages(), st.sampled_from(["de", "pl", "ja", "fr", "ar"]), st.randoms())
def test_any_words_give_a_message_with_the_same_arguments(
    text: str, language: str, chance: random.Random
) -> None:
    message = Message.parse(text)
    if message is None:
        assert not re.search("plural|select", text) or "''''" in text or "'{it" in text
        return
    assert message.joined(lambda piece: None, None).count("{") == text.count("{")

    def words(piece: str) -> str:
        parts = re.findall(r"'\{it'{1,2}s\}'|\{[^{}]*\}|.", piece, re.DOTALL)
        chance.shuffle(parts)
        return "".join(parts) + chance.choice(["", "'", "''", " x", "}", "{", "#", "|"])

    joined = message.joined(words, language)
    again = Message.parse(joined)
    assert again is not None, joined
    assert shape(message.root, language) == shape(again.root, None)


def test_documents_are_filled_branch_by_branch(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    whole = "{n, plural, one {# dog} other {# dogs}}"
    path.write_text(json.dumps({"a": f"You have {FILES}.", "b": "Open", "c": whole}), "utf-8")
    document = open_document(path)
    assert document is not None
    rules, memory = Rules(("icu", "brace"), "en", "pl"), Memory([Entry(whole, "known")])
    assert with_branches(document, None, None) is with_branches(document, Rules(()), None)
    model = translator(protect=rules)
    split = with_branches(document, rules, memory)
    assert split.segments == ["You have {n}.", "# file", "# files", "Open", whole]
    assert [split.accepts(*one) for one in ((0, "{n}!"), (0, "n!"), (1, "x"))] == [
        True,
        False,
        False,
    ]
    out = tmp_path / "b.json"
    found = translate_document(model, split, out, options=model.options, memory=memory)
    assert len(found) == len(split.segments)
    written = json.loads(out.read_text("utf-8"))
    assert written["c"] == "known"
    message = Message.parse(written["a"])
    assert message is not None
    (choice,) = message.root.choices.values()
    assert [branch.key for branch in choice.branches] == ["one", "few", "many", "other"]
    assert all(branch.text.whole.count("#") == 1 for branch in choice.branches)
    assert all(one.text in written["a"] for one in found[1:3])


def test_an_apostrophe_before_an_argument_or_the_end_of_a_branch_opens_no_quote() -> None:
    message = Message.parse("{n, plural, other {ab {m}}}")
    assert message is not None
    joined = message.joined(lambda text: "l'ab '{m} b'", None)
    assert joined == "{n, plural, other {l'ab ''{m} b''}}"


def test_the_server_fills_branches() -> None:
    model = translator(protect=Rules(("icu", "brace"), "en", "pl"))
    with serving(Served("one", model, "en", "pl")) as client:
        answer = client.post(
            "/translate_file",
            files={"file": ("a.json", json.dumps({"a": FILES}))},
            data={"source": "en", "target": "pl"},
        )
        written = client.get(answer.json()["translatedFileUrl"]).json()["a"]
    message = Message.parse(written)
    assert message is not None
    (choice,) = message.root.choices.values()
    assert [branch.key for branch in choice.branches] == ["one", "few", "many", "other"]


@pytest.mark.parametrize(
    ("target", "findings"),
    [
        ("{n, plural, one {# plik} few {# pliki} many {# plików} other {# pliku}} {x}", []),
        ("{n, plural, =1 {plik} other {# pliku}} {x}", [("placeholders", "missing #")]),
        ("{n, plural, other {# pliku {x}}}", [("placeholders", "missing {x}")]),
        ("{m, plural, other {# pliku}} {x}", None),
    ],
)
def test_branches_are_checked(target: str, findings: list[tuple[str, str]] | None) -> None:
    unit = Unit("1", "{n, plural, one {# file} other {# files}} {x}", target)
    ((_, found),) = check_units([unit], Rules(("icu", "brace")))
    serious = [(one.check, one.detail) for one in found if one.serious]
    if findings is None:
        assert serious
    else:
        assert serious[: len(findings) or None] == findings


def test_check_accepts_a_translated_message() -> None:
    source = "{g, select, male {his {n, plural, one {a file} other {# files}}} other {none}}"
    message = Message.parse(source)
    assert message is not None
    for language in ("de", "ru", "ar", "ja"):
        unit = Unit("1", source, message.joined(upper, language))
        ((_, found),) = check_units([unit], Rules(("icu", "brace")))
        assert not [one for one in found if one.serious]
