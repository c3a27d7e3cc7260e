"""Plays that the hazard table does not have: what befalls one library, or one way to set up.

Law: as for hazards: an outcome is what was seen. Each is what a report says, done for real.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.controls.peers import RedisPy, redis_of
from tests.servers.pgbouncer import PgBouncer

from leaselock.testing.checker import check
from leaselock.testing.hazards.naive_sql import connected
from leaselock.testing.hazards.outcome import Outcome, failed, survived
from leaselock.testing.hazards.scene import GRACE, LONG
from leaselock.testing.history import History
from leaselock.testing.polling import poll_until as until
from leaselock.testing.proxy import Proxy
from leaselock.testing.recorder import Recorder
from leaselock.testing.verdict import Kind

if TYPE_CHECKING:
    from leaselock.testing.hazards.scene import Scene

ROUNDS = 600
PATIENCE_MS = 20
APART = 0.15
BRIEF_LEASE = 0.1
UNWOKEN = 5.0


class At(NamedTuple):
    """A server on this machine."""

    port: int


def cancelled(scene: Scene) -> Outcome:
    """A task is cancelled while the answer to its acquire is under way (redis.asyncio's Lock)."""
    (address,) = scene.place.addresses()
    with Proxy(address[1]) as proxy:
        asyncio.run(_cancelled(proxy, scene.name))
    left = redis_of(scene.url).exists(scene.name)
    seen = "the key stays, without a time to live, and nobody holds it"
    return failed(seen) if left else survived("nothing is left")


async def _cancelled(proxy: Proxy, name: str) -> None:
    client: Any = import_module("redis.asyncio").Redis(port=proxy.port)
    await client.ping()
    fault = proxy.hold_reply(b"SET")
    task = asyncio.create_task(client.lock(name).acquire())
    await asyncio.to_thread(fault.wait)
    # The server has it by the time that it has answered somebody else.
    await asyncio.sleep(0.1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    fault.pass_on()
    await client.aclose()


def second_try(scene: Scene) -> Outcome:
    """A holder asks again with the same object, is refused, and releases what it has (pottery)."""
    holder, third = scene.actor(), scene.actor()
    scene.hold(holder)
    if scene.take(holder).held:
        return survived("the second acquire was granted")
    told = scene.release(holder)
    if scene.wait(third, 1.0).held:
        return survived(f"free after the release, which {told}")
    return failed(f"the release {told}, and the lock stays held")


def one_master_dead(scene: Scene) -> Outcome:
    """One of three masters is dead. A majority is there, so the lock must be granted or free."""
    asker, heir = scene.slow(), scene.actor()
    asker.warm()
    asker.line.proxies[0].refuse()
    answer = scene.take(asker.actor)
    if answer.held:
        return survived("granted by the other two")
    if scene.wait(heir, GRACE).held:
        return survived(f"not granted, and nothing is left; it said {answer.said}")
    return failed(f"it said {answer.said}, and two masters keep the lock, for {LONG:.0f} s")


def overflow(scene: Scene) -> Outcome:
    """The counter of sequential nodes passes 2147483647 while somebody holds. (The numbers are
    given by hand: to count so far, a server would need weeks.)
    """
    from tests.controls.controls import BEYOND

    holder, rival = scene.actor(), scene.crew.hire()
    scene.hired.append(rival)
    rival.become(BEYOND, scene.url)
    scene.hold(holder)
    if scene.take(rival).held:
        return failed("the next one is given the number -2147483648 (by hand), and both hold")
    return survived("the next one waits")


def pooled(scene: Scene) -> Outcome:
    """Session locks through a proxy that pools transactions (pgbouncer)."""
    (address,) = scene.place.addresses()
    with PgBouncer(At(address[1])) as bouncer:
        first, second = connected(bouncer.url), connected(bouncer.url)
        got = [_try_advisory(connection) for connection in (first, second)]
        first.close()
        second.close()
        third = connected(scene.url)
        stays = not _try_advisory(third)
        third.close()
    if all(got):
        return failed(f"two clients hold one lock{'; it stays when both are gone' * stays}")
    return survived("one of two holds it")


def _try_advisory(connection: Any) -> bool:
    row = connection.execute("SELECT pg_try_advisory_lock(99)").fetchone()
    return bool(row[0])


def late_grant(scene: Scene) -> Outcome:
    """lock_timeout ends a wait at the moment of the grant: refused, and yet held."""
    holder, waiter = connected(scene.url), connected(scene.url)
    waiter.execute(f"SET lock_timeout = {PATIENCE_MS}")
    ghosts = refused = 0
    for number in range(ROUNDS):
        holder.execute("SELECT pg_advisory_lock(7)")
        after = (PATIENCE_MS - 1.5 + 4 * (number % 40) / 40) / 1000
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
        return failed(f"held after {ghosts} of {refused} refusals, by a session that was told no")
    return survived(f"not held after {refused} refusals")


def _free(connection: Any) -> bool:
    """Whether another session can have it."""
    row = connection.execute("SELECT pg_try_advisory_lock(7)").fetchone()
    if row[0]:
        connection.execute("SELECT pg_advisory_unlock(7)")
    return bool(row[0])


def failing_body(scene: Scene) -> Outcome:
    """A statement in the body fails; the connection goes back to its pool (sqlalchemy-dlock)."""
    alchemy, dlock = import_module("sqlalchemy"), import_module("sqlalchemy_dlock")
    url = scene.place.given.replace("postgresql://", "postgresql+psycopg://")
    engine = alchemy.create_engine(url, pool_size=1)
    told = ""
    try:
        with engine.connect() as connection, dlock.create_sadlock(connection, scene.name):
            connection.execute(alchemy.text("SELECT 1 / 0"))
    except alchemy.exc.DBAPIError as error:
        told = type(error.orig).__name__
    free = _others_can(engine, dlock, url, scene.name)
    engine.dispose()
    if free:
        return survived(f"the body was told {told}, and the lock is free")
    return failed(f"the body was told {told} instead of its own error, and the lock stays held")


def _others_can(engine: Any, dlock: Any, url: str, name: str) -> bool:
    """Whether another connection, outside of the pool, can have the lock."""
    other = import_module("sqlalchemy").create_engine(url)
    with other.connect() as connection:
        lock = dlock.create_sadlock(connection, name)
        got = bool(lock.acquire(block=False))
        if got:
            lock.release()
    other.dispose()
    return got


def never_granted(scene: Scene) -> Outcome:
    """A free lock is acquired without a timeout on MariaDB (sqlalchemy-dlock)."""
    alchemy, dlock = import_module("sqlalchemy"), import_module("sqlalchemy_dlock")
    engine = alchemy.create_engine(scene.place.given.replace("mysql://", "mysql+pymysql://"))
    with engine.connect() as connection:
        lock = dlock.create_sadlock(connection, scene.name)
        try:
            got, told = bool(lock.acquire()), ""
        except Exception as error:
            # Whatever the library says.
            got, told = False, type(error).__name__
        if got:
            lock.release()
    engine.dispose()
    return survived("granted") if got else failed(f"a free lock was refused: {told}")


def one_of_many_names(scene: Scene) -> Outcome:
    """Two names, of which nobody holds the second (tooz on PostgreSQL)."""
    coordination = import_module("tooz.coordination")
    people = [coordination.get_coordinator(scene.place.given, who) for who in (b"a", b"b")]
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
    return failed("the names lock-2 and lock-137 are one lock: 16 bits are kept of a name")


def replaced_file(scene: Scene) -> Outcome:
    """The file is removed under its holder, as a clean-up of a folder does (filelock)."""
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


def wait_begins_again(scene: Scene) -> Outcome:
    """A wait of one second, while three that stand before give up, one after another (kazoo)."""
    holder, waiter = scene.actor(), scene.actor()
    others = [scene.actor() for _ in range(3)]
    scene.hold(holder)
    for number, other in enumerate(others):
        other.begin("take", scene.name, LONG, True, 0.95 * (3 - number))
        time.sleep(APART)
    began = time.monotonic()
    scene.wait(waiter, 1.0)
    took = time.monotonic() - began
    seen = f"it waited {took:.1f} s instead of 1"
    return failed(seen) if took > 1.5 else survived(seen)


def unwoken(scene: Scene) -> Outcome:
    """A holder with a lease of a second dies; somebody waits, for longer (python-redis-lock)."""
    holder, waiter = scene.actor(), scene.actor()
    scene.hold(holder, 1.0)
    waiter.begin("take", scene.name, LONG, True, LONG)
    time.sleep(APART)
    holder.kill()
    began = time.monotonic()
    if until(waiter.ready, UNWOKEN):
        return survived(f"granted {time.monotonic() - began:.1f} s after the holder died")
    free = scene.take(scene.actor()).held
    return failed(f"still waits {UNWOKEN:.0f} s after the holder died{', and it is free' * free}")


def recorded(scene: Scene) -> Outcome:
    """Workers record what they are told, while the work of one outlives its lease; the checker of
    histories reads it (redis-py's Lock). With a lease that is long enough it must find nothing.
    """
    sound = _overlaps(scene, LONG)
    if sound.overlaps:
        raise RuntimeError(f"the checker found {sound}, where there is nothing")
    scene.name += ".brief"
    found = _overlaps(scene, BRIEF_LEASE)
    seen = f"the checker found {found.overlaps} overlaps among {found.grants} grants"
    return failed(seen) if found.overlaps else survived(seen)


class Found(NamedTuple):
    """What the checker found."""

    overlaps: int
    grants: int


def _overlaps(scene: Scene, lease: float) -> Found:
    over = threading.Event()
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(folder)
        others = [
            threading.Thread(target=_work, args=(scene, recorder, lease, over)) for _ in range(3)
        ]
        for other in others:
            other.start()
        for _ in range(4):
            # Three times as long as the brief lease.
            _hold(scene, recorder, lease, 3 * BRIEF_LEASE)
        over.set()
        for other in others:
            other.join()
        recorder.close()
        verdict = check(History.read(Path(folder)))
    overlaps = sum(violation.kind is Kind.OVERLAP for violation in verdict.violations)
    return Found(overlaps, verdict.counts.grants)


def _work(scene: Scene, recorder: Recorder, lease: float, over: threading.Event) -> None:
    while not over.is_set():
        _hold(scene, recorder, lease, BRIEF_LEASE / 5)


def _hold(scene: Scene, recorder: Recorder, lease: float, length: float) -> None:
    party = RedisPy(scene.url)
    attempt = recorder.acquiring(scene.name)
    if party.take(scene.name, lease, renew=False, patience=10.0) is None:
        attempt.refused()
        return
    attempt.granted(None)
    time.sleep(length)
    attempt.releasing()
    try:
        party.release(scene.name)
    except import_module("redis").exceptions.LockError:
        attempt.release_lost()
    else:
        attempt.released()
    party.close()
