"""What a parser understands, for the manual page and the completion of words."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable


class Word(NamedTuple):
    """An option, or a positional argument."""

    names: tuple[str, ...]
    """Of an option; empty for a positional argument."""
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
