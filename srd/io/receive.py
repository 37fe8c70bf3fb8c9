"""Receiving: the kernel scatters headers into one array and payloads back to back into a region.

Theory of operation. A slot is one message of `recvmmsg`: its iovec alternates header and payload, as many pairs as a
GRO super-datagram may have segments. With segments of the expected size (header and `payload_bytes`) the headers land
in the slot's row of the header array, and the payloads contiguous in the slot's chunk of the pool. That is header-data
split in software, and the only path that touches no byte of payload.

What does not fit takes the slower path, which is right: a super-datagram of another size is put together, cut, and its
payloads are copied (and counted); control packets become bytes. A size that keeps coming becomes the expected one.

`landing` says where each slot's payload goes, and what happens when the pool is empty.
"""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass, field

import numpy as np

from devmem.region import Region
from srd.io import libc
from srd.io.landing import SUPER_BYTES, Landing
from srd.io.libc import IOVEC, MMSGHDR, SOCKADDR_BYTES, Address
from srd.proto.wire import HEADER, HEADER_BYTES, MAX_BURST_PACKETS, VERSION, Arrival, PacketType, words_of

SLOTS = 16
"""Messages of one system call: with GRO 1 MiB, without it enough to pay for the call."""

MIN_EXPECTED_BYTES = SUPER_BYTES // MAX_BURST_PACKETS
"""Least datagram size that slots are laid out for: with smaller ones a slot would not hold a whole super-datagram."""

# Control messages come in this order (net/ipv4/udp.c, udp_recvmsg): a receive timestamp, always, as we ask for it; then
# the segment size, if the datagram is a series.
CONTROL = np.dtype(
    [
        ("time_header", "u1", 16),
        ("seconds", "<i8"),
        ("nanoseconds", "<i8"),
        ("gro_header", "u1", 16),
        ("gro_size", "<i4"),
        ("room", "u1", 44),
    ]
)
_WITH_GRO_BYTES = 56
_MSG_TRUNC = int(socket.MSG_TRUNC)  # a plain integer: an enum's & costs ten times as much
_DATA_PREFIX = bytes([VERSION, PacketType.DATA])
_DATA_KIND = VERSION << 8 | PacketType.DATA


@dataclass(slots=True)
class Batch:
    """What one system call brought."""

    arrivals: list[Arrival] = field(default_factory=list)
    controls: list[tuple[bytes, Address, float]] = field(default_factory=list)
    full: bool = False
    """Whether every slot was filled, so that more may be waiting."""


class ReceiveQueue:
    """Receives for one endpoint's sockets into a region.

    `receive` a batch, give it to the core, hold what the core kept in the pool; only then `receive` again.
    """

    def __init__(self, region: Region, landing: Landing, *, datagram_bytes: int) -> None:
        self.bytes_copied = 0
        self.dropped_for_memory = 0
        self._region = region
        self._landing = landing
        self._headers = np.zeros((SLOTS, MAX_BURST_PACKETS), HEADER)
        self._words = list(words_of(self._headers))
        self._iov = np.zeros((SLOTS, MAX_BURST_PACKETS, 2), IOVEC)
        self._names = np.zeros((SLOTS, SOCKADDR_BYTES), np.uint8)
        self._control = np.zeros(SLOTS, CONTROL)
        self._messages = np.zeros(SLOTS, MMSGHDR)
        self._pointer = self._messages.ctypes.data
        rows = np.arange(SLOTS, dtype=np.uint64)
        self._index = np.arange(MAX_BURST_PACKETS, dtype=np.uint64)
        first = self._headers.ctypes.data + rows[:, np.newaxis] * np.uint64(MAX_BURST_PACKETS * HEADER_BYTES)
        self._iov[:, :, 0]["base"] = first + self._index * np.uint64(HEADER_BYTES)
        self._iov[:, :, 0]["length"] = HEADER_BYTES
        self._messages["iov"] = self._iov.ctypes.data + rows * np.uint64(MAX_BURST_PACKETS * 2 * IOVEC.itemsize)
        self._messages["name"] = self._names.ctypes.data + rows * np.uint64(SOCKADDR_BYTES)
        self._messages["control"] = self._control.ctypes.data + rows * np.uint64(CONTROL.itemsize)
        # Columns as plain arrays: a field of a structured array costs more to look up than to read.
        self._lengths, self._name_lengths = self._messages["length"], self._messages["namelen"]
        self._control_lengths, self._sizes = self._messages["controllen"], self._control["gro_size"]
        self._flags = self._messages["flags"]
        self._seconds, self._nanoseconds = self._control["seconds"], self._control["nanoseconds"]
        self._addresses: dict[bytes, Address] = {}
        self._wanted_bytes = 0  # size of the datagrams of series that did not fit
        self._expect(datagram_bytes)

    # -- memory -------------------------------------------------------------------------------------------------

    def _expect(self, datagram_bytes: int) -> None:
        """Lay the iovecs out for datagrams of this size."""
        self.payload_bytes = datagram_bytes - HEADER_BYTES
        pairs = min(MAX_BURST_PACKETS, -(-SUPER_BYTES // datagram_bytes))
        self._messages["iovlen"] = 2 * pairs
        self._iov[:, :, 1]["length"] = self.payload_bytes
        self._steps = self._index[:pairs] * np.uint64(self.payload_bytes)
        self._bases = list(self._iov["base"][:, :pairs, 1])
        for slot in range(SLOTS):
            self._aim(slot)

    def _aim(self, slot: int) -> None:
        """Point the payloads of a slot at its place, back to back."""
        np.add(self._steps, np.uint64(self._region.address + self._landing.cursors[slot]), out=self._bases[slot])

    def _prepare(self) -> None:
        """Make ready for a batch: what was kept of the last one is held by now."""
        for slot in self._landing.settle():
            self._aim(slot)
        if self._wanted_bytes:
            self._expect(self._wanted_bytes)
            self._wanted_bytes = 0
        self._name_lengths.fill(SOCKADDR_BYTES)
        self._control_lengths.fill(CONTROL.itemsize)

    # -- receiving ----------------------------------------------------------------------------------------------

    def receive(self, sock: socket.socket) -> Batch | None:
        """Receive one batch; None when there is none. Raises OSError (an ICMP error among them)."""
        self._prepare()
        count = libc.recvmmsg(sock.fileno(), messages=self._pointer, count=SLOTS)
        if count == 0:
            return None
        batch = Batch(full=count == SLOTS)
        # The kernel's times are on the wall clock; the core's on the monotonic one.
        offset = time.monotonic() - time.time()
        lengths = self._lengths[:count].tolist()
        flags = self._flags[:count].tolist()
        control_lengths = self._control_lengths[:count].tolist()
        for slot, length in enumerate(lengths):
            if flags[slot] & _MSG_TRUNC:
                self.dropped_for_memory += 1  # longer than its slot: what is left of it is no datagram
                continue
            size = int(self._sizes[slot]) if control_lengths[slot] >= _WITH_GRO_BYTES else length
            received_at = float(self._seconds[slot]) + float(self._nanoseconds[slot]) * 1e-9 + offset
            self._take(batch, slot, length, size, received_at)
        return batch

    def _take(self, batch: Batch, slot: int, length: int, size: int, received_at: float) -> None:
        """Describe what landed in a slot: `length` bytes, in datagrams of `size` (the last may be shorter)."""
        address = self._address(slot)
        expected = HEADER_BYTES + self.payload_bytes
        is_data = length >= HEADER_BYTES and int(self._words[slot][0, 0]) >> 48 == _DATA_KIND
        if not (is_data and (size == expected or size == length < expected)):
            self._detour(batch, self._gather(slot, length), size, address, received_at)
        elif self._landing.is_spare(slot):
            self.dropped_for_memory += 1
        else:
            count = -(-length // size)
            if length - (count - 1) * size < HEADER_BYTES:  # the last of the series is shorter than a header
                count -= 1
                length = count * size
            payload_bytes = length - count * HEADER_BYTES
            batch.arrivals.append(
                Arrival(
                    words=self._words[slot],
                    count=count,
                    payload_offset=self._landing.take(slot, payload_bytes),
                    payload_bytes=payload_bytes,
                    segment_bytes=size - HEADER_BYTES,
                    address=address,
                    received_at=received_at,
                )
            )

    def _address(self, slot: int) -> Address:
        raw = self._names[slot].tobytes()
        address = self._addresses.get(raw)
        if address is None:
            if len(self._addresses) >= 1 << 16:
                self._addresses.clear()
            address = self._addresses[raw] = libc.unpack_address(raw)
        return address

    # -- the slower path ----------------------------------------------------------------------------------------

    def _gather(self, slot: int, length: int) -> bytes:
        """Put a message together again from where it was scattered."""
        pairs = -(-length // (HEADER_BYTES + self.payload_bytes))
        headers = self._headers[slot, :pairs].tobytes()
        start = self._landing.cursors[slot]
        payloads = self._region.array[start : start + min(length, pairs * self.payload_bytes)].tobytes()
        if pairs == 1:
            return (headers + payloads)[:length]
        pieces = []
        for pair in range(pairs):
            pieces.append(headers[pair * HEADER_BYTES : (pair + 1) * HEADER_BYTES])
            pieces.append(payloads[pair * self.payload_bytes : (pair + 1) * self.payload_bytes])
        return b"".join(pieces)[:length]

    def _detour(self, batch: Batch, whole: bytes, size: int, address: Address, received_at: float) -> None:
        """Cut a message where its datagrams end; copy the payloads of those that are data."""
        for start in range(0, len(whole), max(size, 1)):
            piece = whole[start : start + size]
            if len(piece) >= HEADER_BYTES and piece[:2] == _DATA_PREFIX:
                self._copy(batch, piece, address, received_at)
                if len(whole) > size >= MIN_EXPECTED_BYTES:
                    self._wanted_bytes = size
            else:
                batch.controls.append((piece, address, received_at))

    def _copy(self, batch: Batch, piece: bytes, address: Address, received_at: float) -> None:
        payload = piece[HEADER_BYTES:]
        offset = self._landing.copy(payload)
        if offset is None:
            self.dropped_for_memory += 1
            return
        self.bytes_copied += len(payload)
        batch.arrivals.append(
            Arrival(
                words=words_of(np.frombuffer(piece[:HEADER_BYTES], HEADER)),
                count=1,
                payload_offset=offset,
                payload_bytes=len(payload),
                segment_bytes=len(payload),
                address=address,
                received_at=received_at,
            )
        )
