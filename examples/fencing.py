"""Fencing: what is guarded refuses those who are late. Run it: python examples/fencing.py"""

from __future__ import annotations

import leaselock


class Storage:
    """Whatever your lock guards, as long as it can compare two numbers in one step.

    In SQL that is leaselock.optimistic.fenced_write.
    """

    def __init__(self) -> None:
        self.text = ""
        self.fence = 0

    def write(self, text: str, fence: int) -> bool:
        """Accept the write unless a newer holder has been here."""
        if fence < self.fence:
            return False
        self.text, self.fence = text, fence
        return True


def main() -> None:
    storage = Storage()
    with leaselock.Client() as slow, leaselock.Client() as quick:
        stale = slow.lock("report").acquire()
        assert stale is not None
        quick.break_lock("report")  # as if *slow* had been frozen beyond its lease
        with quick.lock("report") as lease:
            print(f"the new holder's write: {storage.write('new', fence=lease.token)}")
            print(f"the late holder's write: {storage.write('old', fence=stale.token)}")
    print(f"the report is {storage.text}")


if __name__ == "__main__":
    main()
