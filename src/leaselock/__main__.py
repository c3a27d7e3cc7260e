"""``python -m leaselock`` is the command line."""

from leaselock.cli import main

raise SystemExit(main())
