"""Controls run in `make controls` only, which sets where their page is written: they test other
libraries, and take a while.
"""

from __future__ import annotations

import os

collect_ignore = [] if os.environ.get("LEASELOCK_CONTROLS") else ["test_controls.py"]
