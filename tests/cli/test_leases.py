"""acquire, release, extend, check, break, wait."""

from __future__ import annotations

import json
import shlex
import subprocess

import pytest
from tests.cli.processes import LEASELOCK, Shell, ended, paced, said, until

import leaselock


def acquired(shell: Shell, *words: str) -> str:
    done = shell.run("acquire", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_acquire_check_extend_release_by_token(shell: Shell) -> None:
    token = acquired(shell, "a", "--lease", "1m", "--label", "freeze")
    assert shell.run("check", "a", "--token", token).returncode == 0
    assert shell.run("run", "-n", "a", "true").returncode == 75
    assert shell.run("extend", "a", "--token", token, "--lease", "1h").returncode == 0
    holder = shell.holder("a")
    assert holder is not None
    assert (holder.token, holder.label) == (int(token), "freeze")
    assert 3500 < (holder.remaining or 0) <= 3600
    assert shell.run("release", "a", "--token", token).returncode == 0
    for verb in (["check"], ["release"], ["extend", "--lease", "1m"]):
        assert shell.run(*verb, "a", "--token", token).returncode == 79
    assert int(acquired(shell, "a")) > int(token)


def test_extend_says_whether_it_extended(shell: Shell) -> None:
    token = acquired(shell, "a", "--lease", "1m")
    for lease, extended in (("1h", True), ("1m", False)):
        done = shell.run("extend", "a", "--token", token, "--lease", lease, "--json")
        assert json.loads(done.stdout)["extended"] is extended


def test_acquire_prints_json(shell: Shell) -> None:
    document = json.loads(acquired(shell, "--json", "a", "--lease", "1m"))
    assert document.keys() == {"schema", "backend", "name", "token", "lease"}
    assert (document["schema"], document["name"], document["lease"]) == (2, "a", 60)


def test_detached_lease_expires(shell: Shell) -> None:
    acquired(shell, "a", "--lease", paced(0.5))
    assert shell.run("run", "-w", "1m", "a", "true").returncode == 0


def test_busy_acquire_names_the_holder(shell: Shell) -> None:
    job = shell.job("a")
    for words in (["-n"], ["-w", "50ms"]):
        busy = shell.run("acquire", *words, "a")
        assert busy.returncode == 75
        assert f"process {job.wrapper.pid}" in busy.stderr
        assert busy.stdout == ""


def test_acquire_releases_when_the_token_cannot_be_printed(shell: Shell) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([*LEASELOCK, "acquire", "a"], env=shell.env, stdout=full, check=False)
    assert done.returncode == 74
    assert shell.holder("a") is None


def test_acquire_with_closed_output_takes_no_lease(shell: Shell) -> None:
    closed = f"exec {shlex.join(LEASELOCK)} acquire a >&-"
    done = subprocess.run(["sh", "-c", closed], env=shell.env, capture_output=True, check=False)
    assert done.returncode == 64
    assert b"output is closed" in done.stderr
    assert shell.holder("a") is None


def test_attached_lease_cannot_be_released_by_token(shell: Shell) -> None:
    shell.job("a")
    holder = shell.holder("a")
    assert holder is not None
    assert shell.run("release", "a", "--token", str(holder.token)).returncode == 79
    assert shell.run("check", "a", "--token", str(holder.token)).returncode == 0


def test_command_can_check_its_own_lock(shell: Shell) -> None:
    check = f'{shlex.join(LEASELOCK)} check "$LEASELOCK_NAME" --token "$LEASELOCK_TOKEN"'
    assert shell.run("run", "-c", check, "a").returncode == 0


def test_failed_check_names_the_holder(shell: Shell) -> None:
    free = shell.run("check", "a", "--token", "5")
    assert (free.returncode, free.stderr) == (79, "leaselock: 'a' is free\n")
    token = acquired(shell, "a", "--label", "mine")
    other = shell.run("check", "a", "--token", "5")
    assert other.returncode == 79
    assert "(mine)" in other.stderr
    assert token in other.stderr


# --- break -----------------------------------------------------------------------------------


def test_break_without_a_terminal_needs_confirmation_and_reason(shell: Shell) -> None:
    token = acquired(shell, "a")
    for words in ([], ["--yes"], ["--token", token], ["--message", "x"]):
        assert shell.run("break", "a", *words).returncode == 64
    assert shell.run("check", "a", "--token", token).returncode == 0


def test_break_ends_the_hold(shell: Shell) -> None:
    token = acquired(shell, "a", "--label", "forgotten")
    done = shell.run("break", "a", "--token", token, "--message", "its owner left")
    assert done.returncode == 0
    first, second = done.stderr.splitlines()
    assert "'a' is held by" in first
    assert "(forgotten)" in first
    assert second == f"leaselock: broke 'a', token {token}: its owner left"
    assert shell.run("check", "a", "--token", token).returncode == 79


def test_break_with_another_token_changes_nothing(shell: Shell) -> None:
    token = acquired(shell, "a")
    assert shell.run("break", "a", "--token", "1", "--message", "x").returncode == 79
    assert shell.run("check", "a", "--token", token).returncode == 0


def test_break_of_a_free_lock_is_not_done(shell: Shell) -> None:
    done = shell.run("break", "a", "--yes", "--message", "x")
    text = f"leaselock: 'a' is free in {shell.url}: nothing to break\n"
    assert (done.returncode, done.stderr) == (1, text)
    done = shell.run("--json", "break", "a", "--yes", "--message", "x")
    assert done.returncode == 1
    document = json.loads(done.stdout)
    assert (document["error"], document["broken"], document["exit_code"]) == ("free", None, 1)


def test_break_takes_no_pattern(shell: Shell) -> None:
    acquired(shell, "order:5")
    done = shell.run("break", "order:*", "--yes", "--message", "x")
    assert done.returncode == 64
    assert "`leaselock ls 'order:*'`" in done.stderr
    assert shell.run("ls", "--exit-code", "order:5").returncode == 0
    acquired(shell, "order:*")  # a name all the same
    assert shell.run("break", "order:*", "--yes", "--message", "x").returncode == 0


def test_break_says_that_the_holder_works_on(shell: Shell) -> None:
    with leaselock.Client(shell.url) as client:
        lease = client.lock("a", lease=3600.0, renew=False).acquire()
        done = shell.run("break", "a", "--yes", "--message", "x")
        assert "It works on until it notices, at its next renewal" in done.stderr
        with pytest.raises(leaselock.LeaseLost):
            lease.release()
        cooling = client.lock("b", min_hold=3600.0)
        with cooling:
            pass
    for words in (["check", "b", "7"], ["break", "b", "--yes", "--message", "x"]):
        said = shell.run(*words).stderr
        assert "'b' is cooling down for 59m" in said
        assert "held by" not in said
        assert "works on" not in said


def test_broken_lock_is_granted_to_the_next_waiter(shell: Shell) -> None:
    acquired(shell, "a")
    waiter = shell.waiter("a")
    assert shell.run("break", "a", "--yes", "--message", "x").returncode == 0
    assert ended(waiter) == 0


# --- wait ------------------------------------------------------------------------------------


def test_wait_until_free(shell: Shell) -> None:
    assert shell.run("wait", "a").returncode == 0
    token = acquired(shell, "a")
    busy = shell.run("wait", "a", "-w", "100ms")
    assert busy.returncode == 75
    assert "'a' is busy after 100ms" in busy.stderr
    waiter = shell.start("wait", "-q", "a")
    until(lambda: shell.waiting("a"))
    assert shell.run("release", "a", "--token", token).returncode == 0
    assert said(waiter) == (0, "")
    assert shell.holder("a") is None


def test_wait_until_held(shell: Shell) -> None:
    free = shell.run("wait", "a", "--until", "held", "-w", "100ms")
    assert (free.returncode, free.stderr) == (75, "leaselock: 'a' is free after 100ms\n")
    waiter = shell.start("wait", "a", "--until", "held")
    acquired(shell, "a")
    assert said(waiter) == (0, "")


@pytest.mark.parametrize("name", ["'; DROP TABLE lock;--", "../..", "{a}", "a b", "-x", "\u2603"])
def test_names_with_special_characters(shell: Shell, name: str) -> None:
    assert shell.run("run", "--", name, "true").returncode == 0
    token = acquired(shell, "--", name)
    assert shell.run("run", "-n", "--", name, "true").returncode == 75
    assert [lock["name"] for lock in json.loads(shell.run("ls", "--json").stdout)["locks"]] == [
        name
    ]
    assert shell.run("release", "--token", token, "--", name).returncode == 0
