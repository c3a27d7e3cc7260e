"""From what people type to numbers, and from what others wrote to what a terminal may show."""

from __future__ import annotations

import argparse
import re

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


def duration(text: str) -> float:
    """Seconds of ``500ms``, ``10s``, ``5m``, ``1h30m``, or of a bare number of seconds."""
    try:
        seconds = float(text)
    except ValueError:
        parts = PART.findall(text)
        if not parts or "".join(number + unit for number, unit in parts) != text:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not a duration such as 500ms, 10s, 5m, 1h30m or 2.5 (seconds)"
            ) from None
        seconds = sum(float(number) * UNITS[unit] for number, unit in parts)
    if not 0 <= seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"a duration is not negative and not endless: {text!r}")
    return seconds


def length(seconds: float) -> str:
    """A duration for people: 850ms, 12.3s, 4m05s, 3h20m."""
    if seconds < 1:
        return f"{max(0.0, seconds) * 1000:.0f}ms"
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes}m{rest:02d}s"
    return f"{minutes // 60}h{minutes % 60:02d}m"


def harmless(text: str) -> str:
    """*text* without what could steer a terminal: others wrote it."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
