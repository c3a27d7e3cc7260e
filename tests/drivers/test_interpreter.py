"""Events of the interpreter: a thread switch at any moment, its exit.

Invariant: the lock of a thread that has ended can be acquired, and all state is consistent.
"""

from __future__ import annotations

import copy
import os
import pickle
import shutil
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import leaselock
from leaselock._backends.sqlite.file import FILES
from leaselock._drivers.fork import DRIVERS

SOURCE = str(Path(leaselock.__file__).parent)
THREADS, TIMES = 8, 200
# One more than Python itself has in the ending thread.
PYTHONS = ("python3.11", "python3.12", "python3.13", "python3.14")
ENDING = """
import os, sys, leaselock
lease = leaselock.Client(sys.argv[1]).lock("a", lease=60.0).acquire()
print(lease.token, flush=True)
if sys.argv[2] == "killed":
    os._exit(0)
"""


# --- at any moment (hazard F13) -------------------------------------------------------------------


def test_constant_thread_switches_keep_the_state_consistent() -> None:
    """Also without the GIL, if such a Python is installed: `python3.13t -m pytest`."""
    interval = sys.getswitchinterval()
    count = 0
    tokens: list[int] = []

    def work() -> None:
        nonlocal count
        for _ in range(TIMES):
            with client.lock("a") as lease:
                tokens.append(lease.token)
                before = count
                client.lock(f"{lease.token % 3}").acquire().release()
                count = before + 1

    sys.setswitchinterval(1e-6)
    try:
        with leaselock.Client("memory://switched") as client:
            threads = [threading.Thread(target=work) for _ in range(THREADS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert client.locks("*") == []
    finally:
        sys.setswitchinterval(interval)
    assert count == THREADS * TIMES
    assert tokens == sorted(set(tokens))


@pytest.mark.parametrize("living", [DRIVERS, FILES], ids=["clients", "files"])
def test_clients_may_be_made_while_all_are_listed(living: Any, tmp_path: Path) -> None:
    """By another thread, when the process forks or ends."""
    interval = sys.getswitchinterval()
    ended = threading.Event()

    def make() -> None:
        while not ended.is_set():
            for _ in range(50):
                leaselock.Client(url)

    url = f"sqlite:///{tmp_path}/locks.db"
    client = leaselock.Client(url)
    maker = threading.Thread(target=make)
    sys.setswitchinterval(1e-6)
    try:
        maker.start()
        for _ in range(2_000):
            assert list(living)
    finally:
        sys.setswitchinterval(interval)
        ended.set()
        maker.join()
        client.close()


# --- at its end (hazard F9), and into another process (hazard A14) --------------------------------


def holder_in(file: Path) -> object:
    """Return the holder that the file records, whether it is alive or not."""
    with closing(sqlite3.connect(file)) as database:
        return database.execute("SELECT id FROM lock WHERE name = 'a'").fetchone()[0]


def interpreters() -> list[str]:
    """Return the installed interpreters."""
    known = [*filter(None, map(shutil.which, PYTHONS))]
    probe = "import sqlite3, sys; print(sys.implementation.cache_tag)"
    found = {sys.executable: sys.implementation.cache_tag}
    for path in known:
        done = subprocess.run([path, "-c", probe], capture_output=True, text=True, check=False)
        if not done.returncode and done.stdout.strip() not in found.values():
            found[path] = done.stdout.strip()
    return [*found]


def test_every_python_releases_at_its_exit(tmp_path: Path) -> None:
    for number, python in enumerate(interpreters()):
        file = tmp_path / f"{number}.db"
        for how in "killed", "ended":
            words = [python, "-c", ENDING, f"sqlite:///{file}", how]
            place = {**os.environ, "PYTHONPATH": str(Path(SOURCE).parent)}
            token = subprocess.check_output(words, env=place, timeout=60)
            assert int(token) > 0
            assert (holder_in(file) is None) == (how == "ended"), python


def test_a_lease_cannot_be_sent_to_another_process() -> None:
    with leaselock.Client("memory://") as client:
        lease = client.lock("a").acquire()
        assert lease is not None
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            with pytest.raises((TypeError, pickle.PicklingError), match="pickle"):
                pickle.dumps(lease, protocol)
        with pytest.raises(TypeError, match="cannot be pickled"):
            copy.deepcopy(lease)
        # A second object for the same lease: a release of one releases both.
        copy.copy(lease).release()
        with pytest.raises(leaselock.NotHeld):
            lease.release()
