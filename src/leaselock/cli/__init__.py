"""The command line. It uses the public API only, and imports a command's module on demand."""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING

from leaselock.cli import exit_codes

if TYPE_CHECKING:
    from collections.abc import Sequence

SIGPIPE, SIGINT = 13, 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. --help and --version raise SystemExit."""
    from leaselock.cli.arguments import parse
    from leaselock.cli.commands import COMMANDS

    options = argparse.Namespace()
    _escape_unencodable_output()
    try:
        parse(sys.argv[1:] if argv is None else argv, options)
        module = import_module(f"leaselock.cli.{COMMANDS[options.command].module}")
        code: int = getattr(module, f"do_{options.command}")(options)
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        return exit_codes.BY_SIGNAL + SIGPIPE
    except KeyboardInterrupt:
        return _report(exit_codes.Interrupted(SIGINT), options)
    except Exception as error:
        return _report(error, options)
    finally:
        _flush_output()
    return code


def _report(error: Exception, options: argparse.Namespace) -> int:
    from leaselock.cli.answer import report

    return report(error, options)


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
