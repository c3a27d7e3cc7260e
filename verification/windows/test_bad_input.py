"""Files that cannot hold locks on Windows, and what other programs do to those that do."""

from __future__ import annotations

import sys

assert sys.platform == "win32"

import _winapi
import os
import socket
import sqlite3
import stat
import subprocess
import threading
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest

import leaselock
from leaselock._backends.sqlite import creation_windows, kernel_windows, udp

OPEN_EXISTING = 3


def url_of(path: Path | str) -> str:
    """Return the URL of a lock file."""
    return f"sqlite:///{path}"


def refusal(url: str) -> leaselock.StoreError:
    """Return the error of the first request."""
    with leaselock.Client(url) as client, pytest.raises(leaselock.StoreError) as refused:
        client.lock("a").try_acquire()
    return refused.value


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("{folder}\\a.db:stream", "a file name cannot have a ':' after the drive"),
        ("{folder}\\a.db::$DATA", "a file name cannot have a ':' after the drive"),
        ("{folder}\\" + "x" * 260 + ".db", "has more than 215 characters"),
        ("\\locks.db", "no drive in"),
        ("{folder}", "is a directory"),
        ("{folder}\\%FF.db", "is not UTF-8"),
    ],
)
def test_a_path_that_names_no_file(path: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r".") as refused:
        leaselock.Client(url_of(path.format(folder=tmp_path)))
    assert words in str(refused.value)


def test_a_longer_path_than_windows_takes_is_refused_before_it_is_used(tmp_path: Path) -> None:
    longest = tmp_path / ("x" * (215 - len(str(tmp_path)) - 4) + ".db")
    assert len(str(longest)) == 215
    with leaselock.Client(url_of(longest)) as client, client.lock("a"):
        assert os.listdir(f"{longest}.clients")


def test_no_folder(tmp_path: Path) -> None:
    refused = refusal(url_of(tmp_path / "absent" / "a.db"))
    assert (refused.reason, "there is no directory" in str(refused)) == ("misconfigured", True)


@pytest.mark.parametrize("real", ["\\\\server\\share", "\\\\?\\UNC\\server\\share"])
def test_a_share(real: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here there is none: the folder is one, as far as the system says."""
    monkeypatch.setattr(os.path, "realpath", lambda path, **_: real)
    refused = refusal(url_of(tmp_path / "a.db"))
    assert (refused.reason, "is on a network drive" in str(refused)) == ("misconfigured", True)
    assert not (tmp_path / "a.db").exists()


def test_a_network_drive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(creation_windows, "drive_type", lambda drive: creation_windows.DRIVE_REMOTE)
    refused = refusal(url_of(tmp_path / "a.db"))
    assert (refused.reason, "is on a network drive" in str(refused)) == ("misconfigured", True)


def test_the_type_of_a_local_drive(tmp_path: Path) -> None:
    drive = os.path.splitdrive(tmp_path)[0]
    assert creation_windows.drive_type(f"{drive}\\") not in (0, 1, creation_windows.DRIVE_REMOTE)


def test_a_file_that_may_not_be_written(tmp_path: Path) -> None:
    file = tmp_path / "a.db"
    with leaselock.Client(url_of(file)) as client, client.lock("a"):
        pass
    os.chmod(file, stat.S_IREAD)
    with suppress(PermissionError), open(file, "r+b"):
        pytest.skip("this system lets its user write all files, as Wine does as root")
    try:
        refused = refusal(url_of(file))
    finally:
        os.chmod(file, stat.S_IREAD | stat.S_IWRITE)
    assert (refused.reason, "a.db" in str(refused)) == ("denied", True)


def test_a_folder_without_permission(tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    folder.mkdir()
    user = os.environ["USERNAME"]
    subprocess.run(["icacls", str(folder), "/deny", f"{user}:(W)"], capture_output=True)
    try:
        (folder / "probe").touch()
    except PermissionError:
        refused = refusal(url_of(folder / "a.db"))
        assert (refused.reason, "a.db" in str(refused)) == ("denied", True)
    else:
        pytest.skip("this system does not enforce access control lists, as Wine does not")
    finally:
        subprocess.run(["icacls", str(folder), "/remove:d", user], capture_output=True)


def test_a_file_of_another_program(tmp_path: Path) -> None:
    file = tmp_path / "a.db"
    file.write_bytes(b"no database, but longer than the header of one" * 9)
    refused = refusal(url_of(file))
    assert (refused.reason, "a.db" in str(refused)) == ("misconfigured", True)


def test_a_file_that_linux_made(tmp_path: Path) -> None:
    file = tmp_path / "a.db"
    with leaselock.Client(url_of(file)) as client, client.lock("a"):
        pass
    with closing(sqlite3.connect(file)) as database, database:
        changed = database.execute(
            "UPDATE fact SET value = ? WHERE key = 'boot'",
            ("8f0b3d2c-0000-4000-8000-000000000000",),
        )
        assert changed.rowcount == 1
    refused = refusal(url_of(file))
    assert refused.reason == "misconfigured"
    assert "was made on another operating system" in str(refused)


def opened_by_another_program(path: str, seconds: float) -> threading.Thread:
    """Open a file as a scanner does, which lets no other program in, and close it later."""
    handle = _winapi.CreateFile(path, _winapi.GENERIC_READ, 0, 0, OPEN_EXISTING, 0, 0)

    def close() -> None:
        time.sleep(seconds)  # the other program is not asked to end
        _winapi.CloseHandle(handle)

    thread = threading.Thread(target=close)
    thread.start()
    return thread


def test_a_lock_file_that_a_scanner_has_open(tmp_path: Path) -> None:
    file = tmp_path / "a.db"
    with leaselock.Client(url_of(file)) as client, client.lock("a"):
        pass
    scanner = opened_by_another_program(str(file), 0.3)
    try:
        with leaselock.Client(url_of(file)) as client, client.lock("a", timeout=60):
            pass
    finally:
        scanner.join()


def test_a_new_file_that_a_scanner_opens_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cannot be renamed until the scanner has closed it."""
    scanners = []
    plain = kernel_windows.create_locked

    def scanned(path: str) -> int:
        file = plain(path)
        handle = _winapi.CreateFile(path, _winapi.GENERIC_READ, 3, 0, OPEN_EXISTING, 0, 0)
        scanners.append(threading.Timer(0.3, _winapi.CloseHandle, (handle,)))
        scanners[-1].start()
        return file

    monkeypatch.setattr("leaselock._backends.sqlite.kernel.create_locked", scanned)
    with leaselock.Client(url_of(tmp_path / "a.db")) as client, client.lock("a", timeout=60):
        assert scanners
    for scanner in scanners:
        scanner.join()


def test_forged_datagrams_grant_nothing(tmp_path: Path) -> None:
    """Of any length and content, to all clients, among them what a real message has."""
    url = url_of(tmp_path / "a.db")
    with leaselock.Client(url) as client, client.lock("a") as lease:
        waiting = leaselock.Client(url)
        granted: list[int] = []
        thread = threading.Thread(
            target=lambda: granted.append(waiting.lock("a").acquire(timeout=600).token)
        )
        thread.start()
        while not client.lock("a").waiters():
            time.sleep(0.01)  # until it is in the queue
        ports = [
            address.port
            for file in Path(f"{tmp_path / 'a.db'}.clients").glob("*.live")
            if (address := kernel_windows._address(str(file))) is not None
        ]
        assert len(ports) == 2
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            for number in range(2000):
                for port in ports:
                    text = number.to_bytes(8, "big") if number % 2 else os.urandom(number % 50)
                    stranger.sendto(text, (udp.LOOPBACK, port))
        assert not granted
        lease.ensure()
        token = lease.token
    thread.join()
    waiting.close()
    assert granted[0] > token


def test_no_other_program_takes_over_the_port() -> None:
    with udp.open_inbox() as inbox, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with pytest.raises(PermissionError):
            stranger.bind(inbox.getsockname())
