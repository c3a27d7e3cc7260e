"""A file system, or a sandbox, without `flock`."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

import leaselock

if TYPE_CHECKING:
    from pathlib import Path

fcntl = pytest.importorskip("fcntl")


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_a_wrong_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with (
        leaselock.Client(f"sqlite:///{tmp_path}/locks.db") as client,
        pytest.raises(leaselock.NotApplied, match=r"flock: .*local disk") as caught,
    ):
        client.lock("a").acquire(timeout=1)
    assert caught.value.reason == "misconfigured"
