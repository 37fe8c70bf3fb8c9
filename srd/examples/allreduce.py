"""Ring all-reduce of float32 over SRD: every rank ends with the sum of all ranks' tensors.

One process per rank, configured by its environment as with torchrun and MPI:

    RANK          this process's number, from 0
    WORLD_SIZE    the number of ranks
    RANK_HOSTS    their addresses in order of rank, separated by commas
    MASTER_PORT   the UDP port that each rank listens on; default 29500

    RANK=0 WORLD_SIZE=2 RANK_HOSTS=192.0.2.1,192.0.2.2 python3 -m srd.examples.allreduce --bytes 8M --iterations 5

`srd-lab run` sets these for every rank of a job. Each rank prints JSON lines on stdout: an `iteration` with its
duration for each iteration, and `done` at the end. The result is compared with the exact sum; the exit status is 1 if
it is wrong or a rank is lost.

Theory of operation (P. Patarasuk, X. Yuan: "Bandwidth optimal all-reduce algorithms for clusters of workstations",
JPDC 2009; what NCCL calls Ring). The tensor has a chunk for each of the N ranks. In step s of 2(N-1), rank r sends
chunk (r - s) mod N to rank r + 1. In the first N-1 steps the receiver adds its own values (reduce-scatter); then rank r
has the complete sum of chunk r + 1. In the other steps the receiver keeps the chunk (all-gather). Each rank sends
2(N-1)/N of the tensor, and all links carry the same amount.

Steps do not wait for each other. A chunk is sent in pieces, each a write with immediate into registered memory of the
next rank: into staging memory in the reduce-scatter, to the final location in the all-gather. The immediate names
iteration, step and piece, because SRD does not guarantee order. As soon as a piece has landed it is added and sent on.

No flow control is needed beside the data. A neighbour starts the next iteration only when it has every sum, and each
sum contains what this rank added from its staging memory, which is free by then. It writes sums of the next iteration
only after this rank has sent its part of them, so this rank has entered that iteration.
"""

from __future__ import annotations

import asyncio
import json
import os
import struct
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from statistics import median
from typing import Final, Self

import click
import numpy as np
import numpy.typing as npt

from devmem import Access, DevmemError, Region
from netns.base import event_loop
from netns.base.options import Duration, Size
from srd import Endpoint, EndpointConfig, Peer, PeerError, ProtocolConfig, RequestError, SrdError, Status

DEFAULT_PORT: Final = 29500  # torchrun's
PIECE_BYTES: Final = 256 << 10
"""Small enough to divide a step into several pieces, large enough to keep the number of events low."""
RETRY_S: Final = 0.05
MAX_WORLD: Final = 1 << 14  # a step takes 15 bits of the immediate, a piece 16
MAX_PIECES: Final = 1 << 16
PATTERN: Final = 251
"""A prime, so that all chunks differ."""
WRITABLE: Final = Access.LOCAL_WRITE | Access.REMOTE_WRITE
HELLO: Final = struct.Struct("!IIQQ")  # rank, world, elements, key

Floats = npt.NDArray[np.float32]


class RingError(Exception):
    """The ring cannot be formed, or has failed."""


@dataclass(frozen=True, slots=True)
class RankInfo:
    """The rank of this process, and the addresses of all ranks."""

    rank: int
    hosts: tuple[str, ...]
    port: int

    @property
    def left(self) -> int:
        """The rank that sends to this one."""
        return (self.rank - 1) % len(self.hosts)

    @property
    def right(self) -> int:
        """The rank that this one sends to."""
        return (self.rank + 1) % len(self.hosts)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """Read RANK, WORLD_SIZE, RANK_HOSTS and MASTER_PORT. Raises RingError that names an invalid one."""
        world = _number(environment, "WORLD_SIZE", low=1, high=MAX_WORLD)
        rank = _number(environment, "RANK", low=0, high=world - 1)
        port = _number({"MASTER_PORT": str(DEFAULT_PORT), **environment}, "MASTER_PORT", low=1, high=65535)
        hosts = tuple(host.strip() for host in environment.get("RANK_HOSTS", "").split(",") if host.strip())
        if len(hosts) != world:
            raise RingError(f"RANK_HOSTS: names {len(hosts)} hosts for a WORLD_SIZE of {world}; give one for each rank")
        return cls(rank, hosts, port)


def _number(environment: Mapping[str, str], name: str, *, low: int, high: int) -> int:
    text = environment.get(name)
    if text is None:
        raise RingError(f"{name}: not set; give each process RANK, WORLD_SIZE and RANK_HOSTS, or use srd-lab run")
    if not (text.isascii() and text.isdigit() and low <= int(text) <= high):
        raise RingError(f"{name}: {text!r} is not a number from {low} to {high}")
    return int(text)


class Ring:
    """One rank's end of a ring, made by `join` for tensors of one size.

    The user fills `input`; `all_reduce` writes `output`. Both are float32.
    """

    def __init__(
        self,
        info: RankInfo,
        *,
        region: Region,
        elements: int,
        key: int,
        pieces: int,
        to_right: Peer,
        from_left: Peer,
    ) -> None:
        self.rank, self.world = info.rank, len(info.hosts)
        self.elements = elements
        memory = region.array[: 3 * 4 * elements].view(np.float32)
        self.input: Floats = memory[:elements]
        self.output: Floats = memory[elements : 2 * elements]
        self._staging: Floats = memory[2 * elements :]
        self._region = region
        self._key = key  # of the right neighbour's output and staging
        self._to_right, self._from_left = to_right, from_left
        self._steps = 2 * (self.world - 1)
        self._pieces = pieces
        self._parity = 0  # of the iteration; the left neighbour is at most one ahead
        self._landed: tuple[deque[int], deque[int]] = deque(), deque()

    @classmethod
    @asynccontextmanager
    async def join(
        cls,
        info: RankInfo,
        *,
        elements: int,
        piece_bytes: int = PIECE_BYTES,
        config: EndpointConfig | None = None,
        timeout_s: float = 30.0,
    ) -> AsyncIterator[Self]:
        """Connect to the neighbours, which may start up to `timeout_s` later. Raises RingError or SrdError.

        If the block ends without an error, everything that was sent has been acknowledged.
        """
        rank, address = info.rank, info.hosts[info.rank]
        pieces = _pieces(4 * -(-elements // len(info.hosts)), piece_bytes=piece_bytes)
        with Region(3 * 4 * elements) as region:
            async with await Endpoint.listen(address, port=info.port, config=config) as endpoint:
                connecting = asyncio.gather(
                    _connect_right(endpoint, info, hello=HELLO.pack(rank, len(info.hosts), elements, 0)),
                    _connect_left(endpoint, info, region=region, elements=elements),
                )
                try:
                    (to_right, key), from_left = await asyncio.wait_for(connecting, timeout_s)
                except TimeoutError:
                    raise RingError(
                        f"rank {rank}: ranks {info.left} and {info.right} did not both come within {timeout_s:g} s"
                    ) from None
                ring = cls(
                    info,
                    region=region,
                    elements=elements,
                    key=key,
                    pieces=pieces,
                    to_right=to_right,
                    from_left=from_left,
                )
                try:
                    yield ring
                finally:
                    ring.input = ring.output = ring._staging = np.empty(
                        0, np.float32
                    )  # a region is closed without views
                await to_right.close()
                await from_left.wait_ended()

    @property
    def packets_sent(self) -> int:
        """Data packets to the right neighbour, including retransmissions."""
        return self._to_right.stats().tx_pkts

    @property
    def packets_retransmitted(self) -> int:
        """Data packets that were retransmissions."""
        return self._to_right.stats().retrans_pkts

    async def all_reduce(self) -> None:
        """Set `output` to the sum of all ranks' `input`. Raises RingError or PeerError when a neighbour is lost."""
        if self.world == 1:
            self.output[:] = self.input
            return
        self._parity ^= 1
        sending = [self._send(0, piece) for piece in range(self._pieces)]
        for _ in range(self._steps * self._pieces):
            step, piece = await self._next()
            if step < self.world - 1:
                where = self._slice(self.rank - 1 - step, piece)
                np.add(self.input[where], self._staging[where], out=self.output[where])
            if step + 1 < self._steps:
                sending.append(self._send(step + 1, piece))
        for status in await asyncio.gather(*sending):
            if status is not Status.OK:
                raise RingError(f"a write to rank {(self.rank + 1) % self.world} ended with {status.name}")

    def _send(self, step: int, piece: int) -> asyncio.Future[Status]:
        """Write a piece of the chunk of `step` to the right neighbour; the immediate identifies it."""
        where = self._slice(self.rank - step, piece)
        source = where.start if step == 0 else self.elements + where.start  # of the region: input, output, staging
        target = self.elements + where.start if step < self.world - 1 else where.start  # of output, staging
        return self._to_right.post_write(
            self._region,
            offset=4 * source,
            length=4 * (where.stop - where.start),
            key=self._key,
            target_offset=4 * target,
            immediate=self._parity << 31 | step << 16 | piece,
        )

    async def _next(self) -> tuple[int, int]:
        """Return step and piece of the next write that has landed for this iteration."""
        while not self._landed[self._parity]:
            immediate = (await self._from_left.recv_write()).immediate
            self._landed[immediate >> 31].append(immediate)
        immediate = self._landed[self._parity].popleft()
        return immediate >> 16 & 0x7FFF, immediate & 0xFFFF

    def _slice(self, chunk: int, piece: int) -> slice:
        """Return the elements of a piece of a chunk: equal parts up to rounding; may be empty."""
        part = chunk % self.world * self._pieces + piece
        parts = self.world * self._pieces
        return slice(part * self.elements // parts, (part + 1) * self.elements // parts)


def _pieces(chunk_bytes: int, *, piece_bytes: int) -> int:
    """Return the number of pieces of the largest chunk. Raises RingError if an immediate cannot number them."""
    pieces = max(1, -(-chunk_bytes // piece_bytes))
    if pieces > MAX_PIECES:
        raise RingError(f"pieces of {piece_bytes} bytes: {pieces} a chunk, at most {MAX_PIECES}; make them larger")
    return pieces


async def _connect_right(endpoint: Endpoint, info: RankInfo, *, hello: bytes) -> tuple[Peer, int]:
    """Connect to the right neighbour, which may not listen yet; return it and the key of its memory."""
    while True:
        try:
            peer = await endpoint.connect(info.hosts[info.right], port=info.port)
            break
        except PeerError as error:
            if error.status is not Status.LOCAL_ERROR_UNREACH_REMOTE:
                raise
            await asyncio.sleep(RETRY_S)
    return peer, await _exchange(peer, hello, expected=info.right)


async def _connect_left(endpoint: Endpoint, info: RankInfo, *, region: Region, elements: int) -> Peer:
    """Return the left neighbour, once it has identified itself. It may write what lies behind the input."""
    while True:
        peer = await endpoint.accept()
        size_bytes = 4 * elements
        try:
            sums = endpoint.register(region, offset=size_bytes, length=2 * size_bytes, access=WRITABLE, peers=[peer])
            hello = HELLO.pack(info.rank, len(info.hosts), elements, sums.remote_key)
            await _exchange(peer, hello, expected=info.left)
        except (PeerError, RequestError):
            continue  # the neighbour has abandoned this attempt and will connect again
        return peer


async def _exchange(peer: Peer, hello: bytes, *, expected: int) -> int:
    """Exchange identities with a neighbour; return its key. Raises RingError if it is not the expected rank."""
    await peer.send(hello)
    with await peer.recv() as message:
        answer = message.gather()
    if len(answer) != HELLO.size:
        raise RingError(f"{peer.address[0]}: not a rank of a ring; is the port another program's?")
    _, world, elements, _ = HELLO.unpack(hello)
    rank, *theirs, key = HELLO.unpack(answer)
    if rank != expected:
        raise RingError(f"{peer.address[0]}: is rank {rank}, not {expected}; give all ranks the same RANK_HOSTS")
    if theirs != [world, elements]:
        raise RingError(  # it would write out of bounds
            f"rank {rank}: has {theirs[0]} ranks and {theirs[1]} elements, this one {world} and {elements}"
        )
    return int(key)


# -- the program ------------------------------------------------------------------------------------------------------


def pattern(elements: int, *, rank: int) -> Floats:
    """Return whole numbers that depend on rank and position; all their sums are exact in float32."""
    values = np.arange(elements, dtype=np.uint32) % PATTERN
    return (values * (rank + 1)).astype(np.float32)


def exact_sum(elements: int, *, world: int) -> Floats:
    """Return the sum of `pattern` over all ranks, by formula. Raises RingError if float32 cannot represent it."""
    if PATTERN * world * (world + 1) // 2 > 1 << 24:
        raise RingError(f"WORLD_SIZE: {world} is more ranks than float32 has exact sums for in this check; use fewer")
    values = np.arange(elements, dtype=np.uint32) % PATTERN
    return (values * (world * (world + 1) // 2)).astype(np.float32)


def delay_target_config(delay_target_s: float) -> EndpointConfig:
    """Return settings for slow links and busy hosts: this queueing delay in the fabric, four times as much in hosts."""
    return EndpointConfig(
        protocol=ProtocolConfig(min_delay_target_s=delay_target_s, endpoint_delay_target_s=4 * delay_target_s)
    )


async def run(
    info: RankInfo, *, elements: int, iterations: int, piece_bytes: int, config: EndpointConfig | None
) -> bool:
    """Run `iterations` of the all-reduce; return whether every result was right."""
    world, rank = len(info.hosts), info.rank
    wanted = exact_sum(elements, world=world)
    seconds: list[float] = []
    correct = True
    async with Ring.join(info, elements=elements, piece_bytes=piece_bytes, config=config) as ring:
        ring.input[:] = pattern(elements, rank=rank)
        for iteration in range(iterations):
            ring.output.fill(np.nan)  # so that a missing write is detected
            started_at = time.perf_counter()
            await ring.all_reduce()
            seconds.append(time.perf_counter() - started_at)
            right = bool(np.array_equal(ring.output, wanted))
            correct &= right
            result = {"rank": rank, "iteration": iteration, "seconds": round(seconds[-1], 6), "correct": right}
            print(json.dumps({"event": "iteration", **result}), flush=True)
        typical_s = median(seconds)
        summary = {
            "rank": rank,
            "world": world,
            "bytes": 4 * elements,
            "iterations": iterations,
            "seconds_per_iteration": round(typical_s, 6),
            # the bytes on each link, as in NCCL's tests
            "bus_bandwidth_bps": round(8 * 4 * elements * 2 * (world - 1) / world / typical_s),
            "packets_sent": ring.packets_sent,
            "packets_retransmitted": ring.packets_retransmitted,
            "correct": correct,
        }
        print(json.dumps({"event": "done", **summary}), flush=True)
    return correct


@click.command()
@click.option(
    "--bytes", "size_bytes", type=Size(least=4), default="8M", show_default=True, help="Size of the tensor, as 64M."
)
@click.option("--iterations", type=click.IntRange(min=1), default=5, show_default=True)
@click.option(
    "--piece-bytes",
    type=Size(least=4),
    default=f"{PIECE_BYTES >> 10}K",
    show_default=True,
    help="Cut chunks into such pieces.",
)
@click.option(
    "--delay-target",
    "delay_target_s",
    type=Duration(most_s=1),
    help="Queueing delay that SRD accepts; a few packets' time on slow links.  [default: SRD's own]",
)
def main(size_bytes: int, iterations: int, piece_bytes: int, delay_target_s: float | None) -> None:
    """Run a timed and verified ring all-reduce over SRD. Configure it with RANK, WORLD_SIZE and RANK_HOSTS."""
    if size_bytes % 4:
        raise click.BadParameter(f"{size_bytes} is no multiple of 4, the bytes of a float32", param_hint="--bytes")
    try:
        info = RankInfo.from_environment(os.environ)
        config = None if delay_target_s is None else delay_target_config(delay_target_s)
        correct = event_loop.run(
            run(info, elements=size_bytes // 4, iterations=iterations, piece_bytes=piece_bytes, config=config)
        )
    except (RingError, SrdError, DevmemError) as error:
        sys.exit(f"allreduce: {error}")
    if not correct:
        sys.exit("allreduce: the sum is wrong")


if __name__ == "__main__":
    main()
