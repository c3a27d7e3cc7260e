"""leaselock run: the command, its exit code, its environment and its name."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import sys
import time
from typing import TYPE_CHECKING

import pytest
from tests.cli.processes import LEASELOCK, Shell, ended, has_word, paced, said, until

from leaselock._backends.url import may_hold_secret

if TYPE_CHECKING:
    from pathlib import Path

PRINT_ENVIRONMENT = "import json, os; print(json.dumps(dict(os.environ)))"
ENVIRONMENT = (sys.executable, "-c", PRINT_ENVIRONMENT)


def test_exit_code_of_the_command_is_returned(shell: Shell) -> None:
    assert shell.run("run", "a", "--", "sh", "-c", "exit 7").returncode == 7
    assert shell.run("run", "a", "sh", "-c", "kill -9 $$").returncode == -9
    assert shell.run("run", "a", "true").returncode == 0


def test_lock_is_released_afterwards(shell: Shell) -> None:
    shell.run("run", "a", "false")
    assert shell.run("ls", "--exit-code").returncode == 1


def test_busy_exits_75_and_names_the_holder(shell: Shell) -> None:
    job = shell.job("a", "--label", "month's end")
    busy = shell.run("run", "-n", "a", "--", "true")
    assert busy.returncode == 75
    holder = f"{os.uname().nodename}, process {job.wrapper.pid}, MainThread (month's end) for "
    assert f"leaselock: 'a' is busy: held by {holder}" in busy.stderr
    assert shell.run("run", "-n", "-E", "1", "a", "true").returncode == 1
    skipped = shell.run("run", "-n", "--skip-ok", "a", "true")
    assert (skipped.returncode, skipped.stderr) == (0, "")
    assert shell.run("run", "-n", "-q", "a", "true").stderr == ""


def test_timeout_names_the_holder(shell: Shell) -> None:
    job = shell.job("a")
    began = time.monotonic()
    busy = shell.run("run", "-w", "300ms", "a", "true")
    assert busy.returncode == 75
    assert time.monotonic() - began >= 0.3
    assert f"'a' is busy after 300ms: held by {os.uname().nodename}, process {job.wrapper.pid}" in (
        busy.stderr
    )
    assert shell.waiting("a") == 0


def test_waiting_command_gets_the_lock(shell: Shell) -> None:
    release = shell.folder / "release"
    os.mkfifo(release)
    job = shell.job("a", script=f'read line < "{release}"; exit 3')
    waiter = shell.waiter("a")
    release.write_text("go\n")
    assert ended(job.wrapper) == 3
    assert ended(waiter) == 0


def test_verbose_wait_shows_holder_and_position(shell: Shell) -> None:
    release = shell.folder / "release"
    os.mkfifo(release)
    job = shell.job("a", "--label", "first", script=f'read line < "{release}"')
    waiter = shell.start("run", "-v", "a", "true")
    assert waiter.stderr is not None
    assert waiter.stderr.readline() == f"leaselock: the store is {shell.url}\n"
    line = waiter.stderr.readline()
    assert re.match(r"leaselock: waiting [1-9]", line)
    assert f"position 1 of 1; held by {os.uname().nodename}:{job.wrapper.pid} for " in line
    assert line.endswith(": 'a' (first)\n")
    release.write_text("go\n")
    code, rest = said(waiter)
    assert code == 0
    assert rest.startswith("leaselock: acquired 'a', token ")
    assert re.search(r"waited [1-9]", rest)
    assert "held before by" in rest
    assert "(first)" in rest


def test_quiet_wait_prints_nothing(shell: Shell) -> None:
    shell.job("a", script="sleep 1.3")
    assert said(shell.start("run", "-q", "a", "true")) == (0, "")


def test_command_that_cannot_run_leaves_nothing_held(shell: Shell, tmp_path: Path) -> None:
    missing = shell.run("run", "a", "--", "/usr/nonexistent/command")
    assert missing.returncode == 127
    assert "cannot run '/usr/nonexistent/command': No such file or directory" in missing.stderr
    assert shell.run("run", "a", "no-such-command-anywhere").returncode == 127
    assert shell.run("run", "a", "--", "/etc/passwd").returncode == 126
    assert shell.run("run", "a", "--", str(tmp_path)).returncode == 126
    assert shell.run("ls", "--exit-code").returncode == 1


def test_script_without_shebang_is_run_by_the_shell(shell: Shell) -> None:
    script = shell.folder / "job"
    script.write_text("echo $LEASELOCK_NAME $1; exit 4\n")
    script.chmod(0o755)
    done = shell.run("run", "a", "--", str(script), "word")
    assert (done.returncode, done.stdout) == (4, "a word\n")


def test_environment_of_the_command(shell: Shell) -> None:
    before = time.time()
    done = shell.run("run", "--lease", "1m", "a b", *ENVIRONMENT)
    env = json.loads(done.stdout)
    with_token = int(env["LEASELOCK_TOKEN"])
    assert env["LEASELOCK_NAME"] == "a b"
    assert with_token > 0
    assert env["LEASELOCK_LEASE"] == "60"
    assert before <= float(env["LEASELOCK_HELD_SINCE"]) <= time.time()
    assert env["LEASELOCK_BACKEND"] == env["LEASELOCK_URL"] == shell.url
    assert env["LEASELOCK_STACK"] == "a b"


def test_environment_of_a_nested_command(shell: Shell) -> None:
    done = shell.run("run", "the outer", "--", *LEASELOCK, "run", "inner", "--", *ENVIRONMENT)
    env = json.loads(done.stdout)
    assert env["LEASELOCK_NAME"] == "inner"
    assert env["LEASELOCK_STACK"].split("\n") == ["the outer", "inner"]


def test_tokens_increase_from_run_to_run(shell: Shell) -> None:
    runs = [shell.run("run", "-c", "echo $LEASELOCK_TOKEN", "a").stdout for _ in range(3)]
    tokens = [int(run) for run in runs]
    assert tokens == sorted(set(tokens))


@pytest.mark.parametrize("inner", [("run", "a", "true"), ("acquire", "a"), ("wait", "a")])
@pytest.mark.parametrize(
    ("limit", "code"), [((), 64), (("--timeout", "1h"), 64), (("--timeout", "0s"), 75)]
)
def test_waiting_for_an_enclosing_lock_is_refused(
    shell: Shell, inner: tuple[str, ...], limit: tuple[str, ...], code: int
) -> None:
    """However long it would wait; a try is refused because the lock is held."""
    word, *rest = inner
    done = shell.run("run", "-c", shlex.join([*LEASELOCK, word, *limit, *rest]), "a")
    assert done.returncode == code
    assert ("this runs under the lock 'a' of the same store" in done.stderr) is (code == 64)


@pytest.mark.parametrize(
    "url", ["redis://joe:secret@db/0", "redis://db/0?password=secret"], ids=["login", "option"]
)
def test_password_is_not_passed_to_the_command(shell: Shell, url: str) -> None:
    own = {"LEASELOCK_URL": url}
    done = shell.run("--url", shell.url, "run", "a", *ENVIRONMENT, env=own)
    assert done.returncode == 0, done.stderr
    assert "secret" not in done.stdout
    assert "LEASELOCK_URL" not in json.loads(done.stdout)


def test_nested_command_does_not_fall_back_to_the_embedded_store(shell: Shell) -> None:
    del shell.env["LEASELOCK_URL"]
    done = shell.run("run", "a", "true", env={"LEASELOCK_BACKEND": "redis://db/0"})
    assert done.returncode == 78
    assert "runs under a lock of redis://db/0, but LEASELOCK_URL is not set" in done.stderr


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://:pw@host/0", True),
        ("redis://joe:p/w@host/0", True),
        ("rediss://host?user=joe&Password=x", True),
        ("postgresql://joe@host/db", False),
        ("redis://host:6379/0", False),
        ("sqlite:////a:b@c/locks.db", False),
        ("", False),
    ],
)
def test_may_hold_secret(url: str, expected: bool) -> None:
    assert may_hold_secret(url) is expected


def test_shell_command_reads_stdin(shell: Shell) -> None:
    done = shell.run("run", "-c", "cat; echo $LEASELOCK_NAME", "a", stdin="hello ")
    assert done.stdout == "hello a\n"
    assert done.returncode == 0


def test_closed_stdin_stays_closed(shell: Shell) -> None:
    words = shlex.join([*LEASELOCK, "run", "a", "--", "sh", "-c", "read line; echo $? >&2"])
    process = shell.start("run", "b", "--", "sh", "-c", f"exec 0<&-; {words}")
    assert said(process)[1].strip().splitlines()[-1] != "0"


def test_name_from_command_is_stable(shell: Shell) -> None:
    script = 'echo "$LEASELOCK_NAME"'
    words = ("run", "--name-from-command", "--", "sh", "-c")
    names = {shell.run(*words, script).stdout for _ in range(2)}
    (name,) = names
    assert name.startswith("sh:")
    assert shell.run(*words, f"{script}; true").stdout not in names


def test_default_label_hides_the_arguments(shell: Shell) -> None:
    shell.job("a", script="exec sleep 60 # secret")
    listed = shell.run("ls", "--json").stdout
    assert "secret" not in listed
    assert json.loads(listed)["locks"][0]["holder"]["label"] == "sh"


def test_max_hold_ends_the_command(shell: Shell) -> None:
    done = shell.run("run", "--max-hold", "300ms", "a", "sleep", "60")
    assert done.returncode == 124
    assert "'a' was held for 300ms" in done.stderr


def test_max_hold_kills_a_command_that_ignores_the_signal(shell: Shell) -> None:
    job = shell.job(
        *("a", "--max-hold", paced(0.5), "--kill-after", "100ms"),
        trap="'' TERM",
        script="sleep 60; true",
    )
    assert ended(job.wrapper) == 124


def test_background_process_of_the_command_does_not_keep_the_lock(shell: Shell) -> None:
    left = shell.folder / "left"
    script = f'sleep 60 >/dev/null 2>&1 </dev/null & echo $! > "{left}"; exit 0'
    assert shell.run("run", "a", "--", "sh", "-c", script).returncode == 0
    pid = int(left.read_text())
    assert shell.run("run", "-n", "a", "true").returncode == 0
    os.kill(pid, signal.SIGKILL)


def test_output_of_the_command_is_not_redirected(shell: Shell) -> None:
    done = shell.run("run", "a", "--", "sh", "-c", "echo out; echo err >&2")
    assert (done.stdout, done.stderr) == ("out\n", "err\n")


def test_closed_stderr_does_not_end_the_command(shell: Shell) -> None:
    word = shell.folder / "word"
    script = f'sleep {paced(0.5)}; echo done > "{word}"; exit 5'
    options = ("--no-renew", "--lease", paced(0.4), "--on-lost", "ignore")
    wrapper = shell.start("run", *options, "a", "--", "sh", "-c", script)
    assert wrapper.stderr is not None
    wrapper.stderr.close()
    wrapper.stderr = None
    assert ended(wrapper) == 76
    until(lambda: has_word(word))
