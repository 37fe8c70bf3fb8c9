from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from srd.proto.base.errors import UsageError
from srd.proto.config import MAX_PATHS, ProtocolConfig
from srd.proto.congestion.delay import MajorityDelay
from srd.proto.controller import Controller
from srd.proto.endpoint.admission import TURN_MEMORY_S


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


def test_config__a_datagram_must_fit_what_may_be_in_flight() -> None:
    assert ProtocolConfig(min_inflight_limit_bytes=65_507).min_inflight_limit_bytes == 65_507
    with pytest.raises(UsageError, match="min_inflight_limit_bytes: 65506 is less than 65507"):
        ProtocolConfig(min_inflight_limit_bytes=65_506)


def test_config__a_silent_peer_is_probed_often_enough_before_it_ends() -> None:
    """Three probes fit between the first timeout and the end, and the handshake has time for every size twice."""
    config = ProtocolConfig()
    assert config.unresponsive_after_s >= 3 * config.probe_after_s
    assert config.handshake_timeout_s >= 8 * config.initial_rtt_s


@pytest.mark.parametrize("field", ["max_peers", "max_peers_per_address", "max_unaccepted_peers"])
def test_config__at_least_one_peer(field: str) -> None:
    assert getattr(with_setting(field, 1), field) == 1
    with pytest.raises(UsageError, match=f"{field}: 0 is less than 1"):
        with_setting(field, 0)


def test_config__a_refused_sender_retries_before_it_counts_as_stalled() -> None:
    assert ProtocolConfig().stalled_after_s >= 4 * ProtocolConfig().probe_after_s
    assert 2 * ProtocolConfig().probe_after_s <= TURN_MEMORY_S


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
