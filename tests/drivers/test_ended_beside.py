"""What a thread sees of leases that another thread ends meanwhile: the first line of `__exit__`
ends one, without the monitor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.core.test_modes import side
from tests.core.test_service import Fixture, mutex_of

from leaselock._core.client.lease_reference import no_operation

if TYPE_CHECKING:
    from leaselock._core.client.lease_handle import LeaseHandle


def test_a_lease_has_a_place_among_those_of_its_lock_object_after_its_end() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    mutex = mutex_of(service)

    async def whole() -> list[LeaseHandle]:
        return [await mutex.acquire(None) for _ in range(2)]

    outer, inner = fixture.do(machine, whole())
    places = [outer.began, inner.began]
    assert places == sorted(places)
    inner.reference.left_by = no_operation
    assert inner.began > outer.began


def test_the_mode_of_a_hold_stays_when_all_its_leases_have_ended() -> None:
    fixture = Fixture()
    machine, service = fixture.client()

    async def whole() -> list[LeaseHandle]:
        return [await side(service, mode).acquire(None) for mode in ("update", "shared")]

    leases = fixture.do(machine, whole())
    for lease in leases:
        lease.reference.left_by = no_operation
    assert leases[0].weaker_mode() is None
