"""deadlocks: owners that wait for one another, as text or as JSON."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from leaselock._cli import exit_codes
from leaselock._cli.answer import answer
from leaselock._cli.formatting import escape, time_since
from leaselock._cli.store import open_client
from leaselock.documents import deadlock_document

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leaselock import Client, LockInfo
    from leaselock._cli.options import Options
    from leaselock.live import Deadlock


def do_deadlocks(options: Options) -> int:
    """Print the deadlocks of the store; exit 1 if there are any."""
    with open_client(options) as client:
        deadlocks = client.deadlocks()
    if options.json:
        answer(options, {"deadlocks": [deadlock_document(deadlock) for deadlock in deadlocks]})
    elif deadlocks:
        print("\n\n".join("\n".join(deadlock_lines(deadlock)) for deadlock in deadlocks))
    return exit_codes.UNMET if deadlocks else 0


def deadlocks_of(client: Client, locks: Iterable[LockInfo]) -> list[Deadlock]:
    """Return the deadlocks of the store, if any of these locks can be part of one."""
    upgrading = any(one.mode == "upgrading" for lock in locks for one in lock.holders)
    if upgrading or any(lock.holders and lock.waiters for lock in locks):
        return client.deadlocks()
    return []


def names_in(deadlocks: Iterable[Deadlock]) -> frozenset[str]:
    """Return the names of the locks that are part of a deadlock."""
    return frozenset(wait.name for deadlock in deadlocks for wait in deadlock)


def _command(deadlock: Deadlock) -> str:
    """The command that ends it. It may be pasted into a shell, and the name is from a store."""
    held = deadlock[-1]
    what = shlex.quote(escape(held.name))
    dashes = "-- " if held.name.startswith("-") else ""
    return f"leaselock break --token {held.holder.token} --message deadlock {dashes}{what}"


def deadlock_lines(deadlock: Deadlock) -> list[str]:
    """Return a deadlock as lines of text, with how to end it."""
    first = deadlock[0]
    lines = [f"deadlock of {len(deadlock)} owners:"]
    for wait in deadlock:
        waits = "waits to upgrade its hold of"
        if wait.waiter.mode != "upgrading":
            waits = f"has waited {time_since(wait.waiter)} for"
        lines.append(
            f"  {escape(str(wait.waiter))} {waits} {escape(wait.name)}, "
            f"held by {escape(str(wait.holder))}, token {wait.holder.token}"
        )
    lines.append(
        f"  the youngest wait is that for {escape(first.name)}. To end it: {_command(deadlock)}"
    )
    return lines
