"""Shared by the asyncio tests: endpoints on loopback with small regions, and sending and receiving messages."""

from __future__ import annotations

import asyncio
import os
import random
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace

from devmem.region import Region
from srd.config import EndpointConfig
from srd.endpoint import Endpoint
from srd.message import Message
from srd.peer import Peer
from srd.proto.config import ProtocolConfig
from srd.proto.wire.status import Status
from srd.secure.config import Plain
from tests.patience import PATIENCE_S

SMALL = EndpointConfig(
    receive_region_bytes=24 << 20,
    chunk_bytes=256 << 10,
    protocol=ProtocolConfig(paths=4, receive_window_bytes=8 << 20, max_message_bytes=4 << 20),
)

PLAIN = replace(SMALL, security=Plain())


def content(size_bytes: int, *, seed: int) -> bytes:
    return random.Random(seed).randbytes(size_bytes)


def open_files() -> list[str]:
    """The open files of this process: sockets, timers and memfds by kind, without their numbers."""
    links = []
    for number in os.listdir("/proc/self/fd"):  # noqa: PTH208 - the kernel's own names
        try:
            links.append(os.readlink(f"/proc/self/fd/{number}").split(":")[0])  # noqa: PTH115
        except FileNotFoundError:  # the directory's own descriptor
            continue
    return sorted(links)


@contextmanager
def closed_port(family: socket.AddressFamily = socket.AF_INET) -> Iterator[int]:
    """Give a port of loopback at which nothing listens: a connected socket keeps it in use."""
    host = "::1" if family == socket.AF_INET6 else "127.0.0.1"
    with socket.socket(family, socket.SOCK_DGRAM) as one, socket.socket(family, socket.SOCK_DGRAM) as other:
        one.bind((host, 0))
        other.bind((host, 0))
        one.connect(other.getsockname())  # so that the kernel finds no socket for other senders
        yield one.getsockname()[1]


@asynccontextmanager
async def endpoints(
    config: EndpointConfig, *, opener: EndpointConfig | None = None, host: str = "127.0.0.1"
) -> AsyncIterator[tuple[Endpoint, Endpoint]]:
    """Give (opener's endpoint, listener's endpoint)."""
    async with (
        asyncio.timeout(PATIENCE_S * 2),
        await Endpoint.listen(host, port=0, config=config) as two,
        await Endpoint.open(towards=host, config=opener or config) as one,
    ):
        yield one, two


@asynccontextmanager
async def pair(
    *, host: str = "127.0.0.1", config: EndpointConfig = SMALL, opener: EndpointConfig | None = None
) -> AsyncIterator[tuple[Endpoint, Endpoint, Peer, Peer]]:
    """Give (opener's endpoint, listener's endpoint, opener's peer, listener's peer)."""
    async with endpoints(config, opener=opener, host=host) as (one, two):
        here = await one.connect(host, port=two.address[1])
        yield one, two, here, await two.accept()


@contextmanager
def memory(payload: bytes) -> Iterator[Region]:
    with Region(max(len(payload), 1)) as region:
        with region.view(0, length=len(payload)) as view:
            view[:] = payload
        yield region


async def send(peer: Peer, payload: bytes, *, immediate: int | None = None) -> Status:
    """Send from a region; return the status."""
    with memory(payload) as region:
        return await peer.post_send(region, offset=0, length=len(payload), immediate=immediate)


async def carry(here: Peer, there: Peer, payload: bytes, *, immediate: int | None = None) -> None:
    """Send a message from one end to the other: every byte is right, and the status."""
    sending = asyncio.ensure_future(send(here, payload, immediate=immediate))
    assert await receive(there) == payload
    assert await sending is Status.OK


async def receive_all(peer: Peer, count: int) -> list[bytes]:
    """Receive so many messages, single ones and batches."""
    found: list[bytes] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(found) < count:
            with await peer.recv_batch() as taken:
                found += [taken.gather()] if isinstance(taken, Message) else map(bytes, taken.rows())
    return found


async def receive(peer: Peer) -> bytes:
    async with asyncio.timeout(PATIENCE_S):
        with await peer.recv() as message:
            return message.gather()
