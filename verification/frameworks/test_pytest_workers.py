"""`leaselock_once` in a run of pytest-xdist of which a worker is killed.

The README beside this file says what these tests show.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest
from testkit.servers.process import eventually
from tests.contrib.metadata import write_metadata

import leaselock

if TYPE_CHECKING:
    from tests.contrib.conftest import Programs

pytestmark = pytest.mark.nightly

LIMIT = 300.0
WORKERS, TESTS_OF_THE_RUN = 3, 12
TESTS = """
    import os, time
    import pytest

    def line(name, word):
        with open(name, "a") as file:
            file.write(f"{word}\\n")

    def make():
        line("makers", os.getpid())
        while not os.path.exists("go"):
            time.sleep(0.02)
        return os.getpid()

    @pytest.fixture(scope="session")
    def number(leaselock_once):
        return leaselock_once("number", make)

    @pytest.mark.parametrize("case", range(12))
    def test_all_share_it(number, case):
        line("numbers", number)
"""


@pytest.mark.parametrize("killed", ["maker", "waiter"])
def test_a_worker_is_killed(programs: Programs, killed: str) -> None:
    """One test fails with its worker, and all others get one result."""
    write_metadata(programs.folder)
    programs.write("test_numbers.py", TESTS)
    base = programs.folder / "base"
    words = ["pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={base}", "-n", str(WORKERS)]
    run = programs.start(*words, "test_numbers.py")
    (maker,) = map(int, programs.wait_for_lines("makers", 1))
    with leaselock.Client(base / "once.db") as client:
        lock = client.lock("once:number")
        eventually(lambda: len(lock.waiters()) == WORKERS - 1, LIMIT)
        waiters = [waiter.pid for waiter in lock.waiters()]
    os.kill(maker if killed == "maker" else waiters[0], signal.SIGKILL)
    if killed == "maker":
        # It is made again at once, by a worker that has waited.
        made = int(programs.wait_for_lines("makers", 2)[1])
        assert made in waiters
    (programs.folder / "go").write_text("")
    assert run.process.wait(LIMIT) == 1
    assert f"1 failed, {TESTS_OF_THE_RUN - 1} passed" in run.output(), run.output()
    assert "crashed while running" in run.output()
    assert set(programs.lines("numbers")) == {programs.lines("makers")[-1]}
    assert len(programs.lines("makers")) == (2 if killed == "maker" else 1)
