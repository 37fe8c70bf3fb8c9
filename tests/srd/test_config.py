"""srd.config: the constructor rejects invalid settings, with value and range."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from srd.config import EndpointConfig
from srd.errors import UsageError
from srd.io.rx_buffers import SUPER_BYTES
from srd.proto.config import ProtocolConfig
from srd.proto.wire.data import MAX_DATAGRAM_BYTES, MIN_DATAGRAM_BYTES

SMALL = ProtocolConfig(receive_window_bytes=1 << 20, max_message_bytes=1 << 20)


def test_defaults__are_valid_and_frozen() -> None:
    config = EndpointConfig()
    assert config.receive_region_bytes >= 2 * config.protocol.receive_window_bytes
    with pytest.raises(FrozenInstanceError):
        config.chunk_bytes = 1  # type: ignore[misc]


@pytest.mark.parametrize("chunk_bytes", [2 * SUPER_BYTES, 512 << 10])
@pytest.mark.parametrize("window_bytes", [1 << 20, 32 << 20])
def test_receive_region_bytes__bad_flow(window_bytes: int, chunk_bytes: int) -> None:
    """A chunk and scratch memory for each slot, a chunk for copies, and twice the window."""
    protocol = ProtocolConfig(receive_window_bytes=window_bytes, max_message_bytes=window_bytes)
    least = 17 * chunk_bytes + 16 * SUPER_BYTES + 2 * window_bytes
    with pytest.raises(UsageError, match=rf"^receive_region_bytes: {least - 1} is less than {least}"):
        EndpointConfig(receive_region_bytes=least - 1, protocol=protocol, chunk_bytes=chunk_bytes)
    EndpointConfig(receive_region_bytes=least, protocol=protocol, chunk_bytes=chunk_bytes)


@pytest.mark.parametrize("value", [-1, 0, 1, SUPER_BYTES, 2 * SUPER_BYTES - 1, 8 << 20])
def test_chunk_bytes__must_be_half_used_and_fit_the_region_bad_flow(value: int) -> None:
    """A slot leaves its chunk when no super-datagram fits: a chunk of twice that size is at least half used."""
    with pytest.raises(UsageError, match=f"chunk_bytes: {value} "):
        EndpointConfig(receive_region_bytes=8 << 20, protocol=SMALL, chunk_bytes=value)


@pytest.mark.parametrize("value", [-1, 0, 56, MIN_DATAGRAM_BYTES - 1, MAX_DATAGRAM_BYTES + 1])
def test_datagram_bytes__out_of_range_bad_flow(value: int) -> None:
    with pytest.raises(UsageError, match=f"datagram_bytes: {value} "):
        EndpointConfig(datagram_bytes=value)


@pytest.mark.parametrize("value", [MIN_DATAGRAM_BYTES, MAX_DATAGRAM_BYTES])
def test_datagram_bytes__ends_of_the_range(value: int) -> None:
    assert EndpointConfig(datagram_bytes=value).datagram_bytes == value


@pytest.mark.parametrize("value", [-0.001, 0.2, float("nan")])
def test_adaptive_poll_s__bad_flow(value: float) -> None:
    with pytest.raises(UsageError, match=f"adaptive_poll_s: {value} is not between 0 and 0.1"):
        EndpointConfig(adaptive_poll_s=value)


@pytest.mark.parametrize("value", [-0.001, float("nan"), float("inf")])
def test_close_timeout_s__bad_flow(value: float) -> None:
    with pytest.raises(UsageError, match=f"close_timeout_s: {value} is no time to wait"):
        EndpointConfig(close_timeout_s=value)


@pytest.mark.parametrize("value", [(64 << 10) - 1, (1 << 30) + 1])
def test_stream_window_bytes__bad_flow(value: int) -> None:
    with pytest.raises(UsageError, match=f"stream_window_bytes: {value} is not between"):
        EndpointConfig(stream_window_bytes=value)
