"""Build all programs that can be built, and print why the others cannot."""

from __future__ import annotations

from benchmarks.foreign import KINDS, build


def main() -> None:
    """Print one line for each language."""
    for kind in KINDS:
        fault = build(kind)
        print(f"{kind}: not measured: {fault}" if fault else f"{kind}: built")


if __name__ == "__main__":
    main()
