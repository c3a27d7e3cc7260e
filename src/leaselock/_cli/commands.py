"""The commands: one table. A new command is a row here, a class in `options`, and a module of its
name with a function do_COMMAND.
"""

from __future__ import annotations

from leaselock._cli.options import (
    AcquireOptions,
    BreakOptions,
    CompletionOptions,
    DoctorOptions,
    ExtendOptions,
    HelpOptions,
    LeadOptions,
    ListOptions,
    LockWaitOptions,
    NameOptions,
    Options,
    RunOptions,
    SetupOptions,
    StoreOptions,
    TokenOptions,
    TopOptions,
    WatchOptions,
    WebOptions,
)
from leaselock._named_tuple import NamedTuple

DURATIONS = "DUR is 500ms, 10s, 5m, 1h30m, or a number of seconds."
RUN_EPILOG = f"""\
{DURATIONS}
Options may also follow NAME, as far as the "--". The command is a process group of its own. Its
environment has LEASELOCK_NAME, LEASELOCK_TOKEN (the fencing token), LEASELOCK_LEASE (its length in
seconds), LEASELOCK_HELD_SINCE, LEASELOCK_BACKEND (the store) and LEASELOCK_STACK (the names of all
locks around it, one per line); with --slots, LEASELOCK_SLOT is the number of its permit, from 0 on,
which no other command has at the same time.

It is ended before the lease is: it gets the --on-lost signal when --kill-after (a third of the
lease at most) is left of the lease, and SIGKILL before its end; if the lease is lost without
warning, at most a second after the signal.

--json prints the document as the last line of stderr: stdout belongs to the command.
"""
LEAD_EPILOG = f"""\
{DURATIONS}
Options may also follow NAME, as far as the "--". The command and its environment are as with
`leaselock run`. It is ended before another process can lead, and runs again when this one leads
again. When it ends by itself, this process resigns, and campaigns again after a second.
"""


class Command(NamedTuple):
    """One command."""

    summary: str
    options: type[Options]
    epilog: str | None = None


COMMANDS = {
    "run": Command("run a command while holding a lock", RunOptions, RUN_EPILOG),
    "lead": Command(
        "run a command while this process leads, whenever it does",
        LeadOptions,
        LEAD_EPILOG,
    ),
    "leader": Command("print who leads; exit 1 if no process does", NameOptions),
    "ls": Command("list the locks that are held or waited for", ListOptions),
    "show": Command("show one lock, its holder and its waiters", NameOptions),
    "top": Command("show locks, holders, waiters and events, live", TopOptions),
    "watch": Command("print a line of JSON for each change of a lock", WatchOptions),
    "wait": Command("wait until a lock is free (it queues for it), or held", LockWaitOptions),
    "break": Command("take a lock from its holder by force", BreakOptions),
    "acquire": Command(
        "take a lease and print its token; it outlives this command", AcquireOptions
    ),
    "release": Command("release a lease that acquire took", TokenOptions),
    "extend": Command("have a lease end no sooner than --lease from now", ExtendOptions),
    "check": Command("exit 0 if the token still holds the lock, 79 if not", TokenOptions),
    "doctor": Command(
        "check how the store is configured; exit 1 when something must be changed",
        DoctorOptions,
    ),
    "setup": Command(
        "create what the store needs before use, such as tables (alias: init)",
        SetupOptions,
    ),
    "deadlocks": Command(
        "list owners that wait for one another; exit 1 if there are any", StoreOptions
    ),
    "web": Command("serve a page with locks, holders, waiters and events, live", WebOptions),
    "gc": Command("remove records that are no longer needed", StoreOptions),
    "completion": Command("print a completion script for a shell", CompletionOptions),
    "help": Command("print help, of a command or on exit-codes", HelpOptions),
    "version": Command("print the version", Options),
}
ALIASES = {"init": "setup"}


def module_of(command: str) -> str:
    """The module of a command, which has its name; one is a keyword of Python."""
    return f"leaselock._cli.{'break_' if command == 'break' else command}"
