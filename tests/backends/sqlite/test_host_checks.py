"""Checks of the host: the mount table, shared file systems, and the domain of the clock."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import leaselock
from leaselock._backends.sqlite import creation, database, host_checks
from leaselock._backends.sqlite.host_checks import Mount
from leaselock.errors import NotApplied

PROGRAM = "from leaselock._backends.sqlite import host_checks; print(host_checks.boot())"

TABLE = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
36 27 0:50 / /srv/share rw,noatime shared:7 master:1 - nfs4 server:/share rw,vers=4.2
37 27 254:1 /sub /srv/share/local rw - xfs /dev/vdb rw
38 27 0:51 / /home rw - btrfs /dev/vdc rw,subvol=/home
39 27 0:52 / /mnt/with\\040blank\\011tab\\012line\\134040 rw - cifs //server/a\\040b rw
40 27 0:53 / /mnt/\x0bform\x0c\x85\u2028odd rw - fuse.sshfs host: rw
41 27 0:54 / /data rw - ext4 /dev/vdd rw
42 27 0:55 / /data rw - nfs server:/data rw
not a line of the table
43 27 nonsense / /x rw - nfs server:/x rw
"""


def check(path: str, device: int, table: str = TABLE) -> None:
    creation.check_mount(host_checks.parse_mounts(table), path, device)


def at(path: str, device: int) -> str:
    mount = host_checks.mount_of(host_checks.parse_mounts(TABLE), path, device)
    assert mount is not None
    return f"{mount.type} {mount.point}"


# ------------------------------------------------------------------------------ the table


def test_parsing_mountinfo() -> None:
    mounts = host_checks.parse_mounts(TABLE)
    assert len(mounts) == 9
    assert mounts[1] == Mount(os.makedev(254, 0), "/", "ext4")
    assert mounts[5] == Mount(os.makedev(0, 52), "/mnt/with blank\ttab\nline\\040", "cifs")
    assert mounts[6] == Mount(os.makedev(0, 53), "/mnt/\x0bform\x0c\x85\u2028odd", "fuse.sshfs")


@given(st.text(st.characters(exclude_characters="\0")))
def test_any_mount_point_is_parsed(name: str) -> None:
    escaped = re.sub(r"[ \t\n\\]", lambda match: f"\\{ord(match[0]):03o}", "/" + name)
    line = f"1 2 3:4 / {escaped} rw shared:1 - tmpfs none rw\n"
    assert host_checks.parse_mounts(line * 2) == [Mount(os.makedev(3, 4), "/" + name, "tmpfs")] * 2


@given(st.text())
def test_any_text_is_parsed(text: str) -> None:
    host_checks.parse_mounts(text)


@pytest.mark.skipif(sys.platform != "linux", reason="mountinfo is Linux's")
@pytest.mark.parametrize("path", ["/", "/proc", os.getcwd()])
def test_the_real_table_has_real_directories(path: str) -> None:
    mount = host_checks.mount_of(host_checks.mounts(), path, os.stat(path).st_dev)
    assert mount is not None
    assert os.stat(mount.point).st_dev == os.stat(path).st_dev
    assert (mount.type == "proc") == (path == "/proc")


# ------------------------------------------------------------------------------ finding the mount


def test_the_device_decides() -> None:
    assert at("/srv/share/local/x", os.makedev(254, 1)) == "xfs /srv/share/local"
    assert at("/srv/share/local/x", os.makedev(0, 50)) == "nfs4 /srv/share"  # mounted over it later
    assert at("/elsewhere", os.makedev(0, 50)) == "nfs4 /srv/share"


def test_the_path_decides_where_the_device_is_unknown() -> None:
    unknown = os.makedev(0, 99)
    assert at("/home/x", unknown) == "btrfs /home"
    assert at("/homes", unknown) == "ext4 /"
    assert at("/srv/share", unknown) == "nfs4 /srv/share"
    assert at("/srv/share/local", unknown) == "xfs /srv/share/local"


def test_the_later_of_two_mounts_on_one_point_is_on_top() -> None:
    assert at("/data/x", os.makedev(0, 99)) == "nfs /data"
    assert at("/data/x", os.makedev(0, 54)) == "ext4 /data"


def test_no_mountinfo() -> None:
    assert host_checks.mount_of([], "/x", 1) is None
    check("/x/locks.db", 1, "")


# ------------------------------------------------------------------------------ shared ones


def test_a_share_is_refused_with_its_reason() -> None:
    with pytest.raises(NotApplied) as refusal:
        check("/srv/share/locks.db", os.makedev(0, 50))
    message = str(refusal.value)
    assert "'/srv/share/locks.db' is on a network or shared file system" in message
    assert "(nfs4 on '/srv/share')" in message
    assert "one host: set LEASELOCK_URL to a file on a local disk" in message


@pytest.mark.parametrize(
    "kind",
    "nfs nfs4 cifs smb3 smbfs afs ceph glusterfs fuse fuse.sshfs fuse.glusterfs fuse.s3fs "
    "fuse.unheard-of 9p ocfs2 gfs2 lustre beegfs vboxsf prl_fs vmhgfs virtiofs".split(),
)
def test_shared_file_systems(kind: str) -> None:
    with pytest.raises(NotApplied, match=re.escape(f"({kind} on '/')")):
        check("/x/locks.db", 1, f"27 1 0:1 / / rw - {kind} source rw\n")


@pytest.mark.parametrize(
    "kind",
    "ext4 xfs btrfs zfs tmpfs overlay f2fs apfs fuseblk fuse.fuse-overlayfs ecryptfs".split(),
)
def test_local_file_systems(kind: str) -> None:
    check("/x/locks.db", 1, f"27 1 0:1 / / rw - {kind} source rw\n")


def test_a_file_that_is_a_mount() -> None:
    table = "27 1 0:1 / / rw - ext4 a rw\n28 27 0:1 /a /x/locks.db rw - ext4 a rw\n"
    with pytest.raises(NotApplied, match=r"mount of its own.*: mount its directory instead"):
        check("/x/locks.db", 1, table)
    check("/x/other.db", 1, table)


# ------------------------------------------------------------------------------ the clock


def run(*wrapper: str) -> str:
    command = [*wrapper, sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True)
    if wrapper and done.returncode and "unshare" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.skipif(sys.platform != "linux", reason="Linux only")
def test_processes_of_one_host_share_a_clock() -> None:
    assert host_checks.boot()
    assert run() == host_checks.boot()
    assert not {*host_checks.boot()} & {" ", "\n"}


@pytest.mark.skipif(sys.platform != "linux", reason="Linux only")
def test_different_clocks_have_different_names() -> None:
    """Namespaces that do not coexist may get the same number from the kernel."""
    user = [] if os.geteuid() == 0 else ["-r"]
    names = [
        run("unshare", *user, "--time", "--boottime", str(offset), "--fork")
        for offset in (1000, 2000, -50)
    ]
    assert len({host_checks.boot(), *names}) == 4


def test_a_child_namespace_does_not_rename_our_clock() -> None:
    """After unshare the kernel reports the clock offsets of future children."""
    program = (
        "import ctypes\n"
        "from leaselock._backends.sqlite import host_checks\n"
        "name = host_checks.boot()\n"
        "if ctypes.CDLL(None, use_errno=True).unshare(0x80): raise SystemExit('unshare')\n"
        "open('/proc/self/timens_offsets', 'w').write('boottime 77 0')\n"
        "assert host_checks.boot() == name\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    if done.stderr.strip() == "unshare":
        pytest.skip("only root can make a time namespace")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("there", ["windows:", "windows:77"])
def test_a_file_that_windows_uses_is_refused(
    there: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of the two systems takes the clients of the other one for dead."""
    url = f"sqlite:///{tmp_path}/locks.db"
    with leaselock.Client(url) as ours, ours.lock("a"):
        with monkeypatch.context() as patch:
            # As a client on Windows sees it.
            patch.setattr(database, "boot", lambda: there)
            with leaselock.Client(url) as client, pytest.raises(leaselock.StoreError) as refused:
                client.lock("b").try_acquire()
        assert refused.value.reason == "misconfigured"
        assert "was made on another operating system" in str(refused.value)
        with leaselock.Client(url) as client:
            assert client.lock("a").holder() is not None
