"""What `leaselock doctor` finds out about the members of an etcd, and the rights of a user."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from leaselock._backends.document.http import shown
from leaselock._backends.etcd.gateway import OLDEST, encoded
from leaselock._core.contract.backend import Finding
from leaselock._core.rows.maintenance import clock_finding, tls_finding
from leaselock.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from leaselock._backends.etcd.gateway import Gateway

# These may lose or corrupt data after a crash, say their own release notes.
UNSAFE = ((3, 5, 0), (3, 5, 2))
# The clock of a member has a granularity of one second: more than this is a difference.
MOST_APART = 2.0
SLOW = 0.1
# A transaction that compares this never writes, but needs the right to.
IMPOSSIBLE = -1
FREE_SPACE = "compact and defragment it, or raise --quota-backend-bytes; then etcdctl alarm disarm"


class Status(NamedTuple):
    """What a member says of itself."""

    server: str
    facts: dict[str, Any]
    offset: float | None
    """How many seconds its clock is ahead of this machine's, without its granularity."""


class Doctor:
    """Examines one store."""

    def __init__(self, gateway: Gateway, key: bytes) -> None:
        self.gateway = gateway
        self.key = key

    def findings(self, until: float) -> Iterator[Finding]:
        """One for each check."""
        now = self.gateway.pool.now
        began = now()
        # Linearizable, so it needs a majority and a valid login.
        self.gateway.post("kv/range", {"key": encoded(self.key), "count_only": True}, until)
        took = now() - began
        advice = "give the members disks of their own" if took >= SLOW else ""
        level: Any = "warn" if advice else "ok"
        yield Finding(level, f"a majority of the members answers, {took:.3f} s", advice)
        statuses = []
        for member in self._statuses(until):
            if isinstance(member, Finding):
                yield member
            else:
                statuses.append(member)
                yield from _member(member)
        yield from _clocks(statuses)
        yield from self._alarms(until)
        yield from self._members(until)
        yield self._writing(until)
        yield from self._security()

    def _statuses(self, until: float) -> Iterator[Status | Finding]:
        pool = self.gateway.pool
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
                date = answer.date
                offset = None if date is None else _offset(date, time.time())
                yield Status(answer.server, answer.body, offset)

    def _alarms(self, until: float) -> Iterator[Finding]:
        try:
            answer = self.gateway.post("maintenance/alarm", {"action": "GET"}, until)
        except StoreError as error:
            yield Finding("skip", f"the alarms could not be examined: {error}")
            return
        kinds = {str(alarm.get("alarm", "")) for alarm in answer.body.get("alarms", ())}
        if not kinds:
            yield Finding("ok", "no alarm")
        for kind in sorted(kinds):
            advice = FREE_SPACE if kind == "NOSPACE" else "restore the member from a backup"
            yield Finding("fail", f"alarm {kind}: no lock can be acquired or renewed", advice)

    def _members(self, until: float) -> Iterator[Finding]:
        try:
            answer = self.gateway.post("cluster/member/list", {}, until)
        except StoreError as error:
            yield Finding("skip", f"the members could not be listed: {error}")
            return
        members = answer.body.get("members", ())
        voters = sum(not member.get("isLearner") for member in members)
        named = len(self.gateway.pool.servers)
        if voters < 3:
            advice = "three members go on when one fails"
            yield Finding("warn", f"{voters} member{'s' * (voters > 1)}", advice)
        elif named < len(members):
            advice = "name all members in the URL, so that clients find one that runs"
            yield Finding("warn", f"{len(members)} members, and {named} named", advice)
        else:
            yield Finding("ok", f"{voters} members: {(voters - 1) // 2} may fail")

    def _writing(self, until: float) -> Finding:
        key = encoded(self.key)
        compared = {"key": key, "target": "MOD", "result": "EQUAL", "mod_revision": IMPOSSIBLE}
        put = {"requestPut": {"key": key, "value": ""}}
        where = repr(self.key.decode("utf-8", "replace"))
        try:
            self.gateway.post("kv/txn", {"compare": [compared], "success": [put]}, until)
        except StoreError as error:
            what = f"the keys below {where} cannot be written: {error}"
            advice = "" if error.reason != "denied" else f"grant readwrite on the prefix {where}"
            return Finding("fail", what, advice)
        return Finding("ok", f"the keys below {where} can be read and written")

    def _security(self) -> Iterator[Finding]:
        gateway = self.gateway
        if gateway.pool.tls is not None:
            yield tls_finding("etcd", "", True, "")
        elif gateway.login is not None:
            yield Finding("warn", "the password is sent unencrypted", "use etcds://")
        if gateway.login is None:
            advice = "enable its authentication unless the network is closed"
            yield Finding("warn", "every user can change the keys of locks", advice)
        elif gateway.auth_is_off:
            advice = "etcdctl auth enable; without it every user can change the keys of locks"
            yield Finding("warn", "its authentication is off, so the login was not used", advice)


def _offset(date: float, ours: float) -> float:
    """How far a clock of whole seconds is off, if it is."""
    if date > ours:
        return date - ours
    return min(0.0, date + 1.0 - ours)


def _member(status: Status) -> Iterator[Finding]:
    where, facts = status.server, status.facts
    version = str(facts.get("version", "of unknown version"))
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:3])
    leads = facts.get("leader") == facts.get("header", {}).get("member_id")
    role = "learner" if facts.get("isLearner") else "leader" if leads else "follower"
    size = int(facts.get("dbSize", 0)) / 1e6
    what = f"{where}: etcd {version}, {role}, {size:.1f} MB"
    if int(facts.get("leader", 0)) == 0:
        advice = "start the other members, or let this one reach them"
        yield Finding("fail", f"{what}: it knows no leader", advice, where)
    elif numbers < tuple(map(int, OLDEST.split("."))):
        yield Finding("fail", what, f"upgrade to etcd {OLDEST} or later", where)
    elif UNSAFE[0] <= numbers <= UNSAFE[1]:
        yield Finding("fail", f"{what}: it may lose data after a crash", "upgrade it", where)
    else:
        yield Finding("ok", what, server=where)


def _clocks(statuses: Sequence[Status]) -> Iterator[Finding]:
    known = [(status.server, status.offset) for status in statuses if status.offset is not None]
    for where, offset in known:
        yield clock_finding(where, offset, 0.0)._replace(server=where)
    offsets = [offset for _, offset in known]
    if offsets and max(offsets) - min(offsets) > MOST_APART:
        apart = max(offsets) - min(offsets)
        what = f"the clocks of the members are {apart:.1f} s apart"
        advice = "synchronise them: a lease may be taken for ended too early"
        yield Finding("fail", what, advice)
