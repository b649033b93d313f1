"""One way from text to text: validation, the command, and Python give the same bytes."""

import json
from pathlib import Path

import pytest

import heedful
from command_help import run_command
from heedful.basics.errors import UserError
from heedful.decoding import SearchOptions

WORDS = {"one": "eins", "two": "zwei", "red": "rot", "dog": "Hund", "sees": "sieht", "cat": "Katze"}
SENTENCES = ["one dog", "red cat sees two dog", "two", "cat sees cat", "dog red one two cat sees"]


def write_pairs(path: Path, sources: list[str]) -> None:
    lines = [f"{text}\t{' '.join(WORDS[word] for word in text.split())}\n" for text in sources]
    path.write_text("".join(lines), encoding="utf-8")


def recipe(folder: Path, **model: object) -> dict[str, object]:
    return {
        "data": {
            "train": str(folder / "train.tsv"),
            "validation": str(folder / "validation.tsv"),
            "test": str(folder / "validation.tsv"),
            "filters": {"duplicates": False},
        },
        "tokeniser": {"vocabulary_size": 350},
        "model": model or {"layers": 1, "hidden_size": 16, "ffn_size": 16, "heads": 2},
        "training": {"max_steps": 12, "batch_tokens": 300, "warmup_steps": 4, "threads": 1},
        "evaluation": {"beam": 3, "samples": 5},
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("one-way")
    write_pairs(folder / "train.tsv", [" ".join(SENTENCES[n % 5].split()[::-1]) for n in range(60)])
    write_pairs(folder / "validation.tsv", SENTENCES)
    assert heedful.train(recipe(folder), folder / "transformer")
    recurrent = recipe(
        folder, kind="recurrent", hidden_size=16, embedding_size=16, attention="bahdanau"
    )
    assert heedful.train(recurrent, folder / "recurrent")
    return folder


@pytest.mark.parametrize("run", ["transformer", "recurrent"])
def test_validation_command_and_python_agree_byte_by_byte(folder: Path, run: str) -> None:
    samples = (folder / run / "samples.jsonl").read_text(encoding="utf-8").splitlines()
    validated = [json.loads(line) for line in samples][-len(SENTENCES) :]
    assert [sample["source"] for sample in validated] == SENTENCES
    from_validation = [sample["output"] for sample in validated]
    translator = heedful.load(folder / run, checkpoint="last")
    options = SearchOptions(beam=3)
    from_python = [one.text for one in translator.translate(SENTENCES, options=options)]
    command = ("translate", folder / run, "--no-memory", "--beam", "3", "--checkpoint", "last")
    text = "".join(f"{sentence}\n" for sentence in SENTENCES)
    finished = run_command(*command, "--json", given=text)
    assert finished.returncode == 0, finished.stderr
    # JSON, because hardly trained models write control characters and line ends.
    from_command = [json.loads(line)["text"] for line in finished.stdout.split("\n")[:-1]]
    assert from_command == from_python == from_validation


def test_checkpoints_of_another_kind_of_model_are_refused(folder: Path, tmp_path: Path) -> None:
    mixed = tmp_path / "mixed"
    mixed.mkdir()
    for part in ("run.json", "manifest.json", "recipe.toml", "tokeniser", "data"):
        (mixed / part).symlink_to(folder / "transformer" / part)
    (mixed / "checkpoints").symlink_to(folder / "recurrent" / "checkpoints")
    with pytest.raises(UserError, match="another kind of model"):
        heedful.load(mixed)


def test_an_ensemble_needs_one_vocabulary(folder: Path, tmp_path: Path) -> None:
    both = heedful.load(folder / "transformer", folder / "recurrent")
    assert len(both.translate(SENTENCES)) == len(SENTENCES)
    other = recipe(folder)
    other["tokeniser"] = {"vocabulary_size": 345}
    heedful.train(other, tmp_path / "other")
    with pytest.raises(UserError, match="different vocabularies"):
        heedful.load(folder / "transformer", tmp_path / "other")


def test_what_is_no_run_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the folder does not exist"):
        heedful.load(tmp_path / "absent")
    with pytest.raises(UserError, match=r"has no run\.json"):
        heedful.load(tmp_path)


def test_an_unknown_precision_or_checkpoint_is_said(folder: Path) -> None:
    with pytest.raises(UserError, match="unknown precision 'half'"):
        heedful.load(folder / "transformer", precision="half")
    with pytest.raises(UserError, match="has no average"):
        heedful.load(folder / "transformer", checkpoint="average")
    with pytest.raises(UserError, match="has no checkpoint '7'"):
        heedful.load(folder / "transformer", checkpoint="7")


def test_info_says_what_a_run_is(folder: Path) -> None:
    run = folder / "transformer"
    assert "60 pairs" in run_command("info", run).stdout
    summary = json.loads(run_command("info", run, "--json").stdout)
    report = run_command("evaluate", run, "--bootstrap", "0", "--json").stdout
    bleu = json.loads(report)["scores"][0]["value"]
    again = run_command("info", run, "--json").stdout
    assert json.loads(again)["scores"][-1]["scores"]["BLEU"]["value"] == bleu
    assert summary["step"] == 12
    assert summary["finished"]


def test_a_full_disk_is_one_line_and_leaves_nothing_half_written(folder: Path) -> None:
    """A limit on file sizes fails a write halfway, as a full disk does."""
    (folder / "full.json").write_text(json.dumps(recipe(folder)))
    script = folder / "full.py"
    script.write_text(
        "import json, resource, sys, heedful\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))\n"
        "try:\n"
        "    heedful.train(json.load(open(sys.argv[1])), sys.argv[2])\n"
        "except heedful.UserError as error:\n"
        "    sys.exit(f'said: {error}')\n"
    )
    finished = run_command(folder / "full.json", folder / "full", program=script)
    assert "said: cannot write" in finished.stderr, finished.stderr
    left = [path.name for path in (folder / "full").rglob("*") if "part" in path.name]
    assert not left
    assert not list((folder / "full").rglob("step-*"))
