"""From what people type to numbers, and from what others wrote to what a terminal may show."""

from __future__ import annotations

import re

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
NUMBER = re.compile(r"\d+(?:\.\d*)?|\.\d+", re.ASCII)


def duration(text: str) -> float:
    """Seconds of ``500ms``, ``10s``, ``5m``, ``1h30m``, or of a bare number of seconds."""
    if NUMBER.fullmatch(text):
        return float(text)
    parts = PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(
            f"{text!r} is not a duration such as 500ms, 10s, 5m, 1h30m or 2.5 (seconds)"
        )
    return sum(float(number) * UNITS[unit] for number, unit in parts)


def length(seconds: float) -> str:
    """A duration for people: 850ms, 12.3s, 4m05s, 3h20m, 2d06h."""
    if seconds < 0.9995:
        return f"{max(0.0, seconds) * 1000:.0f}ms"
    if seconds < 59.95:
        return f"{seconds:.1f}s"
    if seconds < 3600:
        return "{}m{:02d}s".format(*divmod(int(seconds), 60))
    if seconds < 86400:
        return "{}h{:02d}m".format(*divmod(int(seconds / 60), 60))
    return "{}d{:02d}h".format(*divmod(int(min(seconds, 1e15) / 3600), 24))


def harmless(text: str) -> str:
    """*text* with what could steer a terminal or forge a line made visible: others wrote it."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii")
        for char in text
    )
