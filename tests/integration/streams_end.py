"""One end of tests/integration/test_streams.py: `streams_end.py listen HOST` or `streams_end.py connect HOST PORT`."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from typing import Any

import srd

COUNT = 24
LONGEST_BYTES = 200_000
SEED = 21


def content(number: int, *, side: str) -> bytes:
    """What an end sends on a stream."""
    rng = random.Random(f"{SEED} {number} {side}")
    return rng.randbytes(rng.randrange(1, LONGEST_BYTES))


async def use(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, number: int, side: str) -> bool:
    """Send and receive at the same time; return whether every byte was right."""
    mine = content(number, side=side)

    async def write() -> None:
        at, rng = 0, random.Random(number)
        while at < len(mine):
            size = rng.choice([1, 100, 10_000, 70_000])
            writer.write(mine[at : at + size])
            at += size
            await writer.drain()
        writer.write_eof()

    async with asyncio.TaskGroup() as group:
        group.create_task(write())
        reading = group.create_task(reader.read())
    writer.close()
    await writer.wait_closed()
    return reading.result() == content(number, side="connect" if side == "listen" else "listen")


def report(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


async def listen(host: str) -> None:
    async with srd.Endpoint.listen(host, 0) as endpoint:
        report(port=endpoint.address[1])
        async with await endpoint.accept() as peer:
            streams = [await peer.accept_stream() for _ in range(COUNT)]
            using = [use(*each, number=each[1].get_extra_info("stream") // 2, side="listen") for each in streams]
            report(right=await asyncio.gather(*using), streams=peer.stats().streams)
            await peer.wait_ended()


async def connect(host: str, port: int) -> None:
    async with srd.connect(host, port) as peer:
        streams = [await peer.open_stream() for _ in range(COUNT)]
        using = [use(*each, number=number, side="connect") for number, each in enumerate(streams)]
        right = await asyncio.gather(*using)
        report(right=right, streams=peer.stats().streams, retransmitted=peer.stats().retrans_pkts)


if __name__ == "__main__":
    role, there, *port = sys.argv[1:]
    asyncio.run(listen(there) if role == "listen" else connect(there, int(port[0])))
