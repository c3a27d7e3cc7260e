"""acquire, release, extend, check, break, wait, ls, show."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

from holdfast.cli.words import duration, harmless, length

if TYPE_CHECKING:
    from tests.cli.conftest import Shell


def test_a_detached_lease_goes_round(shell: Shell) -> None:
    token = shell.run("acquire", "a", "--ttl", "1m", "--reason", "freeze").stdout.strip()
    assert shell.run("check", "a", "--token", token).returncode == 0
    assert shell.run("run", "-n", "a", "true").returncode == 75
    assert shell.run("extend", "a", "--token", token, "--ttl", "1h").returncode == 0
    lock = json.loads(shell.run("show", "--json", "a").stdout)["lock"]
    assert lock["holder"]["token"] == int(token)
    assert lock["holder"]["label"] == "freeze"
    assert 3500 < lock["holder"]["remaining"] <= 3600
    assert shell.run("release", "a", "--token", token).returncode == 0
    assert shell.run("check", "a", "--token", token).returncode == 79
    assert shell.run("release", "a", "--token", token).returncode == 79
    assert shell.run("extend", "a", "--token", token, "--ttl", "1m").returncode == 79


def test_a_detached_lease_ends_by_time(shell: Shell) -> None:
    shell.run("acquire", "a", "--ttl", "300ms")
    assert shell.run("run", "-w", "5s", "a", "true").returncode == 0


def test_acquire_says_who_is_in_the_way(shell: Shell) -> None:
    holder = shell.holding("a")
    busy = shell.run("acquire", "-n", "a")
    assert busy.returncode == 75
    assert str(holder.pid) in busy.stderr


def test_a_stranger_cannot_adopt_what_is_not_detached(shell: Shell) -> None:
    shell.holding("a")
    token = json.loads(shell.run("ls", "--json").stdout)["locks"][0]["holder"]["token"]
    assert shell.run("release", "a", "--token", str(token)).returncode == 79
    assert shell.run("check", "a", "--token", str(token)).returncode == 0


def test_break_needs_the_right_token_and_a_reason(shell: Shell) -> None:
    token = shell.run("acquire", "a").stdout.strip()
    assert shell.run("break", "a").returncode == 64
    assert shell.run("break", "a", "--yes").returncode == 64
    assert shell.run("break", "a", "--token", "1", "--reason", "x").returncode == 79
    done = shell.run("break", "a", "--token", token, "--reason", "its owner left")
    assert done.returncode == 0
    assert token in done.stderr
    again = shell.run("break", "a", "--yes", "--reason", "x")
    assert again.returncode == 0
    assert "is free" in again.stderr


def test_wait_until_free_and_until_held(shell: Shell) -> None:
    assert shell.run("wait", "a").returncode == 0
    assert shell.run("wait", "a", "--until", "held", "-w", "100ms").returncode == 75
    shell.holding("a")
    assert shell.run("wait", "a", "--until", "held").returncode == 0
    assert shell.run("wait", "a", "-w", "100ms").returncode == 75


def test_ls_shows_holders_and_waiters_in_order(shell: Shell) -> None:
    shell.holding("a", "--reason", "first")
    shell.start("run", "a", "--", "true")
    shell.until(lambda: '"waiters": [{' in shell.run("ls", "--json").stdout)
    document = json.loads(shell.run("ls", "--json").stdout)
    assert document["schema"] == 1
    (lock,) = document["locks"]
    assert set(lock) == {"name", "holder", "waiters"}
    assert abs(lock["holder"]["since"] - time.time()) < 60
    assert lock["holder"]["since_utc"].endswith("Z")
    text = shell.run("ls").stdout
    assert text.splitlines()[0].split() == [
        "NAME", "HOLDER", "SINCE", "TTL-LEFT", "FENCE", "WAITERS", "REASON",
    ]  # fmt: skip
    assert "first" in text
    assert "1. " in shell.run("show", "a").stdout
    assert shell.run("ls", "zzz*").stdout == ""


@pytest.mark.parametrize("name", ["'; DROP TABLE lock;--", "../..", "{a}", "a b", "\N{SNOWMAN}"])
def test_hostile_names_are_names(shell: Shell, name: str) -> None:
    assert shell.run("run", name, "true").returncode == 0
    token = shell.run("acquire", "--", name).stdout.strip()
    assert shell.run("run", "-n", name, "true").returncode == 75
    assert shell.run("release", name, "--token", token).returncode == 0


def test_a_waiting_command_says_for_whom_it_waits(shell: Shell) -> None:
    holder = shell.holding("a", job="sleep 1.6")
    done = shell.run("run", "a", "true")
    assert done.returncode == 0
    assert f":{holder.pid}/" in done.stderr
    assert "place 1 of 1" in done.stderr


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("500ms", 0.5), ("10s", 10), ("5m", 300), ("1h30m", 5400), ("2.5", 2.5), ("1d", 86400)],
)
def test_durations(text: str, seconds: float) -> None:
    assert duration(text) == pytest.approx(seconds)


def test_words_for_people() -> None:
    assert [length(s) for s in (0.85, 12.34, 245, 12000)] == ["850ms", "12.3s", "4m05s", "3h20m"]
    assert harmless("a\x1b[2Jb\n") == "a\N{REPLACEMENT CHARACTER}[2Jb\N{REPLACEMENT CHARACTER}"
