"""The path of the lock file: from a URL, or the default one."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from leaselock._backends.url import parse

if sys.platform == "win32":
    from leaselock._backends.sqlite.creation_windows import default_folder

if TYPE_CHECKING:
    from collections.abc import Mapping

# Windows limits paths to 260 characters; the names of clients' files are longer by 45.
LONGEST = 260 - 45
if sys.platform == "win32":
    EXAMPLE = "sqlite:///locks.db (relative) or sqlite:///C:/app/locks.db (absolute)"
else:
    EXAMPLE = "sqlite:///locks.db (relative) or sqlite:////var/lib/app/locks.db (absolute)"


def default_path(env: Mapping[str, str]) -> str:
    """The file that is used without a URL."""
    return os.path.join(default_folder(env), "locks.db")


if sys.platform != "win32":

    def default_folder(env: Mapping[str, str]) -> str:
        """The folder of the default file."""
        state = env.get("XDG_STATE_HOME", "")
        if not os.path.isabs(state):  # the XDG specification ignores a relative path
            state = os.path.join(_home(env), ".local", "state")
        return os.path.join(state, "leaselock")

    def _home(env: Mapping[str, str]) -> str:
        home = env.get("HOME", "")
        if os.path.isabs(home):
            return home
        import pwd

        try:
            home = pwd.getpwuid(os.geteuid()).pw_dir
        except KeyError:  # a user id without an account, as containers have them
            home = ""
        if os.path.isabs(home):
            return home
        raise ValueError(
            "no URL was given that names a store, and the default file cannot be placed: user "
            f"{os.geteuid()} has no home directory, and neither XDG_STATE_HOME nor HOME is an "
            "absolute path: set LEASELOCK_URL"
        )


def path_of(text: str) -> str:
    """The absolute path that a sqlite URL names; its options are ignored here."""
    url = parse(text)
    if url.scheme != "sqlite" or "://" not in text:
        raise ValueError(f"not a sqlite URL: write {EXAMPLE}")
    if url.fragment is not None:
        raise ValueError("a '#' in a sqlite URL: write %23 where the file name has one")
    path = _unquote(url.path.removeprefix("/"))
    if ":memory:" in (url.authority, path):
        raise ValueError("no :memory: in a sqlite URL: write memory:// for locks in one process")
    if url.authority or not url.path:
        raise ValueError(
            "a sqlite URL has three slashes and no host: "
            f"write {EXAMPLE}, or sqlite:/// for the default file"
        )
    if url.path.startswith("/~/"):
        from urllib.parse import quote

        home = quote(os.path.expanduser(path))
        raise ValueError(f"a URL has no ~ for the home directory: write sqlite:///{home}")
    return _absolute(path) if path else default_path(os.environ)


def _unquote(text: str) -> str:
    """Percent-decoding to the exact bytes of a file name, UTF-8 or not."""
    try:
        decoded, *others = os.fsencode(text).split(b"%")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{text!r} cannot be encoded as a file name: write %XX for each byte"
        ) from error
    for other in others:
        digits = other[:2].decode("latin-1")
        if len(digits) != 2 or digits.strip("0123456789abcdefABCDEF"):
            raise ValueError(f"a '%' without two hex digits in {text!r}: write %25 for a '%'")
        decoded += bytes.fromhex(digits) + other[2:]
    try:
        return os.fsdecode(decoded)
    except UnicodeDecodeError as error:  # Windows: file names are text
        raise ValueError(f"{text!r} is not UTF-8") from error


def _absolute(path: str) -> str:
    if "\0" in path:
        raise ValueError(f"a file name cannot have a NUL in it: write {EXAMPLE}")
    if os.path.basename(path) in ("", ".", "..") or os.path.isdir(path):
        raise ValueError(f"{path!r} is a directory: add the name of a file, as in {EXAMPLE}")
    if sys.platform == "win32":
        path = path.replace("/", "\\")
        if path.startswith("\\") and not path.startswith("\\\\"):
            raise ValueError(f"no drive in {path!r}: write sqlite:///C:/folder/locks.db")
        if ":" in os.path.splitdrive(path)[1]:
            raise ValueError(f"a file name cannot have a ':' after the drive, as in {path!r}")
        if len(os.path.abspath(path)) > LONGEST:
            raise ValueError(f"{path!r} has more than {LONGEST} characters: choose a shorter one")
    try:
        return path if os.path.isabs(path) else os.path.join(os.getcwd(), path)
    except FileNotFoundError as error:
        raise ValueError(
            f"the current directory is gone: write an absolute path, not {path!r}, as in {EXAMPLE}"
        ) from error


def is_default(path: str) -> bool:
    """Whether this is the file that is used without a URL."""
    try:
        return path == default_path(os.environ)
    except ValueError:  # there is no default path
        return False
