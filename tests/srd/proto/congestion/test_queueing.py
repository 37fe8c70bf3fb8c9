"""What a report says about queues, on paths of one length and of unequal length; probes."""

from __future__ import annotations

import pytest

from srd.proto.config import ProtocolConfig
from srd.proto.congestion.queueing import Queueing
from srd.proto.paths.path import Path
from srd.proto.paths.rtt import SHARED_MIN_S, PeerRtt
from srd.proto.wire.control import PathReport
from tests.srd.proto.congestion.fixed import Fixed

JITTER_S = 0.001
OFFSET_US = 77_000_000
"""Of the receiver's clock."""


class Samples(Fixed):
    """Keeps what it gets."""

    def __init__(self) -> None:
        super().__init__(ProtocolConfig(), packet_bytes=9000)
        self.queues_s: list[float] = []
        self.bases_s: list[tuple[float, float]] = []

    def on_sample(
        self,
        *,
        now: float,  # noqa: ARG002 - the interface's
        queue_s: float,
        endpoint_s: float,  # noqa: ARG002
        min_rtt_s: float,
        target_base_s: float,
        variation_s: float,  # noqa: ARG002
        ecn_fraction: float,  # noqa: ARG002
    ) -> None:
        self.queues_s.append(queue_s)
        self.bases_s.append((min_rtt_s, target_base_s))


class Reports:
    """Two paths of one peer."""

    def __init__(self) -> None:
        self.samples, self.rtt = Samples(), PeerRtt(initial_s=0.01)
        self.queueing = Queueing(self.rtt, controller=self.samples)
        self.paths = [Path(index, initial_rtt_s=0.01) for index in range(2)]

    def report(self, index: int, *, there_s: float, back_s: float, now: float, is_probe: bool = False) -> None:
        path = self.paths[index]
        path.rtt.update(there_s + back_s, now=now)
        self.rtt.observe(there_s + back_s, now=now)
        received_us = int((now - back_s) * 1e6)
        sent_us = received_us - int(there_s * 1e6)
        rtt_us = int(now * 1e6) - sent_us
        report = PathReport(index, 0, sent_us & 0xFFFFFFFF, 0, 1, 0, 0, (received_us + OFFSET_US) & 0xFFFFFFFF)
        self.queueing.on_report(path, report, rtt_us=rtt_us, marked=0.0, is_probe=is_probe, now=now)
        self.rtt.refresh([path.rtt for path in self.paths], now=now)
        self.queueing.on_ack((0, 0), is_sample=True, jitter_s=JITTER_S, now=now)

    def empty(self, *, there_s: tuple[float, float], backs_s: tuple[float, float]) -> None:
        """Report both paths without a queue over each way back, and let the first second pass."""
        for now in (10.0, 10.0 + SHARED_MIN_S):
            for index in range(2):
                for back_s in backs_s:
                    self.report(index, there_s=there_s[index], back_s=back_s, now=now)


def test_on_report__of_paths_of_one_length_a_queue_on_the_way_back_counts() -> None:
    ours = Reports()
    ours.empty(there_s=(0.001, 0.001), backs_s=(0.001, 0.003))
    assert not ours.queueing.unequal
    ours.report(0, there_s=0.001, back_s=0.003, now=11.5)
    assert ours.samples.queues_s[-1] == pytest.approx(0.002, abs=2e-6)
    assert ours.samples.bases_s[-1] == pytest.approx((0.002, 0.002))


def test_on_report__of_one_way_back_only_the_round_trip_counts() -> None:
    """The second path was never seen without a queue: that is no length."""
    ours = Reports()
    ours.empty(there_s=(0.001, 0.005), backs_s=(0.001, 0.001))
    assert not ours.queueing.unequal
    ours.report(1, there_s=0.008, back_s=0.001, now=11.5)
    assert ours.samples.queues_s[-1] == pytest.approx(0.003, abs=2e-6)
    assert ours.samples.bases_s[-1] == pytest.approx((0.006, 0.006))


def test_on_report__of_paths_of_unequal_length_only_the_way_there_counts() -> None:
    ours = Reports()
    ours.empty(there_s=(0.001, 0.005), backs_s=(0.001, 0.005))
    assert ours.queueing.unequal
    ours.report(0, there_s=0.001, back_s=0.005, now=11.5)
    assert ours.samples.queues_s[-1] == pytest.approx(0.0, abs=2e-6)
    assert ours.samples.bases_s[-1] == pytest.approx((0.002, 0.002))
    ours.report(1, there_s=0.007, back_s=0.005, now=11.6)
    assert ours.samples.queues_s[-1] == pytest.approx(0.002, abs=2e-6)
    assert ours.samples.bases_s[-1] == pytest.approx((0.006, 0.002)), "the target is that of the shortest path"


def test_on_report__of_a_probe_is_no_way_there_of_data() -> None:
    """A probe is short: what is longer takes longer, without any queue."""
    ours = Reports()
    for _ in range(2):
        ours.report(0, there_s=0.0005, back_s=0.001, now=10.0, is_probe=True)
    assert not ours.samples.queues_s
    for there_s, queue_s in ((0.0008, 0.0), (0.0009, 0.0001)):
        ours.report(0, there_s=there_s, back_s=0.001, now=10.0)
        assert ours.paths[0].one_way.queue_s == pytest.approx(queue_s, abs=2e-6)
