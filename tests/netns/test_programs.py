"""netns.programs: where a program is, or which package has it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from netns.backends.kernel.netlink import run_tool
from netns.errors import BackendError
from netns.programs import _PACKAGES, tool
from tests.dying import assert_leaves_nothing
from tests.programs import run_to_end

SLEEP = "import sys; print(flush=True); sys.stdin.read()"
BY_COMMAND = f"""
import subprocess, sys
from netns.programs import ending_with_us
command = ending_with_us([sys.executable, "-c", {SLEEP!r}])
child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
child.stdout.readline()
print(child.pid, flush=True)
child.wait()
"""
BY_FORK = """
import os, signal
from netns.programs import end_with
parent = os.getpid()
read_fd, write_fd = os.pipe()
child = os.fork()
if not child:
    end_with(parent)
    os.write(write_fd, b"x")
    signal.pause()
os.read(read_fd, 1)
print(child, flush=True)
os.waitpid(child, 0)
"""


@pytest.mark.parametrize("program", [BY_COMMAND, BY_FORK])
def test_ending_with_us__sigkill_leaves_nothing(program: str) -> None:
    assert_leaves_nothing(program, processes=1)


def test_tool__bad_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BackendError, match=r"^nosuch: no such command; install the package that has it, or give its"):
        tool("nosuch")
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    with pytest.raises(BackendError, match=r"^ping: not installed; install the package iputils-ping$"):
        tool("ping")
    with pytest.raises(BackendError, match=r"^insmod: not installed; install the package kmod$"):
        tool("insmod")
    with pytest.raises(BackendError, match=r"^ethtool: not installed; install the package ethtool$"):
        run_tool("ethtool", "-k", "lo")


@pytest.mark.skipif(shutil.which("dpkg-query") is None, reason="Debian's packages, on Debian")
def test_tool__packages_are_debians() -> None:
    """Each program that is installed here is a file of the package named; of others nothing is known."""
    for name, package in _PACKAGES.items():
        found = shutil.which(name, path="/usr/bin:/usr/sbin:/bin:/sbin")
        if found is None:
            continue
        command = ["dpkg-query", "--search", f"*bin/{name}"]
        owners = run_to_end(command).stdout
        assert f"{package}: " in owners or not owners, (name, owners)


def test_tool__is_found_without_sbin_in_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert tool("ip").endswith("/ip")
    assert Path(tool("tc")).is_absolute()
