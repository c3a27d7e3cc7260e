"""ZooKeeper: connections that are half open, sessions that ended, and other recipes beside us."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from kazoo.client import KazooClient  # type: ignore[import-untyped]
from testkit.proxy import Proxy
from testkit.servers.ensembles import fresh
from testkit.servers.process import eventually
from tests.backends.zookeeper.zoo import connection_of
from tests.people import LIMIT, environment, script

import leaselock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testkit.servers.zookeeper import Ensemble

SESSION = 6.0


@pytest.fixture
def proxy(ensemble: Ensemble) -> Iterator[Proxy]:
    with Proxy(ensemble.servers[0].port) as made:
        yield made


@pytest.fixture
def zoo(ensemble: Ensemble) -> Iterator[Any]:
    client = KazooClient(ensemble.hosts)
    client.start()
    yield client
    client.stop()
    client.close()


def behind(ensemble: Ensemble, proxy: Proxy) -> str:
    """The URL of a fresh root, through the proxy."""
    url = fresh(ensemble, timeout=SESSION)
    return url.replace(ensemble.hosts, f"127.0.0.1:{proxy.port}")


@pytest.mark.timing
def test_connection_whose_replies_vanish_is_given_up(ensemble: Ensemble, proxy: Proxy) -> None:
    with leaselock.Client(behind(ensemble, proxy), op_timeout=1.0) as client:
        lock = client.lock("a")
        assert not lock.locked()
        fault = proxy.lose_reply()
        began = time.monotonic()

        def answered() -> bool:
            try:
                return not lock.locked()
            except leaselock.StoreError:
                return False

        eventually(answered, LIMIT)
        fault.wait()
        # A third of the session, and the time for a new connection.
        assert time.monotonic() - began < SESSION


FROZEN = """
import os, leaselock
with leaselock.Client(os.environ["LEASELOCK_URL"], op_timeout=1.0) as client:
    client.lock("warm").acquire().release()
    print("ready", flush=True)
    print(client.lock("frozen").acquire() is not None, flush=True)
"""


@pytest.mark.timing
def test_acquire_goes_on_after_the_process_was_frozen(ensemble: Ensemble, proxy: Proxy) -> None:
    fault = proxy.hold_reply(b"frozen")
    process = subprocess.Popen(
        [sys.executable, "-c", FROZEN],
        env=environment({"LEASELOCK_URL": behind(ensemble, proxy)}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        fault.wait()
        process.send_signal(19)  # SIGSTOP
        eventually(lambda: _state(process.pid) == "T")
        fault.pass_on()
        frozen = time.monotonic()
        # Longer than an answer may take, shorter than the session.
        eventually(lambda: time.monotonic() - frozen > 1.5)
        process.send_signal(18)  # SIGCONT
        out, err = process.communicate(timeout=LIMIT)
    finally:
        process.kill()
    assert out == "ready\nTrue\n", err


def _state(pid: int) -> str:
    with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
        return stat.read().rpartition(")")[2].split()[0]


def test_session_that_the_server_has_ended_is_reported_at_once(ensemble: Ensemble) -> None:
    lost = threading.Event()
    with leaselock.Client(fresh(ensemble, timeout=20)) as client:
        lease = client.lock("a", lease=60.0).acquire()
        lease.on_lost(lambda _: lost.set())
        # Closing a session ends it for all who have it.
        session = KazooClient(ensemble.hosts, client_id=connection_of(client).client.client_id)
        session.start()
        session.stop()
        session.close()
        assert lost.wait(LIMIT)
        # By the event, not at the next renewal, nor when its time ran out.
        with pytest.raises(leaselock.LeaseLost, match="session of its client has ended"):
            lease.ensure()


def test_name_with_a_leading_slash_is_warned_of(ensemble: Ensemble) -> None:
    with leaselock.Client(fresh(ensemble)) as client, pytest.warns(UserWarning, match="slash"):
        client.lock("/lockpath")


def test_extra_lock_patterns_are_those_of_kazoo(ensemble: Ensemble, zoo: Any) -> None:
    url = fresh(ensemble, extra_lock_patterns="__mine__")
    root = "/" + url.partition("://")[2].partition("/")[2].partition("?")[0]
    path = zoo.create(f"{root}/a/x__mine__", sequence=True, ephemeral=True, makepath=True)
    with leaselock.Client(url) as client:
        assert client.lock("a").try_acquire() is None
        zoo.delete(path)
        with client.lock("a"):
            pass


HANDLER = """
import sys
from kazoo.client import KazooClient
from kazoo.handlers import {module}
import leaselock

try:
    leaselock.Client(KazooClient(handler={module}.{name}()))
except TypeError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("module", "name"),
    [("gevent", "SequentialGeventHandler"), ("eventlet", "SequentialEventletHandler")],
)
def test_handlers_of_greenlets_without_patched_threads_are_refused(module: str, name: str) -> None:
    ended = script(HANDLER.format(module=module, name=name), flags=("-W", "ignore"))
    assert "monkey" in ended.stdout, ended
