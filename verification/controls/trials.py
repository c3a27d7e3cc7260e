"""Trials that are not in the hazard table: defects of one library or configuration.

As with hazards, an outcome is what was observed. Each trial reproduces a bug report.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from testkit.polling import poll_until
from testkit.proxy import Proxy
from testkit.servers.pgbouncer import PgBouncer
from verification.controls.peers import RedisPy, redis_of
from verification.hazards.methods import Method
from verification.hazards.naive_sql import connect
from verification.hazards.outcome import Outcome, failed, survived
from verification.hazards.trial import GRACE, LONG

from leaselock.testing.checker import check
from leaselock.testing.history import History
from leaselock.testing.recorder import Recorder
from leaselock.testing.verdict import Kind

if TYPE_CHECKING:
    from verification.hazards.trial import Trial

PEERS = "verification.controls.peers"


def peer(name: str, store: str, kind: str) -> Method:
    """Return a locking method that uses another library's lock."""
    return Method(name, store, f"{PEERS}:{kind}")


# The rival of `overflow`.
BEYOND = peer("kazoo Lock, counter beyond its end", "zookeeper", "KazooBeyond")
ROUNDS = 600
TIMEOUT_MS = 20
APART = 0.15
BRIEF_LEASE = 0.1
UNWOKEN = 5.0


class At(NamedTuple):
    """A server on this machine."""

    port: int


def cancelled(trial: Trial) -> Outcome:
    """A task is cancelled while the reply to its acquire is in flight (redis.asyncio's Lock)."""
    (address,) = trial.store.addresses()
    with Proxy(address[1]) as proxy:
        asyncio.run(_cancelled(proxy, trial.name))
    left = redis_of(trial.url).exists(trial.name)
    seen = "the key stays without a time to live, and has no owner"
    return failed(seen) if left else survived("nothing is left")


async def _cancelled(proxy: Proxy, name: str) -> None:
    client: Any = import_module("redis.asyncio").Redis(port=proxy.port)
    await client.ping()
    fault = proxy.hold_reply(b"SET")
    task = asyncio.create_task(client.lock(name).acquire())
    await asyncio.to_thread(fault.wait)
    # Give the server time to execute the request.
    await asyncio.sleep(0.1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    fault.pass_on()
    await client.aclose()


def second_try(trial: Trial) -> Outcome:
    """A holder acquires again with the same object, is refused, and releases (pottery)."""
    holder, third = trial.worker(), trial.worker()
    trial.must_acquire(holder)
    if trial.try_acquire(holder).held:
        return survived("the second acquire was granted")
    reported = trial.release(holder)
    if trial.acquire_within(third, 1.0).held:
        return survived(f"free after the release, which {reported}")
    return failed(f"the release {reported}, and the lock stays held")


def one_master_dead(trial: Trial) -> Outcome:
    """One of three masters is dead. A majority is alive, so the lock must be granted or free."""
    asker, successor = trial.observed_worker(), trial.worker()
    asker.warm_up()
    asker.connection.proxies[0].refuse()
    answer = trial.try_acquire(asker.worker)
    if answer.held:
        return survived("granted by the other two")
    if trial.acquire_within(successor, GRACE).held:
        return survived(f"not granted, and nothing is left; it raised {answer.error}")
    return failed(f"it raised {answer.error}, and two masters keep the lock, for {LONG:.0f} s")


def overflow(trial: Trial) -> Outcome:
    """The counter of sequential nodes passes 2147483647 while the lock is held. (The trial sets the
    numbers: a server would need weeks to count so far.)
    """
    holder, rival = trial.worker(), trial.pool.take()
    trial.workers.append(rival)
    rival.start_program(BEYOND, trial.url)
    trial.must_acquire(holder)
    if trial.try_acquire(rival).held:
        return failed("the next node has the number -2147483648 (set by the trial), and both hold")
    return survived("the next one waits")


def pooled(trial: Trial) -> Outcome:
    """Session locks through a proxy with transaction pooling (pgbouncer)."""
    (address,) = trial.store.addresses()
    with PgBouncer(At(address[1])) as bouncer:
        first, second = connect(bouncer.url), connect(bouncer.url)
        got = [_try_advisory(connection) for connection in (first, second)]
        first.close()
        second.close()
        third = connect(trial.url)
        stays = not _try_advisory(third)
        third.close()
    if all(got):
        return failed(f"two clients hold one lock{'; it stays when both are gone' * stays}")
    return survived("one of two holds it")


def _try_advisory(connection: Any) -> bool:
    row = connection.execute("SELECT pg_try_advisory_lock(99)").fetchone()
    return bool(row[0])


def late_grant(trial: Trial) -> Outcome:
    """lock_timeout ends a wait at the moment of the grant: refused, but held."""
    holder, waiter = connect(trial.url), connect(trial.url)
    waiter.execute(f"SET lock_timeout = {TIMEOUT_MS}")
    ghosts = refused = 0
    for number in range(ROUNDS):
        holder.execute("SELECT pg_advisory_lock(7)")
        after = (TIMEOUT_MS - 1.5 + 4 * (number % 40) / 40) / 1000
        free = threading.Timer(after, holder.execute, ("SELECT pg_advisory_unlock(7)",))
        free.start()
        try:
            waiter.execute("SELECT pg_advisory_lock(7)")
        except import_module("psycopg").errors.LockNotAvailable:
            refused += 1
            free.join()
            ghosts += not _free(holder)
        free.join()
        waiter.execute("SELECT pg_advisory_unlock_all()")
    holder.close()
    waiter.close()
    if ghosts:
        return failed(f"held after {ghosts} of {refused} refusals, by a session that got an error")
    return survived(f"not held after {refused} refusals")


def _free(connection: Any) -> bool:
    """Return whether another session can acquire it."""
    row = connection.execute("SELECT pg_try_advisory_lock(7)").fetchone()
    if row[0]:
        connection.execute("SELECT pg_advisory_unlock(7)")
    return bool(row[0])


def failing_body(trial: Trial) -> Outcome:
    """A statement in the body fails; the connection returns to its pool (sqlalchemy-dlock)."""
    alchemy, dlock = import_module("sqlalchemy"), import_module("sqlalchemy_dlock")
    url = trial.store.given_url.replace("postgresql://", "postgresql+psycopg://")
    engine = alchemy.create_engine(url, pool_size=1)
    error_name = ""
    try:
        with engine.connect() as connection, dlock.create_sadlock(connection, trial.name):
            connection.execute(alchemy.text("SELECT 1 / 0"))
    except alchemy.exc.DBAPIError as error:
        error_name = type(error.orig).__name__
    free = _others_can(engine, dlock, url, trial.name)
    engine.dispose()
    if free:
        return survived(f"the body raised {error_name}, and the lock is free")
    return failed(f"the body raised {error_name} instead of its own error, and the lock stays held")


def _others_can(engine: Any, dlock: Any, url: str, name: str) -> bool:
    """Return whether a connection outside the pool can acquire the lock."""
    other = import_module("sqlalchemy").create_engine(url)
    with other.connect() as connection:
        lock = dlock.create_sadlock(connection, name)
        got = bool(lock.acquire(block=False))
        if got:
            lock.release()
    other.dispose()
    return got


def never_granted(trial: Trial) -> Outcome:
    """A free lock is acquired without a timeout on MariaDB (sqlalchemy-dlock)."""
    alchemy, dlock = import_module("sqlalchemy"), import_module("sqlalchemy_dlock")
    engine = alchemy.create_engine(trial.store.given_url.replace("mysql://", "mysql+pymysql://"))
    with engine.connect() as connection:
        lock = dlock.create_sadlock(connection, trial.name)
        try:
            got, error_name = bool(lock.acquire()), ""
        except Exception as error:
            # Any exception of the library counts as a refusal.
            got, error_name = False, type(error).__name__
        if got:
            lock.release()
    engine.dispose()
    return survived("granted") if got else failed(f"a free lock was refused: {error_name}")


def one_of_many_names(trial: Trial) -> Outcome:
    """Two names, of which only the first is held (tooz on PostgreSQL)."""
    coordination = import_module("tooz.coordination")
    people = [coordination.get_coordinator(trial.store.given_url, who) for who in (b"a", b"b")]
    for who in people:
        who.start()
    first, second = people[0].get_lock(b"lock-2"), people[1].get_lock(b"lock-137")
    assert first.acquire(blocking=False)
    got = second.acquire(blocking=False)
    if got:
        second.release()
    first.release()
    for who in people:
        who.stop()
    if got:
        return survived("two names are two locks")
    return failed("the names lock-2 and lock-137 are one lock: names are hashed to 16 bits")


def replaced_file(trial: Trial) -> Outcome:
    """The file is removed while it is locked, as by a clean-up job (filelock)."""
    filelock = import_module("filelock")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.lock"
        first, second = filelock.FileLock(path), filelock.FileLock(path)
        first.acquire()
        path.unlink()
        try:
            second.acquire(timeout=0.5)
        except filelock.Timeout:
            return survived("the second one waits")
        both = bool(first.is_locked and second.is_locked)
        second.release()
        first.release()
    return failed("both hold") if both else survived("the first one knows")


def wait_begins_again(trial: Trial) -> Outcome:
    """A wait of one second, while three earlier waiters give up one after another (kazoo)."""
    holder, waiter = trial.worker(), trial.worker()
    others = [trial.worker() for _ in range(3)]
    trial.must_acquire(holder)
    for number, other in enumerate(others):
        other.begin("acquire", trial.name, LONG, True, 0.95 * (3 - number))
        time.sleep(APART)
    began = time.monotonic()
    trial.acquire_within(waiter, 1.0)
    took = time.monotonic() - began
    seen = f"it waited {took:.1f} s instead of 1"
    return failed(seen) if took > 1.5 else survived(seen)


def unwoken(trial: Trial) -> Outcome:
    """A holder with a lease of one second dies; a client waits for longer (python-redis-lock)."""
    holder, waiter = trial.worker(), trial.worker()
    trial.must_acquire(holder, 1.0)
    waiter.begin("acquire", trial.name, LONG, True, LONG)
    time.sleep(APART)
    holder.kill()
    began = time.monotonic()
    if poll_until(waiter.ready, UNWOKEN):
        return survived(f"granted {time.monotonic() - began:.1f} s after the holder died")
    free = trial.try_acquire(trial.worker()).held
    return failed(f"still waits {UNWOKEN:.0f} s after the holder died{', and it is free' * free}")


def recorded(trial: Trial) -> Outcome:
    """Workers record a history while the work of one outlives its lease; the checker reads it
    (redis-py's Lock). With a long lease it must find nothing.
    """
    sound = _overlaps(trial, LONG)
    if sound.overlaps:
        raise RuntimeError(f"the checker found {sound}, where there is nothing")
    trial.name += ".brief"
    found = _overlaps(trial, BRIEF_LEASE)
    seen = f"the checker found {found.overlaps} overlaps among {found.grants} grants"
    return failed(seen) if found.overlaps else survived(seen)


class Found(NamedTuple):
    """The result of the checker."""

    overlaps: int
    grants: int


def _overlaps(trial: Trial, lease: float) -> Found:
    over = threading.Event()
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(folder)
        others = [
            threading.Thread(target=_work, args=(trial, recorder, lease, over)) for _ in range(3)
        ]
        for other in others:
            other.start()
        for _ in range(4):
            # Three times as long as the brief lease.
            _hold(trial, recorder, lease, 3 * BRIEF_LEASE)
        over.set()
        for other in others:
            other.join()
        recorder.close()
        verdict = check(History.read(Path(folder)))
    overlaps = sum(violation.kind is Kind.OVERLAP for violation in verdict.violations)
    return Found(overlaps, verdict.counts.grants)


def _work(trial: Trial, recorder: Recorder, lease: float, over: threading.Event) -> None:
    while not over.is_set():
        _hold(trial, recorder, lease, BRIEF_LEASE / 5)


def _hold(trial: Trial, recorder: Recorder, lease: float, length: float) -> None:
    program = RedisPy(trial.url)
    attempt = recorder.acquiring(trial.name)
    if program.acquire(trial.name, lease, renew=False, timeout=10.0) is None:
        attempt.refused()
        return
    attempt.granted(None)
    time.sleep(length)
    attempt.releasing()
    try:
        program.release(trial.name)
    except import_module("redis").exceptions.LockError:
        attempt.release_lost()
    else:
        attempt.released()
    program.close()
