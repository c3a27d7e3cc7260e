"""Bugs in the scripts: a production script with other words in one place."""

from __future__ import annotations

from hashlib import sha1
from typing import TYPE_CHECKING

from leaselock.backends.redis import scripted_lock
from leaselock.backends.redis.scripts import Script

if TYPE_CHECKING:
    import pytest


def rewrite(patch: pytest.MonkeyPatch, names: str, before: str, after: str) -> None:
    """In the scripts of these *names*, with blanks between them, write *after* for *before*."""
    for name in names.split():
        text = getattr(scripted_lock, name).text
        assert before in text, f"{name} has no {before!r} any more"
        text = text.replace(before, after)
        sha = sha1(text.encode(), usedforsecurity=False).hexdigest()
        patch.setattr(scripted_lock, name, Script(text, sha))
