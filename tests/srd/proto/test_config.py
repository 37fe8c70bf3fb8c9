from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from srd.proto.base.errors import UsageError
from srd.proto.config import MAX_PATHS, ProtocolConfig
from srd.proto.congestion.delay import MajorityDelay
from srd.proto.controller import Controller


def with_setting(field: str, value: int) -> ProtocolConfig:
    return replace(ProtocolConfig(), **{field: value})  # type: ignore[arg-type]  # only integers are set here


@pytest.mark.parametrize(
    ("field", "low", "high"),
    [("paths", 1, MAX_PATHS), ("window_packets", 64, 65_536), ("max_message_bytes", 1, 32 << 20)],
)
def test_config__range(field: str, low: int, high: int) -> None:
    for value in (low, high):
        assert getattr(with_setting(field, value), field) == value
    for value in (low - 1, high + 1):
        with pytest.raises(UsageError, match=f"{field}: {value} is not between {low} and"):
            with_setting(field, value)


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"receive_window_bytes": 1 << 20}, r"max_message_bytes: 16777216 is not between 1 and 1048576 \(the receive"),
        (
            {"max_message_bytes": 1 << 32, "receive_window_bytes": 1 << 34},
            "max_message_bytes: 4294967296 is not between",
        ),
        ({"receive_window_messages": 0}, "receive_window_messages: 0 is not between 1 and"),
        ({"receive_window_messages": 1 << 32}, "receive_window_messages: 4294967296 is not between 1 and"),
        ({"reassembly_timeout_s": 0.0}, "reassembly_timeout_s: 0.0 is not more than 0"),
        ({"stalled_after_s": 0.0}, "stalled_after_s: 0.0 is not more than 0"),
        ({"min_inflight_limit_bytes": 65_506}, "min_inflight_limit_bytes: 65506 is less than 65507"),
        ({"max_peers": 0}, "max_peers: 0 is less than 1"),
        ({"max_peers_per_address": 0}, "max_peers_per_address: 0 is less than 1"),
        ({"max_unaccepted_peers": 0}, "max_unaccepted_peers: 0 is less than 1"),
        ({"rnr_retry": 8}, "rnr_retry: 8 is not"),
        ({"rnr_retry": -1}, "rnr_retry: -1 is not"),
        ({"rnr_timer_s": 0.0}, "rnr_timer_s: 0.0 is not"),
        ({"request_timeout_s": 0.0}, "request_timeout_s: 0.0 is not"),
    ],
    ids=str,
)
def test_config__bad_values(settings: dict[str, Any], error: str) -> None:
    with pytest.raises(UsageError, match=error):
        ProtocolConfig(**settings)


class Lacking(Controller):
    def __init__(self, _config: ProtocolConfig, *, packet_bytes: int) -> None:
        self.window_bytes = 10.0 * packet_bytes


class Whole(Lacking):
    """Has all methods; a compiled build's own controller cannot be a base class."""

    pacing_gain = 1.0

    def nothing(self, **_: float) -> None:
        pass

    on_ack = on_sample = on_loss = on_all_paths_timeout = nothing  # never called

    def on_spurious_loss(self) -> None:
        pass


class Unmakeable(Whole):
    def __init__(self, wrong: int) -> None:
        raise AssertionError(wrong)


@pytest.mark.parametrize(
    ("controller", "why"),
    [
        ("MajorityDelay", "'MajorityDelay' is no class"),
        (int, "int is no subclass"),
        (Lacking, "Lacking lacks on_ack, on_sample, on_loss, on_all_paths_timeout, on_spurious_loss, pacing_gain$"),
        (Unmakeable, "Unmakeable cannot be made: .*packet_bytes"),
    ],
)
def test_config__a_controller_that_is_none_bad_flow(controller: Any, why: str) -> None:
    with pytest.raises(UsageError, match=f"^controller: {why}"):
        ProtocolConfig(controller=controller)


def test_config__a_controllers_class_or_a_function() -> None:
    assert ProtocolConfig(controller=MajorityDelay).controller is MajorityDelay
    assert ProtocolConfig(controller=Whole).controller is Whole
    ProtocolConfig(controller=lambda config, *, packet_bytes: MajorityDelay(config, packet_bytes=packet_bytes))
