"""A process is told from a later one with the same number."""

from __future__ import annotations

import os
import resource
import subprocess
import sys

import pytest

from leaselock.process_identity import is_gone, own_identity

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux's /proc")
HOST = os.uname().nodename
PROGRAM = """
import os, sys
from leaselock.process_identity import own_identity
print(own_identity(), flush=True)
sys.stdin.read()
"""


def test_this_process_runs() -> None:
    assert own_identity() == own_identity() != ""
    assert not is_gone(HOST, os.getpid(), own_identity())


def test_a_process_is_gone_when_it_has_ended() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        identity = process.stdout.readline().strip()
        assert not is_gone(HOST, process.pid, identity)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert is_gone(HOST, process.pid, identity), "only its exit code is left"
        process.wait()
        assert is_gone(HOST, process.pid, identity)


def test_a_later_process_with_its_number_is_another_one() -> None:
    place, _, started = own_identity().rpartition(":")
    assert is_gone(HOST, os.getpid(), f"{place}:{int(started) - 1}")


def test_of_others_nothing_is_known() -> None:
    boot, space, started = own_identity().split(":")
    pid = os.getpid()
    assert not is_gone(f"not-{HOST}", pid, f"{boot}:{space}:1")
    assert not is_gone(HOST, pid, f"00000000:{space}:1"), "another boot, or machine"
    assert not is_gone(HOST, pid, f"{boot}:1:{started}"), "another container"
    assert not is_gone(HOST, pid, "")


def test_text_from_a_store_may_be_no_number_of_a_process() -> None:
    assert not is_gone(HOST, 2**40, own_identity())


def test_an_identity_that_could_not_be_read_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    identity = own_identity()
    monkeypatch.setattr("leaselock.process_identity._known", (0, ""))
    with monkeypatch.context() as patch:
        patch.setattr(os, "readlink", lambda path: "1")
        assert own_identity() == "", "/proc of another namespace"
    monkeypatch.setattr("leaselock.process_identity._known", (0, ""))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        assert own_identity() == "", "no descriptor is left"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert own_identity() == identity


def test_a_forked_child_is_another_process() -> None:
    before = own_identity()
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.write(writer, own_identity().encode())
        os._exit(0)
    os.close(writer)
    with open(reader) as pipe:
        assert pipe.read() != before
    os.waitpid(child, 0)
