"""Invalid XLIFF 2 documents are refused."""

import tarfile
from pathlib import Path

import pytest

from heedful.basics.errors import UserError
from heedful.data.documents import open_document
from heedful.data.readers import read_pairs
from heedful.data.units import read_units

CONFORMANCE = Path(__file__).parents[1] / "../shared/data/l10n-conformance/files.tar.xz"
PASSED_ON = ("ctr", "gls", "mda", "mtc", "res", "slr", "val")
"""The prefixes of modules whose content is not checked: it is given back as it is."""
VALID = """<xliff xmlns="urn:oasis:names:tc:xliff:document:2.1" version="2.1" srcLang="en"
 trgLang="de" xmlns:fs="urn:oasis:names:tc:xliff:fs:2.0" xmlns:my="urn:my">
<file id="f"><notes><note>all</note></notes>
<group id="g"><unit id="u" my:key="x"><notes><note id="n">look</note></notes>
<originalData><data id="d">&lt;br/></data></originalData>
<segment id="s" state="initial" subState="my:new"><source>One
<mrk id="m" type="comment" ref="#n=n">two</mrk> <ph id="1" dataRef="d" type="fmt" subType="xlf:lb"/>
<sc id="2"/>three<ec startRef="2"/><pc id="3" canReorder="firstNo"
 canDelete="no" canCopy="no" fs:fs="b">four<ph id="4" canReorder="no" canDelete="no" canCopy="no"/>
</pc></source></segment>
<ignorable><source xml:lang="en"> </source></ignorable></unit></group></file></xliff>
"""
TARGET = "</source><target>{}</target></segment>"
WRONG = [
    (' srcLang="en"', ' srcLang="e n"', "srcLang='e n'"),
    (' id="f"', "", "<file> lacks id"),
    ('<group id="g">', '<group id="#g">', "id='#g'"),
    ("<unit ", '<unit colour="red" ', "<unit> may not have the attribute colour"),
    ("<segment ", '<segment my:x="1" ', "<segment> may not have the attribute {urn:my}x"),
    ("</group>", "</group><my:x/>", "<file> may not have these elements in this order"),
    ("<ignorable>", "<segment/><ignorable>", "<segment> may not have these elements"),
    ('state="initial" ', "", "subState without state"),
    ('state="initial"', 'state="new"', "state='new'"),
    ('ref="#n=n"', 'ref="#n=x"', "is no note of the unit"),
    ('ref="#n=n"', 'ref="#n=n" value="x"', "either value or ref"),
    ('type="comment" ref="#n=n"', 'type="my:x" ref="#u=u/f=f"', "is no fragment identifier"),
    ('dataRef="d"', 'dataRef="x"', "is not in the unit's original data"),
    ('type="fmt" ', "", "subType without type"),
    ('"xlf:lb"', '"xlf:var"', "subType='xlf:var' with type='fmt'"),
    ('startRef="2"', 'startRef="9"', "<ec> without an earlier <sc>"),
    ('<ec startRef="2"/>', "", "<sc> without <ec> in its unit"),
    ('startRef="2"', 'startRef="2" canCopy="no"', "different canCopy"),
    ('<sc id="2"/>', '<sc id="2" isolated="yes"/>', "<ec> without an earlier <sc>"),
    ('"firstNo"\n canDelete="no"', '"firstNo"\n canDelete="yes"', "needs canDelete='no'"),
    ('canReorder="firstNo"', 'canReorder="yes"', "without firstNo before it"),
    ('<sc id="2"', '<sc id="1"', "has the id '1' of another one"),
    ('fs:fs="b"', 'fs:fs="bold"', "fs:fs='bold'"),
    ('xml:lang="en"', 'xml:lang="fr"', "xml:lang='fr' in <source>"),
    ('\n trgLang="de"', "", None),
    ("</source></segment>", TARGET.format(""), "the target lacks the code '3'"),
    ("One\n", '<cp hex="00A0"/>', "a character that XML can hold"),
    ("One\n", '<ph id="9" copyOf="3"/>', "copyOf='3' is no <ph>"),
    ("One\n", '<ph id="9" subFlows="v"/>', "names the unit 'v'"),
    (
        "</source></segment>",
        TARGET.format(
            '<pc id="3" canReorder="firstNo" canDelete="no" canCopy="no"/>'
            '<ph id="4" canReorder="no" canDelete="no" canCopy="no"/>'
        ),
        "another order of codes",
    ),
    (
        "</source></segment>",
        '</source><target order="2"/></segment><segment><source/><target/></segment>',
        "the order 2 of another one",
    ),
]


def opened(text: str, path: Path) -> None:
    path.write_text(text, "utf-8")
    open_document(path)


@pytest.mark.parametrize(("own", "other", "message"), WRONG)
def test_what_is_invalid_is_refused(
    own: str, other: str, message: str | None, tmp_path: Path
) -> None:
    assert own in VALID
    changed = VALID.replace(own, other, 1)
    if message is None:
        opened(changed, tmp_path / "a.xlf")
        return
    with pytest.raises(UserError) as caught:
        opened(changed, tmp_path / "a.xlf")
    assert message in str(caught.value)
    assert f"{tmp_path / 'a.xlf'}:" in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(UserError) as checked:
        list(read_units(tmp_path / "a.xlf"))
    assert str(checked.value) == str(caught.value)
    with pytest.raises(UserError) as read:
        list(read_pairs([tmp_path / "a.xlf"]))
    assert str(read.value) == str(caught.value)


def test_what_is_valid_is_accepted(tmp_path: Path) -> None:
    opened(VALID, tmp_path / "a.xlf")
    assert [unit.name for unit in read_units(tmp_path / "a.xlf")] == ["id u s"]


def test_a_document_without_target_language_gets_it_with_its_targets(tmp_path: Path) -> None:
    path = tmp_path / "a.xlf"
    path.write_text(VALID.replace('\n trgLang="de"', ""), "utf-8")
    document = open_document(path, source="en", target="pt_BR")
    assert document is not None
    document.fill(document.segments)
    assert b' trgLang="pt-BR">\n<file' in document.contents()
    path.write_bytes(document.contents())
    assert [unit.target for unit in read_units(path)] == document.segments


UNIT = """<xliff xmlns="urn:oasis:names:tc:xliff:document:2.1" version="2.1" srcLang="en"
 trgLang="de"><file id="f"><unit id="u">{}</unit></file></xliff>
"""
SEGMENT = "<segment><source>{}</source></segment>"
FIXED = 'canReorder="{}" canDelete="no" canCopy="no"/>'
FIRST, THEN = (f'<ph id="{id_}" {FIXED.format(own)}' for id_, own in ((1, "firstNo"), (2, "no")))


def filled(inside: str, translations: list[str] | None, path: Path) -> str:
    """The document with translations (default: its sources), which must be valid."""
    path.write_text(UNIT.format(inside), "utf-8")
    document = open_document(path, source="en", target="de")
    assert document is not None
    document.fill(document.segments if translations is None else translations)
    path.write_bytes(document.contents())
    assert open_document(path) is not None
    return path.read_text("utf-8")


@pytest.mark.parametrize(
    ("inside", "target"),
    [
        (
            '<segment><source xml:space="preserve">a  b</source></segment>',
            '<target xml:space="preserve">a  b</target>',
        ),
        (
            '<segment><source xml:space="preserve">a</source><target/></segment>',
            '<target xml:space="preserve">a</target>',
        ),
        (
            '<segment><source>a</source><target xml:space="preserve"> </target></segment>',
            "<target>a</target>",
        ),
        (
            '<segment><source>a</source><target order="2">A</target></segment>'
            + SEGMENT.format("b"),
            '<target order="1">b</target>',
        ),
        (
            SEGMENT.format("a")
            + "<ignorable><source> </source></ignorable>"
            + '<segment><source>b</source><target order="1">B</target></segment>'
            + SEGMENT.format("c"),
            '<target order="4">c</target>',
        ),
    ],
)
def test_new_targets_are_valid(inside: str, target: str, tmp_path: Path) -> None:
    assert target in filled(inside, None, tmp_path / "a.xlf")


@pytest.mark.parametrize(
    ("source", "translation"),
    [
        ('a <sc id="1"/>b<ec startRef="1"/>', '<ec startRef="1"/>B<sc id="1"/> A'),
        (
            'a <sm id="1" type="term"/>b<em startRef="1"/>',
            '<em startRef="1"/><sm id="1" type="term"/>',
        ),
        (f"x {FIRST}{THEN}", f"{THEN} x {FIRST}"),
        (f'x {FIRST}{THEN}<ph id="3"/>', f'{FIRST}<ph id="3"/>{THEN}'),
        (f'<pc id="3">x {FIRST}{THEN}</pc>', f'<pc id="3">{FIRST}</pc>{THEN}'),
    ],
)
def test_codes_in_an_order_that_is_invalid_are_not_accepted(
    source: str, translation: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.xlf"
    path.write_text(UNIT.format(SEGMENT.format(source)), "utf-8")
    document = open_document(path, source="en", target="de")
    assert document is not None
    assert document.accepts(0, source)
    assert not document.accepts(0, translation)
    assert "<target>" not in filled(SEGMENT.format(source), [translation], path)


def test_codes_that_span_segments_are_filled_together_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "a.xlf"
    inside = "".join(map(SEGMENT.format, ['a<sc id="1"/>', "b", '<ec startRef="1"/>c']))
    assert filled(inside, None, path).count("<target>") == 3
    only = filled(inside, ['A<sc id="1"/>', "B", ""], path)
    assert only.count("<target>") == only.count("<target>B<") == 1


@pytest.mark.parametrize(
    "kept",
    [
        '<mrk id="1" translate="no">Foo &amp; <ph id="2"/></mrk>',
        '<sm id="1" translate="no"/>Foo &amp; <ph id="2"/><em startRef="1"/>',
        '<sm id="1" translate="no"/><sm id="2"/>Foo<em startRef="2"/>Foo<em startRef="1"/>',
    ],
)
def test_words_of_an_annotation_may_stay(kept: str, tmp_path: Path) -> None:
    path = tmp_path / "a.xlf"
    inside = SEGMENT.format(f"Open {kept} now")
    path.write_text(UNIT.format(inside), "utf-8")
    document = open_document(path, source="en", target="de")
    assert document is not None
    assert document.pieces(0) == ["Open ", kept, " now"]
    assert f"Jetzt {kept} auf" in filled(inside, [f"Jetzt {kept} auf"], path)
    assert not document.accepts(0, document.segments[0].replace("Foo", "Fuß"))


@pytest.mark.skipif(not CONFORMANCE.exists(), reason="needs ../shared/data/l10n-conformance")
def test_invalid_conformance_files_are_refused(tmp_path: Path) -> None:
    with tarfile.open(CONFORMANCE) as archive:
        archive.extractall(tmp_path, filter="data")
    accepted = []
    files = sorted(tmp_path.glob("xliff2/*/invalid/*.xlf"))
    for path in files:
        try:
            open_document(path)
        except UserError:
            continue
        accepted.append(path.name)
    assert len(files) == 162
    assert all(name.startswith(tuple(f"Bad-{one}" for one in PASSED_ON)) for name in accepted)
    assert len(accepted) <= 40
