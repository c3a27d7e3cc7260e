"""What the system reports about this host: the mounts, and the identity of the boot clock.

Where it reports nothing, the results are empty, never guesses.
"""

from __future__ import annotations

import os
import sys

from leaselock._named_tuple import NamedTuple

# WAL keeps its index in shared memory, which two kernels do not share, and on these file systems
# locks are limited to one host or arrive late. Shares between a virtual machine and its host count.
# fmt: off
_SHARED = frozenset((
    "9p", "acfs", "afs", "beegfs", "ceph", "cifs", "coda", "drvfs", "fhgfs", "fuse", "gfs", "gfs2",
    "glusterfs", "gpfs", "kafs", "lustre", "ncpfs", "nfs", "nfs3", "nfs4", "ocfs2", "orangefs",
    "panfs", "prl_fs", "pvfs2", "shfs", "smb2", "smb3", "smbfs", "vboxsf", "virtiofs", "vmhgfs",
))
# Begins the identity of each boot of Windows.
WINDOWS = "windows:"
# Any other fuse.* may have a network behind it; fuseblk always has a local disk.
_LOCAL_FUSE = frozenset((
    "fuse.encfs", "fuse.exfat", "fuse.ext2", "fuse.ext4", "fuse.fuse-overlayfs", "fuse.fuse2fs",
    "fuse.gocryptfs", "fuse.ntfs-3g", "fuse.zfs",
))
# fmt: on


class Mount(NamedTuple):
    """One line of mountinfo."""

    device: int
    point: str
    type: str


def mounts() -> list[Mount]:
    """All mounts, in the order of mounting."""
    return parse_mounts(_text("/proc/self/mountinfo"))


def parse_mounts(mountinfo: str) -> list[Mount]:
    """The mounts in *mountinfo*, see proc(5). Invalid lines are skipped."""
    # Not splitlines() nor split(): the kernel escapes blank, tab and newline, but no other white
    # space, and mount points can have hostile names.
    mounts = []
    for line in mountinfo.split("\n"):
        left, separator, right = line.partition(" - ")
        fields = left.split(" ")
        major, colon, minor = fields[2].partition(":") if len(fields) > 4 else ("", "", "")
        if separator and colon and major.isdecimal() and minor.isdecimal():
            device = _device(int(major), int(minor))
            mounts.append(Mount(device, _unescape(fields[4]), _unescape(right.split(" ")[0])))
    return mounts


def _device(major: int, minor: int) -> int:
    if sys.platform == "win32":
        raise NotImplementedError("Windows has no table of mounts")
    return os.makedev(major, minor)


def _unescape(text: str) -> str:
    first, *others = text.split("\\")
    for other in others:
        digits = other[:3]
        octal = len(digits) == 3 and not digits.strip("01234567")
        first += chr(int(digits, 8)) + other[3:] if octal else "\\" + other
    return first


def mount_of(table: list[Mount], path: str, device: int) -> Mount | None:
    """The mount that contains *path*, which is on *device*."""
    # The device decides, because a path may be hidden under another mount. If the device is not in
    # the table (btrfs subvolumes have their own), the path decides.
    same = [mount for mount in table if mount.device == device]
    within = [mount for mount in same or table if _within(path, mount.point)]
    # Of two mounts on one point, the later one is on top.
    return max(reversed(within or same), key=lambda mount: len(mount.point), default=None)


def _within(path: str, point: str) -> bool:
    return path == point or path.startswith(point.rstrip("/") + "/")


def is_shared(kind: str) -> bool:
    """Whether other hosts can see the files of a file system of this type."""
    return kind in _SHARED or (kind.startswith("fuse.") and kind not in _LOCAL_FUSE)


def boot() -> str:
    """The identity of the clock: with equal ones, readings of CLOCK_BOOTTIME can be compared.

    '' where the system does not report it; reboots are not detected there.
    """
    if sys.platform == "win32":
        from leaselock._backends.sqlite import host_windows

        return f"{WINDOWS}{host_windows.boot()}"
    if sys.platform == "darwin":
        from leaselock._backends.sqlite import host_macos

        return host_macos.boot()
    return _boot_of_linux()


def _boot_of_linux() -> str:
    identity = _text("/proc/sys/kernel/random/boot_id").strip()
    if not identity:
        return ""
    namespace, children = _inode("/proc/self/ns/time"), _inode("/proc/self/ns/time_for_children")
    # The kernel reuses the inode number of a time namespace that has ended, so the number alone is
    # not enough. The offsets are those of the namespace of our children, usually our own.
    offset = _offset(_text("/proc/self/timens_offsets")) if namespace == children else ""
    return ":".join(part for part in (identity, namespace, offset) if part)


def users_of(path: str) -> tuple[int, ...]:
    """The processes that have the file open, as far as this user may see them."""
    try:
        processes = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    except OSError:  # not Linux
        return ()
    return tuple(sorted(process for process in processes if _has_open(process, path)))


def _has_open(process: int, path: str) -> bool:
    folder = f"/proc/{process}/fd"
    try:
        return any(_target(os.path.join(folder, number)) == path for number in os.listdir(folder))
    except OSError:  # it has ended, or belongs to another user
        return False


def _target(link: str) -> str:
    try:
        return os.readlink(link)
    except FileNotFoundError:  # closed meanwhile
        return ""


def _inode(path: str) -> str:
    try:
        return str(os.stat(path).st_ino)
    except OSError:  # a kernel without time namespaces
        return ""


def _offset(table: str) -> str:
    for line in table.split("\n"):
        clock, *offset = line.split()[:3] or ("",)
        if clock in ("boottime", "7") and offset != ["0", "0"]:  # early kernels write the number
            return ".".join(offset)
    return ""


def _text(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return os.fsdecode(file.read())
    except OSError:  # not Linux, or hidden from this process
        return ""
