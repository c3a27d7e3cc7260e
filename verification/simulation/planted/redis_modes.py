"""Planted bugs of read/write locks and semaphores on Redis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.simulation.lua import EVERY, rewrite
from verification.simulation.plant import planted

from leaselock._core.contract.backend import Claim

if TYPE_CHECKING:
    import pytest


@planted("redis modes")
def downgrade_does_not_promote(patch: pytest.MonkeyPatch) -> None:
    """The waiters are not granted what a downgrade allows."""
    rewrite(
        patch,
        "CONVERT",
        "local failed = state.promote(owner, false).wrong",
        "local failed = target == 'exclusive' and state.promote(owner, false).wrong",
    )


@planted("redis modes")
def leaving_writer_does_not_promote(patch: pytest.MonkeyPatch) -> None:
    """A writer that gives up leaves the readers behind it waiting."""
    rewrite(patch, "RELEASE", "if was > 0 then", "if was == 1 then")


@planted("redis modes")
def reader_not_listed(patch: pytest.MonkeyPatch) -> None:
    """The grant of the first reader does not add the lock to the index of active names."""
    rewrite(patch, "ACQUIRE", "if not state.mode then add_to_index", "if false then add_to_index")


@planted("redis modes")
def new_reader_ignores_queue(patch: pytest.MonkeyPatch) -> None:
    """A new reader is granted ahead of a queued writer."""
    rewrite(patch, EVERY, "or state.upgrading or ahead.closed then", "or state.upgrading then")


@planted("numbered redis")
def number_by_message(patch: pytest.MonkeyPatch) -> None:
    """A client takes a message for its grant, which does not say the numbers of its permits."""
    rewrite(
        patch,
        EVERY,
        "if claim.kind ~= 'permits' or not state.marks_in(member) then",
        "if true then",
    )
    patch.setattr(Claim, "is_numbered", False)


@planted("numbered redis")
def number_given_twice(patch: pytest.MonkeyPatch) -> None:
    """The numbers of the other holds are not read."""
    rewrite(patch, EVERY, "state.marks_in(hold.about) or ''", "''")


@planted("numbered redis")
def number_not_the_lowest(patch: pytest.MonkeyPatch) -> None:
    """A permit gets a free number that is not the lowest."""
    rewrite(patch, EVERY, "number = number + 1\n", "number = (number + 2) % 3\n")


@planted("redis modes")
def no_tombstone(patch: pytest.MonkeyPatch) -> None:
    """A late request of a released claim is granted."""
    rewrite(patch, "ACQUIRE", "existing >= 4", "false")


@planted("redis modes")
def permits_off_by_one(patch: pytest.MonkeyPatch) -> None:
    """One permit more than the limit is granted."""
    rewrite(
        patch,
        EVERY,
        "return state.used + claim.permits <= state.limit",
        "return state.used + claim.permits <= state.limit + 1",
    )


@planted("redis modes")
def reader_beside_writer(patch: pytest.MonkeyPatch) -> None:
    """A reader is granted beside a writer."""
    rewrite(
        patch,
        EVERY,
        "if state.mode and state.mode ~= 'shared' or state.upgrading or ahead.closed then",
        "if state.upgrading or ahead.closed then",
    )


@planted("redis modes")
def reader_enters_while_upgrading(patch: pytest.MonkeyPatch) -> None:
    """A new reader is granted while an upgrade waits."""
    rewrite(patch, EVERY, "or state.upgrading or ahead.closed then", "or ahead.closed then")


@planted("redis modes")
def release_does_not_promote(patch: pytest.MonkeyPatch) -> None:
    """The release of a reader grants nothing."""
    rewrite(
        patch, "RELEASE", "if was > 0 then", "if was == 2 or state.last_handoff == 'ended' then"
    )


@planted("redis modes")
def release_ends_all_holds(patch: pytest.MonkeyPatch) -> None:
    """The release of one hold ends all of them."""
    rewrite(patch, EVERY, "if state.used <= 0 then", "if true then")


@planted("redis modes")
def renewal_extends_the_lock_alone(patch: pytest.MonkeyPatch) -> None:
    """A renewal that arrives after a downgrade extends the lock, but not the hold."""
    rewrite(patch, "RENEW", "if ends and ends > 1 then", "if false then")


@planted("redis modes")
def repeat_adds_permits(patch: pytest.MonkeyPatch) -> None:
    """A repeated request takes its permits twice."""
    rewrite(
        patch,
        "ACQUIRE",
        "again = state.own and",
        "again = state.own and state.mode ~= 'permits' and",
    )


@planted("redis modes")
def shorter_lease_ends_all(patch: pytest.MonkeyPatch) -> None:
    """A hold with a shorter lease shortens those of the others."""
    rewrite(
        patch, EVERY, "if not new and redis.call('PTTL', state.lock) >= ms then return 1 end", ""
    )


@planted("redis modes")
def small_claim_passes_large_one(patch: pytest.MonkeyPatch) -> None:
    """A claim for few permits overtakes one for many."""
    rewrite(
        patch, EVERY, "state.mode ~= 'permits' or ahead.passed then", "state.mode ~= 'permits' then"
    )


@planted("redis modes")
def two_updates(patch: pytest.MonkeyPatch) -> None:
    """Two updates hold at once."""
    rewrite(
        patch,
        EVERY,
        "return claim.kind == 'shared' or not state.update and not ahead.update",
        "return true",
    )


@planted("redis modes")
def upgrade_ignores_readers(patch: pytest.MonkeyPatch) -> None:
    """An upgrade is complete while readers hold."""
    rewrite(patch, EVERY, "if state.upgrading and state.used == 1 then", "if state.upgrading then")


@planted("redis modes")
def upgrade_keeps_token(patch: pytest.MonkeyPatch) -> None:
    """A completed upgrade keeps the token of the update."""
    rewrite(patch, EVERY, "state.step_of(about), token)", "state.step_of(about))")


@planted("redis modes")
def upgrade_not_completed_on_release(patch: pytest.MonkeyPatch) -> None:
    """The last reader that leaves does not complete an upgrade."""
    rewrite(
        patch,
        "RELEASE",
        "if state.upgrading and state.used == 1 then ahead.wrong = state.complete(me) end",
        "",
    )
