"""``python -m leaselock`` is the command line."""

from leaselock._cli import main

raise SystemExit(main())
