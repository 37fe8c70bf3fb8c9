"""`srd-lab rootless`: a lab built by the user nobody."""

from __future__ import annotations

import os
import sys

import pytest

from netns.lab.state import recorded_labs
from tests.programs import run_to_end

# Privileges are dropped after the imports, because other users may not be able to read the checkout. The lab is built
# by a fork of this process, because its modules could not be imported again.
AS_NOBODY = """
import ctypes, os, socket, sys
import netns.cli, netns.lab.lab, netns.topology.model, pyroute2
from netns.backends.kernel.netlink import in_namespace
os.setgid(65534); os.setuid(65534)
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE: /proc/self belongs to the user nobody again
uid, gid = os.getuid(), os.getgid()
libc = ctypes.CDLL(None, use_errno=True)
assert libc.unshare(0x10000000 | 0x40000000 | 0x00020000) == 0, os.strerror(ctypes.get_errno())
open("/proc/self/setgroups", "w").write("deny")
open("/proc/self/uid_map", "w").write(f"0 {uid} 1"); open("/proc/self/gid_map", "w").write(f"0 {gid} 1")
import subprocess
subprocess.run(["mount", "--make-rprivate", "/"], check=True)
subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True); os.mkdir("/run/netns")
with netns.lab.lab.Lab.up(netns.topology.model.leaf_spine(name="nobodys")) as lab:
    def make():
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); made.settimeout(60); return made
    one, two = (in_namespace(lab.netns(host), make) for host in ("h1", "h2"))
    two.bind((lab.address("h2"), 7)); one.sendto(b"over", two.getsockname())
    print(two.recv(9).decode(), lab.backend)
"""


@pytest.mark.root
def test_a_lab_in_a_user_namespace() -> None:
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}  # only a process of one thread may move
    done = run_to_end([sys.executable, "-c", AS_NOBODY], env=environment)
    assert done.stdout == "over kernel\n", done.stderr
    assert "nobodys" not in recorded_labs()


def test_rootless__runs_the_command_as_root_of_a_user_namespace() -> None:
    done = run_to_end(
        [sys.executable, "-m", "netns", "rootless", "--", "sh", "-c", "id -u; ip netns add x && ip netns; exit 7"]
    )
    assert (done.returncode, done.stdout) == (7, "0\nx\n"), done.stderr
