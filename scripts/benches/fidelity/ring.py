"""Records what an interface receives, with kernel timestamps, without a system call per packet: PACKET_RX_RING.

Source: Linux Documentation/networking/packet_mmap.rst (TPACKET_V2). System calls are slow under User-Mode Linux, so the
ring is large enough for the whole trial and is read when the trial is over.
"""

from __future__ import annotations

import mmap
import socket
import struct
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from scripts.harness.errors import BenchError

SOL_PACKET, PACKET_RX_RING, PACKET_STATISTICS, PACKET_VERSION = 263, 5, 6, 10
TPACKET_V2: Final = 1
ETH_P_ALL: Final = 3
TP_STATUS_USER: Final = 1

BLOCK_BYTES: Final = 1 << 18
FRAME_BYTES: Final = 256
SNAP_BYTES: Final = 128
_HEADER: Final = np.dtype([
    ("status", "<u4"), ("length", "<u4"), ("captured", "<u4"), ("mac", "<u2"), ("net", "<u2"), ("seconds", "<u4"),
    ("nanoseconds", "<u4"),
])  # fmt: skip


@dataclass(frozen=True, slots=True)
class CapturedFrames:
    """Received frames in order: `at_ns` (wall clock), `length_bytes`, `head`; shapes (n,), (n,), (n, SNAP_BYTES)."""

    at_ns: NDArray[np.int64]
    length_bytes: NDArray[np.int64]
    head: NDArray[np.uint8]

    def of_length(self, length_bytes: int) -> CapturedFrames:
        """Return the frames of one length; packets of the kernel itself (ICMP) have others."""
        chosen = self.length_bytes == length_bytes
        return CapturedFrames(self.at_ns[chosen], self.length_bytes[chosen], self.head[chosen])


class CaptureRing:
    """Records up to `packets` packets from its creation on; create it in the namespace of the interface."""

    def __init__(self, ifname: str, *, packets: int) -> None:
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        blocks = -(-packets * FRAME_BYTES // BLOCK_BYTES) + 1
        self._frames = blocks * BLOCK_BYTES // FRAME_BYTES
        self._socket.setsockopt(SOL_PACKET, PACKET_VERSION, TPACKET_V2)
        request = struct.pack("=4I", BLOCK_BYTES, blocks, FRAME_BYTES, self._frames)
        self._socket.setsockopt(SOL_PACKET, PACKET_RX_RING, request)
        self._memory = mmap.mmap(self._socket.fileno(), blocks * BLOCK_BYTES)
        self._socket.bind((ifname, ETH_P_ALL))

    def close(self) -> CapturedFrames:
        """Stop recording and return the frames. Raises BenchError if the ring was too small."""
        statistics = self._socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8)
        dropped = struct.unpack("=2I", statistics)[1]
        slots = np.frombuffer(self._memory, dtype=np.uint8).reshape(self._frames, FRAME_BYTES).copy()
        self._memory.close()
        self._socket.close()
        if dropped:
            raise BenchError(f"the recording lost {dropped} packets")
        headers = slots[:, : _HEADER.itemsize].copy().view(_HEADER).reshape(-1)
        filled = (headers["status"] & TP_STATUS_USER).astype(bool)
        headers, slots = headers[filled], slots[filled]
        at_ns = headers["seconds"].astype(np.int64) * 1_000_000_000 + headers["nanoseconds"]
        mac = int(headers["mac"][0]) if len(headers) else 0
        return CapturedFrames(at_ns, headers["length"].astype(np.int64), slots[:, mac : mac + SNAP_BYTES])
