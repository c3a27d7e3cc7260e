"""The result of a type checker for usual programs, and the errors for wrong arguments."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.people import LIMIT, SOURCE, environment

import leaselock

if TYPE_CHECKING:
    from pathlib import Path

RIGHT = """
from pathlib import Path
from typing import assert_type
import leaselock

client = leaselock.Client(Path("locks.db"))
lock = client.lock("a")
assert_type(lock.acquire(), leaselock.Lease)
assert_type(lock.acquire(timeout=5), leaselock.Lease)
assert_type(lock.try_acquire(), leaselock.Lease | None)
assert_type(client.semaphore("s", 4).acquire(2, timeout=5), leaselock.Lease)
assert_type(client.semaphore("s", 4).try_acquire(2), leaselock.Lease | None)
assert_type(client.lock_all(["a", "b"]).acquire(timeout=5), leaselock.Leases)
assert_type(client.lock_all(["a", "b"]).try_acquire(), leaselock.Leases | None)
with lock.acquire() as lease:
    lease.ensure()
if held := lock.try_acquire(timeout=5):
    with held:
        pass

async def main() -> None:
    async with leaselock.AsyncClient("sqlite:///locks.db") as client:
        lock = client.lock("a", owner="lock")
        assert_type(await lock.acquire(), leaselock.AsyncLease)
        assert_type(await lock.acquire(timeout=5), leaselock.AsyncLease)
        assert_type(await lock.try_acquire(), leaselock.AsyncLease | None)
        async with await lock.acquire() as lease:
            lease.ensure()
"""
WRONG = """
import leaselock

leaselock.Client(5)
leaselock.AsyncClient(5)
client = leaselock.Client()
client.lock("a", renew="no")
client.lock("a").acquire(blocking=False)
client.lock("a", expire=10)
client.lock("a", owner="me")
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What mypy says of both programs, in one run."""
    folder = tmp_path_factory.mktemp("programs")
    programs = folder / "right.py", folder / "wrong.py"
    for program, text in zip(programs, (RIGHT, WRONG), strict=True):
        program.write_text(text)
    config = folder / "mypy.ini"
    config.write_text("[mypy]\nstrict = True\n")
    words = ("--config-file", str(config), "--cache-dir", str(folder / "cache"))
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", *words, *map(str, programs)],
        env=environment({"MYPYPATH": SOURCE}),
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert "checked 2 source files" in checked.stdout, checked.stdout + checked.stderr
    return checked.stdout.splitlines()


@pytest.mark.heavy
def test_right_programs_are_right(said: list[str]) -> None:
    assert [line for line in said if "right.py" in line] == []


@pytest.mark.heavy
def test_wrong_programs_are_wrong_in_every_line(said: list[str]) -> None:
    errors = [line for line in said if "wrong.py" in line and ": error:" in line]
    lines = {int(line.split(":")[1]) for line in errors}
    assert lines == {4, 5, 7, 8, 9, 10}


def test_path_names_a_file(tmp_path: Path) -> None:
    with leaselock.Client(tmp_path / "locks.db") as client, client.lock("a"):
        assert client.url == f"sqlite:///{tmp_path}/locks.db"
    assert (tmp_path / "locks.db").exists()


@pytest.mark.parametrize("word", ["no", "", 0, 1, None])
def test_renew_is_a_bool(file: str, word: Any) -> None:
    with leaselock.Client(file) as client, pytest.raises(TypeError, match="renew is a bool"):
        client.lock("a", renew=word)


def test_reentrant_is_a_bool(file: str) -> None:
    arguments: dict[str, Any] = {"reentrant": "no"}
    with leaselock.Client(file) as client, pytest.raises(TypeError, match="reentrant is a bool"):
        client.lock("a", **arguments)


# Options that earlier versions had.
@pytest.mark.parametrize("word", ["local_handoffs", "cached"])
def test_an_option_that_was_removed_is_unknown(file: str, word: str) -> None:
    arguments: dict[str, Any] = {word: 1}
    with pytest.raises(TypeError, match=word):
        leaselock.Client(file, **arguments)
    with leaselock.Client(file) as client, pytest.raises(TypeError, match=word):
        client.lock("a", **arguments)


# As redis-py, filelock, threading, kazoo and portalocker have them; and the argument of ours.
ARGUMENTS_OF_OTHERS = [
    ("acquire", {"timeout": -1}, "timeout=None"),
    ("acquire", {"blocking": False}, "try_acquire()"),
    ("acquire", {"blocking": True, "timeout": -1}, "timeout=None"),
    ("acquire", {"blocking_timeout": 3}, "timeout="),
    ("acquire", {"poll_interval": 0.1}, "poll_interval"),
    ("lock", {"timeout": -1}, "timeout=None"),
    ("lock", {"expire": 10}, "lease="),
    ("lock", {"ttl": 10}, "lease="),
    ("lock", {"blocking": False}, "timeout=0"),
    ("lock", {"blocking_timeout": 3}, "timeout="),
    ("lock", {"sleep": 0.1}, "sleep"),
    ("lock", {"thread_local": False}, 'owner="lock"'),
    ("lock", {"auto_renewal": True}, "renew="),
    ("lock", {"id": "me"}, "label="),
]


@pytest.mark.parametrize(("method", "arguments", "ours"), ARGUMENTS_OF_OTHERS)
def test_arguments_of_other_libraries_are_answered_with_ours(
    file: str, method: str, arguments: dict[str, Any], ours: str
) -> None:
    with leaselock.Client(file) as client:
        lock = client.lock("a")
        with pytest.raises((TypeError, ValueError), match=re.escape(ours)):
            lock.acquire(**arguments) if method == "acquire" else client.lock("b", **arguments)
        assert not lock.locked()


def test_arguments_of_other_libraries_in_asyncio(file: str) -> None:
    async def main() -> None:
        async with leaselock.AsyncClient(file) as client:
            with pytest.raises(TypeError, match="lease="):
                client.lock("a", expire=10)  # type: ignore[arg-type]
            arguments: dict[str, Any] = {"blocking": False}
            with pytest.raises(TypeError, match=r"try_acquire\(\)"):
                await client.lock("a").acquire(**arguments)

    asyncio.run(main())


def test_false_is_no_timeout_and_no_number_of_permits(file: str) -> None:
    """`acquire(False)` is threading's way not to wait."""
    with leaselock.Client(file) as client:
        with pytest.raises(TypeError, match="timeout=0"):
            client.lock("a").acquire(timeout=False)
        with pytest.raises(TypeError, match="permits is an int"):
            client.semaphore("s", 4).acquire(False)
        with pytest.raises(TypeError, match="by name"):
            client.lock("a").acquire(False)  # type: ignore[arg-type]
        assert client.locks() == []
