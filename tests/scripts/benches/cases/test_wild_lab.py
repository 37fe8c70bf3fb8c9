"""scripts.benches.cases.wild_lab: a short run of each of its parts on a lab."""

from __future__ import annotations

import pytest

from scripts.benches.cases import wild_lab
from scripts.harness.errors import BenchError

SHORT = wild_lab.SoloPath("jitter_capacity_fraction", 200_000_000, 0.01, 4_000_000)


@pytest.mark.root
@pytest.mark.long
def test_beside__counts_each_flow_at_its_own_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wild_lab, "HEAD_START_S", 0.2)
    monkeypatch.setattr(wild_lab, "MARGIN_S", 1.0)
    monkeypatch.setattr(wild_lab, "SETTLING_S", 0.5)
    monkeypatch.setattr(wild_lab, "SHARED_S", 0.5)
    found = wild_lab.beside("cubic", seed=1)
    assert found["tcp_share_cubic"] > 0
    assert found["own_share_cubic"] > 0
    assert found["tcp_share_cubic"] + found["own_share_cubic"] < 4  # 2, and what a busy machine reads late


@pytest.mark.root
@pytest.mark.long
def test_queue__is_a_difference_of_pings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wild_lab, "HEAD_START_S", 0.2)
    monkeypatch.setattr(wild_lab, "MARGIN_S", 1.0)
    monkeypatch.setattr(wild_lab, "PING_S", 0.4)
    waits_ms = wild_lab.queue(seed=1)["queue_ms_20ms_path"]
    assert waits_ms < 500  # its buffer holds 20 ms; the rest is a busy machine's


@pytest.mark.root
def test_transfer__takes_longer_than_its_bytes_on_the_link() -> None:
    rate_bps, seconds = wild_lab.our_transfer(SHORT, seed=1)
    assert 0 < rate_bps < SHORT.rate_bps
    assert seconds > 8 * SHORT.byte_count / SHORT.rate_bps


@pytest.mark.root
def test_ping__nobody_answers() -> None:
    dead = wild_lab.SoloPath("", 200_000_000, 0.01, 0, loss_percent=100)
    with wild_lab._lab(dead, seed=1) as lab, pytest.raises(BenchError, match=r"^ping: no answer"):
        wild_lab.ping_ms(lab, seconds=0.05)
