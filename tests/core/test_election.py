"""Elections on a simulated store: terms that end early, stores that fail, clients that close."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import pytest
from tests.core.test_service import Scene
from verification.simulation.simulator import Interrupted

from leaselock._core.backend import Acquire, Inspect, Release, Renew
from leaselock._core.effects import Sleep
from leaselock._drivers.system_env import TERMINATION
from leaselock.errors import LeaseLost, NotApplied, OutcomeUnknown

if TYPE_CHECKING:
    from verification.simulation.simulator import Machine

    from leaselock._core.client_core import ClientCore
    from leaselock._core.election import Candidacy
    from leaselock._core.lease_handle import LeaseHandle


@pytest.fixture
def scene() -> Scene:
    return Scene()


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


def run(scene: Scene, seconds: float = 1e9) -> tuple[Any, Candidacy, Leader, Any, ClientCore]:
    machine, core = scene.client("one")
    part, leader = candidacy(core), Leader(machine, seconds)
    return machine, part, leader, machine.start(part.run(leader, same), "run"), core


def test_the_result_is_returned_and_the_leadership_released(scene: Scene) -> None:
    machine, part, leader, process, _ = run(scene, 2.0)
    scene.simulator.play(1.0)
    found = scene.do(machine, part.leader(), 0.1)
    assert found.token == leader.terms[0]
    scene.simulator.play(4.0)
    assert process.result == "done"
    assert part.term is None
    assert scene.do(machine, part.leader()) is None


def test_it_is_called_again_after_a_loss(scene: Scene) -> None:
    machine, _, leader, process, core = run(scene)
    scene.simulator.play(1.0)
    scene.do(machine, core.break_lock("a", None), 0.1)
    scene.simulator.play(20.0)
    assert len(leader.terms) == 2
    assert leader.terms[1] > leader.terms[0]
    leader.until = 0.0
    scene.simulator.play(21.0)
    assert process.result == "done"


def test_an_error_because_of_the_loss_is_none(scene: Scene) -> None:
    machine, _, leader, process, core = run(scene)
    scene.simulator.play(1.0)
    leader.error = LeaseLost("a", 1, "seen by ensure")
    scene.do(machine, core.break_lock("a", None), 0.1)
    scene.simulator.play(20.0)
    assert len(leader.terms) == 2
    leader.until = 0.0
    scene.simulator.play(21.0)
    assert process.error is leader.error, "the second term was not lost: the error is its own"


def test_another_error_is_raised_even_after_a_loss(scene: Scene) -> None:
    machine, _, leader, process, core = run(scene)
    scene.simulator.play(1.0)
    leader.error = NotApplied("of another store")
    scene.do(machine, core.break_lock("a", None), 0.1)
    scene.simulator.play(20.0)
    assert process.error is leader.error
    assert len(leader.terms) == 1


def test_an_interrupted_leader_releases(scene: Scene) -> None:
    machine, part, leader, process, _ = run(scene)
    scene.simulator.play(1.0)
    body = next(run for run in machine.runs if run.name == "body")
    scene.simulator.interrupt(body)
    scene.simulator.play(2.0)
    assert isinstance(process.error, Interrupted)
    assert len(leader.terms) == 1
    assert scene.do(machine, part.leader()) is None


def test_a_release_without_an_answer_does_not_repeat_the_work(scene: Scene) -> None:
    _, _, leader, process, _ = run(scene, 2.0)
    scene.simulator.play(1.0)
    scene.store.silent = (Release,)
    scene.simulator.play(10.0)
    assert process.result == "done"
    assert len(leader.terms) == 1


def test_a_store_that_fails_at_first_is_an_error(scene: Scene) -> None:
    machine, core = scene.client("one")
    scene.store.silent = (Inspect,)
    with pytest.raises(OutcomeUnknown):
        scene.do(machine, candidacy(core).run(Leader(machine), same))


def test_a_store_that_fails_later_is_waited_for(scene: Scene) -> None:
    machine, _, leader, process, _ = run(scene)
    scene.simulator.play(1.0)
    scene.store.silent = (Acquire, Renew, Release)
    scene.simulator.play(60.0)
    assert len(leader.terms) == 1
    assert not process.ended
    scene.store.silent = ()
    scene.simulator.play(65.0)
    assert len(leader.terms) == 2
    assert machine.alive


@pytest.mark.parametrize("silent", [(), (Inspect,), (Acquire,)])
def test_a_closed_client_ends_its_part(scene: Scene, silent: tuple[type, ...]) -> None:
    scene.store.silent = silent
    machine, _, _, process, core = run(scene)
    scene.simulator.play(0.5)
    closing = machine.start(core.close())
    scene.simulator.play(10.0)
    assert closing.ended
    assert process.ended
    assert (process.result, process.error) == (None, None)
    assert scene.do(machine, candidacy(core).run(Leader(machine), same)) is None


def test_resigning_ends_the_term_at_once(scene: Scene) -> None:
    machine, part, leader, _, _ = run(scene)
    scene.simulator.play(1.0)
    other, theirs = scene.client("two")
    second = Leader(other)
    other.start(candidacy(theirs).run(second, same))
    scene.simulator.play(2.0)
    assert not second.terms
    assert scene.do(machine, part.resign(), 0.05)
    assert not scene.do(machine, part.resign(), 0.05)
    assert second.terms
    second.until = 0.0
    scene.simulator.play(6.0)
    assert len(leader.terms) == 2


def test_resigning_without_an_answer_ends_the_term_too(scene: Scene) -> None:
    machine, part, leader, _, _ = run(scene)
    scene.simulator.play(1.0)
    scene.store.silent = (Release,)
    assert scene.do(machine, part.resign())
    scene.simulator.play(20.0)
    assert len(leader.terms) == 2


def test_resigning_in_the_body_lets_it_go_on(scene: Scene) -> None:
    machine, core = scene.client("one")
    part = candidacy(core)
    seen: list[object] = []

    async def lead(handle: LeaseHandle) -> str:
        seen.append(await part.resign())
        seen.append(await part.resign())
        seen.append(handle.lost())
        return "resigned"

    machine.start(part.run(lead, same))
    scene.simulator.play(5.0)
    assert seen[:6] == [True, False, False] * 2
    scene.do(machine, core.close())


def test_a_body_is_told_that_it_was_lost(scene: Scene) -> None:
    machine, core = scene.client("one")
    term = candidacy(core).campaign()

    async def lead() -> None:
        await term.begin()
        await Sleep(machine.now() + 2.0)
        await term.end(None)

    process = machine.start(lead())
    scene.simulator.play(1.0)
    scene.do(machine, term.resign(), 0.1)
    scene.simulator.play(3.0)
    assert isinstance(process.error, LeaseLost)
    assert "resigned" in str(process.error)


def test_a_term_after_another_is_not_forgotten_by_the_end_of_the_first(scene: Scene) -> None:
    machine, core = scene.client("one")
    part = candidacy(core)
    first, second = part.campaign(), part.campaign()
    scene.do(machine, first.begin(), 0.1)
    scene.do(machine, first.resign(), 0.1)
    scene.do(machine, second.begin(), 0.1)
    with pytest.raises(LeaseLost):
        scene.do(machine, first.end(None), 0.1)
    assert part.term is second
    scene.do(machine, second.end(None), 0.1)
    assert part.term is None


class Guarded(Leader):
    """A body that is interrupted by the end of its term, as a task is."""

    def __init__(self, scene: Scene, machine: Machine) -> None:
        super().__init__(machine)
        self.scene = scene
        self.interrupted = False
        machine.body_interrupter = lambda: self  # type: ignore[method-assign]

    def interrupt(self) -> None:
        self.interrupted = True
        body = next(run for run in self.machine.runs if run.name == "body")
        self.scene.simulator.interrupt(body)

    def finish(self, exception: BaseException | None) -> bool:
        done, self.interrupted = self.interrupted, False
        return done


def test_a_body_that_can_be_interrupted_ends_before_the_leadership_does(scene: Scene) -> None:
    machine, core = scene.client("one")
    part, leader = candidacy(core), Guarded(scene, machine)
    machine.start(part.run(leader, same), "run")
    scene.simulator.play(1.0)
    assert scene.do(machine, part.resign(), 0.2)
    scene.simulator.play(5.0)
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
