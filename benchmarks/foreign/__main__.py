"""Build what can be built, and say of the rest why it cannot."""

from __future__ import annotations

from benchmarks.foreign import KINDS, build


def main() -> None:
    """One line for each language."""
    for kind in KINDS:
        fault = build(kind)
        print(f"{kind}: not measured: {fault}" if fault else f"{kind}: built")


if __name__ == "__main__":
    main()
