"""leaselock run --once-per: at most once, or with --on-error retry at least once, in a period."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.processes import Shell

RETRY = ("run", "--once-per", "1h", "--on-error", "retry", "report", "--", "sh", "-c")


def test_failed_run_is_made_up_for_by_the_next_one(shell: Shell) -> None:
    assert shell.run(*RETRY, "exit 3").returncode == 3
    assert shell.run(*RETRY, "kill -9 $$").returncode in (137, -9)
    assert shell.run(*RETRY, "echo reported").stdout == "reported\n"
    skipped = shell.run(*RETRY, "echo again")
    assert (skipped.returncode, skipped.stdout, skipped.stderr) == (0, "", "")


def test_failed_run_uses_up_its_turn_by_default(shell: Shell) -> None:
    keep = ("run", "--once-per", "1h", "report", "--", "sh", "-c")
    assert shell.run(*keep, "exit 3").returncode == 3
    for words in (keep, RETRY):
        assert shell.run(*words, "echo again").stdout == ""


def test_killed_run_gives_its_turn_back(shell: Shell) -> None:
    job = shell.job("report", "--once-per", "1h", "--on-error", "retry", "--lease", "1s")
    assert shell.run(*RETRY, "echo again").stdout == ""
    os.kill(job.wrapper.pid, signal.SIGKILL)
    job.wrapper.wait()
    done = shell.run("wait", "-w", "1m", "report")
    assert done.returncode == 0, done.stderr
    assert shell.run(*RETRY, "echo reported").stdout == "reported\n"


def test_skipped_run_says_who_took_the_turn_and_when_the_next_one_begins(shell: Shell) -> None:
    assert shell.run("run", "--once-per", "1h", "--label", "web", "report", "true").returncode == 0
    skipped = shell.run("run", "-v", "--once-per", "1h", "report", "true")
    assert skipped.returncode == 0
    assert f"'report' has run already: {os.uname().nodename}, process " in skipped.stderr
    assert "(web) took the turn at " in skipped.stderr
    assert "; the next one begins at " in skipped.stderr
    assert ", in 59m" in skipped.stderr
    document = json.loads(shell.run("run", "--json", "--once-per", "1h", "report", "true").stderr)
    assert document["exit_code"] == 0
    assert document["holder"]["label"] == "web"
    assert document["holder"]["remaining"] > 0


def test_command_that_is_not_there_uses_up_no_turn(shell: Shell) -> None:
    once = ("run", "--once-per", "1h", "report", "--")
    assert shell.run(*once, "no-such-command-anywhere").returncode == 127
    assert shell.run(*once, "/dev/null").returncode == 126
    assert shell.run("ls", "--exit-code").returncode == 1
    assert shell.run(*once, "echo", "reported").stdout == "reported\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "--once-per"),
        (("--once-per", "1h", "--slots", "2"), "--slots"),
        (("--once-per", "1h", "--with", "b"), "--with"),
        (("--once-per", "1h", "--no-renew"), "--no-renew"),
    ],
)
def test_retry_that_cannot_be_is_refused(shell: Shell, words: tuple[str, ...], said: str) -> None:
    refused = shell.run("run", "--on-error", "retry", *words, "report", "true")
    assert refused.returncode == 64
    assert said in refused.stderr
