"""Numbers, labels and protocols that make no sense are refused, and nothing is taken."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.testing.conformance.scenario import raising, scenario

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from leaselock.testing.conformance.world import World

NAN, INF = float("nan"), float("inf")
NEGATIVE: list[object] = [-1, -0.001, -INF, NAN]
NO_NUMBERS: list[object] = [True, False, "3", b"3", [1.0], 1j]
# A call that must be refused, and must not wait, though the lock is another's.
AT_ONCE = 10.0


@scenario()
async def a_lease_is_a_positive_number_of_seconds(world: World) -> None:
    """ValueError for what is no length, TypeError for what is no number."""
    for bad in (*NEGATIVE, 0, 0.0, INF, 1e300):
        with raising(ValueError, "lease"):
            world.lock("a", lease=bad)
    for bad in (*NO_NUMBERS, None):
        with raising(TypeError, "lease"):
            world.lock("a", lease=bad)


@scenario()
async def a_timeout_is_a_number_of_seconds(world: World) -> None:
    """Of the lock's own, infinity is allowed, and None."""
    for bad in NEGATIVE:
        with raising(ValueError, "timeout"):
            world.lock("a", timeout=bad)
    for bad in NO_NUMBERS:
        with raising(TypeError, "timeout"):
            world.lock("a", timeout=bad)
    for good in (0, 0.0, 1, 0.5, INF, None):
        assert world.lock("a", timeout=good).name == "a"


@scenario()
async def a_timeout_of_a_call_is_a_number_of_seconds(world: World) -> None:
    """On a free lock, where nothing is taken, and on one that another holds."""
    for name in ("free", "taken"):
        if name == "taken":
            await world.take(world.client().lock(name))
        lock = world.lock(name)
        for bad in NEGATIVE:
            await _refused(world, ValueError, "timeout", lock.acquire, bad)
        for bad in NO_NUMBERS:
            await _refused(world, TypeError, "timeout", lock.acquire, bad)
    assert [report.name for report in await world.first.locks()] == ["taken"]


async def _refused(
    world: World,
    kind: type[Exception],
    word: str,
    call: Callable[..., Coroutine[Any, Any, object]],
    *arguments: object,
) -> None:
    other = world.spawn(call, *arguments)
    await world.until(other.ended, AT_ONCE)
    error = await other.end()
    assert isinstance(error, kind), f"{arguments!r} was not refused by {kind.__name__}: {error!r}"
    assert word in str(error)


@scenario()
async def a_nested_acquire_is_asked_in_the_same_terms(world: World) -> None:
    """A timeout that makes no sense is an error of the caller, held or not."""
    lock = world.lock("a")
    async with lock as lease:
        for bad in NEGATIVE:
            with raising(ValueError, "timeout"):
                await lock.acquire(bad)
        lease.ensure()
    assert not await lock.locked()


@scenario()
async def an_extension_is_a_positive_number_of_seconds(world: World) -> None:
    """The lease stays what it was."""
    lease = await world.take(world.lock("a", lease=20.0))
    for bad in (*NEGATIVE, 0, 0.0, INF):
        with raising(ValueError, "extend"):
            await lease.extend(bad)
    for bad in (*NO_NUMBERS, None):
        with raising(TypeError, "extend"):
            await lease.extend(bad)
    assert 0.0 < lease.remaining <= 20.0


@scenario()
async def a_token_is_a_positive_integer(world: World) -> None:
    """For what adopts and for what breaks."""
    for bad in (0, -1, 2**63):
        with raising(ValueError, "token"):
            await world.first.adopt("a", bad)
        with raising(ValueError, "token"):
            await world.first.break_lock("a", token=bad)
    for other in ("1", 1.0, True):
        with raising(TypeError, "token"):
            await world.first.adopt("a", other)
        with raising(TypeError, "token"):
            await world.first.break_lock("a", token=other)


@scenario()
async def a_label_is_text(world: World) -> None:
    """Of the lock and of the client."""
    with raising(TypeError, "label"):
        world.lock("a", label=5)
    with raising(TypeError, "label"):
        world.connect(world.url, label=b"bytes")


@scenario()
async def an_unknown_protocol_is_refused(world: World) -> None:
    """ValueError with those that are known, each of which works."""
    with raising(ValueError, "no such way", *world.store.protocols):
        world.lock("a", protocol="no such way")
    for protocol in world.store.protocols:
        async with world.lock(f"by {protocol}", protocol=protocol):
            assert await world.first.lock(f"by {protocol}", protocol=protocol).locked()


@scenario()
async def a_protocol_of_the_url_is_the_default(world: World) -> None:
    """Unknown, it is refused as well."""
    joint = "&" if "?" in world.url else "?"
    for protocol in world.store.protocols:
        client = world.connect(f"{world.url}{joint}protocol={protocol}")
        async with client.lock("a"):
            assert await client.lock("a").locked()
        await client.close()
    with raising(ValueError, "nosuchway", *world.store.protocols):
        world.connect(f"{world.url}{joint}protocol=nosuchway").lock("a")


@scenario()
async def an_unknown_store_is_refused(world: World) -> None:
    """ValueError for a URL that nobody knows, TypeError for what is no URL."""
    for bad in ("nosuch://place", "nothing", ""):
        with raising(ValueError):
            world.connect(bad or ":")
    with raising(TypeError):
        world.connect(5)  # type: ignore[arg-type]
