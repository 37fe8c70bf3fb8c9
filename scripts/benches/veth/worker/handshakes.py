"""Handshakes: peers that open and close as fast as they can, and a flood of HELLOs without a cookie.

The receiver replies to every message with its CPU time, so that the sender can tell what each costs there.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import time
from contextlib import suppress
from typing import Final

from devmem.region import Region
from netns.base.output import emit
from scripts.benches.veth.worker.bulk import PSK
from scripts.harness.errors import BenchError
from srd import Endpoint, EndpointConfig, Peer, PeerError, Plain, Status
from srd.proto.base.security import SecurityMode
from srd.proto.wire.control import Hello

AT_A_TIME: Final = 8
"""Concurrent handshakes."""
HELLOS: Final = 20_000
HELLO_BYTES: Final = 576
"""The shortest, which cost a flood the least."""
HELLOS_AT_A_TIME: Final = 32
"""HELLOs without a reply: fewer than a socket buffer holds."""
REPLY_BOUND_S: Final = 2.0
_CPU: Final = struct.Struct("<d")


def settings(*, plain: bool) -> EndpointConfig:
    """Return the settings of both ends: no polling, which would count as CPU time."""
    return EndpointConfig(adaptive_poll_s=0, security=Plain() if plain else PSK)


async def receive(*, host: str, plain: bool) -> int:
    """Accept peers, and report the CPU time to who asks, until the first one has closed."""
    async with await Endpoint.listen(host, port=0, config=settings(plain=plain)) as endpoint:
        emit("listening", port=endpoint.address[1])
        first = await endpoint.accept()
        others = asyncio.ensure_future(_accept(endpoint))
        await _report(first)
        others.cancel()
        emit("received")
    return 0


async def _accept(endpoint: Endpoint) -> None:
    while True:
        await endpoint.accept()


async def _report(peer: Peer) -> None:
    with Region(_CPU.size, name="bench-cpu") as region, suppress(PeerError):
        while True:
            (await peer.recv()).release()
            with region.view(0, length=_CPU.size) as view:
                view[:] = _CPU.pack(time.process_time())
            await peer.post_send(region, offset=0, length=_CPU.size)


async def send(*, host: str, port: int, seconds: float, plain: bool) -> int:
    """Make handshakes for SECONDS, then the flood."""
    async with await Endpoint.open(towards=host, config=settings(plain=plain)) as endpoint:
        control = await endpoint.connect(host, port=port)
        before_s, started = await _cpu_s(control), time.perf_counter()
        until = started + seconds
        done = sum(await asyncio.gather(*(_open_and_close(endpoint, host, port, until) for _ in range(AT_A_TIME))))
        elapsed_s, after_s = time.perf_counter() - started, await _cpu_s(control)
        await asyncio.to_thread(_flood, (host, port), SecurityMode.PLAIN if plain else SecurityMode.PSK)
        flooded_s = await _cpu_s(control)
        await control.close()
        emit(
            "measured",
            handshakes_per_s=done / elapsed_s,
            handshake_cost_us=(after_s - before_s) / done * 1e6,
            hello_cost_us=(flooded_s - after_s) / HELLOS * 1e6,
        )
    return 0


async def _open_and_close(endpoint: Endpoint, host: str, port: int, until: float) -> int:
    done = 0
    while time.perf_counter() < until:
        peer = await endpoint.connect(host, port=port)
        await peer.close()
        done += 1
    return done


async def _cpu_s(control: Peer) -> float:
    with Region(1, name="bench-ask") as region:
        if await control.post_send(region, offset=0, length=1) is not Status.OK:
            raise BenchError("the receiver did not take a message")
        with await control.recv() as message:
            return float(_CPU.unpack(message.gather())[0])


def _flood(target: tuple[str, int], mode: SecurityMode) -> None:
    """Send HELLOs of new initiators, as many at a time as are surely answered, each by a RETRY."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(REPLY_BOUND_S)
        for _ in range(HELLOS // HELLOS_AT_A_TIME):
            for _ in range(HELLOS_AT_A_TIME):
                context = int.from_bytes(os.urandom(8), "big")
                hello = Hello(context, 1 << 20, 1 << 10, 1 << 20, 4096, HELLO_BYTES, security=mode)
                sock.sendto(hello.encode(), target)
            for _ in range(HELLOS_AT_A_TIME):
                try:
                    sock.recv(HELLO_BYTES)
                except TimeoutError:
                    raise BenchError(f"a HELLO was not answered within {REPLY_BOUND_S:g} s") from None
