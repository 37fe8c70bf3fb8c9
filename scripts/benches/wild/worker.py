"""`python -m scripts.benches.wild.worker ROLE ...`: one end of a transfer of the case `wild-lab`.

Messages of 1 MiB on one connection with the default settings, in plain text. The receiver compares each message with
what was sent when it has it, which these rates leave time for.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Coroutine
from typing import Any, Final

import click

from devmem.region import Region
from scripts.benches.veth.worker.bulk import MESSAGE_BYTES, SOURCE_BYTES, content, is_intact, source
from scripts.harness.errors import BenchError
from scripts.harness.events import emit
from srd import Endpoint, EndpointConfig, Peer, PeerError, Plain, Status
from srd.cli.options import run
from srd.errors import SrdError

OUTSTANDING: Final = 24
CONFIG: Final = EndpointConfig(security=Plain())


async def receive(host: str) -> int:
    """Receive messages until the sender closes, and compare every byte."""
    expected, received = content(), 0
    async with await Endpoint.listen(host, port=0, config=CONFIG) as endpoint:
        emit("listening", port=endpoint.address[1])
        peer = await endpoint.accept()
        while True:
            try:
                message = await peer.recv()
            except PeerError:
                break
            with message:
                if not is_intact(message, expected):
                    raise BenchError(f"message {message.immediate}: other bytes than were sent")
                received += message.length
        emit("received", bytes=received)
    return 0


async def send(host: str, *, port: int, byte_count: int, seconds: float) -> int:
    """Send so many bytes, in whole messages, or for so long; timed from the first posting to the last completion."""
    started, sent_bytes = time.perf_counter(), 0
    with Region(SOURCE_BYTES, name="bench-wild") as region:
        region.array[:] = content()
        async with await Endpoint.open(towards=host, config=CONFIG) as endpoint:
            peer = await endpoint.connect(host, port=port)
            connected = time.perf_counter()
            numbers = iter(range(-(-byte_count // MESSAGE_BYTES) if byte_count else sys.maxsize))

            async def one_after_the_other() -> int:
                done = 0
                for number in numbers:
                    if not byte_count and time.perf_counter() - connected > seconds:
                        break
                    await _send(peer, region, number)
                    done += MESSAGE_BYTES
                return done

            sent_bytes = sum(await asyncio.gather(*(one_after_the_other() for _ in range(OUTSTANDING))))
            emit(
                "sent",
                bytes=sent_bytes,
                connect_s=connected - started,
                seconds=time.perf_counter() - connected,
                packets=peer.stats().tx_pkts,
                retransmitted=peer.stats().retrans_pkts,
            )
            await peer.close()
    return 0


async def _send(peer: Peer, region: Region, number: int) -> None:
    status = await peer.post_send(region, offset=source(number), length=MESSAGE_BYTES, immediate=number)
    if status is not Status.OK:
        raise BenchError(f"message {number} ended with {status.name}")


@click.group()
def main() -> None:
    """Run one end of a transfer; prints its figures as events."""


@main.command("receive")
@click.argument("host")
def receive_command(host: str) -> None:
    """Receive at HOST."""
    _run(receive(host))


@main.command("send")
@click.argument("host")
@click.argument("port", type=int)
@click.option("--bytes", "byte_count", type=click.IntRange(min=0), default=0, help="Bytes to send.")
@click.option("--seconds", type=click.FloatRange(min=0), default=0.0, help="Without --bytes: how long to send.")
def send_command(host: str, port: int, byte_count: int, seconds: float) -> None:
    """Send to HOST."""
    _run(send(host, port=port, byte_count=byte_count, seconds=seconds))


def _run(role: Coroutine[Any, Any, int]) -> None:
    try:
        sys.exit(run(role))
    except (BenchError, SrdError) as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()
