"""run --shared, --slots and --with; ls, show and break of locks with several holders."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.cli.processes import LEASELOCK, paced, said

from leaselock._cli.listing import LONGEST_SLOTS, slot_ranges

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.cli.processes import Shell


def test_shared_commands_run_beside_each_other_and_are_shown(shell: Shell) -> None:
    first, second = shell.job("a", "--shared"), shell.job("a", "--shared")
    assert shell.run("run", "-n", "a", "true").returncode == 75
    assert shell.run("run", "-n", "--shared", "a", "true").returncode == 0
    (lock,) = json.loads(shell.run("ls", "--json").stdout)["locks"]
    pids = [first.wrapper.pid, second.wrapper.pid]
    assert [(holder["pid"], holder["mode"]) for holder in lock["holders"]] == [
        (pid, "shared") for pid in pids
    ]
    assert "and 1 more" in shell.run("ls").stdout
    assert shell.run("show", "a").stdout.count(", shared") == 2
    token = lock["holders"][1]["token"]
    assert shell.run("check", "a", "--token", str(token)).returncode == 0
    broken = shell.run("break", "a", "--token", str(token), "--message", "test")
    assert broken.returncode == 0
    (lock,) = json.loads(shell.run("ls", "--json").stdout)["locks"]
    assert [holder["pid"] for holder in lock["holders"]] == pids[:1]
    shell.run("break", "a", "--yes", "--message", "test")
    assert json.loads(shell.run("ls", "--json").stdout)["locks"] == []


def test_slots_are_permits(shell: Shell) -> None:
    shell.job("a", "--slots", "2")
    assert shell.run("run", "-n", "--slots", "2", "a", "true").returncode == 0
    assert "a: 1 of 2 permits held" in shell.run("show", "a").stdout
    shell.job("a", "--slots", "2")
    assert shell.run("run", "-n", "--slots", "2", "a", "true").returncode == 75
    other = shell.run("run", "-n", "--slots", "3", "a", "true")
    assert (other.returncode, "2 permits" in other.stderr) == (64, True)


def test_a_command_knows_the_number_of_its_permit(shell: Shell) -> None:
    shell.job("a", "--slots", "3")
    said_slot = ("sh", "-c", "echo slot $LEASELOCK_SLOT")
    assert shell.run("run", "--slots", "3", "a", *said_slot).stdout == "slot 1\n"
    nested = (*LEASELOCK, "run", "b", "--", *said_slot)
    assert shell.run("run", "--slots", "3", "a", "--", *nested).stdout == "slot\n"
    with_other = shell.run("run", "--slots", "3", "--with", "c", "a", *said_slot)
    assert with_other.stdout == "slot 1\n"
    (lock,) = json.loads(shell.run("ls", "--json").stdout)["locks"]
    assert [holder["slots"] for holder in lock["holders"]] == [[0]]
    assert " slot 0" in shell.run("ls").stdout
    assert ", 1 permit, slot 0" in shell.run("show", "a").stdout
    for _ in range(2):
        shell.job("a", "--slots", "3")
    assert " slot 0 and 2 more (slots 1-2)" in shell.run("ls").stdout


@pytest.mark.parametrize(
    ("slots", "text"),
    [
        ([4], "4"),
        ([2, 0, 1], "0-2"),
        ([0, 1, 5, 7, 8], "0-1, 5, 7-8"),
        (range(0, 1000, 2), "0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20..."),
    ],
)
def test_numbers_of_permits_are_shown_as_ranges(slots: Iterable[int], text: str) -> None:
    assert slot_ranges(slots) == text
    assert len(text) <= LONGEST_SLOTS


def test_several_locks_are_held_together(shell: Shell) -> None:
    shell.job("a", "--with", "b", "--with", "c")
    for name in ("a", "b", "c"):
        assert shell.run("run", "-n", name, "true").returncode == 75
    busy = shell.run("run", "-n", "--with", "b", "d", "true")
    assert busy.returncode == 75
    assert "'b' is busy: held by" in busy.stderr
    busy = shell.run("--json", "run", "-n", "--with", "d", "--with", "b", "e", "true")
    assert json.loads(busy.stderr)["name"] == "b"
    assert shell.run("run", "-n", "d", "true").returncode == 0


@pytest.mark.parametrize(
    ("outer", "inner"),
    [(("--with", "b", "a"), ("b",)), (("a",), ("--with", "a", "b"))],
    ids=["of the enclosing --with", "by the own --with"],
)
def test_waiting_for_an_enclosing_lock_of_several_is_refused(
    shell: Shell, outer: tuple[str, ...], inner: tuple[str, ...]
) -> None:
    # The limit bounds a failure only: without the refusal, the command waits for ever.
    command = ("timeout", "60", *LEASELOCK, "run", *inner, "true")
    done = shell.run("run", *outer, "--", *command)
    assert done.returncode == 64, done.stderr
    assert "this runs under the lock" in done.stderr


def test_the_environment_names_all_locks(shell: Shell) -> None:
    done = shell.run("run", "--with", "b", "--with", "c", "-c", 'echo "$LEASELOCK_STACK"', "a")
    assert sorted(done.stdout.split()) == ["a", "b", "c"]
    assert done.stdout.split()[-1] == "a"


def test_the_lock_of_several_that_was_lost_is_named(shell: Shell) -> None:
    job = shell.job("a", "--with", "b", "--lease", paced(1.0))
    assert shell.run("break", "b", "--yes", "--message", "test").returncode == 0
    code, errors = said(job.wrapper)
    assert code == 76
    assert "the lease on 'b' in " in errors


@pytest.mark.parametrize("words", [("--shared", "--slots", "2"), ("--slots", "0")])
def test_wrong_combinations_are_refused(shell: Shell, words: tuple[str, ...]) -> None:
    assert shell.run("run", *words, "a", "true").returncode == 64
