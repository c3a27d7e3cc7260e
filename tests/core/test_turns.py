"""What is rare between a client's members and its store, one step at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.core.test_local import asked, client_of, mutex_of
from tests.core.test_service import Scene

from leaselock.core.backend import Acquire, Busy, Claim, Grant, Release
from leaselock.core.cached_lease import start
from leaselock.core.effects import Sleep
from leaselock.core.turns import Anchor
from leaselock.errors import OutcomeUnknown

if TYPE_CHECKING:
    from tests.simulation.world import Machine

    from leaselock.core.local import Local


def claim_of(serial: int) -> Claim:
    return Claim("a", f"m0.1:{serial}", "m0.1", 30.0, "{}", 0.0, 4)


def layer_of(scene: Scene) -> tuple[Machine, Local]:
    machine, service = client_of(scene)
    mutex_of(service)
    layer: Any = service.contexts[None].registry.backend
    return machine, layer


def test_a_grant_that_is_confirmed_keeps_its_token() -> None:
    _, layer = layer_of(Scene())
    claim = claim_of(1)
    member, anchor = layer.member_for(claim), Anchor(claim)
    assert layer._seated(member, anchor, Grant(7, ()), 0.0).token == 7
    anchor.end()
    assert layer._seated(member, anchor, Grant(7, ()), 0.0).token == 7
    assert anchor.token == 7
    anchor.owner = None
    layer._renewed(anchor, 0.0, held=False)
    assert not anchor.fits(claim.lease, 0.0)


def test_who_comes_too_late_does_not_overtake() -> None:
    scene = Scene()
    machine, layer = layer_of(scene)
    member, late = layer.member_for(claim_of(1)), Anchor(claim_of(2))
    other = layer.member_for(claim_of(3))
    member.line.anchor = Anchor(other.claim)
    member.line.join(other)
    member.anchor, late.owner, late.holds = member.anchor or late, member, True
    reply = scene.do(machine, layer._ask(member.claim, True, 5.0))
    assert isinstance(reply, Busy)
    assert list(member.line.members) == [other.claim.id, member.claim.id]
    assert member.debt is None
    assert isinstance(scene.do(machine, layer._ask(member.claim, False, 10.0)), Busy)


def test_what_is_retied_is_passed_on_no_more() -> None:
    scene = Scene()
    machine, layer = layer_of(scene)
    claim = claim_of(1)
    assert isinstance(scene.do(machine, layer._ask(claim, True, 5.0)), Grant)
    member = layer.members[claim.id]
    assert scene.do(machine, layer.set_lifetime(claim, "either", 10.0)).held
    assert member.anchor is not None
    assert not member.anchor.fits(claim.lease, 0.0)
    member.line.anchor = None
    assert scene.do(machine, layer.set_lifetime(claim, "lease", 15.0)).held
    assert layer.members == {}


def test_what_nobody_can_watch_is_not_kept() -> None:
    _, layer = layer_of(Scene())
    claim = claim_of(1)
    member, anchor = layer.member_for(claim), Anchor(claim)
    anchor.begin(7, 0.0, 0.0, 30.0)
    process = start(layer, member.line, anchor)
    effect: Any = process.send(None)
    effect.process.close()
    with pytest.raises(KeyboardInterrupt):
        process.throw(KeyboardInterrupt())
    assert not anchor.fits(claim.lease, 0.0)


def test_a_plain_lock_waits_and_is_detached_as_before() -> None:
    scene = Scene()
    machine, service = client_of(scene)
    mutex_of(service)

    async def first() -> None:
        handle = await mutex_of(service, local_handoffs=0, lease=1.0).acquire(None)
        assert handle is not None
        await Sleep(machine.now() + 0.1)
        await handle.release()

    async def second() -> None:
        handle = await mutex_of(service, local_handoffs=0, lease=1.0).acquire(None)
        assert handle is not None
        await handle.detach()

    machine.start(first())
    scene.do(machine, second())


def test_what_is_kept_is_seen_as_held() -> None:
    scene = Scene()
    machine, service = client_of(scene)

    async def one() -> None:
        mutex = mutex_of(service, cached=True)
        handle = await mutex.acquire(None)
        assert handle is not None
        await handle.release()
        assert await mutex.holder() is not None

    scene.do(machine, one())


def test_what_was_kept_is_given_back_for_a_while_and_not_for_ever() -> None:
    scene = Scene()
    machine, service = client_of(scene)
    scene.store.silent = (Release,)

    async def one() -> None:
        handle = await mutex_of(service, lease=1.0, cached=True).acquire(None)
        assert handle is not None
        await handle.release()

    scene.do(machine, one())
    scene.world.play(30.0)
    tried = asked(scene.store, Release)
    assert tried > 1
    scene.world.play(60.0)
    assert asked(scene.store, Release) == tried


@pytest.mark.parametrize("timeout", [0.0, 5.0])
def test_what_was_taken_out_of_the_line_is_given_back_later_if_not_now(timeout: float) -> None:
    """Also by one whose own question was refused: what it took out is known to nobody else."""
    scene = Scene()
    machine, service = client_of(scene)

    async def one() -> None:
        handle = await mutex_of(service, lease=60.0, cached=True).acquire(None)
        assert handle is not None
        await handle.release()
        scene.store.refused = (Acquire, Release)
        with pytest.raises(OutcomeUnknown, match="out of reach"):
            await mutex_of(service, lease=30.0, cached=True).acquire(timeout)

    scene.do(machine, one())
    layer: Any = service.contexts[None].registry.backend
    assert scene.store.table.entries["a"].held is not None
    scene.store.refused = ()
    scene.world.play(scene.world.time + 5.0)
    assert scene.store.table.entries["a"].held is None
    assert (layer.members, layer.lines) == ({}, {})
