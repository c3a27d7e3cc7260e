"""Bugs in the scripts: a production script with one part replaced."""

from __future__ import annotations

from hashlib import sha1
from typing import TYPE_CHECKING

from leaselock._backends.redis import scripted_backend
from leaselock._backends.redis.scripts import Script

if TYPE_CHECKING:
    import pytest

# The scripts that include queue.lua.
EVERY = "ACQUIRE RELEASE CONVERT BREAK_LOCK RESIZE"


def rewrite(patch: pytest.MonkeyPatch, names: str, before: str, after: str) -> None:
    """Replace *before* by *after* in the scripts *names*, which are separated by blanks."""
    for name in names.split():
        text = getattr(scripted_backend, name).text
        assert before in text, f"{name} has no {before!r} any more"
        text = text.replace(before, after)
        patch.setattr(scripted_backend, name, script_of(text))


def script_of(text: str) -> Script:
    """A script with this text."""
    return Script(text, sha1(text.encode(), usedforsecurity=False).hexdigest())
