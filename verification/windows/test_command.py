"""`leaselock` as a command of Windows: what it runs, how that ends, and what is left."""

from __future__ import annotations

import sys

assert sys.platform == "win32"

import json
import os
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest
from tests.cli.processes import LEASELOCK, said
from verification.windows.processes import press_ctrl_c, wait_until

from leaselock._windows_process import GONE, identity

if TYPE_CHECKING:
    from pathlib import Path

    from verification.windows.processes import Shell

BATCH = '@echo off\nsetlocal\necho "%~1" "%~2" %3>"{out}"\nexit /b 7\n'
NAME = "Übung 日本 'a b'"
AS_IT_IS = "import sys; sys.stdout.buffer.write('|'.join(sys.argv[1:]).encode())"
# A process below the command. It writes down both.
INNER = """import os, pathlib, sys, time
new = pathlib.Path(sys.argv[1] + ".new")
new.write_text(f"{os.getpid()} {sys.argv[2]}")
new.replace(sys.argv[1])
time.sleep(600)"""
FAMILY = f"""import os, subprocess, sys
subprocess.run([sys.executable, "-c", {INNER!r}, sys.argv[1], str(os.getpid())],
stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)"""
# STATUS_CONTROL_C_EXIT: what ends a process at Ctrl-C.
CTRL_C_EXIT = 0xC000013A


@pytest.mark.parametrize("code", [0, 1, 7, 255, 256, 100_000, 2**31, 0xC0000005, 2**32 - 1])
def test_the_exit_code_of_the_command(shell: Shell, code: int) -> None:
    signed = code - 2**32 if code >= 2**31 else code
    program = f"import os; os._exit({signed})"
    done = shell.process("run", "a", "--", *shell.python(program))
    assert (done.returncode, done.stderr) == (code, "")
    told = shell.process("run", "--json", "a", "--", *shell.python(program))
    assert json.loads(told.stderr)["exit_code"] == code


def test_a_command_that_is_not_there(shell: Shell) -> None:
    done = shell.process("run", "a", "--", "no such command")
    assert (done.returncode, done.stderr) == (
        127,
        "leaselock: cannot run 'no such command': not found\n",
    )
    assert shell.holder("a") is None


def test_a_file_that_is_no_program(shell: Shell) -> None:
    file = shell.folder / "text.exe"
    file.write_text("no program")
    done = shell.process("run", "a", "--", str(file))
    assert (done.returncode, done.stderr.startswith("leaselock: cannot run ")) == (126, True)
    assert shell.holder("a") is None


@pytest.mark.parametrize("kind", ["bat", "cmd", "CMD"])
def test_a_batch_file(shell: Shell, kind: str) -> None:
    out = shell.folder / "out.txt"
    (shell.folder / f"my job.{kind}").write_text(BATCH.format(out=out))
    shell.env["PATH"] = f"{shell.folder};{shell.env['PATH']}"
    words = ("one and two", "a&b", "c|d^e")
    for command in ("my job", str(shell.folder / f"my job.{kind}")):
        done = shell.process("run", "a", "--", command, *words)
        assert (done.returncode, done.stderr) == (7, "")
        assert out.read_text().rstrip() == '"one and two" "a&b" "c|d^e"'
        out.unlink()


@pytest.mark.parametrize("word", ['say "a"', "100 %PATH%", "two\nlines"])
def test_what_a_batch_file_would_get_changed_is_refused(shell: Shell, word: str) -> None:
    (shell.folder / "job.bat").write_text("echo %1\n")
    done = shell.process("run", "a", "--", str(shell.folder / "job.bat"), word)
    assert (done.returncode, "cannot be passed to a batch file" in done.stderr) == (126, True)
    assert shell.holder("a") is None


def test_a_word_of_a_batch_file_is_no_command(shell: Shell) -> None:
    created = shell.folder / "created"
    (shell.folder / "job.bat").write_text("@exit /b 0\n")
    words = (f"&echo.>{created}", f"x|echo.>{created}", f"x>{created}", "^", "a\\")
    done = shell.process("run", "a", "--", str(shell.folder / "job.bat"), *words)
    assert (done.returncode, created.exists()) == (0, False)


def test_a_command_of_the_shell(shell: Shell) -> None:
    done = shell.process("run", "-c", 'echo "a b" & exit 5', "a")
    assert (done.returncode, done.stdout.strip()) == (5, '"a b"')


def test_names_and_words_in_unicode(shell: Shell) -> None:
    folder = shell.folder / NAME.replace("'", "_")
    folder.mkdir()
    shell.env["LEASELOCK_URL"] = f"sqlite:///{folder.as_posix()}/sperren.db"
    words = ("ä b", "日本", "\\", 'q"q', "")
    done = shell.process("run", NAME, "--", *shell.python(AS_IT_IS, *words))
    assert (done.returncode, done.stdout) == (0, "|".join(words))
    holder = shell.start_job(NAME, "--label", "Prüfung")
    shown = shell.process("ls", "--json")
    assert json.loads(shown.stdout)["locks"][0]["name"] == NAME
    # The encoding of a pipe may lack a character: then it is escaped.
    for command in (["ls"], ["show", NAME]):
        ended = subprocess.run(
            [*LEASELOCK, *command],
            capture_output=True,
            check=False,
            env=shell.env | {"PYTHONUTF8": "0"},
        )
        assert (ended.returncode, ended.stderr, b"bung" in ended.stdout) == (0, b"", True)
    holder.kill()


def test_the_command_and_all_that_it_started_end_with_the_wrapper(shell: Shell) -> None:
    file = shell.folder / "inner"
    wrapper = shell.start("run", "a", "--", *shell.python(FAMILY, str(file)))
    wait_until(file.exists)
    inner, outer = pids_in(file)
    waiter = shell.start_waiter("a")
    assert not gone(inner)
    assert not gone(outer)
    wrapper.kill()
    assert said(waiter)[0] == 0
    wait_until(lambda: gone(inner) and gone(outer))


def test_what_the_command_left_behind_goes_on(shell: Shell) -> None:
    file = shell.folder / "inner"
    program = FAMILY.replace("subprocess.run", "subprocess.Popen")
    assert shell.process("run", "a", "--", *shell.python(program, str(file))).returncode == 0
    wait_until(file.exists)
    inner, _ = pids_in(file)
    assert not gone(inner)
    os.kill(inner, signal.SIGTERM)  # TerminateProcess
    wait_until(lambda: gone(inner))


def test_ctrl_c_while_waiting_leaves_no_claim(shell: Shell) -> None:
    holder = shell.start_job("a")
    process = shell.on_console("run", "a", "--", *shell.python("pass"))
    wait_until(lambda: shell.waiting("a") == 1)
    code, errors, _ = press_ctrl_c(process)
    assert (code, errors) == (130, "")
    assert shell.waiting("a") == 0
    holder.kill()
    assert shell.process("run", "-n", "a", "--", *shell.python("pass")).returncode == 0


def test_ctrl_c_while_it_runs_ends_the_command_and_frees_the_lock(shell: Shell) -> None:
    """Under Wine, which has no Ctrl-Break, by the end of the job."""
    file = shell.folder / "inner"
    process = shell.on_console("run", "a", "--", *shell.python(FAMILY, str(file)))
    wait_until(file.exists)
    inner, outer = pids_in(file)
    code, errors, _ = press_ctrl_c(process)
    assert code in (137, CTRL_C_EXIT & 0x7FFFFFFF), errors
    assert shell.holder("a") is None
    assert gone(outer)
    wait_until(lambda: gone(inner))


def test_without_a_console_the_command_is_ended_at_once(shell: Shell) -> None:
    file = shell.folder / "job"
    done = shell.process("run", "--max-hold", "0.2s", "a", "--", *shell.sleeper(file))
    assert (done.returncode, "was held for" in done.stderr) == (124, True)
    assert "there is no console to send Ctrl-Break by" in done.stderr
    assert shell.holder("a") is None


def test_a_broken_lock_ends_the_command(shell: Shell) -> None:
    wrapper = shell.start_job("a", "--kill-after", "1s")
    assert shell.process("break", "a", "--yes", "-m", "a test").returncode == 0
    code, errors = said(wrapper)
    assert (code, "is lost; ending the command" in errors) == (76, True)


def test_on_lost_kill(shell: Shell) -> None:
    wrapper = shell.start_job("a", "--on-lost", "KILL")
    assert shell.process("break", "a", "--yes", "-m", "a test").returncode == 0
    assert said(wrapper)[0] == 76


def test_the_locks_of_a_command_inside(shell: Shell) -> None:
    """The inner command knows the lock, and waits for it in vain."""
    inner = [*LEASELOCK, "run", "a", "--", "cmd", "/c", "echo never"]
    done = shell.process("run", "a", "--", *inner)
    assert (done.returncode, done.stdout) == (64, "")
    inner = [*LEASELOCK, "run", "b", "--", "cmd", "/c", "echo %LEASELOCK_NAME%"]
    done = shell.process("run", "a", "--", *inner)
    assert (done.returncode, done.stdout.split()) == (0, ["b"])


def test_every_command(shell: Shell) -> None:
    token = shell.process("acquire", "--lease", "10m", "a").stdout.strip()
    wrapper = shell.start_job("b", "--label", "work")
    waiter = shell.start_waiter("b")
    answers: list[tuple[int, list[str]]] = [
        (0, ["check", "a", token]),
        (0, ["extend", "--lease", "20m", "a", token]),
        (0, ["ls"]),
        (0, ["show", "b"]),
        (0, ["wait", "--until", "held", "b"]),
        (0, ["deadlocks"]),
        (0, ["release", "a", token]),
        (0, ["gc"]),
        (0, ["version"]),
        (0, ["doctor"]),
        (0, ["break", "--yes", "-m", "a test", "b"]),
        (0, ["wait", "b"]),
        (1, ["leader", "c"]),
        (0, ["lead", "c", "--", "cmd", "/c", "exit 0"]),
    ]
    for code, words in answers:
        done = shell.process(*words)
        assert (done.returncode, "Traceback" in done.stderr) == (code, False), (words, done)
    assert (said(wrapper)[0], said(waiter)[0]) == (76, 0)


def test_output_to_nul_is_no_terminal(shell: Shell) -> None:
    """Python says that it is one."""
    wrapper = shell.start_job("a")
    with open(os.devnull) as nothing:
        done = subprocess.run(
            [*LEASELOCK, "break", "a", "-m", "a test"],
            stdin=nothing, capture_output=True, text=True, check=False, env=shell.env,
        )  # fmt: skip
    assert (done.returncode, "--yes" in done.stderr) == (64, True)
    assert wrapper.poll() is None


def pids_in(file: Path) -> tuple[int, int]:
    """Return the processes that FAMILY wrote down: the inner one, and its parent."""
    inner, outer = map(int, file.read_text().split())
    return inner, outer


def gone(pid: int) -> bool:
    """Return whether a process has ended."""
    return identity(pid) == GONE
