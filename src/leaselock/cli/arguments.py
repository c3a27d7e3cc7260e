"""The arguments of ``leaselock`` and of its commands.

Only the parser of the given command is built: building all of them takes longer than acquiring
a lock.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, NoReturn

from leaselock import __version__
from leaselock.cli import ALIASES, COMMANDS, exit_codes
from leaselock.cli.formatting import parse_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

DESCRIPTIONS = {
    "run": "run a command while holding a lock",
    "ls": "list the locks that are held or waited for",
    "show": "show one lock, its holder and its waiters",
    "wait": "wait until a lock is free (it queues for the lock to find out), or held",
    "break": "take a lock from its holder by force",
    "acquire": "take a lease and print its token; it outlives this command",
    "release": "release a lease",
    "extend": "have a lease end no sooner than --ttl from now",
    "check": "exit 0 if the token still holds the lock, 79 if not",
    "doctor": "check how the store is configured; exit 1 when something must be changed",
    "setup": "create what the store needs before use, such as tables (alias: init)",
    "gc": "remove records that are no longer needed",
    "chaos": "kill and freeze processes that lock on a test store, and check their history",
    "version": "print the version",
}
DURATIONS = "DUR is 500ms, 10s, 5m, 1h30m, or a number of seconds.\n"
EPILOGS = {
    "run": f"""\
{DURATIONS}\
Options come before NAME. The command is a process group of its own. Its environment has
LEASELOCK_NAME, LEASELOCK_TOKEN (the fencing token, also as LEASELOCK_FENCE), LEASELOCK_TTL,
LEASELOCK_HELD_SINCE, LEASELOCK_BACKEND and LEASELOCK_STACK (the names of all locks around it,
one per line).

It is ended before the lease is: it gets the --on-lost signal when --kill-after (a third of the
lease at most) is left of the lease, and SIGKILL before its end; if the lease is lost without
warning, at most a second after the signal.
""",
}


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Help as wide as the terminal, without importing shutil to find its width."""

    def __init__(self, prog: str) -> None:
        try:
            columns = os.get_terminal_size().columns
        except (OSError, ValueError):
            columns = 0
        super().__init__(prog, width=(columns or 80) - 2)


class Parser(argparse.ArgumentParser):
    """An argument parser that exits with the code for wrong usage."""

    def error(self, message: str) -> NoReturn:
        """Print the usage and the error, and exit."""
        self.print_usage(sys.stderr)
        self.exit(exit_codes.USAGE, f"{self.prog}: {message}\n")


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Return the options of the command in *argv*; raise SystemExit when they are wrong."""
    options = _top_parser().parse_args(argv)
    typed, *rest = options.command
    options.command = ALIASES.get(typed, typed)
    parser = _new_parser(
        f"leaselock {options.command}",
        DESCRIPTIONS[options.command],
        EPILOGS.get(options.command),
    )
    _add_common(parser)
    ADD_OPTIONS[options.command](parser)
    return parser.parse_args(rest, options)


def _new_parser(prog: str, description: str, epilog: str | None) -> Parser:
    return Parser(
        prog=prog,
        description=description,
        epilog=epilog,
        allow_abbrev=False,
        formatter_class=HelpFormatter,
    )


def _top_parser() -> Parser:
    commands = "\n".join(f"  {command:9} {DESCRIPTIONS[command]}" for command in COMMANDS)
    description = f"Hold a distributed lock.\n\ncommands (each has its own --help):\n{commands}"
    top = _new_parser("leaselock", description, f"{DURATIONS}\n{exit_codes.TABLE}")
    _add_common(top)
    top.add_argument("--version", action="version", version=f"leaselock {__version__}")
    # PARSER takes the command and all that follows it, including a "--".
    choices = [*COMMANDS, *ALIASES]
    top.add_argument("command", nargs=argparse.PARSER, metavar="COMMAND", choices=choices)
    return top


def _add_common(parser: Parser) -> None:
    add = parser.add_argument
    add("--backend", "--url", metavar="URL", help="the store ($LEASELOCK_URL, else embedded)")
    add("--op-timeout", metavar="DUR", type=_duration, help="for each reply of the store (5s)")
    add("--json", action="store_true", help="print JSON")
    add("-q", "--quiet", action="store_true", help="print errors only")
    add("-v", "--verbose", action="store_true", help="print more")
    add("--no-color", action="store_true", help="send no escapes to the terminal (or $NO_COLOR)")


def _add_wait_options(parser: Parser, *, nonblock: bool = True) -> None:
    group = parser.add_mutually_exclusive_group()
    if nonblock:
        group.add_argument("-n", "--nonblock", action="store_true", help="do not wait")
    wait = ("-w", "--wait", "--timeout")
    group.add_argument(*wait, metavar="DUR", type=_duration, help="wait at most this long")


def _add_acquire_options(parser: Parser) -> None:
    _add_wait_options(parser)
    add = parser.add_argument
    conflict = ("-E", "--conflict-exit-code")
    busy = "the exit code when it is busy (75)"
    default = exit_codes.BUSY
    add(*conflict, metavar="N", type=_exit_code, default=default, dest="conflict", help=busy)
    add("--ttl", metavar="DUR", type=_duration, default=30.0, help="length of the lease (30s)")
    add("--reason", metavar="TEXT", help="shown in listings of the lock")


def _duration(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _exit_code(text: str) -> int:
    code = int(text)
    if not 0 <= code <= 255:
        raise ValueError(text)
    return code


# argparse uses this name in its message: "invalid exit code value: '256'".
_exit_code.__name__ = "exit code"


def _add_run(parser: Parser) -> None:
    parser.usage = "%(prog)s [OPTIONS] NAME [--] COMMAND..."
    _add_acquire_options(parser)
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
    add("--no-tty", action="store_true", help="do not give the command the terminal")
    add("--name-from-command", action="store_true", help="no NAME: made from the command's words")
    add("words", nargs=argparse.REMAINDER, metavar="NAME [--] COMMAND...")


def _add_name(parser: Parser) -> None:
    parser.add_argument("name", metavar="NAME")


def _add_acquire(parser: Parser) -> None:
    _add_acquire_options(parser)
    _add_name(parser)


def _add_token(parser: Parser) -> None:
    _add_name(parser)
    token = "the one that acquire printed"
    parser.add_argument("--token", "--fence", metavar="T", type=int, required=True, help=token)


def _add_extend(parser: Parser) -> None:
    _add_token(parser)
    least = "the least time left of it afterwards"
    parser.add_argument("--ttl", metavar="DUR", type=_duration, required=True, help=least)


def _add_ls(parser: Parser) -> None:
    names = "of names, as in a shell: 'order:*' (all)"
    parser.add_argument("pattern", nargs="?", default="*", metavar="PATTERN", help=names)
    parser.add_argument("--exit-code", action="store_true", help="exit 1 when there is none")


def _add_wait(parser: Parser) -> None:
    _add_wait_options(parser, nonblock=False)
    parser.add_argument("--until", choices=("free", "held"), default="free", help="(free)")
    _add_name(parser)


def _add_break(parser: Parser) -> None:
    _add_name(parser)
    add = parser.add_argument
    token = "only the grant with this token; do not ask"
    add("--token", "--fence", metavar="T", type=int, help=token)
    add("--yes", action="store_true", help="do not ask")
    add("--reason", metavar="TEXT", help="required when stdin is not a terminal")


def _add_url(parser: Parser) -> None:
    store = "the store, as for --url"
    parser.add_argument("backend", nargs="?", default=argparse.SUPPRESS, metavar="URL", help=store)


def _add_doctor(parser: Parser) -> None:
    parser.add_argument("--strict", action="store_true", help="exit 1 for warnings, too")
    _add_url(parser)


def _add_setup(parser: Parser) -> None:
    show = "print the statements and do nothing"
    parser.add_argument("--print", action="store_true", dest="dry", help=show)
    _add_url(parser)


def _add_chaos(parser: Parser) -> None:
    add = parser.add_argument
    add("store", nargs="?", metavar="URL", help="a store for tests (a temporary file)")
    add("--seed", metavar="N", type=int, default=1, help="seed of the random faults (1)")
    add("--seconds", metavar="DUR", type=_duration, default=20.0, help="of faults (20s)")
    add("--picture", metavar="FILE", help="draw a timeline, as .png or .svg")


def _add_nothing(parser: Parser) -> None:
    """Only the common options."""


ADD_OPTIONS: dict[str, Callable[[Parser], None]] = {
    "run": _add_run,
    "ls": _add_ls,
    "show": _add_name,
    "wait": _add_wait,
    "break": _add_break,
    "acquire": _add_acquire,
    "release": _add_token,
    "extend": _add_extend,
    "check": _add_token,
    "doctor": _add_doctor,
    "setup": _add_setup,
    "gc": _add_url,
    "chaos": _add_chaos,
    "version": _add_nothing,
}
