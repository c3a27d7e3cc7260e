"""Write the assembled scripts: ``python -m leaselock._backends.redis.scripts DIRECTORY``."""

from __future__ import annotations

import sys
from pathlib import Path

from leaselock._backends.redis.scripts import SCRIPTS


def main(argv: list[str]) -> int:
    """Write each script to the directory that is named."""
    if len(argv) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    directory = Path(argv[0])
    directory.mkdir(parents=True, exist_ok=True)
    for name, script in SCRIPTS.items():
        (directory / f"{name}.lua").write_text(script.text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
