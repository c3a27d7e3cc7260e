"""The arguments of ``leaselock`` and of its commands.

Only the parser of the given command is built: building all of them takes longer than acquiring
a lock.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, NoReturn

from leaselock import __version__
from leaselock._cli import exit_codes
from leaselock._cli.commands import ALIASES, COMMANDS, DURATIONS
from leaselock._cli.options import add_common_options, add_options
from leaselock._cli.output import columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leaselock._cli.options import Options


# The commands that run another one, and what ends their own words.
WRAPPERS = ("run", "lead")
END = "--"


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Help as wide as the terminal, without importing shutil to find its width."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=columns(sys.stdout) - 2)


class Parser(argparse.ArgumentParser):
    """An argument parser that raises an error for wrong usage."""

    def error(self, message: str) -> NoReturn:
        """Raise the error, with the usage."""
        raise exit_codes.Usage(f"{self.prog}: {message}", self.format_usage())


def parse(argv: Sequence[str], common: Options) -> Options:
    """Return the options of the command in *argv*; raise Usage when they are wrong. *common* gets
    those that an error is reported with. SystemExit follows --help and --version.
    """
    # Also for an error before it is parsed. In a command of `run` it is another program's.
    wrapper = next((word for word in argv if word in WRAPPERS), None)
    early = argv if wrapper is None else argv[: argv.index(wrapper)]
    options = common
    try:
        top = top_parser().parse_args(argv, argparse.Namespace(**vars(common)))
        (typed, *rest), top.command = top.command, ""
        common.__dict__.update(vars(top), command=ALIASES.get(typed, typed))
        parser, options = parser_of(common.command), COMMANDS[common.command].options()
        options.__dict__.update(vars(common))
        if common.command in WRAPPERS:
            rest = _options_first(parser, rest)
        return parser.parse_args(rest, options)
    except exit_codes.Usage:
        common.__dict__.update(vars(options))
        common.json = common.json or "--json" in early
        raise


def _options_first(parser: Parser, argv: Sequence[str]) -> Sequence[str]:
    """The words of `run` and `lead` with the options that follow NAME in front of it. They reach as
    far as the "--" before the command; without one, what follows NAME is the command.
    """
    tail = parser.parse_args(argv, argparse.Namespace()).argv
    head, name, after = argv[: len(argv) - len(tail)], tail[:1], tail[1:]
    if not after or name == [END] or not after[0].startswith("-") or after[0] == END:
        return argv
    end = after.index(END) if END in after else len(after)
    command = [END, *name, *after[end:]]
    options = parser.parse_args([*head, *after[:end], *command], argparse.Namespace())
    # Without a "--" only -c can say what to run.
    complete = options.argv == command and (end < len(after) or options.shell is not None)
    return [*head, *after[:end], *command] if complete else argv


def parser_of(command: str) -> Parser:
    """The parser of one command."""
    row = COMMANDS[command]
    parser = _new_parser(f"leaselock {command}", row.summary, row.epilog)
    add_common_options(parser)
    add_options(row.options, parser)
    return parser


def top_parser() -> Parser:
    """The parser of what stands before the command."""
    commands = "\n".join(f"  {name:10} {row.summary}" for name, row in COMMANDS.items())
    description = f"Hold a distributed lock.\n\ncommands (each has its own --help):\n{commands}"
    top = _new_parser("leaselock", description, f"{DURATIONS}\n\n{exit_codes.TABLE}")
    add_common_options(top)
    top.add_argument("-V", "--version", action="version", version=f"leaselock {__version__}")
    # PARSER takes the command and all that follows it, including a "--".
    choices = [*COMMANDS, *ALIASES]
    top.add_argument("command", nargs=argparse.PARSER, metavar="COMMAND", choices=choices)
    return top


def _new_parser(prog: str, description: str, epilog: str | None) -> Parser:
    return Parser(
        prog=prog,
        description=description,
        epilog=epilog,
        allow_abbrev=False,
        formatter_class=HelpFormatter,
    )
