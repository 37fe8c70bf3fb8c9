"""The same transfer with aioquic: QUIC in Python, always encrypted, with one stream per turn.

As in bulk.py the measured time ends with the confirmation that everything has arrived; after that every byte is
compared. The datagrams are as long as the link allows (`max_datagram_size`), which is fastest for aioquic; its windows
hold a turn.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import numpy as np
from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.asyncio.server import serve
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated, QuicEvent, StreamDataReceived

from netns.base.output import emit
from scripts.harness.certificate import self_signed
from scripts.harness.errors import BenchError
from srd.io import syscalls
from srd.io.socket import BUFFER_BYTES

TURN_BYTES: Final = 8 << 20
"""Bytes per turn, smaller than SRD's as aioquic is slower."""
ALPN: Final = ["bench"]
IP_UDP_BYTES: Final = 28
_SEED: Final = 1
_ARRIVED: Final = b"a"
_INTACT: Final = b"i"
_DAMAGED: Final = b"d"


def content() -> bytes:
    return np.random.default_rng(_SEED).bytes(TURN_BYTES)


def configuration(*, is_client: bool, mtu: int) -> QuicConfiguration:
    return QuicConfiguration(
        is_client=is_client,
        alpn_protocols=ALPN,
        max_datagram_size=mtu - IP_UDP_BYTES,
        max_data=4 * TURN_BYTES,
        max_stream_data=4 * TURN_BYTES,
        verify_mode=ssl.CERT_NONE,
    )


class Receiving(QuicConnectionProtocol):
    """The server: a stream is a turn."""

    expected: bytes = b""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.ended = asyncio.Event()
        self._pieces: list[bytes] = []

    def quic_event_received(self, event: QuicEvent) -> None:
        """Collect data; at the end of the stream first confirm it, then report whether it is right."""
        if isinstance(event, StreamDataReceived):
            self._pieces.append(event.data)
            if event.end_stream:
                self._quic.send_stream_data(event.stream_id, _ARRIVED)
                self.transmit()
                intact = b"".join(self._pieces) == self.expected
                self._pieces.clear()
                self._quic.send_stream_data(event.stream_id, _INTACT if intact else _DAMAGED, end_stream=True)
                self.transmit()
        elif isinstance(event, ConnectionTerminated):
            self.ended.set()


def receive(*, host: str, mtu: int) -> None:
    """Serve one connection until it ends. On uvloop aioquic is slower, and more so turn by turn."""
    asyncio.run(_receive(host, mtu=mtu))


async def _receive(host: str, *, mtu: int) -> None:
    Receiving.expected = content()
    opened: asyncio.Future[Receiving] = asyncio.get_running_loop().create_future()

    def make(*args: Any, **kwargs: Any) -> Receiving:
        opened.set_result(protocol := Receiving(*args, **kwargs))
        return protocol

    settings = configuration(is_client=False, mtu=mtu)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "bench")
        self_signed(path, address=host)
        settings.load_cert_chain(path.with_suffix(".crt"), path.with_suffix(".key"))
    server = await serve(host, 0, configuration=settings, create_protocol=make)
    transport: Any = server._transport  # noqa: SLF001 - aioquic does not report its port
    _widen(transport)
    emit("listening", port=transport.get_extra_info("sockname")[1])
    protocol = await opened
    cpu_before = time.process_time()
    await protocol.ended.wait()
    server.close()
    emit("received", cpu_s=time.process_time() - cpu_before)


def send(*, host: str, port: int, seconds: float, mtu: int) -> None:
    """Send turns until `seconds` were timed, after one for warm-up."""
    asyncio.run(_send(host, port=port, seconds=seconds, mtu=mtu))


async def _send(host: str, *, port: int, seconds: float, mtu: int) -> None:
    data, sent_bytes, timed_s = content(), 0, 0.0
    async with connect(host, port, configuration=configuration(is_client=True, mtu=mtu)) as client:
        _widen(client._transport)  # noqa: SLF001 - as above
        await _turn(client, data)
        while timed_s < seconds:
            timed_s += await _turn(client, data)
            sent_bytes += len(data)
    emit("sent", bytes=sent_bytes, seconds=timed_s)


def _widen(transport: Any) -> None:
    """Give aioquic's socket buffers as large as SRD's, as the system's default ones overflow."""
    for option in (syscalls.SO_RCVBUFFORCE, syscalls.SO_SNDBUFFORCE):
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)


async def _turn(client: QuicConnectionProtocol, data: bytes) -> float:
    reader, writer = await client.create_stream()
    started = time.perf_counter()
    writer.write(data)
    writer.write_eof()
    arrived = await reader.readexactly(1)
    seconds = time.perf_counter() - started
    if arrived != _ARRIVED or await reader.readexactly(1) != _INTACT:
        raise BenchError("aioquic's receiver found other bytes than were sent")
    return seconds
