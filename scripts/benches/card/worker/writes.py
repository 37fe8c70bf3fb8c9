"""Writes: 1 MiB each, `OUTSTANDING` at a time, by applications that sleep until the card has something for them.

As in veth/worker/bulk.py there are turns: the writes of a turn land in different memory, and when all have completed
the other end compares every byte, and overwrites it, outside of the measured time. They are sent repeatedly from a few
buffers. The CPU time of both applications is measured while the turn lasts.
"""

from __future__ import annotations

import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from nitro_emu.efa.verbs import SendOp
from scripts.benches.card.worker.endpoint import QKEY, CardEndpoint, Room
from scripts.benches.card.worker.meeting import connected, listening
from scripts.benches.veth.worker.bulk import (
    MESSAGE_BYTES,
    SOURCE_BYTES,
    WARM_UP_TURNS,
    content,
    source,
)
from scripts.harness.errors import BenchError
from scripts.harness.events import emit

OUTSTANDING: Final = 16


def receive(run_dir: Path, *, device: str, turn_bytes: int) -> int:
    """Offer memory for a turn, and compare it after each."""
    expected, cpu_s, turns = content(), 0.0, 0
    room = Room(turn_bytes)
    with CardEndpoint(run_dir, device, room=room) as endpoint, listening([endpoint]) as exchange:
        endpoint.payload[:] = 0
        exchange.send({"ready": True})
        cpu_before = time.process_time()
        while exchange.recv()["turn"]:
            turns += 1
            cpu_s += (time.process_time() - cpu_before) if turns > WARM_UP_TURNS else 0
            wrong = wrong_writes(endpoint.payload, expected)
            endpoint.payload[:] = 0
            exchange.send({"wrong": wrong})
            cpu_before = time.process_time()
    emit("received", cpu_s=cpu_s)
    return 0


def wrong_writes(payload: npt.NDArray[np.uint8], expected: npt.NDArray[np.uint8]) -> int:
    """Return how many writes of a turn have a wrong byte."""
    return sum(
        not np.array_equal(
            payload[number * MESSAGE_BYTES :][:MESSAGE_BYTES], expected[source(number) :][:MESSAGE_BYTES]
        )
        for number in range(len(payload) // MESSAGE_BYTES)
    )


def send(run_dir: Path, *, device: str, host: str, port: int, seconds: float, turn_bytes: int) -> int:
    """Write turns until `seconds` were timed."""
    took_s = cpu_s = 0.0
    turns_bps = list[float]()
    room = Room(SOURCE_BYTES, sends=OUTSTANDING)
    with (
        CardEndpoint(run_dir, device, room=room, events=True) as endpoint,
        connected(host, port, [endpoint]) as exchange,
    ):
        endpoint.payload[:] = content()
        exchange.recv()
        for _ in range(WARM_UP_TURNS):
            _turn(endpoint, exchange, turn_bytes=turn_bytes)
        while took_s < seconds:
            turn_s, turn_cpu_s = _turn(endpoint, exchange, turn_bytes=turn_bytes)
            took_s, cpu_s = took_s + turn_s, cpu_s + turn_cpu_s
            turns_bps.append(8 * turn_bytes / turn_s)
        exchange.send({"turn": False})
    all_turns = WARM_UP_TURNS + len(turns_bps)
    emit(
        "sent",
        bytes=len(turns_bps) * turn_bytes,
        all_bytes=all_turns * turn_bytes,
        seconds=took_s,
        cpu_s=cpu_s,
        turns_bps=turns_bps,
    )
    return 0


def _turn(endpoint: CardEndpoint, exchange: Connection, *, turn_bytes: int) -> tuple[float, float]:
    """Write everything; return the duration and this end's CPU time. Raises BenchError for a damaged byte."""
    started, cpu_before = time.perf_counter(), time.process_time()
    stream(endpoint, turn_bytes // MESSAGE_BYTES)
    seconds, cpu_s = time.perf_counter() - started, time.process_time() - cpu_before
    exchange.send({"turn": True})
    if wrong := exchange.recv()["wrong"]:
        raise BenchError(f"{wrong} writes have other bytes than were sent")
    return seconds, cpu_s


def stream(endpoint: CardEndpoint, count: int) -> None:
    """Make so many writes, `OUTSTANDING` at a time."""
    posted = done = 0
    while done < count:
        if room := min(OUTSTANDING - (posted - done), count - posted):
            post(endpoint, np.arange(posted, posted + room, dtype=np.uint64))
            posted += room
        done += len(endpoint.sent(OUTSTANDING))


def post(endpoint: CardEndpoint, numbers: npt.NDArray[np.uint64]) -> None:
    """Post the writes of a turn with these numbers."""
    size = np.uint64(MESSAGE_BYTES)
    endpoint.qp.post_rdma(
        SendOp.RDMA_WRITE,
        endpoint.ah,
        remote_qpn=endpoint.remote.qpn,
        remote_qkey=QKEY,
        addresses=numbers * size % np.uint64(SOURCE_BYTES) + np.uint64(endpoint.memory.address),
        lengths=MESSAGE_BYTES,
        lkey=endpoint.memory.lkey,
        remote_addresses=numbers * size + np.uint64(endpoint.remote.memory),
        rkey=endpoint.remote.rkey,
        wr_ids=numbers,
    )
