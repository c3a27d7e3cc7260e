"""What macOS reports about this host: the identity of the boot, and whether a folder is local.

The structure is that of `struct statfs` with 64-bit inodes, in sys/mount.h. This module has never
run on a Mac.
"""

from __future__ import annotations

import sys

assert sys.platform == "darwin"

import ctypes
import os
import platform

MNT_LOCAL = 0x1000


class _FileSystem(ctypes.Structure):
    _fields_ = (
        ("f_bsize", ctypes.c_uint32),
        ("f_iosize", ctypes.c_int32),
        ("f_blocks", ctypes.c_uint64),
        ("f_bfree", ctypes.c_uint64),
        ("f_bavail", ctypes.c_uint64),
        ("f_files", ctypes.c_uint64),
        ("f_ffree", ctypes.c_uint64),
        ("f_fsid", ctypes.c_int32 * 2),
        ("f_owner", ctypes.c_uint32),
        ("f_type", ctypes.c_uint32),
        ("f_flags", ctypes.c_uint32),
        ("f_fssubtype", ctypes.c_uint32),
        ("f_fstypename", ctypes.c_char * 16),
        ("f_mntonname", ctypes.c_char * 1024),
        ("f_mntfromname", ctypes.c_char * 1024),
        ("f_flags_ext", ctypes.c_uint32),
        ("f_reserved", ctypes.c_uint32 * 7),
    )


def boot() -> str:
    """Return the identity of this boot; '' where the system does not tell."""
    text = ctypes.create_string_buffer(64)
    size = ctypes.c_size_t(len(text))
    failed = ctypes.CDLL(None).sysctlbyname(
        b"kern.bootsessionuuid", text, ctypes.byref(size), None, ctypes.c_size_t(0)
    )
    return "" if failed else text.value.decode("ascii")


def network_type(path: str) -> str:
    """Return the type of the file system of a folder if it is not local, otherwise ''."""
    system = ctypes.CDLL(None, use_errno=True)
    # On Intel the plain name is that of an older structure.
    statfs = system.statfs if platform.machine() == "arm64" else system["statfs$INODE64"]
    found = _FileSystem()
    if statfs(os.fsencode(path), ctypes.byref(found)) != 0:
        raise OSError(ctypes.get_errno(), "statfs failed", path)
    return "" if found.f_flags & MNT_LOCAL else bytes(found.f_fstypename).decode("ascii")
