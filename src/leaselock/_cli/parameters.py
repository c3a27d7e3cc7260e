"""What a parser understands, for the manual page and the completion of words."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable


class Parameter(NamedTuple):
    """An option, or a positional argument."""

    names: tuple[str, ...]
    """Of an option; empty for a positional argument."""
    metavar: str
    """Its value; empty for a switch."""
    help: str
    choices: tuple[str, ...]
    optional: bool


def parameters_of(parser: argparse.ArgumentParser) -> list[Parameter]:
    """Return what a parser understands, without the aliases that help does not show."""
    return [
        _parameter(action) for action in parser._actions if action.help is not argparse.SUPPRESS
    ]


def _parameter(action: argparse.Action) -> Parameter:
    choices = tuple(map(str, action.choices or ()))
    metavar = "" if action.nargs == 0 else str(action.metavar or "|".join(choices))
    names = tuple(action.option_strings)
    return Parameter(names, metavar, action.help or "", choices, action.nargs == "?")


def options_of(parser: argparse.ArgumentParser) -> Iterable[Parameter]:
    """Return the options among them."""
    return [param for param in parameters_of(parser) if param.names]
