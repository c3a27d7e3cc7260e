"""Write the assembled scripts: ``python -m leaselock._backends.redis.scripts DIRECTORY``."""

from __future__ import annotations

import sys
from pathlib import Path

from leaselock._backends.redis.scripts import text_of

NAMES = (
    *("acquire", "release", "renew", "set_lifetime", "break_lock", "inspect", "raise_token"),
    *("acquire_shared", "release_shared", "convert", "resize", "collect", "forget_idle"),
)


def main(words: list[str]) -> int:
    """Write each script to the directory that is named."""
    if len(words) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    directory = Path(words[0])
    directory.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        (directory / f"{name}.lua").write_text(text_of(name), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
