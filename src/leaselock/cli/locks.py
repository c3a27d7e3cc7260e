"""acquire, release, extend, check, break, wait: the commands that act on one lock.

A lease taken by ``acquire`` outlives the command; later commands name it by its token.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, cast

from leaselock.cli import exit_codes
from leaselock.cli.answer import answer, done
from leaselock.cli.child import check_nesting
from leaselock.cli.exit_codes import Negative, Usage
from leaselock.cli.formatting import describe, format_duration, wanted
from leaselock.cli.interactive import InteractiveWait
from leaselock.cli.output import prompt, say
from leaselock.cli.signals import Signals
from leaselock.cli.store import open_client, wait_timeout
from leaselock.cli.watch import wait_until_held
from leaselock.documents import holder_document

if TYPE_CHECKING:
    import argparse

    from leaselock import Client, Holder, Lease, Lock


def do_acquire(options: argparse.Namespace) -> int:
    """Acquire a lease, print its token, and detach it."""
    if sys.stdout is None:
        raise Usage("the token would be lost: acquire prints it, and its output is closed")
    with Signals() as signals, open_client(options) as client:
        lock = client.lock(options.name, lease=options.lease, renew=False, label=options.label)
        lease = cast("Lease", InteractiveWait(client, lock, options, signals).acquire())
        signals.check()
        lease.detach()
        _print_token(client, lease, options)
    return 0


def _print_token(client: Client, lease: Lease, options: argparse.Namespace) -> None:
    document = {"name": lease.name, "token": lease.token, "lease": options.lease}
    try:
        if options.json:
            answer(options, document)
        else:
            print(lease.token, flush=True)
    except OSError:
        # Without its token, the lease could only be waited out.
        client.adopt(lease.name, lease.token).release()
        raise


def _token(options: argparse.Namespace) -> int:
    """The token, which follows the name or --token."""
    tokens = {token for token in (options.given, options.token) if token is not None}
    if len(tokens) != 1:
        problem = "two tokens were given" if tokens else "the token is missing"
        raise Usage(f"{problem}: leaselock {options.command} NAME TOKEN")
    return int(tokens.pop())


def do_release(options: argparse.Namespace) -> int:
    """Release a lease."""
    name, token = options.name, _token(options)
    with open_client(options) as client:
        client.adopt(name, token).release()
    return done(options, {"name": name, "token": token}, f"released {name!r}, token {token}")


def do_extend(options: argparse.Namespace) -> int:
    """Extend a lease to at least --lease from now."""
    name, token = options.name, _token(options)
    with open_client(options) as client:
        lease = client.adopt(name, token)
        before = lease.remaining
        lease.extend(options.lease)
        remaining = lease.remaining
    left = format_duration(remaining)
    longer = before > options.lease
    if longer and not options.quiet and not options.json:
        say(f"the lease on {name!r} has {left} left already, which is longer: it stays so")
    document = {"name": name, "token": token, "remaining": remaining, "extended": not longer}
    return done(options, document, f"the lease on {name!r} ends in {left}")


def do_check(options: argparse.Namespace) -> int:
    """Exit 0 if the token holds the lock, detached or not."""
    name, token = options.name, _token(options)
    with open_client(options) as client:
        holders = client.lock(name).holders()
    found = [holder for holder in holders if holder.token == token]
    holder = next(iter(found or holders), None)
    document = {"name": name, "token": token, "holder": holder_document(holder)}
    if holder is None or holder.token != token:
        text = f"{name!r} is {_state(holder)}"
        kind = exit_codes.KINDS[exit_codes.NOT_HELD]
        raise Negative(text, exit_codes.NOT_HELD, kind, document)
    return done(options, document, f"{name!r} is {_state(holder)}")


def _state(holder: Holder | None) -> str:
    if holder is None:
        return "free"
    token = "no token" if holder.token is None else f"token {holder.token}"
    return f"held by {describe(holder)}, {token}"


def do_break(options: argparse.Namespace) -> int:
    """Break a lock, after confirmation."""
    with open_client(options) as client:
        lock = client.lock(options.name)
        _require_message(options)
        holders = lock.holders()
        if not holders:
            return _report_break(options, None, f"{options.name!r} is free")
        for holder in holders:
            say(f"{options.name!r} is {_state(holder)}{wanted(holder)}")
        if not _confirmed(options):
            _report_break(options, None, "not broken")
            return exit_codes.UNMET
        if options.token is not None:
            holders = holders[:1]
        return max(_break(client, options, holder) for holder in holders)


def _needs_confirmation(options: argparse.Namespace) -> bool:
    return not options.yes and options.token is None


def _require_message(options: argparse.Namespace) -> None:
    if sys.stdin is not None and sys.stdin.isatty():
        return
    if _needs_confirmation(options):
        raise Usage("stdin is not a terminal: give --yes or --token T, and --message TEXT")
    if not options.message:
        raise Usage("--message TEXT is required when stdin is not a terminal")


def _confirmed(options: argparse.Namespace) -> bool:
    if not _needs_confirmation(options):
        return True
    name: str = options.name
    return prompt(f"type {name} to break it: ") == name


def _break(client: Client, options: argparse.Namespace, holder: Holder) -> int:
    # Break only the grant that was shown: the lock may have changed hands since.
    token = holder.token if options.token is None else options.token
    broken = client.break_lock(options.name, token=token)
    if broken is None:
        return _report_break(options, None, f"{options.name!r} has become free just now")
    reason = f": {options.message}" if options.message else ""
    return _report_break(options, broken, f"broke {options.name!r}, {_named(broken)}{reason}")


def _named(holder: Holder) -> str:
    return "a hold without a token" if holder.token is None else f"token {holder.token}"


def _report_break(options: argparse.Namespace, broken: Holder | None, text: str) -> int:
    if options.json:
        answer(options, {"name": options.name, "broken": holder_document(broken)})
    elif not options.quiet:
        say(text)
    return 0


def do_wait(options: argparse.Namespace) -> int:
    """Wait until the lock is free or held.

    To find out that a lock is free, the command queues for it, acquires it and releases it.
    """
    with Signals() as signals, open_client(options) as client:
        lock = client.lock(options.name, label="leaselock wait")
        if options.until == "held":
            _wait_until_held(client, lock, options, signals)
        else:
            check_nesting(lock.name, client.url)
            InteractiveWait(client, lock, options, signals).acquire().release()
    document = {"name": options.name, "state": options.until}
    return done(options, document, f"{options.name!r} is {options.until}")


def _wait_until_held(
    client: Client, lock: Lock, options: argparse.Namespace, signals: Signals
) -> None:
    timeout = wait_timeout(options)
    deadline = float("inf") if timeout is None else time.monotonic() + timeout
    if not wait_until_held(client, lock, signals, deadline):
        waited = f" after {format_duration(timeout)}" if timeout else ""
        text = f"{lock.name!r} is free{waited}"
        raise Negative(text, exit_codes.BUSY, "free", {"name": lock.name, "holder": None})
