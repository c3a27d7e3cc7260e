"""One command to the right server, through everything that servers answer instead of replies.

What an error reply means is in one table (hazards D14, G6): it was not carried out. Some pass by
themselves, and are asked again while there is time; the others are the user's to mend.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from leaselock.backends.redis.steps import (
    Address,
    Guarded,
    OtherKind,
    Pause,
    Send,
    TooLate,
    Unreachable,
)
from leaselock.errors import NotApplied, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leaselock.backends.redis.route import Route
    from leaselock.backends.redis.scripts import Script
    from leaselock.backends.redis.steps import Command, Steps, Waiting

PASSING = {
    *("LOADING", "MASTERDOWN", "READONLY", "BUSY", "TRYAGAIN", "CLUSTERDOWN"),
    "NOREPLICAS",
    # Where they lead in circles: of two servers one knows of a move that the other does not.
    *("MOVED", "ASK"),
}
ADVICE = {
    "NOPERM": "permission denied: give the user the rights that the Redis page lists",
    "NOAUTH": "permission denied: the URL needs a user name and a password",
    "WRONGPASS": "permission denied: the user name or the password is wrong",
    "WRONGTYPE": "the key of this lock is in use for something else, or by another protocol",
    "OOM": "the server has no memory left: it needs more, or fewer keys of others",
    "MISCONF": "the server cannot save its data, and so takes no more: see its log",
}
T = TypeVar("T")
MAY_NOT = "The user executing the script can't"
ASKING: Command = ("ASKING",)
REDIRECTS = 8


class Talk:
    """Commands to one store, wherever its keys are."""

    def __init__(self, route: Route) -> None:
        self.route = route
        # Which servers are being sent the text of which scripts.
        self.teaching: set[tuple[Address, str]] = set()

    def evaluate(
        self,
        script: Script,
        command: Command,
        *,
        waiting: Waiting | None = None,
        then: Sequence[Command] = (),
    ) -> Steps[Any]:
        """Run a script where its first key is; the reply, or all when *then* adds commands."""
        key = str(command[3])
        replies = yield from self.ask(key, (command, *then), script=script, waiting=waiting)
        return replies if then else replies[0]

    def ask(
        self,
        key: str,
        commands: Sequence[Command],
        *,
        script: Script | None = None,
        waiting: Waiting | None = None,
        guard: tuple[bytes, Sequence[Command]] | None = None,
    ) -> Steps[list[Any]]:
        """Send commands to the server of *key*; the replies, the first of which is no error."""
        tries = detours = 0
        teaching, pupil, sha = False, False, ""
        aside: Address | None = None
        while True:
            address: Address | None = None
            try:
                address = aside or self.route.known(key) or (yield from self.route.find(key))
                sent = (ASKING, *commands) if aside else commands
                step = Guarded(address, sent, *guard) if guard else Send(address, sent, waiting)
                replies: list[Any] = yield step
                if teaching:
                    self.teaching.discard((address, sha))
            except OutcomeUnknown:
                self.route.forget(address)
                raise
            except Unreachable as error:
                self.route.forget(address)
                problem: Exception = TooLate(str(error))
                aside = None
            else:
                replies = replies[1:] if aside else replies
                problem = replies[0]
                if not isinstance(problem, Exception):
                    return replies
                code, _, rest = str(problem).partition(" ")
                if code == "NOSCRIPT" and script is not None and not teaching:
                    sha = script.sha
                    if (address, sha) in self.teaching and not pupil:
                        pupil = True  # one of us sends the text already
                        continue
                    teaching = True
                    self.teaching.add((address, sha))
                    commands = (("EVAL", script.text, *commands[0][2:]), *commands[1:])
                    continue
                if code in ("MOVED", "ASK") and detours < REDIRECTS:
                    detours += 1
                    aside = self._redirected(code, rest, address)
                    continue
                aside = None
                problem = self._explained(code, problem, address)
            tries += 1
            detours = 0
            if not (yield Pause(tries)):
                raise problem

    def each(self, parts: Sequence[tuple[str, Callable[[], Steps[T]]]]) -> Steps[list[T | None]]:
        """Several conversations, each with one of its keys; None for what has no answer. One that
        has none takes all the time there is, so those whose server kept silent before come last.
        """
        answers: dict[int, T] = {}
        problem: Exception | None = None
        for place in sorted(range(len(parts)), key=lambda i: self.route.late(parts[i][0])):
            try:
                answers[place] = yield from parts[place][1]()
            except (TooLate, OutcomeUnknown) as error:
                problem = error
                break
            except NotApplied as error:
                problem = error
        if problem is not None and not answers:
            raise problem
        return [answers.get(place) for place in range(len(parts))]

    def guarded(self, key: str, value: bytes, commands: Sequence[Command]) -> Steps[bool]:
        """Carry out commands if *key* is *value*, and stays so meanwhile; says whether it was."""
        inspect: Sequence[Command] = (("WATCH", key), ("GET", key))
        while True:
            _, found, done = yield from self.ask(key, inspect, guard=(value, commands))
            for reply in (found, done):
                if isinstance(reply, Exception):
                    raise NotApplied(f"{key!r}: {reply}")
            if found != value or done is not None:
                return bool(found == value)

    def _redirected(self, code: str, rest: str, asked: Address) -> Address | None:
        slot, _, place = rest.partition(" ")
        host, _, port = place.rpartition(":")
        target = Address(host or asked.host, int(port))
        if code == "ASK":
            return target
        self.route.moved(int(slot), target)
        return None

    def _explained(self, code: str, problem: Exception, address: Address) -> NotApplied:
        if code in PASSING:
            self.route.forget(address)
            return TooLate(f"{address}: {problem}")
        # Within a script, a missing right is told in other words.
        advice = ADVICE.get("NOPERM" if MAY_NOT in str(problem) else code)
        kind = OtherKind if code == "WRONGTYPE" else NotApplied
        raise kind(f"{address}: {problem}" + (f" ({advice})" if advice else ""))
