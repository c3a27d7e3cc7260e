"""ls --stale: locks that are held by a process of this host that has ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from testkit.servers.redis import Redis

from leaselock import Holder, LockInfo
from leaselock._cli.listing import layout
from leaselock._cli.show import lock_lines
from leaselock.process_identity import own_identity

if TYPE_CHECKING:
    from tests.cli.processes import Shell

PROGRAM = """
import sys, leaselock
client = leaselock.Client()
client.lock(sys.argv[1], lease=600).acquire()
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.heavy
def test_the_holder_was_killed(shell: Shell) -> None:
    with Redis() as server:
        shell.env["LEASELOCK_URL"] = server.url
        shell.run("acquire", "detached")
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", PROGRAM, name],
                env=shell.env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for name in ("killed", "running")
        ]
        shell.started += processes
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
        assert shell.run("ls", "--stale", "--exit-code").returncode == 1
        processes[0].kill()
        processes[0].wait()
        (lock,) = json.loads(shell.run("ls", "--stale", "--json").stdout)["locks"]
        assert (lock["name"], lock["holder"]["gone"]) == ("killed", True)
        assert f":{processes[0].pid} (gone)" in shell.run("ls").stdout
        assert "its process has ended" in shell.run("show", "killed").stdout
        assert "its process has ended" not in shell.run("show", "running").stdout


def test_it_is_marked() -> None:
    place, _, started = own_identity().rpartition(":")
    earlier = f"{place}:{int(started) - 1}"
    holder = Holder(os.uname().nodename, os.getpid(), "t", 1.0, None, 5, 9.0, process=earlier)
    for gone in (True, False):
        now = holder if gone else holder._replace(process=own_identity())
        lock = LockInfo("a", now, (), (now,))
        assert ("(gone)" in layout([lock], None, lambda text, _: text)[1]) is gone
        assert ("its process has ended" in "".join(lock_lines(lock))) is gone
    detached = holder._replace(detached=True)
    assert "its process" not in "".join(lock_lines(LockInfo("a", detached, (), (detached,))))
