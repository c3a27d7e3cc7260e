"""The command line. It uses the public API only, and imports a command's module on demand."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager

# Not the module: the command of that name is a module of this package.
from gc import freeze
from importlib import import_module
from typing import TYPE_CHECKING

from leaselock._cli import exit_codes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any, TextIO

    from leaselock._cli.options import Options

SIGPIPE, SIGINT = 13, 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. --help and --version raise SystemExit."""
    return exit_codes.for_shell(_ending(argv))


def script() -> int:
    """Run the command of this process, and return its exit code. A signal that ended the command,
    or was to end this process, ends it after all work is done: systemd and shells tell that from a
    failure.
    """
    ending = _ending(None)
    if ending < 0:
        from leaselock._cli.signals import end_this_process

        end_this_process(-ending)
    # The interpreter collects garbage among all objects as it ends. Of this command's, everything
    # that needs an end has been closed.
    freeze()
    code = exit_codes.for_shell(ending)
    # Windows has codes of 32 bits, and Python exits with the signed ones.
    return code - 2**32 if code >= 2**31 else code


def _ending(argv: Sequence[str] | None) -> int:
    """Run one command; return its exit code, or -N when signal N is to end this process."""
    from leaselock._cli.arguments import parse
    from leaselock._cli.options import Options

    options = Options()
    _escape_unencodable_output()
    output = sys.stdout
    if output is not None:
        sys.stdout = CheckedOutput(output)
    try:
        try:
            options = parse(sys.argv[1:] if argv is None else argv, options)
        except SystemExit:  # --help and --version have printed; argparse ignores a failure of that
            _check_output()
            raise
        return _run(options)
    except BrokenPipeError:
        return -SIGPIPE
    except KeyboardInterrupt:
        _report(exit_codes.Interrupted(SIGINT), options)
        return -SIGINT
    except exit_codes.Interrupted as error:
        _report(error, options)
        return -error.number
    except Exception as error:
        return _report(error, options)
    finally:
        sys.stdout = output
        _flush_output()


def _run(options: Options) -> int:
    from leaselock._cli.commands import module_of

    module = import_module(module_of(options.command))
    code: int = getattr(module, f"do_{options.command}")(options)
    _check_output()
    return code


def _check_output() -> None:
    if isinstance(sys.stdout, CheckedOutput):
        sys.stdout.flush()
        if sys.stdout.failure is not None:
            raise sys.stdout.failure


class CheckedOutput:
    """Standard output that tells its own failures from other errors of the operating system."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.failure: Exception | None = None

    def write(self, text: str) -> int:
        """Write, or raise OutputFailed."""
        with self._checked():
            return self.stream.write(text)

    def flush(self) -> None:
        """Flush, or raise OutputFailed."""
        with self._checked():
            self.stream.flush()

    @contextmanager
    def _checked(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError as error:
            self.failure = error
            raise
        except OSError as error:
            self.failure = exit_codes.OutputFailed(f"cannot write the output: {error.strerror}")
            raise self.failure from error

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def _report(error: Exception, options: Options) -> int:
    from leaselock._cli.answer import report

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
