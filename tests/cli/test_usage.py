"""Arguments, and the exit codes of wrong usage, configuration and permissions."""

from __future__ import annotations

import inspect
import os
import re
import sqlite3
import subprocess
import sys
from importlib import import_module
from typing import TYPE_CHECKING

import pytest

import leaselock
from leaselock._cli.answer import report
from leaselock._cli.commands import COMMANDS, module_of
from leaselock._cli.formatting import escape, format_duration, parse_duration
from leaselock._cli.options import Options

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.processes import Shell


@pytest.mark.parametrize(
    ("words", "code", "hint"),
    [
        ([], 64, "COMMAND"),
        (["nonsense"], 64, "invalid choice"),
        (["run"], 64, "run needs a command"),
        (["run", "a"], 64, "run needs a command"),
        (["run", "a", "-n", "true"], 64, "'-n' would be the command"),
        (["run", "-c", "true", "a", "b"], 64, "either -c or a command"),
        (["run", "-c", "true"], 64, "the name of a lock"),
        (["run", "--on-lost", "nonsense", "a", "true"], 64, "'nonsense' is not the name of"),
        (["run", "--pdeathsig", "99", "a", "true"], 64, "'99' is not the name of a signal"),
        (["run", "-w", "soon", "a", "true"], 64, "'soon' is not a duration such as 500ms"),
        (["run", "-n", "-w", "1", "a", "true"], 64, "not allowed with"),
        (["run", "-E", "256", "a", "true"], 64, "exit code"),
        (["run", "--lease", "0", "a", "true"], 64, "lease is from 0.05 to 31536000 seconds"),
        (["run", "a\nb", "true"], 64, "no control characters"),
        (["run", "x" * 256, "true"], 64, "at most 255 bytes"),
        (["run", "--", "", "true"], 64, "name"),
        (["--op-timeout", "0", "ls"], 64, "--op-timeout is from"),
        (["check", "a", "--token", "x"], 64, "'x' is not a token"),
        (["release", "a", "--token", "0"], 64, "fencing token is from 1"),
        (["release", "a"], 64, "the token is missing"),
        (["release", "a", "5", "--token", "6"], 64, "two tokens were given"),
        (["--url", "nosuch://x", "run", "a", "true"], 78, "no store is known for 'nosuch'"),
        (["--url", "sqlite://host/x", "ls"], 78, "three slashes"),
        (["--url", "memory://", "ls"], 78, "end with this very command"),
        (["--url", "sqlite:////usr/nonexistent/dir/x.db", "ls"], 78, "/usr/nonexistent/dir"),
    ],
    ids=lambda value: " ".join(value)[:30] if isinstance(value, list) else None,
)
def test_wrong_usage_and_configuration(
    shell: Shell, words: list[str], code: int, hint: str
) -> None:
    done = shell.run(*words)
    assert done.returncode == code, done.stderr
    assert hint in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


def test_the_exit_code_does_not_depend_on_words_of_the_address(shell: Shell) -> None:
    for name in ("permission-denied.sock", "is not a lock.sock", "read-only.sock"):
        done = shell.run("--url", f"unix:///{shell.folder}/{name}", "ls")
        assert done.returncode == 69, done.stderr
        assert name in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["run", "a", "-n", "--", "echo", "-n", "x", "--", "y"], 0, "x -- y"),
        (["run", "a", "-v", "--lease", "9s", "--", "echo", "x"], 0, "x\n"),
        (["run", "-q", "a", "-c", "echo x"], 0, "x\n"),
        (["run", "a", "sh", "-c", 'echo "$@"', "--", "x", "--", "-n"], 0, "x -- -n\n"),
        (["run", "--name-from-command", "echo", "--", "-n"], 0, "-- -n\n"),
        (["lead", "a", "--once", "--", "echo", "x"], 0, "x\n"),
        (["acquire", "a", "-n", "--lease", "9s"], 0, ""),
        (["run", "a", "-n", "x", "--", "echo"], 64, "'-n' would be the command"),
        (["run", "a", "-w", "--", "echo"], 64, "expected one argument"),
        (["run", "a", "--nonsense", "--", "echo"], 64, "unrecognized arguments: --nonsense"),
        (["run", "a", "-n", "-w", "1", "--", "echo"], 64, "not allowed with"),
        (["run", "--", "a", "-n", "--", "echo"], 64, "'-n' would be the command"),
    ],
    ids=lambda value: " ".join(value)[:30] if isinstance(value, list) else None,
)
def test_options_may_follow_the_name(shell: Shell, words: list[str], code: int, text: str) -> None:
    done = shell.run(*words)
    assert done.returncode == code, done.stderr
    assert text in (done.stderr if code else done.stdout)


def test_waiting_for_the_lock_around_the_command_is_refused(shell: Shell) -> None:
    ours = [sys.executable, "-m", "leaselock"]
    done = shell.run("run", "a", "--", *ours, "wait", "a")
    assert done.returncode == 64
    assert "this runs under the lock 'a' of the same store" in done.stderr
    assert shell.run("run", "a", "--", *ours, "wait", "b").returncode == 0
    assert shell.run("run", "a", "--", *ours, "wait", "--until", "held", "a").returncode == 0


def test_a_nested_command_may_take_a_permit_that_is_left(shell: Shell) -> None:
    slots = [sys.executable, "-m", "leaselock", "run", "--slots", "2", "a", "--"]
    assert shell.run(*slots[3:], *slots, "echo", "x").stdout == "x\n"
    done = shell.run(*slots[3:], *slots, *slots, "echo", "x")
    assert done.returncode == 64
    assert "this runs under all 2 permits of the semaphore 'a'" in done.stderr


def test_file_of_another_version_exits_78(shell: Shell) -> None:
    shell.run("ls")
    database = sqlite3.connect(shell.folder / "locks.db")
    database.execute("UPDATE fact SET value = '99' WHERE key = 'schema'")
    database.commit()
    database.close()
    done = shell.run("ls")
    assert done.returncode == 78, done.stderr


@pytest.mark.timing
def test_store_that_does_not_reply_exits_69(shell: Shell) -> None:
    shell.run("ls")
    database = sqlite3.connect(shell.folder / "locks.db", isolation_level=None)
    database.execute("BEGIN IMMEDIATE")
    done = shell.run("--op-timeout", "100ms", "acquire", "-n", "a")
    database.close()
    assert done.returncode == 69, done.stderr
    assert "is locked by another process" in done.stderr


# Import everything first: the other user may not be able to read this source tree.
RUN_AS_NOBODY = """
import importlib, os, pkgutil, sys
import argparse, datetime, encodings.idna, encodings.unicode_escape, json, locale, sqlite3
import leaselock._cli, leaselock._backends, leaselock._drivers.threads
for package in (leaselock._cli, importlib.import_module("leaselock._backends.sqlite")):
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        if not module.name.endswith(("_windows", "_macos")):
            importlib.import_module(module.name)
if not os.geteuid():
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
sys.exit(leaselock._cli.main(sys.argv[1:]))
"""


@pytest.mark.parametrize("mode", [0o000, 0o555, 0o700])
def test_missing_permission_exits_77(tmp_path: Path, mode: int) -> None:
    if os.geteuid() and mode == 0o700:
        pytest.skip("only root can act as two users")
    folder = tmp_path / "folder"
    folder.mkdir(mode=mode)
    for parent in (tmp_path, *tmp_path.parents):
        if not os.geteuid() and parent.stat().st_uid == 0 and parent != parent.parent:
            parent.chmod(parent.stat().st_mode | 0o011)
    words = ["--url", f"sqlite:///{folder}/locks.db", "ls"]
    done = subprocess.run(
        [sys.executable, "-c", RUN_AS_NOBODY, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 77, done.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "words",
    [["--help"], ["run", "--help"], ["version"], ["-v", "ls", "--json"], ["acquire", "a"]],
    ids=" ".join,
)
def test_output_that_cannot_be_written_exits_74(
    shell: Shell, words: list[str], unbuffered: str
) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "leaselock", *words],
            env=shell.env | {"PYTHONUNBUFFERED": unbuffered},
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 74, done.stderr
    last = "leaselock: cannot write the output: No space left on device"
    assert done.stderr.splitlines()[-1] == last
    assert "Traceback" not in done.stderr
    assert shell.run("ls").stdout == ""


def test_internal_error_prints_a_traceback_only_with_verbose(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for verbose in (False, True):
        options = Options(verbose=verbose)
        assert report(KeyError("a bug"), options) == 70
        shown = capsys.readouterr().err
        assert "leaselock: KeyError: 'a bug' (an error inside leaselock" in shown
        assert ("Traceback" in shown or "\nKeyError" in shown) is verbose


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(shell: Shell, command: str) -> None:
    done = shell.run(command, "--help")
    assert done.returncode == 0
    assert done.stdout.startswith(f"usage: leaselock {command}")


def test_help_lists_every_command_and_exit_code(shell: Shell) -> None:
    text = shell.run("--help").stdout
    assert all(f"\n  {command} " in text for command in COMMANDS)
    no = text.partition("\n    1  no: ")[2].partition("\n   64")[0]
    unmet = {
        command
        for command in COMMANDS
        if "exit_codes.UNMET" in inspect.getsource(import_module(module_of(command)))
    }
    assert set(re.findall(r"\((\w+)\b", no)) == unmet
    codes = set(re.findall(r"\b\d{2,3}\b", text.partition("exit codes")[2]))
    assert codes >= set("64 69 70 75 76 77 78 79 126 127 130 143".split())


def test_common_options_before_or_after_the_command(shell: Shell) -> None:
    del shell.env["LEASELOCK_URL"]
    expected = f'{{"schema": 2, "backend": "{shell.url}", "locks": [], "complete": true}}\n'
    for words in (["--url", shell.url, "ls", "--json"], ["--json", "ls", "--url", shell.url]):
        assert shell.run(*words).stdout == expected


def test_long_options_are_not_abbreviated(shell: Shell) -> None:
    assert shell.run("run", "--nonb", "a", "true").returncode == 64


def test_default_file_is_in_the_state_directory(shell: Shell) -> None:
    del shell.env["LEASELOCK_URL"]
    env = {"XDG_STATE_HOME": str(shell.folder)}
    assert shell.run("run", "a", "true", env=env).returncode == 0
    assert (shell.folder / "leaselock" / "locks.db").exists()
    # As a missing secret leaves it: the file is never used for it.
    assert shell.run("run", "a", "true", env=env | {"LEASELOCK_URL": ""}).returncode == 78


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5), ("10s", 10), ("5m", 300), ("1h30m", 5400), ("2.5", 2.5), ("1d", 86400),
        ("0", 0), ("1.5h", 5400), (".5", 0.5), ("1m30s500ms", 90.5),
        ("1 h", 3600), (" 10s ", 10), ("1h  5m 3s", 3903), (" 7 ", 7),
    ],
)  # fmt: skip
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "soon", "-1", "1 0s", "10sec", "s", "1e3", "inf", "nan", "1_000", "5m!", "0x10"]
)
def test_parse_duration_rejects(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0ms"), (-1, "0ms"), (0.85, "850ms"), (0.9999, "1.0s"), (12.34, "12.3s"),
        (59.99, "0m59s"), (245, "4m05s"), (12000, "3h20m"), (200000, "2d07h"),
        (float("inf"), "11574074074d01h"),
    ],
)  # fmt: skip
def test_format_duration(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_escape() -> None:
    assert escape("a\x1b[2Jb\n\x9b\u202e\udc80") == r"a\x1b[2Jb\n\x9b\u202e\udc80"
    assert escape("caf\u00e9 \u6f22") == "caf\u00e9 \u6f22"


def test_main_returns_the_code(capsys: pytest.CaptureFixture[str]) -> None:
    from leaselock._cli import main

    assert main(["version"]) == 0
    assert capsys.readouterr().out == f"leaselock {leaselock.__version__}\n"
