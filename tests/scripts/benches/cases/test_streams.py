"""scripts.benches.cases.streams: streams over messages, and over TCP."""

from __future__ import annotations

from scripts.benches.cases.streams import ratios


def test_ratios() -> None:
    ours = {"gbps": 6.0, "gbps_16": 8.0}
    assert ratios(ours, {"message": {"gbps": 12.0, "gbps_16": 10.0}, "tcp": {"gbps": 24.0, "gbps_16": 16.0}}) == {
        "stream_over_message_ratio": 0.5,
        "stream_over_message_ratio_16": 0.8,
        "stream_over_tcp_ratio": 0.25,
        "stream_over_tcp_ratio_16": 0.5,
    }
