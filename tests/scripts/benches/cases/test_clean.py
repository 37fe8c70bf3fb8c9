"""scripts.benches.cases.clean: ours over the faster of the two TCPs."""

from __future__ import annotations

from scripts.benches.cases.clean import ratios


def test_ratios() -> None:
    baselines = {
        "tcp_cubic": {"mtu9000_gbps": 10.0, "mtu9000_cpu_s_per_gb": 0.5},
        "tcp_bbr": {"mtu9000_gbps": 20.0, "mtu9000_cpu_s_per_gb": 1.0},
        "probe": {"mtu9000_gbps": 40.0, "mtu9000_cpu_s_per_gb": 0.25},
    }
    found = ratios({"mtu9000_gbps": 30.0, "mtu9000_cpu_s_per_gb": 0.8}, baselines, link="mtu9000")
    assert found == {"tcp_ratio_mtu9000": 1.5, "probe_ratio_mtu9000": 0.75, "cpu_per_gb_ratio_mtu9000": 0.8}
