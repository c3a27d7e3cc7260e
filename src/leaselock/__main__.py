"""``python -m leaselock`` is the command line."""

from leaselock._cli import script

raise SystemExit(script())
