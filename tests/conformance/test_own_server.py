"""The conformance suite on a server of a store's author: the documented command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from testkit.servers.redis import Redis

if TYPE_CHECKING:
    from testkit.servers.etcd import Etcd

pytestmark = pytest.mark.heavy

ROOT = Path(__file__).parents[2]
SQLITE = "sqlite:///{folder}/locks.db"


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the suite from a checkout, without its caches."""
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rs")
    return subprocess.run(
        [*command, "testkit/conformance", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_url_names_the_store() -> None:
    ran = run("--store", SQLITE, "-k", "tokens", "--capability", "lease=0.2")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert " passed" in ran.stdout
    assert "SKIPPED" not in ran.stdout
    assert "skipped: nothing" in ran.stdout


def test_what_a_test_leaves_in_redis_is_removed() -> None:
    with Redis() as server:
        url = f"{server.url}?prefix=own:{{unique}}:"
        ran = run("--store", url, "-k", "tokens and asyncio or adapter")
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert " passed" in ran.stdout
        assert "is no DocumentStore" in ran.stdout
        assert server.ask("KEYS", "*own:*") == []


def test_both_suites_run_on_a_store_of_documents_and_clean_up(etcd: Etcd) -> None:
    url = etcd.url("own{unique}")
    ran = run("--store", url, "-k", "tokens and asyncio or adapter", "--proxy", etcd.hosts)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "no proxy" not in ran.stdout
    kept = etcd.control("get", "own", "--prefix", "--keys-only")
    assert not kept.get("kvs"), kept


def test_a_missing_capability_skips_a_scenario() -> None:
    ran = run("--store", SQLITE, "-k", "downgrade", "--capability", "sharing=false")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "sqlite: it has no read/write locks" in ran.stdout


def test_a_module_names_the_store_and_one_driver_is_chosen() -> None:
    store = "tests.conformance.test_memory:STORE"
    ran = run("--store", store, "--driver", "asyncio", "--collect-only")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "-asyncio]" in ran.stdout
    assert "-threads]" not in ran.stdout


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ((), "name the store"),
        (("--store", "testkit.conformance:SCENARIOS"), "is not a testkit.conformance.Store"),
        (("--store", SQLITE, "--capability", "speed=1"), "no capability 'speed'"),
        (("--store", SQLITE, "--capability", "fair=no"), "write the value in JSON"),
    ],
)
def test_a_wrong_command_says_what_is_wrong(words: tuple[str, ...], reason: str) -> None:
    ran = run(*words)
    assert ran.returncode != 0
    assert reason in ran.stdout + ran.stderr
