"""What a command answers: text, or with --json one document, in success and in failure.

A document has a schema version. Within one version, fields are only added. The documents of locks
are in `leaselock.documents`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from leaselock._cli import exit_codes
from leaselock._cli.output import is_terminal, say, write_error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leaselock._cli.options import Options


def answer(options: Options, fields: Mapping[str, object]) -> None:
    """Print the JSON document of the command. That of `run` and `lead` goes to stderr, for stdout
    belongs to their command.
    """
    import json

    from leaselock.documents import SCHEMA

    store = {} if options.store is None else {"backend": options.store}
    text = json.dumps({"schema": SCHEMA} | store | dict(fields))
    if options.command in ("run", "lead"):
        write_error(f"{text}\n")
    else:
        print(text, flush=True)


def done(options: Options, fields: Mapping[str, object], text: str) -> int:
    """Report success: as a document, or with --verbose as text. Return the exit code."""
    if options.json:
        answer(options, fields)
    elif options.verbose:
        say(text)
    return 0


def report(error: Exception, options: Options) -> int:
    """Report an error, or the answer no, and return the exit code."""
    from leaselock._cli.store import as_given

    code = exit_codes.exit_code(error)
    internal = code == exit_codes.INTERNAL
    text = f"{type(error).__name__}: {error}" if internal else as_given(str(error), options)
    if not (options.json and _answered(error, code, text, options)):
        _print_error(error, code, text, options)
    if internal and getattr(options, "verbose", False):
        import traceback

        traceback.print_exception(error)
    return code


def _answered(error: Exception, code: int, text: str, options: Options) -> bool:
    negative = isinstance(error, exit_codes.Negative)
    kind = error.kind if negative else exit_codes.KINDS.get(code, "interrupted")  # type: ignore[attr-defined]
    details = error.details if negative else {}  # type: ignore[attr-defined]
    named = {"name": options.name} if getattr(options, "name", None) else {}
    document = {"error": kind, "message": text, "exit_code": code} | named | dict(details)
    try:
        answer(options, document)
    except OSError:
        return False  # stdout is full or closed
    return True


def _print_error(error: Exception, code: int, text: str, options: Options) -> None:
    if isinstance(error, exit_codes.Interrupted):
        return
    asked = options.verbose or is_terminal(sys.stderr)
    if isinstance(error, exit_codes.Negative) and (options.quiet or not (code or asked)):
        return  # with --skip-ok, too: cron would mail it
    if code == exit_codes.INTERNAL:
        text += " (an error inside leaselock; -v shows the traceback)"
    usage = error.usage if isinstance(error, exit_codes.Usage) else ""
    if usage:
        write_error(f"{usage}{text}\n")
    else:
        say(text)
