"""gevent and eventlet: what their patches of the standard library mean for a client."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

PATCHES = {
    "gevent": "from gevent import monkey; monkey.patch_all()",
    "eventlet": "import eventlet; eventlet.monkey_patch()",
}
HOLDER = """
import sys, leaselock
client = leaselock.Client(sys.argv[1])
client.lock("a", lease=3600).acquire()
print("holds", flush=True)
sys.stdin.read()  # until the parent is gone
"""
# A greenlet waits for a holder that dies; meanwhile another one holds a lock with a short lease.
WAITER = """
{patch}
import subprocess, sys, threading, time
import leaselock
command = [sys.executable, "-c", {holder!r}, sys.argv[1]]
pipe = subprocess.PIPE
holder = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)
assert holder.stdout.readline() == b"holds\\n"
with leaselock.Client(sys.argv[1]) as client:
    kept = client.lock("kept", lease=1.0).acquire()
    waiting = threading.Thread(target=lambda: client.lock("a").acquire(timeout=60).release())
    waiting.start()
    while not client.lock("a").waiters():
        time.sleep(0.01)
    until = time.monotonic() + 3.0
    while time.monotonic() < until:
        time.sleep(0.01)
    holder.kill()
    holder.wait()
    waiting.join(60)
    assert not waiting.is_alive()
    kept.ensure()
    kept.release()
print("acquired")
"""

# A server that loads the application before it forks, and patches in its workers.
EARLY = """
import os, sys, leaselock
client = leaselock.Client(sys.argv[1])
pid = os.fork() if sys.argv[2] == "forked" else 0
if pid:
    os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
{patch}
for use in (lambda: client.lock("a").acquire(), client.close):
    try:
        use()
    except RuntimeError as error:
        print(error)
client = None
"""


def run(program: str, *arguments: str) -> str:
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout + done.stderr


@pytest.mark.parametrize("library", PATCHES)
def test_a_waiter_of_a_file_hears_of_the_end_of_a_holder(library: str, tmp_path: Path) -> None:
    """eventlet has no `poll`, and that of gevent reports no hang-ups."""
    program = WAITER.format(patch=PATCHES[library], holder=HOLDER)
    output = run(program, f"sqlite:///{tmp_path}/locks.db")
    assert "acquired" in output.splitlines(), output


@pytest.mark.parametrize("process", ["forked", "own"])
@pytest.mark.parametrize("library", PATCHES)
def test_a_client_that_was_made_too_early_says_so(
    library: str, process: str, tmp_path: Path
) -> None:
    """It stopped all greenlets at its first use, for ever."""
    output = run(EARLY.format(patch=PATCHES[library]), f"sqlite:///{tmp_path}/locks.db", process)
    assert output.count("was made before monkey.patch_all()") == 2, output
    assert "Traceback" not in output
