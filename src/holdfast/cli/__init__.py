"""The command line. It uses the public names only, and loads a command when it is called for."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

from holdfast.cli import codes

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

COMMANDS = {
    "run": "run",
    "acquire": "leases",
    "release": "leases",
    "extend": "leases",
    "check": "leases",
    "ls": "show",
    "show": "show",
    "version": "show",
    "wait": "waiting",
    "break": "breaking",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    from holdfast.cli.arguments import parser

    options = parser().parse_args(argv)
    try:
        module = import_module(f"holdfast.cli.{COMMANDS[options.command]}")
        code: int = getattr(module, f"do_{options.command}")(options)
    except BrokenPipeError:
        # Whoever read our output has gone; what is left to print is for nobody.
        sys.stderr.close()
        return codes.BY_SIGNAL + 13
    except KeyboardInterrupt:
        return codes.BY_SIGNAL + 2
    except Exception as error:
        return explain(error, options)
    return code


def explain(error: Exception, options: argparse.Namespace) -> int:
    """Say what went wrong, and what code that is."""
    code = code_of(error)
    print(f"holdfast: {error}", file=sys.stderr)
    if code == codes.INTERNAL and options.verbose:
        import traceback

        traceback.print_exception(error)
    return code


def code_of(error: Exception) -> int:
    """The exit code for an error."""
    import holdfast

    if isinstance(error, holdfast.NotHeld):
        return codes.NOT_HELD
    if isinstance(error, holdfast.LeaseLost):
        return codes.LOST
    if isinstance(error, holdfast.StoreError):
        denied = isinstance(error.__cause__, PermissionError) or "permission" in str(error).lower()
        return codes.DENIED if denied else codes.UNREACHABLE
    if isinstance(error, holdfast.InvalidName | Usage):
        return codes.USAGE
    if isinstance(error, ValueError | TypeError | ImportError):
        return codes.CONFIG
    return codes.INTERNAL


class Usage(Exception):
    """The words fit the grammar, but not one another."""
