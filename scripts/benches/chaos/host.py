"""A simulated host that transfers real payload, with faults, into a pool of limited memory, or into a target.

A datagram carries the UDP checksum (RFC 768: ones' complement, which one flipped bit always changes). The host drops
datagrams with a wrong checksum, as kernels do, and passes all others to the core.

Received payload lies in slots of one packet. A packet for which no slot is free is dropped, as by a full socket. A slot
is freed when the core does not keep its packet, or when its message is released. Payload for registered memory is
copied there (target.py) at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import numpy as np

from netns.backends.virtual.fabric import VirtualFabric
from netns.backends.virtual.virtual_link import Packet
from scripts.benches.chaos.scenario import ChaosScenario, Conditions
from scripts.benches.chaos.target import Bytes, CheckedKeys
from srd.proto.events import Extent, MessageReceived, PeerEnded
from srd.proto.wire.control import Datagram
from srd.proto.wire.data import HEADER_BYTES, Burst, GroDatagram, PacketType, write_headers
from srd.sim.host import WIRE_OVERHEAD_BYTES, SimHost, SocketAddress


@dataclass(frozen=True, slots=True)
class ChecksummedDatagram:
    data: bytes
    checksum: int


def internet_checksum(data: bytes) -> int:
    """Return the ones' complement sum (RFC 1071) of the 16-bit words of `data`."""
    words = np.frombuffer(data + b"\0" if len(data) % 2 else data, dtype=">u2")
    total = int(words.sum(dtype=np.uint64))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


class ChaosHost(SimHost):
    """One end of a chaos run. `on_delivery` gets the immediate and the bytes of each delivered message."""

    def __init__(
        self,
        fabric: VirtualFabric,
        host: str,
        *,
        scenario: ChaosScenario,
        noise: Bytes,
        on_delivery: Callable[[int, bytes], None],
    ) -> None:
        self._conditions_rng = Random(f"conditions/{scenario.seed}/{host}")  # noqa: S311 - reproducible, not secret
        keys = Random(f"keys/{scenario.seed}/{host}")  # noqa: S311 - as above
        self.keys = CheckedKeys(size_bytes=scenario.registered_bytes, readable_bytes=len(noise), rng=keys)
        super().__init__(fabric, host, config=scenario.config, seed=scenario.seed, memory=self.keys)
        self.conditions = scenario.conditions
        self.damaged = 0
        self.full = 0
        self.incarnations = 1
        self._noise = noise
        self._on_delivery = on_delivery
        self._release_s = scenario.release_s
        self._slots = scenario.pool_packets
        self._memory = np.zeros(self._slots * self.payload_bytes, np.uint8)
        self._free = list(range(self._slots))

    def _reader(self) -> Callable[[int, int], bytes]:
        return lambda offset, length: self._memory[offset : offset + length].tobytes()

    def restart(self) -> None:
        self.incarnations += 1
        self.core = self._new_core()
        self.keys.renew()
        self.peers.clear()
        self._free = list(range(self._slots))
        self.serve()

    def withdraw(self) -> None:
        """Withdraw the registrations, and create others."""
        old = self.keys.current
        self.keys.renew()
        for key in (old.key, old.read_key):
            self.core.on_deregistered(key.__eq__, now=self.now)
        self.serve()

    def end_faults(self) -> None:
        self.conditions = Conditions()

    # -- sending ------------------------------------------------------------------------------------------------

    def _send_control(self, out: Datagram) -> None:
        self._send_bytes(out.address, out.path, out.data)

    def _send_burst(self, out: Burst) -> None:
        headers = bytearray(out.count * HEADER_BYTES)
        write_headers(out, out=memoryview(headers))
        for index in range(out.count):
            start = index * out.segment_bytes
            size = min(out.segment_bytes, out.payload_bytes - start)
            payload = self._noise[out.payload_offset + start :][:size].tobytes()
            header = bytes(headers[index * HEADER_BYTES : (index + 1) * HEADER_BYTES])
            self._send_bytes(out.address, out.path, header + payload + (out.ack or b""))

    def _send_bytes(self, address: SocketAddress, path: int, data: bytes) -> None:
        datagram = ChecksummedDatagram(data, internet_checksum(data))
        self._fabric.send(self._flow(address, path), length_bytes=len(data) + WIRE_OVERHEAD_BYTES, content=datagram)

    # -- receiving ----------------------------------------------------------------------------------------------

    def _receive(self, packets: list[Packet], _now_ns: int) -> None:
        rng, conditions, batch = self._conditions_rng.random, self.conditions, list[Packet]()
        for packet in packets:
            for _ in range(1 + (rng() < conditions.duplicate)):
                if rng() < conditions.late:
                    self._fabric.at(
                        self._fabric.now_ns + round(rng() * conditions.late_s * 1e9), self._process_later(packet)
                    )
                else:
                    batch.append(packet)
        self._process(batch)

    def _process_later(self, packet: Packet) -> Callable[[int], None]:
        return lambda _: self._process([packet])

    def _process(self, packets: list[Packet]) -> None:
        now, arrivals, controls = self.now, list[GroDatagram](), list[tuple[bytes, SocketAddress, float]]()
        for packet in packets:
            data = self._impaired(packet.content.data)
            source = (packet.flow.source, packet.flow.source_port)
            if internet_checksum(data) != packet.content.checksum:
                self.damaged += 1
            elif len(data) >= HEADER_BYTES and data[1] == PacketType.DATA:
                arrivals += self._land(data, source, marked=packet.marked, now=now)
            else:
                controls.append((data, source, now))
        result = self.core.handle_packets(arrivals, controls=controls, now=now)
        for placement in result.copies:
            self.keys.put(placement.target, self._memory[placement.region_offset :][: placement.length])
        received = {arrival.payload_offset for arrival in arrivals}
        self._free_slots(received - {extent.region_offset for extent in result.kept})
        self.serve()

    def _impaired(self, data: bytes) -> bytes:
        if self._conditions_rng.random() >= self.conditions.flip:
            return data
        damaged = bytearray(data)
        damaged[self._conditions_rng.randrange(len(data))] ^= 1 << self._conditions_rng.randrange(8)
        return bytes(damaged)

    def _land(self, data: bytes, source: SocketAddress, *, marked: bool, now: float) -> list[GroDatagram]:
        """Copy the payload to a free slot; return an empty list if there is none."""
        if not self._free:
            self.full += 1
            return []
        offset, size = self._free.pop() * self.payload_bytes, len(data) - HEADER_BYTES
        self._memory[offset : offset + size] = np.frombuffer(data, np.uint8, offset=HEADER_BYTES)
        return [
            GroDatagram(
                headers=memoryview(data),
                count=1,
                payload_offset=offset,
                payload_bytes=size,
                segment_bytes=size,
                address=source,
                received_at=now,
                ecn_ce=marked,
            )
        ]

    def _deliver(self, message: MessageReceived, *, now: float) -> None:  # noqa: ARG002 - release is delayed
        self._on_delivery(
            message.immediate or 0,  # every message has an immediate
            b"".join(self._memory[extent.region_offset :][: extent.length].tobytes() for extent in message.extents),
        )
        incarnation = self.incarnations

        def release(_now_ns: int) -> None:
            if incarnation == self.incarnations:
                self.free_extents(message.extents)
                self.core.release(message.peer, size_bytes=message.length, messages=1, now=self.now)
                self.serve()

        self._fabric.at(self._fabric.now_ns + round(self._conditions_rng.random() * self._release_s * 1e9), release)

    def on_peer_ended(self, ended: PeerEnded) -> None:
        self.free_extents(ended.released)
        self.peers = {address: peer for address, peer in self.peers.items() if peer != ended.peer}

    def free_extents(self, extents: tuple[Extent, ...]) -> None:
        self._free_slots({extent.region_offset for extent in extents})

    def _free_slots(self, offsets: set[int]) -> None:
        self._free += sorted(offset // self.payload_bytes for offset in offsets)
