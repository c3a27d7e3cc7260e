"""What `leaselock doctor` finds out about the members of an etcd, and the rights of a user."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

from leaselock._backends.document.http import shown
from leaselock._backends.etcd.gateway import OLDEST, encoded
from leaselock._core.contract.backend import Finding
from leaselock._core.rows.checks import Case, otherwise, report
from leaselock._core.rows.maintenance import clock_finding, tls_finding
from leaselock.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leaselock._backends.etcd.gateway import Answer, Gateway
    from leaselock._core.rows.checks import Check, Facts

OLDEST_NUMBERS = tuple(map(int, OLDEST.split(".")))
# These may lose or corrupt data after a crash, say their own release notes.
UNSAFE = ((3, 5, 0), (3, 5, 2))
# The clock of a member has a granularity of one second: more than this is a difference.
MOST_APART = 2.0
SLOW = 0.1
# A transaction that compares this never writes, but needs the right to.
IMPOSSIBLE = -1


# --- checks ---------------------------------------------------------------------------------------

MAJORITY: tuple[Check, ...] = (
    (
        Case(
            "warn",
            lambda majority: majority["took"] >= SLOW,
            "a majority of the members answers, {took:.3f} s",
            "give the members disks of their own",
        ),
        Case("ok", otherwise, "a majority of the members answers, {took:.3f} s"),
    ),
)

# What a member says of itself.
MEMBER: tuple[Check, ...] = (
    (
        Case(
            "fail",
            lambda member: not member["leader"],
            "{server}: etcd {version}, {role}, {size:.1f} MB: it knows no leader",
            "start the other members, or let this one reach them",
            "{server}",
        ),
        Case(
            "fail",
            lambda member: member["numbers"] < OLDEST_NUMBERS,
            "{server}: etcd {version}, {role}, {size:.1f} MB",
            f"upgrade to etcd {OLDEST} or later",
            "{server}",
        ),
        Case(
            "fail",
            lambda member: UNSAFE[0] <= member["numbers"] <= UNSAFE[1],
            "{server}: etcd {version}, {role}, {size:.1f} MB: it may lose data after a crash",
            "upgrade it",
            "{server}",
        ),
        Case(
            "ok",
            otherwise,
            "{server}: etcd {version}, {role}, {size:.1f} MB",
            server="{server}",
        ),
    ),
)


def _clock(member: Facts) -> Finding | None:
    if member["offset"] is None:
        return None
    where = member["server"]
    return clock_finding(where, member["offset"], 0.0)._replace(server=where)


# Of each member that says its time, and of all of them.
CLOCK: tuple[Check, ...] = (_clock,)
CLOCKS: tuple[Check, ...] = (
    Case(
        "fail",
        lambda clocks: clocks["apart"] > MOST_APART,
        "the clocks of the members are {apart:.1f} s apart",
        "synchronise them: a lease may be taken for ended too early",
    ),
)

# Of each alarm; without any, the kind is None.
ALARM: tuple[Check, ...] = (
    (
        Case("ok", lambda alarm: alarm["kind"] is None, "no alarm"),
        Case(
            "fail",
            lambda alarm: alarm["kind"] == "NOSPACE",
            "alarm {kind}: no lock can be acquired or renewed",
            "compact and defragment it, or raise --quota-backend-bytes; then etcdctl alarm disarm",
        ),
        Case(
            "fail",
            otherwise,
            "alarm {kind}: no lock can be acquired or renewed",
            "restore the member from a backup",
        ),
    ),
)

MEMBERS: tuple[Check, ...] = (
    (
        Case(
            "warn",
            lambda members: members["voters"] < 3,
            "{voters} member{plural}",
            "three members go on when one fails",
        ),
        Case(
            "warn",
            lambda members: members["named"] < members["listed"],
            "{listed} members, and {named} named",
            "name all members in the URL, so that clients find one that runs",
        ),
        Case("ok", otherwise, "{voters} members: {spare} may fail"),
    ),
)

RIGHTS: tuple[Check, ...] = (
    (
        Case(
            "ok",
            lambda rights: rights["error"] is None,
            "the keys below {prefix!r} can be read and written",
        ),
        Case(
            "fail",
            lambda rights: rights["error"].reason == "denied",
            "the keys below {prefix!r} cannot be written: {error}",
            "grant readwrite on the prefix {prefix!r}",
        ),
        Case("fail", otherwise, "the keys below {prefix!r} cannot be written: {error}"),
    ),
)


def _encryption(security: Facts) -> Finding | None:
    if security["tls"]:
        return tls_finding("etcd", "", True, "")
    if security["login"]:
        return Finding("warn", "the password is sent unencrypted", "use etcds://")
    return None


SECURITY: tuple[Check, ...] = (
    _encryption,
    (
        Case(
            "warn",
            lambda security: not security["login"],
            "every user can change the keys of locks",
            "enable its authentication unless the network is closed",
        ),
        Case(
            "warn",
            lambda security: security["auth_is_off"],
            "its authentication is off, so the login was not used",
            "etcdctl auth enable; without it every user can change the keys of locks",
        ),
    ),
)


# --- probes ---------------------------------------------------------------------------------------


class Doctor:
    """Examines one store."""

    def __init__(self, gateway: Gateway, key: bytes) -> None:
        self.gateway = gateway
        self.key = key

    def findings(self, until: float) -> Iterator[Finding]:
        """One for each check."""
        yield from self._majority(until)
        yield from self._each_member(until)
        yield from self._alarms(until)
        yield from self._members(until)
        yield from self._rights(until)
        gateway = self.gateway
        tls, login = gateway.pool.tls is not None, gateway.login is not None
        facts = {"tls": tls, "login": login, "auth_is_off": gateway.auth_is_off}
        yield from report(SECURITY, facts)

    def _majority(self, until: float) -> list[Finding]:
        now = self.gateway.pool.now
        began = now()
        # Linearizable, so it needs a majority and a valid login.
        self.gateway.post("kv/range", {"key": encoded(self.key), "count_only": True}, until)
        return report(MAJORITY, {"took": now() - began})

    def _each_member(self, until: float) -> Iterator[Finding]:
        """What each member says of itself, and then the clocks of those that answer."""
        pool = self.gateway.pool
        members = []
        for number, server in enumerate(pool.servers):
            # One that is stopped does not take the time of the others.
            limit = pool.now() + (until - pool.now()) / (len(pool.servers) + 1 - number)
            try:
                answer = self.gateway.post("maintenance/status", {}, limit, server)
            except StoreError as error:
                where = shown(server)
                what = str(error).removeprefix(f"{where}: ")
                advice = "the others go on while they are a majority: see why"
                yield Finding("warn", f"{where}: {what}", advice, where)
            else:
                members.append(_member(answer, time.time()))
                yield from report(MEMBER, members[-1])
        for member in members:
            yield from report(CLOCK, member)
        offsets = [member["offset"] for member in members if member["offset"] is not None]
        if offsets:
            yield from report(CLOCKS, {"apart": max(offsets) - min(offsets)})

    def _alarms(self, until: float) -> Iterator[Finding]:
        try:
            answer = self.gateway.post("maintenance/alarm", {"action": "GET"}, until)
        except StoreError as error:
            yield Finding("skip", f"the alarms could not be examined: {error}")
            return
        kinds = {str(alarm.get("alarm", "")) for alarm in answer.body.get("alarms", ())}
        if not kinds:
            yield from report(ALARM, {"kind": None})
        for kind in sorted(kinds):
            yield from report(ALARM, {"kind": kind})

    def _members(self, until: float) -> list[Finding]:
        """How many members there are, and how many of them are named."""
        try:
            answer = self.gateway.post("cluster/member/list", {}, until)
        except StoreError as error:
            return [Finding("skip", f"the members could not be listed: {error}")]
        members = answer.body.get("members", ())
        voters = sum(not member.get("isLearner") for member in members)
        facts = {
            "listed": len(members),
            "named": len(self.gateway.pool.servers),
            "voters": voters,
            "plural": "s" * (voters > 1),
            "spare": (voters - 1) // 2,
        }
        return report(MEMBERS, facts)

    def _rights(self, until: float) -> list[Finding]:
        """Whether the keys of locks can be written, without writing one."""
        key = encoded(self.key)
        compared = {"key": key, "target": "MOD", "result": "EQUAL", "mod_revision": IMPOSSIBLE}
        put = {"requestPut": {"key": key, "value": ""}}
        facts: dict[str, Any] = {"prefix": self.key.decode("utf-8", "replace"), "error": None}
        try:
            self.gateway.post("kv/txn", {"compare": [compared], "success": [put]}, until)
        except StoreError as error:
            facts["error"] = error
        return report(RIGHTS, facts)


def _member(answer: Answer, ours: float) -> dict[str, Any]:
    """What a member says of itself. *offset* is how many seconds its clock is ahead of this
    machine's, without its granularity.
    """
    status = answer.body
    version = str(status.get("version", "of unknown version"))
    leader = status.get("leader")
    leads = leader == status.get("header", {}).get("member_id")
    return {
        "server": answer.server,
        "version": version,
        "numbers": tuple(int(number) for number in re.findall(r"\d+", version)[:3]),
        "leader": int(leader or 0),
        "role": "learner" if status.get("isLearner") else "leader" if leads else "follower",
        "size": int(status.get("dbSize", 0)) / 1e6,
        "offset": None if answer.date is None else _offset(answer.date, ours),
    }


def _offset(date: float, ours: float) -> float:
    """How far a clock of whole seconds is off, if it is."""
    if date > ours:
        return date - ours
    return min(0.0, date + 1.0 - ours)
