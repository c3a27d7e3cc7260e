"""The deployment examples: their commands run, and their validators accept them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from testkit.servers.process import eventually, program
from testkit.servers.redis import Redis

import leaselock

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.heavy

FOLDER = Path(__file__).parents[1] / "examples" / "deploy"
SOURCE = Path(leaselock.__file__).parents[1]
LEASELOCK = [sys.executable, "-m", "leaselock"]


@pytest.fixture(scope="module")
def redis() -> Iterator[Redis]:
    with Redis() as server:
        yield server


def start(words: list[str], url: str, output: Path) -> subprocess.Popen[bytes]:
    """Start a command of an example, with the programs of this machine."""
    place = {"leaselock": LEASELOCK, "python": [sys.executable], "./report.sh": ["true"]}
    command = [each for word in words for each in place.get(word, [word])]
    env = {**os.environ, "LEASELOCK_URL": url, "PYTHONPATH": str(SOURCE)}
    with open(output, "ab") as file:
        return subprocess.Popen(command, cwd=FOLDER, env=env, stdout=file, stderr=file)


def test_compose_runs_one_of_two_workers(redis: Redis, tmp_path: Path) -> None:
    services = yaml.safe_load((FOLDER / "compose.yaml").read_text("utf-8"))["services"]
    worker: dict[str, Any] = services["worker"]
    assert worker["deploy"]["replicas"] == 2
    assert worker["depends_on"].keys() == services.keys() - {"worker"}
    output = tmp_path / "output"
    replicas = [start(worker["command"], redis.url, output) for _ in range(2)]
    try:
        eventually(lambda: output.read_text().count("works") == 1)
        with leaselock.Client(redis.url) as client:
            eventually(lambda: client.lock("worker").waiters())
            holder = client.lock("worker").holder()
        assert holder is not None
        assert output.read_text().count("works") == 1
        (leader,) = (each for each in replicas if each.pid == holder.pid)
        leader.send_signal(signal.SIGTERM)
        leader.wait(60)
        eventually(lambda: output.read_text().count("works") == 2)
    finally:
        for each in replicas:
            each.terminate()
            each.wait(60)


def test_kubernetes_job_runs_its_command(redis: Redis, tmp_path: Path) -> None:
    job = yaml.safe_load((FOLDER / "cronjob.yaml").read_text("utf-8"))
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "CronJob")
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert pod["restartPolicy"] in ("Never", "OnFailure")  # what a Job may have
    (container,) = pod["containers"]
    tokens = []
    with leaselock.Client(redis.url) as client:
        for _ in range(2):
            assert start(container["command"], redis.url, tmp_path / "output").wait(60) == 0
            holder = client.lock("nightly").holder()
            assert holder is not None
            assert holder.cooling_down
            tokens.append(holder.token)
    assert tokens[0] == tokens[1]  # the second run of the period did nothing


def test_kubectl_reads_the_manifest() -> None:
    # It reads and writes the manifest without a cluster.
    ran = subprocess.run(
        [program("kubectl"), *"patch --local --type=merge -p {} -o name -f cronjob.yaml".split()],
        cwd=FOLDER,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout.strip()) == (0, "cronjob.batch/nightly"), ran.stderr


def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    for unit in ("report.service", "report.timer"):
        text = (FOLDER / unit).read_text("utf-8")
        # The programs that are not installed here.
        for missing in ("/usr/local/bin/leaselock", "/usr/local/bin/report.sh"):
            text = text.replace(missing, "/bin/true")
        (tmp_path / unit).write_text(text)
    ran = subprocess.run(
        [program("systemd-analyze"), "verify", "--man=no", str(tmp_path / "report.timer")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")


def test_commands_of_cron_and_systemd_are_understood(redis: Redis, tmp_path: Path) -> None:
    (line,) = (
        line for line in (FOLDER / "crontab").read_text("utf-8").splitlines() if "run" in line
    )
    (unit,) = (
        line.removeprefix("ExecStart=/usr/local/bin/")
        for line in (FOLDER / "report.service").read_text("utf-8").splitlines()
        if line.startswith("ExecStart=")
    )
    for command in (line.split(maxsplit=5)[5], unit):
        words = command.replace('"', "").split()
        words = [*words[: words.index("--") + 1], "true"]
        assert start(words, redis.url, tmp_path / "output").wait(60) == 0
