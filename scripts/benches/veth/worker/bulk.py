"""Bulk: messages of 1 MiB on one connection, as many as the receive window holds at a time.

Both ends generate the same random bytes from a seed. In a turn the sender posts all messages (timed from the first
posting to the last completion), and the receiver receives them all. It compares every byte before it releases the
memory. The comparison takes place between two turns, outside of the measured time.

Messages are sent repeatedly from a few buffers, as iperf3 sends one of 128 KiB, because the kernel copies faster from
the CPU cache than from memory. They land in different memory each time, whereas iperf3 reads into one buffer; this is
a disadvantage in the comparison.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from devmem.region import Region
from scripts.harness.errors import BenchError
from scripts.harness.events import emit
from srd import Endpoint, EndpointConfig, Message, Peer, PeerError, Plain, ProtocolConfig, Psk, Status

SEED: Final = 1
MESSAGE_BYTES: Final = 1 << 20
TURN_BYTES: Final = 256 << 20
"""Bytes per turn: enough to make the round trip at its end negligible."""
SOURCE_BYTES: Final = 4 << 20
"""Size of the buffer that messages are sent from: it stays in the CPU cache, and consecutive messages differ."""
CONFIG: Final = EndpointConfig(
    protocol=ProtocolConfig(receive_window_bytes=TURN_BYTES, unresponsive_after_s=10.0),
    receive_region_bytes=2 * TURN_BYTES + (24 << 20),
)
"""The defaults, except for a window that holds a turn, and for peers that do not reply while they compare bytes."""
PSK: Final = Psk(bytes(range(32)))
"""Encrypts like every mode; without files of keys."""
WARM_UP_TURNS: Final = 3
"""Turns that do not count. After them every page of the receive region has been written to once."""
INTACT: Final = 1
DAMAGED: Final = 0


def content() -> npt.NDArray[np.uint8]:
    """Return the contents of the messages."""
    return np.frombuffer(np.random.default_rng(SEED).bytes(SOURCE_BYTES), np.uint8)


def source(number: int) -> int:
    """Return the offset of a message of a turn in it."""
    return number * MESSAGE_BYTES % SOURCE_BYTES


@dataclass(slots=True)
class Account:
    """Measurements of one end."""

    byte_count: int = 0
    seconds: float = 0.0
    cpu_s: float = 0.0
    """User and system time of this process while it was timed."""
    turns_bps: list[float] = field(default_factory=list)

    def add(self, seconds: float, cpu_s: float) -> None:
        """Count a turn."""
        self.byte_count += TURN_BYTES
        self.seconds += seconds
        self.cpu_s += cpu_s
        self.turns_bps.append(8 * TURN_BYTES / seconds)


def settings(*, plain: bool) -> EndpointConfig:
    """Return the settings of both ends."""
    return replace(CONFIG, security=Plain() if plain else PSK)


async def send(host: str, *, port: int, seconds: float, plain: bool) -> int:
    """Send turns until `seconds` were timed."""
    account = Account()
    with Region(SOURCE_BYTES, name="bench-bulk") as region:
        region.array[:] = content()
        async with await Endpoint.open(towards=host, config=settings(plain=plain)) as endpoint:
            peer = await endpoint.connect(host, port=port)
            for _ in range(WARM_UP_TURNS):
                await _turn(peer, region)
            dropped_before = endpoint.dropped_packets
            while account.seconds < seconds:
                account.add(*await _turn(peer, region))
            emit(
                "sent",
                bytes=account.byte_count,
                seconds=account.seconds,
                cpu_s=account.cpu_s,
                turns_bps=account.turns_bps,
                dropped=endpoint.dropped_packets - dropped_before,
                packets=peer.stats().tx_pkts,
                retransmitted=peer.stats().retrans_pkts,
                paths_used=sum(1 for path in peer.paths if path.counters.packets),
            )
            await peer.close()
    return 0


async def _turn(peer: Peer, region: Region) -> tuple[float, float]:
    """Send everything; return the duration and this end's CPU time. Raises BenchError for a damaged byte."""
    started, cpu_before = time.perf_counter(), time.process_time()
    requests = [
        peer.post_send(region, offset=source(number), length=MESSAGE_BYTES, immediate=number)
        for number in range(TURN_BYTES // MESSAGE_BYTES)
    ]
    statuses = await asyncio.gather(*requests)
    seconds, cpu_s = time.perf_counter() - started, time.process_time() - cpu_before
    if any(status is not Status.OK for status in statuses):
        raise BenchError(f"a message ended with {next(status for status in statuses if status is not Status.OK).name}")
    with await peer.recv() as result:
        if result.immediate != INTACT:
            raise BenchError("the receiver found other bytes than were sent")
    return seconds, cpu_s


async def receive(host: str, *, plain: bool) -> int:
    """Receive turns until the sender closes."""
    account, expected = Account(), content()
    async with await Endpoint.listen(host, port=0, config=settings(plain=plain)) as endpoint:
        with Region(1, name="bench-result") as empty:
            emit("listening", port=endpoint.address[1])
            peer = await endpoint.accept()
            turns, intact, dropped_before = 0, True, 0
            while (turn := await _receive_turn(peer)) is not None:
                messages, seconds, cpu_s = turn
                intact &= all(is_intact(message, expected) for message in messages)
                for message in messages:
                    message.release()
                if turns >= WARM_UP_TURNS:
                    account.add(seconds, cpu_s)
                turns += 1
                if turns == WARM_UP_TURNS:
                    dropped_before = endpoint.dropped_packets
                await peer.post_send(empty, offset=0, length=0, immediate=INTACT if intact else DAMAGED)
            emit(
                "received",
                bytes=account.byte_count,
                cpu_s=account.cpu_s,
                intact=intact,
                dropped=endpoint.dropped_packets - dropped_before,
                bytes_copied=endpoint.bytes_copied,
                packets=peer.stats().rx_pkts,
                duplicates=peer.stats().rx_duplicates,
            )
    return 0


async def _receive_turn(peer: Peer) -> tuple[list[Message], float, float] | None:
    """Return a turn's messages, their duration, and this end's CPU time; None if there are no more."""
    started, cpu_before = time.perf_counter(), time.process_time()
    messages = list[Message]()
    while len(messages) < TURN_BYTES // MESSAGE_BYTES:
        try:
            messages.append(await peer.recv())
        except PeerError:
            if messages:
                raise
            return None
    return messages, time.perf_counter() - started, time.process_time() - cpu_before


def is_intact(message: Message, expected: npt.NDArray[np.uint8]) -> bool:
    """Whether a message has the bytes that its number says."""
    at = source(message.immediate or 0)
    for view in message.views():
        if not np.array_equal(np.frombuffer(view, np.uint8), expected[at : at + len(view)]):
            return False
        at += len(view)
    return message.length == MESSAGE_BYTES
