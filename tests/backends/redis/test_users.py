"""Users with few permissions: those on the page suffice, and missing ones are reported.

Invariants: a missing permission raises `NotApplied` with its name, and later replies are matched to
the right requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from testkit.servers.redis import Redis
from testkit.servers.rights import channels, commands, keys
from tests.backends.redis.fixture import HARNESSES, STORE, TIMEOUT

from leaselock import NotApplied

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from testkit.conformance.api_types import Client
    from testkit.conformance.harness import Harness

COLOURS = ("threads", "asyncio")
KEYS, CHANNELS, COMMANDS = " ".join(keys()), " ".join(channels()), " ".join(commands())
USERS = [
    "user default on nopass ~* &* +@all",
    f"user locks on >pw resetchannels {KEYS} {CHANNELS} -@all {COMMANDS}",
    f"user mute on >pw resetchannels {KEYS} -@all {COMMANDS}",
    f"user unscripted on >pw resetchannels {KEYS} {CHANNELS} -@all {COMMANDS} -@scripting",
    f"user endless on >pw resetchannels {KEYS} {CHANNELS} -@all {COMMANDS} -pexpire",
]


@pytest.fixture(scope="module")
def guarded() -> Iterator[Redis]:
    with Redis(acl=USERS) as server:
        yield server


def url_of(server: Redis, user: str, password: str = "pw") -> str:
    return f"redis://{user}:{password}@127.0.0.1:{server.port}/0"


def harness_of(colour: str, server: Redis, folder: Path, user: str) -> Harness:
    server.ask("FLUSHALL")
    return HARNESSES[colour](STORE, url_of(server, user), folder)


@pytest.mark.parametrize("colour", COLOURS)
def test_a_user_with_these_rights_can_do_everything(
    colour: str, guarded: Redis, tmp_path: Path
) -> None:
    harness = harness_of(colour, guarded, tmp_path, "locks")

    async def scenario() -> None:
        lock = harness.lock("orders:5")
        for _ in range(3):
            lease = await harness.must_acquire(lock)
            waiter = harness.spawn(taken, harness)
            await harness.wait_for_waiters(lock, 1)
            await lease.extend(TIMEOUT)
            assert [report.name for report in await harness.first.locks("*")] == ["orders:5"]
            await lease.release()
            assert await waiter.join() > lease.token

    harness.run(harness.run_and_close(scenario()))


async def taken(harness: Harness) -> int:
    lease = await harness.must_acquire(harness.lock("orders:5"))
    await lease.release()
    return lease.token


async def refusal(work: Any) -> str:
    """Return the message of the refusal."""
    with pytest.raises(NotApplied) as refused:
        await work
    return str(refused.value)


@pytest.mark.parametrize("colour", COLOURS)
def test_a_refused_subscription_affects_no_other_reply(
    colour: str, guarded: Redis, tmp_path: Path
) -> None:
    harness = harness_of(colour, guarded, tmp_path, "mute")

    async def scenario() -> None:
        other = harness.connect(guarded.url)
        harness.clients.append(other)
        held = await harness.must_acquire(other.lock("orders:held"))
        for _ in range(20):
            refused = harness.spawn(
                refusal, harness.lock("orders:held").try_acquire(timeout=TIMEOUT)
            )
            free = [harness.spawn(in_and_out, harness, other, f"orders:{n}") for n in range(5)]
            busy = [harness.spawn(harness.lock("orders:held").try_acquire) for _ in range(5)]
            assert "permission" in await refused.join()
            for one in free:
                await one.join()
            assert [await one.join() for one in busy] == [None] * 5
        await held.release()

    harness.run(harness.run_and_close(scenario()))


async def in_and_out(harness: Harness, other: Client, name: str) -> None:
    """The store agrees with each grant and each release."""
    lease = await harness.must_acquire(harness.lock(name))
    assert await holder_of(other, name) == lease.token
    await lease.release()
    assert await holder_of(other, name) is None


async def holder_of(client: Client, name: str) -> int | None:
    holder = await client.lock(name).holder()
    return None if holder is None else holder.token


@pytest.mark.parametrize("colour", COLOURS)
def test_without_pexpire_no_lock_without_expiry_is_made(
    colour: str, guarded: Redis, tmp_path: Path
) -> None:
    """A refused request changes nothing (hazards A11, D14)."""
    harness = harness_of(colour, guarded, tmp_path, "endless")

    async def scenario() -> None:
        with pytest.raises(NotApplied, match="permission denied"):
            await harness.lock("orders:5").acquire(timeout=0)
        assert guarded.ask("EXISTS", "lock:orders:5") == 0

    harness.run(harness.run_and_close(scenario()))


@pytest.mark.parametrize("colour", COLOURS)
def test_a_lock_outside_of_the_users_keys_is_refused(
    colour: str, guarded: Redis, tmp_path: Path
) -> None:
    harness = harness_of(colour, guarded, tmp_path, "locks")

    async def scenario() -> None:
        assert "permission" in await refusal(harness.lock("others:5").try_acquire())
        lease = await harness.must_acquire(harness.lock("orders:5"))
        await lease.release()

    harness.run(harness.run_and_close(scenario()))


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize(("user", "password"), [("locks", "wrong"), ("unscripted", "pw")])
def test_a_refused_login_does_not_reveal_the_password(
    user: str, password: str, colour: str, guarded: Redis, tmp_path: Path
) -> None:
    harness = HARNESSES[colour](STORE, url_of(guarded, user, password), tmp_path)

    async def scenario() -> None:
        message = await refusal(harness.lock("orders:5").try_acquire(timeout=1))
        assert "permission" in message
        assert password not in message
        assert password not in repr(harness.first)

    harness.run(harness.run_and_close(scenario()))
