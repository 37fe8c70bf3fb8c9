"""scripts.benches.torture.run: short scenarios with real processes; hangs, crashes and error output are faults."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scripts.benches.torture.plans import (
    KIB,
    EndpointPlan,
    FaultKind,
    Net,
    NetworkPlan,
    ReceiverPlan,
    RequestKind,
    SenderPlan,
    TimedFault,
    TortureScenario,
)
from scripts.benches.torture.run import run_scenario

EVERYTHING = SenderPlan(
    EndpointPlan(),
    weights={
        RequestKind.SEND: 3.0,
        RequestKind.BATCH: 0.3,
        RequestKind.WRITE: 1.0,
        RequestKind.READ: 1.0,
        RequestKind.LENT: 0.05,
    },
    longest_bytes=256 * KIB,
    outstanding=16,
    small=0.5,
    cancelled=0.05,
    flawed=0.05,
)
SCENARIO = TortureScenario(
    3,
    1.0,
    NetworkPlan(Net.LOOPBACK),
    ReceiverPlan(EndpointPlan(), hold_s=0.1, hold_bytes=1 << 20, returns="tokens", bound=(1,), replies=0.1),
    (EVERYTHING, replace(EVERYTHING, endpoint=EndpointPlan(datagram_bytes=1472, uvloop=False))),
)


def test_run_scenario__all_operations_over_loopback() -> None:
    result = run_scenario(SCENARIO)
    assert not result.faults
    assert result.requests > 20
    assert result.posted_bytes > 0


def test_run_scenario__stop_kill_and_restart() -> None:
    events = (
        TimedFault(0.2, FaultKind.STOP, 1, 0.3),
        TimedFault(0.3, FaultKind.KILL, 2, 0.1),
        TimedFault(0.6, FaultKind.KILL, 0, 0.1),
    )
    assert not run_scenario(replace(SCENARIO, events=events)).faults


@pytest.mark.long
def test_run_scenario__receiver_killed_again_before_it_listens() -> None:
    """A process starts slower than the kills follow each other: the second has not journalled its pid."""
    events = (TimedFault(0.3, FaultKind.KILL, 0, 0.1), TimedFault(0.45, FaultKind.KILL, 0, 0.1))
    assert not run_scenario(replace(SCENARIO, events=events)).faults


@pytest.mark.long
def test_run_scenario__sender_restarts_while_the_receiver_restarts() -> None:
    """The sender restarts sooner than the receiver: it gets the address when the receiver listens."""
    events = (TimedFault(0.3, FaultKind.KILL, 0, 0.1), TimedFault(0.35, FaultKind.KILL, 1, 0.1))
    assert not run_scenario(replace(SCENARIO, events=events)).faults


@pytest.mark.root
def test_run_scenario__mtu_per_host_and_an_mtu_change() -> None:
    mtus, offloads = {0: 9000, 1: 1500, 2: 1000}, {0: True, 1: False, 2: True}
    events = (TimedFault(0.3, FaultKind.MTU, 1, 0.2, value=1000), TimedFault(0.5, FaultKind.FLAP, 2, 0.1))
    network = NetworkPlan(Net.ROUTED, mtus, offloads)
    assert not run_scenario(replace(SCENARIO, network=network, events=events)).faults


@pytest.mark.root
def test_run_scenario__links_that_lose_and_corrupt() -> None:
    shape: dict[str, str | int] = {"delay": "500us 200us", "loss": "2%", "duplicate": "2%", "corrupt": "1%"}
    network = NetworkPlan(Net.RELAY, dict.fromkeys(range(3), 9000), dict.fromkeys(range(3), True), shape)
    events = (TimedFault(0.3, FaultKind.BLACKHOLE, 1, 0.2),)
    assert not run_scenario(replace(SCENARIO, network=network, events=events)).faults
