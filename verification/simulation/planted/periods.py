"""Planted bugs of periods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from verification.simulation.plant import planted

from leaselock._backends.document.row import DocumentRow
from leaselock._backends.memory.store import MemoryRow, Table
from leaselock._backends.sql import records
from leaselock._backends.sql.lease import Lease
from leaselock._core.contract.backend import Claim, Release
from leaselock._core.rows import rules

if TYPE_CHECKING:
    from collections.abc import Awaitable

    import pytest

    from leaselock._backends.document.content import Held
    from leaselock._core.contract.backend import HoldRecord, Released


@planted("periods")
def alignment_ignored(patch: pytest.MonkeyPatch) -> None:
    """Periods that are to be those of the clock begin with the grant."""
    real = rules.confirmed

    def confirmed(row: rules.LockRow, hold: HoldRecord, claim: Claim) -> HoldRecord:
        return real(row, hold, claim._replace(aligned=False))

    patch.setattr(rules, "confirmed", confirmed)


@planted("periods")
def death_ends_the_period(patch: pytest.MonkeyPatch) -> None:
    """The death of the process that has run frees the lock before the period has ended."""

    def outlives(row: rules.LockRow, hold: HoldRecord) -> bool:
        return hold.lifetime in ("lease", "cooling")

    patch.setattr(rules, "outlives", outlives)


@planted("sql periods")
def fast_release_ends_the_period(patch: pytest.MonkeyPatch) -> None:
    """The one statement that releases a lock without waiters is used for a lock that must cool
    down.
    """
    real = Lease.answer

    def answer(self: Lease, request: Any, *words: Any) -> Awaitable[object]:
        if isinstance(request, Release):
            request = request._replace(claim=request.claim.unused())
        return real(self, request, *words)

    patch.setattr(Lease, "answer", answer)


@planted("periods")
def late_request_finds_the_hold(patch: pytest.MonkeyPatch) -> None:
    """What is left of a released hold keeps its id, so that a late request touches it."""
    patch.setattr(rules, "COOLING", "")


@planted("periods")
def lease_ends_the_period(patch: pytest.MonkeyPatch) -> None:
    """The end of the lease frees the lock before the period has ended."""
    real = rules.confirmed

    def confirmed(row: rules.LockRow, hold: HoldRecord, claim: Claim) -> HoldRecord:
        expires = max(hold.expires, row.now + claim.lease)
        return real(row, hold, claim)._replace(expires=expires)

    patch.setattr(rules, "confirmed", confirmed)


@planted("periods")
def period_from_the_release(patch: pytest.MonkeyPatch) -> None:
    """The period is counted from the release instead of the grant."""
    real = rules.release

    def release(row: rules.LockRow, request: Release) -> Released:
        for hold in row.holds():
            if hold.id == request.claim.id and request.claim.min_hold:
                row.put(hold._replace(free_from=row.now + request.claim.min_hold))
        return real(row, request)

    patch.setattr(rules, "release", release)


@planted("periods")
def release_ends_the_period(patch: pytest.MonkeyPatch) -> None:
    """A release frees the lock at once, although its period has not ended."""
    real = Table.answer

    def answer(self: Table, client: str, request: Any) -> object:
        if isinstance(request, Release):
            request = request._replace(claim=request.claim.unused())
        return real(self, client, request)

    patch.setattr(Table, "answer", answer)


@planted("periods")
def repeated_request_prolongs(patch: pytest.MonkeyPatch) -> None:
    """A request that is repeated after a lost reply begins the period anew."""
    real = rules.confirmed

    def confirmed(row: rules.LockRow, hold: HoldRecord, claim: Claim) -> HoldRecord:
        return real(row, hold._replace(free_from=0.0), claim)

    patch.setattr(rules, "confirmed", confirmed)


@planted("periods")
def unused_grant_cools_down(patch: pytest.MonkeyPatch) -> None:
    """A grant that was never reported to its user costs the whole period."""

    def unused(self: Claim) -> Claim:
        return self

    patch.setattr(Claim, "unused", unused)


@planted("rates document")
def free_permit_in_a_document(patch: pytest.MonkeyPatch) -> None:
    """Until when a permit stays taken is in the document, and not read from it."""
    real = DocumentRow._timed

    def timed(self: DocumentRow, held: Held) -> HoldRecord:
        return real(self, held._replace(free=None) if held.record.mode == "permits" else held)

    patch.setattr(DocumentRow, "_timed", timed)


@planted("rates document")
def fast_clock_ends_the_period(patch: pytest.MonkeyPatch) -> None:
    """A client whose clock runs fast frees a permit before its period has ended."""
    patch.setattr("leaselock._backends.document.row.DRIFT", -0.002)
    patch.setattr("leaselock._backends.document.row.MARGIN", -0.005)


@planted("rates")
def one_permit_cools_down(patch: pytest.MonkeyPatch) -> None:
    """Of several permits that one hold had, one stays taken after the release."""
    real = MemoryRow.put

    def put(self: MemoryRow, hold: HoldRecord) -> None:
        real(self, hold._replace(permits=1) if hold.lifetime == "cooling" else hold)

    patch.setattr(MemoryRow, "put", put)


@planted("rates sql")
def period_of_a_permit_not_read(patch: pytest.MonkeyPatch) -> None:
    """Until when a permit stays taken is stored, and not read at its release."""
    patch.setattr(records, "free_from_of", lambda metadata: 0.0)


@planted("rates")
def release_frees_the_permit(patch: pytest.MonkeyPatch) -> None:
    """The release of a permit frees it at once, although its period has not ended."""
    real = Table.answer

    def answer(self: Table, client: str, request: Any) -> object:
        if isinstance(request, Release):
            request = request._replace(claim=request.claim.unused())
        return real(self, client, request)

    patch.setattr(Table, "answer", answer)
