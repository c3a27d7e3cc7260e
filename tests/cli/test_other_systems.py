"""What other systems lack, imitated here: `os.waitid` (macOS before Python 3.13), and signals."""

from __future__ import annotations

import signal
import subprocess
import sys

from tests.cli.processes import Shell, ended, gone, said, stopped, until

from leaselock._cli.commands import COMMANDS, module_of

WAITID = ("waitid", "P_PID", "P_ALL", "WEXITED", "WSTOPPED", "WNOWAIT", "CLD_STOPPED")
WITHOUT_WAITID = (
    *(sys.executable, "-c"),
    f"import os\nfor name in {WAITID}: delattr(os, name)\n"
    "from leaselock._cli import script\nraise SystemExit(script())",
)
# A fault of leaselock itself while the command runs.
FAULT = (
    *(sys.executable, "-c"),
    "from leaselock._cli import child, script\n"
    "def poll(self):\n    if os.path.exists(os.environ['GO']): raise RuntimeError('a fault')\n"
    "    return False, 0\n"
    "import os\nchild.Child.poll = poll\nraise SystemExit(script())",
)
ON_WINDOWS = ("SIGINT", "SIGTERM", "SIGABRT", "SIGFPE", "SIGILL", "SIGSEGV")
IMPORTS = """
import signal, sys
for name in [name for name in dir(signal) if name.startswith("SIG") and name[3] != "_"]:
    if name not in {kept}:
        delattr(signal, name)
for module in {modules}:
    __import__(module)
"""


def test_a_command_ends_with_its_code(shell: Shell) -> None:
    shell.leaselock = WITHOUT_WAITID
    for script, code in (("exit 7", 7), ("kill -9 $$", -9)):
        done = shell.process("run", "a", "--", "sh", "-c", script)
        assert (done.returncode, done.stderr) == (code, "")
    assert shell.holder("a") is None


def test_a_command_is_stopped_continued_and_ended_under_its_lock(shell: Shell) -> None:
    shell.leaselock = WITHOUT_WAITID
    job = shell.job("a")
    job.wrapper.send_signal(signal.SIGTSTP)
    until(lambda: stopped(job.pid))
    assert shell.holder("a") is not None
    job.wrapper.send_signal(signal.SIGCONT)
    until(lambda: not stopped(job.pid) and not stopped(job.wrapper.pid))
    job.wrapper.terminate()
    assert ended(job.wrapper) == -signal.SIGTERM
    assert gone(job.pid)


def test_a_lost_lease_ends_the_command(shell: Shell) -> None:
    shell.leaselock = WITHOUT_WAITID
    job = shell.job("a", trap="'' TERM", script="while :; do sleep 0.02; done")
    holder = shell.holder("a")
    assert holder is not None
    assert shell.run("break", "a", "--token", str(holder.token), "-m", "test").returncode == 0
    assert ended(job.wrapper) == 76
    assert gone(job.pid)


def test_no_command_runs_on_after_a_fault_of_leaselock(shell: Shell) -> None:
    go = shell.folder / "go"
    shell.env["GO"] = str(go)
    shell.leaselock = FAULT
    job = shell.job("a", trap="'' TERM", script="while :; do sleep 0.02; done")
    go.touch()
    job.wrapper.send_signal(signal.SIGUSR1)  # wakes the wrapper
    code, errors = said(job.wrapper)
    assert (code, "a fault" in errors) == (70, True)
    assert gone(job.pid)
    assert shell.holder("a") is None


def test_modules_are_imported_where_signals_are_missing() -> None:
    missing = {"top"}  # its screen needs textual, and is tested where that is
    modules = [module_of(command) for command in COMMANDS if command not in missing]
    program = IMPORTS.format(kept=ON_WINDOWS, modules=modules)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
