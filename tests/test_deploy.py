"""The files for deploying: commands and options that exist, valid YAML, known probes."""

import configparser
import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from heedful.serving.application import make_application
from heedful.serving.limits import Limits
from test_docs import check_command

DEPLOY = Path(__file__).parents[1] / "deploy"
NAMES = ["Caddyfile", "Containerfile", "compose.yaml", "heedful.service", "kubernetes.yaml"]
NAMES += ["nginx.conf"]


def read(name: str) -> str:
    return (DEPLOY / name).read_text(encoding="utf-8")


def unit() -> configparser.SectionProxy:
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(read("heedful.service"))
    return parser["Service"]


def container() -> dict[str, Any]:
    [pod] = [
        one for one in yaml.safe_load_all(read("kubernetes.yaml")) if "template" in one["spec"]
    ]
    found: dict[str, Any] = pod["spec"]["template"]["spec"]
    return found


def commands() -> Iterator[list[str]]:
    """The arguments of ``heedful`` in all files."""
    yield shlex.split(unit()["ExecStart"])[1:]
    yield json.loads(re.findall(r"^CMD (.*)$", read("Containerfile"), re.MULTILINE)[-1])
    yield yaml.safe_load(read("compose.yaml"))["services"]["heedful"]["command"]
    yield container()["containers"][0]["args"]


def test_commands_and_options_exist() -> None:
    found = list(commands())
    assert len(found) == 4
    for words in found:
        assert words[0] == "serve"
        check_command(shlex.join(words))
        assert all(isinstance(word, str) for word in words)


def test_the_page_names_every_file() -> None:
    page = (DEPLOY.parent / "docs" / "deploying.md").read_text(encoding="utf-8")
    assert sorted(path.name for path in DEPLOY.iterdir()) == sorted(NAMES)
    for name in NAMES:
        assert f"(../deploy/{name})" in page


def test_probes_are_routes_of_the_server() -> None:
    [one] = container()["containers"]
    kinds = ("startupProbe", "readinessProbe", "livenessProbe")
    paths = {kind: one[kind]["httpGet"]["path"] for kind in kinds}
    assert paths == {
        "startupProbe": "/ready",
        "readinessProbe": "/ready",
        "livenessProbe": "/health",
    }
    routes = {getattr(route, "path", "") for route in make_application().routes}
    assert {*paths.values(), "/metrics"} <= routes
    assert "/ready" in read("Containerfile")


def test_times_fit_the_limits_of_the_server() -> None:
    limits = Limits()
    assert int(unit()["TimeoutStopSec"]) > limits.grace
    compose = yaml.safe_load(read("compose.yaml"))["services"]["heedful"]
    assert int(compose["stop_grace_period"].rstrip("s")) > limits.grace
    pod = container()
    pause = int(pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod["terminationGracePeriodSeconds"] > limits.grace + pause
    assert unit()["ExecReload"] == "/bin/kill -HUP $MAINPID"
    for name, pattern in (
        ("nginx.conf", r"proxy_read_timeout (\d+)s"),
        ("Caddyfile", r"out (\d+)s"),
    ):
        [seconds] = re.findall(pattern, read(name))
        assert int(seconds) > limits.timeout
    # The server closes connections that are idle for 5 seconds.
    assert "keepalive_timeout 4s" in read("nginx.conf")
    assert "keepalive 4s" in read("Caddyfile")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    path = tmp_path / "heedful.service"
    path.write_text(read("heedful.service").replace("/opt/heedful/bin/heedful", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", str(path)], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.skipif(shutil.which("caddy") is None, reason="needs caddy")
def test_caddy_accepts_its_configuration(tmp_path: Path) -> None:
    """Without ``rate_limit`` if this Caddy was built without its module."""
    text = read("Caddyfile")
    done = subprocess.run(["caddy", "list-modules"], capture_output=True, text=True, check=True)
    if "http.handlers.rate_limit" not in done.stdout.split():
        text, count = re.subn(r"\n\trate_limit \{\n.*?\n\t\}", "", text, flags=re.DOTALL)
        assert count == 1
    path = tmp_path / "Caddyfile"
    path.write_text(text)
    command = ["caddy", "validate", "--config", str(path), "--adapter", "caddyfile"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert '"level":"warn"' not in done.stderr
    formatted = subprocess.run(["caddy", "fmt", str(path)], capture_output=True, text=True)
    assert formatted.stdout == text


@pytest.mark.skipif(
    shutil.which("nginx") is None or shutil.which("openssl") is None, reason="needs nginx, openssl"
)
def test_nginx_accepts_its_configuration(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=x"]
    subprocess.run(
        [*make, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True
    )
    text = read("nginx.conf").replace("/var/log/nginx", str(tmp_path))
    text = re.sub(r"ssl_certificate \S+;", f"ssl_certificate {certificate};", text)
    text = re.sub(r"ssl_certificate_key \S+;", f"ssl_certificate_key {key};", text)
    whole = f"error_log {tmp_path}/error; pid {tmp_path}/pid;\nevents {{}}\nhttp {{\n{text}\n}}\n"
    (tmp_path / "nginx.conf").write_text(whole)
    command = ["nginx", "-t", "-c", str(tmp_path / "nginx.conf")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
