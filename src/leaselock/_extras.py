"""Which packages an extra installs, for messages: pip can install them without leaselock itself."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, requires


def install_command(extra: str, otherwise: str) -> str:
    """The command that installs what an extra installs, or *otherwise* if that is not known,
    because leaselock is not installed here.

    It does not name leaselock, which may be installed from elsewhere than the package index.
    """
    try:
        every = [line.partition(";") for line in requires("leaselock") or ()]
    except PackageNotFoundError:
        every = []
    mark = f"extra=='{extra}'"
    # Build tools differ in spaces and quotes.
    extras = [
        requirement.strip()
        for requirement, _, condition in every
        if condition.replace(" ", "").replace('"', "'") == mark
    ]
    return "pip install " + " ".join(f"'{each}'" for each in extras or [otherwise])
