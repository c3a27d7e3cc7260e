"""The numbers of permits: how they are stored, chosen and told to the client."""

from __future__ import annotations

import pytest
from tests.core.test_rules import Clients
from tests.core.test_service import Fixture

from leaselock._core.contract.backend import Acquire, Busy, Claim, Grant, Release, Resize
from leaselock._core.contract.marks import (
    MOST_SLOTS,
    free_from_of,
    lowest_free,
    numbered_claim,
    slots_of,
    with_marks,
)
from leaselock._core.rows import rules

PLAIN = '{"host": "web-1", "pid": 1}'


def claim_of(client: str, permits: int = 1, *, numbered: bool = True) -> Claim:
    metadata = numbered_claim(PLAIN, permits) if numbered else PLAIN
    claim = Claim("a", f"{client}:1", client, 30.0, metadata, 0.0)
    return claim._replace(mode="permits", permits=permits, limit=3)


def acquired(clients: Clients, claim: Claim) -> tuple[int, ...]:
    reply = clients.table.answer(claim.client, Acquire(claim, True))
    assert isinstance(reply, Grant)
    return reply.slots


def released(clients: Clients, claim: Claim) -> None:
    clients.table.answer(claim.client, Release(claim, False))


@pytest.mark.parametrize("slots", [None, (), (0,), (1, 20, 300)])
@pytest.mark.parametrize("free_from", [0.0, 0.5, 1763793503.25])
def test_marks_are_read_as_they_were_written(
    slots: tuple[int, ...] | None, free_from: float
) -> None:
    for before in (PLAIN, with_marks(PLAIN, (7,), 8.5)):
        marked = with_marks(before, slots, free_from)
        assert slots_of(marked) == slots
        assert free_from_of(marked) == free_from
        assert marked.endswith(PLAIN[1:])
        assert with_marks(marked, None) == PLAIN


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"slots": [1,2], "host": 1}', '{"slots": ["0"], ', '{"slots": 1, ']
)
def test_metadata_of_another_program_has_no_marks(text: str) -> None:
    assert slots_of(text) is None
    assert free_from_of(text) == 0.0
    assert with_marks(text, None) == text


def test_what_is_no_metadata_gets_no_marks() -> None:
    assert with_marks("x", (1,), 2.0) == "x"


def test_the_lowest_free_numbers_are_chosen() -> None:
    assert lowest_free([], 2) == (0, 1)
    assert lowest_free([0, 3, 1], 3) == (2, 4, 5)
    assert lowest_free([5, 5], 1) == (0,)


def test_too_many_permits_are_refused() -> None:
    assert slots_of(numbered_claim(PLAIN, MOST_SLOTS)) == ()
    with pytest.raises(ValueError, match="at most 1000 permits"):
        numbered_claim(PLAIN, MOST_SLOTS + 1)


def test_a_repeated_request_gets_the_same_number() -> None:
    clients = Clients()
    first, second = claim_of("one"), claim_of("two")
    assert (acquired(clients, first), acquired(clients, second)) == ((0,), (1,))
    released(clients, first)
    assert acquired(clients, second) == (1,)
    assert acquired(clients, claim_of("three", 2)) == (0, 2)


def test_a_waiter_is_granted_the_number_that_was_released() -> None:
    clients = Clients()
    first, second, third = claim_of("one"), claim_of("two", 2), claim_of("three")
    acquired(clients, first)
    acquired(clients, second)
    assert isinstance(clients.table.answer("three", Acquire(third, True)), Busy)
    released(clients, first)
    assert acquired(clients, third) == (0,)


def test_a_grant_of_an_earlier_version_is_numbered_when_it_is_confirmed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clients = Clients()
    first, second, third = claim_of("one"), claim_of("two", 2), claim_of("three")
    acquired(clients, first)
    acquired(clients, second)
    clients.table.answer("three", Acquire(third, True))
    with monkeypatch.context() as earlier:
        earlier.setattr(rules, "numbered", lambda row, hold: hold)
        released(clients, first)
    (*_, granted) = clients.table.entries["a"].holds.values()
    assert (granted.id, granted.slots) == (third.id, ())
    assert acquired(clients, third) == (0,)
    (*_, confirmed) = clients.table.entries["a"].holds.values()
    assert confirmed.slots == (0,)


def test_permits_without_numbers_take_none() -> None:
    clients = Clients()
    assert acquired(clients, claim_of("one", numbered=False)) == ()
    assert acquired(clients, claim_of("two", 2)) == (0, 1)


def test_a_smaller_limit_takes_no_number() -> None:
    clients = Clients()
    first, second = claim_of("one", 2), claim_of("two")
    acquired(clients, first)
    acquired(clients, second)
    clients.table.answer("one", Resize("a", 2))
    released(clients, first)
    third = claim_of("three")._replace(limit=2)
    assert acquired(clients, third) == (0,)
    (kept, _) = clients.table.entries["a"].holds.values()
    assert kept.slots == (2,)


def test_a_lease_has_its_numbers_and_one_without_says_why() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    words = {"lease": 30.0, "renew": True, "timeout": None, "protocol": None, "label": None}

    async def whole() -> None:
        numbered = service.semaphore("s", 3, numbered=True, **words)
        handle = await numbered.acquire(None, 2)
        assert (handle.slot(), handle.hold.slots) == (0, (0, 1))
        plain = await service.semaphore("s", None, **words).acquire(None)
        with pytest.raises(ValueError, match="numbered=True"):
            plain.slot()
        await plain.release()
        await handle.release()

    fixture.do(machine, whole())


def test_what_cannot_be_numbered_is_refused() -> None:
    service = Fixture().client()[1]
    words = {"lease": 30.0, "renew": True, "timeout": None, "protocol": None, "label": None}
    with pytest.raises(ValueError, match="at most 1000 permits"):
        service.semaphore("s", MOST_SLOTS + 1, numbered=True, **words)
    with pytest.raises(TypeError, match="numbered"):
        service.semaphore("s", 1, numbered=1, **words)
