"""``heedful translate --bulk --ray``: a local Ray of two workers gives what one process gives."""

import importlib.util
import sys
from functools import partial
from pathlib import Path

import pytest

from heedful.basics.errors import UserError
from heedful.inference.bulk_ray import RayShards
from test_bulk import (
    Call,
    call,
    job,
    opens,
    opens_killer,
    opens_refusing,
    processes,
    right,
    run,
    start,
    texts,
    wait_for_shards,
)

__all__ = ["call", "run"]  # fixtures

on_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="needs Ray: pip install heedful[ray]"
)
LOCAL = RayShards("local")


def test_without_ray_the_message_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"pip install 'heedful\[ray\]'"):
        job(tmp_path).run(opens, 1, "test", runs=LOCAL)
    (tmp_path / "empty").mkdir()
    job(tmp_path / "empty", lines=0).run(opens, 1, "test", runs=LOCAL)  # there is nothing to do


@on_ray
@processes
def test_a_killed_job_on_ray_is_resumed_with_the_output_of_one_process(
    run: Path, tmp_path: Path, call: Call
) -> None:
    source, output = tmp_path / "in.txt", tmp_path / "out"
    source.write_bytes(texts(400))
    started = start(run, source, output, "--workers", "2", "--ray", "local")
    wait_for_shards(output, 3)
    started.kill()
    started.communicate()
    assert not (output / "in.txt").exists()
    same = ("--bulk", "--shard-lines", 5, "--output", output)
    code, _, err = call(run, source, *same, "--workers", 2, "--ray", "local")
    assert code == 0, err
    assert "shards were done" in err
    assert call(run, source, "--output", tmp_path / "alone")[0] == 0
    alone = (tmp_path / "alone").read_bytes()
    assert (output / "in.txt").read_bytes() == alone
    assert alone.count(b"\n") == 400


@on_ray
@processes
def test_workers_on_ray_are_replaced_and_their_errors_are_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Workers import this folder's test_bulk, and heedful from where it is imported here.
    monkeypatch.setenv("PYTHONPATH", ":".join([str(Path(__file__).parent), *sys.path]))
    (tmp_path / "deaths").mkdir()
    summary = job(tmp_path).run(
        partial(opens_killer, tmp_path / "deaths", 1), 2, "test", runs=LOCAL
    )
    assert (tmp_path / "out/in.txt").read_text() == right()
    assert (summary.new_lines, summary.counts["seen"]) == (57, 57)
    assert len([*(tmp_path / "deaths").iterdir()]) == 1
    for name, loads, message in (
        ("a", opens_refusing, r"in\.txt, lines \d+ to \d+: refused"),
        ("b", partial(opens_killer, tmp_path / "deaths", 9), "lines 21 to 30, for the 3rd time"),
    ):
        (tmp_path / name).mkdir()
        with pytest.raises(UserError, match=message):
            job(tmp_path / name).run(loads, 1, "test", runs=LOCAL)


@on_ray
def test_a_cluster_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"--ray 127\.0\.0\.1:1: .*refused; start a cluster"
    ) as found:
        job(tmp_path).run(opens, 1, "test", runs=RayShards("127.0.0.1:1"))
    assert "\n" not in str(found.value)
