"""What one holder was told, until when it believed it, and until when the store may have kept it.

Two intervals matter, and they err on opposite sides.
* The *core* is what a holder certainly believed. Two cores of one lock that overlap are wrong.
* The *possible hold* is what the store may have kept. What no possible hold explains is wrong.

A process that dies believes nothing afterwards. It was certainly alive at its last record, and at
the instant of a KILLED record, which is written before the signal is sent; no more is assumed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from leaselock.testing.records import FOREVER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leaselock.testing.records import Process


@dataclass(slots=True, eq=False)
class Hold:
    """One attempt to acquire, and what came of it. Instants are None when they did not come."""

    ident: int
    lock: int
    process: Process
    task: int
    last: int
    toucher: Process
    asked: int | None = None
    timeout: int = FOREVER
    granted: int | None = None
    refused: int | None = None
    unknown: int | None = None
    releasing: int | None = None
    released: int | None = None
    release_lost: int | None = None
    lost: int | None = None
    valid: int | None = None
    fence: int | None = None
    other_fence: int | None = None
    death: int = 0

    @property
    def attempted(self) -> bool:
        """Whether it was an attempt at all: a write without any lock has a hold id too."""
        known = (self.asked, self.granted, self.refused, self.unknown)
        return any(instant is not None for instant in known)

    @property
    def begun(self) -> int:
        """When the attempt began, as far as recorded."""
        return self.waited_until if self.asked is None else self.asked

    @property
    def non_blocking(self) -> bool:
        """Whether it was not to wait at all."""
        return self.asked is not None and self.timeout == 0

    @property
    def believed_until(self) -> int:
        """The end of the core: whatever ended the belief first, at the latest death."""
        ends = (self.releasing, self.lost, self.valid)
        # One more, for at the very instant of its last sign of life it did believe.
        return min([self.death + 1, *(end for end in ends if end is not None)])

    @property
    def core(self) -> tuple[int, int] | None:
        """The claimed interval, its end excluded; None if nothing was ever claimed."""
        if self.granted is None:
            return None
        end = self.believed_until
        return (self.granted, end) if end > self.granted else None

    @property
    def waited_until(self) -> int:
        """When the attempt had its answer, or the asker died."""
        answers = (self.granted, self.refused, self.unknown)
        return min((answer for answer in answers if answer is not None), default=self.death)

    @property
    def clean(self) -> bool:
        """Whether the store certainly keeps nothing of it after `over`."""
        return self.released is not None or self.refused is not None

    @property
    def over(self) -> int:
        """The last instant at which it may have been renewed; only its lease can outlive that."""
        if self.clean:
            return self.released if self.released is not None else self.waited_until
        ends = (self.release_lost, self.lost, self.unknown)
        return min((end for end in ends if end is not None), default=self.death)

    @property
    def died_holding(self) -> bool:
        """Whether its process ended while it believed."""
        return self.core is not None and self.believed_until > self.death

    def contradictions(self) -> Iterator[str]:
        """What cannot have happened to one hold."""
        if self.granted is not None and self.refused is not None:
            yield "both granted and refused"
        if self.granted is not None and self.unknown is not None and self.unknown < self.granted:
            yield "granted after an unknown outcome, which takes a new attempt"
        if self.releasing is None and (self.released, self.release_lost) != (None, None):
            yield "released without RELEASING, so its end is not known"
        if self.releasing is not None and (self.granted, self.unknown) == (None, None):
            yield "released but never granted"


@dataclass(slots=True)
class Write:
    """A write that the guarded resource accepted."""

    order: int
    fence: int | None
    ts: int
    pid: int
    hold: int


@dataclass(slots=True)
class LockHistory:
    """All that happened to one lock."""

    name: str
    start: int = 0
    holds: list[Hold] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)

    def grants(self) -> list[Hold]:
        """The granted holds in the order of their grants."""
        granted = [hold for hold in self.holds if hold.granted is not None]
        return sorted(granted, key=lambda hold: (hold.granted or 0, hold.ident))

    def tell(self, hold: Hold) -> str:
        """A hold for a reader: who, which token, from when to when."""
        if hold.granted is None:
            what, start, end = "attempt", hold.begun, hold.waited_until
        else:
            what, start, end = f"token {hold.fence}", hold.granted, hold.believed_until
        span = f"{self._at(start)} to {self._at(end)}"
        return f"[{what} of pid {hold.process.pid} task {hold.task}, {span}, {hold.ident:x}]"

    def tell_write(self, write: Write) -> str:
        """A write for a reader."""
        what = f"write {write.order} with token {write.fence} of pid {write.pid}"
        return f"[{what} at {self._at(write.ts)}, {write.hold:x}]"

    def _at(self, ts: int) -> str:
        return f"{(ts - self.start) / 1e9:+.9f} s"
