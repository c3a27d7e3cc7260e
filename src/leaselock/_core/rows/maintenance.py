"""What the maintenance of several stores has in common."""

from __future__ import annotations

from leaselock._core.contract.backend import Finding

# Seconds: more than a reply takes, and less than the shortest sensible lease.
MAX_CLOCK_OFFSET = 1.0
# With room for fewer clients, the next deployment may find none left.
FEWEST_CLIENTS = 5
FREE_SOME = "locking needs disk space: free some"


def half_way(now: float, until: float) -> float:
    """When half of the time of a request is over: a step of a garbage collection begins nothing
    more, so that what it has begun is answered before its deadline.
    """
    return now + (until - now) / 2


def clock_finding(where: str, theirs: float, ours: float) -> Finding:
    """Compare two readings of the wall clock at about the same moment, in Unix time.

    Leases do not need the clocks to agree. But where another server takes over, its own clock
    counts the leases on (hazard B12).
    """
    offset = theirs - ours
    if abs(offset) <= MAX_CLOCK_OFFSET:
        return Finding("ok", f"{where}: its clock agrees with this machine's")
    side = "ahead of" if offset > 0 else "behind"
    what = f"{where}: its clock is {abs(offset):.1f} s {side} this machine's"
    return Finding("warn", what, "synchronise them: a server that takes over uses its own clock")


def tls_finding(where: str, problem: str, requested: bool, advice: str) -> Finding:
    """What TLS does not verify, if anything. Where it was not even requested, nothing is expected
    of it.
    """
    if not problem:
        return Finding("ok", f"{where}: TLS, and the server's certificate is verified")
    if not requested:
        return Finding("ok", f"{where}: TLS that was not requested: {problem}", advice)
    what = f"{where}: TLS does not protect against an impersonated server: {problem}"
    return Finding("warn", what, advice)


def clients_finding(where: str, limit: str, usable: int, each: int, advice: str) -> Finding:
    """How many clients fit on a server with *usable* connections, if each opens up to *each*;
    *limit* says what limits them.
    """
    fits = max(0, usable) // each
    clients = f"{fits} client" + ("" if fits == 1 else "s")
    what = f"{where}: {clients} of {each} connections each fit: {limit}"
    if fits < FEWEST_CLIENTS:
        return Finding("warn", what, advice)
    return Finding("ok", what)


def space_finding(where: str, free: int, *, low: int, least: int) -> Finding:
    """How many bytes are free on a disk: a failure below *least*, a warning below *low*."""
    if free >= low:
        return Finding("ok", f"{free // 2**20} MiB are free on {where}")
    what = f"{free // 1024} KiB are free on {where}"
    return Finding("fail" if free < least else "warn", what, FREE_SOME)
