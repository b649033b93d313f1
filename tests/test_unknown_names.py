"""Names that no training source has are kept as they are."""

import importlib
import json
import sys
from pathlib import Path

import pytest

import heedful
from heedful.cli.main import main
from heedful.data.memory import Memory
from heedful.data.protected.spans import find_spans
from heedful.data.protected.unknown import KnownWords
from heedful.runs.recipe import check_recipe
from heedful.serving import Served
from serving_help import serving

SOURCES = ["The build has failed.", "Open the file", "the dogs see 12 houses", "see Croatia"]


def names(text: str, language: str | None = "en", rules: tuple[str, ...] = ()) -> list[str]:
    known = KnownWords(SOURCES, language)
    return [
        text[span.start : span.end] for span in known.names(text, find_spans(text, list(rules)))
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Open the Zorbix file", ["Zorbix"]),
        ("Zorbix failed", ["Zorbix"]),
        ("OPEN THE FILE", []),
        ("the Failed file", []),
        ("Failing builds. Filed opening", []),  # forms of known words at the start
        ("open Croatian file", []),  # as "Croatia" is known
        ("the wug sees", []),  # an ordinary word
        ("see the 21st, 3x and 100 files", []),
        ("see GPT4, some_name, iZorb and NASA", ["GPT4", "some_name", "iZorb", "NASA"]),
        ("see Jean Zorb-Quux", ["Jean Zorb", "Quux"]),
        ("see Zorb the Dog", ["Zorb"]),
        ("file: Zorbix", ["Zorbix"]),
        ("हिन्दी में किताब", []),
        ("", []),
    ],
)
def test_what_is_a_name(text: str, expected: list[str]) -> None:
    assert names(text) == expected


def test_capitals_are_no_sign_in_german() -> None:
    assert names("der Zorbix und GPT4 Haus", "de-AT") == ["GPT4"]


def test_protected_spans_come_first() -> None:
    assert names("see <b>Zorb</b> at https://Zorb.org/Quux", rules=("tags", "url")) == ["Zorb"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("unknown"), {"protect": ["printf", "tags"]})


def trained(folder: Path, data: dict[str, object]) -> Path:
    """A run that has learnt almost nothing: what it keeps, search makes it keep."""
    words = ["red", "dog", "sees", "house", "one", "small"]
    lines = []
    for number in range(60):
        chosen = " ".join(words[(number * place) % len(words)] for place in (1, 2, 5))
        dog = "<b>dog</b>" if number % 2 else "dog"
        lines.append(f"{chosen} %s {dog}\t{chosen.upper()} {dog} %s\n")
    (folder / "train.tsv").write_text("".join(lines), "utf-8")
    tables = {
        "data": {"train": [str(folder / "train.tsv")], "source": "en", "target": "de", **data},
        "tokeniser": {"vocabulary_size": 360},
        "model": {"hidden_size": 16, "heads": 2, "ffn_size": 16, "layers": 1},
        "training": {"max_steps": 2, "batch_tokens": 256},
    }
    heedful.train(check_recipe(tables, "the test"), folder / "run")
    return folder / "run"


TEXT = "one Zorbix sees <b>the Mirn8</b> %s house of Quovis Tarn"


def test_names_are_kept(run: Path) -> None:
    plain = heedful.load_translator(run)
    (lost,) = plain.translate([TEXT])
    assert "Zorbix" not in lost.text
    memory = Memory.load(run / "memory.jsonl")
    (found,) = plain.keeping_unknown(memory).translate([TEXT])
    for name in ("Zorbix", "Mirn8", "%s", "Quovis Tarn", "<b>", "</b>"):
        assert found.text.count(name) == 1
    assert "Zorbix" in found.tokens
    assert plain.translate([TEXT])[0].text == lost.text


def call(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr("sys.argv", ["heedful", "translate", *map(str, arguments)])
    with pytest.raises(SystemExit) as exit:
        main()
    return int(exit.value.code or 0)


def test_the_command_keeps_names(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in.txt").write_text(f"{TEXT}\nred dog\n")
    out = tmp_path / "out.txt"
    assert not call(monkeypatch, run, tmp_path / "in.txt", "--keep-unknown", "--output", out)
    assert out.read_text("utf-8").splitlines()[0].count("Quovis Tarn") == 1


def test_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in.txt").write_text(TEXT)
    for name, data, message in (
        ("plain", {}, "train a run with data.protect"),
        ("without", {"protect": ["tags"], "keep_memory": False}, "has no memory"),
    ):
        (tmp_path / name).mkdir()
        run = trained(tmp_path / name, data)
        capsys.readouterr()
        assert call(monkeypatch, run, tmp_path / "in.txt", "--keep-unknown") == 2
        said = capsys.readouterr().err
        assert message in said
        assert len(said.splitlines()) == 1


def test_the_server_keeps_names(run: Path) -> None:
    translator = heedful.load_translator(run)
    served = Served("one", translator, "en", "de")
    with serving(served) as client:
        given = {"text": [TEXT, "red dog"], "keep_unknown": True, "sentences": False}
        refused = client.post("/api/translate", json=given)
        assert refused.status_code == 400
        assert "keep_unknown" in refused.text
        translator.memory = Memory.load(run / "memory.jsonl")
        found = client.post("/api/translate", json=given).json()["translations"]
        for name in ("Zorbix", "Mirn8", "%s", "Quovis Tarn", "<b>"):
            assert found[0]["text"].count(name) == 1
        plain = client.post("/api/translate", json={"text": TEXT}).json()["translations"]
        assert "Zorbix" not in plain[0]["text"]
        streamed = client.post("/api/translate/stream", json={**given, "text": TEXT}).text
        assert "Zorbix" in json.loads(streamed.splitlines()[0])["text"]


def test_the_benchmark_runs(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "benchmarks")
    benchmark = importlib.import_module("unknown_names")
    monkeypatch.setattr(sys, "argv", ["unknown_names", str(run), "--count", "3"])
    benchmark.main()
    said = capsys.readouterr().out
    assert "--keep-unknown" in said  # an untrained model may write a word right beside a name
    assert 'of 3"' in said
