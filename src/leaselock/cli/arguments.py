"""What can be typed after ``leaselock``.

Only the parser of the command that was typed is made: making all of them costs more time than
taking a lock.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, NoReturn

from leaselock import __version__
from leaselock.cli import COMMANDS, codes
from leaselock.cli.words import duration

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ABOUT = {
    "run": "run a command while holding a lock",
    "ls": "list the locks that are held or waited for",
    "show": "show one lock, its holder and its waiters",
    "wait": "wait until a lock is free (it takes a place in the queue for that), or held",
    "break": "take a lock from its holder by force",
    "acquire": "take a lease and print its token; it outlives this command",
    "release": "give a lease back",
    "extend": "have a lease end no sooner than --ttl from now",
    "check": "exit 0 if the token still holds the lock, 79 if not",
    "doctor": "examine how the store is set up; exit 1 when something must be changed",
    "init": "make what the store needs before it can be used, such as tables",
    "gc": "remove records that nobody needs any more",
    "chaos": "kill and freeze processes that take locks of a test store, and judge what they saw",
    "hazards": "play what can go wrong with a lock on test stores, and print what survives it",
    "version": "print the version",
}
DURATIONS = "DUR is 500ms, 10s, 5m, 1h30m, or a number of seconds.\n"
EPILOG = {
    "run": f"""\
{DURATIONS}\
Options come before NAME. The command is a process group of its own. It finds LEASELOCK_NAME,
LEASELOCK_TOKEN (the fencing token, also as LEASELOCK_FENCE), LEASELOCK_TTL, LEASELOCK_HELD_SINCE,
LEASELOCK_BACKEND and LEASELOCK_STACK (the names of all locks around it, one per line).

It is ended before the lease is: it gets the --on-lost signal when --kill-after (a third of the
lease at most) is left of the lease, and SIGKILL before its end; if the lease is lost without
warning, at most a second after the signal.
""",
    "hazards": """\
Programs are killed and frozen, answers are lost, clocks are wrong: for leaselock's ways of locking
and for naive ones. Name TEST stores: sqlite:///, redis://, several redis:// with commas between
them, zookeeper://, postgresql://, mysql://. All that is made there has a prefix of its own and is
removed. Without any, a temporary file of SQLite is used; $LEASELOCK_URL is not. --json prints every
outcome. The exit code is 1 when a default of leaselock failed.
""",
}


class Help(argparse.RawDescriptionHelpFormatter):
    """Help that is as wide as the terminal, found out without loading shutil for it."""

    def __init__(self, prog: str) -> None:
        try:
            columns = os.get_terminal_size().columns
        except (OSError, ValueError):
            columns = 0
        super().__init__(prog, width=(columns or 80) - 2)


class Parser(argparse.ArgumentParser):
    """An argument parser that ends with the exit code for wrong usage."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong."""
        self.print_usage(sys.stderr)
        self.exit(codes.USAGE, f"{self.prog}: {message}\n")


def parsed(argv: Sequence[str]) -> argparse.Namespace:
    """The options of the command in *argv*; SystemExit when they are wrong."""
    first = _top().parse_args(argv)
    first.command, *rest = first.command
    parser = _parser(f"leaselock {first.command}", ABOUT[first.command], EPILOG.get(first.command))
    _add_common(parser)
    OPTIONS[first.command](parser)
    return parser.parse_args(rest, first)


def _parser(prog: str, about: str, epilog: str | None) -> Parser:
    return Parser(
        prog=prog,
        description=about,
        epilog=epilog,
        allow_abbrev=False,
        formatter_class=Help,
    )


def _top() -> Parser:
    commands = "\n".join(f"  {command:9} {ABOUT[command]}" for command in COMMANDS)
    about = f"Hold a distributed lock.\n\ncommands (each has its own --help):\n{commands}"
    top = _parser("leaselock", about, f"{DURATIONS}\n{codes.TABLE}")
    _add_common(top)
    top.add_argument("--version", action="version", version=f"leaselock {__version__}")
    # The command and all that follows it, a "--" included.
    top.add_argument("command", nargs=argparse.PARSER, metavar="COMMAND", choices=COMMANDS)
    return top


def _add_common(parser: Parser) -> None:
    add = parser.add_argument
    add("--backend", "--url", metavar="URL", help="the store ($LEASELOCK_URL, else embedded)")
    add("--op-timeout", metavar="DUR", type=_duration, help="for each answer of the store (5s)")
    add("--json", action="store_true", help="print JSON")
    add("-q", "--quiet", action="store_true", help="print errors only")
    add("-v", "--verbose", action="store_true", help="print more")
    add("--no-color", action="store_true", help="send the terminal no escapes (or $NO_COLOR)")


def _add_wait(parser: Parser, *, nonblock: bool = True) -> None:
    group = parser.add_mutually_exclusive_group()
    if nonblock:
        group.add_argument("-n", "--nonblock", action="store_true", help="do not wait")
    wait = ("-w", "--wait", "--timeout")
    group.add_argument(*wait, metavar="DUR", type=_duration, help="wait at most this long")


def _add_taking(parser: Parser) -> None:
    _add_wait(parser)
    add = parser.add_argument
    conflict = ("-E", "--conflict-exit-code")
    busy = "the exit code when it is busy (75)"
    add(*conflict, metavar="N", type=_exit_code, default=codes.BUSY, dest="conflict", help=busy)
    add("--ttl", metavar="DUR", type=_duration, default=30.0, help="length of the lease (30s)")
    add("--reason", metavar="TEXT", help="shown to those who ask who holds it")


def _duration(text: str) -> float:
    try:
        return duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _exit_code(text: str) -> int:
    code = int(text)
    if not 0 <= code <= 255:
        raise ValueError(text)
    return code


# What argparse calls a wrong value: "invalid exit code value: '256'".
_exit_code.__name__ = "exit code"


def _run(parser: Parser) -> None:
    parser.usage = "%(prog)s [OPTIONS] NAME [--] COMMAND..."
    _add_taking(parser)
    add = parser.add_argument
    add("--skip-ok", action="store_true", help="exit 0 when it is busy")
    add("-c", metavar="STR", dest="shell", help="run STR by $SHELL -c")
    add("--no-renew", action="store_true", help="a fixed lease: the command must end within it")
    add("--max-hold", metavar="DUR", type=_duration, help="end a command that runs longer")
    lost = "term, kill, a SIGNAL, or ignore (term)"
    add("--on-lost", metavar="ACTION", default="term", help=lost)
    kill = "from the signal to SIGKILL (5s)"
    add("--kill-after", metavar="DUR", type=_duration, default=5.0, help=kill)
    death = "sent to the command if leaselock is killed, or none (TERM)"
    add("--pdeathsig", metavar="SIG", default="TERM", help=death)
    add("--no-tty", action="store_true", help="leave the terminal alone")
    add("--name-from-command", action="store_true", help="no NAME: made from the command's words")
    add("words", nargs=argparse.REMAINDER, metavar="NAME [--] COMMAND...")


def _name(parser: Parser) -> None:
    parser.add_argument("name", metavar="NAME")


def _acquire(parser: Parser) -> None:
    _add_taking(parser)
    _name(parser)


def _token(parser: Parser) -> None:
    _name(parser)
    token = "the one that acquire printed"
    parser.add_argument("--token", "--fence", metavar="T", type=int, required=True, help=token)


def _extend(parser: Parser) -> None:
    _token(parser)
    least = "what is left of it, at least"
    parser.add_argument("--ttl", metavar="DUR", type=_duration, required=True, help=least)


def _ls(parser: Parser) -> None:
    names = "of names, as in a shell: 'order:*' (all)"
    parser.add_argument("pattern", nargs="?", default="*", metavar="PATTERN", help=names)
    parser.add_argument("--exit-code", action="store_true", help="exit 1 when there is none")


def _wait(parser: Parser) -> None:
    _add_wait(parser, nonblock=False)
    parser.add_argument("--until", choices=("free", "held"), default="free", help="(free)")
    _name(parser)


def _break(parser: Parser) -> None:
    _name(parser)
    add = parser.add_argument
    add("--token", "--fence", metavar="T", type=int, help="only from this grant; nobody is asked")
    add("--yes", action="store_true", help="do not ask")
    add("--reason", metavar="TEXT", help="needed when nobody is there to be asked")


def _url(parser: Parser) -> None:
    store = "the store, as for --url"
    parser.add_argument("backend", nargs="?", default=argparse.SUPPRESS, metavar="URL", help=store)


def _doctor(parser: Parser) -> None:
    parser.add_argument("--strict", action="store_true", help="exit 1 for warnings, too")
    _url(parser)


def _init(parser: Parser) -> None:
    show = "print the statements and do nothing"
    parser.add_argument("--print", action="store_true", dest="dry", help=show)
    _url(parser)


def _chaos(parser: Parser) -> None:
    add = parser.add_argument
    add("store", nargs="?", metavar="URL", help="a store for tests (a temporary file)")
    add("--seed", metavar="N", type=int, default=1, help="where the lots come from (1)")
    add("--seconds", metavar="DUR", type=_duration, default=20.0, help="of faults (20s)")
    add("--picture", metavar="FILE", help="draw a timeline, as .png or .svg")


def _hazards(parser: Parser) -> None:
    add = parser.add_argument
    add("--only", metavar="HAZARD", action="append", default=[], help="play this one (repeatable)")
    part = "play the ways that have TEXT in their names (repeatable)"
    add("--way", metavar="TEXT", action="append", default=[], help=part)
    add("--at-once", metavar="N", type=int, default=10, help="play so many cells at a time (10)")
    add("--markdown", metavar="FILE", help="write the table and what was seen, as Markdown")
    add("--picture", metavar="FILE", help="draw the table: .svg or .png (needs matplotlib)")
    add("stores", nargs="*", metavar="URL", help="a store for tests")


def _nothing(parser: Parser) -> None:
    """No options but the common ones."""


OPTIONS: dict[str, Callable[[Parser], None]] = {
    "run": _run,
    "ls": _ls,
    "show": _name,
    "wait": _wait,
    "break": _break,
    "acquire": _acquire,
    "release": _token,
    "extend": _extend,
    "check": _token,
    "doctor": _doctor,
    "init": _init,
    "gc": _url,
    "chaos": _chaos,
    "hazards": _hazards,
    "version": _nothing,
}
