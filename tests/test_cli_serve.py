"""``heedful serve`` as a process: the same bytes as ``translate``, signals, clear refusals."""

import contextlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
import torch
import typer
from typer.testing import CliRunner

from command_help import PIPE, Started
from heedful.basics.errors import UserError
from heedful.cli import serve, task_commands
from heedful.runs.opening import accept_changes
from heedful.serving.loading import load_all
from serving_help import sentences, serving, small_run

TEXTS = [*sentences(6, seed=4), "é ☃ \t tab", "the cat. A DOG?  Two  spaces "]
torch.set_num_threads(1)
app = typer.Typer()
app.callback()(lambda: None)
serve.register(app)
task_commands.register(app)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("serve")
    small_run(folder, source="en", target="de")
    shutil.copytree(folder / "run", folder / "copy")
    nameless = shutil.copytree(folder / "run", folder / "nameless")
    recipe = (nameless / "recipe.toml").read_text()
    (nameless / "recipe.toml").write_text(re.sub(r'(?m)^(source|target) = ".*"\n', "", recipe))
    accept_changes(nameless)
    return folder


@contextlib.contextmanager
def served(folder: Path, *arguments: str) -> Iterator[tuple[Started, str]]:
    """A server's process and its address, which it says once it listens."""
    serve = ("serve", *arguments, "--port", "0", "--threads", "1")
    process = Started(*serve, cwd=folder, stderr=PIPE)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert "serving" in line, line
        yield process, line.split(" at ")[1].split()[0]
    finally:
        process.kill()
        process.wait()


def refused(folder: Path, *arguments: str) -> str:
    """The one line with which the command ends."""
    with contextlib.chdir(folder):
        result = CliRunner().invoke(app, ["serve", *arguments])
    assert isinstance(result.exception, UserError), result.output
    [line] = str(result.exception).splitlines()
    return line


def test_the_same_bytes_as_translate_and_a_graceful_stop(folder: Path) -> None:
    given = "".join(f"{text}\n" for text in TEXTS)
    run = str(folder / "run")
    lines = CliRunner().invoke(app, ["translate", run], input=given.encode()).stdout_bytes
    # Some have several sentences, which otherwise go one by one.
    with served(folder, "run", "--whole-lines") as (process, address):
        alone = [_translated(address, text) for text in TEXTS]
        assert "".join(f"{text}\n" for text in alone).encode() == lines
        assert _translated(address, given).encode() == lines
        long = " ".join(sentences(400))[:8_000]
        with ThreadPoolExecutor(1) as pool:
            held = pool.submit(_translated, address, long)
            with httpx.Client(base_url=address) as client:
                _until_busy(client)
                process.send_signal(signal.SIGTERM)
                time.sleep(0.1)
                late = client.post("/translate", data={"q": "a", "source": "en", "target": "de"})
                if not held.done():
                    assert late.status_code == 503
            assert len(held.result()) > 0
        assert process.wait(10) == 0
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


def test_a_second_signal_does_not_wait(folder: Path) -> None:
    with served(folder, "run") as (process, address):
        with ThreadPoolExecutor(1) as pool, httpx.Client(base_url=address) as client:
            held = pool.submit(_translated, address, " ".join(sentences(2_000))[:40_000])
            _until_busy(client)
            process.send_signal(signal.SIGINT)
            time.sleep(0.2)
            process.send_signal(signal.SIGINT)
            assert process.wait(8) == 0
            with contextlib.suppress(httpx.HTTPError, AssertionError):
                held.result()
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


@pytest.mark.slow
def test_work_that_nobody_waits_for_does_not_abort_the_process(folder: Path) -> None:
    # As a model's slice of some seconds: within PyTorch when the command ends.
    script = """
import sys, time, torch
from heedful.cli.main import main
from heedful.serving import server
from heedful.serving.engine import Engine

torch.set_num_threads(1)
large = torch.ones(2500, 2500)

def run_server(application, **given):
    engine = application.state.engine
    engine.run(lambda: [large @ large for _ in range(100)])
    time.sleep(0.3)
    engine.close(0.1)

server.run_server = run_server
sys.argv = ["heedful", "serve", "run", "--port", "0", "--threads", "1"]
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_two_pairs_given_languages_and_keys(folder: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    made = CliRunner().invoke(app, ["serve", "--new-key", str(keys)])
    key = made.stdout.strip()
    assert str(keys) in made.stderr
    options = ("--languages", "nameless=fr:it", "--keys", str(keys))
    with served(folder, "run", "nameless", *options) as (_, address):
        known = httpx.get(f"{address}languages").json()
        assert {one["code"]: one["targets"] for one in known} == {
            "en": ["de"],
            "de": [],
            "fr": ["it"],
            "it": [],
        }
        bearer = {"Authorization": f"Bearer {key}"}
        models = httpx.get(f"{address}api/models", headers=bearer).json()["models"]
        assert [model["name"] for model in models] == ["run", "nameless"]
        given = {"q": "a", "source": "fr", "target": "it"}
        assert httpx.post(f"{address}translate", data=given).status_code == 403
        given["api_key"] = key
        assert httpx.post(f"{address}translate", data=given).status_code == 200


def test_what_cannot_be_served_is_one_line(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        # Before anything is loaded.
        assert refused(folder, "absent", "--port", port).startswith(f"port {port} is in use")
    assert "the folder does not exist" in refused(folder, "absent", "--port", "0")
    assert "it is a file" in refused(folder, "run/recipe.toml", "--port", "0")
    assert "no run.json" in refused(folder, ".", "--port", "0")
    assert "are unknown; give them: --languages" in refused(folder, "nameless", "--port", "0")
    for wrong in ("run=en", "other=en:de", "=en:de", "run=:de"):
        assert "--languages" in refused(folder, "run", "--languages", wrong, "--port", "0")
    assert "--new-key" in refused(folder, "run", "--keys", "run/run.json")
    assert "cannot read" in refused(folder, "run", "--keys", "absent")
    assert "origin" in refused(folder, "run", "--cors", "example.org")
    assert "no such address" in refused(folder, "run", "--host", "no.such.host.invalid")
    assert "threads" in refused(folder, "run", "--threads", "0")


def test_two_runs_of_one_pair_are_chosen_by_name(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models = load_all([folder / "run", folder / "copy"], [], device="cpu")
    assert [(one.name, one.source, one.target) for one in models] == [
        ("run", "en", "de"),
        ("copy", "en", "de"),
    ]
    assert "run and copy both translate en to de" in capsys.readouterr().err
    with serving(*models) as client:
        for name in ("run", "copy"):
            answer = client.post("/api/translate", json={"model": name, "text": "a cat"}).json()
            assert answer["model"] == name
        both = client.post("/translate", json={"q": "a cat", "source": "en", "target": "de"})
        assert both.status_code == 200


def _translated(address: str, text: str) -> str:
    given = {"q": text, "source": "en", "target": "de"}
    answer = httpx.post(f"{address}translate", json=given, timeout=60)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["translatedText"])


def _until_busy(client: httpx.Client) -> None:
    for _ in range(500):
        if "heedful_waiting_requests 1.0" in client.get("/metrics").text:
            return
        time.sleep(0.01)
    raise AssertionError("the server has nothing in hand")


@pytest.mark.parametrize(
    ("arguments", "warns"),
    [
        (["--host", "0.0.0.0"], True),
        (["--host", "0.0.0.0", "--allow-host", "a.example"], True),
        (["--host", "0.0.0.0", "--keys", "keys"], False),
        (["--host", "127.0.0.1"], False),
        (["--host", "127.0.0.1", "--allow-host", "*"], False),
    ],
)
def test_a_server_for_all_without_keys_says_so(
    arguments: list[str], warns: bool, tmp_path: Path
) -> None:
    with contextlib.chdir(tmp_path):
        CliRunner().invoke(app, ["serve", "--new-key", "keys"])
        result = CliRunner().invoke(app, ["serve", "no-run", "--port", "0", *arguments])
    told = [line for line in result.stderr.splitlines() if "without --keys" in line]
    assert told == warns * [
        "heedful: --host 0.0.0.0 without --keys: anyone who can reach port 0 can use the server; "
        "heedful serve --new-key FILE creates a key"
    ]


def test_a_server_for_all_takes_its_names_only(folder: Path) -> None:
    key = CliRunner().invoke(app, ["serve", "--new-key", str(folder / "keys")]).stdout.strip()
    options = ("--host", "0.0.0.0", "--keys", "keys", "--allow-host", "translate.example")
    with served(folder, "run", *options) as (_, address):
        bearer = {"Authorization": f"Bearer {key}"}
        for name, status in (
            ("translate.example", 200),
            ("10.1.2.3:5000", 200),
            ("localhost", 200),
            ("evil.example", 400),
        ):
            headers = {**bearer, "Host": name}
            assert httpx.get(f"{address}api/models", headers=headers).status_code == status
        # Other people may read the page, so it offers no texts of the run's data.
        answer = httpx.get(f"{address}api/models", headers=bearer).json()
        assert answer["models"][0]["examples"] == []


def test_examples_are_validation_sentences_for_this_machine_only(folder: Path) -> None:
    known = {line.split("\t")[0] for line in (folder / "validation.tsv").read_text().splitlines()}
    for arguments, offers in (([], True), (["--no-examples"], False)):
        with served(folder, "run", *arguments) as (_, address):
            examples = httpx.get(f"{address}api/models").json()["models"][0]["examples"]
        assert bool(examples) == offers
        assert set(examples) <= known
