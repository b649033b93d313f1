"""``heedful translate --bulk``: shards in worker processes give what one process gives."""

import gzip
import json
import lzma
import multiprocessing
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

import heedful
from command_help import fork_server
from heedful.basics import worker_processes
from heedful.basics.errors import UserError
from heedful.basics.locking import locked
from heedful.basics.worker_processes import Advance
from heedful.cli.main import main
from heedful.inference.bulk import STATE, BulkInput, BulkJob
from heedful.inference.bulk_workers import Answer, Shard, read_shard, write_shard
from heedful.inference.files import LineFormat, translate_lines
from heedful.tasks.pairs.building import load_translator
from heedful.tasks.pairs.run import load_memory
from test_cli_translate import RECIPE, WORDS

Call = Callable[..., tuple[int, str, str]]
processes = pytest.mark.skipif(
    not os.environ.get("HEEDFUL_PROCESSES"), reason="starts many processes: make processes"
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bulk")
    chance = random.Random(1)
    for name, count in (("train", 600), ("validation", 4)):
        pairs = [
            [chance.choice(list(WORDS)) for _ in range(chance.randint(1, 5))] for _ in range(count)
        ]
        lines = [" ".join(pair) + "\t" + " ".join(map(WORDS.__getitem__, pair)) for pair in pairs]
        (folder / f"{name}.tsv").write_text("\n".join(lines) + "\n")
    (folder / "recipe.toml").write_text(RECIPE)
    assert heedful.train(folder / "recipe.toml", folder / "run", data=folder)
    return folder / "run"


def sentences(count: int, seed: int) -> list[str]:
    chance = random.Random(seed)
    return [" ".join(chance.choices(list(WORDS), k=chance.randint(1, 6))) for _ in range(count)]


def texts(count: int = 30) -> bytes:
    """Sentences with empty lines, white space, a long line, and no line feed at the end."""
    lines = sentences(count, seed=7)
    lines[1] = lines[count // 2] = ""
    lines[3], lines[5] = "  \t", " ".join(sentences(20, seed=2))
    return "\n".join(lines).encode()


def alone_folder(run: Path) -> Path:
    return run.parent / "in"


@pytest.fixture(scope="module")
def alone(run: Path) -> dict[str, bytes]:
    """Writes files, and returns the translation of each by one process, without ``--bulk``."""
    content = texts()
    pairs = "".join(f"{text}\tZiel\n" for text in sentences(3, seed=3)).encode()
    files = {
        "a.txt": content,
        "deep/b.txt.gz": gzip.compress(content + b"\nend\n"),
        "c.xz": lzma.compress(content.splitlines()[0]),
        "empty.txt": b"",
        "pairs.tsv": pairs,
    }
    (alone_folder(run) / "deep").mkdir(parents=True)
    (alone_folder(run) / ".hidden").write_bytes(b"\xff")
    translator, found = load_translator([run]), {}
    for name, packed in files.items():
        path, output = alone_folder(run) / name, run.parent / "alone"
        path.write_bytes(packed)
        translate_lines(
            translator,
            str(path),
            output,
            options=translator.options,
            line_format=LineFormat(),
            tsv=name.endswith(".tsv"),
            memory=load_memory(run),
        )
        found[name] = output.read_bytes()
    assert len(set(found["a.txt"].splitlines())) > 10  # the model has learnt something
    return found


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Call:
    def call(*arguments: object) -> tuple[int, str, str]:
        given = ["heedful", "translate", *map(str, arguments), "--threads", "1"]
        monkeypatch.setattr("sys.argv", given)
        with pytest.raises(SystemExit) as exit:
            main()
        out, err = capfd.readouterr()
        return int(exit.value.code or 0), out, err

    return call


@pytest.fixture
def forks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers are forks, unless ``make processes`` runs all tests: new ones import PyTorch."""
    if not os.environ.get("HEEDFUL_PROCESSES"):
        context = SimpleNamespace(get_context=lambda how: fork_server())
        context.parent_process = multiprocessing.parent_process
        monkeypatch.setattr(worker_processes, "multiprocessing", context)


# An answer without a model: slow enough to be killed, and told where to end itself.
def reversed_lines(shard: Shard, advance: Advance) -> tuple[list[str], Counter[str]]:
    made = []
    for line in shard.lines:
        time.sleep(0.002)
        made.append(line[::-1])
        advance(1)
    return made, Counter({"seen": len(made)})


def opens() -> Answer:
    return reversed_lines


def opens_killer(folder: Path, deaths: int) -> Answer:
    """Workers that kill themselves within a shard, until ``deaths`` have died."""

    def answer(shard: Shard, advance: Advance) -> tuple[list[str], Counter[str]]:
        if shard.first == 20 and len([*folder.glob("dead*")]) < deaths:
            advance(3)
            (folder / f"dead{os.getpid()}").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return reversed_lines(shard, advance)

    return answer


def opens_refusing() -> Answer:
    def answer(shard: Shard, advance: Advance) -> tuple[list[str], Counter[str]]:
        raise UserError(f"{shard.where}: refused")

    return answer


def job(tmp_path: Path, lines: int = 57, shard_lines: int = 10, **settings: object) -> BulkJob:
    source = tmp_path / "in.txt"
    if not source.exists():
        source.write_text("".join(f"line {number}\n" for number in range(lines)))
    inputs = {"in.txt": BulkInput(source)}
    return BulkJob(inputs, tmp_path / "out", settings, shard_lines=shard_lines)


def right(lines: int = 57) -> str:
    return "".join(f"line {number}"[::-1] + "\n" for number in range(lines))


@pytest.mark.parametrize(
    ("workers", "shard_lines"),
    [
        pytest.param(1, 10_000, marks=processes),
        (2, 7),
        pytest.param(3, 4, marks=processes),
    ],
)
@pytest.mark.usefixtures("forks")
def test_output_is_that_of_one_process(
    run: Path, alone: dict[str, bytes], tmp_path: Path, call: Call, workers: int, shard_lines: int
) -> None:
    options = ("--bulk", "--workers", workers, "--shard-lines", shard_lines, "--json")
    code, out, err = call(run, alone_folder(run), "--output", tmp_path / "out", *options)
    assert code == 0, err
    unpack = {".gz": gzip.decompress, ".xz": lzma.decompress}
    for name, content in alone.items():
        made = (tmp_path / "out" / name).read_bytes()
        assert unpack.get(Path(name).suffix, bytes)(made) == content, name
    summary, lines = json.loads(out), sum(made.count(b"\n") for made in alone.values())
    assert (summary["files"], summary["lines"], summary["new_lines"]) == (5, lines, lines)
    assert summary["split"] == 2
    assert "2 texts were longer than the model's 40 tokens" in err
    assert "pairs.tsv: only the first column is translated" in err
    left = {path.name for path in (tmp_path / "out").rglob("*")}
    assert left == {Path(name).name for name in alone} | {"deep", STATE, "manifest.json"}


@processes
def test_samples_do_not_depend_on_shards(run: Path, tmp_path: Path, call: Call) -> None:
    (tmp_path / "in.txt").write_bytes(texts(12))
    options = (run, tmp_path / "in.txt", "--sample", "--seed", 5)
    assert call(*options, "--output", tmp_path / "alone")[0] == 0
    assert call(*options, "--bulk", "--shard-lines", 5, "--output", tmp_path / "out")[0] == 0
    assert (tmp_path / "out/in.txt").read_bytes() == (tmp_path / "alone").read_bytes()


def start(run: Path, source: Path, output: Path, *options: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "heedful", "translate", run, source, "--output", output]
    command += ["--bulk", "--shard-lines", "5", "--threads", "1", *options]
    return subprocess.Popen(
        [*map(str, command)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )


def wait_for_shards(output: Path, count: int) -> None:
    limit = time.monotonic() + 120
    while len([*(output / STATE).glob("0*/0*")]) < count:
        assert time.monotonic() < limit
        time.sleep(0.01)


@processes
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_command_is_resumed(
    run: Path, tmp_path: Path, call: Call, how: signal.Signals
) -> None:
    source, output = tmp_path / "in.txt", tmp_path / "out"
    source.write_bytes(texts(400))
    started = start(run, source, output, "--workers", "2")
    wait_for_shards(output, random.Random(how).randint(1, 4))
    if how is signal.SIGINT:
        os.killpg(started.pid, how)  # as Ctrl-C: to the workers as well
    else:
        started.kill()
    _, err = started.communicate()
    if how is signal.SIGINT:
        assert started.returncode == 130
        assert err.splitlines() == [
            f"heedful: {output}: stopped; rerun the same command to resume", "heedful: interrupted"
        ]  # fmt: skip
        assert not [*output.rglob("*.part")]
    assert not (output / "in.txt").exists()
    same = ("--bulk", "--shard-lines", 5, "--output", output)
    code, out, err = call(run, source, *same, "--workers", 3, "--json")
    assert code == 0, err
    assert "shards were done" in err
    assert json.loads(out)["new_lines"] < 400
    assert call(run, source, "--output", tmp_path / "alone")[0] == 0
    assert (output / "in.txt").read_bytes() == (tmp_path / "alone").read_bytes()
    code, out, err = call(run, source, *same)
    assert (code, err) == (0, "")
    assert "0 translated now" in out


@pytest.mark.usefixtures("forks")
def test_other_settings_and_inputs_are_refused(run: Path, tmp_path: Path, call: Call) -> None:
    source, output = tmp_path / "in.txt", tmp_path / "out"
    source.write_bytes(texts(8))
    same = (run, source, "--bulk", "--output", output)
    assert call(*same)[0] == 0
    for options, message in (
        (("--beam", 2), "started with beam = "),
        (("--shard-lines", 3), "started with shard_lines = 10000, but is now given 3"),
        (("--scores",), "started with scores = False, but is now given True"),
    ):
        code, _, err = call(*same, *options)
        assert (code, err.count("\n")) == (2, 1)
        assert message in err
    source.write_bytes(texts(9))
    code, _, err = call(*same)
    assert (code, err.count("\n")) == (2, 1)
    assert "in.txt has changed since" in err


def test_wrong_options_are_refused(run: Path, tmp_path: Path, call: Call) -> None:
    source = tmp_path / "in.txt"
    source.write_bytes(texts(8))
    (tmp_path / "messages.po").write_text('msgid "the cat"\nmsgstr ""\n')
    (tmp_path / "table.csv").write_text("a,b\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out/in.txt").write_text("mine\n")
    output = ("--output", tmp_path / "new")
    for arguments, message in (
        ((source, "--bulk"), "--bulk needs --output"),
        (("-", "--bulk", *output), "--bulk needs a file or a folder"),
        ((tmp_path / "none", "--bulk", *output), "no such file or folder"),
        ((tmp_path / "folder", "--bulk", *output), "has no files"),
        ((tmp_path / "messages.po", "--bulk", *output), "is a document"),
        ((tmp_path / "table.csv", "--bulk", *output), "is a table"),
        ((source, "--bulk", *output, "--workers", 0), "--workers 0"),
        ((source, "--bulk", *output, "--nbest", 2), "leave out --nbest"),
        ((source, "--bulk", *output, "--format", "po"), "not po"),
        ((source, "--bulk", "--output", source), "it is a file"),
        ((source, "--bulk", "--output", tmp_path), "is an input"),
        ((source, "--bulk", "--output", tmp_path / "out"), "out/in.txt exists"),
        ((source, "--workers", 2), "need --bulk"),
        ((tmp_path, "--bulk", *output), "is inside"),
    ):
        code, _, err = call(run, *arguments)
        assert (code, err.count("\n")) == (2, 1), (arguments, err)
        assert message in err
    assert (tmp_path / "out/in.txt").read_text() == "mine\n"


@processes
def test_a_dead_worker_is_replaced(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    summary = job(tmp_path).run(partial(opens_killer, tmp_path, 1), 1, "test")
    assert (tmp_path / "out/in.txt").read_text() == right()
    assert (summary.lines, summary.new_lines, summary.counts["seen"]) == (57, 57, 57)
    err = capfd.readouterr().err
    assert err.count("was killed by signal 9 at") == 1
    assert "in.txt, lines 21 to 30; another worker takes its place" in err


@processes
def test_a_shard_that_kills_every_worker_ends_the_job(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="lines 21 to 30, for the 3rd time"):
        job(tmp_path).run(partial(opens_killer, tmp_path, 3), 1, "test")
    assert not (tmp_path / "out/in.txt").exists()
    summary = job(tmp_path).run(opens, 1, "test")  # the other shards were kept
    assert summary.new_lines < 57
    assert (tmp_path / "out/in.txt").read_text() == right()


@processes
def test_a_workers_error_ends_the_job(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"in\.txt, lines 1 to 10: refused"):
        job(tmp_path).run(opens_refusing, 1, "test")
    assert not [*(tmp_path / "out").rglob("*.part")]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"version": 2}', '{"version": 1}'])
def test_a_corrupt_manifest_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "out" / STATE).mkdir(parents=True)
    (tmp_path / "out" / STATE / "manifest.json").write_text(content)
    with pytest.raises(UserError, match=r"manifest\.json.*to start the job again, delete") as found:
        job(tmp_path).run(opens, 1, "test")
    assert "\n" not in str(found.value)


def test_a_damaged_shard_is_deleted(tmp_path: Path) -> None:
    path = tmp_path / "shard"
    shard = Shard(path, "here", 0, ["a", "b"])
    write_shard(shard, ["x", ""], Counter({"seen": 2}))
    counts, lines = read_shard(path)
    assert ([*lines], counts) == ([b"x\n", b"\n"], Counter({"seen": 2}))
    for damaged in (path.read_bytes()[:-1], b"", b"\x00\x01", b"[1]\nx\n", b'{"a": 1}\n'):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match="was damaged and is deleted"):
            read_shard(path)
        assert not path.exists()


def test_an_input_that_changes_while_it_is_read_is_noticed(tmp_path: Path) -> None:
    one = job(tmp_path)
    record = one._record(one.inputs["in.txt"])
    one._record = lambda given: record  # type: ignore[method-assign]
    (tmp_path / "in.txt").write_text(right())  # after it was hashed
    with pytest.raises(UserError, match="changed while it was read"):
        one.run(opens, 1, "test")
    assert not [*(tmp_path / "out" / STATE).glob("0*")]
    assert not (tmp_path / "out/in.txt").exists()


def test_a_second_start_is_refused(tmp_path: Path) -> None:
    one = job(tmp_path)
    (tmp_path / "out").mkdir()
    with locked(tmp_path / "out", "written"), pytest.raises(UserError, match="is being written by"):
        one.run(opens, 1, "test")


@processes
def test_a_deleted_output_is_made_again(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    job(tmp_path).run(opens, 1, "test")
    (tmp_path / "out/in.txt").unlink()
    assert job(tmp_path).run(opens, 2, "test").new_lines == 57
    assert (tmp_path / "out/in.txt").read_text() == right()
    assert "is missing or was changed" in capfd.readouterr().err


def opens_on_full_disk() -> Answer:
    """A limit on file sizes fails a write halfway, as a full disk does."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (60, 60))
    return reversed_lines


@processes
def test_a_full_disk_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot write .*free some space") as found:
        job(tmp_path).run(opens_on_full_disk, 2, "test")
    assert "\n" not in str(found.value)
    left = {path.name for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert left == {"manifest.json"}
    job(tmp_path).run(opens, 1, "test")
    assert (tmp_path / "out/in.txt").read_text() == right()
