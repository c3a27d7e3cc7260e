"""leaselock on etcd and on DynamoDB, the bare writes of its documents, and the locks of etcd."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, ClassVar

from testkit.servers.process import program

import leaselock
from benchmarks.contestants.foreign import Foreign
from benchmarks.contestants.ours import Ours
from benchmarks.foreign import pinned, required
from leaselock._backends import open_store

# The documents that `Bare` writes have the length of a free and of a held one.
FREE, HELD = b"x" * 170, b"x" * 700
SECONDS = 30.0


class Documents(Ours):
    """leaselock with its defaults, on the store of the URL."""


class Bare:
    """Two writes, each on condition that the document is unchanged, by leaselock's own adapter."""

    version: ClassVar[str] = leaselock.__version__
    reentrant: ClassVar[bool] = False
    waits: ClassVar[bool] = False

    def __init__(self, folder: Path) -> None:
        store: Any = open_store(Path(folder, "url").read_text(), time.monotonic).parts[0]
        self.store = store
        self.document: Any = store.get("bare", self.until())

    def until(self) -> float:
        """The time until which a request may take."""
        return time.monotonic() + SECONDS

    def write(self, value: bytes) -> None:
        """Write."""
        self.document = self.store.put("bare", value, self.document.version, None, self.until())

    def acquire(self) -> None:
        """The first write."""
        self.write(HELD)

    def release(self) -> None:
        """The second one."""
        self.write(FREE)

    def close(self) -> None:
        """Close the connections."""
        self.store.close()


class EtcdMutex(Foreign):
    """concurrency.Mutex of etcd's client in Go: a session of 60 s; waiters in order; no token."""

    version: ClassVar[str] = pinned("go", r"etcd/client/v3 v(\S+)")
    kind: ClassVar[str] = "go"
    name: ClassVar[str] = "etcd-mutex"

    def __init__(self, folder: Path) -> None:
        required("go")
        super().__init__(folder)


class Etcdctl:
    """`etcdctl lock NAME true`: one process for each hold. The lock is released when it ends."""

    version: ClassVar[str] = "with etcd"
    reentrant: ClassVar[bool] = False
    waits: ClassVar[bool] = False

    def __init__(self, folder: Path) -> None:
        hosts = Path(folder, "url").read_text().partition("://")[2].partition("/")[0]
        self.command = [program("etcdctl"), f"--endpoints={hosts}", "lock", "etcdctl", "true"]

    def acquire(self) -> None:
        """Acquire, and release at once."""
        subprocess.run(
            self.command,
            check=True,
            stdout=subprocess.DEVNULL,
            env=os.environ | {"ETCDCTL_API": "3"},
        )

    def release(self) -> None:
        """Nothing is left to do."""

    def close(self) -> None:
        """Nothing is open."""


class Command(Etcdctl):
    """`leaselock run NAME -- true`, to compare with `etcdctl lock`."""

    version: ClassVar[str] = leaselock.__version__

    def __init__(self, folder: Path) -> None:
        url = Path(folder, "url").read_text()
        command = [sys.executable, "-m", "leaselock", "run"]
        self.command = [*command, "--url", url, "command", "--", "true"]
