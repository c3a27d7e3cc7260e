"""deadlocks: processes that wait for one another."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.cli.circle import circle

if TYPE_CHECKING:
    from tests.cli.processes import Shell


def test_two_processes(shell: Shell) -> None:
    assert (shell.run("deadlocks").returncode, shell.run("deadlocks").stdout) == (0, "")
    processes = circle(shell, "a", "b")
    while (found := shell.run("deadlocks")).returncode == 0:
        pass
    head, *waits, advice = found.stdout.splitlines()
    assert (found.returncode, head) == (1, "deadlock of 2 owners:")
    assert all(f"process {process.pid}" in found.stdout for process in processes)
    assert len(waits) == 2
    (deadlock,) = json.loads(shell.run("deadlocks", "--json").stdout)["deadlocks"]
    assert {wait["name"] for wait in deadlock} == {"a", "b"}
    listed = shell.run("ls").stdout.splitlines()[1:]
    assert [" 1 (deadlock)" in line for line in listed] == [True, True]
    assert "deadlock of 2 owners:" in shell.run("show", "a").stdout
    documents = json.loads(shell.run("ls", "--json").stdout)["locks"]
    assert [document["deadlocked"] for document in documents] == [True, True]
    # Follow the advice: one process loses its lock, the other one gets both.
    command = advice.partition("leaselock ")[2].split()
    assert shell.run(*command).returncode == 0
    printed = sorted(process.communicate()[0] for process in processes)
    assert printed == ["both\n", "both\nlost\n"], "one has lost what was broken"
    assert shell.run("deadlocks").returncode == 0
