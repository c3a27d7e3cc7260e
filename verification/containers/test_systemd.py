"""The units of the examples run in real instances of systemd, one for each host of a fleet."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from testkit.servers.process import eventually
from testkit.servers.redis import Redis
from testkit.servers.systemd import Systemd

import leaselock

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.nightly

EXAMPLES = Path(__file__).parents[2] / "examples"
PASSWORD = "password-of-the-store"
# The timer of the example, which is not waited for until two in the morning.
SOON = "[Timer]\nOnCalendar=\nOnActiveSec=0\nRandomizedDelaySec=0\nAccuracySec=1ms\n"


@pytest.fixture
def redis() -> Iterator[Redis]:
    with Redis(password=PASSWORD) as server:
        yield server


def host(stack: ExitStack, redis: Redis, name: str, record: Path, then: str = "exit 0") -> Systemd:
    """Start a host of the fleet. What its services write is in *record*; *then* ends the report."""
    units = {
        path.name: path.read_text("utf-8")
        for path in (
            EXAMPLES / "deploy/report.service",
            EXAMPLES / "deploy/report.timer",
            EXAMPLES / "scheduler.service",
        )
    }
    units["soon.timer"] = units["report.timer"] + SOON + "Unit=report.service\n"
    for unit in ("report.service", "scheduler.service"):
        # ProtectHome hides /run/user, where a user's instance has its credentials.
        assert "ProtectHome=yes" in units[unit]
        units[unit] = units[unit].replace("ProtectHome=yes", "ProtectHome=no")
        units[unit] += f"\n[Service]\nStandardOutput=append:{record}\nStandardError=inherit\n"
    line = f'#!/bin/sh\necho "ran: {name}, $(env | grep -c {PASSWORD}), $(id -u)"\n'
    programs = {"report.sh": f"{line}{then}\n", "scheduler": f"{line}exec sleep 600\n"}
    return stack.enter_context(Systemd(units, programs, {"url": f"{redis.url}\n"}))


def runs(record: Path) -> list[str]:
    """The hosts that ran the program, in order."""
    text = record.read_text() if record.exists() else ""
    found = [line.removeprefix("ran: ").split(", ") for line in text.splitlines() if "ran:" in line]
    for _, passwords, user in found:
        # No variable has the password, and the user is one that systemd made up.
        assert (passwords, int(user) >= 61184) == ("0", True)
    return [name for name, _, _ in found]


def test_the_timer_reports_once_in_the_fleet(redis: Redis, tmp_path: Path) -> None:
    record = tmp_path / "record"
    with ExitStack() as stack:
        hosts = [host(stack, redis, name, record) for name in ("one", "two", "three")]
        for each in hosts:
            started = each("start", "soon.timer")
            assert started.returncode == 0, started.stderr
        wanted = ("ActiveState", "Result", "ExecMainExitTimestampMonotonic")

        def done(each: Systemd) -> bool:
            state = each.show("report.service", *wanted)
            ended = state["ExecMainExitTimestampMonotonic"] not in ("", "0")
            return ended and state["ActiveState"] in ("inactive", "failed")

        eventually(lambda: all(done(each) for each in hosts))
        results = [each.show("report.service", "Result")["Result"] for each in hosts]
        assert results == ["success"] * 3, record.read_text()
        assert len(runs(record)) == 1
        # The timer of the example itself waits for the night.
        assert hosts[0]("start", "report.timer").returncode == 0
        calendar = hosts[0].show("report.timer", "TimersCalendar", "ActiveState")
        assert (calendar["ActiveState"], "02:00:00" in calendar["TimersCalendar"]) == (
            "active",
            True,
        )


def test_the_scheduler_runs_on_one_host_and_moves_to_the_other(
    redis: Redis, tmp_path: Path
) -> None:
    record = tmp_path / "record"
    with ExitStack() as stack:
        hosts = {name: host(stack, redis, name, record) for name in ("one", "two")}
        for each in hosts.values():
            assert each("start", "scheduler.service").returncode == 0
        eventually(lambda: runs(record))
        with leaselock.Client(redis.url) as client:
            eventually(lambda: len(client.lock("scheduler").waiters()) == 1)
        (first,) = runs(record)
        shown = hosts[first].show("scheduler.service", "Environment", "ExecStart", "ActiveState")
        assert shown["ActiveState"] == "active"
        assert "LEASELOCK_URL_FILE=" in shown["Environment"]
        assert PASSWORD not in str(shown)
        assert hosts[first]("stop", "scheduler.service").returncode == 0
        eventually(lambda: len(runs(record)) == 2)
        assert sorted(runs(record)) == ["one", "two"]
        # SIGTERM ended leaselock, which ended the program and released the leadership. The unit has
        # not failed: leaselock has died of the signal, as the program itself would have.
        state = hosts[first].show("scheduler.service", "ActiveState", "Result", "ExecMainStatus")
        assert state == {"ActiveState": "inactive", "Result": "success", "ExecMainStatus": "15"}


def test_a_job_that_is_stopped_has_not_failed(redis: Redis, tmp_path: Path) -> None:
    record = tmp_path / "record"
    with ExitStack() as stack:
        one = host(stack, redis, "one", record, then="exec sleep 600")
        assert one("start", "--no-block", "report.service").returncode == 0
        eventually(lambda: runs(record))
        assert one("stop", "report.service").returncode == 0
        state = one.show("report.service", "ActiveState", "Result")
        assert state == {"ActiveState": "inactive", "Result": "success"}
