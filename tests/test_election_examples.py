"""The examples of the page on leader election, each started as the page says.

What the examples name and a test machine does not have (a registry, a database server, a script) is
replaced: by this interpreter, an embedded store, and a script that records its runs.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from testkit.servers.process import free_port
from tests.cli.processes import LEASELOCK, ended, until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.heavy
EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
# What the replaced program does: it records its process and its term, and waits to be ended.
PROGRAM = 'echo "$$ $LEASELOCK_TOKEN" >> "$RECORD"; exec sleep 60'


class Fleet:
    """Processes of several hosts that share a store and a record."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.record = folder / "record"
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("LEASELOCK")}
        self.env |= {"LEASELOCK_URL": f"sqlite:///{folder}/locks.db", "RECORD": str(self.record)}
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, *command: str, **env: str) -> subprocess.Popen[bytes]:
        """Start a process of its own session, as on a host of its own."""
        process = subprocess.Popen(command, env=self.env | env, start_new_session=True)
        self.started.append(process)
        return process

    def lines(self) -> list[list[str]]:
        """The record: a process and its term in each line."""
        text = self.record.read_text() if self.record.exists() else ""
        return [line.split() for line in text.splitlines()]

    def terms(self) -> list[int]:
        """The terms in the order in which they began."""
        return list(dict.fromkeys(int(term) for _, term in self.lines()))

    def end(self) -> None:
        """Leave nothing behind."""
        for process in self.started:
            if process.poll() is None:
                process.terminate()
        for process in self.started:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(tmp_path)
    yield made
    made.end()


def leads_in_turn(fleet: Fleet, command: list[str], hosts: int) -> None:
    """Start the command on that many hosts: one works; terminated, it hands over to another."""
    replicas = [fleet.start(*command) for _ in range(hosts)]
    until(lambda: len(fleet.terms()) == 1)
    for count in range(2, hosts + 1):
        (leader,) = (r for r in replicas if r.poll() is None and leads(fleet, r))
        leader.send_signal(signal.SIGTERM)
        assert leader.wait(60) == -signal.SIGTERM  # it ends by the signal, as its program would
        until(lambda count=count: len(fleet.terms()) == count)  # type: ignore[misc]
    assert fleet.terms() == sorted(fleet.terms())


def leads(fleet: Fleet, process: subprocess.Popen[bytes]) -> bool:
    """Whether the process of the last term is a child of *process*."""
    pid = fleet.lines()[-1][0]
    status = Path(f"/proc/{pid}/status").read_text()
    return f"PPid:\t{process.pid}\n" in status


def replaced(words: list[str]) -> list[str]:
    """The command line of an example, with our interpreter and a program that records its runs."""
    cut = words.index("--")
    assert Path(words[0]).name == "leaselock"
    return [*LEASELOCK, *words[1:cut], "--", "sh", "-c", PROGRAM]


def test_the_deployment_runs_on_one_of_three_replicas(fleet: Fleet) -> None:
    yaml = pytest.importorskip("yaml")
    manifest: Any = yaml.safe_load((EXAMPLES / "kubernetes.yaml").read_text("utf-8"))
    assert (manifest["kind"], manifest["apiVersion"]) == ("Deployment", "apps/v1")
    spec = manifest["spec"]
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"].items() <= labels.items()
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    words = [*container["command"], *container["args"]]
    # leaselock must be able to end the program itself before the kubelet kills both.
    assert (
        int(words[words.index("--kill-after") + 1].rstrip("s"))
        < (pod["terminationGracePeriodSeconds"])
    )
    assert [variable["name"] for variable in container["env"]] == ["LEASELOCK_URL_FILE"]
    leads_in_turn(fleet, replaced(words), spec["replicas"])


def test_the_unit_runs_on_one_of_two_hosts(fleet: Fleet) -> None:
    text = (EXAMPLES / "scheduler.service").read_text("utf-8")
    (line,) = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
    leads_in_turn(fleet, replaced(line.split()), 2)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no server: systemd")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    text = (EXAMPLES / "scheduler.service").read_text("utf-8")
    # systemd checks that the program exists.
    program = shutil.which("true")
    unit = tmp_path / "scheduler.service"
    unit.write_text(re.sub(r"(?m)^ExecStart=\S+", f"ExecStart={program}", text))
    command = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(unit)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_ten_hosts_with_the_crontab_make_one_report(fleet: Fleet) -> None:
    text = (EXAMPLES / "deploy" / "crontab").read_text("utf-8")
    (job,) = (line for line in text.splitlines() if "--once-per" in line)
    words = job.split()[5:]
    cut = words.index("--")
    script = 'echo "$$ $LEASELOCK_TOKEN" >> "$RECORD"'
    command = [*LEASELOCK, *words[1:cut], "--", "sh", "-c", script]
    hosts = [fleet.start(*command) for _ in range(10)]
    assert [host.wait(120) for host in hosts] == [0] * 10
    assert len(fleet.lines()) == 1


def test_one_of_four_workers_schedules(fleet: Fleet) -> None:
    pytest.importorskip("fastapi")
    pytest.importorskip("uvicorn")
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "--workers", "4", "--port", str(port)]
    command += ["--app-dir", str(EXAMPLES), "--log-level", "warning", "fastapi_scheduler:app"]
    server = fleet.start(*command, JOBS_FILE=str(fleet.record))

    def leader() -> Any:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/leader", timeout=30) as answer:
                return json.load(answer)["leader"]
        except (urllib.error.URLError, OSError):
            return None  # it starts, or the worker that had the request was ended

    until(leader)
    first = leader()
    until(lambda: len(fleet.terms()) == 1)
    os.kill(first["pid"], signal.SIGTERM)
    until(lambda: len(fleet.terms()) == 2)
    until(lambda: (leader() or first)["pid"] != first["pid"])
    by_term = {term: {pid for pid, t in fleet.lines() if t == term} for _, term in fleet.lines()}
    assert all(len(pids) == 1 for pids in by_term.values())
    written = [int(term) for _, term in fleet.lines()]
    assert written == sorted(written), "an earlier leader wrote after a later one"
    server.terminate()
    assert ended(server) in (0, -signal.SIGTERM)  # type: ignore[arg-type]
