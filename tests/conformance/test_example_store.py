"""The store of docs/how-to/write-a-store.md, installed as another distribution would be."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from examples.folder_store import FolderStore
from testkit.conformance import Scenario, Store
from testkit.installed import install, installed
from tests.conformance.matrix import configuration, name, run

import leaselock
from leaselock._backends import SCHEMES, open_store

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
STORE = Store(
    "folder",
    lambda folder: f"folder://{folder}/locks",
    protocols=("queue",),
    notifies=False,
    notifies_holder=False,
    # Each that asks again reads the whole file of its lock, with all others in it.
    max_waiters=100,
    sharing=True,
    updates=True,
    permits=True,
    min_hold=True,
    lease=0.2,
)


@pytest.fixture(scope="module", autouse=True)
def folder_installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """For this process and those that it starts."""
    made = tmp_path_factory.mktemp("site-packages")
    with installed(made, folder="examples.folder_store:STORE") as folder:
        yield folder


PARTS = configuration("example", one_in=4)


@pytest.mark.parametrize(("scenario", "driver"), PARTS, ids=name)
def test_folder(scenario: Scenario, driver: str, max_waiters: int | None, tmp_path: Path) -> None:
    run(scenario, STORE, driver, tmp_path, max_waiters)


def test_an_installed_store_is_found_by_the_scheme_of_its_url(tmp_path: Path) -> None:
    with leaselock.Client(f"folder://{tmp_path}/locks?protocol=queue") as client:
        with client.lock("a") as lease:
            assert lease.token
        assert client.doctor()[0].what == f"the folder {tmp_path}/locks"
    with pytest.raises(ValueError, match="the folder store has no protocol 'other'"):
        leaselock.Client(f"folder://{tmp_path}/locks?protocol=other")
    with pytest.raises(ValueError, match="option 'colour'"):
        leaselock.Client(f"folder://{tmp_path}/locks?colour=red")
    with pytest.raises(ValueError, match="prefix= is for locks in Redis"):
        leaselock.Client(f"folder://{tmp_path}/locks", prefix="a:")
    with pytest.raises(ValueError, match=r"begins with .*etcds://, folder://, kubernetes://"):
        leaselock.Client("nowhere://a")


def test_a_child_does_not_wait_for_the_file_lock_of_a_thread_of_its_parent(tmp_path: Path) -> None:
    store = FolderStore(str(tmp_path), time.monotonic)
    with store.folder.alone():
        child = os.fork()
        if not child:
            signal.alarm(60)  # ends a child that waits for itself
            store.after_fork()
            os._exit(not store.folder.compare_and_set("a", "", "of the child"))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert store.folder.get("a") == "of the child"


def test_an_error_of_the_system_is_one_of_the_store(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        leaselock.Client(f"folder://{tmp_path}/file", op_timeout=0.1) as client,
        pytest.raises(leaselock.OutcomeUnknown, match="Not a directory"),
    ):
        client.lock("a").try_acquire()


@pytest.mark.parametrize(
    ("values", "error", "reason"),
    [
        (("a.b:C", "d.e:F"), ValueError, "several stores are installed for twice://"),
        (("json:dumps",), ImportError, "json:dumps, which is installed for twice://, is no Store"),
        (
            ("no_such_module:STORE",),
            ImportError,
            "no_such_module:STORE, which is installed for twice://, cannot be loaded: ModuleNot",
        ),
        (
            ("fails_to_load:STORE",),
            ImportError,
            "fails_to_load:STORE, .* for twice://, cannot be loaded: RuntimeError: of its own",
        ),
    ],
)
def test_what_is_installed_for_a_scheme_is_one_store(
    values: tuple[str, ...],
    error: type[Exception],
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "fails_to_load.py").write_text("raise RuntimeError('of its own')\n")
    for value in values:
        install(tmp_path, "twice", value)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(error, match=reason):
        leaselock.Client("twice:///a")


def test_a_store_of_this_package_needs_no_metadata_and_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "memory", "examples.folder_store:STORE")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert "memory" in SCHEMES
    assert open_store("memory://a", lambda: 0.0).backend(None).capabilities.detects_death
