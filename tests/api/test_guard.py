"""`Client.guard`: functions under a lock that their arguments name."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import leaselock

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def client() -> Iterator[leaselock.Client]:
    with leaselock.Client("memory://guard") as client:
        yield client


def names(client: leaselock.Client) -> list[str]:
    return [info.name for info in client.locks() if info.holder]


def test_arguments_name_the_lock(client: leaselock.Client) -> None:
    @client.guard("bill:{user_id}:{month}")
    def bill(user_id: int, month: str = "may") -> list[str]:
        return names(client)

    assert bill(7) == ["bill:7:may"]
    assert bill(month="june", user_id=8) == ["bill:8:june"]
    assert names(client) == []


def test_attributes_of_arguments_name_it(client: leaselock.Client) -> None:
    @client.guard("part:{value.real}")
    def part(value: complex) -> list[str]:
        return names(client)

    assert part(3 + 1j) == ["part:3.0"]


def test_busy_is_raised_skipped_or_waited_for(client: leaselock.Client) -> None:
    ran: list[str] = []
    raising = client.guard("job", busy="raise")(ran.append)
    skipping = client.guard("job", busy="skip")(ran.append)
    waiting = client.guard("job", timeout=0.01)(ran.append)
    with leaselock.Client("memory://guard") as other, other.lock("job"):
        with pytest.raises(leaselock.AcquireTimeout):
            raising("raise")
        assert skipping("skip") is None
        with pytest.raises(leaselock.AcquireTimeout):
            waiting("wait")
    assert ran == []
    for function in (raising, skipping, waiting):
        function("free")
    assert ran == ["free"] * 3


@pytest.mark.parametrize("busy", ["raise", "skip"])
def test_a_wait_without_limit_contradicts_what_is_done_with_a_busy_lock(
    client: leaselock.Client, busy: Any
) -> None:
    with pytest.raises(ValueError, match=f"busy='{busy}' needs a timeout"):
        client.guard("job", busy=busy, timeout=None)


def test_a_timeout_of_the_body_is_not_skipped(client: leaselock.Client) -> None:
    @client.guard("outer", busy="skip")
    def body() -> None:
        raise leaselock.AcquireTimeout("inner", 1.0)

    with pytest.raises(leaselock.AcquireTimeout, match="inner"):
        body()


def test_tasks_are_guarded(client: leaselock.Client) -> None:
    async def main() -> None:
        async with leaselock.AsyncClient("memory://guard") as own:

            @own.guard("page:{number}", busy="skip")
            async def page(number: int) -> list[str]:
                return [info.name for info in await own.locks()]

            assert await page(1) == ["page:1"]
            with client.lock("page:2"):
                assert await page(2) is None

            @own.guard("page:3")
            async def third() -> str:
                return "done"

            assert await third() == "done"

    asyncio.run(main())


def test_mistakes_are_found_when_it_decorates(client: leaselock.Client) -> None:
    def bill(user_id: int) -> None: ...

    with pytest.raises(ValueError, match=r"needs 'user', which is no parameter .* user_id"):
        client.guard("bill:{user}")(bill)
    with pytest.raises(ValueError, match="busy is one of"):
        client.guard("bill", busy="ignore")  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="needs a timeout"):
        client.guard("bill", busy="skip", timeout=None)
    with pytest.raises(TypeError, match="blocking"):
        client.guard("bill", blocking=False)  # type: ignore[call-overload]

    async def later() -> None: ...

    with pytest.raises(TypeError, match="runs after its call has returned"):
        client.guard("bill")(later)
