"""The commands: one table. A new command is a row here, a class of options, and a module of its
name with a function do_COMMAND.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, NamedTuple

from leaselock._cli import exit_codes
from leaselock._cli.formatting import parse_duration
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
    TokenOptions,
    TopOptions,
    WatchOptions,
    WebOptions,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    Parser = argparse.ArgumentParser

DURATIONS = "DUR is 500ms, 10s, 5m, 1h30m, or a number of seconds."
SHELLS = ("bash", "zsh", "fish")
SORT_KEYS = ("name", "since", "lease", "waiters", "wait", "token")
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
    add_options: Callable[[Parser], None]
    options: type[Options]
    epilog: str | None = None


def _duration(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _exit_code(text: str) -> int:
    if not (text.isdecimal() and int(text) <= 255):
        raise argparse.ArgumentTypeError(f"{text!r} is not an exit code: 0 to 255")
    return int(text)


def _token(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a token: a whole number")
    return int(text)


def _add(parser: argparse._ActionsContainer, *names: str, **options: object) -> None:
    """Add an option. Other words for the same thing, known from other tools, are understood but
    not shown: those after a "|".
    """
    shown = [name for name in names if not name.startswith("|")]
    action = parser.add_argument(*shown, **options)  # type: ignore[arg-type]
    hidden = [name[1:] for name in names if name.startswith("|")]
    if hidden:
        kept = {key: options[key] for key in ("type", "action") if key in options}
        parser.add_argument(
            *hidden,
            dest=action.dest,
            default=argparse.SUPPRESS,
            help=argparse.SUPPRESS,
            **kept,  # type: ignore[arg-type]
        )


def add_common_options(parser: Parser) -> None:
    """The options that every command has, also before its name."""
    store = "the store ($LEASELOCK_URL, else embedded)"
    _add(parser, "--url", "|--backend", dest="backend", metavar="URL", help=store)
    inside = "a file with that URL (or $LEASELOCK_URL_FILE)"
    _add(parser, "--url-file", metavar="FILE", help=inside)
    reply = "limit for each reply of the store (5s)"
    _add(parser, "--op-timeout", metavar="DUR", type=_duration, help=reply)
    _add(parser, "--json", action="store_true", help="answer with one JSON document")
    _add(parser, "-q", "--quiet", action="store_true", help="print errors only")
    _add(parser, "-v", "--verbose", action="store_true", help="say what happens")
    colour = "send no escapes to the terminal (or $NO_COLOR)"
    _add(parser, "--no-color", action="store_true", help=colour)


def _add_wait_options(parser: Parser, *, nonblock: bool = True) -> None:
    group = parser.add_mutually_exclusive_group()
    if nonblock:
        _add(group, "-n", "--nonblock", action="store_true", help="do not wait")
    longest = "wait at most this long"
    _add(group, "-w", "--wait", "|--timeout", metavar="DUR", type=_duration, help=longest)


def _add_acquire_options(parser: Parser) -> None:
    _add_wait_options(parser)
    _add(
        parser,
        "-E",
        "--conflict-exit-code",
        metavar="N",
        type=_exit_code,
        default=exit_codes.BUSY,
        dest="conflict",
        help="the exit code when it is busy (75)",
    )
    length = "length of the lease (30s)"
    _add(parser, "--lease", "|--ttl", metavar="DUR", type=_duration, default=30.0, help=length)
    _add(parser, "--label", "|--reason", metavar="TEXT", help="shown to people who list the lock")


def _add_name(parser: Parser) -> None:
    _add(parser, "name", metavar="NAME")


def _add_run(parser: Parser) -> None:
    parser.usage = "%(prog)s [OPTIONS] NAME [--] COMMAND..."
    _add_acquire_options(parser)
    _add(parser, "--skip-ok", action="store_true", help="exit 0, silently, when it is busy")
    stays = "keep the lock taken for this long from its grant on, even if the command ends before"
    _add(parser, "--min-hold", metavar="DUR", type=_duration, default=0.0, help=stays)
    once = "run at most once in this time on all hosts; exit 0 if another has run it"
    _add(parser, "--once-per", metavar="DUR", type=_duration, help=once)
    fixed = "a fixed lease: the command must end within it"
    _add(parser, "--no-renew", action="store_true", help=fixed)
    _add(parser, "--shared", action="store_true", help="hold it beside other commands --shared")
    slots = "hold one of N permits instead, as a semaphore"
    _add(parser, "--slots", metavar="N", type=int, help=slots)
    others = "hold this lock, too: all or none; may be repeated"
    _add(parser, "--with", metavar="NAME", action="append", dest="others", help=others)
    longest = "end a command that runs longer, and exit 124"
    _add(parser, "--max-hold", metavar="DUR", type=_duration, help=longest)
    outage = "store out of reach: fail, wait, or run WITHOUT the lock (fail)"
    policies = ("fail", "wait", "unlocked")
    _add(parser, "--on-outage", choices=policies, default="fail", metavar="POLICY", help=outage)
    patience = "for how long --on-outage repeats the request before"
    _add(parser, "--outage-timeout", metavar="DUR", type=_duration, help=patience)
    _add_command_options(parser)


def _add_lead(parser: Parser) -> None:
    parser.usage = "%(prog)s [OPTIONS] NAME [--] COMMAND..."
    length = "length of the lease (15s)"
    _add(parser, "--lease", metavar="DUR", type=_duration, default=15.0, help=length)
    _add(parser, "--label", metavar="TEXT", help="shown to people who ask who leads")
    once = "exit when the command ends, with its exit code, or with 76 after a loss"
    _add(parser, "--once", action="store_true", help=once)
    _add_command_options(parser)


def _add_command_options(parser: Parser) -> None:
    _add(parser, "-c", metavar="STR", dest="shell", help="run STR by $SHELL -c")
    lost = "how the command is ended on loss: term, kill, a SIGNAL, or ignore (term)"
    _add(parser, "--on-lost", metavar="ACTION", default="term", help=lost)
    kill = "time from that signal to SIGKILL (5s)"
    _add(parser, "--kill-after", metavar="DUR", type=_duration, default=5.0, help=kill)
    death = "signal for the command if leaselock is killed, or none (TERM; Linux)"
    _add(parser, "--pdeathsig", metavar="SIG", default="TERM", help=death)
    _add(parser, "--no-tty", action="store_true", help="do not give the command the terminal")
    named = "derive NAME from the words of the command"
    _add(parser, "--name-from-command", action="store_true", help=named)
    _add(parser, "argv", nargs=argparse.REMAINDER, metavar="NAME [--] COMMAND...")


def _add_acquire(parser: Parser) -> None:
    _add_acquire_options(parser)
    _add_name(parser)


def _add_token(parser: Parser) -> None:
    _add_name(parser)
    printed = "the one that acquire printed, or that ls shows"
    _add(parser, "given", nargs="?", metavar="TOKEN", type=_token, help=printed)
    same = "TOKEN, as an option"
    _add(parser, "--token", "|--fence", metavar="TOKEN", type=_token, help=same)


def _add_extend(parser: Parser) -> None:
    _add_token(parser)
    group = parser.add_mutually_exclusive_group(required=True)
    least = "the least time left of it afterwards"
    _add(group, "--lease", "|--ttl", metavar="DUR", type=_duration, help=least)


def _add_ls(parser: Parser) -> None:
    names = "of names, as in a shell: 'order:*' (all)"
    _add(parser, "pattern", nargs="?", default="*", metavar="PATTERN", help=names)
    _add(parser, "--exit-code", action="store_true", help="exit 1 when there is none")
    walks = "look at all keys of a Redis store, for locks of other programs"
    _add(parser, "--all", action="store_true", help=walks)
    gone = "only those held by a process of this host that has ended"
    _add(parser, "--stale", action="store_true", help=gone)
    order = f"by {', '.join(SORT_KEYS)} (name)"
    _add(parser, "--sort", choices=SORT_KEYS, default="name", metavar="KEY", help=order)
    _add(parser, "--watch", action="store_true", help="list again and again, until interrupted")
    pause = "between two lists (2s)"
    _add(parser, "--interval", metavar="DUR", type=_duration, default=2.0, help=pause)


def _add_top(parser: Parser) -> None:
    names = "of names, as in a shell: 'order:*' (all)"
    _add(parser, "pattern", nargs="?", default="*", metavar="PATTERN", help=names)
    order = f"by {', '.join(SORT_KEYS)} (name)"
    _add(parser, "--sort", choices=SORT_KEYS, default="name", metavar="KEY", help=order)
    pause = "between two reads of the store (1s)"
    _add(parser, "--interval", metavar="DUR", type=_duration, default=1.0, help=pause)


def _add_watch(parser: Parser) -> None:
    names = "a name, or a pattern as in a shell: 'order:*' (all)"
    _add(parser, "pattern", nargs="?", default="*", metavar="PATTERN", help=names)


def _add_wait(parser: Parser) -> None:
    _add_wait_options(parser, nonblock=False)
    _add(parser, "--until", choices=("free", "held"), default="free", help="until it is so (free)")
    _add_name(parser)


def _add_break(parser: Parser) -> None:
    _add_name(parser)
    only = "only the grant with this token; do not ask"
    _add(parser, "--token", "|--fence", metavar="TOKEN", type=_token, help=only)
    _add(parser, "--yes", action="store_true", help="do not ask")
    why = "why; required when stdin is not a terminal"
    _add(parser, "-m", "--message", "|--reason", metavar="TEXT", help=why)


def _add_url(parser: Parser) -> None:
    store = "the store, as for --url"
    _add(parser, "backend", nargs="?", default=argparse.SUPPRESS, metavar="URL", help=store)


def _add_doctor(parser: Parser) -> None:
    _add(parser, "--strict", action="store_true", help="exit 1 for warnings, too")
    _add_url(parser)


def _add_setup(parser: Parser) -> None:
    show = "print the statements and do nothing"
    _add(parser, "--print", action="store_true", dest="dry", help=show)
    _add_url(parser)


def _add_web(parser: Parser) -> None:
    address = "the address to listen on (127.0.0.1)"
    _add(parser, "--host", metavar="ADDRESS", default="127.0.0.1", help=address)
    _add(parser, "--port", metavar="N", type=int, default=8470, help="0 takes a free one (8470)")
    name = "a name by which browsers reach it, besides localhost; may be repeated"
    _add(parser, "--allow-host", metavar="NAME", action="append", default=[], help=name)
    force = "let those break locks who have the token that is printed"
    _add(parser, "--allow-break", action="store_true", help=force)
    from_file = "the same, with the token in a file, which is not printed; - is stdin"
    _add(parser, "--break-token-file", metavar="FILE", help=from_file)
    pause = "between two reads of the store (1s)"
    _add(parser, "--interval", metavar="DUR", type=_duration, default=1.0, help=pause)
    _add_url(parser)


def _add_completion(parser: Parser) -> None:
    _add(parser, "shell", choices=SHELLS, help="for which shell")


def _add_help(parser: Parser) -> None:
    topic = "a command, or exit-codes"
    _add(parser, "topic", nargs="?", metavar="TOPIC", help=topic)
    _add(parser, "--man", action="store_true", help="print the manual page, as man(1) reads it")


def _add_nothing(parser: Parser) -> None:
    """Only the common options."""


COMMANDS = {
    "run": Command("run a command while holding a lock", _add_run, RunOptions, RUN_EPILOG),
    "lead": Command(
        "run a command while this process leads, whenever it does",
        _add_lead,
        LeadOptions,
        LEAD_EPILOG,
    ),
    "leader": Command("print who leads; exit 1 if no process does", _add_name, NameOptions),
    "ls": Command("list the locks that are held or waited for", _add_ls, ListOptions),
    "show": Command("show one lock, its holder and its waiters", _add_name, NameOptions),
    "top": Command("show locks, holders, waiters and events, live", _add_top, TopOptions),
    "watch": Command("print a line of JSON for each change of a lock", _add_watch, WatchOptions),
    "wait": Command(
        "wait until a lock is free (it queues for it), or held", _add_wait, LockWaitOptions
    ),
    "break": Command("take a lock from its holder by force", _add_break, BreakOptions),
    "acquire": Command(
        "take a lease and print its token; it outlives this command", _add_acquire, AcquireOptions
    ),
    "release": Command("release a lease that acquire took", _add_token, TokenOptions),
    "extend": Command(
        "have a lease end no sooner than --lease from now", _add_extend, ExtendOptions
    ),
    "check": Command(
        "exit 0 if the token still holds the lock, 79 if not", _add_token, TokenOptions
    ),
    "doctor": Command(
        "check how the store is configured; exit 1 when something must be changed",
        _add_doctor,
        DoctorOptions,
    ),
    "setup": Command(
        "create what the store needs before use, such as tables (alias: init)",
        _add_setup,
        SetupOptions,
    ),
    "deadlocks": Command(
        "list owners that wait for one another; exit 1 if there are any", _add_url, Options
    ),
    "web": Command(
        "serve a page with locks, holders, waiters and events, live", _add_web, WebOptions
    ),
    "gc": Command("remove records that are no longer needed", _add_url, Options),
    "completion": Command(
        "print a completion script for a shell", _add_completion, CompletionOptions
    ),
    "help": Command("print help, of a command or on exit-codes", _add_help, HelpOptions),
    "version": Command("print the version", _add_nothing, Options),
}
ALIASES = {"init": "setup"}


def module_of(command: str) -> str:
    """The module of a command, which has its name; one is a keyword of Python."""
    return f"leaselock._cli.{'break_' if command == 'break' else command}"
