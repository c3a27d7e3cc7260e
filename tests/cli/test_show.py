"""ls, show, version: as text and as JSON."""

from __future__ import annotations

import datetime
import json
import os
import shlex
import subprocess
import time

import pytest
from testkit.servers.redis import Redis
from tests.cli.processes import LEASELOCK, Shell

import leaselock
from leaselock import Holder, LockInfo
from leaselock._cli.listing import LONGEST_NAME, cut, cut_middle, table
from leaselock._cli.show import lock_lines
from leaselock._core.client import validation
from leaselock.documents import utc_time


def test_ls_shows_holders_and_number_of_waiters(shell: Shell) -> None:
    job = shell.job("a", "--label", "first")
    shell.waiter("a")
    shell.run("acquire", "b", "--lease", "1h")
    head, a, b = shell.run("ls").stdout.splitlines()
    assert head.split() == "NAME HOLDER SINCE LEASE TOKEN WAITERS LABEL".split()
    who = f"{os.uname().nodename}:{job.wrapper.pid}"
    name, holder, _, left, token, waiters, label = a.split()
    assert (name, holder, waiters, label) == ("a", who, "1", "first")
    assert left.endswith("s")
    assert token.isdecimal()
    assert b.split()[4].startswith("59m")
    assert [line.split()[0] for line in shell.run("ls", "b*").stdout.splitlines()] == ["NAME", "b"]


def test_ls_of_no_locks_prints_nothing(shell: Shell) -> None:
    nothing = shell.run("ls")
    assert (nothing.returncode, nothing.stdout, nothing.stderr) == (0, "", "")
    assert shell.run("ls", "--exit-code").returncode == 1
    assert json.loads(shell.run("ls", "--json").stdout) == {
        "schema": 2, "backend": shell.url, "locks": [], "complete": True,
    }  # fmt: skip
    shell.run("acquire", "a")
    assert shell.run("ls", "--exit-code").returncode == 0
    assert shell.run("ls", "--exit-code", "b").returncode == 1


def test_json_fields(shell: Shell) -> None:
    job = shell.job("a", "--label", "first")
    waiter = shell.waiter("a", "--label", "second")
    document = json.loads(shell.run("ls", "--json").stdout)
    assert document.keys() == {"schema", "backend", "locks", "complete"}
    (lock,) = document["locks"]
    known = "name holder holders permits waiters deadlocked unreadable"
    assert lock.keys() == set(known.split())
    for person, process in ((lock["holder"], job.wrapper), (lock["waiters"][0], waiter)):
        known = (
            "host pid thread label since since_utc token remaining detached cooling_down version"
            " mode permits slots descendants age gone"
        )
        assert set(person) == set(known.split())
        assert person["version"] == leaselock.__version__
        assert person["pid"] == process.pid
        assert abs(person["since"] - time.time()) < 60
        parsed = datetime.datetime.fromisoformat(person["since_utc"])
        assert parsed.timestamp() == pytest.approx(person["since"], abs=1e-5)
        assert person["since_utc"].endswith("Z")
    assert lock["holder"]["token"] > 0
    assert lock["waiters"][0]["token"] is None
    shown = json.loads(shell.run("show", "--json", "a").stdout)
    assert shown.keys() == {"schema", "backend", "lock"}
    for shows in (shown["lock"], lock):
        for holder in (shows["holder"], *shows["holders"]):
            assert 0.0 < holder.pop("remaining") <= 30.0
    assert shown["lock"] == lock


def test_show_lists_waiters_in_order(shell: Shell) -> None:
    job = shell.job("a", "--label", "first")
    waiters = [shell.waiter("a", "--label", reason) for reason in ("second", "third")]
    shell.run("acquire", "ab")
    held, reason, lease, *queue = shell.run("show", "a").stdout.splitlines()
    host = os.uname().nodename
    assert held.startswith(f"a: held by {host}:{job.wrapper.pid} for ")
    assert reason == "  label: first"
    assert lease.startswith("  lease: ")
    for place, (line, waiter) in enumerate(zip(queue, waiters, strict=True), 1):
        assert line.startswith(f"  {place}. {host}:{waiter.pid} (")
    assert "(second)" in queue[0]


def test_what_is_cut_fits() -> None:
    assert cut("nightly close", 13) == "nightly close"
    assert cut("nightly close", 9) == "nightl..."
    assert cut("夜間の締め処理", 9) == "夜間の...", "such a character takes two columns"


def test_what_is_cut_in_the_middle_keeps_both_ends() -> None:
    assert cut_middle("nightly close", 13) == "nightly close"
    assert cut_middle("com.example.Reservation:12", 12) == "com.e...n:12"
    assert cut_middle("夜間の締め処理", 9) == "夜...理", "such a character takes two columns"
    assert cut_middle("nightly close", 3) == "..."


def test_show_of_a_free_lock(shell: Shell) -> None:
    assert shell.run("show", "a").stdout == "a: free\n"
    assert json.loads(shell.run("show", "--json", "a").stdout)["lock"] == {
        "name": "a", "holder": None, "holders": [], "permits": None, "waiters": [],
        "deadlocked": False, "unreadable": None,
    }  # fmt: skip


def test_show_does_not_expand_patterns(shell: Shell) -> None:
    shell.run("acquire", "ab")
    assert shell.run("show", "[a]b").stdout == "[a]b: free\n"
    shell.run("acquire", "[a]b*?")
    assert shell.run("show", "[a]b*?").stdout.startswith("[a]b*?: held by")


EVIL = "\x1b]0;owned\x07\x1b[2J\nfake line\r\u202e"


def test_control_characters_of_a_holder_are_escaped(shell: Shell) -> None:
    with leaselock.Client(shell.url, label=EVIL) as client, client.lock("a\u202eb"):
        for words in (["ls"], ["show", "a\u202eb"], ["check", "a\u202eb", "--token", "5"]):
            done = shell.run(*words)
            text = (done.stdout + done.stderr).removesuffix("\n")
            assert all(line.isprintable() for line in text.split("\n")), words
            assert "\nfake" not in text
        label = json.loads(shell.run("ls", "--json").stdout)["locks"][0]["holder"]["label"]
        assert label == EVIL
        busy = shell.run("run", "-n", "a\u202eb", "true")
        assert busy.stderr.removesuffix("\n").isprintable()


def test_long_texts_of_other_programs_and_many_marks_are_cut(shell: Shell) -> None:
    """One record of another program must not push the other locks off the terminal."""
    long, marks = "n" * 300_000, "a" + "\u0301" * 120
    with Redis() as redis, leaselock.Client(redis.url) as client:
        shell.env["LEASELOCK_URL"] = redis.url
        for name in ("a", marks):
            client.lock(name).acquire()
        # One is another program's lock, the other one has a type that no lock has.
        redis.ask("HSET", f"lock:{long}1", "053008ff-bcd9-fd3c-bec3-cc01444196c0:1", "1")
        redis.ask("HSET", f"lock:{long}2", "customer", "1")
        for words in (["ls", "--all"], ["ls"], ["doctor"]):
            lines = shell.run(*words).stdout.splitlines()
            assert max(map(len, lines)) < 3000, words
        names = [line.split()[0] for line in shell.run("ls").stdout.splitlines()[1:4]]
        cut_name = "n" * 126 + "..." + "n" * 125
        assert sorted(names) == ["a", "a" + "\u0301" * 4 + r"\u0301" * 116, cut_name + "1"]
        assert validation.LONGEST_NAME == LONGEST_NAME
        listed = json.loads(shell.run("ls", "--json").stdout)["locks"]
        assert f"{long}1" in {lock["name"] for lock in listed}, "programs get the whole name"


def test_characters_that_the_encoding_lacks_are_escaped(shell: Shell) -> None:
    shell.run("acquire", "\N{SNOWMAN}")
    plain = shell.run("ls", env={"PYTHONIOENCODING": "ascii"})
    assert plain.returncode == 0
    assert "\\u2603" in plain.stdout


def test_broken_pipe_prints_no_error(shell: Shell) -> None:
    words = shlex.join([*LEASELOCK, "ls"])
    shell.run("acquire", "a")
    done = subprocess.run(
        ["bash", "-c", f"{words} | true; echo ${{PIPESTATUS[0]}}"],
        env=shell.env, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stderr == ""
    assert done.stdout.strip() in ("0", "141")


def test_table_aligns_wide_characters() -> None:
    holder = Holder("host", 1, "t", 0.0, "\u6f22", 5, None)
    text = table(
        [("NAME", "X", "", "", "", "", ""), ("\u6f22\u5b57", holder.host, "", "", "", "", "")]
    )
    first, second = text
    assert first == "NAME  X"
    assert second == "\u6f22\u5b57  host"


def test_timestamp_outside_the_calendar_is_omitted() -> None:
    assert utc_time(0.5) == "1970-01-01T00:00:00.500000Z"
    assert utc_time(1e300) is None
    assert utc_time(float("inf")) is None
    holder = Holder("host", 1, "t", -1e300, None, 5, 1.0)
    assert lock_lines(LockInfo("a", holder, ()))[0].startswith("a: held by host:1/t")


def test_version(shell: Shell) -> None:
    for words in (["version"], ["--version"]):
        assert shell.run(*words).stdout == f"leaselock {leaselock.__version__}\n"
    document = json.loads(shell.run("version", "--json").stdout)
    assert document == {"schema": 2, "version": leaselock.__version__}


def test_ls_says_when_only_the_index_was_read(shell: Shell) -> None:
    with Redis() as redis:
        shell.env["LEASELOCK_URL"] = redis.url
        redis.ask("HSET", "lock:java", "053008ff-bcd9-fd3c-bec3-cc01444196c0:1", "1")
        listed = json.loads(shell.run("ls", "--json").stdout)
        assert (listed["locks"], listed["complete"]) == ([], False)
        listed = json.loads(shell.run("ls", "--all", "--json").stdout)
        assert ([lock["name"] for lock in listed["locks"]], listed["complete"]) == (["java"], True)
        assert shell.run("ls").stdout.startswith("NAME")
        assert json.loads(shell.run("ls", "java", "--json").stdout)["complete"] is True
