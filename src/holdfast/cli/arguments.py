"""What can be typed after ``holdfast``."""

from __future__ import annotations

import argparse
import sys

from holdfast import __version__
from holdfast.cli import codes
from holdfast.cli.words import duration

EPILOG = codes.TABLE


class Parser(argparse.ArgumentParser):
    """An argument parser that ends with the exit code for wrong usage."""

    def error(self, message: str) -> None:  # type: ignore[override]
        """Say what is wrong."""
        self.print_usage(sys.stderr)
        self.exit(codes.USAGE, f"{self.prog}: {message}\n")


def parser() -> Parser:
    """The whole grammar."""
    common = Parser(add_help=False)
    _add_common(common, argparse.SUPPRESS)
    top = Parser(
        prog="holdfast",
        description="Hold a distributed lock.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_common(top, None)
    top.add_argument("--version", action="version", version=f"holdfast {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, text: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=text, description=text, parents=[common])

    _add_run(command("run", "run a command while holding a lock"))
    _add_leases(command)
    _add_looks(command)
    command("version", "print the version")
    return top


def _add_common(parser: argparse.ArgumentParser, default: object) -> None:
    def add(*flags: str, **words: object) -> None:
        parser.add_argument(*flags, default=default, **words)  # type: ignore[arg-type]

    add("--backend", "--url", metavar="URL", help="the store ($HOLDFAST_URL; else embedded)")
    add("--op-timeout", metavar="DUR", type=duration, help="for each answer of the store (5s)")
    add("--json", action="store_true", help="print JSON")
    add("-q", "--quiet", action="store_true", help="print errors only")
    add("-v", "--verbose", action="store_true", help="print more")


def _add_wait(parser: argparse.ArgumentParser) -> None:
    wait = parser.add_mutually_exclusive_group()
    wait.add_argument("-n", "--nonblock", action="store_true", help="do not wait")
    wait.add_argument(
        "-w", "--wait", "--timeout", metavar="DUR", type=duration, help="wait at most this long"
    )
    parser.add_argument(
        "-E", "--conflict-exit-code", metavar="N", type=int, default=codes.BUSY, dest="conflict"
    )
    parser.add_argument(
        "--ttl", metavar="DUR", type=duration, default=30.0, help="length of the lease (30s)"
    )
    parser.add_argument("--reason", metavar="TEXT", help="shown to those who ask who holds")


def _add_run(run: argparse.ArgumentParser) -> None:
    _add_wait(run)
    run.add_argument("--skip-ok", action="store_true", help="exit 0 when the lock is busy")
    run.add_argument("-c", metavar="STR", dest="shell", help="run STR by $SHELL -c")
    run.add_argument("--no-renew", action="store_true", help="a fixed lease")
    run.add_argument("--max-hold", metavar="DUR", type=duration, help="end a job that runs longer")
    run.add_argument(
        "--on-lost", metavar="ACTION", default="term", help="term, kill, a SIGNAL, or ignore"
    )
    run.add_argument(
        "--kill-after", metavar="DUR", type=duration, default=5.0, help="from signal to SIGKILL"
    )
    run.add_argument(
        "--pdeathsig", metavar="SIG", default="TERM", help="sent to the command if we die, or none"
    )
    run.add_argument("--no-tty", action="store_true", help="leave the terminal alone")
    run.add_argument(
        "--name-from-command", action="store_true", help="name the lock after the command"
    )
    run.add_argument("words", nargs=argparse.REMAINDER, metavar="NAME [--] CMD...")


def _add_leases(command: object) -> None:
    add = command
    acquire = add("acquire", "take a lease and print its token; it outlives this command")  # type: ignore[operator]
    acquire.add_argument("name")
    _add_wait(acquire)
    for verb, text in (
        ("release", "give a lease back"),
        ("extend", "make a lease longer"),
        ("check", "exit 0 if the token still holds"),
    ):
        one = add(verb, text)  # type: ignore[operator]
        one.add_argument("name")
        one.add_argument("--token", type=int, required=True)
        if verb == "extend":
            one.add_argument("--ttl", metavar="DUR", type=duration, required=True)


def _add_looks(command: object) -> None:
    add = command
    ls = add("ls", "list the locks that are held or waited for")  # type: ignore[operator]
    ls.add_argument("pattern", nargs="?", default="*")
    ls.add_argument("--exit-code", action="store_true", help="exit 1 when there is none")
    show = add("show", "show one lock, its holder and its waiters")  # type: ignore[operator]
    show.add_argument("name")
    wait = add("wait", "wait until a lock is free (it queues for it), or held")  # type: ignore[operator]
    wait.add_argument("name")
    wait.add_argument("--until", choices=("free", "held"), default="free")
    wait.add_argument("-w", "--wait", "--timeout", metavar="DUR", type=duration)
    breaking = add("break", "take a lock from its holder by force")  # type: ignore[operator]
    breaking.add_argument("name")
    breaking.add_argument("--token", "--fence", type=int, help="only from this grant")
    breaking.add_argument("--yes", action="store_true", help="do not ask")
    breaking.add_argument("--reason", metavar="TEXT", help="needed when nobody is asked")
