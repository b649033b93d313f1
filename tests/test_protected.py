"""Protected spans: found, replaced on both sides of a pair, put back."""

import time
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.basics.errors import UserError
from heedful.data.examples import Pair
from heedful.data.protected.choosing import ALWAYS, usual_rules
from heedful.data.protected.numbers import localise
from heedful.data.protected.pairs import Rules, protect_both, protect_pair, protect_training_pair
from heedful.data.protected.rules import NAMES, check_rules, matches, may_match
from heedful.data.protected.spans import find_spans, protect

TEXTS = [
    'Open <a href="x y">%s</a> & 100% sure &amp; {name}: https://x.org/a?b=c. 1,234.56 items',
    ":ref:`the text <label>` and ``code`` with **bold :func:`x`** and *emph* `Python <http://p.org>`_",
    "{count, plural, one {# file in <b>{name}</b>} other {# files}} left",
    "a_b foo() camelCase /usr/bin --no-check x86 3 and 2024-01-02 v2.0",
    "<a><b>x</a></b> [link](http://a.b) **b** %1$s %(n)d ⟦3⟧ \\n %% 50%.",
    "",
    "plain words only, nothing to keep",
    "{" * 50 + "<" * 50 + "`" * 50,
]


@pytest.mark.parametrize(
    ("rule", "text", "spans"),
    [
        (
            "printf",
            "%d of %5.2f%% for %(user)s, %r and %1$s in %.3fs or %dm",
            ["%d", "%5.2f", "%%", "%(user)s", "%r", "%1$s", "%.3f", "%d"],
        ),
        ("printf", "100 % sure, 50% off, 50%off", []),
        ("brace", "{0} {name!r:>10} ${HOME} {{count}} $t(key)", None),
        ("brace", "a {literal set} of words", []),
        ("qt", "%1 of %n files, %L2", ["%1", "%n", "%L2"]),
        ("tags", '<b class="x">bold</b><br/>', ['<b class="x">', "</b>", "<br/>"]),
        ("tags", "a < b and c > d", []),
        ("entity", "&lt; &#160; & co", ["&lt;", "&#160;"]),
        ("url", "see https://a.org/b_(c). Or www.d.org", ["https://a.org/b_(c", "www.d.org"]),
        ("email", "write to me+x@a-b.org.", ["me+x@a-b.org"]),
        ("rest", "use :func:`len` or ``x``::", [":func:`len`", "``x``", "::"]),
        ("rest", "*one* and **two**", ["*", "*", "**", "**"]),
        ("rest", "2*3*4", []),
        ("markdown", "[text](http://a.b) `x`", ["[", "](http://a.b)", "`x`"]),
        ("number", "in 2024, 1,234.5 or 7 of 12:30", ["2024", "1,234.5", "7", "12:30"]),
        ("path", "/usr/bin and C:\\Temp\\x --no-check well--known", None),
        ("identifier", "in version 3.14. Not 3.14", ["3.14"]),
        ("identifier", "call foo_bar() with camelCase, UTF-8 and x86, not Word", None),
        ("icu", "{n, plural, =0 {none} other {# files}}", None),
        ("/ACME-\\d+/", "ACME-12 and ACME", ["ACME-12"]),
    ],
)
def test_what_a_rule_finds(rule: str, text: str, spans: list[str] | None) -> None:
    expected = {
        "brace": ["{0}", "{name!r:>10}", "${HOME}", "{{count}}", "$t(key)"],
        "path": ["/usr/bin", "C:\\Temp\\x", "--no-check"],
        "identifier": ["foo_bar()", "camelCase", "UTF-8", "x86"],
        "icu": ["{n, plural, =0 {", "} other {", "#", "}}"],
    }
    found = [text[span.start : span.end] for span in find_spans(text, [rule])]
    assert found == (expected[rule] if spans is None else spans)


@pytest.mark.parametrize("text", TEXTS)
def test_what_is_replaced_is_put_back(text: str) -> None:
    for rules in (NAMES, [name for name in NAMES if name != "rest"], ["tags"]):
        found = protect(text, rules, first=29)
        assert found.restore(found.text) == text
        assert found.is_kept(found.text)


def test_too_many_spans_stay_as_text() -> None:
    text = " ".join(f"%({name})s" for name in range(40)) + " <b>x</b>" * 20
    found = protect(text, ["printf", "tags"])
    assert found.restore(found.text) == text
    assert found.left == 16 + 8
    assert len(found.spans) == 56


def test_order_of_chains() -> None:
    found = protect("<b>a <i>b</i></b> %s", ["tags", "printf"])
    outer, inner, inner_end, outer_end, single = (number for number in found.spans)
    as_text = "⟦{}⟧".format
    good = [single, outer, inner, inner_end, outer_end]
    for order, kept in (
        (good, True),
        ([outer, outer_end, inner, inner_end, single], True),
        ([outer, inner, outer_end, inner_end, single], False),
        ([inner_end, outer, inner, outer_end, single], False),
        (good[1:], False),
        ([*good, single], False),
    ):
        assert found.is_kept(" ".join(map(as_text, order))) == kept


def test_pairs_have_the_same_placeholders_where_both_have_the_span() -> None:
    rules = Rules(("printf", "tags", "number"), "en", "de")
    pair = Pair("<b>%s</b> costs 1,234.5 (%d)", "Der Preis von <b>%s</b> ist 1.234,5")
    found = protect_pair(pair, rules)
    assert found.source == "⟦32⟧⟦0⟧⟦33⟧ costs ⟦1⟧ (%d)"
    assert found.target == "Der Preis von ⟦32⟧⟦0⟧⟦33⟧ ist ⟦1⟧"
    source, target = protect_both(pair, rules, first=99)
    assert source.restore(source.text) == pair.source
    assert target.restore(target.text) == pair.target


def test_a_span_that_one_side_repeats_stays_as_text() -> None:
    rules = Rules(("printf",))
    assert protect_pair(Pair("%s and %s", "%s"), rules) == Pair("%s and %s", "%s")
    assert protect_pair(Pair("%s", "none"), rules) == Pair("%s", "none")


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("Der *Hund* hat %s", "Der Hund hat ⟦0⟧"),
        ("Der *Hund %s* rennt", "Der Hund ⟦0⟧ rennt"),
        ("Der Hund hat %s und %d", None),
        ("Der Hund hat %s, ``x``", None),
        ("Der Hund hat %s ⟦9⟧", None),
        ("Der Hund", "Der Hund"),
    ],
)
def test_a_target_with_spans_of_its_own_is_no_example(target: str, expected: str | None) -> None:
    found = protect_training_pair(Pair("The dog has %s", target), Rules(("printf", "rest")))
    assert (None if found is None else found.target) == expected


def test_numbers_of_the_source_are_those_of_the_target() -> None:
    rules = Rules(("number",), "en", "de")
    found = rules.protect("1,234.5 of 2.0.1 on 12:30")
    assert found.restore(found.text) == "1.234,5 of 2.0.1 on 12:30"


@pytest.mark.parametrize(
    ("number", "source", "target", "expected"),
    [
        ("1,234,567.8", "en", "fr", "1\u202f234\u202f567,8"),
        ("1.234,5", "de", "en-US", "1,234.5"),
        ("1\u202f234,5", "fr", "en", "1,234.5"),
        ("1 234,5", "fr", "en", "1,234.5"),
        ("3.11.2", "en", "de", "3.11.2"),
        ("2024-01-02", "en", "de", "2024-01-02"),
        ("12:30", "en", "de", "12:30"),
        ("1,234", "en", None, "1,234"),
        ("1,234", "en", "xx-unknown", "1,234"),
        ("−1,5", "de", "en", "−1.5"),
    ],
)
def test_numbers_by_the_cldr(number: str, source: str, target: str | None, expected: str) -> None:
    assert localise(number, source, target) == expected


@pytest.mark.parametrize("rule", ["pritnf", "/(/", "//", "/x*/", "x+"])
def test_rules_that_are_none_are_refused(rule: str) -> None:
    with pytest.raises(UserError, match=r"data\.protect"):
        check_rules(["tags", rule])


def test_rules_for_a_corpus_are_those_that_it_needs() -> None:
    plain = [("One word", "Ein Wort")] * 100
    assert usual_rules(plain) == [name for name in NAMES if name in ALWAYS]
    docs = [("Use :func:`len`", "Nutze :func:`len`")] * 3 + plain
    assert Counter(usual_rules(docs)) - Counter(usual_rules(plain)) == Counter(["rest"])
    assert "qt" in usual_rules([("%1 files", "%1 Dateien")] * 3 + plain)


def test_percent_signs_in_a_format_string_are_escaped() -> None:
    rules = Rules(("printf",))
    assert rules.protect("%d files").restore("⟦0⟧ Dateien, 5 %") == "%d Dateien, 5 %%"
    assert rules.protect("100 % of %d files").restore("100 % von ⟦0⟧") == "100 % von %d"
    assert rules.protect("all files").restore("100 %") == "100 %"


@pytest.mark.parametrize("first", [0, 5, 6, 63])
def test_spans_without_a_name_have_increasing_numbers(first: int) -> None:
    found = protect("%s of %d, %(name)s {}", ["printf", "brace"], first)
    numbers = {text: number for number, text in found.spans.items()}
    assert 24 <= numbers["%s"] < numbers["%d"] < numbers["{}"] < 32
    assert numbers["%(name)s"] < 24
    swapped = f"⟦{numbers['%d']}⟧ ⟦{numbers['%s']}⟧ ⟦{numbers['{}']}⟧ ⟦{numbers['%(name)s']}⟧"
    assert found.is_kept(found.text)
    assert not found.is_kept(swapped)


@given(
    st.lists(
        st.sampled_from([*"a1B_%{}<>/\\@&;:`*|[]()$~.-,#⟦⟧n s!٥", "http://", "{n, plural, one {"])
    ).map("".join)
)
def test_what_cannot_match_does_not(text: str) -> None:
    for rule in NAMES:
        assert may_match(set(text), rule) or not list(matches(text, rule)), rule


def test_long_words_take_linear_time() -> None:
    began = time.process_time()
    for text in ("A" * 100_000, "Ab1" * 30_000, "a.b" * 20_000, ":a" * 20_000, "&a" * 50_000):
        find_spans(text, NAMES)
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("email", "@ " + "a" * 100_000),
        ("printf", "%" + "0" * 50_000),
        ("printf", "%(a)" + "0" * 50_000),
        ("tags", "<!--" * 25_000),
        ("rest", "`" + " " * 100_000),
        ("rest", ":a:`" + " " * 100_000),
        ("icu", "{a,select,b{" * 5_000),
        ("icu", "{a,plural,offset:" + "1" * 100_000),
    ],
    ids=lambda value: value[:20],
)
def test_text_without_a_match_is_read_once(rule: str, text: str) -> None:
    assert list(matches(text, rule)) == []  # where each start read the rest: half a minute


def test_icu_arguments_in_arguments_are_read_once() -> None:
    found = list(matches("{a,select,b{#" * 5_000 + "}}" * 5_000, "icu"))
    assert len(found) == 2 * 5_000


def test_comments_end_where_the_last_one_ends() -> None:
    text = "<!-- <b> --> <i> <!-- <b>x</b>"
    assert [text[a:b] for chain in matches(text, "tags") for a, b in chain] == [
        "<!-- <b> -->",
        "<i>",
        "<b>",
        "</b>",
    ]


def test_addresses_beside_each_other() -> None:
    text = "a@b.c+d@e.f, x@y@z.org."
    found = [text[a:b] for chain in matches(text, "email") for a, b in chain]
    assert found == ["a@b.c", "+d@e.f", "y@z.org"]


@pytest.mark.parametrize(
    ("source", "translation", "expected"),
    [
        ("Use 8 columns", "Spalten⟦0⟧ nutzen", "Spalten 8 nutzen"),
        ("Use 8 columns", "⟦0⟧Spalten", "8 Spalten"),
        ("Use x8 columns", "⟦0⟧ Spalten", "x8 Spalten"),
        ("Use 8 columns", "使用⟦0⟧列", "使用8列"),
        ("See 12 and 34", "⟦0⟧⟦1⟧ Siehe", "12 34 Siehe"),
        ("<b>One</b> 5", "<b>Eins</b> 5", "<b>Eins</b> 5"),
        ("<b>one</b>s", "⟦32⟧ein⟦33⟧er", "<b>ein</b>er"),
        ("Use 8", "a⟦70⟧b⟦0⟧c", "ab 8 c"),
        ("%sfile", "Datei%s", "Datei%s"),
    ],
)
def test_spans_do_not_become_parts_of_words(source: str, translation: str, expected: str) -> None:
    protected = Rules(("tags", "identifier", "number"), "en", "de").protect(source)
    assert protected.restore(translation) == expected


def test_what_follows_c_plus_plus_is_no_path() -> None:
    assert find_spans("C/C++/Java libraries", ["path"]) == []
    assert len(find_spans("see /usr/lib", ["path"])) == 1
