"""run: a command while holding a lock."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from leaselock import LeaseLost, StoreError
from leaselock.cli import codes
from leaselock.cli.child import Plan, signal_named, tied_to_us
from leaselock.cli.codes import Usage
from leaselock.cli.environment import environment, names_around
from leaselock.cli.foreground import foreground
from leaselock.cli.job import Job
from leaselock.cli.patience import Patience
from leaselock.cli.signals import Signals
from leaselock.cli.store import client_of, timeout_of
from leaselock.cli.voice import say

if TYPE_CHECKING:
    import argparse
    import signal

    from leaselock import Client, Lease, Lock

SHELL = "/bin/sh"


class Order(NamedTuple):
    """What to run, and under which name."""

    name: str
    words: list[str]


def do_run(options: argparse.Namespace) -> int:
    """Run a command while holding a lock."""
    order = ordered(options)
    on_lost = _on_lost(options.on_lost)
    with Signals() as signals, client_of(options) as client:
        lock = _lock(client, order, options)
        # Ready before the lock is taken: it is not held longer than it must be.
        terminal = None if options.no_tty else foreground()
        plan = Plan(order.words, tied_to_us(options.pdeathsig), terminal)
        _warn_of_ourselves(lock, options)
        lease = Patience(client, lock, options, signals).acquire()
        if lease is None:
            return 0 if options.skip_ok else int(options.conflict)
        plan.inherited = lease.make_inheritable()
        plan.env = environment(lease, options.ttl, client.url)
        code = Job(lease, options, signals, on_lost).run(plan)
        return _release(lease, code)


def ordered(options: argparse.Namespace) -> Order:
    """The name and the command among the words that were typed."""
    words = _without_dashes(options.words)
    name = "" if options.name_from_command or not words else words.pop(0)
    words = _command(_without_dashes(words), options.shell)
    if options.name_from_command:
        return Order(_name_of(words), words)
    if not name:
        raise Usage("run needs the name of a lock")
    return Order(name, words)


def _without_dashes(words: list[str]) -> list[str]:
    return words[1:] if words[:1] == ["--"] else list(words)


def _command(words: list[str], shell: str | None) -> list[str]:
    if shell is not None:
        if words:
            raise Usage(f"either -c or a command, not both: {words[0]!r}")
        return [os.environ.get("SHELL") or SHELL, "-c", shell]
    if not words:
        raise Usage("run needs a command: leaselock run NAME -- COMMAND")
    if words[0].startswith("-"):
        raise Usage(
            f"{words[0]!r} would be the command, for options come before the name: "
            f"leaselock run {words[0]} ... NAME -- COMMAND"
        )
    return words


def _name_of(words: list[str]) -> str:
    import hashlib

    text = "\0".join(words).encode("utf-8", "surrogateescape")
    program = os.path.basename(words[0]).encode("utf-8", "replace").decode()
    readable = "".join(char for char in program if char.isprintable())[:40]
    return f"{readable}:{hashlib.sha256(text).hexdigest()[:32]}"


def _on_lost(text: str) -> signal.Signals | None:
    return None if text.lower() == "ignore" else signal_named(text)


def _lock(client: Client, order: Order, options: argparse.Namespace) -> Lock:
    # By default only what the program is called: its arguments may hold secrets.
    label = options.reason or os.path.basename(order.words[0])
    return client.lock(order.name, lease=options.ttl, renew=not options.no_renew, label=label)


def _warn_of_ourselves(lock: Lock, options: argparse.Namespace) -> None:
    if lock.name in names_around() and timeout_of(options) is None and not options.quiet:
        say(f"this runs under {lock.name!r} already: if in the same store, the wait never ends")


def _release(lease: Lease, code: int) -> int:
    """Give the lock back. The code that was to be, unless it turns out that it was lost."""
    try:
        lease.release()
    except LeaseLost as error:
        if code != codes.LOST:
            say(str(error))
        return codes.LOST
    except StoreError as error:
        say(f"{lease.name!r} is free when its lease ends, for it could not be released: {error}")
    return code
