"""srd.config: the constructor rejects invalid settings, with value and range."""

from __future__ import annotations

from typing import Any

import pytest

from srd.config import EndpointConfig
from srd.errors import UsageError
from srd.io.rx_buffers import SUPER_BYTES
from srd.proto.config import ProtocolConfig
from srd.proto.wire.data import MAX_DATAGRAM_BYTES, MIN_DATAGRAM_BYTES

SMALL = ProtocolConfig(receive_window_bytes=1 << 20, max_message_bytes=1 << 20)


@pytest.mark.parametrize("chunk_bytes", [2 * SUPER_BYTES, 512 << 10])
@pytest.mark.parametrize("window_bytes", [1 << 20, 32 << 20])
def test_receive_region_bytes__bad_flow(window_bytes: int, chunk_bytes: int) -> None:
    """A chunk and scratch memory for each slot, a chunk for copies, and twice the window."""
    protocol = ProtocolConfig(receive_window_bytes=window_bytes, max_message_bytes=window_bytes)
    least = 17 * chunk_bytes + 16 * SUPER_BYTES + 2 * window_bytes
    with pytest.raises(UsageError, match=rf"^receive_region_bytes: {least - 1} is less than {least}"):
        EndpointConfig(receive_region_bytes=least - 1, protocol=protocol, chunk_bytes=chunk_bytes)
    EndpointConfig(receive_region_bytes=least, protocol=protocol, chunk_bytes=chunk_bytes)


REGION_BYTES = 8 << 20


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        # A slot leaves its chunk when no super-datagram fits: a chunk of twice that size is at least half used.
        *[("chunk_bytes", value, "") for value in (-1, 0, 1, SUPER_BYTES, 2 * SUPER_BYTES - 1, REGION_BYTES)],
        *[("datagram_bytes", value, "") for value in (-1, 0, 56, MIN_DATAGRAM_BYTES - 1, MAX_DATAGRAM_BYTES + 1)],
        *[("adaptive_poll_s", value, "is not between 0 and 0.1") for value in (-0.001, 0.2, float("nan"))],
        *[("close_timeout_s", value, "is no time to wait") for value in (-0.001, float("nan"), float("inf"))],
        *[("stream_window_bytes", value, "is not between") for value in ((64 << 10) - 1, (1 << 30) + 1)],
    ],
)
def test_config__out_of_range_bad_flow(name: str, value: Any, reason: str) -> None:
    with pytest.raises(UsageError, match=f"{name}: {value} {reason}"):
        EndpointConfig(receive_region_bytes=REGION_BYTES, protocol=SMALL, **{name: value})


@pytest.mark.parametrize("value", [MIN_DATAGRAM_BYTES, MAX_DATAGRAM_BYTES])
def test_datagram_bytes__ends_of_the_range(value: int) -> None:
    assert EndpointConfig(datagram_bytes=value).datagram_bytes == value
