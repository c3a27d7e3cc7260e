"""Invalid numbers, labels and protocols are rejected, and no lock is acquired."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from testkit.conformance.scenario import raising, scenario

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from testkit.conformance.harness import Harness

NAN, INF = float("nan"), float("inf")
NEGATIVE: list[object] = [-1, -0.001, -INF, NAN]
NO_NUMBERS: list[object] = [True, False, "3", b"3", [1.0], 1j]
# Seconds for a call that must fail without waiting, although the lock is held.
AT_ONCE = 10.0


@scenario()
async def lease_is_a_positive_number_of_seconds(harness: Harness) -> None:
    """ValueError for a wrong number, TypeError for other types."""
    for bad in (*NEGATIVE, 0, 0.0, INF, 1e300):
        with raising(ValueError, "lease"):
            harness.lock("a", lease=bad)
    for bad in (*NO_NUMBERS, None):
        with raising(TypeError, "lease"):
            harness.lock("a", lease=bad)


@scenario()
async def timeout_is_a_number_of_seconds(harness: Harness) -> None:
    """For the lock's own timeout, infinity and None are allowed."""
    for bad in NEGATIVE:
        with raising(ValueError, "timeout"):
            harness.lock("a", timeout=bad)
    for bad in NO_NUMBERS:
        with raising(TypeError, "timeout"):
            harness.lock("a", timeout=bad)
    for good in (0, 0.0, 1, 0.5, INF, None):
        assert harness.lock("a", timeout=good).name == "a"


@scenario()
async def timeout_of_acquire_is_a_number_of_seconds(harness: Harness) -> None:
    """Checked for a free lock, which stays free, and for a held one."""
    for name in ("free", "taken"):
        if name == "taken":
            taken = await harness.must_acquire(harness.client().lock(name))
        lock = harness.lock(name)
        bad: Any
        for bad in NEGATIVE:
            await _refused(harness, ValueError, "timeout", partial(lock.acquire, timeout=bad))
        for bad in NO_NUMBERS:
            await _refused(harness, TypeError, "timeout", partial(lock.acquire, timeout=bad))
    assert [report.name for report in await harness.first.locks()] == ["taken"]
    await taken.release()


async def _refused(
    harness: Harness,
    kind: type[Exception],
    word: str,
    call: Callable[..., Coroutine[Any, Any, object]],
    *arguments: object,
) -> None:
    other = harness.spawn(call, *arguments)
    await harness.wait_until(other.ended, AT_ONCE)
    error = await other.end()
    assert isinstance(error, kind), f"{arguments!r} was not refused by {kind.__name__}: {error!r}"
    assert word in str(error)


@scenario()
async def nested_acquire_checks_its_timeout(harness: Harness) -> None:
    """An invalid timeout is an error even if the owner holds the lock."""
    lock = harness.lock("a")
    bad: Any
    async with lock as lease:
        for bad in NEGATIVE:
            with raising(ValueError, "timeout"):
                await lock.acquire(timeout=bad)
        lease.ensure()
    assert not await lock.locked()


@scenario()
async def extension_is_a_positive_number_of_seconds(harness: Harness) -> None:
    """After an error the lease is unchanged."""
    lease = await harness.must_acquire(harness.lock("a", lease=20.0))
    bad: Any
    for bad in (*NEGATIVE, 0, 0.0, INF):
        with raising(ValueError, "extend"):
            await lease.extend(bad)
    for bad in NO_NUMBERS:
        with raising(TypeError, "extend"):
            await lease.extend(bad)
    await lease.extend()  # by the length of the lease
    assert 0.0 < lease.remaining <= 20.0


@scenario()
async def token_is_a_positive_integer(harness: Harness) -> None:
    """For adopt and for break_lock."""
    for bad in (0, -1, 2**63):
        with raising(ValueError, "token"):
            await harness.first.adopt("a", bad)
        with raising(ValueError, "token"):
            await harness.first.break_lock("a", token=bad)
    other: Any
    for other in ("1", 1.0, True):
        with raising(TypeError, "token"):
            await harness.first.adopt("a", other)
        with raising(TypeError, "token"):
            await harness.first.break_lock("a", token=other)


@scenario()
async def label_is_text(harness: Harness) -> None:
    """For the lock and for the client."""
    with raising(TypeError, "label"):
        harness.lock("a", label=5)
    with raising(TypeError, "label"):
        harness.connect(harness.url, label=b"bytes")


@scenario()
async def unknown_protocol_is_rejected(harness: Harness) -> None:
    """The ValueError lists the known protocols, and each of them works."""
    with raising(ValueError, "no such protocol", *harness.store.protocols):
        harness.lock("a", protocol="no such protocol")
    for protocol in harness.store.protocols:
        async with harness.lock(f"by {protocol}", protocol=protocol):
            assert await harness.first.lock(f"by {protocol}", protocol=protocol).locked()


@scenario()
async def protocol_of_the_url_is_the_default(harness: Harness) -> None:
    """An unknown one is rejected."""
    joint = "&" if "?" in harness.url else "?"
    for protocol in harness.store.protocols:
        client = harness.connect(f"{harness.url}{joint}protocol={protocol}")
        async with client.lock("a"):
            assert await client.lock("a").locked()
        await client.close()
    with raising(ValueError, "nosuchprotocol", *harness.store.protocols):
        harness.connect(f"{harness.url}{joint}protocol=nosuchprotocol").lock("a")


@scenario()
async def unknown_store_is_rejected(harness: Harness) -> None:
    """ValueError for an unknown URL, TypeError for a wrong type."""
    for bad in ("nosuch://place", "nothing", ""):
        with raising(ValueError):
            harness.connect(bad or ":")
    with raising(TypeError):
        harness.connect(5)  # type: ignore[arg-type]
