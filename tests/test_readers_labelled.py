"""Labelled texts, tagged sentences and documents: what is read, and what is refused and how."""

import csv
import gzip
import io
import json
import lzma
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.basics.errors import UserError
from heedful.data.examples import Labelled, Tagged
from heedful.data.readers import read_documents, read_labelled, read_tagged
from heedful.data.readers.images import read_captioned, read_images
from heedful.data.readers.questions import QuestionColumns, read_questions
from heedful.data.readers.similar import read_similar

DATA = Path(__file__).parents[1] / "../shared/data"
real_data = pytest.mark.skipif(not DATA.exists(), reason="the folder of real data is not here")

GOOD_CSV = 'id,body,team\n1,"The ""link"", it\nfails",web\n\n2,Grüße,desk \n'
NAMED = {"text": ["body"], "label": "team"}
ONE = [Labelled(("It fails",), "web"), Labelled(("Grüße",), "desk")]


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    return path


FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "a.tsv": ("team\tbody\nweb\tIt fails\ndesk\tGrüße\n", {}),
    "b.csv": ('body,team\n"It fails",web\nGrüße,"desk"\n', {}),
    "c.csv": ("body;team\nIt fails;web\nGrüße;desk\n", {}),
    "d.jsonl": (
        '{"body": "It fails", "team": "web"}\n{"team": "desk", "body": "Gr\\u00fc\\u00dfe"}',
        {},
    ),
    "e.all": ("web It fails\ndesk Grüße", {"format": "label-text"}),
    "f.tsv": ("x\tweb\tIt fails\ny\tdesk\tGrüße\n", {"text": ("3",), "label": "2"}),
    "g.txt": ("body\tteam\r\nIt fails\tweb\r\nGrüße\tdesk\r\n", {}),
    "h": (' {"body": "It fails", "team": "web"}\n{"team": "desk", "body": "Grüße"}', {}),
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("packing", ["", ".gz", ".xz"])
def test_every_format_gives_the_same(tmp_path: Path, name: str, packing: str) -> None:
    content, options = FORMS[name]
    pack: Callable[[bytes], bytes] = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}[
        packing
    ]
    path = write(tmp_path / (name + packing), pack(content.encode()))
    given: dict[str, Any] = {"text": ("body",), "label": "team", **options}
    assert list(read_labelled([path], **given)) == ONE
    assert list(read_labelled([path, path], **given)) == ONE * 2
    marked = write(tmp_path / ("marked" + name + packing), pack(content.encode("utf-8-sig")))
    assert list(read_labelled(marked, **given)) == ONE
    other = write(tmp_path / ("latin" + name), content.encode("latin-1"))
    assert list(read_labelled([other], encoding="latin-1", **given)) == ONE
    if "ü" in content:
        with pytest.raises(UserError, match=rf"{other.name}:\d: byte 0xFC is not UTF-8; give"):
            list(read_labelled([other], **given))


def test_quoted_texts_and_empty_lines(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "a.csv", GOOD_CSV)
    assert list(read_labelled(path, text=["body"], label="team")) == [
        Labelled(('The "link", it\nfails',), "web"),
        Labelled(("Grüße",), "desk"),
    ]
    assert capfd.readouterr().err == f"heedful: left out of {path}: 1 empty line\n"
    pairs = write(
        tmp_path / "b.jsonl", '{"a": "x", "b": "y", "l": 1}\n{"a": "z", "b": "w", "l": true}'
    )
    assert list(read_labelled(pairs, text=["a", "b"], label="l")) == [
        Labelled(("x", "y"), "1"),
        Labelled(("z", "w"), "true"),
    ]


field = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"), min_size=1)
rows_of_fields = st.lists(
    st.tuples(field.filter(str.strip), field.filter(str.strip)), min_size=1, max_size=5
)


@settings(max_examples=60, deadline=None)
@given(rows=rows_of_fields)
def test_what_the_csv_module_writes_is_read(
    rows: list[tuple[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(
        [("text", "label"), *rows]
    )
    path = write(tmp_path_factory.mktemp("csv") / "a.csv", out.getvalue())
    assert list(read_labelled(path)) == [Labelled((text,), label.strip()) for text, label in rows]
    lines = "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows)
    assert list(read_labelled(write(path.with_suffix(".jsonl"), lines))) == list(
        read_labelled(path)
    )


WRONG: list[tuple[str, str | bytes, dict[str, Any], str]] = [
    (
        "a.csv",
        "Body,team\nx,y\n",
        {"text": ["bdy"]},
        r"a.csv:1: there is no column 'bdy'; did you mean 'Body'",
    ),
    ("a.csv", "x1,x2\nx,y\n", {"text": ["qqq"]}, r"a.csv:1: .*'qqq'; known names: 'x1', 'x2' \("),
    ("a.csv", "text,text,label\nx,y,z\n", {}, r"a.csv:1: two columns have the name 'text'"),
    ("a.csv", "text,label\nx,y\na, b,z\n", {}, r"a.csv:3: columns: 3, but 2 in the first line"),
    ("a.csv", 'text,label\nx,y\n"a,z\nb,c\n', {}, r"a.csv:3: not valid CSV"),
    ("a.csv", 'text,label\n"x"y,z\n', {}, r"a.csv:2: not valid CSV"),
    ("a.csv", 'text,label\n"x\ny",z\n"",z\n', {}, r"a.csv:4: 'text' is empty; fill it in"),
    ("a.csv", "text,label\nx, \n", {}, r"a.csv:2: 'label' is empty"),
    ("a.csv", "", {}, r"a.csv: the file is empty"),
    ("a.tsv", "text\tlabel\nx\n", {}, r"a.tsv:2: columns: 1, but 2 in the first line"),
    ("a.tsv", "1\tx\n", {"text": ["3"], "label": "1"}, r"a.tsv:1: no column 3; the line has 2"),
    (
        "a.jsonl",
        '{"text": "x", "lable": "y"}',
        {},
        r"a.jsonl:1: there is no field 'label'; did you mean 'lable'",
    ),
    ("a.jsonl", '{"text": "x", "label": "y"}\n[1]\n', {}, r"a.jsonl:2: not a JSON object"),
    ("a.jsonl", '{"text": "x",\n', {}, r"a.jsonl:1: not a JSON object"),
    ("a.jsonl", '{"text": 1.5, "label": "y"}', {}, r"a.jsonl:1: 'text' must be a text or"),
    ("a.jsonl", '{"text": "x", "label": null}', {}, r"a.jsonl:1: 'label' is empty"),
    ("a.jsonl", '{"text": "\\ud800", "label": "y"}', {}, r"a.jsonl:1: character 1 is a lone"),
    ("a.all", "x y\nz\n", {"format": "label-text"}, r"a.all:2: no space in this line"),
    ("a.all", "x \n", {"format": "label-text"}, r"a.all:1: 'text' is empty"),
    ("a.all", "x y\n", {}, r"a.all: its format follows neither .* \(tsv, csv, jsonl, label-text\)"),
    ("a.csv", "text,label\n", {"format": "cvs"}, r"unknown format 'cvs'; known are tsv"),
    ("a.csv", "text,label\n", {"text": ["a", "b", "c"]}, r"3 columns of text"),
    ("a.csv", "text,label\n", {"label": "0"}, r"'0' names no column"),
    ("a.csv", "text,label\n", {"encoding": "utf-9"}, r"unknown encoding 'utf-9'"),
    (
        "a.csv.xz",
        lzma.compress(GOOD_CSV.encode())[:-60],
        NAMED,
        r"a.csv.xz:\d+: the xz data end unexpectedly",
    ),
    (
        "a.csv.xz",
        lzma.compress(b"x")[:9] + b"\xff" * 40,
        {},
        r"a.csv.xz:1: the xz data are damaged",
    ),
    ("a.csv.gz", gzip.compress(b"x" * 99)[:-9], {}, r"a.csv.gz:1: the gzip data end unexpectedly"),
]


@pytest.mark.parametrize(("name", "content", "options", "message"), WRONG)
def test_wrong_files_are_refused_with_their_place(
    tmp_path: Path, name: str, content: str | bytes, options: dict[str, Any], message: str
) -> None:
    path = write(tmp_path / name, content)
    with pytest.raises(UserError, match=message) as error:
        list(read_labelled([path], **options))
    assert "\n" not in str(error.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    for read in (read_labelled, read_tagged, read_documents):
        with pytest.raises(UserError, match=r"cannot read .*nowhere\.csv"):
            list(read([tmp_path / "nowhere.csv"]))


CONLLU = """\
# sent_id = 1
# text = Don't go
1-2\tDon't\t_\t_\t_\t_\t_\t_\t_\t_
1\tDo\tdo\tAUX\tVB\t_\t3\taux\t_\t_
2\tn't\tnot\tPART\tRB\t_\t3\tadvmod\t_\t_
3\tgo\tgo\tVERB\tVB\tVerbForm=Inf\t0\troot\t_\t_
3.1\tthere\tthere\tADV\tRB\t_\t_\t_\t3:advmod\t_

# sent_id = 2
1\t#\t#\tSYM\tNN\t_\t0\troot\t_\t_
"""


def test_conllu_has_words_only(tmp_path: Path) -> None:
    path = write(tmp_path / "a.conllu", CONLLU)
    upos = [
        Tagged(("Do", "n't", "go"), ("AUX", "PART", "VERB")),
        Tagged(("#",), ("SYM",)),
    ]
    assert list(read_tagged([path])) == upos
    assert [sentence.tags for sentence in read_tagged(path, column="feats")] == [
        ("_", "_", "VerbForm=Inf"),
        ("_",),
    ]
    columns = write(tmp_path / "b.tsv", "Do\tAUX\nn't\tPART\ngo\tVERB\n \n\n#\tSYM")
    assert list(read_tagged(columns)) == upos
    lines = '{"tokens": ["Do", "n\'t", "go"], "tags": ["AUX", "PART", "VERB"]}\n\n'
    objects = write(tmp_path / "c.jsonl", lines + '{"words": ["#"], "upos": ["SYM"]}')
    assert list(read_tagged([objects])) == upos


def test_an_attribute_of_a_column_is_a_tag(tmp_path: Path) -> None:
    named = CONLLU.replace("aux\t_\t_\n", "aux\t_\tSpaceAfter=No|NER=B-PER\n")
    path = write(tmp_path / "a.conllu", named)
    found = [sentence.tags for sentence in read_tagged(path, column="misc.NER")]
    assert found == [("B-PER", "_", "_"), ("_",)]
    found = [sentence.tags for sentence in read_tagged(path, column="feats.VerbForm")]
    assert found == [("_", "_", "Inf"), ("_",)]


def test_rows_without_a_label_are_counted_and_may_be_skipped(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "a.csv", "text,label\none,x\ntwo,\nthree, \nfour,y\n,\n")
    message = r"a.csv:3: 'label' is empty, as in 2 more rows; .*data.unlabelled = 'skip'"
    with pytest.raises(UserError, match=message):
        list(read_labelled(path))
    found = list(read_labelled(path, unlabelled="skip"))
    assert found == [Labelled(("one",), "x"), Labelled(("four",), "y")]
    assert "a.csv: 3 rows without a label" in capfd.readouterr().err


@pytest.mark.parametrize("separator", [" ", "\t"])
def test_conll_2003_is_read(tmp_path: Path, separator: str) -> None:
    text = (
        "-DOCSTART- -X- -X- O\n\nEU NNP B-NP B-ORG\nrejects VBZ B-VP O\n\n"
        "-DOCSTART- -X- O O\n\n# # B-NP O\n"
    )
    path = write(tmp_path / "eng.train", text.replace(" ", separator))
    assert list(read_tagged(path)) == [
        Tagged(("EU", "rejects"), ("B-ORG", "O")),
        Tagged(("#",), ("O",)),
    ]
    assert next(iter(read_tagged(path, column="pos"))).tags == ("NNP", "VBZ")


@pytest.mark.parametrize(
    ("name", "content", "column", "message"),
    [
        (
            "a.conllu",
            CONLLU.replace("2\tn't", "4\tn't"),
            "upos",
            r":5: word number '4' instead of 2",
        ),
        ("a.conllu", CONLLU.replace("\tPART", "\t_"), "upos", r":5: the word 'n't' has no upos"),
        ("a.conllu", CONLLU, "pos", r"no column of tags 'pos'; did you mean '[ux]pos'"),
        ("a.conllu", CONLLU, "form", r"no column of tags 'form'; "),
        ("a.conllu", CONLLU.replace("\tVB\t_\t3\taux", "\taux"), "upos", r":4: columns: 7, but"),
        ("a.tsv", "Do\tAUX\ngo\n", "upos", r"a.tsv:2: columns: 1, but 2 before"),
        ("a.tsv", "Do\tAUX\ngo\t \n", "upos", r"a.tsv:2: the word 'go' has no tag"),
        ("a.tsv", "Do\tAUX\n \tX\n", "upos", r"a.tsv:2: the word is empty"),
        ("a.conllu", CONLLU.replace("_\t_\n", "_\tNER=O\n"), "misc", r"--column misc\.NER"),
        ("a.conllu", CONLLU, "lemma.x", r"the column lemma of CoNLL-U has no attributes"),
        ("a.txt", "EU NNP B-NP B-ORG\n", "neer", r"no column of tags 'neer'; did you mean 'ner'"),
        ("a.txt", "EU NNP B-NP B-ORG\nrejects VBZ O\n", "ner", r"a.txt:2: columns: 1, but"),
        ("a.tsv", "Do AUX\n", "upos", r"a.tsv:1: 1 TAB-separated columns; tagged sentences are"),
        ("a.tsv", "\n# x\n", "upos", r"a.tsv: no sentence in the file"),
        ("a.jsonl", '{"words": ["a", "b"], "tags": ["X"]}', "upos", r":1: 2 words but 1 tags"),
        (
            "a.jsonl",
            '{"words": ["a"], "tag": ["X"]}',
            "upos",
            r"no field .*'tags'; did you mean 'tag'",
        ),
        ("a.jsonl", '{"words": "a", "tags": ["X"]}', "upos", r":1: 'words' is not a list"),
        ("a.jsonl", '{"words": [], "tags": []}', "upos", r":1: the sentence has no words"),
        (
            "a.jsonl",
            '{"words": [[]], "tags": [1]}',
            "upos",
            r":1: 'words' has an entry that is not",
        ),
        ("a.tsv", b"Gr\xfc\xdfe\tX\n", "upos", r"a.tsv:1: byte 0xFC is not UTF-8"),
    ],
)
def test_wrong_tags_are_refused_with_their_place(
    tmp_path: Path, name: str, content: str | bytes, column: str, message: str
) -> None:
    path = write(tmp_path / name, content)
    with pytest.raises(UserError, match=message) as error:
        list(read_tagged([path], column=column))
    assert "\n" not in str(error.value)


WIKITEXT = (
    " \n = One = \n \n a b \n = = Two = = \n W = Won , L = \n = Lost , = \n x \n\n"
    " = Three = \n \n c \n"
)


def test_documents_by_every_rule(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "a\nb\r\n\n \n\nc\n")
    assert list(read_documents([path, path])) == [["a", "b"], ["c"]] * 2
    assert list(read_documents(path, document="lines")) == [["a"], ["b"], ["c"]]
    assert list(read_documents(path, document="whole")) == [["a", "b", "c"]]
    exact = list(read_documents(path, document="whole", blank_lines=True))
    assert exact == [["a", "b", "", " ", "", "c"]]
    wiki = write(tmp_path / "wiki", WIKITEXT)
    assert list(read_documents(wiki, document="wikitext")) == [
        [" = One = ", " a b ", " = = Two = = ", " W = Won , L = ", " = Lost , = ", " x "],
        [" = Three = ", " c "],
    ]
    kept = read_documents(wiki, document="wikitext", blank_lines=True)
    assert "\n".join(line for lines in kept for line in lines) == WIKITEXT[2:-1]


def test_lines_are_cut_into_sentences(tmp_path: Path) -> None:
    line = " It is 0 @.@ 7 cm . Mr. Smith sat . \n \n Why ?  "
    path = write(tmp_path / "a.txt", line)
    [cut] = read_documents(path, document="whole", sentences="en", blank_lines=True)
    assert cut == ["It is 0 @.@ 7 cm .", "Mr. Smith sat .", " ", "Why ?"]


@pytest.mark.parametrize("content", ["", "\n \n\n"])
def test_a_file_without_text_is_refused(tmp_path: Path, content: str) -> None:
    path = write(tmp_path / "a.txt", content)
    with pytest.raises(UserError, match=r"a\.txt: the file has no text"):
        list(read_documents(path))
    with pytest.raises(UserError, match="unknown rule for documents 'line'; known are blank-lines"):
        list(read_documents(path, document="line"))  # type: ignore[arg-type]  # what a user may type


@real_data
def test_counts_of_real_corpora() -> None:
    """What their makers publish: words of UD EWT, articles of WikiText-2, questions of TREC."""
    tagged = DATA / "ud-english-ewt/en_ewt-ud-{}.conllu.xz"
    for part, sentences, words in (("dev", 2001, 25147), ("test", 2077, 25094)):
        found = list(read_tagged(str(tagged).format(part)))
        assert (len(found), sum(len(each.words) for each in found)) == (sentences, words)
    train = list(read_tagged(str(tagged).format("train")))
    assert (len(train), sum(len(each.words) for each in train)) == (12544, 204577)
    for part, articles, tokens in (("valid.txt", 60, 213886), ("train.txt.xz", 600, 2051910)):
        documents = list(read_documents(DATA / "wikitext-2" / part, document="wikitext"))
        assert len(documents) == articles
        assert sum(len(line.split()) for lines in documents for line in lines) == tokens
    questions = DATA / "trec-sst-mr-subj/TREC.train.all"
    labelled = list(read_labelled(questions, format="label-text", encoding="latin-1"))
    assert (len(labelled), len({each.label for each in labelled})) == (5452, 6)
    with pytest.raises(UserError, match=r"TREC\.train\.all:66: byte 0xF0 is not UTF-8"):
        list(read_labelled(questions, format="label-text"))
    pairs = list(read_labelled(DATA / "snli-dev-test/snli.dev.tsv", text=("2", "3"), label="1"))
    assert (len(pairs), {len(each.texts) for each in pairs}) == (9842, {2})


@pytest.mark.parametrize(
    ("read", "columns"),
    [
        (lambda path: read_similar([path], text=["x"], rating="y"), "--texts and --rating choose"),
        (
            lambda path: read_questions([path], columns=QuestionColumns("x", "y", "z")),
            "--context, --question, --answer and --start choose",
        ),
        (
            lambda path: read_images(path, image="x", label="y"),
            "the settings data.image and data.label choose",
        ),
        (
            lambda path: read_captioned(path, image="x", caption="y"),
            "the settings data.image and data.caption choose",
        ),
    ],
)
def test_a_missing_column_names_what_chooses_columns(
    read: Callable[[str], Iterable[object]], columns: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("one\ttwo\tthree\na\tb\tc\n", encoding="utf-8")
    with pytest.raises(UserError, match=rf"a\.tsv:1: there is no column 'x'.*\({columns} columns"):
        list(read(str(path)))
