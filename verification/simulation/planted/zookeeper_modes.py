"""Planted bugs of read/write locks and semaphores on ZooKeeper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from verification.simulation.plant import planted

from leaselock._backends.zookeeper import conversions, queue, queue_order, semaphores
from leaselock._backends.zookeeper.contender import Contender
from leaselock._backends.zookeeper.conversions import Conversions
from leaselock._backends.zookeeper.queue_order import Position
from leaselock._backends.zookeeper.requests import Check, SetData
from leaselock._backends.zookeeper.semaphores import Semaphores
from leaselock._core.contract import backend

if TYPE_CHECKING:
    import pytest

    from leaselock._backends.zookeeper.requests import Node
    from leaselock._backends.zookeeper.semaphores import View
    from leaselock._core.contract.backend import Claim


@planted("zookeeper modes")
def any_reader_is_holder(patch: pytest.MonkeyPatch) -> None:
    """The claim behind one of several readers counts as the next."""
    patch.setattr(Position, "is_next", property(lambda self: self.first.mode == "shared"))


@planted("zookeeper modes")
def downgrade_is_a_deletion(patch: pytest.MonkeyPatch) -> None:
    """A downgrade deletes the writer's node without a change before: that looks like a release."""

    def changed(path: str, data: bytes) -> Check | SetData:
        return Check(path) if data else SetData(path, data)

    patch.setattr(conversions, "SetData", changed)


@planted("numbered zookeeper")
def numbers_unguarded(patch: pytest.MonkeyPatch) -> None:
    """Two claims read the numbers of the others at the same time, and choose the same ones."""
    patch.setattr(semaphores, "rewriting", lambda node: ())


@planted("zookeeper modes")
def free_permits_refused(patch: pytest.MonkeyPatch) -> None:
    """A try is refused free permits because another claim is before it in the queue."""
    real = Semaphores._fits

    async def fits(
        self: Semaphores, claim: Claim, path: str, view: View, place: Any, limit: int, until: float
    ) -> bool | None:
        return place.ahead is None and await real(self, claim, path, view, place, limit, until)

    patch.setattr(Semaphores, "_fits", fits)


@planted(
    "zookeeper modes",
    settings={
        "modes.ModesPlay.kinds": (["s"],),
        "modes.ModesPlay.resized": 1.0,
        "modes.LIMITS": (2, 4),
    },
)
def idle_number_not_checked(patch: pytest.MonkeyPatch) -> None:
    """The first permits of an idle semaphore are taken without writing their number again."""

    def writes_limit(view: View, limit: int) -> bool:
        return view.stored != limit

    patch.setattr(semaphores, "writes_limit", writes_limit)


@planted("zookeeper modes")
def permits_off_by_one(patch: pytest.MonkeyPatch) -> None:
    """One permit more than the limit is granted."""
    real = Semaphores._fits

    async def fits(
        self: Semaphores, claim: Claim, path: str, view: View, place: Any, limit: int, until: float
    ) -> bool | None:
        return await real(self, claim, path, view, place, limit + 1, until)

    patch.setattr(Semaphores, "_fits", fits)


@planted("zookeeper modes")
def permits_without_turn(patch: pytest.MonkeyPatch) -> None:
    """A claim does not count the permits for which others are queued before it."""
    real = queue_order.position_of

    def position_of(nodes: tuple[str, ...], owner: str) -> Position | None:
        found = real(nodes, owner)
        return found and found._replace(ahead=None)

    patch.setattr(semaphores, "position_of", position_of)


@planted("zookeeper modes", faults={"slow": 0.02, "delay": 0.02})
def reader_does_not_say_that_it_waits(patch: pytest.MonkeyPatch) -> None:
    """A reader behind an upgrade does not say so, and the upgrade waits for it."""

    def is_before(reader: Node, upgrade: Node) -> bool:
        return reader.token < upgrade.token

    patch.setattr(conversions, "is_before", is_before)


@planted("zookeeper modes")
def token_not_drawn_again(patch: pytest.MonkeyPatch) -> None:
    """A claim that an upgrade has overtaken keeps its token."""
    never = property(lambda self: False, lambda self, outdated: None)
    patch.setattr(Contender, "outdated", never)


@planted("zookeeper modes")
def two_updates(patch: pytest.MonkeyPatch) -> None:
    """Two updates hold at once."""
    patch.setitem(
        backend.COMPATIBLE_MODES, "update", backend.COMPATIBLE_MODES["update"] | {"update"}
    )


@planted("zookeeper modes")
def update_keeps_token_of_its_node(patch: pytest.MonkeyPatch) -> None:
    """An update that has waited keeps the token that it drew when it entered the queue."""
    real = queue.is_outdated

    def is_outdated(contender: Contender, listed: object, *, waited: bool) -> bool:
        return real(contender, listed, waited=False)

    patch.setattr(queue, "is_outdated", is_outdated)


@planted("zookeeper modes")
def upgrade_ignores_readers(patch: pytest.MonkeyPatch) -> None:
    """An update becomes exclusive beside its readers."""

    async def blocked(*_: Any) -> bool:
        return False

    patch.setattr(Conversions, "_blocked", blocked)


@planted("zookeeper modes")
def upgrade_is_not_recorded(patch: pytest.MonkeyPatch) -> None:
    """An upgrade does not write the node of the lock: those that it overtakes keep older tokens."""
    patch.setattr(conversions, "rewriting", lambda lock: ())


@planted("zookeeper modes")
def upgrade_stays(patch: pytest.MonkeyPatch) -> None:
    """The end of an upgraded hold leaves the node of the upgrade."""

    def paths(self: Contender) -> list[str]:
        return [self.node.path] if self.node is not None else []

    patch.setattr(Contender, "paths", property(paths))
