"""Planted bugs of periods on Redis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.simulation.lua import rewrite
from verification.simulation.plant import planted

from leaselock._backends.redis.scripted_backend import ScriptedBackend

if TYPE_CHECKING:
    import pytest


@planted("periods redis")
def alignment_ignored(patch: pytest.MonkeyPatch) -> None:
    """Periods that are to be those of the clock begin with the grant."""
    rewrite(patch, "ACQUIRE", "ARGV[15] == '1' and", "false and")


@planted("periods redis")
def cools_down_for_the_lease(patch: pytest.MonkeyPatch) -> None:
    """A lock cools down until the end of the lease instead of the period."""
    rewrite(
        patch, "COOL_DOWN", "redis.call('PEXPIRE', lock, string.format('%.0f', remaining_ms))", ""
    )


@planted("periods redis")
def late_request_finds_the_hold(patch: pytest.MonkeyPatch) -> None:
    """What is left of a released hold keeps its owner, so that a late request touches it."""
    rewrite(patch, "COOL_DOWN", "owner .. ':released'", "owner")


@planted("periods redis")
def lease_ends_the_period(patch: pytest.MonkeyPatch) -> None:
    """The end of the lease frees the lock before the period has ended."""
    rewrite(patch, "ACQUIRE", "redis.call('PTTL', lock) < ends - now", "false")


@planted("periods redis")
def period_not_begun(patch: pytest.MonkeyPatch) -> None:
    """The script that grants a lock does not begin its period."""
    rewrite(patch, "ACQUIRE", "if ms and", "if false and")


@planted("periods redis")
def release_ends_the_period(patch: pytest.MonkeyPatch) -> None:
    """A release frees the lock at once, although its period has not ended."""

    async def cool_down(self: ScriptedBackend, *words: object) -> bool:
        return False

    patch.setattr(ScriptedBackend, "_cool_down", cool_down)


@planted("periods redis")
def repeated_request_prolongs(patch: pytest.MonkeyPatch) -> None:
    """A request that is repeated after a lost reply begins the period anew."""
    rewrite(patch, "ACQUIRE", "tonumber(redis.call('HGET', lock, 'free_from')) or ends", "ends")


@planted("rates redis")
def permit_not_kept(patch: pytest.MonkeyPatch) -> None:
    """The script that grants a permit does not note until when it stays taken."""
    rewrite(patch, "ACQUIRE", "  elseif ms then", "  elseif false then")


@planted("rates redis")
def released_permit_ends_at_once(patch: pytest.MonkeyPatch) -> None:
    """What is left of a released permit has ended already."""
    rewrite(patch, "COOL_DOWN", "permits and free_from or 1", "1")
