"""YAML catalogues: scalars of all styles, the key of the language, and comments that stay."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.basics.errors import UserError
from heedful.data.documents import open_document
from heedful.data.documents.yaml_texts import YamlDocument

FILE = """# A comment: "x"
en:  # the language
  plain: One dog   # a comment
  'single': 'It''s two'
  "double": "Three\\n\\u00e4"
  literal: |  # kept
    Line one
      indented

    last
  folded: >-
    Some folded
    words

    next
  keep: |+
    Kept

  explicit: |2
      two more
  anchor: &anchor !!str Anchored
  alias: *anchor
  merged:
    <<: {a: Inside, b: [x y, "q", 3]}
  wrapped: more
    words
  list:
    - First
    - - Nested
  none: ~
  yes: yes
  number: 3.5
  date: 2001-01-01
  empty: ""
  formats: "%Y-%m-%d"
  date:
    order:
      - year
      - :month
  i18n: {transliterate: {rule: {"ä": ae}}}
  count: "%{count}"
  tagged: !ruby/regexp /a/
  ? [complex, key]
  : Value
"""
SEGMENTS = [
    "One dog",
    "It's two",
    "Three\nä",
    "Line one\n  indented\n\nlast\n",
    "Some folded words\nnext",
    "Kept\n\n",
    "  two more\n",
    "Anchored",
    "Inside",
    "x y",
    "q",
    "more words",
    "First",
    "Nested",
    "Value",
]
TEXTS = st.text(
    st.sampled_from("ab \n\t'\"\\:#-[]{},&*!|>%@`~?\u00e4\u2028\x85\x7f\x00\U0001f600."),
    max_size=10,
)


def opened(text: str, source: str | None = "en", target: str | None = "de") -> YamlDocument:
    return YamlDocument(text.encode(), "a.yml", source, target)


def filled(document: YamlDocument, translations: list[str]) -> str:
    document.fill(translations)
    return document.contents().decode()


def test_texts_are_found_and_all_else_stays(tmp_path: Path) -> None:
    path = tmp_path / "en.yml"
    path.write_text(FILE, "utf-8")
    document = open_document(path, source="en", target="de")
    assert document is not None
    assert document.segments == SEGMENTS
    assert document.contents().decode() == FILE
    document.fill([""] * len(SEGMENTS))
    assert document.contents().decode() == FILE
    document.fill(SEGMENTS)
    assert document.contents().decode() == FILE.replace("en:  #", "de:  #")


def test_styles_are_kept() -> None:
    out = filled(opened(FILE), [f"«{text.strip()}»" for text in SEGMENTS])
    assert "\nde:  # the language\n  plain: «One dog»   # a comment\n" in out
    assert "'single': '«It''s two»'\n" in out
    assert '"double": "\\u00ABThree\\n\\u00E4\\u00BB"\n' not in out
    assert '"double": "«Three\\nä»"\n' in out
    assert "literal: |  # kept\n    «Line one\n      indented\n\n    last»\n  folded: >-\n" in out
    assert "folded: >-\n    «Some folded words\n\n    next»\n  keep: |+\n    «Kept»\n\n" in out
    assert 'explicit: "«two more»\\n"\n  anchor: &anchor !!str «Anchored»\n' in out
    assert '<<: {a: «Inside», b: [«x y», "«q»", 3]}\n  wrapped: «more words»\n' in out
    assert out.endswith("  ? [complex, key]\n  : «Value»\n")
    assert opened(out, "de", "en").segments == [
        f"«{text.strip()}»" + text[len(text.rstrip("\n")) :] for text in SEGMENTS
    ]


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_line_ends_and_marks_stay(ending: str, mark: str) -> None:
    text = mark + "en:\n  a: |\n    One\n    two\n  b: Three\n".replace("\n", ending)
    expected = text.replace("One", "Eins").replace("two", "zwei").replace("en:", "de:")
    assert filled(opened(text), ["Eins\nzwei\n", "Three"]) == expected


@pytest.mark.parametrize(
    ("text", "target", "expected"),
    [
        ("en:\n  a: x\n", "de", "de:\n  a: y\n"),
        ("'en-US':\n  a: x\n", "pt_BR", "'pt-BR':\n  a: y\n"),
        ("en:\n  a: x\n", "no", '"no":\n  a: y\n'),
        ("en:\n  a: x\n", None, "en:\n  a: y\n"),
        ("en:\n  a: x\nmore: 3\n", "de", "en:\n  a: y\nmore: 3\n"),
        ("a: x\n", "de", "a: y\n"),
        ("- x\n", "de", "- y\n"),
        ("---\nen: x\n...\n---\nen: 3\n", "de", "---\nen: y\n...\n---\nen: 3\n"),
    ],
)
def test_the_language_at_the_root_is_replaced(text: str, target: str | None, expected: str) -> None:
    assert filled(opened(text, target=target), ["y"]) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: b: c\n", "a.yml:1: not YAML: mapping values"),
        ("a:\n\t- b\n", "a.yml:2: not YAML"),
        ("a: \x07\n", "a.yml:1: not YAML"),
        ("a:\n 'x\n", "not YAML"),
        ("prose, and no keys", "without keys"),
        ("<a>x</a>", "without keys"),
        ("en:\n  a: x\nde:\n  a: y\n", "several languages"),
        ("[" * 100_000, "nested too deeply"),
        ("- " * 100_000, "nested too deeply"),
    ],
)
def test_files_that_do_not_fit_are_one_line(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        opened(text)
    assert "\n" not in str(error.value)


@settings(max_examples=300, deadline=None)
@given(st.lists(TEXTS, min_size=len(SEGMENTS), max_size=len(SEGMENTS)))
def test_any_translation_is_read_back(texts: list[str]) -> None:
    out = filled(opened(FILE), texts)
    expected = []
    for text, source in zip(texts, SEGMENTS, strict=True):
        is_block = source.endswith("\n") or source == "Some folded words\nnext"
        ending = source[len(source.rstrip("\n")) :]
        text = text.strip("\n") + ending if is_block and text.strip() else text
        expected.append(text if text.strip() else source)
    events = [one for one in yaml.parse(out) if isinstance(one, yaml.ScalarEvent)]
    before = [one for one in yaml.parse(FILE) if isinstance(one, yaml.ScalarEvent)]
    left = iter(expected)
    values = [next(left) if one.value in SEGMENTS else one.value for one in before]
    values[0] = "de" if any(text.strip() for text in texts) else "en"
    assert [one.value for one in events] == values
    comments = [line.partition("# ")[2] for line in FILE.splitlines() if "# " in line]
    assert all(f"# {comment}" in out for comment in comments)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_plural_forms_of_the_target_language_are_added(newline: str) -> None:
    text = """en:
  files:
    one: "%{count} file"
    other: "%{count} files"  # kept
  zero:
    zero: no dog
    one: a dog
    other: dogs
    few: more dogs
  no: {one: a, other: b c}
  block:
    one: x
    other: |
      x y
  kinds:
    other: others
    name: x
""".replace("\n", newline)
    expected = (
        text.replace("en:", "pl:")
        .replace(
            '"  # kept',
            f'"{newline}    few: "%{{count}} files"{newline}    many: "%{{count}} files"  # kept',
        )
        .replace("other: dogs", f"other: dogs{newline}    many: dogs")
    )
    document = YamlDocument(text.encode(), "a.yml", "en", "pl")
    assert document.contents() == text.encode()
    document.fill(list(document.segments))
    assert document.contents().decode() == expected
    document.fill([text.upper() for text in document.segments])
    found = yaml.safe_load(document.contents())["pl"]["files"]
    assert found == dict.fromkeys(["one"], "%{COUNT} FILE") | dict.fromkeys(
        ["other", "few", "many"], "%{COUNT} FILES"
    )
    german = YamlDocument(text.encode(), "a.yml", "en", "de")
    german.fill(german.segments)
    assert german.contents().decode() == text.replace("en:", "de:")
