"""The connections of the protocols "row" and "advisory", as threads ask for them: one per claim."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, TypeVar

from leaselock.backends.sql.places import GRACE, Place, Places, once, refuse
from leaselock.backends.sql.script import NONSENSE, SqlError, asked, senseless
from leaselock.backends.sql.seats import Await, By, Own, Seats, Shared
from leaselock.backends.sql.upkeep import refusal
from leaselock.core.backend import Acquire, BreakLock, Claim, Inspect, Release, Released, Renew
from leaselock.errors import OutcomeUnknown, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leaselock.backends.sql.ends import Ends
    from leaselock.backends.sql.nodes import Store
    from leaselock.backends.sql.script import Result
    from leaselock.backends.sql.seats import Steps
    from leaselock.core.backend import Busy, Grant

T = TypeVar("T")


class Seating(Places):
    """Carries out the requests of these protocols."""

    def __init__(self, store: Store, ends: Ends) -> None:
        super().__init__(store, ends)
        self.seats = Seats(store.dialect)

    def call(self, by: object, until: float) -> object:
        """The answer of the database; Refused or Unknown when there is none by *until*."""
        assert isinstance(by, By)
        request = by.request
        if isinstance(request, Acquire):
            return self._ask(by.protocol, request, until)
        if isinstance(request, Await):
            self._await(request.claim, until)
            return None
        if isinstance(request, Release):
            return self._leave(request.claim, until)
        if isinstance(request, Renew):
            return tuple(self._lives(claim, until) for claim in request.claims)
        if isinstance(request, Inspect):
            return self._drive(None, self.seats.inspect(by.protocol, request), until)
        assert isinstance(request, BreakLock)
        return self._drive(None, self.seats.break_lock(by.protocol, request), until)

    def _ask(self, protocol: str, request: Acquire, until: float) -> Grant | Busy:
        claim = request.claim
        place = self.places.get(claim.id)
        if place is None or place.ended:
            self.drop(claim)
            place = self._place(claim, until)
            place.seat.claim, place.seat.protocol = claim, protocol
            self.places[claim.id] = place
        with self._at(claim, place):
            refuse(self.store, protocol, place.settings)
            reply = self._talk(claim, place, self.seats.ask(place.seat, request), until)
            if place.seat.token is None and not request.wait:
                self.lay_down(claim)
        return reply

    @contextlib.contextmanager
    def _at(self, claim: Claim, place: Place) -> Iterator[None]:
        """One conversation; the connection is closed when it comes to no end."""
        try:
            with place.mutex:
                self.check(claim, place)
                try:
                    yield
                except BaseException:
                    self.drop(claim)
                    raise
        finally:
            if place.gone:
                self.end(place)

    def _talk(self, claim: Claim, place: Place, steps: Steps[T], until: float) -> T:
        answer = self._drive(place, steps, until)
        self.check(claim, place)
        return answer

    def _place(self, claim: Claim, until: float) -> Place:
        place = self.spare(claim)
        if place is not None:
            return place
        line = self.store.connect(until)
        place = self.made(claim, line, threading.Lock())
        try:
            tenancy = self.seats.tenancy(self.store.target.session)
            place.settings = self._drive(place, tenancy, until)
        except BaseException:
            line.close()
            raise
        self.ends.of(claim.client).add(place)
        return place

    def _await(self, claim: Claim, until: float) -> None:
        place = self.places.get(claim.id)
        if place is None:
            return
        patience = max(0.0, until - self.store.now())
        with self._at(claim, place):
            self._talk(claim, place, self.seats.wait(place.seat, patience), until + GRACE)

    def _leave(self, claim: Claim, until: float) -> Released:
        place = self.places.get(claim.id)
        if place is None:
            return Released("absent", ())
        held = place.seat.token is not None
        try:
            with self._at(claim, place):
                self._talk(claim, place, self.seats.free(place.seat), until)
                self.lay_down(claim)
        except StoreError:
            # What is closed holds nothing; but nobody knows how long it did.
            return Released("absent", ())
        return Released("held" if held else "waiting", ())

    def _lives(self, claim: Claim, until: float) -> bool | None:
        place = self.places.get(claim.id)
        if place is None or place.ended:
            return False
        if self.store.now() >= until:
            return None  # another connection kept silent for all the time; this one was not asked
        try:
            with self._at(claim, place):
                self._talk(claim, place, self.seats.alive(), until)
        except OutcomeUnknown:
            return False
        return self.places.get(claim.id) is place

    def _drive(self, place: Place | None, steps: Steps[T], until: float) -> T:
        dialect = self.store.dialect
        try:
            item = next(steps)
            while True:
                try:
                    if isinstance(item, Own):
                        assert place is not None
                        results = asked(place.line, dialect, item.script, until)
                    else:
                        results = self._shared(item, until)
                except SqlError as error:
                    item = steps.throw(error)
                else:
                    item = steps.send(results)
        except StopIteration as done:
            result: T = done.value
            return result
        except SqlError as error:
            raise refusal(error, self.store.greeted) from error
        except NONSENSE as error:
            raise senseless(place and place.line, error) from error

    def _shared(self, item: Shared, until: float) -> list[Result]:
        results: list[Result] = self.store.converse(lambda: once(item.script), until)
        return results

    def close(self) -> None:
        """End all sessions, and so all holds."""
        for place in self.all():
            place.line.close()
        self.begin()

    def after_fork(self) -> None:
        """Let go of the parent's connections; they stay open there."""
        for place in self.all():
            place.line.abandon()
        self.begin()
