"""A full disk: what the log has room for goes on, and the rest is refused until there is room."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from verification.models.process import Client

import leaselock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SIZE = 1 << 20
# A pair writes some two frames of half a KiB: together more than the disk has.
PAIRS = 2000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small one."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(tmp_path)]
    if os.geteuid() or subprocess.run(command, check=False).returncode:
        pytest.skip("only root can mount a disk here")
    yield tmp_path
    subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


def fill(path: Path) -> None:
    with open(path, "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(512))
        except OSError:
            return


def exhaust(take: Callable[[str], object]) -> None:
    """Each name that was never seen needs more of the file."""
    for number in range(PAIRS):
        take(f"new {number}")


def test_the_log_restarts_before_it_fills_the_disk(disk: Path) -> None:
    with leaselock.Client(f"sqlite:///{disk}/locks.db") as client:
        lock = client.lock("a")
        tokens = []
        for _ in range(PAIRS):
            with lock as lease:
                tokens.append(lease.token)
        assert tokens == sorted(set(tokens))
        assert (disk / "locks.db-wal").stat().st_size < SIZE


def test_locks_in_use_keep_working_on_a_full_disk(disk: Path) -> None:
    with leaselock.Client(f"sqlite:///{disk}/locks.db") as client, client.lock("a"):
        for _ in range(20):
            with client.lock("b"):
                pass
        fill(disk / "ballast")
        for _ in range(PAIRS):
            with client.lock("b"):
                pass
        with pytest.raises(leaselock.NotApplied, match="full"):
            exhaust(lambda name: client.lock(name).acquire())
        (disk / "ballast").unlink()
        with client.lock("c"):
            pass


def test_requests_on_a_full_disk_succeed_or_are_refused(disk: Path) -> None:
    one, two = (Client(disk / "locks.db", name) for name in ("one", "two"))
    one.acquire("n")
    assert two.acquire("n", wait=True) is None
    one.release("n")
    fill(disk / "ballast")
    with pytest.raises(leaselock.NotApplied, match="full"):
        exhaust(one.acquire)
    # This request needs no more space in the file, so the log may have room for it.
    with suppress(leaselock.NotApplied):
        two.acquire("n", wait=True)
    (disk / "ballast").unlink()
    assert two.acquire("n", wait=True) is not None
    one.close()
    two.close()


def test_a_client_that_opens_the_file_on_a_full_disk_says_so(disk: Path) -> None:
    url = f"sqlite:///{disk}/locks.db"
    with leaselock.Client(url) as client, client.lock("a"):
        pass
    fill(disk / "ballast")
    with leaselock.Client(url, op_timeout=0.5) as client:
        with pytest.raises(leaselock.StoreError, match="the disk is full"):
            client.lock("a").acquire()
        assert any("the disk is full" in finding.what for finding in client.doctor())
    (disk / "ballast").unlink()
    with leaselock.Client(url) as client:
        client.lock("a").acquire()
