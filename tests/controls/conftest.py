"""Controls are played by `make controls` only, which says where their page is to be written: they
are about others, and take a while.
"""

from __future__ import annotations

import os

collect_ignore = [] if os.environ.get("LEASELOCK_CONTROLS") else ["test_controls.py"]
