"""Rate: SENDs of 64 B with the driver's batch calls, by applications that poll.

As in veth/worker/rate.py there are turns: the messages of a turn land in a buffer each, and when all have arrived the
receiver checks that each arrived once and unchanged: it starts with its number, and is that row of random bytes which
both ends generate. This takes place between two turns, outside of the measured time.
"""

from __future__ import annotations

import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from scripts.benches.card.worker.endpoint import CardEndpoint, Room, U64Array, take
from scripts.benches.card.worker.meeting import connected, listening
from scripts.benches.veth.worker.bulk import WARM_UP_TURNS
from scripts.benches.veth.worker.rate import content
from scripts.harness.errors import BenchError
from scripts.harness.events import emit

BYTES: Final = 64
SENDS: Final = 4096
"""Outstanding SENDs: the largest send queue."""
RECEIVES: Final = 16384
"""Receive requests: several times the SENDs, so that a receiver that is late refuses none."""
BATCH: Final = 512
"""So many requests are posted at a time, unless they are the last."""


def _offsets(rows: npt.NDArray[np.uint8]) -> U64Array:
    return np.arange(len(rows), dtype=np.uint64) * np.uint64(BYTES)


def receive(run_dir: Path, *, device: str, messages: int) -> int:
    """Receive turns until the sender ends."""
    rows, cpu_s, turns = content(BYTES)[:messages], 0.0, 0
    room = Room(rows.size, receives=RECEIVES)
    with CardEndpoint(run_dir, device, room=room) as endpoint, listening([endpoint]) as exchange:
        landed, offsets = endpoint.payload.reshape(rows.shape), _offsets(rows)
        while True:
            landed[:] = 0
            posted = min(RECEIVES, len(rows))
            endpoint.post_receives(offsets[:posted], length=BYTES)
            exchange.send({"ready": True})
            if not exchange.recv()["turn"]:
                break
            cpu_before = time.process_time()
            _collect(endpoint, offsets, posted=posted)
            turns += 1
            cpu_s += (time.process_time() - cpu_before) if turns > WARM_UP_TURNS else 0
            exchange.send({"intact": is_intact(landed, rows)})
    emit("received", cpu_s=cpu_s)
    return 0


def _collect(endpoint: CardEndpoint, offsets: U64Array, *, posted: int) -> None:
    """Receive the messages of a turn, each into a buffer of its own. Raises BenchError for one of another length."""
    count, received = len(offsets), 0
    while received < count:
        found = take(endpoint.recv_cq, RECEIVES)
        if (found["length"] != BYTES).any():
            raise BenchError(f"messages of {BYTES} bytes arrived with other lengths")
        received += len(found)
        free = RECEIVES - (posted - received)
        more = min(free, count - posted)
        if more and (more == count - posted or more >= BATCH):
            endpoint.post_receives(offsets[posted : posted + more], length=BYTES)
            posted += more


def is_intact(landed: npt.NDArray[np.uint8], rows: npt.NDArray[np.uint8]) -> bool:
    """Return whether each row has landed once and unchanged, in any order."""
    numbers = landed[:, :4].copy().view("<u4").reshape(-1)
    if (numbers >= len(rows)).any() or (np.bincount(numbers, minlength=len(rows)) != 1).any():
        return False
    return np.array_equal(landed, rows[numbers])


def send(run_dir: Path, *, device: str, host: str, port: int, seconds: float, messages: int) -> int:
    """Send turns until `seconds` were timed."""
    rows, took_s, cpu_s, sent = content(BYTES)[:messages], 0.0, 0.0, 0
    room = Room(rows.size, sends=SENDS)
    with CardEndpoint(run_dir, device, room=room) as endpoint, connected(host, port, [endpoint]) as exchange:
        endpoint.payload[:] = rows.reshape(-1)
        offsets, turns = _offsets(rows), 0
        while took_s < seconds:
            turn_s, turn_cpu_s = _turn(endpoint, exchange, offsets)
            turns += 1
            if turns > WARM_UP_TURNS:
                took_s, cpu_s, sent = took_s + turn_s, cpu_s + turn_cpu_s, sent + len(rows)
        exchange.recv()
        exchange.send({"turn": False})
    emit("sent", messages=sent, seconds=took_s, cpu_s=cpu_s)
    return 0


def _turn(endpoint: CardEndpoint, exchange: Connection, offsets: U64Array) -> tuple[float, float]:
    """Send everything; return the duration and this end's CPU time. Raises BenchError for a wrong byte."""
    exchange.recv()
    exchange.send({"turn": True})
    started, cpu_before = time.perf_counter(), time.process_time()
    count, posted, done = len(offsets), 0, 0
    while done < count:
        room = min(SENDS - (posted - done), count - posted)
        if room and (room >= BATCH or room == count - posted):
            endpoint.post_sends(offsets[posted : posted + room], length=BYTES)
            posted += room
        done += len(take(endpoint.send_cq, SENDS))
    seconds, cpu_s = time.perf_counter() - started, time.process_time() - cpu_before
    if not exchange.recv()["intact"]:
        raise BenchError("the receiver found other messages than were sent")
    return seconds, cpu_s
