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
import numpy.typing as npt

from devmem.region import Region
from srd.io import libc
from srd.io.landing import SUPER_BYTES, Landing
from srd.io.libc import IOVEC, MMSGHDR, SOCKADDR_BYTES, Address
from srd.proto.wire import HEADER, HEADER_BYTES, MAX_BURST_PACKETS, VERSION, Arrivals, PacketType

SLOTS = 16
"""Messages of one system call: with GRO 1 MiB, without it enough to pay for the call."""

# Control messages come in this order (net/ipv4/udp.c, udp_recvmsg): a receive timestamp, always, as we ask for it; then
# the segment size, if the datagram is one of several.
CONTROL = np.dtype(
    [
        ("time_length", "<u8"),
        ("time_level", "<i4"),
        ("time_type", "<i4"),
        ("seconds", "<i8"),
        ("nanoseconds", "<i8"),
        ("gro_length", "<u8"),
        ("gro_level", "<i4"),
        ("gro_type", "<i4"),
        ("gro_size", "<i4"),
        ("padding", "<i4"),
        ("room", "u1", 40),
    ]
)
_WITH_GRO_BYTES = 56
_DATA_PREFIX = bytes([VERSION, PacketType.DATA])


@dataclass(slots=True)
class Batch:
    """What one system call brought."""

    arrivals: Arrivals | None = None
    controls: list[tuple[bytes, Address, float]] = field(default_factory=list)
    copied: list[Arrivals] = field(default_factory=list)
    """Data that did not fit and was copied: one packet each."""
    datagrams: int = 0
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
        self._iov = np.zeros((SLOTS, MAX_BURST_PACKETS, 2), IOVEC)
        self._names = np.zeros((SLOTS, SOCKADDR_BYTES), np.uint8)
        self._control = np.zeros(SLOTS, CONTROL)
        self._messages = np.zeros(SLOTS, MMSGHDR)
        self._index = np.arange(MAX_BURST_PACKETS, dtype=np.int64)
        rows = np.arange(SLOTS, dtype=np.uint64)
        first = self._headers.ctypes.data + rows[:, np.newaxis] * np.uint64(MAX_BURST_PACKETS * HEADER_BYTES)
        self._iov[:, :, 0]["base"] = first + self._index.astype(np.uint64) * np.uint64(HEADER_BYTES)
        self._iov[:, :, 0]["length"] = HEADER_BYTES
        self._messages["iov"] = self._iov.ctypes.data + rows * np.uint64(MAX_BURST_PACKETS * 2 * IOVEC.itemsize)
        self._messages["name"] = self._names.ctypes.data + rows * np.uint64(SOCKADDR_BYTES)
        self._messages["control"] = self._control.ctypes.data + rows * np.uint64(CONTROL.itemsize)
        self._addresses: dict[bytes, Address] = {}
        self._used = np.zeros(SLOTS + 1, np.int64)  # bytes that the last batch took of each slot's place
        self._wanted_bytes = 0  # size of the super-datagrams that did not fit
        self._expect(datagram_bytes)

    # -- memory -------------------------------------------------------------------------------------------------

    def _expect(self, datagram_bytes: int) -> None:
        """Lay the iovecs out for datagrams of this size."""
        self.payload_bytes = datagram_bytes - HEADER_BYTES
        pairs = min(MAX_BURST_PACKETS, -(-SUPER_BYTES // datagram_bytes))
        self._messages["iovlen"] = 2 * pairs
        self._iov[:, :, 1]["length"] = self.payload_bytes
        self._aim(list(range(SLOTS)))

    def _aim(self, slots: list[int]) -> None:
        """Point the payloads of slots at their cursors, back to back."""
        base = np.uint64(self._region.address) + self._landing.cursors[slots].astype(np.uint64)
        step = self._index.astype(np.uint64) * np.uint64(self.payload_bytes)
        self._iov["base"][slots, :, 1] = base[:, np.newaxis] + step

    def _prepare(self) -> None:
        """Make ready for a batch: what was kept of the last one is held by now."""
        moved = self._landing.advance(self._used)
        self._used[:] = 0
        moved += self._landing.refill()
        self._landing.settle_copies()
        if self._wanted_bytes:
            self._expect(self._wanted_bytes)
            self._wanted_bytes = 0
        elif moved:
            self._aim([slot for slot in moved if slot < SLOTS])
        self._messages["namelen"] = SOCKADDR_BYTES
        self._messages["controllen"] = CONTROL.itemsize

    # -- receiving ----------------------------------------------------------------------------------------------

    def receive(self, sock: socket.socket) -> Batch | None:
        """Receive one batch; None when there is none. Raises OSError (an ICMP error among them)."""
        self._prepare()
        count = libc.recvmmsg(sock.fileno(), messages=self._messages.ctypes.data, count=SLOTS)
        if count == 0:
            return None
        messages, control = self._messages[:count], self._control[:count]
        lengths = messages["length"].astype(np.int64)
        in_series = (messages["controllen"] >= _WITH_GRO_BYTES) & (control["gro_type"] == libc.UDP_GRO)
        sizes = np.where(in_series, control["gro_size"], lengths)
        expected = HEADER_BYTES + self.payload_bytes
        fits = (sizes == expected) | ((sizes == lengths) & (lengths < expected))
        first = self._headers[:count, 0]
        is_data = (first["version"] == VERSION) & (first["type"] == PacketType.DATA) & (lengths >= HEADER_BYTES)
        straight = is_data & fits
        addresses = [self._address(slot) for slot in range(count)]
        received_at = self._received_at(control)
        batch = Batch(datagrams=int((-(-lengths // np.maximum(sizes, 1))).sum()), full=count == SLOTS)
        if straight.any():
            batch.arrivals = self._straight(np.flatnonzero(straight), lengths, sizes, received_at)
            batch.arrivals.addresses = addresses
        for slot in np.flatnonzero(~straight).tolist():
            whole = self._gather(slot, int(lengths[slot]))
            self._detour(batch, whole, int(sizes[slot]), addresses[slot], float(received_at[slot]))
        return batch

    @staticmethod
    def _received_at(control: npt.NDArray[np.void]) -> npt.NDArray[np.float64]:
        """Return the kernel's times of receipt, on the monotonic clock, not in the future."""
        ages = time.time() - (control["seconds"] + control["nanoseconds"] * 1e-9)
        received_at: npt.NDArray[np.float64] = time.monotonic() - np.maximum(ages, 0.0)
        return received_at

    def _address(self, slot: int) -> Address:
        raw = self._names[slot].tobytes()[: int(self._messages["namelen"][slot])]
        address = self._addresses.get(raw)
        if address is None:
            if len(self._addresses) >= 1 << 16:
                self._addresses.clear()
            address = self._addresses[raw] = libc.unpack_address(raw)
        return address

    def _straight(
        self,
        slots: npt.NDArray[np.intp],
        lengths: npt.NDArray[np.int64],
        sizes: npt.NDArray[np.int64],
        received_at: npt.NDArray[np.float64],
    ) -> Arrivals:
        """Describe payloads that lie where they belong; those in a spare place are dropped."""
        kept = slots[~self._landing.spare[slots]]
        self.dropped_for_memory += len(slots) - len(kept)
        counts = -(-lengths[kept] // sizes[kept])
        index = self._index[: counts.max(initial=0)]
        present = index < counts[:, np.newaxis]  # (slots, segments): which segments there are
        # The last datagram of a series may be shorter than the others, even than a header: then it is dropped.
        payloads = np.full(present.shape, self.payload_bytes, np.int64)
        tails = lengths[kept] - (counts - 1) * sizes[kept] - HEADER_BYTES
        payloads[np.arange(len(kept)), counts - 1] = tails
        present &= payloads >= 0
        self._used[kept] = (counts - 1) * self.payload_bytes + np.maximum(tails, 0)
        slot_of, segment_of = np.nonzero(present)
        return Arrivals(
            headers=self._headers[kept[slot_of], segment_of],
            payload_offsets=self._landing.cursors[kept[slot_of]] + segment_of * self.payload_bytes,
            payload_lengths=payloads[present],
            sources=kept[slot_of],
            addresses=[],
            received_at=received_at[kept[slot_of]],
        )

    # -- the slower path ----------------------------------------------------------------------------------------

    def _gather(self, slot: int, length: int) -> bytes:
        """Put a message together again from where it was scattered."""
        pairs = -(-length // (HEADER_BYTES + self.payload_bytes))
        headers = self._headers[slot, :pairs].tobytes()
        start = int(self._landing.cursors[slot])
        payloads = self._region.array[start : start + pairs * self.payload_bytes].tobytes()
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
                if len(whole) > size:
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
        batch.copied.append(
            Arrivals(
                headers=np.frombuffer(piece[:HEADER_BYTES], HEADER),
                payload_offsets=np.array([offset], np.int64),
                payload_lengths=np.array([len(payload)], np.int64),
                sources=np.zeros(1, np.intp),
                addresses=[address],
                received_at=np.array([received_at]),
            )
        )
