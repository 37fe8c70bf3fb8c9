from __future__ import annotations

import pytest

from srd.proto.congestion.rate import DeliveryRate


def test_delivery_rate__is_bytes_over_time() -> None:
    rate = DeliveryRate()
    for step in range(101):
        rate.on_ack(now=10.0 + step * 0.001, acked_bytes=1000, span_s=0.01)
    assert rate.max_bytes_per_s == pytest.approx(1e6, rel=0.1)
    assert rate.last_span_bytes == pytest.approx(10_000, rel=0.1)


def test_delivery_rate__drops_samples_after_ten_spans() -> None:
    rate = DeliveryRate()
    for step in range(200):
        rate.on_ack(now=10.0 + step * 0.01, acked_bytes=10_000 if step < 100 else 100, span_s=0.01)
    assert rate.max_bytes_per_s == pytest.approx(1e4, rel=0.1)
