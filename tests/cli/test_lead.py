"""lead, leader, watch, and runs that happen once per period."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import pytest
from testkit.servers.redis import Redis
from tests.cli.processes import LOOP, Shell, ended, gone, paced, said, until

import leaselock

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path


def lead(
    shell: Shell, *options: str, script: str, trap: str = ""
) -> tuple[subprocess.Popen[str], Path]:
    """Start a candidate whose command writes a line with its pid when it begins."""
    file = shell.folder / f"terms{len(shell.started)}"
    whole = f'{f"trap {trap}; " if trap else ""}echo $$ >> "{file}"; {script}'
    return shell.start("lead", *options, "e", "--", "sh", "-c", whole), file


def terms(file: Path) -> list[int]:
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def test_the_command_of_one_candidate_runs_and_sigterm_hands_over(shell: Shell) -> None:
    first, one = lead(shell, "--label", "one", script="exec sleep 60")
    until(lambda: terms(one))
    second, two = lead(shell, script="exec sleep 60")
    until(lambda: shell.waiting("e"))
    leader = shell.run("leader", "e")
    assert leader.returncode == 0
    assert "(one)" in leader.stdout
    assert not terms(two)
    first.send_signal(signal.SIGTERM)
    assert ended(first) == -signal.SIGTERM
    until(lambda: terms(two))
    assert gone(terms(one)[0])
    second.send_signal(signal.SIGTERM)
    assert ended(second) == -signal.SIGTERM
    unled = shell.run("--json", "leader", "e")
    assert unled.returncode == 1
    assert json.loads(unled.stdout)["leader"] is None


def test_the_command_ends_on_loss_and_runs_again(shell: Shell) -> None:
    # The holder learns of it at its next renewal.
    _, file = lead(shell, "--lease", paced(1.0), script="exec sleep 60")
    until(lambda: terms(file))
    with leaselock.Client(shell.url) as client:
        assert client.break_lock("e") is not None
    until(lambda: len(terms(file)) >= 2)
    assert gone(terms(file)[0])


def test_a_command_that_ends_runs_again_and_with_once_it_does_not(shell: Shell) -> None:
    _, file = lead(shell, "-q", script="exit 3")
    until(lambda: len(terms(file)) >= 2)
    shell.end()
    once, file = lead(shell, "--once", script="exit 3")
    assert ended(once) == 3
    assert len(terms(file)) == 1


def test_signals_are_passed_on_while_it_leads(shell: Shell) -> None:
    leader, file = lead(shell, "--once", trap="'exit 8' USR1", script=LOOP)
    until(lambda: terms(file))
    leader.send_signal(signal.SIGUSR1)
    assert ended(leader) == 8


def test_lead_refuses_to_go_on_without_the_leadership(shell: Shell) -> None:
    refused = shell.run("lead", "--on-lost", "ignore", "e", "--", "true")
    assert refused.returncode == 64
    assert "lead needs a command" in shell.run("lead", "e").stderr


def test_once_per_runs_once_and_is_no_error(shell: Shell) -> None:
    file = shell.folder / "runs"
    command = ("--", "sh", "-c", f'echo run >> "{file}"')
    for _ in range(3):
        assert shell.run("run", "-q", "--once-per", "1h", "report", *command).returncode == 0
    assert file.read_text() == "run\n"
    shown = shell.run("show", "report").stdout
    assert "report: cooling down, held last by " in shown
    assert "free in 59m" in shown
    listed = json.loads(shell.run("ls", "--json").stdout)["locks"]
    assert listed[0]["holder"]["cooling_down"]
    assert "(cooling down)" in shell.run("ls").stdout


def test_once_per_with_slots_runs_so_many_times(shell: Shell) -> None:
    command = ("run", "-q", "--slots", "2", "--once-per", "1h", "report", "--", "sh", "-c")
    told = [shell.run(*command, "echo $LEASELOCK_SLOT") for _ in range(4)]
    assert [(done.returncode, done.stdout) for done in told] == [
        *((0, "0\n"), (0, "1\n")),
        *((0, ""), (0, "")),
    ]
    assert "report: 2 of 2 permits held" in shell.run("show", "report").stdout
    assert shell.run("run", "--shared", "--min-hold", "1h", "a", "--", "true").returncode == 64


def test_min_hold_makes_others_wait(shell: Shell) -> None:
    assert shell.run("run", "--min-hold", "1h", "a", "--", "true").returncode == 0
    busy = shell.run("run", "-n", "a", "--", "true")
    assert busy.returncode == 75
    assert "'a' has run already" in busy.stderr


def test_watch_prints_a_line_for_each_change(shell: Shell) -> None:
    for pattern in ("a", "a*"):
        watching = shell.start("watch", pattern)
        assert watching.stdout is not None
        if pattern == "a":
            assert json.loads(watching.stdout.readline())["event"] == "free"
        with leaselock.Client(shell.url) as client, client.lock("a") as lease:
            held = json.loads(watching.stdout.readline())
            assert (held["name"], held["event"]) == ("a", "held")
            assert held["holder"]["token"] == lease.token
        assert json.loads(watching.stdout.readline())["event"] == "free"
        watching.send_signal(signal.SIGINT)
        assert said(watching)[0] == -signal.SIGINT


def test_wait_until_held_is_notified(shell: Shell) -> None:
    waiting = shell.start("wait", "--until", "held", "a")
    with leaselock.Client(shell.url) as client:
        lock = client.lock("a")
        with lock:
            assert ended(waiting) == 0
    assert shell.run("wait", "--until", "held", "-w", "50ms", "a").returncode == 75


@pytest.mark.heavy
@pytest.mark.parametrize("outage", ["killed", "refuses"])
def test_candidates_outlive_an_outage_of_the_store(shell: Shell, outage: str) -> None:
    with Redis() as server:
        shell.env["LEASELOCK_URL"] = shell.url = server.url
        with leaselock.Client(server.url) as client:
            lease = client.lock("e", lease=3600.0, renew=False).acquire()
            assert lease is not None
            lease.detach()
        candidate, file = lead(shell, "--op-timeout", "1s", script="exec sleep 60")
        until(lambda: shell.waiting("e"))
        if outage == "killed":
            server.kill()
        else:
            server.ask("CONFIG", "SET", "min-replicas-to-write", "1")  # it only reads now
        assert candidate.stderr is not None
        for line in candidate.stderr:
            if "waiting for the store of 'e': " in line:
                break
        assert candidate.poll() is None
        server.restart(keep_data=False)
        until(lambda: terms(file))
        candidate.send_signal(signal.SIGTERM)
        assert ended(candidate) == -signal.SIGTERM
        server.kill()
        # That the store cannot be reached at all is an error.
        refused = shell.run("lead", "--op-timeout", "1s", "e", "--", "true")
        assert refused.returncode == 69


@pytest.mark.heavy
def test_watching_a_pattern_outlives_an_outage_of_the_store(shell: Shell) -> None:
    with Redis() as server:
        shell.env["LEASELOCK_URL"] = server.url
        with leaselock.Client(server.url) as client:
            lease = client.lock("a", lease=3600.0, renew=False).acquire()
            assert lease is not None
            lease.detach()
        watching = shell.start("--op-timeout", "1s", "watch", "a*")
        assert watching.stdout is not None
        assert watching.stderr is not None
        assert json.loads(watching.stdout.readline())["event"] == "held"
        server.kill()
        assert "cannot read the locks, and tries again: " in watching.stderr.readline()
        server.restart(keep_data=False)
        assert json.loads(watching.stdout.readline())["event"] == "free"
        watching.send_signal(signal.SIGTERM)
        assert ended(watching) == -signal.SIGTERM
        server.kill()
        refused = shell.run("--op-timeout", "1s", "watch", "a*")
        assert refused.returncode == 69
