"""The weaknesses of the older formats on a real server, as the page redis-formats lists them."""

from __future__ import annotations

import time
import warnings
from typing import TYPE_CHECKING

import pytest
from testkit.proxy import Proxy
from tests.pace import pace

import leaselock
from leaselock._backends.redis.keys import keys_of

if TYPE_CHECKING:
    from testkit.servers.redis import Redis

pytestmark = pytest.mark.filterwarnings("ignore::leaselock.UnsafeProtocolWarning")

SOON = 60.0
# The longest that a client waits when it closes; on a slow machine a request takes as long.
OP_TIMEOUT = 60.0


def client_of(server: Redis, form: str) -> leaselock.Client:
    return leaselock.Client(f"{server.url}?protocol={form}", op_timeout=OP_TIMEOUT)


@pytest.fixture(autouse=True)
def empty(server: Redis) -> None:
    server.ask("FLUSHALL")


@pytest.mark.parametrize("form", ["setnx-expire", "getset", "setnx", "incr"])
def test_unsafe_formats_warn(server: Redis, form: str) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with client_of(server, form) as client, client.lock("a"):
            pass
    assert any(form in str(w.message) and "hash" in str(w.message) for w in caught)
    assert {w.category for w in caught} == {leaselock.UnsafeProtocolWarning}


@pytest.mark.parametrize("form", ["hash", "string"])
def test_safe_formats_do_not_warn(server: Redis, form: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with client_of(server, form) as client, client.lock("a"):
            pass


def test_a_crash_between_setnx_and_expire_holds_until_the_next_request(server: Redis) -> None:
    server.ask("SETNX", "lock:a", "client that died before EXPIRE")
    assert server.ask("TTL", "lock:a") == -1
    with client_of(server, "setnx-expire") as client:
        assert client.lock("a", lease=1.0).try_acquire() is None
        # It has a time to live now, or it has expired already.
        assert server.ask("TTL", "lock:a") in (0, 1, -2)
        with client.lock("a", timeout=SOON):
            pass


def test_setnx_expire_is_shared_with_a_program_that_uses_transactions(server: Redis) -> None:
    """That program releases with WATCH, GET, MULTI, DEL, EXEC, and leaselock with a script."""
    with client_of(server, "setnx-expire") as client, server.wire() as other:
        assert other.ask("SETNX", "lock:a", "other") == 1
        assert other.ask("EXPIRE", "lock:a", 100) == 1
        assert client.lock("a").try_acquire() is None
        other.ask("WATCH", "lock:a")
        assert other.ask("GET", "lock:a") == "other"
        other.ask("MULTI")
        other.ask("DEL", "lock:a")
        assert other.ask("EXEC") == [1]
        for end in ("extended", "released"):
            lease = client.lock("a").acquire(timeout=SOON)
            assert other.ask("SETNX", "lock:a", "other") == 0
            other.ask("WATCH", "lock:a")
            if end == "extended":
                lease.extend(100.0)
            else:
                lease.release()
            other.ask("MULTI")
            other.ask("SET", "lock:a", "other")
            assert other.ask("EXEC") is None
            assert server.ask("EXISTS", "lock:a") == (end == "extended")
            if end == "extended":
                lease.release()


def test_a_shorter_extension_does_not_shorten(server: Redis) -> None:
    with client_of(server, "setnx-expire") as client:
        lease = client.lock("a", lease=20.0, renew=False).acquire()
        assert lease is not None
        lease.extend(100.0)
        lease.extend(1.0)
        assert server.ask("TTL", "lock:a") > 90
        lease.release()


def test_a_clock_that_runs_ahead_takes_a_lock_that_is_held(
    server: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two clients hold valid leases: the format is unsafe, and only tokens help."""
    with client_of(server, "getset") as honest:
        held = honest.lock("a", lease=30.0).acquire()
        assert held is not None
        true_time = time.time
        monkeypatch.setattr("time.time", lambda: true_time() + 60.0)
        with client_of(server, "getset") as ahead:
            other = ahead.lock("a", lease=30.0).acquire(timeout=0)
            held.ensure()
            assert other.token > held.token
            other.release()
        monkeypatch.undo()
        with pytest.raises(leaselock.LeaseLost):
            held.release()


def test_the_loser_of_a_getset_changes_the_winners_time(server: Redis) -> None:
    """The last GETSET wins: the value that remains is the loser's."""
    server.ask("SET", "lock:a", "1000")
    with client_of(server, "getset") as client:
        lease = client.lock("a", lease=30.0).acquire()
        assert lease is not None
        winner = int(server.ask("GET", "lock:a"))
        server.ask("GETSET", "lock:a", str(winner + 5000))
        with pytest.raises(leaselock.LeaseLost):
            lease.release()
        assert int(server.ask("GET", "lock:a")) == winner + 5000


@pytest.mark.parametrize("form", ["setnx", "incr"])
def test_after_a_crash_the_lock_must_be_broken(server: Redis, form: str) -> None:
    with client_of(server, form) as client:
        with client.lock("a") as lease:
            pass
        server.ask("SET", "lock:a", "1")  # as a client that died has left it
        assert client.lock("a", lease=0.1).try_acquire(timeout=0.3) is None
        assert server.ask("TTL", "lock:a") == -1
        assert client.break_lock("a") is not None
        with client.lock("a", timeout=SOON) as later:
            assert later.token > lease.token


def test_a_lost_reply_to_incr_leaves_a_hold_without_owner(server: Redis) -> None:
    with Proxy(server.port) as proxy:
        url = f"redis://127.0.0.1:{proxy.port}/0?protocol=incr"
        with leaselock.Client(url, op_timeout=0.5 * pace()) as client:
            with client.lock("warm"):
                pass
            proxy.lose_reply(b"INCR")
            assert client.lock("a").try_acquire() is None
        assert int(server.ask("GET", "lock:a")) > 1
        with client_of(server, "incr") as client:
            assert client.lock("a").try_acquire(timeout=0.2) is None
            assert "another program" in str(client.lock("a").holder())


def test_a_del_of_any_client_frees_the_lock(server: Redis) -> None:
    with client_of(server, "incr") as one, client_of(server, "incr") as two:
        lease = one.lock("a").acquire()
        assert lease is not None
        server.ask("DEL", "lock:a")
        other = two.lock("a").acquire(timeout=0)
        lease.ensure()  # both leases are valid
        other.release()


@pytest.mark.parametrize("form", ["setnx-expire", "getset", "setnx", "incr"])
def test_a_record_of_another_type_keeps_no_hold_and_no_client_that_closes(
    server: Redis, form: str
) -> None:
    """The record is of another program. The holder knows that it holds; the other client knows that
    it does not, and need not wait until its release is answered.
    """
    with client_of(server, form) as holder, client_of(server, form) as other:
        lease = holder.lock("a").acquire()
        server.ask("DEL", keys_of("a").record)
        server.ask("RPUSH", keys_of("a").record, "junk")
        with pytest.raises(leaselock.StoreError, match="WRONGTYPE"):
            other.lock("a").try_acquire()
        began = time.monotonic()
        other.close()
        assert time.monotonic() - began < OP_TIMEOUT
        assert server.ask("EXISTS", "lock:a") == 1
        lease.release()
        assert server.ask("EXISTS", "lock:a") == 0
        assert server.ask("EXISTS", keys_of("a").record) == 0


def test_a_hash_is_refused_as_a_string(server: Redis) -> None:
    with (
        client_of(server, "hash") as now,
        client_of(server, "setnx-expire") as before,
        now.lock("a"),
        pytest.raises(leaselock.NotApplied, match="value of another type, which is not a lock"),
    ):
        before.lock("a").acquire(timeout=0)


@pytest.mark.parametrize("form", ["hash", "string", "setnx-expire"])
def test_a_lock_of_another_format_does_not_hide_the_others(server: Redis, form: str) -> None:
    other = "string" if form == "hash" else "hash"
    with (
        client_of(server, other) as theirs,
        client_of(server, form) as ours,
        theirs.lock("a"),
        ours.lock("b"),
    ):
        first, second = ours.locks()
        assert (first.name, second.name, second.unreadable) == ("a", "b", None)
        assert first.unreadable is not None
        assert "'lock:a'" in first.unreadable
