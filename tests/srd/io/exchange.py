"""Shared by the tests of `srd.io`: a receiving end on a loopback socket, and bursts to send to it."""

from __future__ import annotations

import random
import select
import socket
import struct
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from devmem.region import Region
from srd.io.rx import RxRing
from srd.io.rx_buffers import scratch_bytes
from srd.io.rx_memory import SLOTS, RxBatch, RxMemory
from srd.io.secure_rx import SecureRxRing
from srd.io.secure_tx import SecureTransmitter
from srd.io.socket import open_socket
from srd.io.syscalls import UDP_GRO, UDP_SEGMENT, Address
from srd.io.tx import Transmitter
from srd.proto.base.security import PacketProtection
from srd.proto.events import Extent, ReceiveResult, TargetCopy
from srd.proto.wire.data import Burst, ReceivedBurst, received_bursts_untrusted
from srd.secure.session import Session
from tests.patience import PATIENCE_S
from tests.srd.secure.sessions import CONTEXT

LOOPBACK: dict[socket.AddressFamily, Address] = {
    socket.AF_INET: ("127.0.0.1", 0),
    socket.AF_INET6: ("::1", 0, 0, 0),
}


def content(size_bytes: int, *, seed: int) -> bytes:
    return random.Random(seed).randbytes(size_bytes)


def wait_readable(file: socket.socket | int) -> None:
    ready, _, _ = select.select([file], [], [], PATIENCE_S)
    assert ready, f"nothing arrived within {PATIENCE_S} s"


class AllContexts:
    """Contexts of open peers: every context."""

    def __contains__(self, context: object) -> bool:
        return True


class Receiver:
    """A socket and a queue that receives from it into a region; keeps (holds) all that lands until `release`."""

    def __init__(
        self,
        *,
        family: socket.AddressFamily = socket.AF_INET,
        datagram_bytes: int = 8972,
        chunk_bytes: int = 512 << 10,
        chunks: int = SLOTS + 9,
        address: Address | None = None,
        contexts: Container[int] | None = None,
        protections: Mapping[int, PacketProtection] | None = None,
    ) -> None:
        """`protections`: the keys of encrypted data, by context; None: plain text of `contexts`."""
        self.socket = open_socket(address or LOOPBACK[family], family=family)
        self.region = Region(chunks * chunk_bytes + scratch_bytes(SLOTS))
        self.queue: RxMemory
        if protections is not None:
            self.queue = SecureRxRing(self.region, chunk_bytes=chunk_bytes, protections=protections)
        else:
            self.queue = RxRing(
                self.region, chunk_bytes=chunk_bytes, datagram_bytes=datagram_bytes, contexts=contexts or AllContexts()
            )
        self.pool, self.buffers = self.queue.pool, self.queue.buffers
        self.bursts: list[ReceivedBurst] = []
        self.controls: list[tuple[bytes, Address, float]] = []
        self._held: list[tuple[int, int]] = []

    @property
    def address(self) -> Address:
        address: Address = self.socket.getsockname()
        return address

    @property
    def ring(self) -> RxRing:
        """The queue, of data in plain text."""
        assert isinstance(self.queue, RxRing)
        return self.queue

    @property
    def packets(self) -> int:
        return sum(burst.count for burst in self.bursts)

    def without_gro(self) -> None:
        self.socket.setsockopt(socket.SOL_UDP, UDP_GRO, 0)

    def record(self, batch: RxBatch) -> None:
        """Hold and record a batch, as a core that keeps everything would."""
        for arrival in batch.datagrams:
            for burst in received_bursts_untrusted(arrival):
                self.queue.hold([Extent(burst.offset, burst.payload_offset, burst.payload_bytes)])
                self._held.append((burst.payload_offset, burst.payload_bytes))
                self.bursts.append(burst)
        self.controls += batch.controls

    def drain(self) -> None:
        """Receive until the socket is empty."""
        while (batch := self.queue.receive(self.socket)) is not None:
            self.record(batch)

    def receive_batch(self) -> RxBatch:
        """Receive a batch, which is not recorded."""
        wait_readable(self.socket)
        batch = self.queue.receive(self.socket)
        assert batch is not None
        return batch

    def receive(self, *, packets: int = 0, controls: int = 0) -> None:
        """Receive until so many data packets and control packets have arrived."""
        while self.packets < packets or len(self.controls) < controls:
            wait_readable(self.socket)
            self.drain()

    def payload(self, burst: ReceivedBurst) -> bytes:
        start = burst.payload_offset
        return self.region.array[start : start + burst.payload_bytes].tobytes()

    def message(self, number: int) -> bytes:
        """Reassemble a message by the offsets in its headers."""
        for burst in self.bursts:
            if burst.batch and burst.message <= number < burst.message + burst.count:
                at = burst.payload_offset + (number - burst.message) * burst.length
                return self.region.array[at : at + burst.length].tobytes()
        bursts = [burst for burst in self.bursts if burst.message == number]
        whole = bytearray(bursts[0].length)
        for burst in bursts:
            whole[burst.offset : burst.offset + burst.payload_bytes] = self.payload(burst)
        return bytes(whole)

    def release(self) -> None:
        """Give back all that is held."""
        for offset, length in self._held:
            self.pool.drop(offset, length=length)
        self._held.clear()
        self.bursts.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()
        self.pool.release()
        self.region.close()


@dataclass
class Source:
    """A socket, a region of payload, a transmitter: sends messages as bursts."""

    socket: socket.socket
    region: Region
    transmitter: Transmitter
    protection: Session | None = None
    """What its bursts are encrypted with."""
    context: int = CONTEXT
    psn: int = 0

    def burst(
        self,
        to: Address,
        *,
        size_bytes: int,
        segment_bytes: int,
        message: int = 0,
        offset: int = 0,
        length: int | None = None,
    ) -> Burst:
        """Return a burst of `size_bytes` at `offset` of a message at the region's beginning.

        The message has `length` bytes, by default no more than the burst.
        """
        count = max(-(-size_bytes // segment_bytes), 1)
        self.psn += count
        return Burst(
            address=to,
            path=3,
            path_sequence=self.psn - count,
            context=self.context,
            psn=self.psn - count,
            count=count,
            sent_us=0xCAFE0000,
            message=message,
            length=size_bytes if length is None else length,
            immediate=77,
            offset=offset,
            key=0,
            payload_offset=self.region.address + offset,
            payload_bytes=size_bytes,
            segment_bytes=segment_bytes,
            protection=self.protection,
        )

    def fill(self, payload: bytes) -> None:
        with self.region.view(0, length=len(payload)) as view:
            view[:] = payload

    def add(self, to: Address, payload: bytes, *, segment_bytes: int, message: int = 0, burst_packets: int = 64) -> int:
        """Put a message into the region and its bursts into the transmitter; return the number of packets."""
        self.fill(payload)
        before = self.psn
        step = burst_packets * segment_bytes
        for offset in range(0, max(len(payload), 1), step):
            size_bytes = min(step, len(payload) - offset)
            self.transmitter.add(
                self.burst(
                    to,
                    message=message,
                    offset=offset,
                    size_bytes=size_bytes,
                    length=len(payload),
                    segment_bytes=segment_bytes,
                )
            )
        return self.psn - before

    def transmit(self, burst: Burst) -> None:
        """Send a burst."""
        self.transmitter.add(burst)
        assert self.transmitter.flush(self.socket)

    def send(self, to: Address, payload: bytes, *, segment_bytes: int, message: int = 0) -> int:
        """Send a message that fits into one batch of bursts; return the number of packets."""
        packets = self.add(to, payload, segment_bytes=segment_bytes, message=message)
        assert self.transmitter.flush(self.socket)
        return packets

    def send_train(self, to: Address, datagrams: bytes, *, segment_bytes: int) -> None:
        """Send raw bytes as one GSO super-datagram of such segments."""
        control = [(socket.SOL_UDP, UDP_SEGMENT, struct.pack("=H", segment_bytes))]
        self.socket.sendmsg([datagrams], control, 0, to)


@contextmanager
def source(*, family: socket.AddressFamily = socket.AF_INET, protection: Session | None = None) -> Iterator[Source]:
    transmitter = Transmitter() if protection is None else SecureTransmitter()
    with Region(2 << 20, name="test-source") as region, open_socket(LOOPBACK[family], family=family) as sock:
        yield Source(sock, region, transmitter, protection)


def to_copy(copy: TargetCopy) -> ReceiveResult:
    """The receive result of a core that has one copy for its owner."""
    result = ReceiveResult()
    result.copies.append(copy)
    return result
