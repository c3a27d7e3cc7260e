"""Elections on a simulated store: terms that end early, stores that fail, clients that close."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import pytest
from tests.core.test_service import Fixture
from verification.simulation.simulator import Interrupted

from leaselock._core.contract.backend import Acquire, Inspect, Release, Renew
from leaselock._core.contract.effects import Sleep
from leaselock._drivers.system_env import TERMINATION
from leaselock.errors import LeaseLost, NotApplied, OutcomeUnknown

if TYPE_CHECKING:
    from verification.simulation.simulator import Machine

    from leaselock._core.client.client_core import ClientCore
    from leaselock._core.client.election import Candidacy
    from leaselock._core.client.lease_handle import LeaseHandle


@pytest.fixture
def fixture() -> Fixture:
    return Fixture()


def candidacy(core: ClientCore, lease: float = 10.0) -> Candidacy:
    return core.election("a", lease=lease, protocol=None, label=None)


def same(handle: Any) -> Any:
    """What the user gets is the handle itself."""
    return handle


class Leader:
    """The work of a leader: it notes its terms, and works until it is lost or has enough."""

    def __init__(self, machine: Machine, seconds: float = 1e9) -> None:
        self.machine = machine
        self.until = machine.now() + seconds
        self.terms: list[int] = []
        self.error: Exception | None = None

    async def __call__(self, handle: LeaseHandle) -> str:
        self.terms.append(handle.hold.token)
        while not handle.lost() and not handle.released and self.machine.now() < self.until:
            await Sleep(self.machine.now() + 0.1)
        if self.error is not None:
            raise self.error
        return "done"


def run(fixture: Fixture, seconds: float = 1e9) -> tuple[Any, Candidacy, Leader, Any, ClientCore]:
    machine, core = fixture.client("one")
    part, leader = candidacy(core), Leader(machine, seconds)
    return machine, part, leader, machine.start(part.run(leader, same), "run"), core


def test_it_is_called_again_after_a_loss(fixture: Fixture) -> None:
    machine, _, leader, process, core = run(fixture)
    fixture.simulator.play(1.0)
    fixture.do(machine, core.break_lock("a", None), 0.1)
    fixture.simulator.play(20.0)
    assert len(leader.terms) == 2
    assert leader.terms[1] > leader.terms[0]
    leader.until = 0.0
    fixture.simulator.play(21.0)
    assert process.result == "done"


def test_an_error_because_of_the_loss_is_none(fixture: Fixture) -> None:
    machine, _, leader, process, core = run(fixture)
    fixture.simulator.play(1.0)
    leader.error = LeaseLost("a", 1, "seen by ensure")
    fixture.do(machine, core.break_lock("a", None), 0.1)
    fixture.simulator.play(20.0)
    assert len(leader.terms) == 2
    leader.until = 0.0
    fixture.simulator.play(21.0)
    assert process.error is leader.error, "the second term was not lost: the error is its own"


def test_another_error_is_raised_even_after_a_loss(fixture: Fixture) -> None:
    machine, _, leader, process, core = run(fixture)
    fixture.simulator.play(1.0)
    leader.error = NotApplied("of another store")
    fixture.do(machine, core.break_lock("a", None), 0.1)
    fixture.simulator.play(20.0)
    assert process.error is leader.error
    assert len(leader.terms) == 1


def test_an_interrupted_leader_releases(fixture: Fixture) -> None:
    machine, part, leader, process, _ = run(fixture)
    fixture.simulator.play(1.0)
    body = next(run for run in machine.runs if run.name == "body")
    fixture.simulator.interrupt(body)
    fixture.simulator.play(2.0)
    assert isinstance(process.error, Interrupted)
    assert len(leader.terms) == 1
    assert fixture.do(machine, part.leader()) is None


def test_a_release_without_an_answer_does_not_repeat_the_work(fixture: Fixture) -> None:
    _, _, leader, process, _ = run(fixture, 2.0)
    fixture.simulator.play(1.0)
    fixture.store.silent = (Release,)
    fixture.simulator.play(10.0)
    assert process.result == "done"
    assert len(leader.terms) == 1


def test_a_store_that_fails_at_first_is_an_error(fixture: Fixture) -> None:
    machine, core = fixture.client("one")
    fixture.store.silent = (Inspect,)
    with pytest.raises(OutcomeUnknown):
        fixture.do(machine, candidacy(core).run(Leader(machine), same))


def test_a_store_that_fails_later_is_waited_for(fixture: Fixture) -> None:
    machine, _, leader, process, _ = run(fixture)
    fixture.simulator.play(1.0)
    fixture.store.silent = (Acquire, Renew, Release)
    fixture.simulator.play(60.0)
    assert len(leader.terms) == 1
    assert not process.ended
    fixture.store.silent = ()
    fixture.simulator.play(65.0)
    assert len(leader.terms) == 2
    assert machine.alive


@pytest.mark.parametrize("silent", [(), (Inspect,), (Acquire,)])
def test_a_closed_client_ends_its_part(fixture: Fixture, silent: tuple[type, ...]) -> None:
    fixture.store.silent = silent
    machine, _, _, process, core = run(fixture)
    fixture.simulator.play(0.5)
    closing = machine.start(core.close())
    fixture.simulator.play(10.0)
    assert closing.ended
    assert process.ended
    assert (process.result, process.error) == (None, None)
    assert fixture.do(machine, candidacy(core).run(Leader(machine), same)) is None


def test_resigning_without_an_answer_ends_the_term_too(fixture: Fixture) -> None:
    machine, part, leader, _, _ = run(fixture)
    fixture.simulator.play(1.0)
    fixture.store.silent = (Release,)
    assert fixture.do(machine, part.resign())
    fixture.simulator.play(20.0)
    assert len(leader.terms) == 2


def test_a_body_is_told_that_it_was_lost(fixture: Fixture) -> None:
    machine, core = fixture.client("one")
    term = candidacy(core).campaign()

    async def lead() -> None:
        await term.begin()
        await Sleep(machine.now() + 2.0)
        await term.end(None)

    process = machine.start(lead())
    fixture.simulator.play(1.0)
    fixture.do(machine, term.resign(), 0.1)
    fixture.simulator.play(3.0)
    assert isinstance(process.error, LeaseLost)
    assert "resigned" in str(process.error)


def test_a_term_after_another_is_not_forgotten_by_the_end_of_the_first(fixture: Fixture) -> None:
    machine, core = fixture.client("one")
    part = candidacy(core)
    first, second = part.campaign(), part.campaign()
    fixture.do(machine, first.begin(), 0.1)
    fixture.do(machine, first.resign(), 0.1)
    fixture.do(machine, second.begin(), 0.1)
    with pytest.raises(LeaseLost):
        fixture.do(machine, first.end(None), 0.1)
    assert part.terms.get(part.mutex.name) is second
    fixture.do(machine, second.end(None), 0.1)
    assert part.terms.get(part.mutex.name) is None


class Guarded(Leader):
    """A body that is interrupted by the end of its term, as a task is."""

    def __init__(self, fixture: Fixture, machine: Machine) -> None:
        super().__init__(machine)
        self.fixture = fixture
        self.interrupted = False
        machine.body_interrupter = lambda: self  # type: ignore[method-assign]

    def interrupt(self) -> None:
        self.interrupted = True
        body = next(run for run in self.machine.runs if run.name == "body")
        self.fixture.simulator.interrupt(body)

    def finish(self, exception: BaseException | None) -> bool:
        done, self.interrupted = self.interrupted, False
        return done


def test_a_body_that_can_be_interrupted_ends_before_the_leadership_does(fixture: Fixture) -> None:
    machine, core = fixture.client("one")
    part, leader = candidacy(core), Guarded(fixture, machine)
    machine.start(part.run(leader, same), "run")
    fixture.simulator.play(1.0)
    assert fixture.do(machine, part.resign(), 0.2)
    fixture.simulator.play(5.0)
    assert len(leader.terms) == 2


# --- SIGTERM --------------------------------------------------------------------------------------


def test_sigterm_exits_while_a_process_asks_for_it() -> None:
    with pytest.raises(SystemExit) as caught, TERMINATION.exits(), TERMINATION.exits():
        signal.raise_signal(signal.SIGTERM)
    assert caught.value.code == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_handler_of_the_program_stays() -> None:
    got: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: got.append(number))
    try:
        with TERMINATION.exits():
            signal.raise_signal(signal.SIGTERM)
        assert got == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_handler_that_the_program_sets_meanwhile_stays() -> None:
    try:
        with TERMINATION.exits():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
