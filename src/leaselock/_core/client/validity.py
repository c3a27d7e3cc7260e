"""Until when a hold is valid. Pure arithmetic: the times are handed in.

A hold is valid from the moment its request was sent, never from the moment the reply arrived
(hazard B2), and for less than its lease: the store's clock may run faster than the client's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core.contract.effects import FOREVER

if TYPE_CHECKING:
    from leaselock._core.contract.backend import Capabilities

RENEWALS_PER_LEASE = 3
# The rounding error of a sum of floats, in seconds.
ROUNDING = 1e-6
# The part of a session timeout for which one answer proves that the session is alive. The store may
# count the silence of a client from an earlier request: by up to a third of the session (an idle
# client pings that often) and the time until a server reports to the one that counts.
PROVEN_PART = 0.5


def lease_end(can: Capabilities, sent_at: float, lease: float) -> float:
    """The end of a lease that was requested at *sent_at*, as its holder must count it.

    For a very short lease the margin shrinks with it.
    """
    margin = can.clock_margin if can.clock_margin * 10 < lease else lease / 10
    return sent_at + lease * (1.0 - can.clock_drift) - margin


def valid_until(can: Capabilities, sent_at: float, lease: float) -> float:
    """Until when a reply to a request sent at *sent_at* makes a hold valid: until the lease ends,
    but where holds end with a session, no longer than the reply proves the session alive (hazard
    I1).
    """
    end = lease_end(can, sent_at, lease)
    session = can.session_timeout
    return end if session == FOREVER else min(end, sent_at + session * PROVEN_PART)


def lease_for(can: Capabilities, sent_at: float, until: float) -> float:
    """The lease to request at *sent_at* for a hold that is valid until *until*: the inverse of
    `lease_end`.
    """
    return (until - sent_at + can.clock_margin) / (1.0 - can.clock_drift) + ROUNDING


def proof_interval(can: Capabilities, lease: float) -> float:
    """For how long one reply makes a hold valid, at most."""
    session = can.session_timeout
    return lease if session == FOREVER else min(lease, session * PROVEN_PART)


def renew_at(can: Capabilities, sent_at: float, lease: float) -> float:
    """When to renew: a third of the lease after the last request that was answered."""
    return sent_at + proof_interval(can, lease) / RENEWALS_PER_LEASE


def renew_early(can: Capabilities, lease: float) -> float:
    """Renewals that are due within this time of one another are sent as one request."""
    return proof_interval(can, lease) / (4 * RENEWALS_PER_LEASE)
