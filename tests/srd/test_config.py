"""srd.config: what cannot work is refused when it is written down, naming value and range."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from srd.config import MIN_REGION_BYTES, EndpointConfig
from srd.errors import UsageError
from srd.io.landing import SUPER_BYTES
from srd.proto.config import ProtocolConfig
from srd.proto.wire import MAX_DATAGRAM_BYTES, MIN_DATAGRAM_BYTES

SMALL = ProtocolConfig(receive_window_bytes=1 << 20, max_message_bytes=1 << 20)


def test_defaults__are_valid_and_frozen() -> None:
    config = EndpointConfig()
    assert config.receive_region_bytes >= 2 * config.protocol.receive_window_bytes
    with pytest.raises(FrozenInstanceError):
        config.chunk_bytes = 1  # type: ignore[misc]


def test_receive_region_bytes__bad_flow() -> None:
    with pytest.raises(UsageError, match=rf"^receive_region_bytes: {MIN_REGION_BYTES - 1} is less than"):
        EndpointConfig(receive_region_bytes=MIN_REGION_BYTES - 1)
    EndpointConfig(receive_region_bytes=MIN_REGION_BYTES, protocol=SMALL)


def test_receive_region_bytes__less_than_twice_the_window_bad_flow() -> None:
    with pytest.raises(UsageError, match=r"receive_window_bytes \(33554432\); raise one or lower the other"):
        EndpointConfig(receive_region_bytes=(64 << 20) - 1)
    EndpointConfig(receive_region_bytes=64 << 20)


@pytest.mark.parametrize("value", [-1, 0, 1, SUPER_BYTES - 1, MIN_REGION_BYTES])
def test_chunk_bytes__must_hold_a_super_datagram_and_fit_the_region_bad_flow(value: int) -> None:
    """A chunk smaller than what one slot takes would let payloads run over into another's memory."""
    with pytest.raises(UsageError, match=f"chunk_bytes: {value} "):
        EndpointConfig(receive_region_bytes=MIN_REGION_BYTES, protocol=SMALL, chunk_bytes=value)


@pytest.mark.parametrize("value", [-1, 0, 56, MIN_DATAGRAM_BYTES - 1, MAX_DATAGRAM_BYTES + 1])
def test_datagram_bytes__out_of_range_bad_flow(value: int) -> None:
    with pytest.raises(UsageError, match=f"datagram_bytes: {value} "):
        EndpointConfig(datagram_bytes=value)


@pytest.mark.parametrize("value", [MIN_DATAGRAM_BYTES, MAX_DATAGRAM_BYTES])
def test_datagram_bytes__ends_of_the_range(value: int) -> None:
    assert EndpointConfig(datagram_bytes=value).datagram_bytes == value
