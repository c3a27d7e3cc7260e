"""Clients that are collected although they were never closed."""

from __future__ import annotations

import warnings
from typing import Any


def end_forgotten(client: Any) -> None:
    """Called by the finalizer of *client*: warn and close it, unless it was closed or never used.

    The constructor may have failed.
    """
    core = getattr(client, "_core", None)
    if core is not None and core.is_open():
        try:
            text = f"{client!r} was never closed"
            warnings.warn(text, ResourceWarning, source=client, stacklevel=3)
        finally:
            client._driver.end_later()
