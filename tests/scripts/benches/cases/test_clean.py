"""scripts.benches.cases.clean: ours over the faster of the two TCPs."""

from __future__ import annotations

from scripts.benches.cases.clean import ratios


def test_ratios() -> None:
    baselines = {
        "tcp_cubic": {"mtu9000_gbps": 10.0, "mtu9000_cpu_s_per_gb": 0.5},
        "tcp_bbr": {"mtu9000_gbps": 20.0, "mtu9000_cpu_s_per_gb": 1.0},
        "probe": {"mtu9000_gbps": 40.0, "mtu9000_cpu_s_per_gb": 0.25},
        "plain_tcp": {"mtu9000_gbps": 60.0, "mtu9000_cpu_s_per_gb": 0.2},
        "plain_udp": {"mtu9000_gbps": 50.0, "mtu9000_cpu_s_per_gb": 0.2},
    }
    found = ratios({"mtu9000_gbps": 30.0, "mtu9000_cpu_s_per_gb": 0.8}, baselines, link="mtu9000")
    assert found == {
        "tcp_ratio_mtu9000": 1.5,
        "cpu_per_gb_ratio_mtu9000": 0.8,
        "probe_ratio_mtu9000": 0.75,
        "plain_tcp_ratio_mtu9000": 0.5,
        "plain_udp_ratio_mtu9000": 0.6,
    }
