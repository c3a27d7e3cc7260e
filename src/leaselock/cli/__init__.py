"""The command line. It uses the public API only, and imports a command's module on demand."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING

from leaselock.cli import exit_codes

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

# Each command, and the module that defines do_COMMAND.
COMMANDS = {
    "run": "run",
    "ls": "show",
    "show": "show",
    "wait": "locks",
    "break": "locks",
    "acquire": "locks",
    "release": "locks",
    "extend": "locks",
    "check": "locks",
    "doctor": "maintenance",
    "setup": "maintenance",
    "gc": "maintenance",
    "chaos": "maintenance",
    "version": "show",
}
ALIASES = {"init": "setup"}
SIGPIPE, SIGINT = 13, 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Wrong usage and --help raise SystemExit."""
    from leaselock.cli.arguments import parse

    options = parse(sys.argv[1:] if argv is None else argv)
    _escape_unencodable_output()
    try:
        module = import_module(f"leaselock.cli.{COMMANDS[options.command]}")
        code: int = getattr(module, f"do_{options.command}")(options)
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        return exit_codes.BY_SIGNAL + SIGPIPE
    except KeyboardInterrupt:
        return exit_codes.BY_SIGNAL + SIGINT
    except exit_codes.Interrupted as interruption:
        return exit_codes.BY_SIGNAL + interruption.number
    except Exception as error:
        return _report_error(error, options)
    finally:
        _flush_output()
    return code


def _escape_unencodable_output() -> None:
    """Print characters that the terminal's encoding lacks as escapes instead of failing."""
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")


def _flush_output() -> None:
    """Flush both streams. Discard output that cannot be written: otherwise Python tries again at
    exit, fails, and replaces the exit code with its own.
    """
    for stream, descriptor in ((sys.stdout, 1), (sys.stderr, 2)):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, descriptor)
            os.close(null)


def _report_error(error: Exception, options: argparse.Namespace) -> int:
    from leaselock.cli.output import say

    code = exit_codes.exit_code(error)
    if code == exit_codes.INTERNAL:
        say(f"{type(error).__name__}: {error} (an error inside leaselock; -v shows the traceback)")
    else:
        say(str(error))
    if code == exit_codes.INTERNAL and options.verbose:
        import traceback

        traceback.print_exception(error)
    return code
