"""One end of a transfer from device memory to device memory, as a process of its own.

All methods move messages of 1 MiB from one region of 64 MiB to another.

srd      from the region, by the transport, into a region that is bound to the receive queue; the consumer reads the
         fragments in place and returns their tokens. `gather` first copies them into one buffer.
classic  the sender copies a message to a host buffer and sends that by kernel TCP (cubic); the receiver receives into
         a host buffer and copies that to the device: whole messages, blocking calls.

The first WARM messages are compared byte by byte and not timed; of all others the first and last 64-bit lane are
compared. Each end prints its figures as one JSON event: bytes, seconds and CPU seconds, from the first timed message to
the last.

guarded  as srd, with both regions under the mprotect guard: no process may read a message, except the last one at the
         end. `guarded-gather` is the same with a consumer that gathers, which the guard must detect.
"""

from __future__ import annotations

import asyncio
import math
import socket
import sys
import time
from contextlib import nullcontext, suppress
from typing import Final

import numpy as np
import numpy.typing as npt
import uvloop

from devmem import Region, ranges
from netns.base.output import emit
from scripts.benches.devmem.mprotect_guard import guarded
from srd import Endpoint, EndpointConfig, Message, Peer, PeerError, Plain, ProtocolConfig, Status

MESSAGE_BYTES: Final = 1 << 20
SLOTS: Final = 64
WARM: Final = 64
DEPTH: Final = 16
"""Messages in flight."""
CONFIG: Final = EndpointConfig(security=Plain(), protocol=ProtocolConfig(paths=1))
"""One path, as there is one link."""
GUARDED: Final = ("guarded", "guarded-gather")
GUARDED_BYTES: Final = 16 << 20
"""Region of a guarded receiver: small, as mprotect costs time per page and system call."""
GUARDED_CONFIG: Final = EndpointConfig(
    security=Plain(),
    chunk_bytes=256 << 10,
    protocol=ProtocolConfig(paths=1, receive_window_bytes=4 * MESSAGE_BYTES, max_message_bytes=MESSAGE_BYTES),
)
GUARDED_SLOTS: Final = 8
_LANE_BYTES: Final = 8
Bytes = npt.NDArray[np.uint8]


def content(slots: int) -> Bytes:
    """Return the data to send: the same at both ends, different in every message."""
    return np.random.default_rng(1).integers(0, 256, slots * MESSAGE_BYTES, dtype=np.uint8)


class Figures:
    """Bytes, time and CPU time from the end of the warm-up on."""

    def __init__(self) -> None:
        self.messages = 0
        self._started = self._ended = (0.0, 0.0)

    def message(self) -> None:
        self.messages += 1
        self._ended = time.monotonic(), time.process_time()
        if self.messages == WARM:
            self._started = self._ended

    def to_dict(self) -> dict[str, float]:
        timed = max(self.messages - WARM, 0)
        seconds, cpu = (after - before for after, before in zip(self._ended, self._started, strict=True))
        return {"messages": self.messages, "bytes": timed * MESSAGE_BYTES, "seconds": seconds, "cpu_seconds": cpu}


def check(number: int, pieces: list[Bytes], contents: Bytes, *, whole: bool) -> None:
    """Compare message `number`, which lies in `pieces`. Raises SystemExit if it differs."""
    slots = contents.reshape(-1, MESSAGE_BYTES)
    expected = slots[number % len(slots)]
    if not whole:
        pieces = [pieces[0][:_LANE_BYTES], pieces[-1][-_LANE_BYTES:]]
        expected = np.concatenate((expected[:_LANE_BYTES], expected[-_LANE_BYTES:]))
    if not np.array_equal(np.concatenate(pieces), expected):
        sys.exit(f"message {number} is not what was sent")


# -- srd ------------------------------------------------------------------------------------------------------------


async def srd_receive(host: str, *, gather: bool, guard: bool) -> None:
    figures, contents = Figures(), content(GUARDED_SLOTS if guard else SLOTS)
    config = GUARDED_CONFIG if guard else CONFIG
    size_bytes = GUARDED_BYTES if guard else CONFIG.receive_region_bytes
    with Region(size_bytes, name="device") as device, Region(MESSAGE_BYTES) as buffer:
        async with await Endpoint.listen(host, port=0, config=config) as endpoint:
            queue = endpoint.bind_rx(device)
            queue.steer()
            emit("listening", port=endpoint.address[1])
            peer = await endpoint.accept()
            last: Message | None = None
            with guarded(device) if guard else nullcontext(), suppress(PeerError):
                while True:
                    message = await peer.recv()
                    if not guard or gather:
                        pieces = pieces_of(message, into=buffer if gather else None)
                        check(message.immediate or 0, pieces, contents, whole=figures.messages < WARM)
                        del pieces
                    if last is not None:
                        give_back(endpoint, last)
                    last = message
                    figures.message()
            if last is not None:
                number = last.immediate or 0
                check(number, pieces_of(last, into=None), contents, whole=number < WARM)
                last.release()
            emit(
                "received",
                **figures.to_dict(),
                bytes_copied=endpoint.bytes_copied,
                linear_bytes=endpoint.linear_bytes,
                dropped=endpoint.dropped_packets,
            )


def pieces_of(message: Message, *, into: Region | None) -> list[Bytes]:
    views = message.views() if into is None else [message.gather(into)]
    return [np.frombuffer(view, np.uint8) for view in views]


def give_back(endpoint: Endpoint, message: Message) -> None:
    if endpoint.dontneed(ranges(frag.token for frag in message.frags())) != len(message.frags()):
        sys.exit("a frag was not freed")


async def srd_send(host: str, port: int, seconds: float, *, guard: bool) -> None:
    slots = GUARDED_SLOTS if guard else SLOTS
    with Region(slots * MESSAGE_BYTES, name="device") as device:
        device.array[:] = content(slots)
        async with await Endpoint.open(towards=host, config=CONFIG) as endpoint:
            peer = await endpoint.connect(host, port=port)
            with guarded(device) if guard else nullcontext():
                figures = await stream(peer, device, seconds=seconds)
                await peer.close()
            emit("sent", **figures.to_dict(), bytes_copied=endpoint.bytes_copied)


async def stream(peer: Peer, device: Region, *, seconds: float) -> Figures:
    """Send messages: the warm-up, and then for `seconds`."""
    figures, number, until = Figures(), 0, math.inf
    in_flight: set[asyncio.Future[Status]] = set()
    while True:
        last = WARM if math.isinf(until) else number + DEPTH * (time.monotonic() < until)
        while len(in_flight) < DEPTH and number < last:
            at = number * MESSAGE_BYTES % device.size_bytes
            in_flight.add(peer.post_send(device, offset=at, length=MESSAGE_BYTES, immediate=number))
            number += 1
        if not in_flight:
            return figures
        done, in_flight = await asyncio.wait(in_flight, return_when=asyncio.FIRST_COMPLETED)
        for future in done:
            if future.result() is not Status.OK:
                sys.exit(f"a message ended in {future.result().name}")
            figures.message()
            if figures.messages == WARM:
                until = time.monotonic() + seconds


# -- classic --------------------------------------------------------------------------------------------------------


def classic_receive(host: str) -> None:
    figures, contents = Figures(), content(SLOTS)
    with Region(SLOTS * MESSAGE_BYTES, name="device") as device, socket.create_server((host, 0)) as listener:
        emit("listening", port=listener.getsockname()[1])
        sock, _ = listener.accept()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
        buffer = np.empty(MESSAGE_BYTES, np.uint8)
        with sock:
            while fill(sock, buffer.data):
                number = figures.messages
                at = number % SLOTS * MESSAGE_BYTES
                target = device.array[at : at + MESSAGE_BYTES]
                target[:] = buffer  # host to device
                check(number, [target], contents, whole=number < WARM)
                figures.message()
        del target
        emit("received", **figures.to_dict(), bytes_copied=figures.messages * MESSAGE_BYTES)


def fill(sock: socket.socket, view: memoryview) -> bool:
    """Receive until the view is full; False at the end."""
    while view:
        count = sock.recv_into(view, 0, socket.MSG_WAITALL)
        if count == 0:
            return False
        view = view[count:]
    return True


def classic_send(host: str, port: int, seconds: float) -> None:
    figures, until = Figures(), math.inf
    with Region(SLOTS * MESSAGE_BYTES, name="device") as device, socket.socket() as sock:
        device.array[:] = content(SLOTS)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
        sock.connect((host, port))
        buffer = np.empty(MESSAGE_BYTES, np.uint8)
        while figures.messages < WARM or time.monotonic() < until:
            at = figures.messages % SLOTS * MESSAGE_BYTES
            buffer[:] = device.array[at : at + MESSAGE_BYTES]  # device to host
            sock.sendall(buffer.data)
            figures.message()
            if figures.messages == WARM:
                until = time.monotonic() + seconds
        emit("sent", **figures.to_dict(), bytes_copied=figures.messages * MESSAGE_BYTES)


def receive(*, method: str, host: str) -> None:
    if method not in ("srd", "gather", "classic", *GUARDED):
        sys.exit(f"{method}: no such method")
    if method == "classic":
        classic_receive(host)
    else:
        uvloop.run(srd_receive(host, gather=method in ("gather", "guarded-gather"), guard=method in GUARDED))


def send(*, method: str, host: str, port: int, seconds: float) -> None:
    if method == "classic":
        classic_send(host, port, seconds)
    else:
        uvloop.run(srd_send(host, port, seconds, guard=method in GUARDED))
