"""The command line from day to day: JSON, words, widths, and help."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from testkit.servers.process import eventually
from tests.cli.processes import called
from tests.people import COMMAND, LIMIT, environment
from tests.people import command as command_of_its_own

import leaselock

SCHEMA = 2


def command(*words: str, url: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run ``leaselock`` to its end, in this process if it starts no other."""
    if "run" in words:
        return command_of_its_own(*words, url=url)
    return called(*words, env=environment({"LEASELOCK_URL": url}))


def on_a_terminal(
    *words: str,
    url: str,
    columns: int = 80,
    env: dict[str, str] | None = None,
    until: str | None = None,
) -> tuple[int, str]:
    """Run the command on a terminal of *columns* columns; its end, and what it wrote there. It is
    ended by SIGTERM as soon as it has written *until*.
    """
    pid, terminal = pty.fork()
    if pid == 0:
        variables = {"LEASELOCK_URL": url, "TERM": "xterm", "COLUMNS": str(columns), **(env or {})}
        os.execve(sys.executable, [*COMMAND, *words], environment(variables))
    written = b""
    while True:
        try:
            data = os.read(terminal, 65536)
        except OSError:
            break
        if not data:
            break
        written += data
        if until is not None and until in written.decode(errors="replace"):
            os.kill(pid, signal.SIGTERM)
            until = None
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    return os.waitstatus_to_exitcode(status), written.decode()


def answer(ended: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The one JSON document that was printed; by `run` on stderr, for stdout is its command's."""
    line = (ended.stdout or ended.stderr).splitlines()[-1]
    assert ended.stdout in ("", f"{line}\n")
    document: dict[str, Any] = json.loads(line)
    assert document["schema"] == SCHEMA
    return document


COMMANDS = [
    ("version",),
    ("ls",),
    ("show", "a"),
    ("check", "a", "--token", "1"),
    ("acquire", "-n", "a"),
    ("acquire", "free"),
    ("release", "a", "--token", "1"),
    ("extend", "a", "--token", "1", "--ttl", "1m"),
    ("wait", "-w", "0", "a"),
    ("break", "free", "--yes", "-m", "x"),
    ("run", "-n", "a", "--", "true"),
    ("run", "free", "--", "true"),
    ("doctor",),
    ("init",),
    ("gc",),
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_answers_in_json(file: str, words: tuple[str, ...]) -> None:
    with leaselock.Client(file) as client, client.lock("a"):
        ended = command("--json", *words, url=file)
    document = answer(ended)
    if words[0] != "version":
        assert document["backend"] == file
    # Whatever is not 0 says why, in words and by its number.
    if ended.returncode not in (0, 1):
        assert document["exit_code"] == ended.returncode
        assert document["error"]
        assert document["message"]


@pytest.mark.parametrize(
    ("words", "url", "code"),
    [
        (("ls",), "nonsense://", 78),
        (("ls",), "redis://127.0.0.1:1/0", 69),
        (("show", ""), None, 64),
        (("show",), None, 64),
        (("run", "a"), None, 64),
        (("check", "a", "--token", "x"), None, 64),
    ],
)
def test_errors_are_json(file: str, words: tuple[str, ...], url: str | None, code: int) -> None:
    ended = command("--json", *words, url=url or file)
    document = answer(ended)
    assert (document["exit_code"], ended.returncode) == (code, code)
    assert document["message"]


def test_busy_json_names_the_holder(file: str) -> None:
    with leaselock.Client(file, label="billing") as client, client.lock("a") as lease:
        document = answer(command("--json", "run", "-n", "a", "--", "true", url=file))
    assert document["error"] == "busy"
    assert document["holder"]["token"] == lease.token
    assert document["holder"]["label"] == "billing"


def test_verbose_run_says_what_happened(file: str) -> None:
    with leaselock.Client(file, label="billing") as client, ThreadPoolExecutor(1) as pool:
        held = client.lock("a").acquire()
        assert held is not None
        words = ("-v", "run", "a", "--", "true")
        ended = pool.submit(command_of_its_own, *words, url=file)
        eventually(lambda: client.lock("a").waiters())
        held.release()
        said = ended.result().stderr
    for words_of_it in ("waited", "held before by", "billing", "renewed", "released", "token"):
        assert words_of_it in said, said


def test_detached_leases_are_shown_as_such(file: str) -> None:
    token = command("acquire", "--ttl", "1h", "a", url=file).stdout.strip()
    assert "detached" in command("ls", url=file).stdout
    assert "detached" in command("show", "a", url=file).stdout
    document = answer(command("--json", "show", "a", url=file))
    assert document["lock"]["holder"]["detached"] is True
    assert command("release", "a", token, url=file).returncode == 0
    with leaselock.Client(file) as client, client.lock("a"):
        assert "detached" not in command("ls", url=file).stdout


def test_waiting_line_shows_the_holder_whole(file: str) -> None:
    """What does not fit is cut at its end: the label, not the place of the holder."""
    name = "order:" + "n" * 40
    with leaselock.Client(file, label="x" * 300) as client, client.lock(name):
        words = ("run", name, "--", "true")
        code, written = on_a_terminal(*words, url=file, until=str(os.getpid()))
    assert code == -signal.SIGTERM
    lines = [line for line in re.split(r"\r\x1b\[K", written) if "leaselock: waiting" in line]
    assert lines
    assert all(str(os.getpid()) in line for line in lines), lines
    assert all(len(line.rstrip("\r\n")) < 80 for line in lines)


def test_empty_list_says_so_on_a_terminal(file: str) -> None:
    assert "no locks" in on_a_terminal("ls", url=file)[1]
    assert command("ls", url=file).stdout == ""


def test_list_is_sorted(file: str) -> None:
    with leaselock.Client(file) as client:
        for name in "bca":
            command("acquire", "--ttl", {"a": "1h", "b": "3h", "c": "2h"}[name], name, url=file)
        for key, names in {"name": "abc", "lease": "acb", "since": "bca"}.items():
            rows = command("ls", "--sort", key, url=file).stdout.splitlines()[1:]
            assert "".join(row[0] for row in rows) == names, key
        for name in "abc":
            client.break_lock(name)
    assert command("ls", "--sort", "nonsense", url=file).returncode == 64


def test_colours(file: str) -> None:
    """By https://no-color.org: on a terminal only, and not when NO_COLOR is anything but empty."""
    with leaselock.Client(file) as client, client.lock("a"):
        assert "\x1b[" in on_a_terminal("ls", url=file)[1]
        assert "\x1b[" in on_a_terminal("ls", url=file, env={"NO_COLOR": ""})[1]
        assert "\x1b[" not in on_a_terminal("ls", url=file, env={"NO_COLOR": "1"})[1]
        assert "\x1b[" not in on_a_terminal("ls", url=file, env={"TERM": "dumb"})[1]
        assert "\x1b[" not in on_a_terminal("--no-color", "ls", url=file)[1]
        assert "\x1b[" not in command("ls", url=file).stdout


def test_narrow_terminal_gets_a_narrow_list(file: str) -> None:
    client = leaselock.Client(file, label="a reason of some length")
    with client, client.lock("name" * 10):
        _, written = on_a_terminal("--no-color", "ls", url=file, columns=40)
    assert max(len(line) for line in written.splitlines()) <= 40, written
    assert "name" * 10 in written.replace("\r\n", "").replace(" ", "")


def test_label_is_cut_or_left_out_where_the_terminal_ends(file: str) -> None:
    with leaselock.Client(file, label="l" * 60) as client, client.lock("a"):
        for columns in (70, 90):
            _, written = on_a_terminal("--no-color", "ls", url=file, columns=columns)
            head, row = written.splitlines()
            assert head.startswith("NAME  HOLDER")
            assert len(row) <= columns
            assert ("llll..." in row) == ("LABEL" in head)


def test_watched_list_is_printed_again(file: str) -> None:
    process = subprocess.Popen(
        [*COMMAND, "ls", "--watch"],
        env=environment({"LEASELOCK_URL": file}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        with leaselock.Client(file) as client, client.lock("first"):
            while "first" not in (line := process.stdout.readline()):
                assert line, process.communicate()
        process.terminate()
        assert process.wait(LIMIT) == -signal.SIGTERM
    finally:
        process.kill()
        process.communicate()


def test_extend_that_would_shorten_says_so(file: str) -> None:
    token = command("acquire", "--ttl", "1h", "a", url=file).stdout.strip()
    ended = command("extend", "a", "--token", token, "--ttl", "1m", url=file)
    assert ended.returncode == 0, ended
    assert "longer" in ended.stderr
    assert "59m" in ended.stderr


def test_one_word_per_thing(file: str) -> None:
    with leaselock.Client(file, label="billing") as client, client.lock("a"):
        header = command("ls", url=file).stdout.splitlines()[0]
        shown = command("show", "a", url=file).stdout
    assert {"TOKEN", "LABEL", "LEASE"} <= set(header.split()), header
    assert "label: billing" in shown
    help_text = "".join(command(name, "--help").stdout for name in ("run", "break", "check"))
    for word in ("--fence", "--reason"):
        assert word not in help_text
    assert "--label" in help_text
    assert "--lease" in help_text


@pytest.mark.parametrize("text", ["1h 30m", " 10s", "1 h", "90 s", "1h  5m 3s"])
def test_durations_may_have_blanks(file: str, text: str) -> None:
    assert command("run", "--ttl", text, "a", "--", "true", url=file).returncode == 0


def test_help_is_a_command() -> None:
    assert command("help").stdout == command("--help").stdout
    assert command("help", "run").stdout == command("run", "--help").stdout
    assert "75" in command("help", "exit-codes").stdout
    assert command("help", "nonsense").returncode == 64


def test_capital_v_is_the_version() -> None:
    assert command("-V").stdout == command("--version").stdout
    assert command("-V").returncode == 0


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_printed(shell: str) -> None:
    ended = command("completion", shell)
    assert ended.returncode == 0, ended
    for word in ("run", "break", "url", "json"):
        assert word in ended.stdout


def test_completion_of_bash_completes(tmp_path: Path) -> None:
    file = tmp_path / "completion"
    file.write_text(command("completion", "bash").stdout)
    text = f"""
        source {file}
        complete -p leaselock
        COMP_WORDS=(leaselock do) COMP_CWORD=1 COMP_LINE='leaselock do' COMP_POINT=12
        $(complete -p leaselock | sed 's/.*-F \\([^ ]*\\).*/\\1/')
        echo "${{COMPREPLY[@]}}"
    """
    ended = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=False)
    assert "doctor" in ended.stdout, ended


def test_manual_page_is_printed() -> None:
    ended = command("help", "--man")
    assert ended.returncode == 0, ended
    assert ended.stdout.startswith(".TH LEASELOCK 1")
    for name in ("run", "break", "EXIT STATUS", "LEASELOCK_URL"):
        assert name in ended.stdout
    page = Path(__file__).parents[2] / "docs" / "reference" / "leaselock.1"
    assert page.read_text("utf-8") == ended.stdout, "make format writes it"


@pytest.mark.parametrize("name", ["release", "extend", "check"])
def test_token_may_follow_the_name(file: str, name: str) -> None:
    token = command("acquire", "--ttl", "1h", "a", url=file).stdout.strip()
    more = ("--ttl", "2h") if name == "extend" else ()
    assert command(name, "a", token, *more, url=file).returncode == 0
    assert command(name, "a", "1", *more, url=file).returncode == 79
    assert command(name, "a", *more, url=file).returncode == 64
