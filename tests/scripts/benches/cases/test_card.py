"""scripts.benches.cases.card: ratios of one round."""

from __future__ import annotations

from scripts.benches.cases.card import ratios

OURS = {
    "p50_64b_us": 100.0,
    "busy_poll_p50_64b_us": 400.0,
    "bulk_gbps": 14.0,
    "encrypted_bulk_gbps": 7.0,
    "host_cpu_s_per_gb": 0.05,
    "neighbour_p99_idle_us": 100.0,
    "neighbour_p99_fair_us": 200.0,
    "neighbour_p99_rings_us": 250.0,
    "neighbour_p99_wire_us": 300.0,
}
IN_PROCESS = {"p50_64b_us": 50.0, "bulk_gbps": 20.0, "host_cpu_s_per_gb": 1.0}


def test_ratios() -> None:
    assert ratios(OURS, IN_PROCESS) == {
        "p50_over_inprocess_ratio": 2.0,
        "write_over_inprocess_ratio": 0.7,
        "encrypted_over_plain_ratio": 0.5,
        "host_cpu_ratio": 0.05,
        "neighbour_p99_ratio": 1.5,
        "neighbour_p99_over_idle_ratio": 3.0,
    }
