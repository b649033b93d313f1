"""Tiny runs of every task, stored from an earlier version or compared between two commits.

    python tests/earlier_runs.py write FOLDER          train one run of each task and use it
    python tests/earlier_runs.py compare OLD [NEW]     do so with two commits; all must be identical

``tests/data/runs-0.1`` was written by version 0.1.0. The script only uses the command line, whose
names do not change, so that it works with every version. NEW defaults to the working tree.
"""

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomlkit
from safetensors import safe_open

from text_help import BERT, LABELLED, LANGUAGE, TAGGED, WORDS, sentence, write_data

ROOT = Path(__file__).resolve().parents[1]
STEPS = 50
LOOP = {
    "device": "cpu",
    "threads": 1,
    "precision": "float32",
    "max_steps": STEPS,
    "batch_tokens": 200,
    "learning_rate": 0.02,
    "schedule": "constant",
    "warmup_steps": 2,
    "log_every": 5,
    "validate_every": 25,
    "checkpoint_every": 10,
    "keep_last": 1,
}
SMALL = {**BERT, "layers": 1, "hidden_size": 8, "ffn_size": 8}
PAIR_LOOP = {**LOOP, "choose_by": "loss"}
PAIR_DATA = {"train": "pairs.tsv", "validation": "pairs-held.tsv", "source": "en", "target": "de"}
PIECES = {"kind": "bpe", "vocabulary_size": 370}
TRANSFORMER = {
    "kind": "transformer",
    "layers": 1,
    "decoder_layers": 1,
    "hidden_size": 4,
    "heads": 2,
    "ffn_size": 4,
    "tied_embeddings": "output",
    "max_length": 40,
}
RECURRENT = {
    "kind": "recurrent",
    "encoder_layers": 1,
    "decoder_layers": 1,
    "hidden_size": 4,
    "embedding_size": 4,
    "max_length": 40,
}
GERMAN = {
    "the": "der",
    "a": "ein",
    "red": "rote",
    "green": "grüne",
    "blue": "blaue",
    "dog": "Hund",
    "cat": "Kater",
    "bird": "Vogel",
    "sees": "sieht",
    "eats": "frisst",
}


@dataclass(frozen=True)
class Case:
    """A run: its recipe, and the commands that use it.

    Attributes:
        recipe: the tables of the recipe.
        commands: arguments by name; ``RUN`` and ``TRACE`` are replaced by paths, ``data/`` by the
            data's folder.
    """

    recipe: dict[str, Any]
    commands: dict[str, list[str]]


def _texts(task: str, data: dict[str, Any], **more: Any) -> dict[str, Any]:
    tables = {"task": task, "seed": 5, "data": data, "max_tokens": 24, "tokeniser": WORDS}
    return {**tables, "model": SMALL, "training": LOOP, **more}


def _pairs(task: str, model: dict[str, Any], **data: Any) -> dict[str, Any]:
    return {
        "task": task,
        "seed": 5,
        "data": {**PAIR_DATA, "max_tokens": 30, **data},
        "tokeniser": PIECES,
        "model": model,
        "training": PAIR_LOOP,
        "evaluation": {"beam": 2, "samples": 0},
    }


_DOCUMENTS = {"train": "documents.txt", "validation": "documents-held.txt"}
_MASKED = {"tokeniser": {**WORDS, "mask": True}}
_TRACE = "import sys, heedful; heedful.load(sys.argv[1]).trace(*sys.argv[3:]).save(sys.argv[2])"
TRANSLATE = {
    "trace": ["-c", _TRACE, "RUN", "TRACE", "the red dog sees a bird"],
    "translate": ["translate", "RUN", "data/new.txt", "--scores"],
    "evaluate": ["evaluate", "RUN", "--data", "data/german.tsv", "--json", "--bootstrap", "0"],
}
CLASSIFY = {
    "classify": ["classify", "RUN", "data/new.txt", "--json"],
    "trace": ["classify", "RUN", "data/one.txt", "--trace", "TRACE"],
}
TAG = {
    "tag": ["tag", "RUN", "data/new.txt", "--words"],
    "trace": ["tag", "RUN", "data/one.txt", "--trace", "TRACE"],
}
FILL = {
    "fill": ["fill", "RUN", "the [MASK] dog sees a cat", "--json"],
    "trace": ["fill", "RUN", "the [MASK] dog sees a cat", "--trace", "TRACE"],
}
GENERATE = {
    "generate": ["generate", "RUN", "--prompt", "the ", "--beam", "2", "--max-tokens", "12"],
    "trace": [
        *("generate", "RUN", "--prompt", "the ", "--beam", "1", "--max-tokens", "8"),
        *("--trace", "TRACE"),
    ],
}
CASES: dict[str, Case] = {
    "translation": Case(_pairs("translation", TRANSFORMER), TRANSLATE),
    "recurrent": Case(
        _pairs("translation", RECURRENT),
        TRANSLATE,
    ),
    "text-to-text": Case(_pairs("text-to-text", TRANSFORMER), TRANSLATE),
    "alignment": Case(
        _pairs("alignment", {"kind": "aligner", "hidden_size": 4}),
        {
            "align": ["align", "RUN", "data/german.tsv", "--json"],
            "trace": ["-c", _TRACE, "RUN", "TRACE", "the red dog", "der rote Hund"],
        },
    ),
    "classification": Case(_texts("classification", LABELLED), CLASSIFY),
    "tagging": Case(_texts("tagging", TAGGED), TAG),
    "masked": Case(_texts("masked", _DOCUMENTS, **_MASKED), FILL),
    "language-model": Case(
        {**LANGUAGE, "model": {"layers": 1, "hidden_size": 8, "heads": 2}, "training": LOOP},
        GENERATE,
    ),
    "several": Case(
        {
            **{
                key: value
                for key, value in _texts("several", {}, **_MASKED).items()
                if key != "data"
            },
            "tasks": {
                "colour": {"task": "classification", "data": LABELLED},
                "words": {"task": "tagging", "data": TAGGED, "weight": 0.5},
                "hidden": {"task": "masked", "data": _DOCUMENTS},
            },
        },
        {
            "classify": ["classify", "RUN", "data/new.txt", "--json"],
            "tag": ["tag", "RUN", "data/new.txt", "--words"],
            "fill": ["fill", "RUN", "the [MASK] dog sees a cat", "--json"],
        },
    ),
}

UNFINISHED = ("translation", "language-model", "several")
"""Tasks for which an interrupted run is also stored."""


def write_inputs(folder: Path) -> None:
    """Write the files that recipes and commands name."""
    folder.mkdir(parents=True)
    write_data(folder)
    (folder / "vectors.txt").unlink()
    rng = random.Random(2)
    for name, count in (("pairs.tsv", 48), ("pairs-held.tsv", 9), ("german.tsv", 6)):
        made = [sentence(rng) for _ in range(count)]
        lines = [f"{' '.join(one)}\t{' '.join(map(GERMAN.__getitem__, one))}" for one in made]
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    new = [" ".join(sentence(rng)) for _ in range(5)]
    (folder / "new.txt").write_text("\n".join([*new, ""]) + "\n", encoding="utf-8")
    (folder / "one.txt").write_text(new[0] + "\n", encoding="utf-8")


def heedful(arguments: list[str], folder: Path, source: Path) -> str:
    """The output of a command of the version in ``source``."""
    module = [] if arguments[0] == "-c" else ["-m", "heedful"]
    done = subprocess.run(
        [sys.executable, *module, *arguments],
        cwd=folder,
        env=_environment(source),
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"heedful {' '.join(arguments)} failed:\n{done.stderr}")
    return done.stdout


def _environment(source: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}


def filled_in(arguments: list[str], run: str, trace: str = "trace.safetensors") -> list[str]:
    """A case's command with its paths filled in."""
    return [{"RUN": run, "TRACE": trace}.get(each, each) for each in arguments]


EARLIER_NAMES = {
    "hidden_size": "dim",
    "ffn_size": "inner",
    "embedding_size": "embedding",
    "tied_embeddings": "tied",
    "vocabulary_size": "vocabulary",
}


def knows_names(source: Path) -> bool:
    """Whether the version in ``source`` has the current names of settings."""
    return "renamed" in (source / "heedful" / "basics" / "settings.py").read_text("utf-8")


def with_earlier_names(tables: dict[str, Any]) -> dict[str, Any]:
    """A recipe with the names of settings that version 0.1 has."""
    names = EARLIER_NAMES
    if tables.get("kind") == "recurrent":
        names = {**names, "hidden_size": "hidden"}
    return {
        names.get(key, key): with_earlier_names(value) if isinstance(value, dict) else value
        for key, value in tables.items()
    }


def write_runs(folder: Path, source: Path, *, unfinished: bool) -> None:
    """Train and use one run of each task in ``folder``, with the version in ``source``."""
    write_inputs(folder / "data")
    for name, case in CASES.items():
        own = folder / name
        own.mkdir()
        recipe = case.recipe if knows_names(source) else with_earlier_names(case.recipe)
        (own / "recipe.toml").write_text(tomlkit.dumps(recipe), encoding="utf-8")
        train = ["train", f"{name}/recipe.toml", "--data", "data", "--out"]
        if unfinished and name in UNFINISHED:
            _interrupt([*train, f"{name}/unfinished"], folder, source)
        heedful([*train, f"{name}/run"], folder, source)
        outputs = {
            what: heedful(
                filled_in(arguments, f"{name}/run", f"{name}/trace.safetensors"), folder, source
            )
            for what, arguments in case.commands.items()
        }
        text = json.dumps(outputs, ensure_ascii=False, indent=1)
        (own / "outputs.json").write_text(text + "\n", encoding="utf-8")
        print(name, flush=True)


def _interrupt(arguments: list[str], folder: Path, source: Path) -> None:
    """Start a training and interrupt it after its first steps."""
    run = folder / arguments[-1]
    while True:
        begun = subprocess.Popen(
            [sys.executable, "-m", "heedful", *arguments],
            cwd=folder,
            env=_environment(source),
            stderr=subprocess.PIPE,
            text=True,
        )
        metrics = run / "metrics.jsonl"
        while begun.poll() is None and not (metrics.exists() and metrics.stat().st_size):
            time.sleep(0.002)
        begun.send_signal(signal.SIGINT)
        said = begun.communicate()[1]
        ended = begun.returncode
        if ended == 130 and not (run / "result.json").exists():
            return
        if ended not in (0, 130):
            raise SystemExit(f"heedful {' '.join(arguments)} failed:\n{said}")
        shutil.rmtree(run, ignore_errors=True)


def content(folder: Path) -> Iterator[tuple[str, str]]:
    """The content that must be identical: weights, traces and outputs by path."""
    for path in sorted(folder.rglob("*")):
        if path.name in ("model.safetensors", "trace.safetensors"):
            yield str(path.relative_to(folder)), _tensors(path)
        if path.name == "outputs.json":
            # Only the run's path and the time may differ.
            yield str(path.relative_to(folder)), re.sub(r"[0-9.]+ s\b", "", path.read_text())


def _comparable(metadata: dict[str, str]) -> dict[str, str]:
    """A file's metadata; a trace's axes are lists of labels in every version's format."""
    if not metadata.get("format", "").startswith("heedful-trace"):
        return metadata
    trace = json.loads(metadata["trace"])
    for name, axis in trace["axes"].items():
        trace["axes"][name] = axis if isinstance(axis, list) else axis.get("labels", axis)
    return {"trace": json.dumps(trace, sort_keys=True)}


def _tensors(path: Path) -> str:
    """The content of a safetensors file, independent of the order of its metadata."""
    with safe_open(path, framework="numpy") as file:
        metadata = sorted(_comparable(file.metadata() or {}).items())
        tensors = [(name, file.get_tensor(name)) for name in sorted(file.keys())]
    return repr(metadata) + "".join(
        f"{name} {array.dtype} {array.shape} {array.tobytes().hex()}" for name, array in tensors
    )


def compare(old: str, new: str | None) -> int:
    """Write the runs with two commits; returns the number of files that differ."""
    with tempfile.TemporaryDirectory() as place:
        found = []
        for name, commit in (("old", old), ("new", new)):
            source = ROOT
            if commit is not None:
                source = Path(place) / f"{name}-source"
                git = ["git", "-C", str(ROOT), "worktree", "add", "--detach", "--force", "--quiet"]
                subprocess.run([*git, str(source), commit], check=True)
            write_runs(Path(place) / name, source / "src", unfinished=False)
            found.append(dict(content(Path(place) / name)))
            if commit is not None:
                subprocess.run(
                    ["git", "-C", str(ROOT), "worktree", "remove", "--force", str(source)],
                    check=True,
                )
        before, after = found
        other = [
            path
            for path in sorted(before.keys() | after.keys())
            if before.get(path) != after.get(path)
        ]
        for path in other:
            print(f"differs: {path}")
        print(f"{len(before) - len(other)} of {len(before)} files are identical")
        return len(other)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    write = commands.add_parser("write", help="train one run of each task and use it")
    write.add_argument("folder", type=Path)
    both = commands.add_parser("compare", help="do so with two commits")
    both.add_argument("old")
    both.add_argument("new", nargs="?")
    asked = parser.parse_args()
    if asked.command == "write":
        write_runs(asked.folder.resolve(), ROOT / "src", unfinished=True)
        return 0
    return 1 if compare(asked.old, asked.new) else 0


if __name__ == "__main__":
    sys.exit(main())
