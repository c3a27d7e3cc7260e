"""run: run a command while holding a lock."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from leaselock import LeaseLost, StoreError
from leaselock._cli import exit_codes
from leaselock._cli.answer import answer
from leaselock._cli.child import (
    CommandSpec,
    check_nesting,
    command_environment,
    parse_signal,
    shell_command,
)
from leaselock._cli.exit_codes import Usage
from leaselock._cli.formatting import format_duration
from leaselock._cli.interactive import InteractiveWait
from leaselock._cli.metrics_file import recorded
from leaselock._cli.output import say
from leaselock._cli.several import SeveralLeases, failing, locks_of, names_of
from leaselock._cli.signals import Signals
from leaselock._cli.store import as_given, open_client
from leaselock._cli.supervisor import Outcome, Supervisor
from leaselock._named_tuple import NamedTuple

if TYPE_CHECKING:
    from leaselock import Client, Lease, Lock
    from leaselock._cli.options import CommandOptions, RunOptions
    from leaselock._cli.several import SeveralLocks, Turn


class ParsedCommand(NamedTuple):
    """The name of the lock, and the words of the command to run under it."""

    name: str
    argv: list[str]


def do_run(given: RunOptions) -> int:
    """Run a command while holding a lock."""
    options = given.with_period()
    command = parse_command(options)
    on_lost = on_lost_signal(options.on_lost)
    with (
        recorded(options.metrics_file, command.name) as run,
        Signals() as signals,
        open_client(options) as client,
    ):
        lock, spec = prepared(client, command, options)
        wait = InteractiveWait(client, lock, options, signals)
        lease = wait.acquire()
        run.granted = time.monotonic()
        outcome = run_under_lease(client, wait, lease, spec, options, on_lost)
        run.ended(outcome)
        return outcome.status


def prepared(
    client: Client, command: ParsedCommand, options: CommandOptions
) -> tuple[Lock | SeveralLocks | Turn, CommandSpec]:
    """Return the lock and the command. Everything is prepared before the lock is acquired, so that
    it is held no longer than needed.
    """
    lock = _lock(client, command, options)
    at_death = None if options.pdeathsig.lower() == "none" else parse_signal(options.pdeathsig)
    spec = CommandSpec(command.argv, at_death, on_terminal=not options.no_tty)
    spec.check_executable()  # a typing error must not use up the only run of a period
    _check_nesting(lock, client, options)
    return lock, spec


def run_under_lease(
    client: Client,
    wait: InteractiveWait,
    lease: Lease | SeveralLeases,
    spec: CommandSpec,
    options: CommandOptions,
    on_lost: int | None,
) -> Outcome:
    """Run the command under the lease that *wait* has acquired, and release it."""
    acquired = time.monotonic()
    spec.inherited = lease.make_inheritable()
    spec.env = command_environment(lease, options.lease, client.url)
    supervisor = Supervisor(lease, options, wait.signals, on_lost)
    outcome = supervisor.run(spec)
    if _release(lease, options, done=outcome.code == 0, reported=supervisor.lost):
        outcome = Outcome(
            exit_codes.LOST, f"the lease on {failing(lease).name!r} in {client.url} was lost"
        )
    _report(options, wait, lease, outcome, time.monotonic() - acquired)
    return outcome


def _report(
    options: CommandOptions,
    wait: InteractiveWait,
    lease: Lease | SeveralLeases,
    outcome: Outcome,
    held: float,
) -> None:
    """Print how it went: as a document, or with --verbose as text."""
    if options.json:
        from leaselock.documents import holder_document

        kind = exit_codes.KINDS.get(outcome.code)
        error = {"error": kind, "message": outcome.failure} if outcome.failure else {}
        document = {
            "name": lease.name,
            "token": lease.token,
            "exit_code": outcome.code,
            "waited": wait.waited,
            "held": held,
            "renewals": lease.renewals,
            "previous_holder": holder_document(wait.last_holder),
        }
        answer(options, error | document)
    elif options.verbose and outcome.code != exit_codes.LOST:
        times = f"renewed {lease.renewals} times"
        say(f"released {lease.name!r} after {format_duration(held)}, {times}")


def parse_command(options: CommandOptions) -> ParsedCommand:
    """Split the words after the options into the name of the lock and the command."""
    argv = _without_dashes(options.argv)
    name = "" if options.name_from_command or not argv else argv.pop(0)
    argv = _command_argv(_without_dashes(argv), options)
    if options.name_from_command:
        return ParsedCommand(_name_from(argv), argv)
    if not name:
        raise Usage(f"{options.command} needs the name of a lock")
    return ParsedCommand(name, argv)


def _without_dashes(argv: list[str]) -> list[str]:
    return argv[1:] if argv[:1] == ["--"] else list(argv)


def _command_argv(argv: list[str], options: CommandOptions) -> list[str]:
    shell, command = options.shell, options.command
    if shell is not None:
        if argv:
            raise Usage(f"either -c or a command, not both: {argv[0]!r}")
        return shell_command(shell)
    if not argv:
        raise Usage(f"{command} needs a command: leaselock {command} NAME -- COMMAND")
    if argv[0].startswith("-"):
        raise Usage(
            f"{argv[0]!r} would be the command, for only options may stand before a --: "
            f"leaselock {command} NAME {argv[0]} ... -- COMMAND"
        )
    return argv


def _name_from(argv: list[str]) -> str:
    import hashlib

    text = "\0".join(argv).encode("utf-8", "surrogateescape")
    program = os.path.basename(argv[0]).encode("utf-8", "replace").decode()
    readable = "".join(char for char in program if char.isprintable())[:40]
    return f"{readable}:{hashlib.sha256(text).hexdigest()[:32]}"


def on_lost_signal(text: str) -> int | None:
    """Return the signal of --on-lost, None for "ignore"."""
    return None if text.lower() == "ignore" else parse_signal(text)


def _lock(
    client: Client, command: ParsedCommand, options: CommandOptions
) -> Lock | SeveralLocks | Turn:
    # The default label is the program's name only: its arguments may hold secrets.
    label = options.label or os.path.basename(command.argv[0])
    return locks_of(client, command.name, label, options)


def _check_nesting(
    lock: Lock | SeveralLocks | Turn, client: Client, options: CommandOptions
) -> None:
    """Refuse to wait for a lock that this command runs under."""
    for name in names_of(lock):
        permits = options.slots if name == lock.name else None
        check_nesting(name, client.url, options.timeout, permits or 1)


def _release(
    lease: Lease | SeveralLeases, options: CommandOptions, *, done: bool, reported: bool
) -> bool:
    """Release the lock; return whether its lease was lost. Print that unless it was *reported*. If
    the command has *done* its work, a turn of --on-error retry is used up.
    """
    valid = not lease.lost
    try:
        if done and not isinstance(lease, SeveralLeases):
            with lease:
                pass
        else:
            lease.release()
    except LeaseLost as error:
        if valid and isinstance(error.__cause__, StoreError):
            # The command ended before the lease did.
            why = f"it could not be released: {as_given(str(error.__cause__), options)}"
            say(f"{lease.name!r} stays held until its lease or its session ends, for {why}")
            return reported
        if not reported:
            say(str(error))
        return True
    return reported
