"""Reading histories: incomplete and damaged files, names, and the check command."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.testing.histories import events, only_file

from leaselock.testing.history import History
from leaselock.testing.history.__main__ import main
from leaselock.testing.record_format import (
    FOREVER,
    RECORD_SIZE,
    CorruptHistory,
    Event,
    Record,
    lock_id,
    name_line,
    read_names,
    unpack,
)
from leaselock.testing.recorder import Recorder

if TYPE_CHECKING:
    from pathlib import Path


# --- reading ------------------------------------------------------------------------------------


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """Return a folder with four records."""
    with Recorder(tmp_path) as recorder:
        for name in ("a", "b"):
            recorder.acquiring(name).refused()
    return tmp_path


@pytest.mark.parametrize("cut", [1, RECORD_SIZE // 2, RECORD_SIZE - 1])
def test_incomplete_last_record_is_ignored(recorded: Path, cut: int) -> None:
    path = only_file(recorded)
    path.write_bytes(path.read_bytes()[:-cut])
    assert events(recorded) == [Event.ACQUIRING, Event.REFUSED, Event.ACQUIRING]


@pytest.mark.parametrize("place", range(0, 4 * RECORD_SIZE, 7))
def test_changed_byte_is_an_error(recorded: Path, place: int) -> None:
    path = only_file(recorded)
    data = bytearray(path.read_bytes())
    data[place] ^= 0x10
    path.write_bytes(data)
    with pytest.raises(CorruptHistory, match=f"byte {place - place % RECORD_SIZE}: "):
        events(recorded)


def test_incomplete_record_in_the_middle_is_an_error(recorded: Path) -> None:
    path = only_file(recorded)
    data = path.read_bytes()
    path.write_bytes(data[: RECORD_SIZE - 5] + data[RECORD_SIZE:])
    with pytest.raises(CorruptHistory):
        events(recorded)


def test_unknown_event_is_an_error() -> None:
    strange = Record(1, 99, 0, 0, 1).pack()  # type: ignore[arg-type]
    with pytest.raises(CorruptHistory, match="event 99"):
        unpack(strange)


def test_the_folder_may_be_a_string(recorded: Path) -> None:
    assert History.read(str(recorded)).processes == History.read(recorded).processes


def test_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        History.read(tmp_path / "none")


NAMES = ["", "a\nb", "'; DROP", "../..", "{x}", "\x00", "ключ 🔒", "\udcff", "x" * 5000]


def test_names_round_trip(tmp_path: Path) -> None:
    with Recorder(tmp_path) as recorder:
        for name in NAMES:
            recorder.acquiring(name).refused()
    assert sorted(read_names(tmp_path).values()) == sorted(NAMES)


def test_incomplete_name_is_ignored_and_the_lock_shown_by_id(recorded: Path) -> None:
    path = only_file(recorded, ".names")
    path.write_bytes(path.read_bytes()[:-2])
    names = [lock.name for lock in History.read(recorded).locks.values()]
    assert names == ["a", f"#{lock_id('b'):016x}"]


@pytest.mark.parametrize("line", ["junk", f"{1:016x} 5", f'{1:016x} "a"', f'{1:016x} "a'])
def test_damaged_names_file_is_an_error(recorded: Path, line: str) -> None:
    only_file(recorded, ".names").write_text(f"{line}\n")
    with pytest.raises(CorruptHistory):
        read_names(recorded)


# --- the command --------------------------------------------------------------------------------


def recorded_overlap(folder: Path) -> None:
    with Recorder(folder) as recorder:
        attempt = recorder.acquiring("nightly")
        attempt.granted(1)
        recorder.acquiring("nightly").granted(1)
        attempt.releasing()


def test_history_module_is_a_command(tmp_path: Path) -> None:
    recorded_overlap(tmp_path)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "leaselock.testing.history", tmp_path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert "overlap of lock 'nightly'" in done.stdout
    assert done.stdout.endswith("VIOLATIONS: 1 overlap, 1 token-reused\n")


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ([], 1),
        (["--min-grants", "0"], 0),
        (["--min-grants", "0", "--min-contention", "1"], 0),
        (["--min-grants", "0", "--min-contention", "1.1"], 1),
        (["--min-grants", "0", "--ghost-bound", "1.5", "--hand-over-bound", "0.5"], 0),
    ],
)
def test_options_become_rules(
    recorded: Path, capsys: pytest.CaptureFixture[str], options: list[str], status: int
) -> None:
    assert main([str(recorded), *options]) == status
    assert ("vacuous" in capsys.readouterr().out) is bool(status)


def test_bounds_of_the_command_are_in_seconds(tmp_path: Path) -> None:
    names = {lock_id("a"): "a"}
    records = [
        Record(1_000_000_000, Event.ACQUIRING, lock_id("a"), 1, 1, aux=FOREVER),
        Record(1_000_000_001, Event.GRANTED, lock_id("a"), 1, 1),
        Record(1_000_000_001, Event.ACQUIRING, lock_id("a"), 2, 2, aux=FOREVER),
        Record(3_000_000_000, Event.GRANTED, lock_id("a"), 2, 2),
    ]
    (tmp_path / "1.hist").write_bytes(b"".join(record.pack() for record in records))
    (tmp_path / "1.names").write_bytes(b"".join(name_line(i, name) for i, name in names.items()))
    assert main([str(tmp_path), "--ghost-bound", "2"]) == 0
    assert main([str(tmp_path), "--ghost-bound", "1.9"]) == 1


def test_unreadable_history_exits_2(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    only_file(recorded).write_bytes(b"x" * RECORD_SIZE)
    for folder in (recorded, recorded / "none"):
        assert main([str(folder)]) == 2
        assert capsys.readouterr().err.startswith("history: ")
