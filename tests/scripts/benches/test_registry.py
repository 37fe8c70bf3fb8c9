"""scripts.benches.registry: all cases, with their requirements."""

from __future__ import annotations

from scripts.benches.registry import CASES

CHECKS = {
    "incast": {"max_over_ideal_ratio": "<= 1.2", "spread_ratio": "<= 1.3"},
    "incast-1000": {"max_over_ideal_ratio": "<= 1.5", "spread_ratio": "<= 2", "resent_fraction": "<= 0.1"},
    "incast-8192": {"senders_done": ">= 8192"},
    "permutation": {"median_over_ideal_ratio": "<= 1.1", "max_over_ideal_ratio": "<= 1.5"},
    "slow-path": {"capacity_fraction": ">= 0.95"},
    "loss": {"capacity_fraction_1pct": ">= 0.95", "capacity_fraction_10pct": ">= 0.85"},
    "ecn": {"queue_ratio": "<= 0.7", "capacity_fraction": ">= 0.95"},
    "blackhole": {"stall_rtts": "<= 3", "failed_requests": "<= 0", "repaired_s": "<= 1"},
    "jitter": {"spurious_fraction": "< 0.01"},
    "long-fat": {"capacity_fraction": ">= 0.9"},
    "fair": {"jain_index": ">= 0.95", "median_queue_bdp": "<= 1"},
    "messages": {"undisturbed_ratio": "<= 1.05"},
    "devmem": {
        "line_fraction": ">= 0.966",
        "bytes_copied": "<= 0",
        "classic_ratio": ">= 1.3",
        "cpu_per_gb_ratio": "<= 0.8",
    },
    "chaos": {"violations": "<= 0"},
    "clean": {
        "tcp_ratio_mtu9000": ">= 1.15",
        "tcp_ratio_mtu1500": ">= 0.9",
        "plain_tcp_ratio_mtu9000": ">= 0.9",
        "probe_ratio_mtu9000": ">= 0.75",
        "probe_ratio_mtu1500": ">= 0.9",
        "tcp_ratio_mtu9000_nogso": ">= 0.9",
        "tcp_ratio_mtu1500_nogso": ">= 0.7",
        "cpu_per_gb_ratio_mtu9000": "<= 0.95",
    },
    "latency": {
        "p50_ratio": "<= 3",
        "p50_busy_poll_ratio": "<= 1.5",
        "p50_64k_ratio": "<= 1.5",
        "p50_1m_ratio": "<= 1.3",
        "p50_4m_ratio": "<= 1.2",
        "p50_loaded_ratio": "<= 10",
        "p999_loaded_ratio": "<= 8",
        "loaded_bulk_ratio": ">= 0.85",
    },
    "sizes": {"worst_ratio": "<= 2"},
    "tail": {"p999_fabric_ratio": "<= 0.3"},
    "rate": {"messages_per_second_64b": ">= 150000"},
    "peers": {"bytes_per_peer": "<= 8192", "cost_ratio_10000": "<= 1.25"},
    "python": {"aioquic_ratio": ">= 50"},
    "secure": {
        "secure_over_plain_ratio_mtu9000": ">= 0.6",
        "secure_over_plain_ratio_mtu1500": ">= 0.4",
        "aioquic_ratio": ">= 20",
        "p50_64b_added_us": "<= 10",
    },
    "card": {
        "p50_over_inprocess_ratio": "<= 2",
        "write_over_inprocess_ratio": ">= 0.7",
        "encrypted_over_plain_ratio": ">= 0",
        "messages_per_second_64b": ">= 300000",
        "jain_index_64vf": ">= 0.95",
        "neighbour_p99_ratio": "<= 1.5",
        "host_cpu_ratio": "<= 0.1",
    },
    "placement": {"bad_over_required_ratio": "> 1.5", "assign_2500_ms": "< 250", "growth_10x_ratio": "<= 12"},
    "relay": {"packets_per_second": ">= 100000", "mean_late_us": "<= 200"},
    "lab": {"up_seconds": "< 3", "down_seconds": "< 2", "left_over": "<= 0"},
    "ecmp": {"share_p_value": ">= 0.000833333", "moved_ports": "<= 0", "counter_mismatch": "<= 0"},
    "fidelity": {"cases": ">= 20", "cases_failed": "<= 0", "seed_failed": "<= 0"},
    "tcp-fidelity": {"tcp_worst_deviation_fraction": "<= 0.15"},
    "torture": {
        "wrong_bytes": "<= 0",
        "disagreements": "<= 0",
        "hangs": "<= 0",
        "tracebacks": "<= 0",
        "leaked_bytes": "<= 0",
        "leaked_descriptors": "<= 0",
        "requests": ">= 100",
    },
    "card-fuzz": {
        "card_lives": ">= 1",
        "internal_errors": "<= 0",
        "neighbour_wrong_bytes": "<= 0",
        "neighbour_failed": "<= 0",
        "leftover_objects": "<= 0",
        "leftover_descriptors": "<= 0",
        "rss_growth_mb": "<= 16",
    },
    "hostile": {
        "transfer_ok": ">= 1",
        "crashes": "<= 0",
        "rss_growth_mb": "<= 16",
        "amplification_ratio": "<= 3",
        "honest_throughput_ratio": ">= 0.8",
    },
    "virtual": {"packet_hops_per_second": ">= 100000"},
}


def test_cases__names_and_checks() -> None:
    assert {name: {w.figure: str(w) for w in case.wanted} for name, case in CASES.items()} == CHECKS
