"""run: run a command while holding a lock."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from leaselock import LeaseLost, StoreError
from leaselock.cli import exit_codes
from leaselock.cli.child import (
    CommandSpec,
    command_environment,
    enclosing_locks,
    parent_death_signal,
    parse_signal,
)
from leaselock.cli.exit_codes import Usage
from leaselock.cli.interactive import InteractiveWait
from leaselock.cli.output import say
from leaselock.cli.signals import Signals
from leaselock.cli.store import open_client, wait_timeout
from leaselock.cli.supervisor import Supervisor
from leaselock.cli.terminal import controlling_terminal

if TYPE_CHECKING:
    import argparse
    import signal

    from leaselock import Client, Lease, Lock

SHELL = "/bin/sh"


class ParsedCommand(NamedTuple):
    """The name of the lock, and the words of the command to run under it."""

    name: str
    words: list[str]


def do_run(options: argparse.Namespace) -> int:
    """Run a command while holding a lock."""
    command = parse_command(options)
    on_lost = _on_lost_signal(options.on_lost)
    with Signals() as signals, open_client(options) as client:
        lock = _lock(client, command, options)
        # Prepare the start before acquiring, so that the lock is held no longer than needed.
        terminal = None if options.no_tty else controlling_terminal()
        spec = CommandSpec(command.words, parent_death_signal(options.pdeathsig), terminal)
        _check_nesting(lock, client, options)
        if options.verbose:
            say(f"the store is {client.url}")
        lease = InteractiveWait(client, lock, options, signals).acquire()
        if lease is None:
            return 0 if options.skip_ok else int(options.conflict)
        spec.inherited = lease.make_inheritable()
        spec.env = command_environment(lease, options.ttl, client.url)
        code = Supervisor(lease, options, signals, on_lost).run(spec)
        return _release(lease, code)


def parse_command(options: argparse.Namespace) -> ParsedCommand:
    """Split the words after the options into the name of the lock and the command."""
    words = _without_dashes(options.words)
    name = "" if options.name_from_command or not words else words.pop(0)
    words = _command_words(_without_dashes(words), options.shell)
    if options.name_from_command:
        return ParsedCommand(_name_from(words), words)
    if not name:
        raise Usage("run needs the name of a lock")
    return ParsedCommand(name, words)


def _without_dashes(words: list[str]) -> list[str]:
    return words[1:] if words[:1] == ["--"] else list(words)


def _command_words(words: list[str], shell: str | None) -> list[str]:
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


def _name_from(words: list[str]) -> str:
    import hashlib

    text = "\0".join(words).encode("utf-8", "surrogateescape")
    program = os.path.basename(words[0]).encode("utf-8", "replace").decode()
    readable = "".join(char for char in program if char.isprintable())[:40]
    return f"{readable}:{hashlib.sha256(text).hexdigest()[:32]}"


def _on_lost_signal(text: str) -> signal.Signals | None:
    return None if text.lower() == "ignore" else parse_signal(text)


def _lock(client: Client, command: ParsedCommand, options: argparse.Namespace) -> Lock:
    # The default label is the program's name only: its arguments may hold secrets.
    label = options.reason or os.path.basename(command.words[0])
    return client.lock(command.name, lease=options.ttl, renew=not options.no_renew, label=label)


def _check_nesting(lock: Lock, client: Client, options: argparse.Namespace) -> None:
    """Refuse to wait for a lock that this command runs under."""
    if (lock.name, client.url) in enclosing_locks() and wait_timeout(options) is None:
        raise Usage(
            f"this runs under the lock {lock.name!r} of the same store ({client.url}) already: "
            "waiting for it would never end"
        )


def _release(lease: Lease, code: int) -> int:
    """Release the lock; return *code*, or the code for a lost lease if the release reports it."""
    valid = not lease.lost
    try:
        lease.release()
    except LeaseLost as error:
        if valid and isinstance(error.__cause__, StoreError):
            # The command ended before the lease did.
            why = f"it could not be released: {error.__cause__}"
            say(f"{lease.name!r} is free when its lease ends, for {why}")
            return code
        if code != exit_codes.LOST:
            say(str(error))
        return exit_codes.LOST
    return code
