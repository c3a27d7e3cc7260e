"""What the embedded store relies on: locks that end with a process, messages, news of its end.

On Linux both modules are run: that of Linux, and the one of macOS with pidfds instead of kqueue.
"""

from __future__ import annotations

import ast
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import leaselock
from leaselock._backends.sqlite import kernel_linux, kernel_portable, udp

if TYPE_CHECKING:
    from collections.abc import Iterator

STORE = Path(leaselock.__file__).parent / "_backends" / "sqlite"
# A client: its mailbox, and a locked file that names the mailbox. Each line that it reads makes it
# start a child that inherits the file.
CLIENT = """
import os, subprocess, sys
from importlib import import_module
kernel = import_module(sys.argv[1])
mailbox = kernel.Mailbox(sys.argv[3])
live = kernel.create_locked(sys.argv[2])
os.write(live, mailbox.address)
print("ready", flush=True)
for line in sys.stdin:
    inherited = (live, *mailbox.descriptors())
    heir = subprocess.Popen(["sleep", "600"], pass_fds=inherited, stdout=subprocess.DEVNULL)
    print(heir.pid, flush=True)
"""


class Client:
    """A process that is a client of the store, as far as the kernel knows."""

    def __init__(self, module: Any, folder: Path) -> None:
        self.live, self.wake = str(folder / "other.live"), str(folder / "other.wake")
        self.process = subprocess.Popen(
            [sys.executable, "-c", CLIENT, module.__name__, self.live, self.wake],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.read() == "ready"

    def read(self) -> str:
        """Return its next line."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def leave_heir(self) -> int:
        """Let it start a child that inherits its locked file; return the child's number."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return int(self.read())

    def kill(self) -> None:
        """Kill it, and wait for its end."""
        self.process.kill()
        self.process.communicate()


@pytest.fixture(params=[kernel_linux, kernel_portable], ids=["linux", "portable"])
def module(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def client(module: Any, tmp_path: Path) -> Iterator[Client]:
    client = Client(module, tmp_path)
    yield client
    client.kill()


@pytest.fixture
def mailbox(module: Any, tmp_path: Path) -> Iterator[Any]:
    mailbox = module.Mailbox(str(tmp_path / "own.wake"))
    yield mailbox
    mailbox.close()


def test_death_ends_a_lock_and_is_reported(module: Any, client: Client, mailbox: Any) -> None:
    peer = module.observe(client.live, client.wake)
    assert module.is_locked(client.live)
    with pytest.raises(FileExistsError):
        module.create_locked(client.live)
    assert mailbox.wait([peer], 0.0) == (False, [])
    client.process.kill()
    assert mailbox.wait([peer], 60.0) == (False, [peer])
    client.kill()
    assert not module.is_locked(client.live)
    peer.close()


def test_a_child_that_inherits_the_file_keeps_the_client_alive(
    module: Any, client: Client, mailbox: Any
) -> None:
    peer = module.observe(client.live, client.wake)
    heir = client.leave_heir()
    client.kill()
    assert mailbox.wait([peer], 0.3) == (False, [])
    assert module.is_locked(client.live)
    os.kill(heir, 9)
    assert mailbox.wait([peer], 60.0) == (False, [peer])
    peer.close()


def test_messages_arrive(module: Any, mailbox: Any, tmp_path: Path) -> None:
    live, wake = str(tmp_path / "own.live"), str(tmp_path / "own.wake")
    file = module.create_locked(live)
    os.write(file, mailbox.address)
    module.send(live, wake, b"12345678")
    assert mailbox.wait([], 60.0) == (True, [])
    assert mailbox.read(80) == b"12345678"
    mailbox.put(b"abcdefgh")
    assert mailbox.wait([], 60.0) == (True, [])
    assert mailbox.read(80) == b"abcdefgh"
    os.close(file)
    assert not module.is_locked(live)


def test_nothing_is_sent_to_a_client_that_has_gone(module: Any, tmp_path: Path) -> None:
    live, wake = str(tmp_path / "gone.live"), str(tmp_path / "gone.wake")
    assert module.observe(live, wake) is None
    module.send(live, wake, b"12345678")
    with pytest.raises(FileNotFoundError):
        module.is_locked(live)


def test_datagrams_of_strangers_are_ignored() -> None:
    with udp.open_inbox() as inbox, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        address = udp.address_of(inbox)
        for text in (b"", b"1234567", b"123456789" * 100):
            stranger.sendto(text, (udp.LOOPBACK, address.port))
        udp.send(address, b"a waiter")
        assert udp.received(inbox, 80) == b"a waiter"


@pytest.mark.parametrize("content", [b"", b"1", b"1 2 3", b"a 2", b"1 -2", "1 ²".encode()])
def test_damaged_addresses_are_none(content: bytes) -> None:
    assert udp.parse(content) is None


def test_no_other_module_of_the_store_calls_the_kernel() -> None:
    kernels = {path.name for path in STORE.glob("kernel_*.py")} | {"flock.py", "udp.py"}
    for path in STORE.glob("*.py"):
        tree = ast.parse(path.read_text("utf-8"))
        names = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
        assert path.name in kernels or not names & {"fcntl", "select", "socket"}, path
