"""A client that joins a tunnel, and sends what no tunnel sends.

python -m tests.srd.tunnel.hostile_client HOST SEED
"""

from __future__ import annotations

import asyncio
import ipaddress
import random
import sys

import pytest

from srd.client import connect
from srd.config import EndpointConfig
from srd.errors import RequestError, SrdError
from srd.peer import Peer
from srd.proto.wire.status import Status
from srd.secure.config import Plain
from srd.tunnel.frames import CONTROL, FRAME_BYTES, HEADER, VNET_AT
from srd.tunnel.greeting import hello
from srd.tunnel.member import MERGED_BYTES
from tests.srd.tunnel.two_ends import TARGET_PORT, inner

PEERS, MESSAGES = 8, 60
CLIENT = 2


def packet(rng: random.Random) -> bytes:
    """Bytes that often begin as an IP packet of this client."""
    rest = rng.randbytes(rng.choice([0, 1, 7, 30, 500, 5000, 60_000]))
    start = rng.choice([b"", b"\x45", b"\x60", b"\xff"])
    if rng.random() < 0.5:
        source, target = (ipaddress.ip_address(inner(host)).packed for host in (CLIENT, 0))
        length = (20 + len(rest)).to_bytes(2, "big") if rng.random() < 0.7 else rng.randbytes(2)
        start = (
            b"\x45" + rng.randbytes(1) + length + rng.randbytes(4) + b"\x40\x06" + rng.randbytes(2) + source + target
        )
    return start + rest


def frame(rng: random.Random) -> bytes:
    inside = packet(rng)[:65_535]
    length = len(inside) if rng.random() < 0.8 else rng.randrange(1 << 16)
    vnet = bytes(FRAME_BYTES - VNET_AT) if rng.random() < 0.4 else rng.randbytes(FRAME_BYTES - VNET_AT)
    return HEADER.pack(length, rng.randrange(1 << 16), rng.randrange(1 << 32), rng.randrange(256)) + vnet + inside


def message(rng: random.Random) -> tuple[bytes, int | None]:
    """A message, and its immediate."""
    kind = rng.random()
    if kind < 0.1:
        return rng.randbytes(rng.randrange(100)), rng.choice([CONTROL, 0, 7, 0xFFFFFFFF])
    if kind < 0.2:
        return rng.randbytes(rng.randrange(1, 3000)), None
    return b"".join(frame(rng) for _ in range(rng.choice([1, 1, 1, 5, 50])))[:MERGED_BYTES], None


async def send_too_long(peer: Peer) -> None:
    """No message is so long that the others would have to wait for seconds while it is looked at."""
    with pytest.raises(RequestError) as caught:
        await peer.send(bytes(MERGED_BYTES + 1))
    assert caught.value.status is Status.REMOTE_ERROR_BAD_LENGTH


async def attack(peer: Peer, rng: random.Random) -> None:
    if rng.random() < 0.8:
        await peer.send(hello([ipaddress.ip_address(inner(CLIENT))]), immediate=CONTROL)
    for _ in range(MESSAGES):
        data, immediate = message(rng)
        await peer.send(data, immediate=immediate)


async def main(host: str, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(PEERS):
        try:
            async with connect(host, TARGET_PORT, config=EndpointConfig(security=Plain())) as peer:
                await send_too_long(peer)
                await attack(peer, rng)
        except SrdError as error:  # the tunnel has ended the peer
            print(error)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
