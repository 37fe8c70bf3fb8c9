"""scripts.benches.cases.tail: TCP's bulk flow on a lab."""

from __future__ import annotations

import os

import pytest

from netns.lab.lab import Lab
from netns.topology.model import reference
from scripts.benches.cases import tail
from srd.compare.counters import Reading

BULK_BYTES = 2_000_000
"""More than the small flow sends over any spine."""


@pytest.mark.root
@pytest.mark.parametrize("mptcp", [False, True])
@pytest.mark.long
def test_measure_tcp__bulk_uses_one_spine_or_all(monkeypatch: pytest.MonkeyPatch, *, mptcp: bool) -> None:
    monkeypatch.setattr(tail, "MARGIN_S", 1.0)
    with Lab.up(reference(name=f"test-tail-{os.getpid()}")) as lab:
        if mptcp and not tail.has_mptcp(lab):
            pytest.skip("no MPTCP")
        before = Reading.take(lab).sent_bytes
        found = tail.measure_tcp(lab, seconds=0.3, mptcp=mptcp)
        after = Reading.take(lab).sent_bytes
        sent = [after["leaf1", spine] - before["leaf1", spine] for spine in lab.topology.spines]
    assert found["bulk_mbps"] > 0
    assert found["p50_64b_us"] > 1000  # four links of 0.5 ms, and the relay may be early
    assert sum(count > BULK_BYTES for count in sent) == (4 if mptcp else 1)
