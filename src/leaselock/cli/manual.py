"""version, help, completion: what the command says of itself. All of it comes from the parsers."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, NamedTuple

from leaselock import __version__
from leaselock.cli import exit_codes
from leaselock.cli.answer import answer
from leaselock.cli.arguments import parser_of, top_parser
from leaselock.cli.commands import ALIASES, COMMANDS
from leaselock.cli.exit_codes import Usage

if TYPE_CHECKING:
    from collections.abc import Iterable

EXIT_CODES = "exit-codes"


def do_version(options: argparse.Namespace) -> int:
    """Print the version."""
    if options.json:
        answer(options, {"version": __version__})
    else:
        print(f"leaselock {__version__}")
    return 0


def do_help(options: argparse.Namespace) -> int:
    """Print help: of a command, of the exit codes, of everything; or the manual page."""
    text = _help(options)
    if options.json:
        answer(options, {"text": text})
    else:
        print(text, end="")
    return 0


def _help(options: argparse.Namespace) -> str:
    topic = ALIASES.get(options.topic, options.topic)
    if options.man:
        from leaselock.cli.manual_page import manual_page

        return manual_page()
    if topic is None:
        return top_parser().format_help()
    if topic == EXIT_CODES:
        return exit_codes.TABLE
    if topic not in COMMANDS:
        raise Usage(f"there is no help on {topic!r}: name a command, or {EXIT_CODES}")
    return parser_of(topic).format_help()


def do_completion(options: argparse.Namespace) -> int:
    """Print a script that completes the words of the command."""
    from leaselock.cli.completion import SCRIPTS

    text = SCRIPTS[options.shell]()
    if options.json:
        answer(options, {"text": text})
    else:
        print(text, end="")
    return 0


class Word(NamedTuple):
    """An option, or a word at a place."""

    names: tuple[str, ...]
    """Of an option; empty for a word at a place."""
    metavar: str
    """Its value; empty for a switch."""
    help: str
    choices: tuple[str, ...]
    optional: bool


def words_of(parser: argparse.ArgumentParser) -> list[Word]:
    """Return what a parser understands, without the aliases that help does not show."""
    return [_word(action) for action in parser._actions if action.help is not argparse.SUPPRESS]


def _word(action: argparse.Action) -> Word:
    choices = tuple(map(str, action.choices or ()))
    metavar = "" if action.nargs == 0 else str(action.metavar or "|".join(choices))
    names = tuple(action.option_strings)
    return Word(names, metavar, action.help or "", choices, action.nargs == "?")


def options_of(parser: argparse.ArgumentParser) -> Iterable[Word]:
    """Return the options among them."""
    return [word for word in words_of(parser) if word.names]
