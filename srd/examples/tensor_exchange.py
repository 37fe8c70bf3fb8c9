"""Two hosts exchange a float32 tensor through device memory, and each reduces the received tensor in place.

    host1$ python3 -m srd.examples.tensor_exchange --listen 0.0.0.0:19870
    host2$ python3 -m srd.examples.tensor_exchange --connect 192.0.2.1:19870

    srd-lab up reference
    srd-lab exec h2 -- python3 -m srd.examples.tensor_exchange --listen 10.0.2.1:19870 &
    srd-lab exec h1 -- python3 -m srd.examples.tensor_exchange --connect 10.0.2.1:19870

It demonstrates:

1. A tensor is a part of a region: `region.tensor(shape, dtype=...)` is a NumPy array in place. The other end's tensor
   is written into a second region, which is registered for remote writes.
2. Each end binds a receive queue to a third region and steers its peer to it. What the peer writes lands there, and
   is copied once, to the tensor.
3. Each end sends the key of its registration in a message and writes its tensor with one `write`. When the write is
   acknowledged, and so has landed, it sends a second message.
4. NumPy, and torch if it is installed (`torch.from_dlpack`), reduce the tensor in the region, without a copy.

Prints one JSON object; the exit status is 1 if a tensor is wrong or the other end is lost.
"""

from __future__ import annotations

import asyncio
import json
import struct
import sys
import time
from typing import Final

import click
import numpy as np
import numpy.typing as npt

from devmem import Access, DevmemError, Region
from netns.base import event_loop
from netns.base.options import HostPort, Size
from srd import Endpoint, Peer, PeerError, SrdError, Status
from srd.proto.wire.data import DEFAULT_PORT

_ADDRESS: Final = HostPort(default_port=DEFAULT_PORT)
PATTERN: Final = 251
"""A prime, so that misplaced data is detected. The sum of the small integers is exact in float64."""
HELLO: Final = struct.Struct("!QQ")  # key, elements
QUEUE_BYTES: Final = 80 << 20
RETRY_S: Final = 0.1
PATIENCE_S: Final = 30.0
WRITABLE: Final = Access.LOCAL_WRITE | Access.REMOTE_WRITE
Floats = npt.NDArray[np.float32]


class ExchangeError(Exception):
    """The tensors could not be exchanged, or are wrong."""


def fill(tensor: Floats, *, seed: int) -> None:
    """Write a pattern that depends on position and seed, in small steps."""
    for start in range(0, tensor.size, 1 << 20):
        part = tensor[start : start + (1 << 20)]
        part[:] = np.arange(start + seed, start + seed + part.size, dtype=np.int64) % PATTERN


def pattern_sum(elements: int, *, seed: int) -> int:
    """Return the sum of the elements that `fill` writes."""
    whole, rest = divmod(elements, PATTERN)
    return whole * (PATTERN * (PATTERN - 1) // 2) + sum((seed + index) % PATTERN for index in range(rest))


def reduce(tensor: Floats) -> dict[str, float]:
    """Sum up a tensor in place, with NumPy and, if installed, torch."""
    sums = {"numpy": float(tensor.sum(dtype=np.float64))}
    try:
        import torch  # noqa: PLC0415 - optional
    except ImportError:
        return sums
    shared = torch.from_dlpack(tensor)
    if shared.data_ptr() != tensor.ctypes.data:
        raise ExchangeError("torch copied the tensor")
    return sums | {"torch": float(shared.sum(dtype=torch.float64))}


async def receive_message(peer: Peer) -> bytes:
    """Return the next message. Raises PeerError if the peer ends."""
    with await peer.recv() as message:
        return message.gather()


async def exchange(endpoint: Endpoint, peer: Peer, mine: Region, theirs: Region) -> float:
    """Write this end's tensor into the other end's region, and vice versa; return the duration in seconds."""
    registration = endpoint.register(theirs, offset=0, length=theirs.size_bytes, access=WRITABLE, peers=[peer])
    try:
        elements = mine.size_bytes // 4
        await peer.send(HELLO.pack(registration.remote_key, elements))
        hello = await receive_message(peer)
        if len(hello) != HELLO.size:
            raise ExchangeError("the other end is no tensor_exchange")
        key, others = HELLO.unpack(hello)
        if others != elements:
            raise ExchangeError(f"the other end has {others} elements, this one {elements}; give both the same --bytes")
        began = time.monotonic()
        status = await peer.post_write(mine, offset=0, length=mine.size_bytes, key=key, target_offset=0)
        if status is not Status.OK:
            raise ExchangeError(f"the write ended in {status.name}")
        await peer.send(b"written")
        await receive_message(peer)
        return time.monotonic() - began
    finally:
        endpoint.deregister(registration)


async def run(endpoint: Endpoint, peer: Peer, *, size_bytes: int, seed: int) -> dict[str, object]:
    """Exchange and reduce the tensors; return the results."""
    with (
        Region(size_bytes, name="mine") as mine,
        Region(size_bytes, name="theirs") as theirs,
        Region(QUEUE_BYTES, name="device") as device,
        endpoint.bind_rx(device) as queue,
    ):
        queue.steer(peer)
        elements = size_bytes // 4
        # Beside the event loop: a peer that sends nothing for a second is declared dead. The tensors are made there,
        # too: a thread may keep its arguments after its result is here, and a region with views cannot be closed.
        await asyncio.to_thread(lambda: fill(mine.tensor(elements, dtype=np.float32), seed=seed))
        before = endpoint.bytes_copied
        seconds = await exchange(endpoint, peer, mine, theirs)
        sums = await asyncio.to_thread(lambda: reduce(theirs.tensor(elements, dtype=np.float32)))
        wanted = await asyncio.to_thread(pattern_sum, elements, seed=1 - seed)
        if any(found != wanted for found in sums.values()):
            raise ExchangeError(f"the tensor adds up to {sums}, not to {wanted}")
        return {
            "bytes": size_bytes,
            "seconds": round(seconds, 6),
            "gbps": round(size_bytes * 8 / seconds / 1e9, 3),
            "bytes_copied": endpoint.bytes_copied - before,
            "sums": sums,
        }


async def connected(endpoint: Endpoint, host: str, port: int) -> Peer:
    """Connect to the peer, which may still be starting. Raises PeerError if it does not answer."""
    give_up_at = time.monotonic() + PATIENCE_S
    while True:
        try:
            return await endpoint.connect(host, port=port)
        except PeerError:
            if time.monotonic() >= give_up_at:
                raise
            await asyncio.sleep(RETRY_S)


async def take_part(host: str, port: int, *, listening: bool, size_bytes: int) -> dict[str, object]:
    """Run one of the two ends."""
    if listening:
        async with await Endpoint.listen(host, port=port) as endpoint:
            async with asyncio.timeout(PATIENCE_S):
                peer = await endpoint.accept()
            return await run(endpoint, peer, size_bytes=size_bytes, seed=0)
    async with await Endpoint.open(towards=host) as endpoint:
        peer = await connected(endpoint, host, port)
        return await run(endpoint, peer, size_bytes=size_bytes, seed=1)


@click.command()
@click.option("--listen", type=_ADDRESS, help="Be the end that waits.")
@click.option("--connect", type=_ADDRESS, help="Be the end that comes.")
@click.option(
    "--bytes",
    "size_bytes",
    type=Size(least=4096, most=1 << 30),
    default="1G",
    show_default=True,
    help="Size of the tensor; whole pages.",
)
def main(*, listen: tuple[str, int] | None, connect: tuple[str, int] | None, size_bytes: int) -> None:
    """Exchange a tensor with another host; run one with --listen and one with --connect."""
    if (listen is None) == (connect is None):
        raise click.UsageError("give either --listen or --connect")
    if size_bytes % 4096:
        raise click.UsageError(f"--bytes: {size_bytes} is no multiple of 4096; round it")
    host, port = listen or connect or ("", 0)
    try:
        done = event_loop.run(take_part(host, port, listening=listen is not None, size_bytes=size_bytes))
    except TimeoutError:
        click.echo(f"tensor_exchange: no peer connected within {PATIENCE_S:g} s", err=True)
        sys.exit(1)
    except (ExchangeError, SrdError, DevmemError) as error:
        click.echo(f"tensor_exchange: {error}", err=True)
        sys.exit(1)
    click.echo(json.dumps(done))


if __name__ == "__main__":
    main()
