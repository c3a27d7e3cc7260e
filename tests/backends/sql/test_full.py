"""What `doctor` says of a database whose disk is full, where new names cannot be stored."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from testkit.servers.mariadb import MariaDB
from testkit.servers.postgres import Postgres
from testkit.servers.process import eventually, program
from tests.backends.sql.test_doctor import found

import leaselock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from leaselock import Finding

# More than the servers need, so that the rest can be filled.
SIZE = 400 << 20
# More than fit into what a nearly empty table has room for.
NAMES = 500
SMALL_FILES = {"innodb-log-file-size": "4M", "innodb-data-file-path": "ibdata1:12M:autoextend"}


def space(url: str) -> Finding:
    """Return what `doctor` finds about the disk."""
    return found(url, "disk of the")


@contextmanager
def on_a_small_disk(server: Postgres | MariaDB) -> Iterator[Path]:
    """Move the data of a server to a small disk."""
    data, moved, image = (server.folder / name for name in ("data", "moved", "image"))
    server.running().stop()
    data.rename(moved)
    data.mkdir()
    with open(image, "wb") as file:
        file.truncate(SIZE)
    # Servers do not run as root here: without blocks that only root may use.
    subprocess.run([program("mkfs.ext4", "/usr/sbin"), "-q", "-m", "0", str(image)], check=True)
    command = ["mount", "-o", "loop", str(image), str(data)]
    if os.geteuid() or subprocess.run(command, check=False).returncode:
        pytest.skip("only root can mount a disk here")
    try:
        subprocess.run(["cp", "-a", f"{moved}/.", str(data)], check=True)
        shutil.chown(data, moved.owner(), moved.group())
        data.chmod(moved.stat().st_mode)
        server.start()
        yield data
    finally:
        server.running().stop()
        subprocess.run(["umount", "--lazy", str(data)], check=True)


def fill(disk: Path) -> None:
    """Write until there is no space left, also for a single page."""
    for size in (1 << 20, 4096):
        with open(disk / "ballast", "ab", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue


def acquire_new_names(url: str) -> None:
    with leaselock.Client(url) as client:
        for number in range(NAMES):
            client.lock(f"new {number}").acquire()


@pytest.mark.heavy
def test_a_full_disk_of_postgresql_is_a_failure() -> None:
    small = Postgres(min_wal_size="32MB", max_wal_size="32MB")
    with small as server, on_a_small_disk(server) as disk:
        with leaselock.Client(server.url) as client:
            client.setup()
        assert space(server.url).level == "ok"
        fill(disk)
        for _ in range(2):
            finding = space(server.url)
            assert finding.level == "fail"
            assert "53100" in finding.what
        with pytest.raises(leaselock.NotApplied, match="53100"):
            acquire_new_names(server.url)
        (disk / "ballast").unlink()
        assert space(server.url).level == "ok"


@pytest.mark.heavy
def test_a_full_disk_of_mariadb_is_a_failure() -> None:
    with MariaDB(**SMALL_FILES) as server, on_a_small_disk(server) as disk:
        with leaselock.Client(server.url) as client:
            client.setup()
        assert space(server.url).level in ("ok", "warn")
        # From another machine, only the server itself can tell.
        assert level_elsewhere(server.url) == "skip"
        if server.is_mysql:
            pytest.skip("MySQL has no plugin that tells how much space is left")
        server.do("INSTALL SONAME 'disks'", "GRANT FILE ON *.* TO leaselock@'%'")
        assert level_elsewhere(server.url) == space(server.url).level
        fill(disk)
        assert level_elsewhere(server.url) == "fail"
        server.do("UNINSTALL SONAME 'disks'")
        assert level_elsewhere(server.url) == "skip"
        finding = space(server.url)
        assert finding.level == "fail"
        assert re.fullmatch(r"\d KiB are free on the disk of the server", finding.what)
        assert server.running().alive


def level_elsewhere(url: str) -> str:
    """Return the level that `doctor` gives on a machine of another name."""
    command = [sys.executable, "-m", "leaselock", "doctor", url]
    renamed = ["sh", "-c", 'hostname elsewhere && exec "$@"', "sh", *command]
    done = subprocess.run(
        [program("unshare"), "--uts", *renamed], capture_output=True, text=True, check=False
    )
    (line,) = (line for line in done.stdout.splitlines() if "its disk" in line or "disk of" in line)
    return line.split()[0]


def test_to_look_at_the_disk_needs_no_right(
    server: Postgres | MariaDB, as_worker: Callable[[Postgres | MariaDB], str]
) -> None:
    url = as_worker(server)
    for each in (url, f"{url}?protocol=row"):
        assert space(each).level in ("ok", "warn")


def test_postgresql_writes_to_a_file_and_not_to_its_log(postgres: Postgres) -> None:
    written = "SELECT temp_bytes FROM pg_stat_database WHERE datname = 'postgres'"
    log = "SELECT pg_current_wal_insert_lsn() - '0/0'"
    ((bytes_before,),), ((log_before,),) = postgres.query(written), postgres.query(log)
    assert space(postgres.url).level == "ok"
    assert postgres.query(log)[0][0] - log_before < 100_000
    # A session reports its figures a moment later.
    eventually(lambda: postgres.query(written)[0][0] - bytes_before >= 1_000_000)
