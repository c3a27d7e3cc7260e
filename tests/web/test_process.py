"""`leaselock web` as a process: its options, its output, and how it ends."""

from __future__ import annotations

import contextlib
import json
import platform
import resource
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx
import pytest
from testkit.servers.process import HOST
from tests.cli.processes import LIMIT

import leaselock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cli.processes import Shell

pytestmark = pytest.mark.heavy


def started(shell: Shell, *options: str) -> tuple[subprocess.Popen[str], str]:
    """A server on a free port, and the line that it prints first."""
    server = shell.start("web", "--port", "0", *options)
    assert server.stdout is not None
    return server, server.stdout.readline().strip()


@contextlib.contextmanager
def streaming(url: str) -> Iterator[Iterator[str]]:
    """The lines of a stream of events, after the first one."""
    with httpx.stream("GET", f"{url}api/events", timeout=LIMIT) as response:
        assert response.status_code == 200
        lines = response.iter_lines()
        assert next(lines) == "event: state"
        yield lines


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_although_streams_are_open(shell: Shell, number: int) -> None:
    server, url = started(shell)
    with contextlib.ExitStack() as stack:
        streams = [stack.enter_context(streaming(url)) for _ in range(3)]
        server.send_signal(number)
        for lines in streams:
            list(lines)  # to its regular end: otherwise httpx raises an error
        assert server.wait(LIMIT) == 0
    assert server.stderr is not None
    assert server.stderr.read() == f"leaselock: the page of {shell.url}\n"


def test_it_ends_although_a_viewer_does_not_read(shell: Shell) -> None:
    server, url = started(shell, "--interval", "0.1")
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port)) as viewer:
        viewer.sendall(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with streaming(url):  # by now the other one is a viewer, too
            server.terminate()
            assert server.wait(LIMIT) == 0


def test_the_token_is_in_the_fragment_of_the_address(shell: Shell) -> None:
    server, line = started(shell, "--allow-break")
    url, _, token = line.partition("#token=")
    assert url.startswith(f"http://{HOST}:")
    assert len(token) >= 32
    with leaselock.Client(shell.url) as client:
        lease = client.lock("order:5").acquire()
        body = {"name": "order:5", "token": lease.token, "message": "test"}
        headers = {"Authorization": f"Bearer {token}"}
        reply = httpx.post(f"{url}api/break", json=body, headers=headers, timeout=LIMIT)
        assert (reply.status_code, reply.json()["broken"]["token"]) == (200, lease.token)
        with contextlib.suppress(leaselock.LeaseLost):
            lease.release()
    server.terminate()
    assert server.wait(LIMIT) == 0
    assert server.stderr is not None
    said = server.stderr.read()
    assert token not in said  # it was printed once
    assert "broke 'order:5'" in said


def test_the_token_can_be_set_and_is_not_printed(shell: Shell) -> None:
    token = "a-token-that-was-made-elsewhere"
    path = shell.folder / "token"
    path.write_text(f"{token}\n", "utf-8")
    server, url = started(shell, "--break-token-file", str(path))
    body = {"name": "order:5", "token": 1, "message": "test"}
    for given, status in (("wrong", 401), (token, 409)):
        headers = {"Authorization": f"Bearer {given}"}
        reply = httpx.post(f"{url}api/break", json=body, headers=headers, timeout=LIMIT)
        assert reply.status_code == status
    server.terminate()
    assert server.wait(LIMIT) == 0
    assert server.stderr is not None
    said = server.stderr.read()
    assert token not in said + url
    assert "127.0.0.1 sent a wrong token to break a lock: refused" in said
    assert "127.0.0.1 did not break 'order:5', token 1: 'test'" in said


@pytest.mark.parametrize("content", [None, "", "short", "two lines\nof a token, in a file"])
def test_a_file_without_a_token_is_refused(shell: Shell, content: str | None) -> None:
    path = shell.folder / "token"
    if content is not None:
        path.write_text(content, "utf-8")
    done = shell.run("web", "--port", "0", "--break-token-file", str(path))
    assert done.returncode == 78
    assert "break token" in done.stderr


def test_half_open_connections_do_not_stop_it(shell: Shell) -> None:
    """More of them than the process may have descriptors."""
    descriptors, half_open = 128, 150

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))

    server = shell.start("web", "--port", "0", preexec_fn=limited)
    assert server.stdout is not None
    url = server.stdout.readline().strip()
    parts = urlsplit(url)
    with contextlib.ExitStack() as stack:
        for _ in range(half_open):
            one = stack.enter_context(socket.create_connection((parts.hostname, parts.port)))
            # The server may have closed it already.
            with contextlib.suppress(OSError):
                one.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-")
        assert httpx.get(f"{url}healthz", timeout=LIMIT).status_code == 200
        with streaming(url):
            pass
    server.terminate()
    assert server.wait(LIMIT) == 0
    assert server.stderr is not None
    said = server.stderr.read()
    assert "that sent no request" in said
    assert len(said) < 2_000


def test_its_address_as_json(shell: Shell) -> None:
    _, line = started(shell, "--json", "--quiet")
    document = json.loads(line)
    assert document["backend"] == shell.url
    assert document["token"] is None
    with streaming(document["url"]):
        pass


def test_other_addresses_come_with_a_warning(shell: Shell) -> None:
    server, line = started(shell, "--host", "0.0.0.0", "--allow-break")
    line = line.partition("#")[0]
    assert line.startswith("http://0.0.0.0:")
    with streaming(line.replace("0.0.0.0", HOST)):
        pass
    server.terminate()
    server.wait(LIMIT)
    assert server.stderr is not None
    said = server.stderr.read()
    assert "warning: the names, holders and labels" in said
    assert "warning: the token is sent unencrypted" in said
    assert "Prometheus reach it by an address, or as localhost. By a name" in said
    assert f"--allow-host {platform.node()}" in said


def test_an_address_in_use_is_an_error(shell: Shell) -> None:
    with socket.create_server((HOST, 0)) as other:
        done = shell.run("web", "--port", str(other.getsockname()[1]))
    assert done.returncode == 78
    assert "cannot listen on 127.0.0.1" in done.stderr
    assert "in use" in done.stderr


@pytest.mark.parametrize("missing", ["starlette", "uvicorn", "prometheus_client"])
def test_without_the_extra_the_command_that_installs_it_is_named(
    shell: Shell, missing: str
) -> None:
    program = f"""
import sys
sys.modules[{missing!r}] = None
from leaselock._cli import main
sys.exit(main(["web"]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=shell.env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 78
    assert f"needs {missing}" in done.stderr
    assert "not installed: pip install '" in done.stderr
    assert "'starlette" in done.stderr


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["--interval", "50ms"], "--interval is at least 100ms"),
        (["--port", "65536"], "--port is from 0"),
        (["--port", "x"], "invalid int value"),
    ],
)
def test_wrong_options(shell: Shell, words: list[str], hint: str) -> None:
    done = shell.run("web", *words)
    assert done.returncode == 64
    assert hint in done.stderr


def test_other_commands_load_no_server() -> None:
    program = "import leaselock._cli.commands, leaselock._cli.show, sys; print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", program], text=True).split()
    assert {"starlette", "uvicorn", "prometheus_client", "asyncio"}.isdisjoint(loaded)
