"""A peer made of scapy's layers, on a real socket: it opens itself properly, and then sends what a test wants."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from itertools import count
from typing import Any

from scapy.packet import Packet

from srd.contrib.scapy import (
    SRD,
    SRDAccept,
    SRDAck,
    SRDClose,
    SRDClosed,
    SRDData,
    SRDHello,
    SRDProbe,
    SRDReport,
    SRDRetry,
)
from srd.proto.wire.data import HEADER_BYTES
from tests.patience import PATIENCE_S

HOST = "127.0.0.1"
DATAGRAM_BYTES = 1400
PAYLOAD_BYTES = DATAGRAM_BYTES - HEADER_BYTES
_contexts = count(0xC0FFEE)


class Crafter:
    """Sends to one endpoint. It answers PROBEs, as else the endpoint takes it for dead; all else is kept."""

    def __init__(self, port: int) -> None:
        self.target = (HOST, port)
        self.received: list[Packet] = []
        self.context = 0  # the endpoint's
        self.own_context = next(_contexts)  # with one of an earlier peer at this port it would get that one's cookie
        self.sequences: dict[int, int] = {}  # the next one of each path
        self._sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._sock.bind((HOST, 0))
        self.address = self._sock.getsockname()
        self._changed = asyncio.Event()
        asyncio.get_running_loop().add_reader(self._sock.fileno(), self._read)

    def close(self) -> None:
        """Close the socket."""
        asyncio.get_running_loop().remove_reader(self._sock.fileno())
        self._sock.close()

    def _read(self) -> None:
        while True:
            try:
                data, _ = self._sock.recvfrom(1 << 16)
            except BlockingIOError:
                break
            packet = SRD(data)
            self.received.append(packet)
            if SRDProbe in packet:
                report = SRDReport(
                    path=packet.path, path_sequence=packet.path_sequence, sent_us=packet.sent_us, packets=1
                )
                self.send(SRD(context=self.context) / SRDAck(credit_bytes=1 << 20, credit_messages=9, reports=[report]))
        self._changed.set()

    def send(self, *packets: Packet | bytes) -> None:
        """Send datagrams as they are."""
        for packet in packets:
            self._sock.sendto(bytes(packet), self.target)

    async def wait_for(self, layer: type[Packet], **values: Any) -> Packet:
        """Return the first packet that has arrived with this layer and such fields."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for packet in self.received:
                    if layer in packet and all(
                        packet[layer].getfieldval(name) == each for name, each in values.items()
                    ):
                        return packet
                self._changed.clear()
                await self._changed.wait()

    async def open(self, **fields: Any) -> None:
        """Open a peer at the endpoint."""
        self.send(self.hello(**fields))
        retry = await self.wait_for(SRDRetry)
        self.send(self.hello(cookie=retry.cookie, **fields))
        self.context = (await self.wait_for(SRDAccept)).own_context

    async def end(self) -> None:
        """Close the peer in order."""
        self.send(SRD(context=self.context) / SRDClose(own_context=self.own_context))
        await self.wait_for(SRDClosed)

    def hello(self, **fields: Any) -> Packet:
        """Return a HELLO."""
        usual = {"own_context": self.own_context, "credit_bytes": 1 << 20, "credit_messages": 9, "window_packets": 64}
        sizes = {"max_message_bytes": 1 << 20, "datagram_bytes": DATAGRAM_BYTES, "paths": 1}
        return SRD() / SRDHello(**(usual | sizes | fields))

    def data(self, psn: int, payload: bytes = b"", *, path: int = 0, flags: int = 0, **fields: Any) -> Packet:
        """Return a data packet; unless said otherwise a whole SEND, which is the message of the PSN's number."""
        sequence = self.sequences.setdefault(path, 0)
        self.sequences[path] += 1
        prefix = SRD(context=self.context, path=path, path_sequence=sequence, flags=flags)
        return (
            prefix / SRDData(**({"psn": psn, "message": psn & 0xFFFFFFFF, "length": len(payload)} | fields)) / payload
        )

    def message(self, content: bytes, *, number: int, first_psn: int) -> list[Packet]:
        """Return the packets of a SEND."""
        cuts: Iterable[int] = range(0, len(content), PAYLOAD_BYTES)
        return [
            self.data(
                first_psn + index, content[at : at + PAYLOAD_BYTES], message=number, offset=at, length=len(content)
            )
            for index, at in enumerate(cuts)
        ]
