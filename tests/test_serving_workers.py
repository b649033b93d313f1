"""Several workers behind one port: what they share, rolling restarts, and workers that die."""

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from command_help import PIPE, Started
from heedful.basics.errors import UserError
from heedful.basics.shared_tensors import shared_tensor, sharing_tensors
from heedful.runs.checkpoints import mapped_weights, open_checkpoint, save_checkpoint
from heedful.serving.application import make_application
from heedful.serving.keys import new_key
from heedful.serving.notifying import notify_ready, notify_reloading
from heedful.serving.port import open_port
from heedful.serving.setup import Setup
from heedful.serving.shared import make_shared
from heedful.serving.supervisor import Supervisor
from heedful.tasks.endpoints import Download, NoRoomError
from heedful.tasks.pairs.building import load_translator
from heedful.tasks.translation.kept_files import FilesInFolder
from serving_help import running, small_run

LONG = pytest.mark.skipif(
    not os.environ.get("HEEDFUL_PROCESSES"), reason="HEEDFUL_PROCESSES=1 runs it (make processes)"
)
BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
TEXTS = ["cat", "a dog", "red", "small tree", "mat on"]
PATIENCE = 120.0
DIED = re.compile(r"worker \d \(process \d+\) was killed by signal 9; another one starts now")


class Process:
    """A process of ``heedful serve`` and its messages."""

    def __init__(self, run: Path, *arguments: str) -> None:
        given = ("serve", run, "--port", "0", "--threads", "1", "--device", "cpu", *arguments)
        self.process = Started(*given, stderr=PIPE)
        self.messages: list[str] = []
        threading.Thread(target=self._listen, daemon=True).start()
        self.address = self.message(" at http").split(" at ")[1].split()[0]

    def _listen(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.messages.append(line.rstrip())

    def message(self, part: str, since: int = 0) -> str:
        """Wait for a message."""
        eventually(lambda: any(part in line for line in self.messages[since:]), self.messages)
        return next(line for line in self.messages[since:] if part in line)

    def translate(self, text: str, client: httpx.Client | None = None) -> str:
        """The translation by the model, on a connection of its own or on that of a client."""
        body = {"text": text, "memory": False}
        answer = (client or httpx).post(f"{self.address}api/translate", json=body, timeout=PATIENCE)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["translations"][0]["text"])

    def metric(self, name: str) -> float:
        """The value of a metric, from any worker."""
        lines = httpx.get(f"{self.address}metrics", timeout=PATIENCE).text.splitlines()
        [value] = [line.rpartition(" ")[2] for line in lines if line.startswith(f"{name} ")]
        return float(value)

    @property
    def workers(self) -> list[int]:
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
        return [int(one) for one in children.split()]

    def reload(self) -> None:
        since = len(self.messages)
        self.process.send_signal(signal.SIGHUP)
        self.message("heedful: reloaded", since)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def eventually(condition: Callable[[], bool], what: Any = "") -> None:
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.02)


def retrained(run: Path, seed: int) -> dict[str, str]:
    """Change the weights of a run; returns the translations by the new ones."""
    chance = torch.Generator().manual_seed(seed)
    [path] = (run / "checkpoints").iterdir()
    point = open_checkpoint(path)
    weights = {
        name: tensor + tensor.std() * torch.randn(tensor.shape, generator=chance)
        for name, tensor in point.weights().items()
    }
    training = point.training()
    shutil.rmtree(path)
    save_checkpoint(path, weights, training, point.state)
    return right(run)


def right(run: Path) -> dict[str, str]:
    """The translation of each text by the run."""
    translator = load_translator([run], device="cpu")
    return {text: translator.translate([text])[0].text for text in TEXTS}


@contextlib.contextmanager
def load(server: Process, clients: int = 4) -> Iterator[list[tuple[str, str]]]:
    """Clients that send texts without a pause; yields texts with translations or errors."""
    found: list[tuple[str, str]] = []
    stop = threading.Event()

    def run(keeps: bool) -> None:
        with httpx.Client() as client:
            while not stop.is_set():
                for text in TEXTS:
                    try:
                        answer = server.translate(text, client if keeps else None)
                    except (httpx.HTTPError, AssertionError) as error:
                        answer = f"failed: {error!r}"
                    found.append((text, answer))

    threads = [threading.Thread(target=run, args=(number % 2 == 0,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield found
    finally:
        stop.set()
        for thread in threads:
            thread.join()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_run(tmp_path_factory.mktemp("workers"), source="en", target="de")


@pytest.fixture(scope="module")
def server(run: Path) -> Iterator[Process]:
    if os.name != "posix":
        pytest.skip("several workers need POSIX")
    one = Process(run, "--workers", "2", "--file-time", "600")
    yield one
    one.end()


def test_workers_share_metrics_and_translated_files(server: Process, run: Path) -> None:
    assert len(server.workers) == 2
    before = server.metric("heedful_characters_total")
    known = right(run)
    assert [server.translate(text) for text in TEXTS] == [known[text] for text in TEXTS]
    sums = {server.metric("heedful_characters_total") for _ in range(4)}
    assert sums == {before + len("".join(TEXTS))}
    assert server.metric("heedful_workers") == 2
    assert server.metric("heedful_waiting_requests") == 0
    form = {"source": "en", "target": "de"}
    made = httpx.post(
        f"{server.address}translate_file",
        data=form,
        files={"file": ("a.txt", b"a cat\n\nred\n")},
        timeout=PATIENCE,
    ).json()["translatedFileUrl"]
    found = [httpx.get(made) for _ in range(6)]
    assert {one.status_code for one in found} == {200}
    assert len({one.content for one in found}) == 1
    assert found[0].content.count(b"\n") == 3
    assert httpx.get(f"{server.address}download_file/..%2fworkers").status_code == 404
    for path in ("health", "ready"):
        assert httpx.get(f"{server.address}{path}").status_code == 200


@LONG
def test_a_rolling_restart_loses_no_request(server: Process, run: Path) -> None:
    old, characters = right(run), server.metric("heedful_characters_total")
    before = set(server.workers)
    with load(server) as found:
        eventually(lambda: len(found) > 10)
        new = retrained(run, 1)
        server.reload()
        count = len(found)
        eventually(lambda: len(found) > count + 20)
    assert new != old
    allowed = {pair for known in (old, new) for pair in known.items()}
    assert set(found) <= allowed
    assert set(found[count + 8 :]) <= set(new.items())  # some were sent before
    assert not before & set(server.workers)
    sent = sum(len(text) for text, _ in found)
    assert server.metric("heedful_characters_total") == characters + sent


@LONG
def test_a_killed_worker_is_replaced(server: Process, run: Path) -> None:
    known = right(run)
    since, victim = len(server.messages), server.workers[0]
    with load(server) as found:
        eventually(lambda: len(found) > 10)
        os.kill(victim, signal.SIGKILL)
        assert DIED.search(server.message("was killed", since))
        eventually(lambda: len(server.workers) == 2 and server.metric("heedful_workers") == 2)
        count = len(found)
        eventually(lambda: len(found) > count + 20)
    failed = [answer for _, answer in found if answer.startswith("failed")]
    assert len(failed) <= 4  # each client has at most one request in that worker
    assert set(found) <= {*known.items(), *((text, one) for text in TEXTS for one in failed)}


@LONG
def test_a_reload_that_fails_keeps_the_workers(server: Process, run: Path) -> None:
    known, before = right(run), set(server.workers)
    [weights] = run.glob("checkpoints/*/model.safetensors")
    whole = weights.read_bytes()
    beside = weights.with_name("beside")
    beside.write_bytes(whole[:1000])
    beside.replace(weights)
    since = len(server.messages)
    server.process.send_signal(signal.SIGHUP)
    assert "the present workers go on" in server.message("not reloaded", since)
    assert {text: server.translate(text) for text in TEXTS} == known
    eventually(lambda: set(server.workers) == before)
    beside.write_bytes(whole)
    beside.replace(weights)


def test_workers_end_when_their_parent_is_killed(server: Process) -> None:
    workers = server.workers
    server.process.send_signal(signal.SIGKILL)
    began = time.monotonic()
    eventually(lambda: not any(Path(f"/proc/{pid}/cmdline").exists() for pid in workers))
    assert time.monotonic() - began < 30
    open_port("127.0.0.1", int(server.address.rstrip("/").rpartition(":")[2])).close()


@LONG
def test_one_process_reloads_at_sighup_without_closing_connections(run: Path) -> None:
    old = right(run)
    server = Process(run)
    try:
        with httpx.Client() as client:
            assert {text: server.translate(text, client) for text in TEXTS} == old
            with load(server, 2) as found:
                new = retrained(run, 2)
                server.reload()
            assert {text: server.translate(text, client) for text in TEXTS} == new != old
        assert set(found) <= {*old.items(), *new.items()}
        assert server.workers == []
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0
    finally:
        server.end()


@LONG
def test_three_rolling_restarts_of_the_drill(run: Path, tmp_path: Path) -> None:
    texts = tmp_path / "texts"
    texts.write_text("\n".join(TEXTS), encoding="utf-8")
    command = [sys.executable, str(BENCHMARKS / "rolling_restart.py"), str(run), "--texts"]
    command += [str(texts), "--seconds", "2", "--threads", "2", "--kill", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert len(found["restarts"]) == 3
    assert all(one["during"]["requests"] > 0 for one in found["restarts"])
    assert found["kill"]["failed"] <= 16


@LONG
def test_sigterm_finishes_requests(run: Path) -> None:
    server = Process(run, "--workers", "2")
    try:
        found: list[str] = []
        body = {"text": " ".join(TEXTS * 200), "memory": False}

        def send() -> None:
            answer = httpx.post(f"{server.address}api/translate", json=body, timeout=PATIENCE)
            found.append(str(answer.status_code))

        threads = [threading.Thread(target=send) for _ in range(2)]
        for thread in threads:
            thread.start()
        eventually(lambda: server.metric("heedful_waiting_requests") == 2)
        server.process.send_signal(signal.SIGTERM)
        for thread in threads:
            thread.join()
        assert found == ["200", "200"]
        assert server.process.wait(60) == 0
        assert not any("Traceback" in line for line in server.messages)
    finally:
        server.end()


@LONG
def test_runs_that_cannot_be_loaded_end_the_command(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "heedful", "serve", str(tmp_path / "none"), "--workers", "2"]
    done = subprocess.run([*command, "--port", "0"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert "the folder does not exist" in line


def test_models_and_keys_are_loaded_again_in_one_process(run: Path, tmp_path: Path) -> None:
    old, keys = right(run), tmp_path / "keys"
    setup = Setup(runs=[run], device="cpu", keys=keys)
    key = new_key(keys)
    application = setup.application(setup.load())
    with running(application) as address, httpx.Client(base_url=address, timeout=60) as client:

        def post(path: str, key: str, **body: object) -> httpx.Response:
            return client.post(path, json=body, headers={"Authorization": f"Bearer {key}"})

        def translated(key: str) -> dict[str, str]:
            found = post("/api/translate", key, text=TEXTS, memory=False).json()["translations"]
            return dict(zip(TEXTS, (one["text"] for one in found), strict=True))

        assert translated(key) == old
        trace = post("/api/trace", key, source=TEXTS[1]).json()
        new = retrained(run, 3)
        keys.unlink()
        other = new_key(keys)
        setup.reload(application, 1)()
        assert post("/api/translate", key, text="a").status_code == 403
        assert translated(other) == new != old
        assert post("/api/trace", other, source=TEXTS[1]).json() != trace
        # A run that cannot be loaded, or that has other languages, changes nothing.
        recipe = (run / "recipe.toml").read_text()
        (run / "recipe.toml").write_text("broken")
        with pytest.raises(UserError):
            setup.reload(application, 1)
        (run / "recipe.toml").write_text(recipe)
        changed = setup.model_copy(update={"languages": [f"{run}=fr:it"]})
        with pytest.raises(UserError, match="restart"):
            changed.reload(application, 1)()
        assert translated(other) == new


def test_metrics_of_ended_workers_are_kept_in_one_file() -> None:
    script = """
import sys
from heedful.serving.metrics import Metrics
from heedful.serving.shared import Shared
from pathlib import Path
shared = Shared(Path(sys.argv[1]))
metrics = Metrics(shared)
metrics.count_characters(5)
metrics.count_response("/a", 200, 0.1)
metrics.set_waiting(3)
sys.stdout.write(metrics.text().decode())
"""
    shared = make_shared(2)
    try:
        for turn in (1, 2):
            process = subprocess.Popen(
                [sys.executable, "-c", script, str(shared.folder)],
                env=os.environ | {"PROMETHEUS_MULTIPROC_DIR": str(shared.metrics)},
                stdout=subprocess.PIPE,
                text=True,
            )
            text = process.communicate()[0]
            assert f"heedful_characters_total {5 * turn}.0" in text
            assert f'heedful_requests_total{{path="/a",status="200"}} {turn}.0' in text
            assert "heedful_waiting_requests 3.0" in text  # none of those that ended
            shared.keep_metrics_of(process.pid)
        assert {path.name for path in shared.metrics.iterdir()} == {
            "counter_0.db",
            "histogram_0.db",
        }
    finally:
        shared.delete()


def test_workers_that_are_started_at_once_have_rows_of_their_own(tmp_path: Path) -> None:
    async def started(supervisor: Supervisor) -> list[int]:
        workers = await asyncio.gather(*(supervisor._start(index) for index in range(3)))
        await supervisor._kill_all()
        return [worker.row for worker in workers]

    shared = make_shared(12)
    try:
        with socket.socket() as listening:
            supervisor = Supervisor(Setup(runs=[tmp_path / "none"]), listening, 3, shared)
            assert sorted(asyncio.run(started(supervisor))) == [0, 1, 2]
    finally:
        shared.delete()


def test_a_worker_that_is_still_loading_ends_when_it_is_told_to_drain(run: Path) -> None:
    shared = make_shared(4)
    own, theirs = socket.socketpair()
    start = {
        "setup": Setup(runs=[run]).model_dump(mode="json", exclude_unset=True),
        "shared": str(shared.folder),
        "row": 0,
        "workers": 1,
        "notices": False,
    }
    with own, theirs, socket.socket() as listening:
        own.sendall(json.dumps(start).encode() + b'\n"drain"\n')
        descriptors = [listening.fileno(), theirs.fileno()]
        process = subprocess.Popen(
            [sys.executable, "-m", "heedful.serving.worker", *map(str, descriptors)],
            pass_fds=descriptors,
            env=os.environ | {"PROMETHEUS_MULTIPROC_DIR": str(shared.metrics)},
        )
        try:
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()
            shared.delete()


def test_files_in_a_folder(tmp_path: Path) -> None:
    kept = FilesInFolder(100, 60.0, tmp_path)
    file = Download("a.txt", b"one\ntwo", "text/plain")
    name = kept.add(file, ".txt")
    assert FilesInFolder(100, 60.0, tmp_path).get(name) == file
    with pytest.raises(NoRoomError):
        kept.require_room(80)
    assert kept.get("../" + name) is None
    os.utime(tmp_path / name, (time.time() - 61, time.time() - 61))
    assert kept.get(name) is None


def test_the_folder_is_private_and_old_files_are_deleted() -> None:
    shared = make_shared(2)
    try:
        assert shared.folder.stat().st_mode & 0o777 == 0o700
        with contextlib.closing(shared.table()) as table:
            table.set(0, 11, 4)
            table.set(1, 12, -1)
            assert table.least() == 4
        assert shared.processes() == [11, 12]
        (shared.files / "old").write_bytes(b"")
        os.utime(shared.files / "old", (0, 0))
        (shared.files / "new").write_bytes(b"")
        shared.delete_old_files(60)
        assert [path.name for path in shared.files.iterdir()] == ["new"]
    finally:
        shared.delete()
    assert not shared.folder.exists()


def test_draining_closes_a_connection_after_its_response() -> None:
    application = make_application()
    with running(application) as address, httpx.Client(base_url=address) as client:
        assert "connection" not in client.get("/ready").headers
        application.state.serving.draining = True
        answer = client.get("/ready")
        assert (answer.status_code, answer.headers["connection"]) == (200, "close")
        application.state.serving.stopping = True
        assert client.get("/ready").status_code == 503


def test_mapped_weights_are_those_of_the_file(run: Path) -> None:
    plain = load_translator([run], device="cpu")
    with mapped_weights() as paths:
        mapped = load_translator([run], device="cpu")
    assert paths == list((run / "checkpoints").iterdir())
    maps = Path("/proc/self/maps")
    if maps.exists():
        assert f"{paths[0]}/model.safetensors" in maps.read_text(encoding="utf-8")
    known = plain.models[0].state_dict()
    for name, tensor in mapped.models[0].state_dict().items():
        assert torch.equal(tensor, known[name])
    texts = [one.text for one in plain.translate(TEXTS)]
    assert [one.text for one in mapped.translate(TEXTS)] == texts


def test_systemd_is_notified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
        one.bind(path)
        monkeypatch.setenv("NOTIFY_SOCKET", path)
        notify_ready()
        assert one.recv(100) == b"READY=1"
        notify_reloading()
        assert re.fullmatch(rb"RELOADING=1\nMONOTONIC_USEC=\d+", one.recv(100))
    notify_ready()  # the socket is gone: nothing happens


def test_equal_tensors_are_shared_through_one_file(tmp_path: Path) -> None:
    tensor = torch.randn(3, 70_000)
    folder = tmp_path / "weights"
    folder.mkdir()
    assert shared_tensor(tensor) is tensor
    with sharing_tensors(folder):
        first, second = shared_tensor(tensor), shared_tensor(tensor.clone())
        narrow = shared_tensor(tensor.bfloat16())
        assert shared_tensor(tensor[:1, :10]).data_ptr() == tensor.data_ptr()  # small
        shutil.rmtree(folder)
        assert shared_tensor(tensor) is tensor  # no room
    assert torch.equal(first, tensor)
    assert torch.equal(second, tensor)
    assert torch.equal(narrow, tensor.bfloat16())
    maps = Path("/proc/self/maps")
    if maps.exists():
        inodes = {one.split()[4] for one in maps.read_text().splitlines() if str(folder) in one}
        assert len(inodes) == 2  # float32 and bfloat16
