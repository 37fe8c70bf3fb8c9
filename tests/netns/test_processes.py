"""netns.processes: identities, and ending the processes of a namespace."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from netns.backends.kernel.netlink import add_namespace, delete_namespace
from netns.processes import ProcessIdentity, end, processes_in
from tests.netns.conftest import unique_name


def spawn(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", *arguments], stdout=subprocess.PIPE, text=True)


def test_process__identity_of_the_caller() -> None:
    me = ProcessIdentity.of(os.getpid())
    assert me is not None
    assert me.alive
    assert me.command


def test_process__reused_pid_is_another_process() -> None:
    me = ProcessIdentity.of(os.getpid())
    assert me is not None
    assert not ProcessIdentity(me.pid, me.started_at_ticks + 1).alive


def test_process__gone() -> None:
    child = spawn("pass")
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert ProcessIdentity.of(child.pid) is None, "nor is a zombie one"
    child.wait()
    child.communicate()
    assert ProcessIdentity.of(child.pid) is None
    assert ProcessIdentity(child.pid, 1).command == ""


@pytest.mark.parametrize(("program", "status"), [("", -15), ("signal.signal(signal.SIGTERM, signal.SIG_IGN); ", -9)])
def test_end__sigterm_then_sigkill(program: str, status: int) -> None:
    child = spawn(f"import signal; {program}print('ready', flush=True)\nwhile True: signal.pause()")
    with child:
        assert child.stdout is not None
        child.stdout.readline()
        process = ProcessIdentity.of(child.pid)
        assert process is not None
        end([process, ProcessIdentity(process.pid, process.started_at_ticks + 1)])
        assert not process.alive
        assert child.wait() == status


def test_end__leaves_other_processes_alone() -> None:
    me = ProcessIdentity.of(os.getpid())
    assert me is not None
    end([ProcessIdentity(me.pid, me.started_at_ticks - 1), ProcessIdentity(2**22 - 1, 1)])


@pytest.mark.root
def test_processes_in__by_namespace_not_by_name() -> None:
    netns = unique_name()
    add_namespace(netns)
    try:
        inside = subprocess.Popen(
            ["ip", "netns", "exec", netns, sys.executable, "-c", "print(1, flush=True); input()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        outside = spawn("print(1, flush=True); import signal; signal.pause()")
        with inside, outside:
            assert inside.stdout is not None
            assert outside.stdout is not None
            inside.stdout.readline()
            outside.stdout.readline()
            found = processes_in([netns, "no-such-namespace"])
            assert [(process.pid, name) for process, name in found.items()] == [(inside.pid, netns)]
            end(found)
            assert outside.poll() is None
            outside.kill()
    finally:
        delete_namespace(netns)
