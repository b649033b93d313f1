"""Other sites' pages, slow and numerous connections, bodies without a key, hostile shapes."""

import contextlib
import gc
import json
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from heedful.basics.errors import UserError
from heedful.serving import Limits, Served, make_application
from heedful.serving.admission import host_names, is_loopback
from heedful.serving.errors import RefusedError
from heedful.serving.keys import Keys, new_key
from heedful.serving.request_parsing import _json, check_fields, check_lists
from heedful.tasks.translation.libretranslate import TranslateRequest
from serving_help import running, serving, translator
from test_serving_limits import error_of, later, until

GIVEN = {"q": "the cat.", "source": "en", "target": "de"}
SERVED = Served("one", translator(), "en", "de")
JSON = {"Content-Type": "application/json"}


def own(client: httpx.Client) -> str:
    return str(client.base_url).rstrip("/")


def test_pages_of_other_sites_execute_nothing() -> None:
    """Neither as a form, nor as plain text, which browsers send without asking first."""
    kinds = [
        {"json": GIVEN},
        {"data": GIVEN},
        {"params": GIVEN},
        {"content": json.dumps(GIVEN), "headers": {"Content-Type": "text/plain"}},
    ]
    others = [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site", "Origin": "http://localhost:3000"},
        {"Sec-Fetch-Site": "cross-site", "Origin": "http://127.0.0.1"},
    ]
    application = make_application([SERVED])
    with running(application) as address, httpx.Client(base_url=address) as client:
        for kind in kinds:
            for other in others:
                given = {**kind, "headers": {**kind.get("headers", {}), **other}}
                answer = client.post("/translate", **given)  # type: ignore[arg-type]
                assert error_of(answer)[0] == 403
                assert "--cors" in answer.json()["error"]
        for path in ("/api/translate", "/api/translate/stream", "/api/generate", "/detect"):
            assert client.post(path, json={}, headers=others[0]).status_code == 403
        asked = {"text": "a", "headers": {"Origin": own(client)}}
        assert asked
        assert "heedful_characters_total 0.0" in client.get("/metrics").text
        assert client.get("/languages", headers=others[0]).status_code == 200


def test_the_servers_own_page_and_programs_ask_as_before() -> None:
    with serving(SERVED) as client:
        same = [
            {},
            {"Origin": own(client)},
            {"Sec-Fetch-Site": "same-origin", "Origin": own(client)},
            {"Sec-Fetch-Site": "same-origin"},
            # A proxy that passes another name on, or takes the encryption off.
            {"Sec-Fetch-Site": "same-origin", "Origin": "https://translate.example"},
            {"Origin": "https://translate.example", "Host": "translate.example"},
            {"Origin": "https://translate.example:8443", "Host": "translate.example:8443"},
        ]
        for headers in same:
            assert client.post("/translate", json=GIVEN, headers=headers).status_code == 200
        plain = {"Content-Type": "text/plain"}
        content = json.dumps(GIVEN)
        assert client.post("/translate", content=content, headers=plain).status_code == 200
        from_page = {**plain, "Origin": own(client)}
        answer = client.post("/translate", content=content, headers=from_page)
        assert error_of(answer) == (400, "send JSON with Content-Type: application/json")


def test_a_site_that_is_let_in() -> None:
    with serving(SERVED, origins=["https://example.org"]) as client:
        for origin, status in (("https://example.org", 200), ("https://example.com", 403)):
            headers = {"Origin": origin, "Sec-Fetch-Site": "cross-site"}
            assert client.post("/translate", json=GIVEN, headers=headers).status_code == status
    with serving(SERVED, origins=["*"]) as client:
        headers = {"Origin": "https://example.com", "Sec-Fetch-Site": "cross-site"}
        assert client.post("/translate", json=GIVEN, headers=headers).status_code == 200


@pytest.mark.parametrize(
    ("host", "allowed", "good", "bad"),
    [
        ("127.0.0.1", [], ["localhost:5000", "127.0.0.1", "[::1]:5000"], ["10.0.0.1", "evil.org"]),
        ("127.0.0.2", [], ["127.0.0.2:5000"], ["evil.org"]),
        ("127.0.0.1", ["a.org"], ["a.org", "A.ORG:80", "localhost"], ["evil.org"]),
        ("0.0.0.0", [], ["10.0.0.1:5000", "[fe80::1]", socket.gethostname()], ["evil.org", ""]),
        ("0.0.0.0", ["a.org"], ["a.org", "10.0.0.1", "localhost"], ["evil.org", "a.org.evil"]),
        ("mine.lan", [], ["mine.lan:5000"], ["evil.org"]),
        ("0.0.0.0", ["*"], ["evil.org"], []),
        ("127.0.0.1", ["a.org", "*"], ["evil.org"], []),
    ],
)
def test_names_that_a_server_has(
    host: str, allowed: list[str], good: list[str], bad: list[str]
) -> None:
    names, addresses = host_names(host, allowed)
    with serving(SERVED, hosts=names, addresses=addresses) as client:
        for name, status in [*((one, 200) for one in good), *((one, 400) for one in bad)]:
            assert client.get("/health", headers={"Host": name}).status_code == status, name
        for name in bad:
            if name:
                error = client.get("/health", headers={"Host": name}).json()["error"]
                assert error == f"{name} is not a name of this server; see --allow-host"


def test_what_is_this_machine_alone() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "localhost", "::1")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "example.org")))


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, str]:
    path = tmp_path / "keys"
    return path, new_key(path)


class Counted:
    """A request that sends its body slowly enough to see how much of it is taken."""

    def __init__(self, address: str, head: str, size: int) -> None:
        host, port = address.removeprefix("http://").split(":")
        self.socket = socket.create_connection((host, int(port)), timeout=20)
        self.socket.sendall(
            f"POST /translate HTTP/1.1\r\nHost: {host}\r\nContent-Length: {size}\r\n"
            f"{head}\r\n".encode()
        )

    def answer(self) -> tuple[int, str]:
        found = b""
        with contextlib.suppress(TimeoutError):
            while data := self.socket.recv(4096):
                found += data
                if found.endswith(b"}"):
                    break
        status = int(found.split()[1]) if found else 0
        return status, found.decode(errors="replace")


def test_a_key_in_the_head_is_checked_before_the_body(keys: tuple[Path, str]) -> None:
    """A wrong one is refused although the body never comes."""
    path, key = keys
    with running(make_application([SERVED], keys=Keys.read(path))) as address:
        for head in ("Authorization: Bearer wrong\r\n", "Authorization: Bearer\r\n"):
            waits = Counted(address, f"{head}Expect: 100-continue\r\n", 2_000_000)
            status, text = waits.answer()
            assert (status, "100 Continue" in text) == (403, False)
            assert "connection: close" in text.lower()
            waits.socket.close()
        good = {"Authorization": f"Bearer {key}"}
        long = {**GIVEN, "q": "the cat. " * 9}
        assert httpx.post(f"{address}/translate", json=long, headers=good).status_code == 200
        for given in ({**GIVEN, "api_key": key}, {**GIVEN, "api_key": "wrong"}):
            status = 200 if given["api_key"] == key else 403
            assert httpx.post(f"{address}/translate", params=given).status_code == status
            assert httpx.post(f"{address}/translate", json=given).status_code == status


def test_long_bodies_without_a_key_share_little_room(keys: tuple[Path, str]) -> None:
    path, key = keys
    limits = Limits(bodies=300_000, timeout=20)
    application = make_application([SERVED], keys=Keys.read(path), limits=limits)
    with running(application) as address:
        held = [Counted(address, "", 200_000) for _ in range(2)]
        for one in held:
            one.socket.sendall(b"a" * 199_000)
        outermost = application.middleware_stack.app  # type: ignore[union-attr]
        while type(outermost).__name__ != "Middleware":
            outermost = outermost.app
        until(lambda: outermost._body_budget.remaining < 40_000)
        body = json.dumps({**GIVEN, "api_key": key, "q": "a" * 150_000})
        answer = httpx.post(f"{address}/translate", content=body, headers=JSON)
        assert error_of(answer)[0] == 429
        assert "Authorization: Bearer" in answer.json()["error"]
        assert answer.headers["retry-after"] == "1"
        # Short ones, and those with a key in the head, are taken all the same.
        short = {**GIVEN, "api_key": key}
        assert httpx.post(f"{address}/translate", json=short).status_code == 200
        head = {"Authorization": f"Bearer {key}", **JSON}
        assert httpx.post(f"{address}/translate", content=body, headers=head).status_code == 400
        for one in held:
            one.socket.close()
        until(lambda: outermost._body_budget.remaining == 300_000)
        assert httpx.post(f"{address}/translate", content=body, headers=JSON).status_code == 400


def test_a_body_that_is_announced_as_too_long_is_not_asked_for() -> None:
    with running(make_application([SERVED], limits=Limits(body=2_000))) as address:
        waits = Counted(address, "Expect: 100-continue\r\n", 1 << 40)
        status, text = waits.answer()
        assert status == 413
        assert "100 Continue" not in text
        waits.socket.close()


@pytest.fixture
def short() -> Iterator[str]:
    limits = Limits(connections=3, head_timeout=0.3, timeout=0.5)
    with running(make_application([SERVED], limits=limits)) as address:
        yield address


def connected(address: str) -> socket.socket:
    host, port = address.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=20)


@pytest.mark.parametrize("sent", ["", "GET /hea", "GET /health HTTP/1.1\r\nHost: a\r\nX: "])
def test_a_head_that_does_not_come_ends_the_connection(short: str, sent: str) -> None:
    with connected(short) as slow:
        slow.sendall(sent.encode())
        found = slow.recv(1_000)  # no time limit of its own: it would wait for 20 seconds
        assert found.startswith(b"HTTP/1.1 408" if sent else b"")
        assert slow.recv(1_000) == b""


def test_a_head_that_trickles_in_ends_too(short: str) -> None:
    """Also on a connection that has been answered before."""
    with connected(short) as slow:
        slow.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
        found = b""
        while not found.endswith(b"}"):
            found += slow.recv(1_000)
        slow.settimeout(0.05)

        def ended() -> bool:
            try:
                slow.sendall(b"G")
                return slow.recv(1_000) == b""
            except TimeoutError:
                return False
            except ConnectionError:
                return True

        until(ended)


def test_connections_have_a_limit(short: str) -> None:
    held = [connected(short) for _ in range(3)]
    for one in held:  # long enough under way that their heads are not late
        one.sendall(b"POST /translate HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n")
    with connected(short) as refused:
        found = refused.recv(1_000)
    assert found.startswith(b"HTTP/1.1 503")
    assert b"Retry-After: 1" in found
    assert json.loads(found.split(b"\r\n\r\n")[1])["error"].startswith("too many connections")
    for one in held:
        one.close()
    until(lambda: _answers(short))


def _answers(address: str) -> bool:
    with contextlib.suppress(httpx.HTTPError):
        return httpx.get(f"{address}/health").status_code == 200
    return False


def test_who_does_not_read_the_answer_is_cut_off() -> None:
    """An answer of megabytes does not stay in memory for as long as a client likes."""
    limits = Limits(timeout=0.5, connections=1)
    application = make_application([SERVED], limits=limits)

    @application.get("/long")
    async def long() -> Any:
        from starlette.responses import Response

        return Response(b"a" * (32 << 20))

    with running(application) as address, connected(address) as lazy:
        lazy.sendall(b"GET /long HTTP/1.1\r\nHost: a\r\n\r\n")
        assert lazy.recv(1_000).startswith(b"HTTP/1.1 200")
        assert not _answers(address)
        until(lambda: _answers(address))


def test_a_million_wrong_values_are_seen_at_once() -> None:
    """One of them is looked at by pydantic, whose list of errors would have a million entries."""
    many: list[Any] = ["a", *[1] * 900_000]
    for wrong in (many, [[1]] * 300_000, [None, "a"], ["a", {}]):
        fields = check_lists({**GIVEN, "q": wrong}, 1_000_000)
        assert len(fields["q"]) == 1
        with pytest.raises(RefusedError, match="q: input should be a text or a list of texts"):
            check_fields(TranslateRequest, fields)
    with pytest.raises(RefusedError, match="900,001 values; the maximum is 1,000"):
        check_lists({"q": many}, 1_000)
    with pytest.raises(RefusedError, match="200 fields; the maximum is 100"):
        check_lists({str(i): "a" for i in range(200)}, 1_000)
    assert check_lists({"q": ["a", "b"], "n": 5}, 2) == {"q": ["a", "b"], "n": 5}


def test_a_body_of_many_lists_starts_no_garbage_collection() -> None:
    """Each would go through all objects of the process, and there would be hundreds."""
    body = f'{{"q": [{"[]," * 100_000} 1]}}'.encode()
    begun: list[str] = []

    def noted(phase: str, _: dict[str, int]) -> None:
        begun.append(phase)

    gc.callbacks.append(noted)
    try:
        fields = _json(body)
    finally:
        gc.callbacks.remove(noted)
    assert len(fields["q"]) == 100_001
    assert begun.count("start") <= 1  # the one that was put off
    assert gc.isenabled()
    with pytest.raises(RefusedError):
        _json(b"{")
    assert gc.isenabled()


@pytest.mark.parametrize("value", ["1", "[1]", '"a"', "{}", "null"])
def test_two_megabytes_of_one_value_hold_up_nobody(value: str) -> None:
    many = ",".join([value] * (1_900_000 // (len(value) + 1)))
    with serving(SERVED) as client:
        for path, name in (("/translate", "q"), ("/api/translate", "text"), ("/api/tag", "text")):
            body = f'{{"{name}":[{many}],"source":"en","target":"de"}}'
            slow = later(lambda body=body, path=path: client.post(path, content=body, headers=JSON))  # type: ignore[misc]
            assert client.get("/health", timeout=8).status_code == 200
            assert error_of(slow.result(20))[0] == 400
        fields = ",".join(f'"{i}":1' for i in range(150_000))
        assert client.post("/api/translate", content=f"{{{fields}}}").status_code == 400


def test_a_new_key_after_a_line_without_an_end(keys: tuple[Path, str]) -> None:
    path, first = keys
    path.write_text(path.read_text().rstrip("\n"))
    second = new_key(path)
    assert all(Keys.read(path).is_valid(key) for key in (first, second))
    path.write_text(f"# a comment\n{path.read_text()}")
    third = new_key(path)
    assert all(Keys.read(path).is_valid(key) for key in (first, second, third))
    assert "\n\n" not in path.read_text()


@pytest.mark.skipif(os.name != "posix", reason="files have no such permissions here")
def test_a_file_of_keys_that_anybody_may_write_to_is_refused(keys: tuple[Path, str]) -> None:
    path, _ = keys
    path.chmod(stat.S_IMODE(path.stat().st_mode) | stat.S_IWOTH)
    with pytest.raises(UserError, match=r"is writable for all users.*chmod o-w"):
        Keys.read(path)
    path.chmod(0o644)
    Keys.read(path)
    for wrong in (path.parent, path.parent / "pipe"):
        if wrong.name == "pipe":
            os.mkfifo(wrong)
        with pytest.raises(UserError, match="is not a file"):
            Keys.read(wrong)
