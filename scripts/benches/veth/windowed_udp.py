"""The UDP probe: how fast Python can transfer acknowledged data over UDP on this machine; the targets are based on it.

A window, cumulative ACKs, per-packet sequence numbers in NumPy arrays, and nothing else of a protocol: an upper bound
for a datapath. One `sendmmsg` sends several bursts, each one GSO datagram of (header, payload) pairs,
gathered from two arrays; one `recvmmsg` with UDP_GRO scatters them again, so that headers land in a header ring and
payloads contiguously in a region. It checks no payload and does not recover from loss.

    python -m scripts.benches.veth.windowed_udp receive 10.255.0.1 --mtu 9000
    python -m scripts.benches.veth.windowed_udp send 10.255.0.1 7000 --mtu 9000
"""

from __future__ import annotations

import errno
import mmap
import select
import socket
import struct
import time
from contextlib import suppress
from typing import Final

import click
import numpy as np
import numpy.typing as npt

from scripts.harness.events import emit
from srd.io import syscalls
from srd.io.syscalls import IOVEC, MMSGHDR

HEADER: Final = np.dtype([("kind", "<u4"), ("context", "<u4"), ("psn", "<u8"), ("sent_us", "<u8"), ("offset", "<u8")])
ACK: Final = struct.Struct("<QQ")
WINDOW_BYTES: Final = 1_000_000
SOURCE_BYTES: Final = 4 << 20
"""Memory that is sent from, as by the SRD worker: it stays in the CPU cache."""
TARGET_BYTES: Final = 256 << 20
"""Memory that is received into."""
BUFFER_BYTES: Final = 64 << 20
BURSTS: Final = 4
"""GSO datagrams per system call."""
RING: Final = 1 << 16
"""Number of distinct PSNs: several windows."""
FIRST_MS: Final = 20_000
SILENT_MS: Final = 700
"""Time without packets after which the receiver ends."""


class BurstEndpoint:
    """Base of both ends: a socket, a region, and iovecs that pair headers with payloads."""

    def __init__(self, *, mtu: int, region_bytes: int) -> None:
        self.segment_bytes = mtu - 28
        self.payload_bytes = self.segment_bytes - HEADER.itemsize
        self.per_burst = min(65_000 // self.segment_bytes, 64)
        self.region: npt.NDArray[np.uint8] = np.frombuffer(mmap.mmap(-1, region_bytes), np.uint8)
        self.region[:] = 1  # so that no page is touched for the first time while it is measured
        self.headers = np.zeros((BURSTS, self.per_burst), HEADER)
        self.index = np.arange(BURSTS * self.per_burst, dtype=np.uint64).reshape(BURSTS, self.per_burst)
        self.iov = np.zeros((BURSTS, self.per_burst, 2), IOVEC)
        self.iov[:, :, 0]["base"] = self.headers.ctypes.data + self.index * HEADER.itemsize
        self.iov[:, :, 0]["length"] = HEADER.itemsize
        self.iov[:, :, 1]["length"] = self.payload_bytes
        self.control = np.zeros((BURSTS, 64), np.uint8)
        self.messages = np.zeros(BURSTS, MMSGHDR)
        self.messages["iov"] = self.iov.ctypes.data + np.arange(BURSTS) * self.per_burst * 2 * IOVEC.itemsize
        self.messages["iovlen"] = 2 * self.per_burst
        self.messages["control"] = self.control.ctypes.data + np.arange(BURSTS) * 64
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.setsockopt(socket.SOL_SOCKET, syscalls.SO_RCVBUFFORCE, BUFFER_BYTES)
        self.sock.setsockopt(socket.SOL_SOCKET, syscalls.SO_SNDBUFFORCE, BUFFER_BYTES)
        self.sock.settimeout(0)
        self.poll = select.poll()
        self.poll.register(self.sock, select.POLLIN)

    def set_targets(self, offset: int) -> int:
        """Point every payload at the region from `offset` on; return the next offset."""
        self.iov[:, :, 1]["base"] = self.region.ctypes.data + offset + self.index * self.payload_bytes
        size_bytes = BURSTS * self.per_burst * self.payload_bytes
        return offset + size_bytes if offset + 2 * size_bytes <= len(self.region) else 0


def receive(address: str, *, mtu: int) -> None:
    """Receive until no packets arrive for SILENT_MS."""
    end = BurstEndpoint(mtu=mtu, region_bytes=TARGET_BYTES)
    end.sock.setsockopt(socket.SOL_UDP, syscalls.UDP_GRO, 1)
    end.sock.bind((address, 0))
    emit("listening", port=end.sock.getsockname()[1])
    end.poll.poll(FIRST_MS)
    _, peer = end.sock.recvfrom(1, socket.MSG_PEEK)
    end.sock.connect(peer)
    received, expected, packets, received_bytes, offset = np.zeros(RING, bool), 0, 0, 0, 0
    started = last = time.perf_counter()
    cpu_before = time.process_time()
    while True:
        next_offset = end.set_targets(offset)
        end.messages["controllen"] = 64
        try:
            count = syscalls.recvmmsg(end.sock.fileno(), messages=end.messages.ctypes.data, count=BURSTS)
        except ConnectionRefusedError:  # an ack found that the sender has ended; what it has sent is still to be read
            continue
        if count == 0:
            if not end.poll.poll(SILENT_MS):
                break
            continue
        offset = next_offset
        lengths = end.messages["length"][:count].astype(np.int64)
        for burst, length in enumerate(lengths):
            psn = end.headers["psn"][burst, : -(-int(length) // end.segment_bytes)]
            slots = (psn & np.uint64(RING - 1)).astype(np.intp)
            if received[slots].any():
                continue
            received[slots] = True
            packets += len(psn)
            if int(psn[0]) == expected and int(psn[-1]) == expected + len(psn) - 1:
                received[slots] = False
                expected += len(psn)
        received_bytes += int(lengths.sum())
        last = time.perf_counter()
        with suppress(ConnectionRefusedError):  # likewise
            end.sock.send(ACK.pack(expected, int(end.headers["sent_us"][count - 1, 0])))
    emit(
        "received",
        bytes=received_bytes,
        packets=packets,
        seconds=last - started,
        cpu_s=time.process_time() - cpu_before,
    )


def send(address: str, *, port: int, mtu: int, seconds: float) -> None:
    """Send for `seconds`; only acknowledged data counts."""
    end = BurstEndpoint(mtu=mtu, region_bytes=SOURCE_BYTES)
    end.sock.connect((address, port))
    segmentation = struct.pack("QiiHxxxxxx", 18, socket.SOL_UDP, syscalls.UDP_SEGMENT, end.segment_bytes)
    end.control[:, : len(segmentation)] = np.frombuffer(segmentation, np.uint8)
    end.messages["controllen"] = len(segmentation)
    sent_at = np.zeros(RING)
    psn = acknowledged = offset = 0
    started, cpu_before = time.perf_counter(), time.process_time()
    while (now := time.perf_counter()) < started + seconds:
        acknowledged = _acknowledged(end.sock, acknowledged)
        window_packets = WINDOW_BYTES // end.segment_bytes
        bursts = min(BURSTS, (window_packets - (psn - acknowledged)) // end.per_burst)
        if bursts <= 0:
            end.poll.poll(200)
            continue
        end.headers["psn"][:bursts] = end.index[:bursts] + np.uint64(psn)
        end.headers["sent_us"][:bursts] = int(now * 1e6)
        next_offset = end.set_targets(offset)
        count = _send(end, bursts)
        sent_at[np.arange(psn, psn + count * end.per_burst) & (RING - 1)] = now
        psn += count * end.per_burst
        offset = next_offset if count else offset
    emit("sent", bytes=acknowledged * end.segment_bytes, seconds=seconds, cpu_s=time.process_time() - cpu_before)


def _acknowledged(sock: socket.socket, before: int) -> int:
    """Read the waiting ACKs; return how many packets are acknowledged."""
    try:
        while True:
            before = max(before, ACK.unpack(sock.recv(64))[0])
    except BlockingIOError:
        return before


def _send(end: BurstEndpoint, bursts: int) -> int:
    try:
        return syscalls.sendmmsg(end.sock.fileno(), messages=end.messages.ctypes.data, count=bursts)
    except OSError as error:
        if error.errno != errno.EAGAIN:
            raise
        return 0


@click.group()
def main() -> None:
    """One end of the probe."""


@main.command("receive")
@click.argument("address")
@click.option("--mtu", type=int, required=True)
def _receive_command(address: str, mtu: int) -> None:
    receive(address, mtu=mtu)


@main.command("send")
@click.argument("address")
@click.argument("port", type=int)
@click.option("--mtu", type=int, required=True)
@click.option("--seconds", type=float, default=3.0)
def _send_command(address: str, port: int, mtu: int, seconds: float) -> None:
    send(address, port=port, mtu=mtu, seconds=seconds)


if __name__ == "__main__":
    main()
