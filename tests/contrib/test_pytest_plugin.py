"""The plugin of pytest, in runs of pytest."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from _pytest.fixtures import FixtureFunctionDefinition
from tests.contrib.metadata import write_metadata

import leaselock
from leaselock.contrib import pytest_plugin
from leaselock.contrib.pytest_plugin import leaselock_once, lock_client, lock_url, lose_lease

# The fixtures, for this module: whether an installed leaselock has them is another test's subject.
__all__ = ["leaselock_once", "lock_client", "lock_url", "lose_lease"]

SOURCE = str(Path(leaselock.__file__).parents[1])
PROGRAM = """
import json, os
import pytest

@pytest.fixture(scope="session")
def number(leaselock_once):
    return leaselock_once("number", count)

def count():
    with open(os.environ["COUNTED"], "a") as file:
        file.write("once\\n")
    return {"pid": os.getpid()}

@pytest.mark.parametrize("case", range(8))
def test_all_share_it(number, case):
    assert list(number) == ["pid"]

def test_a_lock(lock_client):
    with lock_client.lock("a"):
        assert lock_client.lock("a").locked()
"""


def pytest_run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the tests of PROGRAM, with leaselock as it would be installed."""
    (folder / "test_program.py").write_text(PROGRAM)
    path = os.pathsep.join([str(write_metadata(folder / "installed")), SOURCE])
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words],
        cwd=folder,
        env={
            **os.environ,
            # As if a worker of xdist had started it.
            **{"PYTEST_XDIST_WORKER": "gw0", "PYTEST_XDIST_TESTRUNUID": "outer"},
            **{"PYTHONPATH": path, "COUNTED": str(folder / "counted")},
        },
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.heavy
@pytest.mark.parametrize("workers", ["0", "3"])
def test_once_in_a_run(tmp_path: Path, workers: str) -> None:
    ran = pytest_run(tmp_path, "-n", workers)
    assert "9 passed" in ran.stdout, ran.stdout + ran.stderr
    assert (tmp_path / "counted").read_text() == "once\n"


@pytest.mark.heavy
def test_the_plugin_loads_nothing_of_the_library() -> None:
    text = (
        "import sys, pytest; loaded = set(sys.modules)\n"
        "import leaselock.contrib.pytest_plugin\n"
        "print(sorted(name for name in set(sys.modules) - loaded if '.' in name))"
    )
    ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    modules = ["leaselock.contrib", "leaselock.contrib.pytest_plugin", "leaselock.version"]
    assert ran.stdout.strip() == str(modules)


def test_a_failure_of_once_is_raised_and_tried_again(leaselock_once) -> None:  # type: ignore[no-untyped-def]
    made: list[int] = []

    def make() -> list[int]:
        made.append(len(made))
        if len(made) == 1:
            raise OSError("no room")
        return made

    with pytest.raises(OSError, match="no room"):
        leaselock_once("made", make)
    assert leaselock_once("made", make) == [0, 1]
    assert leaselock_once("made", make) == [0, 1]
    assert leaselock_once("another", lambda: "x") == "x"


def test_a_client_of_each_test_has_a_store_of_its_own(
    lock_client: leaselock.Client, lock_url: str
) -> None:
    with lock_client.lock("order:5"), leaselock.Client(lock_url) as other:
        assert other.lock("order:5").try_acquire() is None
    assert lock_client.url == lock_url


def test_a_lease_is_lost_now(lock_client, lose_lease) -> None:  # type: ignore[no-untyped-def]
    lease = lock_client.lock("order:5").acquire()
    lose_lease(lease)
    assert lease.lost
    with pytest.raises(leaselock.LeaseLost):
        lease.release()
    with pytest.raises(leaselock.LeaseLost), lock_client.lock("order:5"):
        lose_lease("order:5")
    with pytest.raises(LookupError, match="not held"):
        lose_lease("order:5")


def test_a_lease_of_asyncio_is_lost_now(lock_url, lose_lease) -> None:  # type: ignore[no-untyped-def]
    async def body() -> None:
        async with leaselock.AsyncClient(lock_url) as client, client.lock("order:5") as lease:
            await lose_lease(lease)
            await asyncio.Event().wait()  # cancelled, because the lease is lost

    with pytest.raises(leaselock.LeaseLost):
        asyncio.run(body())


def test_the_plugin_changes_no_suite_that_does_not_ask_for_it() -> None:
    """Its names are not those that a suite may look for elsewhere, and none is used by itself."""
    names = {name: value for name, value in vars(pytest_plugin).items() if is_fixture(value)}
    assert set(names) == {"lock_url", "lock_client", "lose_lease", "leaselock_once"}
    assert not any(fixture._fixture_function_marker.autouse for fixture in names.values())
    assert not any(name.startswith("pytest_") for name in vars(pytest_plugin))


def is_fixture(value: object) -> bool:
    return isinstance(value, FixtureFunctionDefinition)
