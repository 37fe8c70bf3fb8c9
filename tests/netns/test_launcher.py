"""netns.launcher: environment, namespace and end of ranks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from netns.children import Output
from netns.errors import BackendError, RankError, TopologyError
from netns.lab.lab import Lab
from netns.launcher import Launcher, Rank, _iteration
from netns.processes import processes_in
from netns.topology.model import leaf_spine
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.lab(leaf_spine(leaves=3, spines=1), scope="module")

HOSTS = ("h2", "h1", "h3")


def still_running(lab: Lab) -> list[str]:
    return [process.command for process in processes_in(lab.netns(node) for node in lab.topology.nodes)]


class RecordedLines(list[tuple[int, Output, str]]):
    def __call__(self, rank: int, stream: Output, line: str) -> None:
        self.append((rank, stream, line))


def python(text: str) -> list[str]:
    return [sys.executable, "-c", text]


@pytest.mark.parametrize(
    ("line", "reported"),
    [
        ('{"event": "iteration", "iteration": 3, "seconds": 0.5, "more": 1}', (3, 0.5)),
        ('{"event": "done", "iteration": 3, "seconds": 0.5}', None),
        ('{"event": "iteration", "iteration": 3}', None),
        ('{"event": "iteration", "iteration": "x", "seconds": 1}', None),
        ('{"event": "iteration", "iteration": 1, "seconds": null}', None),
        ('{"event": "iteration", "iteration": 1e999, "seconds": 1}', None),
        ("hello", None),
    ],
)
def test_iteration__is_one_form_of_line_only(line: str, reported: tuple[int, float] | None) -> None:
    assert _iteration(line) == reported


def test_rank__failure_message() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    rank = Rank(process, number=2, host="h7", status=3, last_error="out of luck")
    assert rank.failure == "rank 2 on h7 failed with status 3: out of luck"
    rank.status, rank.last_error = -9, ""
    assert rank.failure == "rank 2 on h7 was ended by SIGKILL"


@pytest.mark.root
def test_wait__environment_and_namespace_of_each_rank(lab: Lab) -> None:
    lines = RecordedLines()
    names = (
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
        "RANK_HOSTS",
        "RANK_LEAF",
        "OWN",
    )
    text = (
        "import os, socket, sys\n"
        f"print(*(os.environ[name] for name in {names}))\n"
        "own = os.environ['RANK_HOSTS'].split(',')[int(os.environ['RANK'])]\n"
        "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).bind((own, 1234))\n"
        "print('no newline', end='', file=sys.stderr)"
    )
    env = {"OWN": "yes", "RANK": "the job's file cannot change this"}
    with Launcher.start(lab, hosts=HOSTS, command=python(text), env=env) as ranks:
        ranks.wait(on_line=lines, timeout_s=PATIENCE_S)
        assert [rank.ran_in for rank in ranks.ranks] == list(HOSTS)
        assert [rank.status for rank in ranks.ranks] == [0, 0, 0]
    addresses = [lab.address(host) for host in HOSTS]
    assert sorted(lines) == sorted(
        each
        for rank in range(3)
        for each in (
            (
                rank,
                "stdout",
                f"{rank} 3 0 1 {addresses[0]} 29500 {','.join(addresses)} {lab.topology.switch_of(HOSTS[rank])} yes",
            ),
            (rank, "stderr", "no newline"),
        )
    )


@pytest.mark.root
def test_iterations__take_as_long_as_the_slowest(lab: Lab) -> None:
    lines = RecordedLines()
    text = (
        "import json, os\n"
        "rank = int(os.environ['RANK'])\n"
        "for iteration in (1, 0, 2):\n"
        "    if iteration < 2 or rank:\n"
        "        seconds = iteration + rank / 10\n"
        "        print(json.dumps({'event': 'iteration', 'iteration': iteration, 'seconds': seconds}))\n"
        "print('end')"
    )
    with Launcher.start(lab, hosts=HOSTS, command=python(text)) as ranks:
        ranks.wait(on_line=lines, timeout_s=PATIENCE_S)
        assert ranks.iterations_s == [0.2, 1.2], "iterations that not all ranks reported are left out"
    assert {line for _, _, line in lines} == {"end"}


@pytest.mark.root
def test_wait__one_fails_and_all_are_ended(lab: Lab) -> None:
    """Also one that ignores SIGTERM, and the child processes of a rank."""
    text = (
        "import os, signal, subprocess, sys, time\n"
        "rank = int(os.environ['RANK'])\n"
        "if rank == 0:\n"
        "    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "    subprocess.Popen(['sleep', '600'])\n"
        "if rank == 1:\n"
        "    print('first', file=sys.stderr)\n"
        "    sys.exit('it is broken')\n"
        "time.sleep(600)"
    )
    started_at = time.monotonic()
    with Launcher.start(lab, hosts=HOSTS, command=python(text)) as ranks:
        with pytest.raises(RankError, match=r"^rank 1 on h1 failed with status 1: it is broken$"):
            ranks.wait(on_line=RecordedLines(), timeout_s=PATIENCE_S)
        assert all(rank.status is not None for rank in ranks.ranks)
    assert still_running(lab) == []
    assert time.monotonic() - started_at < PATIENCE_S, "the sleeping processes were ended"


@pytest.mark.root
def test_wait__ends_in_spite_of_a_daemon_that_keeps_the_pipes_open(lab: Lab) -> None:
    """In its own session it is not in the rank's group; removing the lab ends it."""
    with Launcher.start(lab, hosts=HOSTS[:1], command=["sh", "-c", "setsid sleep 600 & sleep 0.2"]) as ranks:
        ranks.wait(on_line=RecordedLines(), timeout_s=PATIENCE_S)
    (daemon,) = processes_in([lab.netns(HOSTS[0])])
    os.kill(daemon.pid, signal.SIGKILL)


@pytest.mark.root
def test_wait__timeout(lab: Lab) -> None:
    with (
        Launcher.start(lab, hosts=HOSTS[:2], command=["sleep", "600"]) as ranks,
        pytest.raises(RankError, match=r"^not done after 0.2 s: rank 0 on h2, rank 1 on h1$"),
    ):
        ranks.wait(on_line=RecordedLines(), timeout_s=0.2)
    assert still_running(lab) == []


@pytest.mark.root
def test_with__ends_them_on_any_error(lab: Lab) -> None:
    with pytest.raises(ZeroDivisionError), Launcher.start(lab, hosts=HOSTS, command=["sleep", "600"]):
        raise ZeroDivisionError
    assert still_running(lab) == []


@pytest.mark.root
def test_start__bad_flow(lab: Lab) -> None:
    with pytest.raises(BackendError, match=r"^nosuch: no such command$"):
        Launcher.start(lab, hosts=HOSTS, command=["nosuch"])
    with pytest.raises(TopologyError, match=r"^host leaf1: no such host"):
        Launcher.start(lab, hosts=["h1", "leaf1"], command=["true"])
    assert still_running(lab) == []
