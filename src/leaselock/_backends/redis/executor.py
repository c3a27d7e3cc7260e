"""Commands to the server that has their key, through redirects, retries and error replies.

One table says what each error reply means (hazards D14, G6): the command was not carried out.
Temporary errors are retried until the deadline; the others need a change by the user. The commands
of a script that came before one that failed remain carried out, so an error that is raised within
a script is `ScriptFailed`; one that a script returns says that its claim got nothing.

| reply | next |
|---|---|
| NOSCRIPT | the same request with the text of the script, once |
| MOVED, ASK | the other server, up to REDIRECTS times |
| a temporary error | a pause, until the deadline |
| no server is reached | a pause, until `patience`, which is shorter |
| no reply | OutcomeUnknown |
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from leaselock._backends.redis.codec import packed
from leaselock._backends.redis.keys import COUNTER, OURS, expected_types, our, redissons
from leaselock._backends.redis.messages import (
    Address,
    DeadlineExceeded,
    NotALock,
    ScriptFailed,
    SendInTime,
    Unreachable,
)
from leaselock._backends.redis.pool import Attempt, Pool
from leaselock._backends.redis.topology import PART_OF_CLUSTER
from leaselock._core.client.timing import pause
from leaselock._core.contract.backend import Unreadable
from leaselock._core.contract.effects import Sleep
from leaselock.errors import NotApplied, OutcomeUnknown, StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from leaselock._backends.redis.codec import Command
    from leaselock._backends.redis.listener import Listener
    from leaselock._backends.redis.messages import Waiting
    from leaselock._backends.redis.scripts import Script
    from leaselock._backends.redis.topology import Topology

TEMPORARY = {
    *("LOADING", "MASTERDOWN", "READONLY", "BUSY", "TRYAGAIN", "CLUSTERDOWN"),
    "NOREPLICAS",
    # Servers redirect in circles while one of them knows of a move and the other does not.
    *("MOVED", "ASK"),
}
ADVICE = {
    "NOPERM": "permission denied: give the user the rights that the Redis page lists",
    "NOAUTH": "permission denied: the server wants a password: write redis://:PASSWORD@host",
    "WRONGPASS": "permission denied: the user name or the password is wrong",
    "OOM": "the server has no memory left: it needs more, or fewer keys of others",
    "MISCONF": "the server cannot save its data, and so takes no more: see its log",
}
# Of these, the ones that are no matter of permissions.
NO_ROOM = ("OOM", "MISCONF")
# What a replica says. Another server is the master, and the URL names this one: by mistake, or
# until the name is given to the new master.
OF_A_REPLICA = ("READONLY", "MASTERDOWN")
REPLICA = (
    "this server is a replica: name the master in the URL, or the sentinels that know it "
    "(redis+sentinel://host,host/NAME)"
)
UNKNOWN_COMMAND = (
    "the server must know EVALSHA and EVAL: see rename-command in its configuration. If it is a "
    "sentinel, write redis+sentinel://host,host/NAME"
)
# What follows the type of a key that is not the lock it should be.
NOT_A_LOCK = (
    "which is not a lock: choose another name, or another prefix for locks (?prefix=), or "
    "?protocol= if it is a lock of another protocol"
)
# A server refuses with these before anything has changed, in a script, too.
AT_FIRST = {"OOM", "MISCONF", "NOREPLICAS", "READONLY"}
# In the text of each error that is raised within a script. In Redis 6.2 the error comes after it,
# and an error that the script caught and returned begins with its line.
IN_SCRIPT = "user_script:"
RETURNED = "@user_script:"
EARLIER_FORM = re.compile(r"^(?:ERR Error running script .*)?@user_script: ?\d+: -?(?=[A-Z]+ )")
BAD_COUNTER = (
    "no token can be drawn from the counter {key!r}: it is {found}, and tokens above 2^53 would "
    "repeat. Set it to a smaller number, or delete it, once no resource remembers such a token"
)
UNREADABLE = (
    "the key {key!r} of the lock {lock!r} cannot be read: it has {found}. Delete it (DEL) once no "
    "program uses the lock, and find out which program writes to it"
)
PARTIAL = "{} (a script failed, perhaps after it had changed something)"
T = TypeVar("T")
# What a script's error says instead of NOPERM: Redis 7.2 and later and Valkey, and older ones.
NOT_PERMITTED = ("ACL failure in script", "The user executing the script can't")
ASKING: Command = ("ASKING",)
REDIRECTS = 8


def _text_of(error: Exception) -> str:
    return EARLIER_FORM.sub("", str(error))


def is_partial(error: Exception) -> bool:
    """Whether a script failed with this error, perhaps after it had changed something."""
    if IN_SCRIPT not in str(error) or str(error).startswith(RETURNED):
        return False
    code = _text_of(error).partition(" ")[0]
    return code not in AT_FIRST and code not in TEMPORARY


class Executor:
    """Carries out commands on the servers of one store."""

    def __init__(
        self,
        topology: Topology,
        pool: Pool,
        listener: Listener,
        now: Callable[[], float],
        random: Callable[[], float],
    ) -> None:
        self.topology = topology
        self.pool = pool
        self.listener = listener
        self.now = now
        self.random = random
        # A server has carried out a write of this client.
        self.has_written = False
        # The search for the server of a key that is under way.
        self.search: Attempt | None = None
        # The scripts whose text is being sent to a server by one of the callers.
        self.loading: set[tuple[Address, str]] = set()

    async def send(self, address: Address, commands: Sequence[Command], until: float) -> list[Any]:
        """Send commands to one server; their replies, errors included."""
        if not commands:
            return []
        message = SendInTime(packed(commands), len(commands), ())
        return await self.pool.exchange(address, message, until)

    async def evaluate(
        self,
        script: Script,
        command: Command,
        until: float,
        *,
        waiting: Waiting | None = None,
        then: Sequence[Command] = (),
    ) -> Any:
        """Run a script where its first key is; its reply, or all replies if *then* adds commands.

        With *waiting* its channels are listened to before the script runs.
        """
        send = self.send if waiting is None else partial(self.listener.ask, waiting)
        key = str(command[3])
        replies = await self.ask(key, (command, *then), until, script=script, send=send)
        return replies if then else replies[0]

    async def ask(
        self,
        key: str,
        commands: Sequence[Command],
        until: float,
        *,
        script: Script | None = None,
        send: Callable[[Address, Sequence[Command], float], Awaitable[list[Any]]] | None = None,
    ) -> list[Any]:
        """Send commands to the server of *key*; the replies, the first of which is no error."""
        send = send or self.send
        tries = redirects = 0
        sent_again = False
        # Where this call sends the text of the script: other callers wait for that.
        loading: tuple[Address, str] | None = None
        asking: Address | None = None
        patience = until
        while True:
            address: Address | None = None
            try:
                address = asking or self.topology.known(key)
                if address is None:
                    address = await self.find(key, until)
                try:
                    sent = (ASKING, *commands) if asking else commands
                    replies = await send(address, sent, until)
                finally:
                    if loading is not None:
                        self.loading.discard(loading)
            except OutcomeUnknown:
                self.topology.forget(address)
                raise
            except Unreachable as error:
                self.topology.forget(address)
                problem: Exception = DeadlineExceeded(str(error), "unreachable")
                problem.__cause__ = error.__cause__
                asking, patience = None, min(patience, self.now() + self.topology.patience)
            else:
                replies = replies[1:] if asking else replies
                problem = replies[0]
                if not isinstance(problem, Exception):
                    return replies
                code, _, rest = str(problem).partition(" ")
                if code == "NOSCRIPT" and script is not None and loading is None:
                    if (address, script.sha) in self.loading and not sent_again:
                        sent_again = True  # another caller sends the text already
                        continue
                    loading = address, script.sha
                    self.loading.add(loading)
                    commands = (("EVAL", script.text, *commands[0][2:]), *commands[1:])
                    continue
                if code in ("MOVED", "ASK") and redirects < REDIRECTS:
                    redirects += 1
                    asking = self._redirected(code, rest, address)
                    continue
                asking, patience = None, until
                problem = await self._refusal(key, address, commands[0], problem, until)
            tries += 1
            redirects = 0
            await self._pause(tries, problem, patience)

    async def _pause(self, tries: int, problem: Exception, until: float) -> None:
        """Wait before the next try; raise *problem* if there is no time for one."""
        seconds = pause(tries + 2, self.random())
        if self.now() + seconds >= until:
            raise problem
        # A server that starts, or is not the master yet, does not say when it is ready.
        await Sleep(self.now() + seconds)

    async def prepare(self, until: float) -> None:
        """Find out whether messages are sharded, before the first command that depends on it."""
        tries = 0
        while not self.topology.is_known:
            try:
                await self.find("", until)
            except Unreachable as error:
                if not self.topology.is_known:
                    tries += 1
                    problem = DeadlineExceeded(str(error), "unreachable")
                    problem.__cause__ = error.__cause__
                    await self._pause(tries, problem, until)

    async def find(self, key: str, until: float) -> Address:
        """Find the server of *key*. After a failover all requests ask for it at once: the first one
        asks the servers, and the others wait for its answer.
        """
        while (search := self.search) is not None:
            await search.wait(until, "the servers have not said yet which of them has the key")
            address = self.topology.known(key)
            if address is not None:
                return address
        search = self.search = Attempt()
        try:
            return await self.topology.find(key, self.send, until)
        except Unreachable as error:
            search.error = error
            raise
        finally:
            if self.search is search:
                self.search = None
            search.ended.set()

    async def each(self, parts: Sequence[tuple[str, Callable[[], Awaitable[T]]]]) -> list[T | None]:
        """Carry out several parts, each with one of its keys; None for a part without an answer.

        A silent server uses up all the time, so parts on servers that were silent before come
        last.
        """
        answers: dict[int, T] = {}
        problem: Exception | None = None
        for index in sorted(range(len(parts)), key=lambda i: self.topology.is_silent(parts[i][0])):
            try:
                answers[index] = await parts[index][1]()
            except (DeadlineExceeded, OutcomeUnknown) as error:
                problem = error
                break
            except NotApplied as error:
                problem = error
        if problem is not None and not answers:
            raise problem
        return [answers.get(index) for index in range(len(parts))]

    def _redirected(self, code: str, rest: str, asked: Address) -> Address | None:
        """Follow a redirection; the server to ask once, for ASK."""
        slot, _, target_text = rest.partition(" ")
        host, _, port = target_text.rpartition(":")
        target = Address(host or asked.host, int(port))
        if code == "ASK":
            return target
        self.topology.moved(int(slot), target)
        return None

    async def _refusal(
        self, key: str, address: Address, command: Command, error: Exception, until: float
    ) -> DeadlineExceeded:
        """The error for a temporary refusal; raises any other."""
        text = _text_of(error)
        code = text.partition(" ")[0]
        if code == "WRONGTYPE":
            text = await self._other_type(address, command, text, until)
        refusal = self._explained(key, code, text, address)
        if is_partial(error):
            raise ScriptFailed(PARTIAL.format(refusal), refusal.reason)
        if not isinstance(refusal, DeadlineExceeded):
            raise refusal
        return refusal

    async def _other_type(self, address: Address, command: Command, text: str, until: float) -> str:
        """The text of a WRONGTYPE error: the first key that has another type, and its type."""
        evaluates = command[0] in ("EVALSHA", "EVAL")
        keys = [
            str(key) for key in (command[3 : 3 + int(command[2])] if evaluates else command[1:2])
        ]
        try:
            kinds = await self.send(address, [("TYPE", key) for key in keys], until)
        except (Unreachable, StoreError):
            return text  # the error that is to be explained counts for more
        for key, kind in zip(keys, kinds, strict=True):
            found = "" if isinstance(kind, Exception) else kind.decode()
            if found and found not in ("none", *expected_types(key)):
                return f"WRONGTYPE {found} {key}"
        return text

    def _explained(self, key: str, code: str, text: str, address: Address) -> NotApplied:
        """The error of ours; `DeadlineExceeded` for a temporary one."""
        rest = text.partition(" ")[2]
        if code == "BADCOUNTER":
            said = BAD_COUNTER.format(key=redissons(COUNTER, key), found=rest)
            return NotApplied(said, "misconfigured")
        if code == "UNREADABLE":
            record, _, found = rest.partition(" ")
            if record == "type":
                return Unreadable(f"the key {key!r} holds a {found}, {NOT_A_LOCK}")
            bad = our("queue", key) if record == "queue" else key
            return Unreadable(UNREADABLE.format(key=bad, lock=key, found=found))
        if code == "NOTALOCK":
            return NotALock(f"the key {key!r} holds a {rest}, {NOT_A_LOCK}")
        if code == "WRONGTYPE":
            found, _, other = rest.partition(" ")
            if other == key or not other.startswith((OURS, COUNTER)):
                return NotALock(f"the key {key!r} holds a value of another type, {NOT_A_LOCK}")
            wanted = " or ".join(expected_types(other))
            return Unreadable(
                f"the key {other!r}, which belongs to the lock {key!r}, holds a {found} instead of "
                f"a {wanted}: delete it, and find out which program writes to it"
            )
        mistake = self._mistake(code, rest, address)
        if mistake:
            return NotApplied(f"{address}: {text} ({mistake})", "misconfigured")
        if code in TEMPORARY:
            self.topology.forget(address)
            if code in OF_A_REPLICA and self.topology.fixed:
                self.pool.look_up(address)
            return DeadlineExceeded(f"{address}: {text}", "unreachable")
        denied = any(words in text for words in NOT_PERMITTED)
        advice = ADVICE.get("NOPERM" if denied else code)
        said = f"{address}: {text}" + (f" ({advice})" if advice else "")
        return NotApplied(said, "denied" if advice and code not in NO_ROOM else "refused")

    def _mistake(self, code: str, rest: str, address: Address) -> str:
        """What to correct, if the server cannot be the one that is meant."""
        if code == "ERR" and rest.startswith("unknown command"):
            return UNKNOWN_COMMAND
        if code == "CROSSSLOT" or (code == "CLUSTERDOWN" and self.topology.fixed):
            return PART_OF_CLUSTER.format(address)
        # A server that has written was the master: another one takes over its name, or it will be.
        misnamed = code in OF_A_REPLICA and self.topology.fixed and not self.has_written
        return REPLICA if misnamed else ""
