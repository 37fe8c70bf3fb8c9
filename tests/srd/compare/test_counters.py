"""What a cell did to fabric and machine, by the difference of two readings; and MPTCP's subflows."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace

import pytest

from netns.lab.lab import Lab
from netns.observe.machine import Ticks
from srd.compare.cell import allow_subflows, first_address, lacking
from srd.compare.counters import Reading
from srd.compare.errors import CellError
from srd.compare.outcome import Loads
from srd.perf.tcp_socket import CUBIC, why_unavailable
from tests.programs import run_to_end

pytestmark = pytest.mark.lab(scope="module")

EARLIER = Reading(at=10.0, sent_bytes={}, ticks=Ticks(busy=100, stolen=0, total=1000), relay_cpu_s=1.0)


def ping(lab: Lab, address: str) -> None:
    command = lab.command("h1", ["ping", "-q", "-c", "20", "-i", "0.01", "-s", "1000", address])
    subprocess.run(command, check=True, capture_output=True)


@pytest.mark.root
def test_reading__counts_the_spine_that_was_taken(lab: Lab) -> None:
    before = Reading.take(lab)
    ping(lab, lab.pinned_addresses("h2")["spine3"])
    after = Reading.take(lab)
    assert after.sent_bytes["leaf1", "spine3"] - before.sent_bytes["leaf1", "spine3"] >= 20 * 1000
    shares = after.path_shares(lab, since=before, senders=["h1"])
    assert list(shares) == list(lab.topology.spines)
    assert shares["spine3"] > 0.95  # and none of the answers
    assert sum(shares.values()) == pytest.approx(1, abs=0.001)
    assert "spine3" in after.busiest_link(lab, since=before)
    if lab.backend == "relay":
        assert after.relay_cpu_s is not None
        assert before.relay_cpu_s is not None
        assert after.relay_cpu_s > before.relay_cpu_s


def test_loads__are_shares_since_then() -> None:
    later = replace(EARLIER, at=12.0, ticks=Ticks(busy=150, stolen=20, total=1200), relay_cpu_s=1.5)
    loads = later.loads(since=EARLIER, workers_cpu_s=[0.5, 1.0], seconds=2.0)
    known = Loads(0.25, stolen=0.1, relay_cpu=0.25, workers_cpu=0.75, busiest_worker_cpu=0.5, cores=os.cpu_count())
    assert loads == known
    assert later.loads(since=later, workers_cpu_s=[], seconds=0.0) == Loads(cores=os.cpu_count())
    assert replace(later, relay_cpu_s=None).loads(since=EARLIER, workers_cpu_s=[], seconds=1.0).relay_cpu is None


@pytest.mark.root
def test_subflows__over_all_spines_but_the_first(lab: Lab) -> None:
    if reason := why_unavailable(algorithm=CUBIC, mptcp=True):
        pytest.skip(reason)
    allow_subflows(lab, "h1", sends=True)
    allow_subflows(lab, "h2", sends=False)
    shown = run_to_end(lab.command("h1", ["ip", "mptcp", "endpoint", "show"]), check=True).stdout
    pinned = lab.pinned_addresses("h1")
    assert [address in shown for address in pinned.values()] == [False, True, True, True]
    assert first_address(lab, "h1") == pinned["spine1"]
    with pytest.raises(CellError, match="mptcp endpoint add"):
        allow_subflows(lab, "h1", sends=True)  # a second time: the kernel refuses, and the error has its reason


@pytest.mark.root
def test_lacking__says_how_many(lab: Lab) -> None:
    assert lacking(lab, [4, 4]) is None
    assert lacking(lab, []) is None
    assert lacking(lab, [4, 3]) == "3 of 4 subflows of a connection existed at the end"
