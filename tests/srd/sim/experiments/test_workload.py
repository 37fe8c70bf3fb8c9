"""Workloads by their notation."""

from __future__ import annotations

import pytest

from srd.sim.experiments.errors import ExperimentError
from srd.sim.experiments.workload import WEBSEARCH_MEAN_BYTES, made
from srd.sim.flows import Flow

HOSTS = [f"h{index}" for index in range(1, 17)]
RATE = 10**11


def flows(text: str, *, seed: int = 1, host_bps: int = RATE) -> tuple[Flow, ...]:
    return made(text, hosts=HOSTS, host_bps=host_bps, seed=seed)


def test_incast() -> None:
    assert flows("incast:3x2MB") == tuple(Flow(f"h{n}", "h16", 2_000_000) for n in (1, 2, 3))


def test_permutation__each_sends_and_receives_once_and_the_seed_decides() -> None:
    found = flows("permutation:1K")
    assert [flow.source for flow in found] == HOSTS
    assert sorted(flow.destination for flow in found) == sorted(HOSTS)
    assert all(flow.source != flow.destination and flow.size_bytes == 1024 for flow in found)
    assert found == flows("permutation:1K") != flows("permutation:1K", seed=2)


def test_websearch__its_load_and_its_sizes() -> None:
    found = flows("websearch:0.6:20K")
    sizes = [flow.size_bytes for flow in found]
    assert sum(sizes) / len(sizes) == pytest.approx(WEBSEARCH_MEAN_BYTES, rel=0.05)
    assert sum(size <= 80_000 for size in sizes) / len(sizes) == pytest.approx(0.53, abs=0.02)
    offered_bps = 8 * sum(sizes) / found[-1].start_s
    assert offered_bps == pytest.approx(0.6 * RATE * len(HOSTS), rel=0.05)
    assert [flow.start_s for flow in found] == sorted(flow.start_s for flow in found)


def test_allreduce__a_host_sends_what_it_has_received() -> None:
    found = flows("allreduce:16MB")
    assert len(found) == 2 * 15 * 16
    assert sum(flow.size_bytes for flow in found) == 2 * 15 * 16_000_000
    for flow in found:
        assert HOSTS.index(flow.destination) == (HOSTS.index(flow.source) + 1) % 16
        assert [found[other].destination for other in flow.after] in ([], [flow.source])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("incast:16x2MB", "16 senders and a receiver, but 16 hosts; take fewer senders"),
        ("incast:2", "'' is not a number with a unit"),
        ("incast:2x0", "a flow of 0 bytes; it has 1 to"),
        ("websearch:60", "a load of 60 is not between 0 and 1"),
        ("websearch:high", "could not convert string to float: 'high'"),
        ("websearch:0.5:2M", "2000000 flows; there are 1 to 1000000"),
        ("storm", "no such workload; use incast:NxSIZE"),
    ],
)
def test_what_is_wrong_with_it_in_one_line(text: str, said: str) -> None:
    with pytest.raises(ExperimentError) as caught:
        flows(text)
    assert str(caught.value).startswith(f"--workload {text}: {said}")
    assert "\n" not in str(caught.value)


def test_websearch__hosts_without_a_rate() -> None:
    with pytest.raises(ExperimentError, match="hosts' links have no rate"):
        flows("websearch:0.6", host_bps=0)
