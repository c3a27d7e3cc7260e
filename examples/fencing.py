"""Fencing: the resource rejects writes of a previous holder. Run it: python examples/fencing.py"""

from __future__ import annotations

import leaselock


class Storage:
    """The protected resource; it must compare two numbers and write in one atomic step.

    For a row in SQL, use leaselock.optimistic.fenced_write.
    """

    def __init__(self) -> None:
        self.text = ""
        self.fence = 0

    def write(self, text: str, fence: int) -> bool:
        """Accept the write unless a newer holder has written."""
        if fence < self.fence:
            return False
        self.text, self.fence = text, fence
        return True


def main() -> None:
    storage = Storage()
    with leaselock.Client() as slow, leaselock.Client() as quick:
        stale = slow.lock("report").acquire()
        assert stale is not None
        quick.break_lock("report")  # as if *slow* had been suspended for longer than its lease
        with quick.lock("report") as lease:
            print(f"the new holder's write: {storage.write('new', fence=lease.token)}")
            print(f"the late holder's write: {storage.write('old', fence=stale.token)}")
    print(f"the report is {storage.text}")


if __name__ == "__main__":
    main()
