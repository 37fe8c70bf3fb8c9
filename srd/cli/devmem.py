"""`srd recv --devmem SIZE`: the region that all payload of the daemon lands in, and settings that fit its size."""

from __future__ import annotations

import click

from devmem.region import Region
from srd.config import EndpointConfig
from srd.endpoint import Endpoint
from srd.file_transfer.protocol import CHUNK_BYTES
from srd.io.rx_buffers import SUPER_BYTES, scratch_bytes
from srd.io.rx_memory import SLOTS
from srd.proto.config import ProtocolConfig
from srd.rx_queues import RxQueue

_MIN_CHUNK_BYTES = 2 * SUPER_BYTES
_FIXED_BYTES = (SLOTS + 1) * _MIN_CHUNK_BYTES + scratch_bytes(SLOTS)
MIN_BYTES = _FIXED_BYTES + 4 * CHUNK_BYTES
"""Each slot's chunk and scratch buffer, and twice a window of two messages, as chunks are pinned whole."""


class DeviceMemory:
    """A region of `size_bytes`, and settings whose receive window fits into it.

    Raises click.UsageError if the size is too small, RegionError if the memory cannot be allocated.
    """

    def __init__(self, size_bytes: int) -> None:
        if size_bytes < MIN_BYTES:
            raise click.UsageError(
                f"--devmem {size_bytes}: is less than the {MIN_BYTES} bytes that a transfer needs; give 64M or more"
            )
        default = ProtocolConfig()
        self._chunk_bytes = EndpointConfig().chunk_bytes
        if size_bytes < 4 * (SLOTS + 1) * self._chunk_bytes:
            self._chunk_bytes = _MIN_CHUNK_BYTES
        left_bytes = size_bytes - (SLOTS + 1) * self._chunk_bytes - scratch_bytes(SLOTS)
        window_bytes = min(default.receive_window_bytes, left_bytes // 2)
        protocol = ProtocolConfig(
            receive_window_bytes=window_bytes, max_message_bytes=min(default.max_message_bytes, window_bytes)
        )
        self.config = EndpointConfig(protocol=protocol)
        self.region = Region(size_bytes, name="srd-devmem")
        self._queue: RxQueue | None = None
        self._endpoint: Endpoint | None = None

    def bind(self, endpoint: Endpoint) -> None:
        """Steer all data that reaches the endpoint into the region."""
        self._endpoint = endpoint
        self._queue = endpoint.bind_rx(self.region, chunk_bytes=self._chunk_bytes)
        self._queue.steer()

    def figures(self) -> dict[str, int]:
        """Return the counters over all peers and files so far."""
        if self._queue is None or self._endpoint is None:
            return {}
        return {
            "devmem_bytes": self._queue.landed_bytes,
            "linear_bytes": self._endpoint.linear_bytes,
            "refused_packets": self._queue.refused_packets,
        }

    def close(self) -> None:
        """Release the memory. Call it after the endpoint has been closed."""
        self.region.close()
