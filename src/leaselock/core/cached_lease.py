"""A lease that its client keeps while nobody asks: who watches for those who do.

A watcher runs for each such lease, from its grant until it is given back. The store tells the
holder of a sticky claim that somebody asks; whoever asked before we listened is looked for.

Law: what nobody can be told about is not kept. Whatever ends the watch, a lease that is in use goes
back with its release, and one that is not goes back at once.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, cast

from leaselock.core import timing
from leaselock.core.backend import Grant
from leaselock.core.effects import Sleep, Spawn
from leaselock.core.hold import Hold
from leaselock.errors import StoreError

if TYPE_CHECKING:
    from leaselock.core.effects import Owner
    from leaselock.core.hold_registry import HoldRegistry
    from leaselock.core.local import Local
    from leaselock.core.mutex import LockOptions
    from leaselock.core.turns import Anchor, Line


def kept_for(registry: HoldRegistry, name: str, terms: LockOptions, caller: Owner) -> Hold | None:
    """The hold of a lease that the client has kept, with what is left of its time; in one step."""
    now, layer = registry.env.now(), cast("Local", registry.backend)
    line = layer.lines.get(name)
    anchor = None if line is None else line.at_hand(terms.lease, now)
    if line is None or anchor is None or not registry.renewing.running:
        return None
    claim = registry.claim(name, terms.lease, terms.label, caller, terms.tokens, cached=True)
    member = layer.member_for(claim)
    line.give(anchor, member)
    hold = Hold(claim, member.token, anchor.until, renew=terms.renew)
    hold.provisional = True
    if not terms.renew:
        hold.max_valid_until = registry.over(now, terms.lease)
    registry.add(hold, caller, now, anchor.until - now)
    return hold


async def start(local: Local, line: Line, anchor: Anchor) -> None:
    """Have a lease watched that was granted just now."""
    try:
        await Spawn(watch(local, line, anchor), "watcher")
    except BaseException:
        anchor.close()
        raise


async def watch(local: Local, line: Line, anchor: Anchor) -> None:
    """Wait until somebody else asks, or the lease has been given back."""
    with suppress(StoreError):
        alone = line.anchor is anchor and await _alone(local, anchor)
        if alone and line.anchor is anchor:
            await local.backend.await_wakeup(anchor.claim, anchor.until)
    anchor.close()
    if line.anchor is not anchor:
        local.backend.forget(anchor.claim)  # it went back before we began to listen, perhaps
    elif anchor.owner is None and anchor.holds:  # else somebody asks the store what became of it
        await _give_back(local, line, anchor)


async def _give_back(local: Local, line: Line, anchor: Anchor) -> None:
    """Until it is answered; once at least, also of a lease that is over: a question of it may be
    under way yet, and is to be refused.
    """
    tries, enough = 0, anchor.until + timing.UNDO_PATIENCE
    while local.env.now() < enough:
        try:
            await local.give_back(line, anchor, _soon(local))
            return
        except StoreError:
            tries += 1
        await Sleep(local.env.now() + timing.pause(tries, local.env.random()))


async def _alone(local: Local, anchor: Anchor) -> bool:
    """Listen from now on; whether nobody has come before."""
    # A release that overtakes this question must bury it, or it would take the lock again.
    anchor.open += 1
    reply = await local.backend.acquire(anchor.claim, wait=True, until=_soon(local))
    anchor.open -= 1
    if not isinstance(reply, Grant):
        anchor.doubtful = True
        return False
    (sight,) = await local.backend.inspect(anchor.claim.name, "*", _soon(local))
    return not sight.waiting


def _soon(local: Local) -> float:
    return local.env.now() + timing.PATIENCE_OF_A_TRY
