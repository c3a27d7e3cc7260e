"""Planted bugs of the protocol `document`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from verification.simulation import document
from verification.simulation.plant import planted
from verification.simulation.planted import modes, sqlite

from leaselock._backends.document import known
from leaselock._backends.document.adapter import Get
from leaselock._backends.document.backend import DocumentBackend
from leaselock._backends.document.engine import Engine
from leaselock._backends.document.known import KnownDocuments, View
from leaselock._backends.document.row import DocumentRow
from leaselock._core.contract.effects import FOREVER, Call
from leaselock._core.rows.rules import NEVER

if TYPE_CHECKING:
    import pytest

    from leaselock._backends.document.adapter import Found
    from leaselock._backends.document.content import Content
    from leaselock._core.contract.backend import HoldRecord


@planted("document")
def forgotten_early(patch: pytest.MonkeyPatch) -> None:
    """A waiter is dropped after one period without a sign of life, when it is about to give one."""
    patch.setattr("leaselock._backends.document.row.MISSED", 1)


@planted("document")
def decision_reused(patch: pytest.MonkeyPatch) -> None:
    """After a conflict the decision is written over the document that was in the way."""
    write = Engine.write

    async def blind(
        self: Engine, name: str, content: Content, version: Any, *words: Any
    ) -> tuple[Found | None, bool]:
        found, done = await write(self, name, content, version, *words)
        while not done:
            if found is None:
                found = await Call(self.store, Get(name), words[0])
            if found.value is not None:
                content = content._replace(n=json.loads(found.value)["n"] + 1)
            found, done = await write(self, name, content, found.version, *words)
        return found, done

    patch.setattr(Engine, "write", blind)


@planted("document", faults={"slow": 0.1, "delay": 0.005})
def release_not_fenced(patch: pytest.MonkeyPatch) -> None:
    """A release that finds nothing writes nothing, so a late request of the claim is carried out
    (hazard D2).
    """
    patch.setattr(DocumentRow, "tombstone", lambda self, claim_id: None)


@planted("document")
def renewal_unseen(patch: pytest.MonkeyPatch) -> None:
    """A watcher counts the lease of a hold from its first sight, whatever has renewed it since."""
    first_seen = KnownDocuments._first_seen

    def stubborn(self: KnownDocuments, view: View, *words: Any) -> dict[tuple[str, int], float]:
        known = {entry_id: since for (entry_id, _), since in view.first_seen.items()}
        found = first_seen(self, view, *words)
        return {key: known.get(key[0], since) for key, since in found.items()}

    patch.setattr(KnownDocuments, "_first_seen", stubborn)


@planted("document")
def watched_from_last_look(patch: pytest.MonkeyPatch) -> None:
    """A watcher counts a renewal from when it looked before, not from when it has seen it."""
    first_seen = KnownDocuments._first_seen

    def early(
        self: KnownDocuments, view: View, content: Content, since: float, said: float | None
    ) -> dict[tuple[str, int], float]:
        return first_seen(self, view, content, view.at if view.at > 0.0 else since, said)

    patch.setattr(KnownDocuments, "_first_seen", early)


@planted("document modes persistent")
def beat_kept(patch: pytest.MonkeyPatch) -> None:
    """A write that does not change the end of a hold keeps its beat, which others have watched for
    longer than its writer.
    """
    put = DocumentRow.put

    def keep(self: DocumentRow, hold: HoldRecord) -> None:
        known, held = self.entry.holds.get(hold.id), self.held.get(hold.id)
        put(self, hold)
        if known is not None and held is not None and known.expires == hold.expires:
            self.held[hold.id] = self.held[hold.id]._replace(beat=held.beat)

    patch.setattr(DocumentRow, "put", keep)


@planted("document")
def renewed_beat_kept(patch: pytest.MonkeyPatch) -> None:
    """A renewal keeps the beat of a hold, so others do not see it."""
    put = DocumentRow.put

    def keep(self: DocumentRow, hold: HoldRecord) -> None:
        held = self.held.get(hold.id)
        put(self, hold)
        if held is not None and held.record.token == hold.token:
            self.held[hold.id] = self.held[hold.id]._replace(beat=held.beat)

    patch.setattr(DocumentRow, "put", keep)


@planted("document")
def clock_trusted(patch: pytest.MonkeyPatch) -> None:
    """The time of the store is taken for exact."""
    patch.setattr(document, "TRAITS", document.TRAITS._replace(clock_uncertainty=0.0))


@planted("document tries")
def stamps_unread(patch: pytest.MonkeyPatch) -> None:
    """An entry counts as new when it is first seen, although the store tells its time."""
    patch.setattr(known, "_age", lambda stamp, said: 0.0)


@planted("document")
def answered_from_memory(patch: pytest.MonkeyPatch) -> None:
    """A claim is answered from the document that its client saw last, however old that is."""
    apply = Engine.apply

    async def remember(self: Engine, *words: Any, **named: Any) -> Any:
        return await apply(self, *words, **{**named, "newer_than": -FOREVER})

    patch.setattr(Engine, "apply", remember)


@planted("document stopped waiters")
def lapse_not_recorded(patch: pytest.MonkeyPatch) -> None:
    """An offer that lapses is not recorded, so each dead waiter delays the others."""
    patch.setattr(DocumentRow, "lapse", lambda self, hold: None)


@planted("document stopped waiters")
def roll_call_ignored(patch: pytest.MonkeyPatch) -> None:
    """Living waiters do not answer an offer that may lapse, and are passed over."""
    patch.setattr(DocumentRow, "roll_call", lambda self, claim_id: NEVER)


@planted("document periods")
def period_lengthened(patch: pytest.MonkeyPatch) -> None:
    """Each renewal adds drift and margin to the time for which a lock stays taken."""
    init = DocumentRow.__init__

    def forgetful(self: DocumentRow, *words: Any) -> None:
        init(self, *words)
        self.free_left = {}

    patch.setattr(DocumentRow, "__init__", forgetful)


@planted("document", faults={"lost_message": 0.5})
def reports_relied_on(patch: pytest.MonkeyPatch) -> None:
    """A waiter relies on reports alone, of which some are lost."""

    def never(self: DocumentBackend, name: str, position: int, at_most: float) -> float:
        return NEVER if self.listener is not None else at_most

    patch.setattr(DocumentBackend, "_look_again", never)


@planted("document")
def margin_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Watchers do not allow for clocks of different rates."""
    patch.setattr(known, "DRIFT", 0.0)
    patch.setattr("leaselock._backends.document.row.DRIFT", -0.002)
    patch.setattr("leaselock._backends.document.row.MARGIN", -0.005)


@planted("document")
def number_kept(patch: pytest.MonkeyPatch) -> None:
    """A write keeps the number of the document."""
    init = DocumentRow.__init__

    def kept(self: DocumentRow, *words: Any) -> None:
        init(self, *words)
        self.n = self.content.n or self.n

    patch.setattr(DocumentRow, "__init__", kept)


@planted("document modes")
def two_updates(patch: pytest.MonkeyPatch) -> None:
    """Two updates hold at once."""
    modes.two_updates(patch)


@planted("document modes")
def permits_off_by_one(patch: pytest.MonkeyPatch) -> None:
    """One permit more than the limit is granted."""
    modes.permits_off_by_one(patch)


@planted("document")
def cancelled_waiter_stays_queued(patch: pytest.MonkeyPatch) -> None:
    """A waiter whose time has passed stays in the queue (hazard E6)."""
    sqlite.cancelled_waiter_stays_queued(patch)


@planted("document far")
def outrun_refused(patch: pytest.MonkeyPatch) -> None:
    """An acquire that others outrun ends with an error (hazard D10)."""
    apply = Engine.apply

    async def refuse(self: Engine, *words: Any, **named: Any) -> Any:
        return await apply(self, *words, **{**named, "outrun": None})

    patch.setattr(Engine, "apply", refuse)
