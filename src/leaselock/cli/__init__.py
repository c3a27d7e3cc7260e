"""The command line. It uses the public names only, and loads a command when it is called for."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING

from leaselock.cli import codes

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

# The command, and the module that has it as do_COMMAND.
COMMANDS = {
    "run": "run",
    "ls": "show",
    "show": "show",
    "wait": "waiting",
    "break": "breaking",
    "acquire": "leases",
    "release": "leases",
    "extend": "leases",
    "check": "leases",
    "doctor": "upkeep",
    "init": "upkeep",
    "gc": "upkeep",
    "chaos": "chaos",
    "hazards": "hazards",
    "version": "show",
}
SIGPIPE, SIGINT = 13, 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code. Wrong usage and --help end by SystemExit."""
    from leaselock.cli.arguments import parsed

    options = parsed(sys.argv[1:] if argv is None else argv)
    _show_anything()
    try:
        module = import_module(f"leaselock.cli.{COMMANDS[options.command]}")
        code: int = getattr(module, f"do_{options.command}")(options)
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        return codes.BY_SIGNAL + SIGPIPE
    except KeyboardInterrupt:
        return codes.BY_SIGNAL + SIGINT
    except codes.Interrupted as ending:
        return codes.BY_SIGNAL + ending.number
    except Exception as error:
        return _explain(error, options)
    finally:
        _settle_output()
    return code


def _show_anything() -> None:
    """A name that the terminal's encoding has no letters for is no reason to fail."""
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")


def _settle_output() -> None:
    """Write the rest. What nobody can take must not be tried again at exit: Python would then
    end with a code of its own.
    """
    for stream, descriptor in ((sys.stdout, 1), (sys.stderr, 2)):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, descriptor)
            os.close(nowhere)


def _explain(error: Exception, options: argparse.Namespace) -> int:
    from leaselock.cli.voice import say

    code = codes.code_of(error)
    if code == codes.INTERNAL:
        say(f"{type(error).__name__}: {error} (an error inside leaselock; -v shows where)")
    else:
        say(str(error))
    if code == codes.INTERNAL and options.verbose:
        import traceback

        traceback.print_exception(error)
    return code
