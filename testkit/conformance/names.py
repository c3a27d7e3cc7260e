"""Any printable text is a valid name; invalid names are rejected before any request."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from leaselock.errors import InvalidName
from testkit.conformance.scenario import raising, scenario

if TYPE_CHECKING:
    from typing import Any

    from testkit.conformance.harness import Harness

GOOD = [
    # Text that ends a statement, a string, a script, a format.
    *("'; DROP TABLE lock;--", '"; DROP TABLE lock;--', "'", '"', "`", "--", ";", "/* */"),
    *("%s", "%", "%00", "%2F", "{}", "{a}", "}{", "${HOME}", "$(reboot)", "`reboot`", "\\", "\\0"),
    # Paths, options, patterns, compound keys.
    *(".", "..", "../..", "../../etc/passwd", "/", "/etc/passwd", "a/b", "~", "C:\\a", "-rf", "#"),
    *("*", "?", "[a]", "[!a]", "a*", "a_", "a%", "a:b", "a;b", "a,b", "a=b", "a|b", "a&b", "a?b"),
    # Names that may be confused with one another.
    *("a", "A", "\uff21", " ", "a ", " a", "a  b", "a b", "a\u00a0b", "\u00e9", "e\u0301"),
    *("\u00df", "ss", "SS", "\u0130", "i\u0307", "\u202ea", "a\u200b", "0", "00", "NULL", "None"),
    *("true", "leaselock", "lock", "waiter"),
    # Long names and names beyond the basic plane; each has at most 255 bytes.
    *("\U0001f512", "\U0001f512" * 63 + "abc", "\u00e9" * 127 + "x", "x" * 255, "x" * 254),
]
BAD: list[object] = [
    *("", "\0", "a\0", "a\0b", "a\nb", "\n", "a\r", "\t", "\x1b[31m", "\x7f", "\x85", "a\u2028b"),
    *("\ud800", "a\udfff", "x" * 256, "\u00e9" * 128, "\U0001f512" * 64, "x" * 1_000_000),
    *(b"a", None, 5, 1.5, True, ["a"], ("a",), object()),
]


@scenario()
async def each_name_is_a_separate_lock(harness: Harness) -> None:
    """All are held at once; each excludes only itself, and each is listed."""
    client = harness.client()
    assert len(set(GOOD)) == len(GOOD)
    leases = [await harness.must_acquire(harness.lock(name), 0) for name in GOOD]
    assert [lease.name for lease in leases] == GOOD
    for name in GOOD:
        assert await harness.try_once(client.lock(name)) is None
    assert [report.name for report in await client.locks()] == sorted(GOOD)
    assert [await client.lock(name).locked() for name in GOOD] == [True] * len(GOOD)


@scenario()
async def each_name_is_released_separately(harness: Harness) -> None:
    """Releasing or breaking one lock frees no other."""
    leases = [await harness.must_acquire(harness.lock(name), 0) for name in GOOD]
    left = sorted(GOOD)
    for number, lease in enumerate(leases):
        if number % 2:
            await lease.release()
        else:
            await harness.first.break_lock(lease.name)
        left.remove(lease.name)
        assert [report.name for report in await harness.first.locks()] == left


@scenario("has_queue")
async def each_name_can_be_waited_for(harness: Harness) -> None:
    """The waiter is woken by the release of this name."""
    waiting = harness.client()
    for name in GOOD:
        lease = await harness.must_acquire(harness.lock(name))
        other = harness.spawn(partial(waiting.lock(name).acquire, timeout=20.0))
        await harness.wait_for_waiters(harness.lock(name), 1)
        await lease.release()
        assert await other.join() is not None


@scenario()
async def invalid_names_are_rejected(harness: Harness) -> None:
    """InvalidName, a ValueError, is raised without a request to the store."""
    bad: Any
    for bad in BAD:
        with raising(InvalidName) as caught:
            harness.first.lock(bad)
        assert isinstance(caught[0], ValueError)
        assert len(str(caught[0])) < 500
        with raising(InvalidName):
            await harness.first.break_lock(bad)
        with raising(InvalidName):
            await harness.first.adopt(bad, 1)
    assert await harness.first.locks() == []
